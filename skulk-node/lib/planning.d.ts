// How are the functions behind cards and plans typed, one by one?

import type * as plain from "./contract.js";
import type { Cluster, Given, ModelCard, Node, RingsOptions } from "./index.js";
import type { Ranges } from "./vindex.js";

export const OVERHEAD: number;
export const OVERHEAD_GGUF: number;
export const OVERHEAD_FLOOR: number;
export const RAM_SHARE: number;
export const RAM_SHARE_RELAXED: number;
export const VRAM_SHARE: number;
export const UNIFIED_HEADROOM: number;
export const CONTEXT_TOKENS: number;
export const HEAD_DIM: number;
export const KV_VALUE_BYTES: number;
export const DEFAULT_MAX_TOKENS: number;
export type Strictness = "safe" | "relaxed" | "force";
/** One GGUF file of a folder or repository, by its name. */
export interface GgufFile {
  name: string;
  bytes: number;
  holdsAModel: boolean;
  holdsAProjector: boolean;
  /** How much its quantisation is wanted: the lower, the more. */
  quantRank: number;
  quantLabel: string;
  /** What all files of its split set share. */
  shardBase: string | null;
  /** What to download for it. */
  downloadPatterns: string[];
}
/** The engine that a backend's tag names. */
export function engineOf(tag: string): string | null;
/** Whether the library makes an engine of this name, where a build and a machine have what it takes. */
export function isEngine(name: string): boolean;
export function isMultiNode(engine: string): boolean;
export function serves(nodeTag: string, cardTag: string): boolean;
export function resolveBackend(
  compatible: Iterable<string> & object,
  preference: readonly string[],
  nodeTags: Iterable<string> & object,
): string | null;
export function hasGpuOffload(tags: Iterable<string> & object): boolean;
export function isVpnAddress(address: string): boolean;
export function scale(bytes: number, factor: number): number;
export function divide(bytes: number, divisor: number): number;
export function kvBytesPerToken(card: ModelCard): number;
export function kvBytes(card: ModelCard, tokens: number): number;
export function shardFootprint(
  card: ModelCard,
  options?: Given<{ fraction?: number | null; tokens?: number | null; strictness?: Strictness | null }> | null,
): number;
export function footprintExceeds(
  footprint: number,
  usable: number,
  options?: Given<{ tolerance?: number | null }> | null,
): boolean;
export function usableMemory(
  node: Node,
  options?: Given<{ strictness?: Strictness | null }> | null,
): plain.Usable | null;
export function usableVram(node: Node): number | null;
export function acceleratorMemory(node: Node): number | null;
export function allocateLayers(total: number, fractions: readonly number[]): number[];
export function admitMaxTokens(
  prompt: number,
  options?: Given<{ requested?: number | null; byDefault?: number | null; limit?: number | null }> | null,
): number;
/** The pieces in which a prompt is computed, never ending inside one of `media`. */
export function prefillChunks(
  tokens: number,
  max: number,
  options?: Given<{ media?: Ranges | null; offset?: number | null }> | null,
): Generator<number, void>;
export function rings(card: ModelCard, cluster: Cluster, options?: RingsOptions | null): string[][];
export function leaves(cluster: Cluster): string[];
export function ggufFile(name: string, bytes?: number): GgufFile;
export function selectGguf(files: readonly { name: string; bytes: number }[]): { file: GgufFile; bytes: number } | null;
export function configFacts(config: unknown, modelId: string): plain.ConfigFacts;
export function ggufFacts(start: Uint8Array): plain.GgufFacts;
