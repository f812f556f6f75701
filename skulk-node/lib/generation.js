"use strict";
// How is a running generation read? As an async iterable, or collected.

const { KEY, own } = require("./errors.js");
const { Running } = require("./running.js");

class Generation {
  #running;

  constructor(key, signal, begin) {
    own(key, "generation");
    this.#running = new Running(signal, begin);
  }

  get promptIds() {
    return this.#running.native.promptIds();
  }

  async next() {
    const found = await this.#running.next();
    if (found === true) return { done: true, value: undefined };
    const { id, text, logprob = null, topLogprobs = [], finish } = found;
    const token = id === undefined ? null : { id, logprob, topLogprobs };
    if (finish !== undefined) this.#running.end();
    return { done: false, value: { token, text, finish: finish === undefined ? null : JSON.parse(finish) } };
  }

  async return(value) {
    await this.close();
    return { done: true, value };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async output() {
    const output = JSON.parse(await this.#running.read("output"));
    this.#running.end();
    return output;
  }

  async text() {
    return (await this.output()).text;
  }

  cancel() {
    this.#running.cancel();
  }

  async close() {
    await this.#running.close();
  }

  [Symbol.dispose]() {
    this.cancel();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}

/** What `begin` begins, as `Running` says. */
const generation = (signal, begin) => new Generation(KEY, signal, begin);

module.exports = { Generation, generation };
