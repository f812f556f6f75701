// How are vindex folders typed?

import type * as plain from "./contract.js";
import type { Followed, Given, Path, Stoppable, Tokenizer } from "./index.js";

/** Ranges, each also as a pair of its first number and the one behind its last. */
export type Ranges = readonly (readonly [start: number, end: number] | plain.Range)[];

/** Options of a slice. */
export interface SliceOptions extends Given<Omit<plain.SliceOptions, "layers" | "experts">>, Followed<plain.VindexProgress> {
  /** Layers whose weights it holds; by default all. */
  layers?: Ranges | null | undefined;
  /** Experts of each layer whose weights it holds; by default all. */
  experts?: Ranges | null | undefined;
}

/** Options of an extraction. */
export interface ExtractOptions extends Given<plain.ExtractOptions>, Followed<plain.VindexProgress> {}
/** Options of a verification. */
export interface VerifyOptions extends Given<plain.VerifyOptions>, Followed<plain.VindexProgress> {}
/** Options of a search for the features nearest to a query. */
export interface NearestOptions extends Given<plain.NearestOptions>, Stoppable {}
/** Options of a walk through the features that a prompt wakes. */
export interface WalkOptions extends Given<plain.WalkOptions>, Stoppable {}
/** Options of a description. */
export interface DescribeOptions extends Given<plain.DescribeOptions>, Stoppable {}
/** Options of a selection of features. */
export interface SelectOptions extends Given<plain.SelectOptions>, Stoppable {}
/** Options of a list of relations. */
export interface RelationsOptions extends Given<plain.RelationsOptions>, Stoppable {}

/** Numbers that a search looks near to, as many as the model is wide. */
export type Query = readonly number[] | Float32Array;

/** An opened vindex folder, whole or a slice. Nothing of its weights is read until it is asked for. */
export class VindexReader implements Disposable, AsyncDisposable {
  private constructor();
  /** Opens a folder; searches compute on so many threads, all by default. */
  static open(path: Path, options?: Given<{ threads?: number | null }> | null): Promise<VindexReader>;
  get path(): string;
  /** `index.json`, with the defaults of what it leaves out. */
  get index(): Record<string, unknown>;
  get model(): string;
  /** LARQL's name of the family. */
  get family(): string;
  get numLayers(): number;
  get hiddenSize(): number;
  get vocabSize(): number;
  /** How much of the model was extracted. */
  get level(): "browse" | "attention" | "inference" | "all";
  /** The type of gate vectors and float files. */
  get dtype(): "f32" | "f16";
  /** How other weights are stored. */
  get quant(): string;
  /** Parts that the whole vindex has and this folder lacks. */
  get lacks(): plain.PartInfo["part"][];
  /** The layers of which the index tells features, in order. */
  get layers(): number[];
  get bands(): plain.VindexBands;
  /** Every tensor that the folder's files hold, by name. */
  get tensors(): plain.TensorInfo[];
  get tokenizer(): Tokenizer;
  /** Whether there is a tensor of that name. */
  has(name: string): boolean;
  tensor(name: string): Promise<plain.TensorInfo>;
  /** The parts that the folder holds, and the files of each, as they are now. */
  parts(): Promise<plain.PartInfo[]>;
  /** A tensor's numbers, row by row, without what rows are padded with. */
  array(name: string, options?: Stoppable | null): Promise<Float32Array>;
  /** A tensor's bytes as they are stored; a copy, which may be written to. */
  bytes(name: string): Promise<Buffer>;
  /** A layer's gate vectors, row by row, all experts' behind each other. */
  gates(layer: number, options?: Stoppable | null): Promise<Float32Array>;
  /** What enters the first layer for a token, or for each of some, behind each other. */
  embed(token: number | readonly number[] | Uint32Array): Promise<Float32Array>;
  /** The products of all gate rows of a layer with a query. */
  scores(layer: number, query: Query, options?: Stoppable | null): Promise<Float32Array>;
  /** The features of each layer whose gate rows have products of the largest magnitude with a query. */
  nearest(query: Query, options?: NearestOptions | null): Promise<plain.FeatureHit[]>;
  /** The features that a prompt's last token wakes. */
  walk(prompt: string, options?: WalkOptions | null): Promise<plain.WalkHit[]>;
  /** What the model associates with an entity. */
  describe(entity: string, options?: DescribeOptions | null): Promise<plain.Description>;
  /** A feature and what it writes; `null` where nothing is written down of it. */
  feature(layer: number, feature: number): Promise<plain.Feature | null>;
  /** The features of a layer of which anything is written down, in order. */
  features(layer: number, options?: Stoppable | null): Promise<plain.Feature[]>;
  /** Features in order. */
  select(options?: SelectOptions | null): Promise<plain.Selection>;
  /** The words that features of the layers of facts write most, and the labels that probes confirmed. */
  relations(options?: RelationsOptions | null): Promise<plain.Relations>;
  /** Makes a folder of what a role takes of this one, of some parts, layers or experts. */
  slice(target: Path, options?: SliceOptions | null): Promise<plain.SliceReport>;
  /** Verifies the folder as it is now. */
  verify(options?: VerifyOptions | null): Promise<plain.VerifyReport>;
  /** Lets go of the folder, once what is being asked is answered. */
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Verifies a vindex folder, which need not be one that opens: what keeps it from that is a problem of the report. */
export function verifyVindex(path: Path, options?: VerifyOptions | null): Promise<plain.VerifyReport>;

/**
 * Writes the model of a checkpoint as a vindex folder, which LARQL reads too. `target` must not exist or be empty. After
 * an interruption, calling again with the same arguments continues where it ended.
 */
export function extract(source: Path, target: Path, options?: ExtractOptions | null): Promise<plain.ExtractReport>;
