"use strict";
// How are a model's blocks served to others? `serve` and `Server`.

const native = require("./native.js");
const { KEY, own } = require("./errors.js");
const names = require("./names.js");
const { optionsOf } = require("./options.js");
const { json, pathOf, rangeOf } = require("./values.js");
const { work } = require("./work.js");

class Server {
  #native;

  constructor(key, server) {
    own(key, "server");
    this.#native = server;
  }

  get address() {
    return this.#native.address();
  }

  get metrics() {
    return this.#native.metrics();
  }

  async stop(options) {
    const { grace = 0 } = optionsOf(options, ["grace"]);
    const text = json({ grace });
    await work((token, tell) => this.#native.stop(text, token, tell));
  }

  async wait() {
    await work((token, tell) => this.#native.wait(token, tell));
  }

  [Symbol.dispose]() {
    this.#native.close();
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

async function serve(path, options) {
  const { signal, ...rest } = optionsOf(options, [...names.ServeOptions, "signal"]);
  const ranges = { layers: rangeOf(rest.layers), experts: rangeOf(rest.experts) };
  const text = json({ path: pathOf(path, "path"), options: { ...rest, ...ranges } });
  return new Server(KEY, await work((token, tell) => native.serve(text, token, tell), { signal }));
}

module.exports = { Server, serve };
