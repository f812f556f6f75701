// How is the provider for the Vercel AI SDK typed? By what the models here do, which fits `LanguageModelV4`,
// `LanguageModelV3`, `EmbeddingModelV4` and `EmbeddingModelV3` of `@ai-sdk/provider`, whatever its version.

import type { EmbeddingModel as LoadedEmbeddingModel, Model } from "../lib/index.js";

/** A part of a message: a text, reasoning, a call, its result, or something that is not read. */
export interface Part {
  type: string;
  text?: string;
  [member: string]: any;
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
  /** JSON by a schema, or any object. Where the model cannot be held to it beside tools, it is left out, with a warning. */
  responseFormat?: { type: "text" } | { type: "json"; schema?: any; name?: string; description?: string };
  tools?: { type: "function" | "provider"; name: string; description?: string; inputSchema?: any; [member: string]: any }[];
  toolChoice?: { type: "auto" | "none" | "required" } | { type: "tool"; toolName: string };
  reasoning?: string;
  abortSignal?: AbortSignal;
  includeRawChunks?: boolean;
  /** `providerOptions.skulk` takes options of `Model.chat`, and of `Model.generate` where prompts are made by `prompt`. */
  providerOptions?: Record<string, any>;
}

export interface Ending {
  finishReason: { unified: "stop" | "length" | "tool-calls" | "other"; raw: string };
  usage: {
    inputTokens: { total: number; noCache: number; cacheRead: number; cacheWrite: undefined };
    outputTokens: { total: number; text: number; reasoning: number | undefined };
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

/** A call of a tool. One whose input is no JSON is what the model wrote instead of a call. */
export interface ToolCall {
  type: "tool-call";
  toolCallId: string;
  toolName: string;
  input: string;
}

export type Content = { type: "text" | "reasoning"; text: string } | ToolCall;

export type StreamPart =
  | { type: "stream-start"; warnings: Warning[] }
  | ({ type: "response-metadata" } & Response)
  | { type: "text-start" | "text-end" | "reasoning-start" | "reasoning-end" | "tool-input-end"; id: string }
  | { type: "text-delta" | "reasoning-delta" | "tool-input-delta"; id: string; delta: string }
  | { type: "tool-input-start"; id: string; toolName: string }
  | ToolCall
  | ({ type: "finish" } & Ending)
  | { type: "raw"; rawValue: unknown };

/** A language model of the AI SDK. What it cannot honour, as files, it warns of. */
export interface LanguageModel<Version extends "v3" | "v4"> {
  readonly specificationVersion: Version;
  readonly provider: "skulk";
  readonly modelId: string;
  readonly supportedUrls: Record<string, RegExp[]>;
  doGenerate(call: Call): Promise<Ending & { content: Content[]; warnings: Warning[]; response: Response }>;
  doStream(call: Call): Promise<{ stream: ReadableStream<StreamPart> }>;
}

/** What a model is made with. */
export interface SkulkOptions<Version> {
  /** What the AI SDK calls it; a language model's family by default. */
  modelId?: string | null | undefined;
  /** `v4`, the default, is for `ai` 7, `v3` for `ai` 6. */
  specificationVersion?: Version | null | undefined;
  /**
   * Makes a text of a prompt's messages, as {@link plainPrompt} does. By default they are a conversation, for which
   * the model needs a chat template.
   */
  prompt?: ((messages: Message[]) => string | PromiseLike<string>) | null | undefined;
}

/** A loaded model as a language model of the AI SDK. */
export function skulk<Version extends "v3" | "v4" = "v4">(
  model: Model,
  options?: SkulkOptions<Version> | null,
): LanguageModel<Version>;

/** The texts of all messages, with an empty line between them. */
export function plainPrompt(messages: Message[]): string;

/** The messages as `Model.chat` takes them. */
export function chatMessages(prompt: Message[]): Record<string, any>[];

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
  options?: Omit<SkulkOptions<Version>, "prompt"> | null,
): EmbeddingModel<Version>;
