// How does the Vercel AI SDK use a model that is loaded here? As a language or embedding model of its specification, V4 or
// V3.

/** What prompts have beside text: the models here read text alone. */
const UNREAD = { file: "files in prompts", "tool-call": "tool calls in prompts", "tool-result": "tool results in prompts" };

/** The texts of all messages, with an empty line between them. */
export function plainPrompt(messages) {
  const texts = (content) => {
    if (typeof content === "string") return [content];
    return content.filter((part) => part.type === "text").map((part) => part.text);
  };
  return messages.flatMap(({ content }) => texts(content)).join("\n\n");
}

/** What of a call cannot be honoured. */
function warningsOf({ prompt, responseFormat, tools, toolChoice, reasoning }) {
  const features = new Map();
  for (const { content } of prompt) {
    for (const part of Array.isArray(content) ? content : []) {
      if (part.type !== "text") features.set(UNREAD[part.type] ?? `${part.type} parts in prompts`, "it was left out");
    }
  }
  if (responseFormat?.type === "json") features.set("responseFormat", "the text need not be JSON");
  if (tools?.length) features.set("tools", "no tool will be called");
  else if (toolChoice && !["auto", "none"].includes(toolChoice.type)) features.set("toolChoice", "there are no tools");
  if (reasoning && reasoning !== "provider-default") features.set("reasoning", "it is as the model does it");
  return [...features].map(([feature, details]) => ({ type: "unsupported", feature, details }));
}

/** The options of a generation. */
function optionsOf(call) {
  const { maxOutputTokens, temperature, topP, topK, presencePenalty, frequencyPenalty, seed, stopSequences } = call;
  return {
    maxTokens: maxOutputTokens,
    temperature,
    topP,
    topK,
    presencePenalty,
    frequencyPenalty,
    seed,
    stop: stopSequences,
    signal: call.abortSignal,
    ...call.providerOptions?.skulk,
  };
}

const finishReason = ({ reason }) => ({ unified: reason === "length" ? "length" : "stop", raw: reason });

const usage = ({ usage: { promptTokens, cachedTokens, completionTokens } }) => ({
  inputTokens: {
    total: promptTokens,
    noCache: promptTokens - cachedTokens,
    cacheRead: cachedTokens,
    cacheWrite: undefined,
  },
  outputTokens: { total: completionTokens, text: completionTokens, reasoning: undefined },
});

const providerMetadata = ({ timings }) => ({ skulk: { timings } });

/** A version of the specification that there is. */
function versionOf(specificationVersion) {
  if (["v4", "v3"].includes(specificationVersion)) return specificationVersion;
  throw new RangeError(`expected the specification v4 or v3, found ${specificationVersion}`);
}

class LanguageModel {
  provider = "skulk";
  supportedUrls = {};
  #model;
  #promptOf;

  constructor(model, { modelId = model.arch.family, specificationVersion = "v4", prompt = plainPrompt } = {}) {
    this.specificationVersion = versionOf(specificationVersion);
    this.modelId = modelId;
    this.#model = model;
    this.#promptOf = prompt;
  }

  async #generate(call) {
    return this.#model.generate(await this.#promptOf(call.prompt), optionsOf(call));
  }

  get #response() {
    return { modelId: this.modelId, timestamp: new Date() };
  }

  async doGenerate(call) {
    const generation = await this.#generate(call);
    const { text, finish } = await generation.output();
    return {
      content: [{ type: "text", text }],
      finishReason: finishReason(finish),
      usage: usage(finish),
      providerMetadata: providerMetadata(finish),
      response: this.#response,
      warnings: warningsOf(call),
    };
  }

  async doStream(call) {
    const generation = await this.#generate(call);
    const [id, response] = ["0", this.#response];
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue({ type: "stream-start", warnings: warningsOf(call) });
        controller.enqueue({ type: "response-metadata", ...response });
        controller.enqueue({ type: "text-start", id });
      },
      async pull(controller) {
        // A pull must enqueue something: not every token completes a text.
        for (let enqueued = false; !enqueued; ) {
          const { value: event } = await generation.next();
          if (call.includeRawChunks) controller.enqueue({ type: "raw", rawValue: event });
          if (event.text) controller.enqueue({ type: "text-delta", id, delta: event.text });
          enqueued = Boolean(event.text) || call.includeRawChunks;
          if (event.finish === null) continue;
          const { finish } = event;
          controller.enqueue({ type: "text-end", id });
          controller.enqueue({
            type: "finish",
            finishReason: finishReason(finish),
            usage: usage(finish),
            providerMetadata: providerMetadata(finish),
          });
          controller.close();
          return;
        }
      },
      cancel: () => generation.close(),
    });
    return { stream };
  }
}

/** A loaded model as a language model of the AI SDK. */
export const skulk = (model, options) => new LanguageModel(model, options);

class EmbeddingModel {
  provider = "skulk";
  maxEmbeddingsPerCall = Infinity;
  supportsParallelCalls = true;
  #model;

  constructor(model, { modelId = "embedding", specificationVersion = "v4" } = {}) {
    this.specificationVersion = versionOf(specificationVersion);
    this.modelId = modelId;
    this.#model = model;
  }

  async doEmbed({ values, dimensions, abortSignal, providerOptions }) {
    const vectors = await this.#model.embed(values, { signal: abortSignal, ...providerOptions?.skulk });
    const details = `vectors have ${this.#model.dimensions} elements`;
    const honoured = dimensions === undefined || dimensions === this.#model.dimensions;
    return {
      embeddings: vectors.map((vector) => Array.from(vector)),
      warnings: honoured ? [] : [{ type: "unsupported", feature: "dimensions", details }],
    };
  }
}

/** A loaded embedding model as one of the AI SDK. */
export const skulkEmbedding = (model, options) => new EmbeddingModel(model, options);
