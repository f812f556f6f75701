// Are vectors of texts those of other people's software, and is what cannot be refused?

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { EmbeddingModel } from "skulk-node";
import { skulkEmbedding } from "skulk-node/ai-sdk";
import { FIXTURES, MINILM, REPOSITORY, TINY_BERT, failure, run } from "./helpers.mjs";

const tiny = await EmbeddingModel.load(TINY_BERT, { threads: 2 });
const LONG = "the cat sat on the mat, ".repeat(5);

/** llama.cpp looks its GELU up in a table of f16. */
async function givesWhatLlamaCppGives(model, suite) {
  const { cases } = JSON.parse(readFileSync(suite, "utf8"));
  assert.equal(cases.length, 7);
  const vectors = await model.embed(cases.map(({ text }) => text));
  for (const [i, { text, ids, vector }] of cases.entries()) {
    assert.deepEqual(model.tokenizer.encode(text), ids);
    assert.ok(vectors[i] instanceof Float32Array && vectors[i].length === model.dimensions);
    assert.ok(Math.max(...vector.map((x, at) => Math.abs(x - vectors[i][at]))) < 1e-3, text);
  }
}

test("an untrained model", async () => {
  const { dimensions, maxTokens, poolings, isNormalized } = tiny;
  assert.deepEqual([dimensions, maxTokens, poolings, isNormalized], [16, 16, ["mean"], true]);
  await givesWhatLlamaCppGives(tiny, `${TINY_BERT}.json`);
});

test("the real model", { skip: !existsSync(MINILM) && `it is not at ${MINILM}: set SKULK_MINILM` }, async () => {
  const model = await EmbeddingModel.load(MINILM);
  assert.deepEqual([model.dimensions, model.maxTokens], [384, 256]);
  await givesWhatLlamaCppGives(model, path.join(REPOSITORY, "tests/suites/embeddings.json"));
});

test("one text or several", async () => {
  const texts = ["a cat", "", "the old dog runs"];
  const together = await tiny.embed(texts);
  for (const [i, text] of texts.entries()) assert.deepEqual(await tiny.embed(text), together[i]);
  assert.deepEqual(await tiny.embed(new Set(texts)), together);
  assert.deepEqual(await tiny.embed(texts.values()), together);
  assert.deepEqual(await tiny.embed([]), []);
  const url = new URL(`file://${TINY_BERT}`);
  assert.deepEqual(await (await EmbeddingModel.load(url, { threads: 1 })).embed(texts), together);
  // Each has its memory for itself.
  assert.equal(together[1].buffer.byteLength, 64);
});

test("long texts are cut or refused", async () => {
  const ids = tiny.tokenizer.encode(LONG);
  const beginning = tiny.tokenizer.decode(ids.slice(0, tiny.maxTokens - 1));
  assert.equal(tiny.tokenizer.encode(beginning).length, tiny.maxTokens);
  assert.deepEqual(await tiny.embed(LONG), await tiny.embed(beginning));
  const message = new RegExp(`16 tokens at most, found ${ids.length}`);
  const refused = failure("InvalidArgument", { field: "texts.1", message });
  await assert.rejects(tiny.embed(["a cat", LONG], { truncate: false }), refused);
});

test("what cannot be is refused", async () => {
  for (const texts of [3, null, undefined, {}, () => "a cat"]) {
    await assert.rejects(tiny.embed(texts), failure("InvalidArgument", { field: "texts" }));
  }
  await assert.rejects(tiny.embed(["a cat", 3]), failure("InvalidArgument", { field: "texts.1" }));
  await assert.rejects(tiny.embed("a cat", { truncate: 1 }), failure("InvalidArgument", { field: "truncate" }));
  const hint = /`truncate`/;
  await assert.rejects(tiny.embed("a cat", { truncat: true }), failure("InvalidArgument", { field: "truncat", hint }));
  await assert.rejects(EmbeddingModel.load(TINY_BERT, { threads: 0 }), failure("InvalidArgument"));
  const signal = AbortSignal.timeout(1000);
  await assert.rejects(EmbeddingModel.load(TINY_BERT, { signal }), failure("InvalidArgument", { field: "signal" }));
  await assert.rejects(EmbeddingModel.load(3), failure("InvalidArgument", { field: "path" }));
  await assert.rejects(EmbeddingModel.load(path.join(FIXTURES, "llama")), failure("ArchUnsupported"));
  await assert.rejects(EmbeddingModel.load(path.join(TINY_BERT, "nothing")), failure("FileNotFound"));
  assert.throws(() => new EmbeddingModel(), failure("InvalidArgument"));
});

