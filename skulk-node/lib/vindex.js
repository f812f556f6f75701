"use strict";
// How is a vindex folder used? `VindexReader`: its tensors, parts and slices, and what its model knows.

const native = require("./native.js");
const { KEY, own } = require("./errors.js");
const { tokenizer } = require("./model.js");
const names = require("./names.js");
const { optionsOf } = require("./options.js");
const { idsOf, json, pathOf, rangesOf, textOf } = require("./values.js");
const { begin, work } = require("./work.js");

const SLICE = [...names.SliceOptions, "signal", "onProgress"];
const VERIFY = [...names.VerifyOptions, "signal", "onProgress"];
const EXTRACT = [...names.ExtractOptions, "signal", "onProgress"];

class VindexReader {
  #native;
  /** What was read when it was opened, until it is closed. */
  #held = null;

  constructor(key, folder) {
    own(key, "reader");
    this.#native = folder;
  }

  static async open(path, options) {
    const { threads } = optionsOf(options, ["threads"]);
    const text = json({ path: pathOf(path, "path"), threads });
    return new VindexReader(KEY, await work((token, tell) => native.openVindex(text, token, tell)));
  }

  async #ask(name, args = {}, own = {}) {
    const text = json(args);
    return work((token, tell) => this.#native.ask(name, text, token, tell), own);
  }

  async #data(...question) {
    return JSON.parse(await this.#ask(...question));
  }

  /** Asks with options of the question's own, which are those of these names and a signal. */
  async #search(name, args, options, known) {
    const { signal, ...rest } = optionsOf(options, [...known, "signal"]);
    return this.#data(name, { ...args, options: rest }, { signal });
  }

  /** Asks a question that has no options but a signal. */
  async #plain(ask, name, args, options) {
    return ask(name, args, optionsOf(options, ["signal"]));
  }

  get #facts() {
    return (this.#held ??= JSON.parse(this.#native.facts()));
  }

  get path() {
    return this.#facts.path;
  }

  get index() {
    return structuredClone(this.#facts.index);
  }

  get model() {
    return this.#facts.index.model;
  }

  get family() {
    return this.#facts.index.family;
  }

  get numLayers() {
    return this.#facts.index.num_layers;
  }

  get hiddenSize() {
    return this.#facts.index.hidden_size;
  }

  get vocabSize() {
    return this.#facts.index.vocab_size;
  }

  get level() {
    return this.#facts.index.extract_level;
  }

  get dtype() {
    return this.#facts.index.dtype;
  }

  get quant() {
    return this.#facts.index.quant;
  }

  get lacks() {
    return [...this.#facts.lacks];
  }

  get layers() {
    return [...this.#facts.layers];
  }

  get bands() {
    return structuredClone(this.#facts.bands);
  }

  get tensors() {
    return structuredClone(this.#facts.tensors);
  }

  get tokenizer() {
    this.#native.vocabulary();
    return tokenizer(this.#native);
  }

  has(name) {
    return this.#facts.tensors.some((tensor) => tensor.name === name);
  }

  async tensor(name) {
    const { tensors } = this.#facts;
    // The native module knows why there is none.
    await this.#ask("tensor", { name: textOf(name, "name") });
    return structuredClone(tensors.find((tensor) => tensor.name === name));
  }

  async parts() {
    return this.#data("parts");
  }

  async array(name, options) {
    return this.#plain((...question) => this.#ask(...question), "array", { name: textOf(name, "name") }, options);
  }

  async bytes(name) {
    return this.#ask("bytes", { name: textOf(name, "name") });
  }

  async gates(layer, options) {
    return this.#plain((...question) => this.#ask(...question), "gates", { layer }, options);
  }

  async embed(token) {
    return this.#ask("embed", { tokens: idsOf(typeof token === "number" ? [token] : token, "token") });
  }

  async scores(layer, query, options) {
    return this.#plain((...question) => this.#ask(...question), "scores", { layer, query }, options);
  }

  async nearest(query, options) {
    return this.#search("nearest", { query }, options, names.NearestOptions);
  }

  async walk(prompt, options) {
    return this.#search("walk", { prompt: textOf(prompt, "prompt") }, options, names.WalkOptions);
  }

  async describe(entity, options) {
    return this.#search("describe", { entity: textOf(entity, "entity") }, options, names.DescribeOptions);
  }

  async feature(layer, feature) {
    return this.#data("feature", { layer, feature });
  }

  async features(layer, options) {
    return this.#plain((...question) => this.#data(...question), "features", { layer }, options);
  }

  async select(options) {
    return this.#search("select", {}, options, names.SelectOptions);
  }

  async relations(options) {
    return this.#search("relations", {}, options, names.RelationsOptions);
  }

  async slice(target, options) {
    const { signal, onProgress, ...rest } = optionsOf(options, SLICE);
    const ranges = { layers: rangesOf(rest.layers), experts: rangesOf(rest.experts) };
    const args = { target: pathOf(target, "target"), options: { ...rest, ...ranges } };
    return this.#data("slice", args, { signal, onProgress });
  }

  async verify(options) {
    return verifyVindex(this.path, options);
  }

  close() {
    this.#held = null;
    this.#native.close();
  }

  [Symbol.dispose]() {
    this.close();
  }

  async [Symbol.asyncDispose]() {
    this.close();
  }
}

async function verifyVindex(path, options) {
  const { signal, onProgress, ...rest } = optionsOf(options, VERIFY);
  return begin("verifyVindex", { path: pathOf(path, "path"), options: rest }, { signal, onProgress });
}

async function extract(source, target, options) {
  const { signal, onProgress, ...rest } = optionsOf(options, EXTRACT);
  const args = { source: pathOf(source, "source"), target: pathOf(target, "target"), options: rest };
  return begin("extract", args, { signal, onProgress });
}

module.exports = { VindexReader, extract, verifyVindex };
