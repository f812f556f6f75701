"use strict";
// How are a model's blocks served to others? `serve` and `Server`.

const native = require("./native.js");
const { KEY, own } = require("./errors.js");
const { json, optionsOf, pathOf, rangeOf } = require("./values.js");
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

  async stop({ grace = 0 } = {}) {
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
  const [rest, follow] = optionsOf(options, "signal");
  const ranges = { layers: rangeOf(rest.layers), experts: rangeOf(rest.experts) };
  const text = json({ path: pathOf(path, "path"), options: { ...rest, ...ranges } });
  return new Server(KEY, await work((token, tell) => native.serve(text, token, tell), follow));
}

module.exports = { Server, serve };
