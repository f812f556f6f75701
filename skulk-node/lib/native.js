"use strict";
// Where is the native module? Beside this package when it was built here, else in the package for this platform.

const { existsSync } = require("node:fs");
const path = require("node:path");
const { raise } = require("./errors.js");
const PLATFORMS = require("./platforms.js");

function load() {
  const here = `${process.platform}-${process.arch}`;
  const platform = PLATFORMS[here];
  if (platform === undefined) {
    throw new Error(`skulk-node runs on ${Object.keys(PLATFORMS).join(", ")}, found ${here}`);
  }
  const built = path.join(__dirname, "..", "skulk-node.node");
  try {
    return require(existsSync(built) ? built : `skulk-node-${platform}`);
  } catch (cause) {
    throw new Error(
      `cannot load skulk-node-${platform}: install skulk-node with its optional dependencies, or see its README for building it`,
      { cause },
    );
  }
}

/** The same function, which throws `SkulkError`. */
function guarded(native) {
  return function guard(...args) {
    try {
      return native.apply(this, args);
    } catch (error) {
      const raised = raise(error);
      // Few frames are shown, and the host's are to be among them.
      Error.captureStackTrace(raised, guard);
      throw raised;
    }
  };
}

const native = { ...load() };
for (const [name, { prototype }] of Object.entries(native)) {
  const methods = Object.getOwnPropertyNames(prototype ?? {}).filter((method) => method !== "constructor");
  for (const method of methods) prototype[method] = guarded(prototype[method]);
  if (methods.length === 0) native[name] = guarded(native[name]);
}

module.exports = native;
