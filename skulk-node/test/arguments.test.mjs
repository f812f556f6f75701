// What becomes of arguments that cannot be? A `SkulkError` that names the field, what was expected and what was found.

import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

import { CardLibrary, Cluster, Inventory, Model, ModelCard, Placement, Profile, plan, planning, serve } from "skulk-node";
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
  const closest = (name) => ({ hint: new RegExp(`^\`${name}\` is the closest`) });
  await assert.rejects(stories({ onprogress() {} }), refused("onprogress", closest("onProgress")));
  await assert.rejects(stories({ placment: [["cpu", 5]] }), refused("placment", closest("placement")));
  await assert.rejects(async () => generate({ sginal: null }), refused("sginal", closest("signal")));
  await assert.rejects(stories({ foo: 1 }), refused("foo", { hint: /^options are stages, .*, placement, signal, onProgress$/ }));
  await assert.rejects(async () => generate(JSON.parse('{"__proto__": {"maxTokens": 1}}')), refused("__proto__"));
  await assert.rejects(model.generateBatch([PROMPT], { append: true }), refused("append"));
  await assert.rejects(model.tuneSpeculation([PROMPT], { append: true }), refused("append"));
});

test("what has no options has none", async () => {
  const [session, file, none] = [model.session(), "no/such", refused("signal", { hint: /there are none here/ })];
  for (const call of [
    (options) => session.save(file, options),
    (options) => session.recoverIn(model, options),
    (options) => model.restore(file, options),
  ]) {
    await assert.rejects(call({ signal: null }), none);
  }
});

test("options of all functions are looked at", async () => {
  const { tokenizer } = model;
  const profile = Profile.permissive();
  const sizes = { attention: 1, nExperts: 4, nUsed: 2, expert: 3 };
  const server = await serve(STORIES, { threads: 1 });
  const card = await ModelCard.fromCheckpoint(STORIES);
  const [placement, cluster] = [Placement.byCounts([["cpu", 5]]), Cluster.mesh([{ id: "local" }])];
  for (const [call, wrong, right] of [
    [(options) => tokenizer.encode(PROMPT, options), "addSpecials", "addSpecial"],
    [(options) => tokenizer.decode([1, 403], options), "skipSpecials", "skipSpecial"],
    [(options) => new CardLibrary([], options).size, "builtn", "builtin"],
    [(options) => Profile.reasoning(profile, options), "efort", "effort"],
    [(options) => Profile.resolve("x", null, options), "hasTool", "hasTools"],
    [(options) => Inventory.ofExperts(3, options && { ...sizes, ...options }), "kvPerTokens", "kvPerToken"],
    [(options) => placement.checkOn(card, cluster, options), "contextToken", "contextTokens"],
    [(options) => plan(STORIES, null, options), "minNode", "minNodes"],
    [(options) => plan(STORIES, null, { fixed: options }), "override_tensors", "overrideTensors"],
    [(options) => server.stop(options), "gracee", "grace"],
    [(options) => planning.shardFootprint(card, options), "token", "tokens"],
    [(options) => planning.footprintExceeds(1, 2, options), "tolerence", "tolerance"],
    [(options) => planning.usableMemory({ id: "a" }, options), "strictnes", "strictness"],
    [(options) => planning.admitMaxTokens(5, options), "request", "requested"],
    [(options) => planning.prefillChunks(10, 3, options), "medi", "media"],
    [(options) => planning.rings(card, cluster, options), "minNode", "minNodes"],
  ]) {
    const hint = new RegExp(`\`${right}\` is the closest`);
    await assert.rejects(async () => call({ [wrong]: null }), refused(wrong, { hint }), wrong);
    await assert.rejects(async () => call(false), refused(/^(options|fixed)$/), right);
    // Null is none, whatever else is wrong.
    for (const none of [null, { [right]: null }]) {
      await (async () => call(none))().catch((error) => failure(error.kind)(error));
    }
  }
  assert.deepEqual(tokenizer.encode(PROMPT, null), tokenizer.encode(PROMPT));
  assert.equal(new CardLibrary([], null).size, new CardLibrary().size);
  assert.throws(() => Inventory.ofExperts(3), refused("attention"));
  for (const cluster of [undefined, null]) assert.throws(() => placement.checkOn(card, cluster), refused("cluster"));
  assert.throws(() => tokenizer.encode(PROMPT, { addSpecial: "false" }), refused("addSpecial"));
  assert.throws(() => tokenizer.decode([1], { skipSpecial: 0 }), refused("skipSpecial"));
  assert.throws(() => new CardLibrary([], { builtin: 1 }), refused("builtin"));
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
    [{ stop: [NaN] }, "stop.0"],
    [{ stop: [, "a"] }, "stop"],
    [{ draftTexts: [Infinity] }, "draftTexts.0"],
    [{ regex: NaN }, "regex"],
    [{ append: true }, "append"],
    [{ seed: -1n }, "seed"],
    [{ speculate: "always" }, "speculate"],
    [{ draftTokens: 2, speculate: "off" }, "draftTokens"],
    [{ draftTree: true, speculate: "off" }, "draftTree"],
    [{ draftTexts: "a" }, "draftTexts"],
    [{ ignoreEos: 1 }, "ignoreEos"],
    [{ logitBias: [1, 2] }, "logitBias"],
    [{ logitBias: { x: 1 } }, "logitBias"],
    [{ logitBias: { 3: NaN } }, "logitBias"],
    [{ signal: {} }, "signal"],
    [{ signal: "now" }, "signal"],
    [{ signal: { aborted: false, addEventListener() {} } }, "signal"],
  ]) {
    await assert.rejects(async () => generate(options), refused(field));
  }
});

