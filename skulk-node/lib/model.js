"use strict";
// How is a model used? `Model`, its `Session`s and its `Tokenizer`.

const native = require("./native.js");
const { chatStream, conversation, toolChat } = require("./chat.js");
const { KEY, failed, invalid, own } = require("./errors.js");
const { generation } = require("./generation.js");
const { placementOf } = require("./plans.js");
const { countOf, idsOf, json, optionsJson, optionsOf, pathOf, promptOf, shown, textOf } = require("./values.js");
const { work } = require("./work.js");

class Tokenizer {
  #owner;

  constructor(key, owner) {
    own(key, "tokenizer");
    this.#owner = owner;
  }

  encode(text, { addSpecial = true } = {}) {
    return this.#owner.encode(textOf(text, "text"), Boolean(addSpecial));
  }

  encodeText(text) {
    return this.#owner.encodeText(textOf(text, "text"));
  }

  decode(ids, { skipSpecial = true } = {}) {
    return this.#owner.decode(idsOf(ids, "ids"), Boolean(skipSpecial));
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
    const [rest, { signal }] = optionsOf(options, "signal");
    const [text, given] = [promptOf(prompt, "prompt"), `{"options":${optionsJson(rest)}}`];
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

  async save(path) {
    const to = pathOf(path, "path");
    await work((token, tell) => this.#native.save(to, token, tell), {});
  }

  async recover(placement) {
    const on = placementOf(placement);
    return new Session(KEY, await work((token, tell) => this.#native.recover(on, token, tell)));
  }

  async recoverIn(model) {
    const own = behind(model, "model");
    return new Session(KEY, await work((token, tell) => this.#native.recoverIn(own, token, tell)));
  }

  resume(options) {
    const [rest, { signal }] = optionsOf(options, "signal");
    nothing(rest, "signal");
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
    const [rest, { placement, ...follow }] = optionsOf(options, "placement", "signal", "onProgress");
    const text = json({ path: pathOf(path, "path"), options: rest });
    const on = placement === undefined ? null : placementOf(placement);
    return new Model(KEY, await work((token, tell) => native.load(text, on, token, tell), follow));
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

  async restore(path) {
    const from = pathOf(path, "path");
    return new Session(KEY, await work((token, tell) => this.#native.restore(from, token, tell), {}));
  }

  async replan(placement) {
    const on = placementOf(placement);
    return new Model(KEY, await work((token, tell) => this.#native.replan(on, token, tell)));
  }

  generate(prompt, options) {
    return this.#once((session) => session.generate(prompt, options));
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
    const [rest] = optionsOf(options);
    return JSON.parse(this.#native.renderChat(conversation(messages, rest)));
  }

  async generateBatch(prompts, options) {
    const [rest, follow] = optionsOf(options, "signal");
    const [texts, text] = [promptsOf(prompts), `{"options":${optionsJson(rest)}}`];
    const outcomes = JSON.parse(
      await work((token, tell) => this.#native.generateBatch(texts, text, token, tell), follow),
    );
    return outcomes.map(({ output, failure }) =>
      output ? { status: "fulfilled", value: output } : { status: "rejected", reason: failed(failure) },
    );
  }

  async logits(text, options) {
    const [rest, follow] = optionsOf(options, "signal");
    nothing(rest, "signal");
    const prompt = promptOf(text, "text");
    return work((token, tell) => this.#native.logits(prompt, token, tell), follow);
  }

  async divergence(exact, text, options) {
    const [rest, follow] = optionsOf(options, "signal");
    nothing(rest, "signal");
    const [other, prompt] = [behind(exact, "exact"), promptOf(text, "text")];
    const found = JSON.parse(
      await work((token, tell) => this.#native.divergence(other, prompt, token, tell), follow),
    );
    return { ...found, meanKl: number(found.meanKl), maxKl: number(found.maxKl) };
  }

  async tuneSpeculation(prompts, options) {
    const [rest, follow] = optionsOf(options, "signal");
    const [texts, text] = [promptsOf(prompts), `{"options":${optionsJson(rest)}}`];
    const found = await work((token, tell) => this.#native.tuneSpeculation(texts, text, token, tell), follow);
    return JSON.parse(found);
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

/** The prompts of an array, or of whatever else can be iterated but is one prompt itself. */
function promptsOf(prompts) {
  if (typeof prompts !== "object" || prompts === null || ArrayBuffer.isView(prompts) || !prompts[Symbol.iterator]) {
    throw invalid("prompts", `expected an array of prompts, found ${shown(prompts)}`);
  }
  return Array.from(prompts, (prompt, i) => promptOf(prompt, `prompts.${i}`));
}

/** What Rust writes of a number that may be infinite. */
const number = (text) => Number(text.replace("inf", "Infinity"));

/** Refuses options where there are none but this one. */
function nothing(rest, only) {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalid(unknown, `there is no option \`${unknown}\``, `the only option is ${only}`);
}

module.exports = { Model, Session, Tokenizer, tokenizer, nothing };
