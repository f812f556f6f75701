// Does a session hold a conversation, and do handles end as they should?

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";

import { Generation, Model, Session, Tokenizer } from "skulk-node";
import { PROMPT, failure, slowCheckpoint, stories } from "./helpers.mjs";

const model = await stories();

test("a session computes only what it does not hold", async () => {
  const session = model.session();
  const first = await session.generate(PROMPT, { maxTokens: 10 }).output();
  assert.equal(first.finish.usage.cachedTokens, 0);
  const held = session.tokens;
  assert.deepEqual(held.slice(-10), first.ids);
  const more = await session.generate(" The end.", { append: true, maxTokens: 2 }).output();
  assert.ok(more.finish.usage.cachedTokens >= held.length - 1);
  session.truncate(3);
  assert.equal(session.tokens.length, 3);
  assert.throws(() => session.generate([1], { append: true }), failure("InvalidArgument", { field: "append" }));
});

test("a saved session goes on", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "skulk-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "conversation.skulk");
  const session = model.session();
  await session.generate(PROMPT.repeat(20), { maxTokens: 8 }).output();
  const { tokens } = session;
  await session.save(file);
  const more = { append: true, maxTokens: 8 };
  const expected = await session.generate(" Then", more).output();
  const restored = await model.restore(pathToFileURL(file));
  assert.deepEqual(restored.tokens, tokens);
  const output = await restored.generate(" Then", more).output();
  assert.deepEqual(output.ids, expected.ids);
  assert.ok(output.finish.usage.cachedTokens >= tokens.length - 1);
  await assert.rejects(model.restore(join(folder, "none")), failure("FileNotFound"));
  await assert.rejects(session.save(join(folder, "no", "folder")), failure("FileNotFound"));
  await assert.rejects(model.restore(7), failure("InvalidArgument", { field: "path" }));
  writeFileSync(file, readFileSync(file).subarray(0, -1));
  await assert.rejects(model.restore(file), failure("SessionInvalid"));
  restored.close();
  await assert.rejects(restored.save(file), failure("InvalidArgument"));
});

test("a session runs one generation at a time", async () => {
  const slow = await Model.load(slowCheckpoint(), { threads: 1 });
  const session = slow.session();
  const running = session.generate(PROMPT.repeat(100));
  assert.throws(() => session.generate(PROMPT), failure("SessionBusy", { retry: "now" }));
  assert.throws(() => session.tokens, failure("SessionBusy"));
  assert.throws(() => session.truncate(0), failure("SessionBusy"));
  await running.close();
  assert.ok(Array.isArray(session.tokens));
});

test("what is closed says so", async () => {
  const own = await stories();
  const session = own.session();
  const { tokenizer } = own;
  const closed = failure("InvalidArgument", { message: /found a closed one/ });
  session.close();
  session.close();
  assert.throws(() => session.generate(PROMPT), closed);
  assert.throws(() => session.tokens, closed);
  assert.equal(inspect(own), "Model { llama: 5 layers, context 512 }");
  assert.equal(inspect(own.session()), "Session { 0 tokens }");
  assert.equal(inspect(session), "Session { closed }");
  await own[Symbol.asyncDispose]();
  await own[Symbol.asyncDispose]();
  own[Symbol.dispose]();
  assert.equal(inspect(own), "Model { closed }");
  for (const use of [
    () => own.arch,
    () => own.tokenizer,
    () => own.session(),
    () => own.generate(PROMPT),
    () => tokenizer.encode(PROMPT),
    () => tokenizer.decode([1]),
    () => tokenizer.vocabSize,
  ]) {
    assert.throws(use, closed);
  }
  await assert.rejects(own.logits(PROMPT), closed);
  await assert.rejects(model.divergence(own, PROMPT), closed);
});

test("a session outlives its model's handle", async () => {
  const own = await stories();
  const session = own.session();
  own.close();
  assert.ok((await session.generate(PROMPT, { maxTokens: 5 }).text()).length > 0);
});

test("a closed generation is at its end", async () => {
  const running = model.generate(PROMPT);
  await running.close();
  await running.close();
  assert.deepEqual(await running.next(), { done: true, value: undefined });
  await assert.rejects(running.text(), failure("InvalidArgument"));
  const other = model.generate(PROMPT);
  await other[Symbol.asyncDispose]();
  const third = model.generate(PROMPT);
  third[Symbol.dispose]();
  await assert.rejects(third.text(), failure("Cancelled"));
});

test("handles are made by the functions that return them", () => {
  for (const Handle of [Model, Session, Generation, Tokenizer]) {
    assert.throws(() => new Handle(), failure("InvalidArgument", { message: /cannot be made with new/ }));
  }
});
