// How does the Vercel AI SDK use a model that is loaded here? As a language model of its specification, V4 or V3.

import { Model } from "../lib/index.mjs";
import { partsOf, spoken, whole } from "./answers.mjs";
import { madeOf } from "./made.mjs";
import { asChat, asText } from "./prompts.mjs";

export { skulkEmbedding } from "./embeddings.mjs";
export { chatMessages, plainPrompt } from "./prompts.mjs";

/** What models refuse that cannot be held to a form beside tools. */
const BESIDE_TOOLS = ["tools", "responseFormat", "messages"];

/** The option to leave out where a model refuses a field; undefined where nothing helps. */
function leftOut(field, { tools }) {
  if (field === "reasoning") return field;
  return tools?.length && BESIDE_TOOLS.includes(field) ? "responseFormat" : undefined;
}

class LanguageModel {
  provider = "skulk";
  supportedUrls = {};
  #model;
  #promptOf;

  constructor(model, options) {
    const { modelId, specificationVersion, prompt } = madeOf(model, Model, options, ["prompt"]);
    this.specificationVersion = specificationVersion;
    this.modelId = modelId ?? model.arch.family;
    this.#model = model;
    this.#promptOf = prompt;
  }

  /** Begins what a call asks for: what is to be closed, its events, and warnings. */
  async #begin(call) {
    if (this.#promptOf) {
      const { options, warnings } = asText(call);
      const generation = this.#model.generate(await this.#promptOf(call.prompt), options);
      return { source: generation, events: spoken(generation), warnings: warnings.list() };
    }
    const { messages, options, warnings } = asChat(call);
    const stream = this.#chat(messages, options, warnings);
    return { source: stream, events: stream, warnings: warnings.list() };
  }

  /** The SDK asks every model in the same words: what this one cannot do is warned of, and left out. */
  #chat(messages, options, warnings) {
    for (;;) {
      try {
        return this.#model.chat(messages, options);
      } catch (error) {
        const left = leftOut(error.context?.field, options);
        if (options[left] === undefined) throw error;
        warnings.add(left, error.message);
        options = { ...options, [left]: undefined };
      }
    }
  }

  get #response() {
    return { modelId: this.modelId, timestamp: new Date() };
  }

  async doGenerate(call) {
    const { events, warnings } = await this.#begin(call);
    return { ...(await whole(partsOf(events, call))), response: this.#response, warnings };
  }

  async doStream(call) {
    const { source, events, warnings } = await this.#begin(call);
    const parts = partsOf(events, call);
    const response = this.#response;
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue({ type: "stream-start", warnings });
        controller.enqueue({ type: "response-metadata", ...response });
      },
      async pull(controller) {
        const { done, value } = await parts.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => source.close(),
    });
    return { stream };
  }
}

/** A loaded model as a language model of the AI SDK. */
export const skulk = (model, options) => new LanguageModel(model, options);