test("options are the own properties of plain objects", async () => {
  class Options {
    get maxTokens() {
      return 3;
    }
  }
  const inherited = Object.create({ maxTokens: 3 });
  const bare = Object.create(null, { maxTokens: { value: 3 } });
  const strange = [new Options(), inherited, Object.create(bare), new Map([["maxTokens", 3]]), new Date(), Promise.resolve()];
  for (const options of [3, "fast", true, [1], () => 1, ...strange, AbortSignal.timeout(9), Symbol("x"), 3n]) {
    const { signal } = new AbortController();
    const error = refused("options", { hint: /`{ signal }`/ });
    await assert.rejects(async () => generate(options), error);
    await assert.rejects(Model.load(STORIES, options), error);
    await assert.rejects(model.logits(PROMPT, signal), error);
  }
  const { length } = await generate({ maxTokens: 3 });
  for (const options of [bare, new Proxy({ maxTokens: 3 }, {}), runInNewContext("({ maxTokens: 3 })")]) {
    assert.equal((await generate(options)).length, length);
  }
});

test("options are named as hosts write them", async () => {
  for (const [options, field, hint] of [
    [{ topK: 0 }, "topK", /^leave topK out/],
    [{ minP: 2 }, "minP"],
    [{ speculate: "draft_model" }, "speculate", /with the option draftModel/],
    [{ responseFormat: { type: "json_schema" } }, "responseFormat.json_schema"],
  ]) {
    await assert.rejects(async () => generate(options), (error) => {
      refused(field, hint && { hint })(error);
      assert.ok(error.text.includes(`(field: ${field}); ${error.hint}`), error.text);
      return true;
    });
  }
  await assert.rejects(stories({ draftModel: "no/such" }), failure("FileNotFound", { field: "draftModel" }));
  const small = await stories({ kvMemory: 1 });
  await assert.rejects(small.generate(PROMPT).text(), failure("OutOfMemory", { field: "kvMemory" }));
});

test("null and undefined stand for what is left out", async () => {
  const plain = await generate({ maxTokens: 5 });
  assert.equal(await generate({ maxTokens: 5, seed: undefined, topK: null, stop: undefined, signal: null }), plain);
  assert.equal(await model.generate(PROMPT, null).next().then(({ value }) => value.text.length > 0), true);
});

test("prompts of another kind are refused", () => {
  for (const prompt of [3, null, undefined, {}, Symbol("x"), () => PROMPT, [1.5], [-1], ["1"], [2 ** 32], [NaN], [1, , 2], 5n]) {
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
  for (const bytes of [Buffer.from(PROMPT), new Uint8Array(3)]) {
    assert.throws(() => model.generate(bytes), refused("prompt", { message: /found bytes/ }));
  }
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
  const urls = ["file://host/y", "file:///a%2Fb", "http://host/y"].map((text) => new URL(text));
  for (const path of [3, null, undefined, {}, Buffer.from("x"), ...urls]) {
    await assert.rejects(Model.load(path), refused("path"));
  }
  await assert.rejects(Model.load("no/such"), failure("FileNotFound", { code: "file.not_found", retry: "never" }));
  await assert.rejects(Model.load("no\0such"), (error) => error.kind.startsWith("File"));
  await assert.rejects(stories({ onProgress: "loud" }), refused("onProgress"));
  await assert.rejects(stories({ engine: "abacus" }), failure("PlacementInvalid", { message: /abacus/ }));
  await assert.rejects(stories({ kv: "f8" }), refused("kv"));
  await assert.rejects(stories({ chatTemplate: NaN }), refused("chatTemplate"));
  await assert.rejects(serve(STORIES, { key: NaN }), refused("key"));
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
