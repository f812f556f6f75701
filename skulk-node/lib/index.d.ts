// How is the package typed? Handles and functions here, plain data in `contract.d.ts`.

/// <reference types="node" />

import type * as plain from "./contract.js";

export * from "./contract.js";
export * from "./vindex.js";
export type {
  DescribeOptions,
  ExtractOptions,
  NearestOptions,
  RelationsOptions,
  SelectOptions,
  SliceOptions,
  VerifyOptions,
  WalkOptions,
} from "./vindex.js";

/** The functions behind cards and plans, one by one. */
export * as planning from "./planning.js";

/** A path, as text or as a `file:` URL. */
export type Path = string | URL;

/** A text, or token ids that are used as given. */
export type Prompt = string | readonly number[] | Uint32Array;

/** A list as options have it: it is only read. */
type Read<Value> = Value extends (infer Item)[] ? readonly Read<Item>[] : Value;

/** Options as hosts write them. Each may be left out, also as `undefined` and `null`. */
export type Given<Options> = { [Name in keyof Options]: Read<Options[Name]> | undefined };

/** What stops work. It then ends with a `SkulkError` of kind `Cancelled`, whose `cause` is the signal's reason. */
export interface Stoppable {
  signal?: AbortSignal | null | undefined;
}

/** What follows work. An exception of `onProgress` ends it, and is what the promise rejects with. */
export interface Followed<Step> extends Stoppable {
  onProgress?: ((step: Step) => unknown) | null | undefined;
}

/** What kind of failure it is. */
export type ErrorKind =
  | "InvalidArgument" | "FileNotFound" | "FileIo" | "CheckpointInvalid" | "CheckpointTruncated" | "ConfigInvalid"
  | "ArchUnsupported" | "DTypeUnsupported" | "TensorMissing" | "TensorShape" | "TokenizerInvalid" | "TemplateInvalid"
  | "ChatInvalid" | "ToolFailed" | "CardInvalid" | "PlanNoFit" | "PlanPending" | "PlacementInvalid" | "ContextOverflow"
  | "OutOfMemory" | "EngineUnavailable" | "EngineFailed" | "SessionBusy" | "SessionInvalid" | "SessionMismatch"
  | "Cancelled" | "DeadlineExceeded" | "PeerFailed" | "PeerLost" | "Internal";

/** What everything here throws and rejects with. Of kind `Cancelled`, its `name` is `AbortError`. */
export class SkulkError extends Error {
  private constructor();
  readonly kind: ErrorKind;
  /** The kind's code, as in `file.not_found`: the same in every language, and it does not change. */
  readonly code: string;
  /** What to do. */
  readonly hint: string | null;
  /** Whether trying again can help. */
  readonly retry: "never" | "now" | "after_replan";
  /** What it concerns, by name, as `file` and `field`. */
  readonly context: Readonly<Record<string, string>>;
  /** Facts, of the kinds that have any: cards' faults, a plan's report, tokens, shapes. */
  readonly detail:
    | { faults: plain.CardFault[] }
    | { report: PlanReport }
    | { needed: number; available: number }
    | { expected: number[]; found: number[] }
    | null;
  /** All of it as text, with the errors behind it. */
  readonly text: string;
}

/** Every kind of error with its code. */
export function errorKinds(): [ErrorKind, string][];

/** This package's version. */
export const version: string;

/** The devices of this machine that engines run on. */
export function devices(): Promise<plain.Device[]>;

/** Options of `Model.load`. */
export interface LoadOptions extends Given<plain.LoadOptions>, Followed<{ done: number; total: number }> {
  /** Gives engines their numbers of layers, in order, as in `[["wgpu", 20], ["cpu", 12]]`, or is what `plan` made. */
  placement?: Placement | readonly (readonly [engine: string, layers: number])[] | null | undefined;
}

