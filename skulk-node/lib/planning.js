"use strict";
// Which rules are behind cards and plans? The functions that decide, one by one, for hosts that ask for themselves.

const { call } = require("./work.js");
const names = require("./names.js");
const { optionsOf } = require("./options.js");
const { rangesOf } = require("./values.js");

/** Chunks that are asked for at a time: there may be as many as tokens. */
const CHUNKS = 1024;

function* chunksOf(tokens, max, { media = [], offset = 0 }) {
  for (let done = 0; ; ) {
    const given = { tokens: tokens - done, max, media: rangesOf(media), offset: offset + done, limit: CHUNKS };
    const chunks = call("prefillChunks", given);
    yield* chunks;
    if (chunks.length < CHUNKS) return;
    done += chunks.reduce((sum, chunk) => sum + chunk, 0);
  }
}

module.exports = {
  ...call("constants"),
  engineOf: (tag) => call("engineOf", { tag }),
  isEngine: (name) => call("isEngine", { name }),
  isMultiNode: (engine) => call("isMultiNode", { engine }),
  serves: (nodeTag, cardTag) => call("serves", { nodeTag, cardTag }),
  resolveBackend: (compatible, preference, nodeTags) => call("resolveBackend", { compatible, preference, nodeTags }),
  hasGpuOffload: (tags) => call("hasGpuOffload", { tags }),
  isVpnAddress: (address) => call("isVpnAddress", { address }),
  scale: (bytes, factor) => call("scale", { bytes, factor }),
  divide: (bytes, divisor) => call("divide", { bytes, divisor }),
  kvBytesPerToken: (card) => call("kvBytesPerToken", { card }),
  kvBytes: (card, tokens) => call("kvBytes", { card, tokens }),
  shardFootprint: (card, options) => {
    const given = optionsOf(options, ["fraction", "tokens", "strictness"]);
    return call("shardFootprint", { fraction: 1, tokens: 8192, strictness: "safe", ...given, card });
  },
  footprintExceeds: (footprint, usable, options) =>
    call("footprintExceeds", { tolerance: 0.1, ...optionsOf(options, ["tolerance"]), footprint, usable }),
  usableMemory: (node, options) =>
    call("usableMemory", { strictness: "safe", ...optionsOf(options, ["strictness"]), node }),
  usableVram: (node) => call("usableVram", { node }),
  acceleratorMemory: (node) => call("acceleratorMemory", { node }),
  allocateLayers: (total, fractions) => call("allocateLayers", { total, fractions }),
  admitMaxTokens: (prompt, options) =>
    call("admitMaxTokens", { byDefault: 4096, ...optionsOf(options, ["requested", "byDefault", "limit"]), prompt }),
  prefillChunks: (tokens, max, options) => chunksOf(tokens, max, optionsOf(options, ["media", "offset"])),
  rings: (card, cluster, options) => call("rings", { card, cluster, options: optionsOf(options, names.RingsOptions) }),
  leaves: (cluster) => call("leaves", { cluster }),
  ggufFile: (name, bytes = 0) => call("ggufFile", { name, bytes }),
  selectGguf: (files) => call("selectGguf", { files }),
  configFacts: (config, modelId) => call("configFacts", { config, modelId }),
  ggufFacts: (start) => call("ggufFacts", { start }),
};
