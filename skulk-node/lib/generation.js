"use strict";
// How is a running generation read? As an async iterable, or collected. Nothing waits for it but promises.

const native = require("./native.js");
const { KEY, ended, own } = require("./errors.js");
const { link } = require("./work.js");

/** Keeps the event loop alive while somebody waits, and only then. */
const alive = setInterval(() => {}, 2 ** 31 - 1).unref();
let waiting = 0;

/** Who waits for a generation. It knows nothing of the generation, which may be collected when nobody does. */
class Bell {
  #waiters = [];

  ring() {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  wait() {
    if (waiting++ === 0) alive.ref();
    return new Promise((resolve) => {
      this.#waiters.push(() => {
        if (--waiting === 0) alive.unref();
        resolve();
      });
    });
  }
}

class Generation {
  #native;
  #bell = new Bell();
  #token = new native.CancelToken();
  #signal;
  #unlink;
  /** The last call of `next` that waits. */
  #last = null;

  constructor(key, session, prompt, options, signal) {
    own(key, "generation");
    const bell = this.#bell;
    this.#signal = signal;
    this.#unlink = link(signal, this.#token);
    try {
      this.#native = session.generate(prompt, options, this.#token, () => bell.ring());
    } catch (error) {
      this.#unlink();
      throw error;
    }
  }

  get promptIds() {
    return this.#native.promptIds();
  }

  /** Polls until there is something, which is neither `false` nor `null`. */
  async #read(poll) {
    for (;;) {
      const found = this.#poll(poll);
      if (found !== false && found !== null) return found;
      await this.#bell.wait();
    }
  }

  #poll(poll) {
    try {
      return this.#native[poll]();
    } catch (error) {
      this.#unlink();
      throw ended(error, this.#signal);
    }
  }

  async next() {
    let found = this.#last === null ? this.#poll("poll") : false;
    if (found === false) {
      // Calls take turns, so that each gets the event behind the one before.
      const before = this.#last ?? Promise.resolve();
      const mine = before.catch(() => {}).then(() => this.#read("poll"));
      this.#last = mine;
      try {
        found = await mine;
      } finally {
        if (this.#last === mine) this.#last = null;
      }
    }
    if (found === true) {
      this.#unlink();
      return { done: true, value: undefined };
    }
    const { id, text, logprob = null, topLogprobs = [], finish } = found;
    const token = id === undefined ? null : { id, logprob, topLogprobs };
    if (finish !== undefined) this.#unlink();
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
    const output = JSON.parse(await this.#read("output"));
    this.#unlink();
    return output;
  }

  async text() {
    return (await this.output()).text;
  }

  cancel() {
    this.#token.cancel();
  }

  async close() {
    this.cancel();
    await this.#read("skip");
    this.#unlink();
  }

  [Symbol.dispose]() {
    this.cancel();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}

const generation = (...args) => new Generation(KEY, ...args);

module.exports = { Generation, generation };
