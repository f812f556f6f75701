// Do vindex folders read, browse, slice and verify from Node as they do in the library?

import assert from "node:assert/strict";
import { writeFileSync, rmSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { Model, VindexReader, extract, verifyVindex } from "skulk-node";
import { PROMPT, STORIES, failure, stories, temporary } from "./helpers.mjs";

const folder = path.join(temporary(), "stories.vindex");
const steps = [];
const report = await extract(STORIES, folder, {
  storage: "f32",
  featureTokens: 5,
  threads: 1,
  onProgress: (step) => steps.push(step),
});
const reader = await VindexReader.open(folder, { threads: 1 });

test("extracting reports and continues", async () => {
  assert.equal(report.path, folder);
  assert.ok(report.bytes > 0 && report.files.some((file) => file.part === "gate"));
  assert.ok(steps.length > 0 && steps.at(-1).bytesDone <= steps.at(-1).bytesTotal);
  await assert.rejects(extract(STORIES, folder), failure("InvalidArgument"));
  await assert.rejects(extract(STORIES, "x", { storag: "f32" }), failure("InvalidArgument", { hint: /`storage`/ }));
  const target = path.join(temporary(), "half.vindex");
  const mine = new RangeError("mine");
  const onProgress = () => {
    throw mine;
  };
  await assert.rejects(extract(STORIES, target, { onProgress }), mine);
  await assert.rejects(extract(STORIES, target, { signal: AbortSignal.abort() }), failure("Cancelled"));
  assert.ok((await extract(STORIES, target)).bytes > 0);
});

test("a reader says what the folder is", async () => {
  assert.equal(reader.path, folder);
  assert.equal(reader.numLayers, 5);
  assert.equal(reader.level, "all");
  assert.equal(reader.dtype, "f32");
  assert.equal(reader.quant, "none");
  assert.equal(reader.index.num_layers, 5);
  assert.deepEqual(reader.lacks, []);
  assert.deepEqual(reader.layers, [0, 1, 2, 3, 4]);
  assert.ok(reader.bands.syntax.end > 0);
  const parts = await reader.parts();
  assert.ok(parts.some((part) => part.part === "embed" && part.bytes > 0));
  assert.ok(reader.model && reader.family === "llama");
  assert.equal(reader.tokenizer.decode(reader.tokenizer.encode(PROMPT)), PROMPT);
});

test("tensors are numbers, and bytes as stored", async () => {
  const { name, shape } = reader.tensors.find((tensor) => tensor.shape.length === 2);
  const values = await reader.array(name);
  assert.ok(values instanceof Float32Array);
  assert.equal(values.length, shape[0] * shape[1]);
  const bytes = await reader.bytes(name);
  assert.ok(Buffer.isBuffer(bytes));
  assert.deepEqual(new Float32Array(bytes.buffer, bytes.byteOffset, values.length), values);
  // It is ours: writing harms nobody.
  bytes.fill(0);
  assert.deepEqual(await reader.array(name), values);
  assert.deepEqual(await reader.tensor(name), reader.tensors.find((tensor) => tensor.name === name));
  assert.ok(reader.has(name) && !reader.has("no.such"));
  await assert.rejects(reader.tensor("no.such"), failure("TensorMissing"));
  await assert.rejects(reader.array(3), failure("InvalidArgument", { field: "name" }));
});

test("embeddings, gates and scores agree", async () => {
  const { hiddenSize } = reader;
  const one = await reader.embed(7);
  const two = await reader.embed([7, 8]);
  assert.equal(one.length, hiddenSize);
  assert.deepEqual(two.subarray(0, hiddenSize), one);
  const gates = await reader.gates(2);
  const scores = await reader.scores(2, one);
  assert.equal(gates.length, scores.length * hiddenSize);
  const product = one.reduce((sum, value, i) => sum + value * gates[i], 0);
  assert.ok(Math.abs(product - scores[0]) < 1e-4);
  const [hit] = await reader.nearest(one, { k: 1, layers: [2] });
  const largest = Math.max(...scores.map(Math.abs));
  assert.ok(Math.abs(Math.abs(hit.score) - largest) < 1e-5 && hit.layer === 2);
  await assert.rejects(reader.embed(1e6), failure("InvalidArgument"));
  await assert.rejects(reader.gates(9), failure("InvalidArgument"));
  await assert.rejects(reader.nearest([1, 2]), failure("InvalidArgument"));
  await assert.rejects(reader.nearest(one, { K: 1 }), failure("InvalidArgument", { hint: /k/ }));
  await assert.rejects(reader.nearest(Array(hiddenSize).fill(NaN)), failure("InvalidArgument"));
  await assert.rejects(reader.nearest("x"), failure("InvalidArgument", { field: "query" }));
  const detached = Float32Array.from(one);
  structuredClone(detached.buffer, { transfer: [detached.buffer] });
  await assert.rejects(reader.nearest(detached), failure("InvalidArgument", { message: /detached/ }));
});

test("what the model knows", async () => {
  const hits = await reader.walk(PROMPT, { top: 2 });
  assert.equal(hits.length, 10);
  const found = await reader.describe("girl", { band: "all", minScore: 0, limit: 3 });
  assert.ok(found.edges.length <= 3);
  const feature = await reader.feature(1, 0);
  assert.deepEqual({ layer: feature.layer, feature: feature.feature }, { layer: 1, feature: 0 });
  assert.equal(feature.tokens.length, 5);
  assert.deepEqual((await reader.features(1))[0], feature);
  const selected = await reader.select({ layer: 1, limit: 4, order: "score" });
  assert.equal(selected.features.length, 4);
  assert.ok((await reader.relations({ minScore: 0 })).total >= 0);
  for (const [search, field] of [
    [() => reader.describe("girl", { band: "some" }), "band"],
    [() => reader.walk(PROMPT, { top: -1 }), "top"],
    [() => reader.walk(3), "prompt"],
    [() => reader.select({ order: "name" }), "order"],
    [() => reader.features(1, { layer: 2 }), "layer"],
  ]) {
    await assert.rejects(search, failure("InvalidArgument", { field }));
  }
  await assert.rejects(reader.walk(PROMPT, { signal: AbortSignal.abort() }), failure("Cancelled"));
});

test("slices and damage", async () => {
  const target = path.join(temporary(), "client.vindex");
  const slice = await reader.slice(target, { preset: "client", copy: "copy" });
  assert.ok(slice.files.length > 0 && slice.text.length > 0);
  const client = await VindexReader.open(target);
  assert.ok(client.lacks.length > 0);
  await assert.rejects(client.gates(0), failure("TensorMissing"));
  client.close();
  const some = await reader.slice(path.join(temporary(), "some.vindex"), { layers: [[0, 2], { start: 4, end: 5 }] });
  assert.ok(some.bytes < report.bytes);
  await assert.rejects(
    reader.slice(path.join(temporary(), "x"), { layers: [[0, 2, 3].reverse()] }),
    failure("InvalidArgument"),
  );
  await assert.rejects(reader.slice(path.join(temporary(), "x"), { parts: ["gats"] }), failure("InvalidArgument"));

  const heard = [];
  const sound = await verifyVindex(target, { onProgress: (step) => heard.push(step.file) });
  assert.deepEqual(sound.problems, []);
  assert.ok(heard.length > 0);
  rmSync(path.join(target, "tokenizer.json"));
  writeFileSync(path.join(target, "norms.bin"), "short");
  const { problems } = await verifyVindex(target);
  assert.deepEqual(new Set(problems.map((problem) => problem.kind)).has("missing"), true);
});

test("a vindex folder generates", async () => {
  const [model, source] = [await Model.load(folder, { threads: 1 }), await stories()];
  const text = await source.generate(PROMPT, { maxTokens: 15 }).text();
  assert.equal(await model.generate(PROMPT, { maxTokens: 15 }).text(), text);
});

test("a closed reader says so", async () => {
  const other = await VindexReader.open(folder);
  const { tokenizer, tensors } = other;
  const [asked, tensor] = [other.walk(PROMPT), other.tensor(tensors[0].name)];
  other.close();
  assert.ok((await asked).length > 0);
  assert.deepEqual(await tensor, tensors[0]);
  const closed = failure("InvalidArgument", { message: /found a closed one/ });
  await assert.rejects(other.walk(PROMPT), closed);
  await assert.rejects(other.verify(), closed);
  for (const use of [() => other.index, () => other.tensors, () => other.has("x"), () => other.path, () => other.tokenizer]) {
    assert.throws(use, closed);
  }
  assert.throws(() => tokenizer.encode(PROMPT), closed);
  await other[Symbol.asyncDispose]();
  await assert.rejects(VindexReader.open("no/such"), failure("FileNotFound"));
  await assert.rejects(VindexReader.open(folder, { thread: 1 }), failure("InvalidArgument", { field: "thread" }));
  await assert.rejects(VindexReader.open(folder, { threads: -1 }), failure("InvalidArgument", { field: "threads" }));
});
