// Does generating from Node give the library's events, however they are read?

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

import * as skulk from "skulk-node";
import { Model, SkulkError } from "skulk-node";
import { FIXTURES, PROMPT, STORIES, failure, stories } from "./helpers.mjs";

const model = await stories();
const TEXT = ", there was a little girl named Lily. She loved to";

test("events arrive one by one and make the text", async () => {
  const events = [];
  for await (const event of model.generate(PROMPT, { maxTokens: 15 })) events.push(event);
  assert.equal(events.map((event) => event.text).join(""), TEXT);
  const last = events.at(-1);
  assert.equal(last.finish.reason, "length");
  assert.equal(last.finish.usage.completionTokens, 15);
  assert.ok(events.slice(0, -1).every((event) => event.finish === null && Number.isInteger(event.token.id)));
  assert.deepEqual(events[0].token.topLogprobs, []);
  assert.equal(events[0].token.logprob, null);
});

test("keys and values are in bfloat16 on the CPU unless all is to be exact", async () => {
  const told = async (options) => {
    const loaded = await Model.load(STORIES, { threads: 1, ...options });
    const { value } = await loaded.generate(PROMPT, { maxTokens: 2, logprobs: 1 }).next();
    return value.token.logprob;
  };
  const precise = { precision: "exact" };
  const [bfloat, half] = [await told({ kv: "bf16" }), await told({ kv: "f16" })];
  assert.equal(await told({}), bfloat);
  assert.notEqual(half, bfloat);
  assert.equal(await told(precise), await told({ ...precise, kv: "f16" }));
});

test("tokens ahead are those one by one", async () => {
  for (const sampling of [{}, { temperature: 1, seed: 3, logprobs: 1 }]) {
    const told = (options) =>
      model.generate(PROMPT, { maxTokens: 60, ignoreEos: true, ...sampling, ...options }).output();
    const alone = await told({ speculate: "off" });
    assert.equal(alone.finish.timings.draftedTokens, 0);
    const quoted = await told({ draftTexts: [PROMPT + alone.text], draftTokens: 3 });
    assert.deepEqual([quoted.ids, quoted.text], [alone.ids, alone.text]);
    const { draftedTokens, acceptedTokens, draftSteps, draftGain } = quoted.finish.timings;
    assert.ok(20 < acceptedTokens && acceptedTokens <= draftedTokens && draftedTokens <= 3 * draftSteps);
    assert.ok(draftGain > 0);
  }
});

test("a head for tokens ahead changes no text", async () => {
  const path = `${FIXTURES}/qwen3_5`;
  const model = await skulk.Model.load(path, { threads: 1 });
  assert.deepEqual(model.memory.draftModel.layers, { start: 0, end: 1 });
  const told = (options) => model.generate(PROMPT, { maxTokens: 60, ignoreEos: true, ...options }).output();
  const alone = await told({ speculate: "off" });
  const ahead = await told({ speculate: "draft_model", draftTokens: 2 });
  assert.deepEqual(ahead.ids, alone.ids);
  assert.ok(ahead.finish.timings.acceptedTokens > 20);
  const without = await skulk.Model.load(path, { threads: 1, mtp: false });
  assert.equal(without.memory.draftModel, null);
  await assert.rejects(skulk.Model.load(`${FIXTURES}/llama`, { mtp: true }), failure("InvalidArgument"));
});

test("assistants and EAGLE heads change no text", async () => {
  for (const [name, beside] of [
    ["gemma4", "gemma4_assistant"],
    ["llama", "llama_eagle3"],
  ]) {
    const draftModel = `${FIXTURES}/../ahead/${beside}`;
    const model = await skulk.Model.load(`${FIXTURES}/${name}`, { draftModel, threads: 1 });
    const told = (options) => model.generate(PROMPT, { maxTokens: 60, ignoreEos: true, ...options }).output();
    const alone = await told({ speculate: "off" });
    const ahead = await told({ speculate: "draft_model", draftTokens: 2 });
    assert.deepEqual([ahead.ids, ahead.finish.warnings], [alone.ids, []]);
    const { draftedTokens, acceptedTokens } = ahead.finish.timings;
    assert.ok(0 < acceptedTokens && acceptedTokens < draftedTokens);
    const tree = await told({ speculate: "draft_model", draftTokens: 2, draftTree: true });
    assert.deepEqual([tree.ids, tree.finish.warnings], [alone.ids, []]);
    assert.ok(tree.finish.timings.draftedTokens > draftedTokens);
    assert.ok(tree.finish.timings.draftSteps <= ahead.finish.timings.draftSteps);
    await assert.rejects(skulk.Model.load(draftModel), failure("ArchUnsupported"));
  }
});

