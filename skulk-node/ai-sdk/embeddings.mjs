// How does the Vercel AI SDK make vectors with a model that is loaded here? As an embedding model of its specification, V4
// or V3.

import { EmbeddingModel } from "../lib/index.mjs";
import { madeOf } from "./made.mjs";

class Embedder {
  provider = "skulk";
  maxEmbeddingsPerCall = Infinity;
  supportsParallelCalls = true;
  #model;

  constructor(model, options) {
    const { modelId = "embedding", specificationVersion } = madeOf(model, EmbeddingModel, options);
    this.specificationVersion = specificationVersion;
    this.modelId = modelId;
    this.#model = model;
  }

  async doEmbed({ values, dimensions, abortSignal, providerOptions }) {
    const { tokenizer, maxTokens } = this.#model;
    const count = (text) => Math.min(tokenizer.encode(text).length, maxTokens);
    const vectors = await this.#model.embed(values, { signal: abortSignal, ...providerOptions?.skulk });
    const details = `vectors have ${this.#model.dimensions} elements`;
    const honoured = dimensions === undefined || dimensions === this.#model.dimensions;
    return {
      embeddings: vectors.map((vector) => Array.from(vector)),
      usage: { tokens: values.reduce((sum, text) => sum + count(text), 0) },
      warnings: honoured ? [] : [{ type: "unsupported", feature: "dimensions", details }],
    };
  }
}

/** A loaded embedding model as one of the AI SDK. */
export const skulkEmbedding = (model, options) => new Embedder(model, options);
