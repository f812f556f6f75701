// Do the functions behind cards and plans agree with the reference, one by one? Cases as data.

import assert from "node:assert/strict";
import { test } from "node:test";

import { planning } from "skulk-node";
import { failure } from "./helpers.mjs";
import { SECTIONS, cardOf, snake, suites, unit } from "./suites.mjs";

/** Sections that this library does not speak: it has its own way to write sizes. */
const NOT_SPOKEN = ["memoryDisplay"];

/** A card with these facts and no others. */
const smallCard = (bytes, nLayers, heads, gguf) =>
  cardOf({
    modelId: "test/model",
    storageSize: { inBytes: bytes },
    nLayers,
    hiddenSize: 1024,
    supportsTensor: true,
    numKeyValueHeads: heads ?? null,
    tasks: ["TextGeneration"],
    ggufFile: gguf ? "model.gguf" : null,
  });

unit("allocateLayersProportionally", ({ totalLayers, fractions, layers, error }) => {
  if (error === undefined) return assert.deepEqual(planning.allocateLayers(totalLayers, fractions), layers);
  const kind = fractions.length > 0 ? "PlanNoFit" : "InvalidArgument";
  assert.throws(() => planning.allocateLayers(totalLayers, fractions), failure(kind));
});

unit("engineOf", ({ tag, engine, multiNode }) => {
  assert.equal(planning.engineOf(tag), engine);
  assert.equal(engine && planning.isMultiNode(engine), multiNode);
});

unit("resolveNodeBackend", ({ compatible, preference, node, backend, engine }) => {
  const found = planning.resolveBackend(new Set(compatible), preference, node);
  assert.equal(found, backend);
  assert.equal(found && planning.engineOf(found), engine);
});

unit("hasGpuOffloadBackend", ({ backends, result }) => assert.equal(planning.hasGpuOffload(backends), result));

unit("isVpnAddress", ({ ip, vpn }) => assert.equal(planning.isVpnAddress(ip), vpn));

unit("estimateShardFootprint", ({ card: facts, contextBudget, fraction, ...expected }) => {
  const card = smallCard(facts.storageBytes, facts.nLayers, facts.kvHeads, facts.gguf);
  const tokens = contextBudget ?? 0;
  assert.equal(planning.shardFootprint(card, { fraction, tokens }), expected.footprintBytes);
  assert.equal(planning.kvBytes(card, tokens), expected.kvBytesFull);
  assert.equal(planning.kvBytesPerToken(card), expected.perTokenKvBytes);
});

test("constants", () => {
  const ours = {
    MEMORY_OVERHEAD_FACTOR: planning.OVERHEAD,
    LLAMA_CPP_MEMORY_OVERHEAD_FACTOR: planning.OVERHEAD_GGUF,
    MEMORY_OVERHEAD_FLOOR: planning.OVERHEAD_FLOOR,
    GPU_WORKING_SET_FRACTION: planning.RAM_SHARE,
    GPU_VRAM_WORKING_SET_FRACTION: planning.VRAM_SHARE,
    UMA_GPU_OS_HEADROOM: planning.UNIFIED_HEADROOM,
    KV_CONTEXT_BUDGET_TOKENS: planning.CONTEXT_TOKENS,
    KV_HEAD_DIM_FALLBACK: planning.HEAD_DIM,
    KV_DTYPE_BYTES: planning.KV_VALUE_BYTES,
  };
  SECTIONS.add("memoryConstants");
  for (const { units } of suites("planner_units")) {
    for (const [name, value] of Object.entries(units.memoryConstants ?? {})) assert.equal(ours[name], value, name);
  }
});

unit("memoryArithmetic", ({ bytes, times, product, quotient }) => {
  // Bytes are never negative here; halves are rounded to even numbers on both sides of 0.
  const sign = bytes < 0 ? -1 : 1;
  assert.equal(sign * planning.scale(Math.abs(bytes), times) + 0, product);
  assert.equal(sign * planning.divide(Math.abs(bytes), times) + 0, quotient);
  assert.throws(() => planning.divide(1, 0), { kind: "InvalidArgument" });
});

unit("admitMaxTokens", ({ promptTokens, requested, limit, default: byDefault, maxTokens, error }) => {
  const admit = () => planning.admitMaxTokens(promptTokens, { requested, byDefault, limit });
  if (error === undefined) return assert.equal(admit(), maxTokens);
  assert.throws(admit, (error) => {
    failure("ContextOverflow")(error);
    assert.deepEqual(error.detail, { needed: promptTokens + (requested ?? 1), available: limit });
    // The reference names these numbers, too.
    return [promptTokens, requested, limit].every((n) => n == null || error.message.includes(String(n)));
  });
});