test("a draft model changes no text", async () => {
  const path = `${FIXTURES}/llama`;
  const drafted = await skulk.Model.load(path, { draftModel: path, threads: 1 });
  assert.deepEqual(drafted.memory.draftModel.layers, drafted.stages[0].layers);
  const told = (options) => drafted.generate(PROMPT, { maxTokens: 40, ignoreEos: true, ...options }).output();
  const alone = await told({ speculate: "off" });
  const ahead = await told({ speculate: "draft_model", draftTokens: 3 });
  assert.deepEqual([ahead.ids, ahead.finish.warnings], [alone.ids, []]);
  const { draftedTokens, acceptedTokens } = ahead.finish.timings;
  assert.ok(acceptedTokens === draftedTokens && draftedTokens > 20);
  const report = await drafted.tuneSpeculation([PROMPT], { maxTokens: 12, ignoreEos: true });
  assert.equal(report.ways.length, 12);
  assert.equal(report.best.gain, Math.max(...report.ways.map((way) => way.gain)));
  assert.ok(report.best.gain > 0 && report.text.includes("draft_model, 8 a step"));
  await assert.rejects(drafted.tuneSpeculation([]), failure("InvalidArgument"));
  await assert.rejects(
    skulk.Model.load(STORIES, { draftModel: path }),
    failure("TokenizerInvalid", { message: /same vocabulary/ }),
  );
});

test("text and output collect what was not read", async () => {
  const running = model.generate(PROMPT, { maxTokens: 15 });
  const first = await running.next();
  const output = await running.output();
  assert.equal(first.value.text + output.text, TEXT);
  assert.equal(output.ids.length, 14);
  assert.equal(await model.generate(PROMPT, { maxTokens: 15 }).text(), TEXT);
  await assert.rejects(running.text(), failure("InvalidArgument", { message: /at its end/ }));
});

test("a prompt may be tokens, in an array or a typed array", async () => {
  const ids = model.tokenizer.encode(PROMPT);
  for (const prompt of [ids, Uint32Array.from(ids)]) {
    const running = model.generate(prompt, { maxTokens: 15 });
    assert.deepEqual(running.promptIds, ids);
    assert.equal(await running.text(), TEXT);
  }
});

test("options reach the sampler", async () => {
  const drawn = async (options) => model.generate(PROMPT, { maxTokens: 20, temperature: 1, ...options }).text();
  assert.equal(await drawn({ seed: 7 }), await drawn({ seed: 7n }));
  assert.notEqual(await drawn({ seed: 7 }), await drawn({ seed: 8 }));
  assert.equal(await drawn({ seed: 2n ** 64n - 1n }), await drawn({ seed: 2n ** 64n - 1n }));
  const [banned] = model.tokenizer.encode(TEXT, { addSpecial: false });
  for (const logitBias of [{ [banned]: -Infinity }, new Map([[banned, -Infinity]])]) {
    const { ids } = await model.generate(PROMPT, { maxTokens: 8, logitBias }).output();
    assert.ok(!ids.includes(banned));
  }
  const { value } = await model.generate(PROMPT, { maxTokens: 2, logprobs: 3 }).next();
  assert.equal(value.token.topLogprobs.length, 3);
  assert.equal(value.token.topLogprobs[0].id, value.token.id);
  assert.ok(value.token.logprob < 0);
  assert.equal(await model.generate(PROMPT, { stop: ["little"] }).text(), ", there was a ");
});

test("two readers share one generation's events", async () => {
  const running = model.generate(PROMPT, { maxTokens: 40 });
  const read = async () => {
    const ids = [];
    for (;;) {
      const { done, value } = await running.next();
      if (done) return ids;
      ids.push(value.token.id);
    }
  };
  const [one, other] = await Promise.all([read(), read()]);
  const { ids } = await model.generate(PROMPT, { maxTokens: 40 }).output();
  assert.deepEqual([...one, ...other].sort(), ids.sort());
});

test("many calls of next without waiting get the events in order", async () => {
  const running = model.generate(PROMPT, { maxTokens: 10 });
  const read = await Promise.all(Array.from({ length: 12 }, () => running.next()));
  assert.equal(read.map(({ value }) => value?.text ?? "").join("").length > 0, true);
  const { ids } = await model.generate(PROMPT, { maxTokens: 10 }).output();
  assert.deepEqual(read.slice(0, 10).map(({ value }) => value.token.id), ids);
  assert.deepEqual(read.slice(10).map(({ done }) => done), [true, true]);
});

