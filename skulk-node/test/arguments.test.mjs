// What becomes of arguments that cannot be? A `SkulkError` that names the field, what was expected and what was found.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Model } from "skulk-node";
import { PROMPT, STORIES, failure, stories } from "./helpers.mjs";

const model = await stories();
const generate = (options, prompt = PROMPT) => model.generate(prompt, options).text();
const refused = (field, more = {}) => failure("InvalidArgument", { field, ...more });

test("an unknown option is named with the closest right one", async () => {
  await assert.rejects(async () => generate({ maxToken: 3 }), refused("maxToken", { hint: /`maxTokens`/ }));
  await assert.rejects(async () => generate({ max_tokens: 3 }), refused("max_tokens", { hint: /maxTokens/ }));
  await assert.rejects(stories({ prefilChunk: 3 }), refused("prefilChunk", { hint: /`prefillChunk`/ }));
  await assert.rejects(model.logits(PROMPT, { sinal: null }), refused("sinal"));
  await assert.rejects(async () => generate({ onProgress() {} }), refused("onProgress"));
});

test("options of another kind are refused", async () => {
  for (const [options, field] of [
    [{ maxTokens: "3" }, "maxTokens"],
    [{ maxTokens: 1.5 }, "maxTokens"],
    [{ maxTokens: -1 }, "maxTokens"],
    [{ maxTokens: NaN }, "maxTokens"],
    [{ maxTokens: Infinity }, "maxTokens"],
    [{ maxTokens: 2n ** 70n }, "maxTokens"],
    [{ maxTokens: {} }, "maxTokens"],
    [{ maxTokens: () => 3 }, "maxTokens"],
    [{ maxTokens: Symbol("3") }, "maxTokens"],
    [{ temperature: NaN }, "temperature"],
    [{ temperature: "hot" }, "temperature"],
    [{ stop: "little" }, "stop"],
    [{ stop: [1] }, "stop"],
    [{ seed: -1n }, "seed"],
    [{ speculate: "always" }, "speculate"],
    [{ draftTokens: 2, speculate: "off" }, "draft_tokens"],
    [{ draftTree: true, speculate: "off" }, "draft_tree"],
    [{ draftTexts: "a" }, "draftTexts"],
    [{ ignoreEos: 1 }, "ignoreEos"],
    [{ logitBias: [1, 2] }, "logitBias"],
    [{ logitBias: { x: 1 } }, "logitBias"],
    [{ logitBias: { 3: NaN } }, "logit_bias"],
    [{ signal: {} }, "signal"],
    [{ signal: "now" }, "signal"],
  ]) {
    await assert.rejects(async () => generate(options), (error) => {
      failure("InvalidArgument")(error);
      assert.equal(error.context.field?.replaceAll("_", "").toLowerCase(), field.replaceAll("_", "").toLowerCase());
      return true;
    });
  }
  for (const options of [3, "fast", true, [1], () => 1]) {
    await assert.rejects(async () => generate(options), refused("options"));
    await assert.rejects(Model.load(STORIES, options), refused("options"));
  }
});

test("null and undefined stand for what is left out", async () => {
  const plain = await generate({ maxTokens: 5 });
  assert.equal(await generate({ maxTokens: 5, seed: undefined, topK: null, stop: undefined, signal: null }), plain);
  assert.equal(await model.generate(PROMPT, null).next().then(({ value }) => value.text.length > 0), true);
});

test("prompts of another kind are refused", () => {
  for (const prompt of [3, null, undefined, {}, Symbol("x"), () => PROMPT, [1.5], [-1], ["1"], [2 ** 32], [NaN], 5n]) {
    assert.throws(() => model.generate(prompt), refused("prompt"));
  }
  assert.throws(() => model.generate([999999]), failure("InvalidArgument"));
  assert.throws(() => model.generate([]), failure("InvalidArgument"));
});

test("texts that are not well-formed do no harm", async () => {
  const text = "\ud800 broken \udfff";
  assert.ok(model.tokenizer.encode(text).length > 0);
  assert.equal(typeof (await generate({ maxTokens: 2, stop: [text] }, text)), "string");
});

test("typed arrays whose buffer is detached are refused", () => {
  const ids = Uint32Array.from([1, 2, 3]);
  structuredClone(ids.buffer, { transfer: [ids.buffer] });
  assert.throws(() => model.generate(ids), refused("prompt", { message: /detached/ }));
  assert.throws(() => model.tokenizer.decode(ids), refused("ids", { message: /detached/ }));
  assert.throws(() => generate({ stop: ids }), refused("stop", { message: /detached/ }));
});

test("objects within themselves are refused", () => {
  const options = {};
  options.stop = [options];
  assert.throws(() => model.generate(PROMPT, options), failure("InvalidArgument", { message: /within itself/ }));
  let deep = [];
  for (let i = 0; i < 1e5; i++) deep = [deep];
  assert.throws(() => model.generate(PROMPT, { stop: deep }), failure("InvalidArgument"));
});

test("getters that throw throw", () => {
  const mine = new RangeError("mine");
  const options = {
    get maxTokens() {
      throw mine;
    },
  };
  assert.throws(() => model.generate(PROMPT, options), mine);
});

test("paths of another kind are refused", async () => {
  for (const path of [3, null, undefined, {}, Buffer.from("x")]) {
    await assert.rejects(Model.load(path), refused("path"));
  }
  await assert.rejects(Model.load("no/such"), failure("FileNotFound", { code: "file.not_found", retry: "never" }));
  await assert.rejects(Model.load("no\0such"), (error) => error.kind.startsWith("File"));
  await assert.rejects(stories({ onProgress: "loud" }), refused("onProgress"));
  await assert.rejects(stories({ engine: "abacus" }), failure("PlacementInvalid", { message: /abacus/ }));
  await assert.rejects(stories({ kv: "f8" }), refused("kv"));
});

test("tokenizers refuse what is no text and no token", () => {
  const { tokenizer } = model;
  for (const text of [3, null, undefined, ["x"]]) assert.throws(() => tokenizer.encode(text), refused("text"));
  for (const ids of ["1", 3, null, [0.5], [-1]]) assert.throws(() => tokenizer.decode(ids), refused("ids"));
});

test("errors of other threads say who asked", async () => {
  await assert.rejects(Model.load("no/such"), (error) => {
    assert.match(error.stack, /^SkulkError: cannot find the file/);
    assert.match(error.stack, /arguments\.test/);
    return true;
  });
});

test("errors carry facts", async () => {
  const small = await stories({ context: 8 });
  assert.throws(() => small.generate(PROMPT.repeat(9)), (error) => {
    failure("ContextOverflow", { code: "context.overflow" })(error);
    assert.equal(error.detail.available, 8);
    assert.ok(error.detail.needed > 8);
    assert.match(error.text, /context/);
    assert.match(error.stack, /arguments\.test/);
    return true;
  });
});
