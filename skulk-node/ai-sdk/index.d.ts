// How is the provider for the Vercel AI SDK typed? By what the models here do, which fits `LanguageModelV4`,
// `LanguageModelV3`, `EmbeddingModelV4` and `EmbeddingModelV3` of `@ai-sdk/provider`, whatever its version.

import type { EmbeddingModel as LoadedEmbeddingModel, Model } from "../lib/index.js";

/** A part of a message: its text, or something that is not read. */
export interface Part {
  type: string;
  text?: string;
}

/** A message of a prompt, as the AI SDK hands it to models. */
export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: string | Part[];
}

/** What a call asks for. */
export interface Call {
  prompt: Message[];
  maxOutputTokens?: number;
  temperature?: number;
  topP?: number;
  topK?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  seed?: number;
  stopSequences?: string[];
  abortSignal?: AbortSignal;
  includeRawChunks?: boolean;
  /** `providerOptions.skulk` takes options of `Model.generate`. */
  providerOptions?: Record<string, any>;
}

export interface Ending {
  finishReason: { unified: "stop" | "length"; raw: string };
  usage: {
    inputTokens: { total: number; noCache: number; cacheRead: number; cacheWrite: undefined };
    outputTokens: { total: number; text: number; reasoning: undefined };
  };
  providerMetadata: { skulk: { timings: Record<string, number> } };
}

export interface Warning {
  type: "unsupported";
  feature: string;
  details: string;
}

export interface Response {
  modelId: string;
  timestamp: Date;
}

export type StreamPart =
  | { type: "stream-start"; warnings: Warning[] }
  | ({ type: "response-metadata" } & Response)
  | { type: "text-start"; id: string }
  | { type: "text-delta"; id: string; delta: string }
  | { type: "text-end"; id: string }
  | ({ type: "finish" } & Ending)
  | { type: "raw"; rawValue: unknown };

/** A language model of the AI SDK. What it cannot honour, tools and JSON among it, it warns of. */
export interface LanguageModel<Version extends "v3" | "v4"> {
  readonly specificationVersion: Version;
  readonly provider: "skulk";
  readonly modelId: string;
  readonly supportedUrls: Record<string, RegExp[]>;
  doGenerate(
    call: Call,
  ): Promise<Ending & { content: { type: "text"; text: string }[]; warnings: Warning[]; response: Response }>;
  doStream(call: Call): Promise<{ stream: ReadableStream<StreamPart> }>;
}

/** What a model is made with. */
export interface SkulkOptions<Version> {
  /** What the AI SDK calls it; a language model's family by default. */
  modelId?: string;
  /** `v4`, the default, is for `ai` 7, `v3` for `ai` 6. */
  specificationVersion?: Version;
  /** Makes a text of a prompt's messages; by default their texts with empty lines between them. */
  prompt?: (messages: Message[]) => string | PromiseLike<string>;
}

/** A loaded model as a language model of the AI SDK. */
export function skulk<Version extends "v3" | "v4" = "v4">(
  model: Model,
  options?: SkulkOptions<Version>,
): LanguageModel<Version>;

/** The texts of all messages, with an empty line between them. */
export function plainPrompt(messages: Message[]): string;

/** What a call for embeddings asks for. */
export interface EmbeddingCall {
  values: string[];
  /** There are those that the model has: others are warned of. */
  dimensions?: number;
  abortSignal?: AbortSignal;
  /** `providerOptions.skulk` takes options of `EmbeddingModel.embed`. */
  providerOptions?: Record<string, any>;
}

/** An embedding model of the AI SDK. It does not count tokens. */
export interface EmbeddingModel<Version extends "v3" | "v4"> {
  readonly specificationVersion: Version;
  readonly provider: "skulk";
  readonly modelId: string;
  readonly maxEmbeddingsPerCall: number;
  readonly supportsParallelCalls: boolean;
  doEmbed(call: EmbeddingCall): Promise<{ embeddings: number[][]; warnings: Warning[] }>;
}

/** A loaded embedding model as one of the AI SDK. `modelId` is what that calls it, `embedding` by default. */
export function skulkEmbedding<Version extends "v3" | "v4" = "v4">(
  model: LoadedEmbeddingModel,
  options?: Omit<SkulkOptions<Version>, "prompt">,
): EmbeddingModel<Version>;