test("iterating again finds nothing", async () => {
  const running = model.generate(PROMPT, { maxTokens: 4 });
  let events = 0;
  for await (const _ of running) events++;
  for await (const _ of running) events += 100;
  assert.equal(events, 4);
});

test("generations run at the same time", async () => {
  const texts = await Promise.all(Array.from({ length: 8 }, () => model.generate(PROMPT, { maxTokens: 15 }).text()));
  assert.deepEqual(new Set(texts), new Set([TEXT]));
});

test("a model says what it is", async () => {
  assert.equal(model.arch.family, "llama");
  assert.equal(model.arch.nLayers, 5);
  assert.equal(model.stages.length, 1);
  assert.deepEqual(model.stages[0].layers, { start: 0, end: 5 });
  assert.match(model.placement, /cpu/);
  assert.ok(model.context > 0 && model.loadSeconds > 0);
  assert.equal(model.ffnMemory, null);
  const { tokenizer } = model;
  assert.equal(tokenizer.decode(tokenizer.encode(PROMPT)), PROMPT);
  assert.equal(tokenizer.encode(PROMPT)[0], tokenizer.bos);
  assert.notEqual(tokenizer.encode(PROMPT, { addSpecial: false })[0], tokenizer.bos);
  assert.ok(tokenizer.eosIds.length > 0);
  assert.equal(tokenizer.vocabSize, model.arch.vocabSize);
});

test("stages, placements and progress", async () => {
  const steps = [];
  const split = await stories({ stages: 2, onProgress: (step) => steps.push(step) });
  assert.equal(split.stages.length, 2);
  assert.deepEqual(steps.at(-1), { done: 5, total: 5 });
  assert.deepEqual(steps.map((step) => step.done), [...steps.keys()].map((i) => steps[0].done + i));
  assert.equal(await split.generate(PROMPT, { maxTokens: 15 }).text(), TEXT);
  const placed = await stories({ placement: [["cpu", 3], ["cpu", 2]] });
  assert.deepEqual(placed.stages.map((stage) => stage.layers.end), [3, 5]);
  await assert.rejects(stories({ placement: [["cpu", 3]] }), failure("PlacementInvalid"));
  await assert.rejects(stories({ placement: "cpu" }), failure("InvalidArgument", { field: "placement" }));
});

test("logits and divergence", async () => {
  const logits = await model.logits(PROMPT);
  assert.ok(logits instanceof Float32Array);
  const tokens = model.tokenizer.encode(PROMPT).length;
  assert.equal(logits.length, tokens * model.arch.vocabSize);
  const last = logits.subarray(-model.arch.vocabSize);
  const { value } = await model.generate(PROMPT, { maxTokens: 1 }).next();
  assert.equal(last.indexOf(Math.max(...last)), value.token.id);
  const same = await model.divergence(model, PROMPT);
  assert.deepEqual(same, { tokens, meanKl: 0, maxKl: 0, top1Agreement: 1 });
  const sparse = await stories({ ffnTopFeatures: 20 });
  const found = await sparse.divergence(model, PROMPT);
  assert.ok(found.meanKl > 0 && found.meanKl <= found.maxKl);
  await assert.rejects(model.divergence(3, PROMPT), failure("InvalidArgument", { field: "exact" }));
  await assert.rejects(model.logits(""), failure("InvalidArgument"));
});

test("paths may be file: URLs", async () => {
  const { pathToFileURL } = await import("node:url");
  const other = await Model.load(pathToFileURL(STORIES), { threads: 1 });
  other.close();
  await assert.rejects(Model.load(new URL("data:,x")), failure("InvalidArgument", { field: "path" }));
});

test("CommonJS and ESM have the same", () => {
  const common = createRequire(import.meta.url)("skulk-node");
  const names = Object.keys(skulk).filter((name) => name !== "default");
  assert.deepEqual(names.sort(), Object.keys(common).sort());
  for (const name of names) assert.equal(skulk[name], common[name]);
  assert.equal(new SkulkError({ kind: "Internal", code: "internal", message: "x" }) instanceof Error, true);
});

test("devices and kinds of errors", async () => {
  const [cpu] = await skulk.devices();
  assert.equal(cpu.engine, "cpu");
  assert.ok(skulk.errorKinds().some(([name, code]) => name === "FileNotFound" && code === "file.not_found"));
  assert.match(skulk.version, /^\d+\.\d+\.\d+$/);
});
