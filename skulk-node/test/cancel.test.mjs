// Does work end when it is cancelled, by whatever means, and never hang or crash?

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";

import { Model } from "skulk-node";
import { PROMPT, failure, slowCheckpoint, stories } from "./helpers.mjs";

const model = await stories();
const slow = await Model.load(slowCheckpoint(), { threads: 1 });
const LONG = PROMPT.repeat(100);

test("cancelling is an error of its own", async () => {
  const running = slow.generate(LONG);
  running.cancel();
  running.cancel();
  await assert.rejects(running.text(), (error) => {
    assert.ok(failure("Cancelled", { code: "cancelled", retry: "now", name: "AbortError" })(error));
    return true;
  });
  running.cancel();
  assert.deepEqual(await running.next(), { done: true, value: undefined });
});

test("a signal ends a generation, and says why", async () => {
  const controller = new AbortController();
  const running = slow.generate(LONG, { signal: controller.signal });
  const reason = new Error("the visitor left");
  setTimeout(() => controller.abort(reason), 20);
  await assert.rejects(running.text(), failure("Cancelled", { cause: reason, name: "AbortError" }));
});

test("a signal that is already aborted lets nothing begin", async () => {
  const signal = AbortSignal.abort("no");
  const ended = failure("Cancelled", { cause: "no" });
  assert.throws(() => model.generate(PROMPT, { signal }), ended);
  await assert.rejects(stories({ signal }), ended);
  await assert.rejects(model.logits(PROMPT, { signal }), ended);
  await assert.rejects(model.divergence(model, PROMPT, { signal }), ended);
});

test("a signal after the end changes nothing, and is let go of", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  await model.generate(PROMPT, { signal, maxTokens: 3 }).text();
  for await (const _ of model.generate(PROMPT, { signal, maxTokens: 3 }));
  for await (const _ of model.generate(PROMPT, { signal })) break;
  await assert.rejects(async () => model.generate(PROMPT, { signal, maxTokens: -1 }));
  (await stories({ signal })).close();
  assert.deepEqual(getEventListeners(signal, "abort"), []);
  controller.abort();
});

test("a signal is let go of by what is cancelled unread", async () => {
  const { signal } = new AbortController();
  const begin = () => model.generate(PROMPT, { signal });
  begin().cancel();
  begin()[Symbol.dispose]();
  model.chat(PROMPT, { signal }).cancel();
  model.session().chat(PROMPT, { signal })[Symbol.dispose]();
  const closed = begin();
  const closing = closed.close();
  assert.deepEqual(getEventListeners(signal, "abort"), []);
  await closing;
});

test("one signal is for many, each until its end", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const warned = [];
  const warn = (warning) => warned.push(warning);
  process.on("warning", warn);
  const all = Array.from({ length: 20 }, () => slow.generate(LONG, { signal }));
  assert.equal(getEventListeners(signal, "abort").length, 1);
  for (const one of all.splice(0, 9)) one.cancel();
  const ends = all.map((one) => assert.rejects(one.text(), (error) => failure("Cancelled", { cause: signal.reason })(error)));
  controller.abort();
  await Promise.all(ends);
  await new Promise(setImmediate);
  process.off("warning", warn);
  assert.deepEqual(warned, []);
  assert.deepEqual(getEventListeners(signal, "abort"), []);
});

test("leaving a loop early cancels and frees the session", async () => {
  const session = slow.session();
  for await (const _ of session.generate(PROMPT)) break;
  session.truncate(0);
  await assert.rejects(async () => {
    for await (const _ of session.generate(PROMPT)) throw new RangeError("mine");
  }, RangeError);
  session.truncate(0);
});

test("loading, logits and divergence end, too", async () => {
  const controller = new AbortController();
  const onProgress = () => controller.abort();
  const loading = Model.load(slowCheckpoint(), { memory: "resident", signal: controller.signal, onProgress });
  await assert.rejects(loading, failure("Cancelled"));
  for (const work of [(signal) => slow.logits(LONG, { signal }), (signal) => slow.divergence(slow, LONG, { signal })]) {
    await assert.rejects(work(AbortSignal.timeout(20)), failure("Cancelled"));
  }
});

test("exceptions of progress callbacks reject, thrown or of a promise", async () => {
  const mine = new RangeError("mine");
  let calls = 0;
  const thrown = () => {
    calls++;
    throw mine;
  };
  await assert.rejects(stories({ onProgress: thrown }), mine);
  assert.equal(calls, 1);
  await assert.rejects(Model.load(slowCheckpoint(), { memory: "resident", onProgress: async () => thrown() }), mine);
});

test("cancelling while two read ends both", async () => {
  const running = slow.generate(LONG);
  const readers = [running.next(), running.next()];
  running.cancel();
  const ends = await Promise.allSettled(readers);
  assert.deepEqual(ends.map((end) => end.status).sort(), ["fulfilled", "rejected"]);
  assert.deepEqual(ends.find((end) => end.value)?.value, { done: true, value: undefined });
});

test("closing while another reads ends both", async () => {
  const running = slow.generate(LONG);
  const reading = running.next().then(
    () => "end",
    (error) => error.kind,
  );
  await running.close();
  assert.ok(["end", "Cancelled"].includes(await reading));
});