/** Options of `generate` of a session; without `append` also of a model's. */
export interface GenerateOptions extends Given<Omit<plain.GenerateOptions, "logitBias" | "seed">>, Stoppable {
  /** What is added to logits, by token id; may be `-Infinity`. */
  logitBias?: Record<number, number> | ReadonlyMap<number, number> | null | undefined;
  /** The same seed draws the same tokens; 0 by default. */
  seed?: number | bigint | null | undefined;
}

/** Options of `serve`. Ranges are pairs of the first number and the one behind the last, or such objects. */
export interface ServeOptions extends Given<Omit<plain.ServeOptions, "layers" | "experts">>, Stoppable {
  /** The layers whose blocks are served; by default all. */
  layers?: plain.Range | readonly [start: number, end: number] | null | undefined;
  /** The experts that are served of each layer that has some; by default all. */
  experts?: plain.Range | readonly [start: number, end: number] | null | undefined;
}

/** Options of `EmbeddingModel.load`. */
export interface EmbeddingOptions extends Given<plain.EmbeddingOptions> {}
/** Options of `EmbeddingModel.embed`. */
export interface EmbedOptions extends Given<plain.EmbedOptions>, Stoppable {}
/** Options of `Node.measureLink`. */
export interface LinkOptions extends Given<plain.LinkOptions>, Stoppable {}
/** Options of `Placement.build`. */
export interface PlacementOptions extends Given<plain.PlacementOptions> {}
/** Options of `plan`. */
export interface PlanOptions extends Given<Omit<plain.PlanOptions, "fixed">> {
  /**
   * What is fixed by hand, by rules as those of a placement by hand with places on the cluster's nodes, as `wgpu@shed`; the
   * rest is planned, blocks of layers that rules name among it. Only for `direct`.
   */
  fixed?: PlacementOptions | null | undefined;
}
/** Options of `price`. */
export interface PriceOptions extends Given<plain.PriceOptions> {}
/** Options of `planning.rings`. */
export interface RingsOptions extends Given<plain.RingsOptions> {}
/** What else than its card is known of a model. */
export interface ProfileOptions extends Given<plain.ProfileOptions> {}

/** A message as OpenAI's chat API has it. Other fields reach the model's template. */
export interface ChatMessage {
  /** `system`, `developer`, `user`, `assistant`, `tool`, or what the model's template knows beside. */
  role: string;
  /** A text, or parts, of which those of type `text` have a `text`. */
  content?: string | readonly { type: string; [field: string]: any }[] | null;
  [field: string]: any;
}

/** What a model may call. `execute` is for `chatWithTools`, and no model is told of it. */
export interface ChatTool {
  type: "function";
  function: {
    name: string;
    description?: string;
    /** JSON Schema of its arguments. */
    parameters?: Record<string, any> | null;
    [field: string]: any;
  };
  execute?: ToolFunction;
}

/**
 * A function that a model calls, with an object of arguments. What it gives reaches the model: a text as it is, else as
 * JSON. `signal` is aborted when the conversation is cancelled, which does not wait for the function.
 */
export type ToolFunction = (args: any, context: { signal: AbortSignal }) => unknown;

/** A conversation: its messages, or a text, which is one message of the user's. */
export type Messages = string | ChatMessage | readonly ChatMessage[];

/** A whole answer. */
export interface ChatAnswer extends plain.ChatAnswer {
  message: ChatMessage;
}

/** Options of `renderChat`. */
export interface RenderOptions extends Given<Omit<plain.RenderOptions, "tools">> {
  /** What the model may call. */
  tools?: readonly ChatTool[] | null | undefined;
}

/** Options of `chat`. What the model cannot do is refused. */
export interface ChatOptions extends Given<Omit<plain.ChatOptions, "logitBias" | "seed" | "tools">>, Stoppable {
  /** What is added to logits, by token id; may be `-Infinity`. */
  logitBias?: Record<number, number> | ReadonlyMap<number, number> | null | undefined;
  /** The same seed draws the same tokens; 0 by default. */
  seed?: number | bigint | null | undefined;
  /** What the model may call. Nothing is run. */
  tools?: readonly ChatTool[] | null | undefined;
}

