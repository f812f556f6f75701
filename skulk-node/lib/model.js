"use strict";
// How is a model used? `Model`, its `Session`s and its `Tokenizer`.

const { inspect } = require("node:util");
const native = require("./native.js");
const { chatStream, conversation, toolChat } = require("./chat.js");
const { KEY, failed, invalid, own } = require("./errors.js");
const { generation } = require("./generation.js");
const names = require("./names.js");
const { optionsOf } = require("./options.js");
const { placementOf } = require("./plans.js");
const { countOf, flagOf, idsOf, json, pathOf, promptOf, shown, textOf } = require("./values.js");
const { work } = require("./work.js");

const LOAD = [...names.LoadOptions, "placement", "signal", "onProgress"];
const GENERATE = [...names.GenerateOptions, "signal"];
/** What begins in a session of its own follows nothing. */
const ALONE = GENERATE.filter((name) => name !== "append");
const TUNE = ALONE.filter((name) => name !== "draftTokens");

class Tokenizer {
  #owner;

  constructor(key, owner) {
    own(key, "tokenizer");
    this.#owner = owner;
  }

  encode(text, options) {
    const { addSpecial = true } = optionsOf(options, ["addSpecial"]);
    return this.#owner.encode(textOf(text, "text"), flagOf(addSpecial, "addSpecial"));
  }

  encodeText(text) {
    return this.#owner.encodeText(textOf(text, "text"));
  }

  decode(ids, options) {
    const { skipSpecial = true } = optionsOf(options, ["skipSpecial"]);
    return this.#owner.decode(idsOf(ids, "ids"), flagOf(skipSpecial, "skipSpecial"));
  }

  get #vocabulary() {
    return JSON.parse(this.#owner.vocabulary());
  }

  get bos() {
    return this.#vocabulary.bos;
  }

  get eosIds() {
    return this.#vocabulary.eosIds;
  }

  get vocabSize() {
    return this.#vocabulary.vocabSize;
  }
}

/** The tokenizer of what has one. */
const tokenizer = (owner) => new Tokenizer(KEY, owner);

class Session {
  #native;

  constructor(key, session) {
    own(key, "session");
    this.#native = session;
  }