unit("footprintExceedsUsable", ({ footprint, usable, tolerance, exceeds }) =>
  assert.equal(planning.footprintExceeds(footprint, usable, { tolerance }), exceeds),
);

unit("prefillChunkSizes", ({ totalTokens, maxChunk, mediaRegions, offset, chunks }) => {
  const found = planning.prefillChunks(totalTokens, maxChunk, { media: mediaRegions ?? [], offset });
  assert.deepEqual([...found], chunks);
});

/** The same ring, from the first of its nodes by name. */
function turned(ring) {
  const first = ring.indexOf([...ring].sort()[0]);
  return [...ring.slice(first), ...ring.slice(0, first)].join();
}

unit("topologyCycles", ({ nodes, edges, leaves, cycles }) => {
  const links = edges.map(([source, sink]) => ({ type: "socket", source, sink, address: "10.0.0.1" }));
  const cluster = { nodes: nodes.map((id) => ({ id })), links };
  assert.deepEqual(planning.leaves(cluster), leaves);
  const rings = planning.rings(smallCard(2 ** 30, 8, null, false), cluster, { transport: "direct" });
  const known = new Set(cycles.map(turned));
  assert.ok(rings.every((ring) => known.has(turned(ring))));
  // One ring stands for all cycles of the same nodes.
  const members = (rings) => new Set(rings.map((ring) => [...ring].sort().join()));
  assert.deepEqual(members(rings), members(cycles));
});

unit("configJson", ({ config, vision, error, detail, ...expected }) => {
  if (error === undefined) {
    const facts = planning.configFacts(config, "acme/m");
    assert.equal(facts.vision === null, vision === null);
    for (const [name, value] of Object.entries(vision ?? {})) assert.deepEqual(facts.vision[name], value);
    assert.equal(facts.nLayers, expected.layerCount);
    assert.equal(facts.hiddenSize, expected.hiddenSize);
    assert.equal(facts.numKeyValueHeads, expected.kvHeads);
    assert.equal(facts.maxPositionEmbeddings, expected.maxPos);
    assert.equal(facts.supportsTensor, expected.supportsTensor);
    return;
  }
  assert.throws(() => planning.configFacts(config, "acme/m"), (error) => {
    failure("ConfigInvalid")(error);
    // One error of ours for any of the reference's, at one of the fields that it names, should it name any.
    const places = (Array.isArray(detail) ? detail : []).filter((fault) => fault?.loc).map((fault) => fault.loc.join("."));
    return !places.some(Boolean) || places.includes(error.context.field);
  });
});

unit("gguf.rank", ({ name, rank, label, shardBase, allowPatterns }) => {
  const file = planning.ggufFile(name);
  assert.deepEqual(
    [file.quantRank, file.quantLabel, file.shardBase, file.downloadPatterns],
    [rank, label, shardBase, allowPatterns],
  );
});

unit("gguf.select", ({ files, selected, groupSize }) => {
  const choice = planning.selectGguf(files.map(({ name, size }) => ({ name, bytes: size })));
  assert.deepEqual([choice?.file.name ?? null, choice?.bytes ?? null], [selected, groupSize]);
});

unit("gguf.headers", ({ headerHex, fields, error }) => {
  const read = () => planning.ggufFacts(Buffer.from(headerHex, "hex"));
  if (error === undefined) {
    const facts = read();
    for (const [name, value] of Object.entries(fields)) assert.equal(facts[name], value, name);
    return;
  }
  const kinds = {
    "not a GGUF file": "CheckpointInvalid",
    "unsupported GGUF version": "CheckpointInvalid",
    "unknown GGUF": "CheckpointInvalid",
    truncated: "CheckpointTruncated",
    missing: "ConfigInvalid",
  };
  assert.throws(read, failure(kinds[Object.keys(kinds).find((part) => error.includes(part))]));
});

test("every section has a test", () => {
  for (const { units } of suites("planner_units")) {
    for (const [section, vectors] of Object.entries(units)) {
      if (SECTIONS.has(section) || NOT_SPOKEN.includes(section)) continue;
      const parts = Array.isArray(vectors) ? [] : Object.keys(vectors);
      assert.ok(parts.length > 0, `nothing runs ${section}`);
      for (const part of parts) assert.ok(SECTIONS.has(`${section}.${part}`), `nothing runs ${section}.${part}`);
    }
  }
  assert.equal(snake("nLayers"), "n_layers");
});