/** Options of `chatWithTools`. */
export interface ToolOptions extends Omit<ChatOptions, "tools">, Given<plain.ToolOptions> {}

/** What is told of a conversation with tools: parts of answers, and what functions gave. */
export type ToolEvent = plain.ChatEvent | { type: "result"; result: plain.ToolResult };

/** What became of one prompt of many. */
export type BatchResult =
  | { status: "fulfilled"; value: plain.Output }
  | { status: "rejected"; reason: SkulkError };

/** A model ready to generate: its weights, split into stages. */
export class Model implements Disposable, AsyncDisposable {
  private constructor();
  /**
   * Loads the checkpoint at a path: a GGUF file, a Hugging Face folder of safetensors or a vindex folder. `onProgress`
   * hears of every layer; `signal` ends loading within one.
   */
  static load(path: Path, options?: LoadOptions | null): Promise<Model>;
  /** Facts about the architecture. */
  get arch(): plain.Arch;
  /** What each stage holds, in the order a token passes them. */
  get stages(): plain.Stage[];
  /** Which engine runs which layers, in words. */
  get placement(): string;
  /** Tokens that a session can hold. */
  get context(): number;
  /** How long loading took, in seconds. */
  get loadSeconds(): number;
  /** What is in memory of feed-forward weights, where `ffnBudget` bounds that. */
  get ffnMemory(): plain.FfnMemory | null;
  /** What keys and values of all sessions take now, and what is kept for those to come. */
  get kvMemory(): plain.KvMemory;
  /** What the model holds of memory at present, and what its plan counted. */
  get memory(): plain.ModelMemory;
  /** Works as long as the model is open. */
  get tokenizer(): Tokenizer;
  /** An empty session, which takes no memory yet. Any number may exist and generate at the same time. */
  session(): Session;
  /**
   * A session as `Session.save` wrote it, to be gone on with. It has to be of the same model, loaded with the same types of
   * keys and values and the same precision on the same kind of engine; it may be cut into other stages. The file is not
   * needed afterwards.
   */
  restore(path: Path): Promise<Session>;
  /**
   * The same checkpoint, loaded with the same options but for the placement, which is as in `load`: what this model computed
   * on machines that are lost is elsewhere there. Both exist while both are used.
   */
  replan(placement: NonNullable<LoadOptions["placement"]>, options?: Stoppable | null): Promise<Model>;
  /** Generates in a session of its own, which is gone with the generation. */
  generate(prompt: Prompt, options?: Omit<GenerateOptions, "append"> | null): Generation;
  /**
   * Answers a conversation in a session of its own: the model's profile says how messages become its prompt and what its
   * answer consists of. What begins like another conversation is not computed again.
   */
  chat(messages: Messages, options?: ChatOptions | null): ChatStream;
  /**
   * Answers a conversation, and calls these functions, one after the other, until the model calls none any more, or it is
   * cancelled: see `ToolChat`. A
   * function that throws is told to the model, unless `onToolFailure` ends the conversation with `ToolFailed`, of which
   * the `cause` is what was thrown.
   */
  chatWithTools(
    messages: Messages,
    tools: readonly (ChatTool & { execute: ToolFunction })[],
    options?: ToolOptions | null,
  ): ToolChat;
  /** The prompt that messages become, with its tokens. */
  renderChat(messages: Messages, options?: RenderOptions | null): plain.ChatPrompt;
  /**
   * Generates from many prompts, each in a session of its own, in steps together, and waits until all have ended, as
   * `Promise.allSettled` does: there is a result for each prompt, in their order, and one that fails does not end the
   * others. It rejects for options that cannot be, and when `signal` ends it. Prompts and constraints are read beside
   * JavaScript.
   */
  generateBatch(
    prompts: Iterable<Prompt> & object,
    options?: Omit<GenerateOptions, "append"> | null,
  ): Promise<BatchResult[]>;
  /** Logits of the next token behind every token of a text: rows of `arch.vocabSize` numbers, behind each other. */
  logits(text: Prompt, options?: Stoppable | null): Promise<Float32Array>;
  /** How far this model's predictions are from an exact one's, behind every token of a text. */
  divergence(exact: Model, text: Prompt, options?: Stoppable | null): Promise<plain.Divergence>;
  /**
   * Measures on these prompts which way to compute tokens ahead is the fastest: none, what texts repeat, and a draft model
   * where one is loaded, each with 1, 2, 4 and 8 tokens in every step, and with as many as pay. Ways take turns, three times,
   * of each text 128 tokens unless options say otherwise; `speculate` tries that way alone. `text` is a table.
   */
  tuneSpeculation(
    prompts: Iterable<Prompt> & object,
    options?: Omit<GenerateOptions, "append" | "draftTokens"> | null,
  ): Promise<plain.SpeculationReport>;
  /** Lets go of the model. Its memory is freed when its sessions and generations are closed, too. */
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * One conversation with a model: prompts that begin like the tokens it holds are computed only from where they differ.
 * It runs one generation at a time.
 */
export class Session implements Disposable, AsyncDisposable {
  private constructor();
  /** Starts generating and returns at once. */
  generate(prompt: Prompt, options?: GenerateOptions | null): Generation;
  /** Answers a conversation, of which `messages` are all. What the session holds of it is not computed again. */
  chat(messages: Messages, options?: ChatOptions | null): ChatStream;
  /** All tokens of the conversation: prompts and what was generated. */
  get tokens(): number[];
  /** Forgets all tokens but the first `length`. */
  truncate(length: number): void;
  /**
   * Another session that begins as this one is: its tokens, and what the model holds of them. From then on they are
   * independent; what they share is stored once.
   */
  fork(): Session;
  /**
   * Writes the conversation to a file: its tokens, and the keys and values that the model holds of them, so that
   * `Model.restore` need not compute them again. A file that is there is replaced when all is written.
   */
  save(path: Path): Promise<void>;
  /**
   * This conversation with its model placed otherwise, see `Model.replan`: all its tokens, and the generation that an error
   * cut off, which `resume` goes on with. Keys and values are computed again when it does.
   */
  recover(placement: NonNullable<LoadOptions["placement"]>, options?: Stoppable | null): Promise<Session>;
  /** The same in a model that is loaded already, which several conversations may share. */
  recoverIn(model: Model): Promise<Session>;
  /**
   * Goes on with the generation that a lost machine or another error cut off, whose `retry` is `after_replan`: with the same
   * options, so that both texts together are the one that it would have generated. Its events follow those that were given
   * before.
   */
  resume(options?: Stoppable | null): Generation;
  /** Lets go of its keys and values. */
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * A running generation. Read it with `for await`, which cancels where it is left early, or collect it. Of several
 * readers each event reaches one. It is cancelled when nobody holds it any more.
 */
export class Generation implements AsyncIterableIterator<plain.Event>, Disposable, AsyncDisposable {
  private constructor();
  /** The prompt's tokens, special ones included. */
  get promptIds(): number[];
  next(): Promise<IteratorResult<plain.Event, undefined>>;
  return(value?: unknown): Promise<IteratorResult<plain.Event, any>>;
  [Symbol.asyncIterator](): this;
  /** Runs to the end: the text that was not read yet. */
  text(): Promise<string>;
  /** Runs to the end: text, tokens and finish of what was not read yet. */
  output(): Promise<plain.Output>;
  /** Asks it to end: reading throws within one layer's work, after the events that are already there. */
  cancel(): void;
  /** Cancels, and waits until it has ended; the session is free then. */
  close(): Promise<void>;
  /** Cancels, and does not wait. */
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * An answer that is being written. Read it with `for await`, which cancels where it is left early, or collect it. Of
 * several readers each event reaches one. It is cancelled when nobody holds it any more.
 *
 * The last event is of type `finish`, also where it was cancelled: what was written until then comes before.
 */
export class ChatStream implements AsyncIterableIterator<plain.ChatEvent>, Disposable, AsyncDisposable {
  private constructor();
  /** The prompt that the messages became. */
  get prompt(): plain.ChatPrompt;
  /** The answer as far as it was read, as a message. */
  get message(): ChatMessage;
  next(): Promise<IteratorResult<plain.ChatEvent, undefined>>;
  return(value?: unknown): Promise<IteratorResult<plain.ChatEvent, any>>;
  [Symbol.asyncIterator](): this;
  /** Runs to the end: the whole answer, with what was read before. */
  answer(): Promise<ChatAnswer>;
  /** Runs to the end: what the model said. */
  text(): Promise<string>;
  /** Asks it to end: what there is of it still comes, and an end that says so. */
  cancel(): void;
  /** Cancels, and waits until it has ended; the session is free then. */
  close(): Promise<void>;
  /** Cancels, and does not wait. */
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * A conversation that calls functions: read its events and results with `for await`, which cancels where it is left
 * early, or run it to its end. Functions are called when that is read which comes behind their call.
 *
 * Once it is cancelled, by `cancel` or a signal, no function is called any more, and one that is running is told by its
 * `signal`, but not waited for: what it does not give at once, and what was not called, has as its result an error that says
 * so. The last event is a `finish` with the reason `cancelled`.
 */
export class ToolChat implements AsyncIterableIterator<ToolEvent>, Disposable, AsyncDisposable {
  private constructor();
  /** All of the conversation: the messages that it began with, answers that have ended, and results. */
  get messages(): ChatMessage[];
  /** How the last answer that was read ended: with `tool_calls` where there were too many rounds. */
  get finish(): plain.ChatFinish | null;
  /** Which round it is, from 0. */
  get round(): number;
  next(): Promise<IteratorResult<ToolEvent, undefined>>;
  return(value?: unknown): Promise<IteratorResult<ToolEvent, any>>;
  [Symbol.asyncIterator](): this;
  /** Runs to the end: the whole conversation. */
  run(): Promise<ChatMessage[]>;
  /** Asks it to end: the answer that is being written, and functions. */
  cancel(): void;
  /** Cancels, and waits until the answer has ended, but not for a function. Nothing is read any more. */
  close(): Promise<void>;
  /** Cancels, and does not wait. */
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Serves the feed-forward blocks and experts of the checkpoint at a path to other processes and machines, on threads of its
 * own: `Model.load` with `ffnAt` has them computed there. `signal` ends loading.
 */
export function serve(path: Path, options?: ServeOptions | null): Promise<Server>;

/**
 * A server of feed-forward blocks and experts. It stops when nobody holds it any more, and when the process ends, for which it
 * does not keep JavaScript waiting; `wait` does.
 */
export class Server implements Disposable, AsyncDisposable {
  private constructor();
  /** Where it listens, as `ffnAt` takes it. */
  get address(): string;
  /** Numbers of what it did and holds, in the text format of OpenMetrics. */
  get metrics(): string;
  /**
   * Stops it: no connection is taken any more, requests that were begun are finished within `grace` seconds, 0 by default, and
   * what is left then is cut off. Settles when all has ended.
   */
  stop(options?: Given<{ grace?: number | null }> | null): Promise<void>;
  /** Settles when it has stopped. */
  wait(): Promise<void>;
  /** Stops it at once. */
  [Symbol.dispose](): void;
  /** The same, beside JavaScript. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A model that makes vectors of texts, which are near each other where texts mean the same. */
export class EmbeddingModel implements Disposable, AsyncDisposable {
  private constructor();
  /** Loads a folder as Hugging Face and sentence-transformers write it: a BERT with its tokenizer. */
  static load(path: Path, options?: EmbeddingOptions | null): Promise<EmbeddingModel>;
  /** Elements of a vector. */
  get dimensions(): number;
  /** Tokens of a text that count, those that the tokenizer adds among them. */
  get maxTokens(): number;
  /** How tokens' vectors become a text's; several give one behind the other. */
  get poolings(): ("cls" | "max" | "mean" | "mean_sqrt_len_tokens" | "weightedmean" | "lasttoken")[];
  /** Whether vectors have length 1, so that their dot product is their cosine. */
  get isNormalized(): boolean;
  /** Works as long as the model is open. */
  get tokenizer(): Tokenizer;
  /** The vector of a text, of `dimensions` numbers. */
  embed(text: string, options?: EmbedOptions | null): Promise<Float32Array>;
  /** A vector of each text, in their order. A text's vector does not depend on the others. */
  embed(texts: Iterable<string> & object, options?: EmbedOptions | null): Promise<Float32Array[]>;
  /** Lets go of the model, once what is being embedded is done. */
  close(): void;
  [Symbol.dispose](): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A vocabulary, and the rules that cut text into it. */
export class Tokenizer {
  private constructor();
  /** The tokens of a text. With `addSpecial` (the default) a beginning-of-sequence token is added where it belongs. */
  encode(text: string, options?: Given<{ addSpecial?: boolean | null }> | null): number[];
  /** The tokens of a text alone, in which texts of special tokens stay text. */
  encodeText(text: string): number[];
  /** The text of tokens. With `skipSpecial` (the default) control tokens are left out. */
  decode(ids: Iterable<number> & object, options?: Given<{ skipSpecial?: boolean | null }> | null): string;
  /** The beginning-of-sequence token, if there is one. */
  get bos(): number | null;
  /** The tokens that end a generation. */
  get eosIds(): number[];
  /** One past the highest token id. */
  get vocabSize(): number;
}

/** Facts about one model, declared rather than measured. */
export interface ModelCard extends plain.ModelCard {}
/** Cards are plain data; what reads, writes and uses them. A card is checked when it is used. */
export const ModelCard: {
  /** Reads the card in a `.toml` or `.json` file. */
  open(path: Path): Promise<ModelCard>;
  fromToml(text: string): ModelCard;
  fromJson(text: string): ModelCard;
  /** The card of a local checkpoint, of which only headers and configurations are read. */
  fromCheckpoint(path: Path): Promise<ModelCard>;
  /** The JSON Schema of cards in TOML, for editors. */
  schema(): Record<string, unknown>;
  /** The card as indented JSON, with every field. */
  toJson(card: ModelCard): string;
  /** The card as TOML, without what is not known. */
  toToml(card: ModelCard): string;
  /** Writes the card to a `.toml` or `.json` file, as a whole or not at all. */
  save(card: ModelCard, path: Path): Promise<void>;
  /** The name of the card's file. */
  fileName(card: ModelCard): string;
  /**
   * Parameters of the model, by its facts: of the decoder with embedding and head, and of the parts beside it. `null`: the
   * card has no facts, or they cannot be right.
   */
  parameters(card: ModelCard): number | null;
  /**
   * Bytes of all weights, by the card's facts and the bits of a weight that they or `quantization` say. `null`: as of
   * `parameters`, or nothing says how many bits.
   */
  sizeByFacts(card: ModelCard): number | null;
  /**
   * What is wrong with the card's facts: those that contradict each other, the card's other fields or its size, and those
   * that are missing beside others. Plans then take the card for one without facts.
   */
  factFindings(card: ModelCard): plain.CardFault[];
  /** What the model can do, and how it is spoken to. */
  profile(card: ModelCard, options?: ProfileOptions | null): Profile;
};

/** What a card resolves to. */
export interface Profile extends plain.Profile {}
export const Profile: {
  /** What a model can do, from its id and its card, where there is one. */
  resolve(modelId: string, card?: ModelCard | null, options?: ProfileOptions | null): Profile;
  /** The profile to read requests by while nothing is known of the model. */
  permissive(): Profile;
  /** What a request for reasoning means for a model. */
  reasoning(
    profile: Pick<
      plain.Profile,
      "supportsThinking" | "supportsThinkingToggle" | "defaultReasoningEffort" | "disabledReasoningEffort"
    >,
    request?: Given<Partial<plain.Reasoning>> | null,
  ): plain.Reasoning;
};

/** Whether a model is to be run as Gemma 4. */
export function isGemma4Family(modelId: string, card?: ModelCard | null): boolean;

/** Cards by their model's id, in order: the built-in ones, and folders of yours over them. It reads files at once. */
export class CardLibrary implements Iterable<[string, ModelCard]> {
  /** Later folders override earlier ones, and all of them the built-in cards. */
  constructor(folders?: Path | readonly Path[], options?: Given<{ builtin?: boolean | null }> | null);
  get(modelId: string): ModelCard | null;
  has(modelId: string): boolean;
  get ids(): string[];
  get size(): number;
  [Symbol.iterator](): Iterator<[string, ModelCard]>;
  /** Your folders, in their order. */
  get folders(): string[];
  /** Why files are not among the cards. */
  get problems(): SkulkError[];
  /** The file of a card; of built-in ones `null`. */
  file(modelId: string): string | null;
  addFolder(folder: Path): void;
  /** Searches the folders again. */
  reload(): void;
  /** Writes a card into one of the folders, and tells the file. */
  save(folder: Path, card: ModelCard): string;
  /** Deletes the file of a card of yours. Whether there was one. */
  remove(modelId: string): boolean;
}

export interface Node extends plain.Node {}
export const Node: {
  /** This machine. How fast its devices are is measured, once for the process. */
  local(): Promise<Node>;
  /**
   * Bytes a second at which this machine reads the file at a path from its drive, whatever the system's cache has of it:
   * what weights that stay in their file cost, see `diskBytesPerSecond`. It takes about 50 ms. On Linux only, and not where
   * file systems have no drives.
   */
  measureDisk(path: Path): Promise<number>;
  /**
   * How fast the link from this machine to a server of this library is, for a cluster's links: the median of fifteen round
   * trips, and how fast bytes go there and come back, up to 8 MiB of them.
   */
  measureLink(address: string, options?: LinkOptions | null): Promise<plain.LinkSpeed>;
};

/** Machines and what connects them. */
export interface Cluster extends plain.Cluster {}
export const Cluster: {
  /** This machine alone. */
  local(): Promise<Cluster>;
  /** Nodes that are all connected with each other; unless said otherwise, by gigabit Ethernet. */
  mesh(nodes: readonly Node[], speed?: plain.LinkSpeed): Cluster;
  fromJson(text: string): Cluster;
  toJson(cluster: Cluster): string;
};

/** What a model weighs, part by part. */
export interface Inventory extends plain.Inventory {}
export const Inventory: {
  fromCheckpoint(path: Path): Promise<Inventory>;
  /**
   * Counts the tensors of what drafts for the model of a checkpoint, at a path that `Model.load` takes as its `draftModel`; only
   * headers are read.
   */
  fromDraftModel(model: Path, path: Path): Promise<Inventory>;
  fromCard(card: ModelCard): Inventory;
  /** A mixture of experts, every layer alike; bytes are those of one layer. */
  ofExperts(
    nLayers: number,
    options: {
      attention: number;
      shared?: number | null | undefined;
      nExperts: number;
      nUsed: number;
      expert: number;
      kvPerToken?: number | null | undefined;
    },
  ): Inventory;
};

/**
 * Plans where a model runs: the fastest placement on a cluster, this machine by default, that satisfies what is asked
 * for. `card` is a card or a checkpoint's path. Where nothing fits, the error's `detail.report` says why.
 */
export function plan(card: ModelCard | Path, cluster?: Cluster | null, options?: PlanOptions | null): Promise<Placement>;

/**
 * What a placement costs on a cluster, this machine by default, whether or not it fits there: a token of each session, and a
 * prompt. `card` is a card or a checkpoint's path. A placement with a device that is not in the cluster, or not reached from
 * its coordinator, is `PlacementInvalid`.
 */
export function price(
  card: ModelCard | Path,
  placement: NonNullable<LoadOptions["placement"]>,
  cluster?: Cluster | null,
  options?: PriceOptions | null,
): Promise<plain.Price>;

/** Which node runs which layers and experts. */
export class Placement {
  private constructor();
  /** Reads what `toJson` writes, and Skulk 1.3's instances. */
  static fromJson(text: string): Placement;
  /** Stages of so many layers each, one behind the other, on engines by name. */
  static byCounts(counts: readonly (readonly [engine: string, layers: number])[]): Placement;
  /**
   * By hand, of the model of a checkpoint, or of one that an inventory describes. Patterns over tensor names need a
   * checkpoint.
   */
  static build(model: Path | Inventory, options?: PlacementOptions | null): Promise<Placement>;
  /** The same, with the address where a node serves what this has on it: `http://host:port`, `https://…` or `unix:///path`. */
  withAddress(node: string, address: string): Placement;
  get nLayers(): number;
  get stages(): plain.PlacedStage[];
  /** Feed-forward blocks and experts that are elsewhere than their layer's attention. */
  get experts(): plain.ExpertShard[];
  /** Where nodes serve what this has on them, by node. */
  get addresses(): Record<string, string>;
  /** What each device is to hold, where the placement came with that. */
  get budgets(): plain.Budget[];
  /**
   * Bytes of feed-forward blocks and experts that the coordinator's processor has in memory at most, where the others
   * stay on disk; `null`: all are in memory. `Model.load` keeps it.
   */
  get ffnBudget(): number | null;
  /** Tokens for which a plan reserves keys and values. */
  get contextTokens(): number | null;
  /**
   * Sessions for each of which a plan reserves keys and values: as many as `Model.load` lets generate at once, unless its
   * options ask for fewer. `null`: nobody planned it.
   */
  get sessions(): number | null;
  /**
   * What a plan counts that drafts, on the last stage's device: `Model.load` loads the checkpoint's head where it is that, and
   * else asks for a `draftModel` that takes no more. `null`: nothing, or nobody planned it.
   */
  get drafter(): plain.Drafter | null;
  /** Tokens that the context is limited to. */
  get contextLimit(): number | null;
  /** How keys are kept: as a plan was asked for. Where it was not, `"f16"` stands for two bytes an element, of what engines prefer. */
  get kv(): "f16" | "bf16" | "f32" | "q8_0" | "q4_0";
  /** How values are kept. */
  get kvValues(): "f16" | "bf16" | "f32" | "q8_0" | "q4_0";
  /** The model's card, unless it was made by hand. */
  get card(): ModelCard | null;
  /** Why it is as it is, where it was planned here. */
  get report(): PlanReport | null;
  get instanceId(): string;
  /** As JSON on one line, as Skulk 1.3 has it. */
  toJson(): string;
  /** What `toJson` writes, as data. */
  toObject(): Record<string, unknown>;
  /** The tagged shard of one rank, as Skulk 1.3 gives it to a runner. */
  shardMetadata(rank: number): Record<string, unknown>;
  /** Throws unless every layer and expert of the card's model has its place and fits there by the budgets. */
  check(card: ModelCard): void;
  /**
   * `check`, and whether each part fits into what its node has now, with the margins of `safe`: what the budgets say that a
   * device is to hold, and without budgets what is estimated for a node's share of the card's size with a context of
   * `contextTokens`, 8192 by default. Placements that `plan` made have budgets, which count the context that was planned:
   * `contextTokens` changes nothing there.
   */
  checkOn(card: ModelCard, cluster: Cluster, options?: Given<{ contextTokens?: number | null }> | null): void;
  toString(): string;
}

/** Why a plan is as it is, or why there is none. As text it is a table. */
export class PlanReport {
  private constructor();
  static fromJson(text: string): PlanReport;
  toJson(): string;
  toObject(): Record<string, unknown>;
  toMarkdown(): string;
  /** Tables and bars in HTML, to be put into a page. */
  toHtml(): string;
  /** A picture of nodes, shards and links. */
  toSvg(): string;
  toString(): string;
}