  generate(prompt, options) {
    const { signal, ...rest } = optionsOf(options, GENERATE);
    const [text, given] = [promptOf(prompt, "prompt"), json({ options: rest })];
    return generation(signal, (token, wake) => this.#native.generate(text, given, token, wake));
  }

  chat(messages, options) {
    return chatStream(this.#native, messages, options);
  }

  get tokens() {
    return this.#native.tokens();
  }

  truncate(length) {
    this.#native.truncate(countOf(length, "length"));
  }

  fork() {
    return new Session(KEY, this.#native.fork());
  }

  async save(path, options) {
    optionsOf(options, []);
    const to = pathOf(path, "path");
    await work((token, tell) => this.#native.save(to, token, tell), {});
  }

  async recover(placement, options) {
    const own = optionsOf(options, ["signal"]);
    const on = placementOf(placement);
    return new Session(KEY, await work((token, tell) => this.#native.recover(on, token, tell), own));
  }

  async recoverIn(model, options) {
    optionsOf(options, []);
    const own = behind(model, "model");
    return new Session(KEY, await work((token, tell) => this.#native.recoverIn(own, token, tell)));
  }

  resume(options) {
    const { signal } = optionsOf(options, ["signal"]);
    return generation(signal, (token, wake) => this.#native.resume(token, wake));
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

  [inspect.custom]() {
    try {
      return `Session { ${this.tokens.length} tokens }`;
    } catch {
      return "Session { closed }";
    }
  }
}

/** What is behind a model. */
let behind;

class Model {
  #native;

  static {
    behind = (model, field) => {
      if (!(model instanceof Model)) throw invalid(field, `expected a model, found ${shown(model)}`);
      return model.#native;
    };
  }

  constructor(key, model) {
    own(key, "model");
    this.#native = model;
  }

  static async load(path, options) {
    const { placement, signal, onProgress, ...rest } = optionsOf(options, LOAD);
    const text = json({ path: pathOf(path, "path"), options: rest });
    const on = placement === undefined ? null : placementOf(placement);
    return new Model(KEY, await work((token, tell) => native.load(text, on, token, tell), { signal, onProgress }));
  }

  get #facts() {
    return JSON.parse(this.#native.facts());
  }

  get arch() {
    return this.#facts.arch;
  }

  get stages() {
    return this.#facts.stages;
  }

  get placement() {
    return this.#facts.placement;
  }

  get context() {
    return this.#facts.context;
  }

  get loadSeconds() {
    return this.#facts.loadSeconds;
  }

  get ffnMemory() {
    return this.#facts.ffnMemory;
  }

  get kvMemory() {
    return this.#facts.kvMemory;
  }

  get memory() {
    return JSON.parse(this.#native.memory());
  }

  get tokenizer() {
    this.#native.vocabulary();
    return tokenizer(this.#native);
  }

  session() {
    return new Session(KEY, this.#native.session());
  }

  async restore(path, options) {
    optionsOf(options, []);
    const from = pathOf(path, "path");
    return new Session(KEY, await work((token, tell) => this.#native.restore(from, token, tell), {}));
  }

  async replan(placement, options) {
    const own = optionsOf(options, ["signal"]);
    const on = placementOf(placement);
    return new Model(KEY, await work((token, tell) => this.#native.replan(on, token, tell), own));
  }

  generate(prompt, options) {
    const given = optionsOf(options, ALONE);
    return this.#once((session) => session.generate(prompt, given));
  }

  chat(messages, options) {
    return this.#once((session) => session.chat(messages, options));
  }

  /** What a session of its own begins, with which it is freed. */
  #once(begin) {
    const session = this.session();
    try {
      return begin(session);
    } finally {
      session.close();
    }
  }

  chatWithTools(messages, tools, options) {
    return toolChat(this.#native, messages, tools, options);
  }

  renderChat(messages, options) {
    const given = optionsOf(options, names.RenderOptions);
    return JSON.parse(this.#native.renderChat(conversation(messages, given)));
  }

  async generateBatch(prompts, options) {
    const { signal, ...rest } = optionsOf(options, ALONE);
    const [texts, text] = [promptsOf(prompts), json({ options: rest })];
    const outcomes = JSON.parse(
      await work((token, tell) => this.#native.generateBatch(texts, text, token, tell), { signal }),
    );
    return outcomes.map(({ output, failure }) =>
      output ? { status: "fulfilled", value: output } : { status: "rejected", reason: failed(failure) },
    );
  }

  async logits(text, options) {
    const follow = optionsOf(options, ["signal"]);
    const prompt = promptOf(text, "text");
    return work((token, tell) => this.#native.logits(prompt, token, tell), follow);
  }

  async divergence(exact, text, options) {
    const follow = optionsOf(options, ["signal"]);
    const [other, prompt] = [behind(exact, "exact"), promptOf(text, "text")];
    const found = JSON.parse(
      await work((token, tell) => this.#native.divergence(other, prompt, token, tell), follow),
    );
    return { ...found, meanKl: number(found.meanKl), maxKl: number(found.maxKl) };
  }

  async tuneSpeculation(prompts, options) {
    const { signal, ...rest } = optionsOf(options, TUNE);
    const [texts, text] = [promptsOf(prompts), json({ options: rest })];
    const found = await work((token, tell) => this.#native.tuneSpeculation(texts, text, token, tell), { signal });
    return JSON.parse(found);
  }

  close() {
    this.#native.close();
  }

  [Symbol.dispose]() {
    this.close();
  }

  async [Symbol.asyncDispose]() {
    await work((token, tell) => this.#native.free(token, tell));
  }

  [inspect.custom]() {
    try {
      const { arch, context } = this.#facts;
      return `Model { ${arch.family}: ${arch.nLayers} layers, context ${context} }`;
    } catch {
      return "Model { closed }";
    }
  }
}

/** The prompts of an array, or of whatever else can be iterated but is one prompt itself. */
function promptsOf(prompts) {
  if (typeof prompts !== "object" || prompts === null || ArrayBuffer.isView(prompts) || !prompts[Symbol.iterator]) {
    throw invalid("prompts", `expected an array of prompts, found ${shown(prompts)}`);
  }
  return Array.from(prompts, (prompt, i) => promptOf(prompt, `prompts.${i}`));
}

/** What Rust writes of a number that may be infinite. */
const number = (text) => Number(text.replace("inf", "Infinity"));

module.exports = { Model, Session, Tokenizer, tokenizer };