test("a signal ends it while the event loop goes on", async () => {
  const controller = new AbortController();
  let turns = 0;
  const timer = setInterval(() => ++turns === 3 && controller.abort("enough"), 5);
  const texts = Array.from({ length: 200_000 }, () => LONG);
  await assert.rejects(tiny.embed(texts, { signal: controller.signal }), failure("Cancelled", { cause: "enough" }));
  clearInterval(timer);
  assert.ok(turns >= 3);
  await assert.rejects(tiny.embed("a cat", { signal: AbortSignal.abort("no") }), failure("Cancelled", { cause: "no" }));
});

test("closed models refuse, and what runs goes on", async () => {
  const model = await EmbeddingModel.load(TINY_BERT);
  const [expected, running] = [await tiny.embed("a cat"), model.embed("a cat")];
  model.close();
  model.close();
  assert.deepEqual(await running, expected);
  const message = /closed/;
  await assert.rejects(model.embed("a cat"), failure("InvalidArgument", { message }));
  for (const use of [() => model.dimensions, () => model.tokenizer]) {
    assert.throws(use, failure("InvalidArgument", { message }));
  }
});

test("the process may end meanwhile", async () => {
  const { code, err } = await run(
    `
    import { EmbeddingModel } from "skulk-node";
    const model = await EmbeddingModel.load(process.env.TINY_BERT, { threads: 1 });
    model.embed(Array.from({ length: 100_000 }, () => "the cat sat on the mat"));
    setTimeout(() => process.exit(7), 30);
  `,
    { env: { TINY_BERT } },
  );
  assert.deepEqual({ code, err }, { code: 7, err: "" });
});

for (const [version, sdk] of [
  ["v3", await import("ai")],
  ["v4", await import("ai-7")],
]) {
  const ours = skulkEmbedding(tiny, { specificationVersion: version, modelId: "tiny" });
  const { embed, embedMany } = sdk;

  test(`${version}: embed and embedMany`, async () => {
    const texts = ["a cat", "the old dog runs"];
    const vectors = (await tiny.embed(texts)).map((vector) => Array.from(vector));
    const many = await embedMany({ model: ours, values: texts });
    assert.deepEqual(many.embeddings, vectors);
    assert.deepEqual(many.warnings, []);
    assert.equal(many.usage.tokens, texts.reduce((sum, text) => sum + tiny.tokenizer.encode(text).length, 0));
    assert.deepEqual((await embed({ model: ours, value: texts[1] })).embedding, vectors[1]);
    assert.deepEqual([ours.provider, ours.modelId], ["skulk", "tiny"]);
  });

  test(`${version}: options, signals and failures`, async () => {
    const strict = { model: ours, value: LONG, maxRetries: 0, providerOptions: { skulk: { truncate: false } } };
    await assert.rejects(embed(strict), (error) => error.kind === "InvalidArgument");
    const aborted = { model: ours, value: "a cat", maxRetries: 0, abortSignal: AbortSignal.abort() };
    await assert.rejects(embed(aborted), (error) => error.name === "AbortError");
    const other = await ours.doEmbed({ values: ["a cat"], dimensions: 8 });
    assert.deepEqual(
      other.warnings.map(({ type, feature }) => `${type} ${feature}`),
      ["unsupported dimensions"],
    );
    assert.deepEqual((await ours.doEmbed({ values: [], dimensions: 16 })).warnings, []);
  });
}

test("there are two versions", () => {
  assert.equal(skulkEmbedding(tiny).specificationVersion, "v4");
  const refused = (field) => failure("InvalidArgument", { field });
  assert.throws(() => skulkEmbedding(tiny, { specificationVersion: "v2" }), refused("specificationVersion"));
  assert.throws(() => skulkEmbedding(tiny, { prompt: () => "x" }), refused("prompt"));
  assert.throws(() => skulkEmbedding({}), refused("model"));
});
