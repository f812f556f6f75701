"use strict";
// How are vectors made of texts? `EmbeddingModel`.

const native = require("./native.js");
const { KEY, invalid, own } = require("./errors.js");
const { tokenizer } = require("./model.js");
const names = require("./names.js");
const { optionsOf } = require("./options.js");
const { json, pathOf, shown, textOf } = require("./values.js");
const { work } = require("./work.js");

class EmbeddingModel {
  #native;

  constructor(key, model) {
    own(key, "model");
    this.#native = model;
  }

  static async load(path, options) {
    const given = optionsOf(options, names.EmbeddingOptions);
    const text = json({ path: pathOf(path, "path"), options: given });
    return new EmbeddingModel(KEY, await work((token, tell) => native.loadEmbeddingModel(text, token, tell)));
  }

  get #facts() {
    return JSON.parse(this.#native.facts());
  }

  get dimensions() {
    return this.#facts.dimensions;
  }

  get maxTokens() {
    return this.#facts.maxTokens;
  }

  get poolings() {
    return this.#facts.poolings;
  }

  get isNormalized() {
    return this.#facts.isNormalized;
  }

  get tokenizer() {
    this.#native.vocabulary();
    return tokenizer(this.#native);
  }

  async embed(texts, options) {
    const { signal, ...rest } = optionsOf(options, [...names.EmbedOptions, "signal"]);
    const [given, text, { dimensions }] = [textsOf(texts), json({ options: rest }), this.#facts];
    const all = await work((token, tell) => this.#native.embed(given, text, token, tell), { signal });
    const vectors = given.map((_, i) => all.slice(i * dimensions, (i + 1) * dimensions));
    return typeof texts === "string" ? vectors[0] : vectors;
  }

  close() {
    this.#native.close();
  }

  [Symbol.dispose]() {
    this.close();
  }

  async [Symbol.asyncDispose]() {
    this.close();
  }
}

/** A text, or the texts of an array or of whatever else can be iterated. */
function textsOf(texts) {
  if (typeof texts === "string") return [texts];
  if (typeof texts !== "object" || texts === null || !texts[Symbol.iterator]) {
    throw invalid("texts", `expected a text or an array of texts, found ${shown(texts)}`);
  }
  return Array.from(texts, (text, i) => textOf(text, `texts.${i}`));
}

module.exports = { EmbeddingModel };
