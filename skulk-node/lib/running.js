"use strict";
// How is what runs in the native module followed? Whoever reads it is woken. Nothing waits for it but promises.

const native = require("./native.js");
const { ended } = require("./errors.js");
const { link } = require("./work.js");

/** Keeps the event loop alive while somebody waits, and only then. */
const alive = setInterval(() => {}, 2 ** 31 - 1).unref();
let waiting = 0;

/** Who waits for what runs. It knows nothing of that, which may be collected when nobody does. */
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

class Running {
  #native;
  #bell = new Bell();
  #token = new native.CancelToken();
  #signal;
  #unlink;
  /** The last turn that has not ended. */
  #last = null;

  /** Follows what `begin` begins: it takes a token, and what to call when there is more to read. */
  constructor(signal, begin) {
    const bell = this.#bell;
    this.#signal = signal;
    this.#unlink = link(signal, this.#token);
    try {
      this.#native = begin(this.#token, () => bell.ring());
    } catch (error) {
      this.#unlink();
      throw error;
    }
  }

  /** What runs. */
  get native() {
    return this.#native;
  }

  /** Calls a method of what runs. What it throws has ended it. */
  call(method, ...args) {
    try {
      return this.#native[method](...args);
    } catch (error) {
      this.end();
      throw ended(error, this.#signal);
    }
  }

  /** Polls until there is something, which is neither `false` nor `null`. */
  async read(method) {
    for (;;) {
      const found = this.call(method);
      if (found !== false && found !== null) return found;
      await this.#bell.wait();
    }
  }

  /** Does `work` once that of those who called before has ended. */
  async turn(work) {
    const before = this.#last ?? Promise.resolve();
    const mine = before.catch(() => {}).then(work);
    this.#last = mine;
    try {
      return await mine;
    } finally {
      if (this.#last === mine) this.#last = null;
    }
  }

  /** The next step, or `true` behind the last. Calls take turns, so that each gets the step behind the one before. */
  async next() {
    const found = this.#last === null ? this.call("poll") : false;
    const step = found === false ? await this.turn(() => this.read("poll")) : found;
    if (step === true) this.end();
    return step;
  }

  cancel() {
    this.#token.cancel();
    this.end();
  }

  /** Cancels, and waits until it has ended. */
  async close() {
    this.cancel();
    await this.read("skip");
  }

  /** There is nothing more to cancel. */
  end() {
    this.#unlink();
  }
}

module.exports = { Running };
