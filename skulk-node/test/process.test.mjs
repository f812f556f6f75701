// Does the process around the library live and end as it should, whatever is under way?

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { PACKAGE, run, slowCheckpoint } from "./helpers.mjs";

const SLOW = slowCheckpoint();

/** Runs a program that must end well by itself, and says what it printed. */
async function ends(source, options = {}) {
  const setup = `
    import { Worker } from "node:worker_threads";
    import { Model } from "skulk-node";
    const { SLOW, STORIES } = process.env;
    const LONG = "Once upon a time".repeat(100);
    const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  `;
  const { code, signal, out, err } = await run(setup + source, { ...options, env: { SLOW } });
  assert.deepEqual({ code, signal, err }, { code: options.code ?? 0, signal: null, err: "" });
  return out.trim();
}

test("live handles do not keep the process", async () => {
  const out = await ends(`
    const model = await Model.load(STORIES);
    const session = model.session();
    const running = (await Model.load(SLOW)).generate(LONG);
    globalThis.held = [model, session, running, model.generate("x")];
    console.log("done");
  `);
  assert.equal(out, "done");
});

test("whoever waits keeps the process", async () => {
  const out = await ends(`
    const model = await Model.load(STORIES);
    model.generate("Once", { maxTokens: 200 }).text().then((text) => console.log(text.length > 0));
  `);
  assert.equal(out, "true");
});

test("exit during a load, a generation and a search", async () => {
  await ends(`
    Model.load(SLOW, { memory: "resident", onProgress: () => process.exit(7) });
  `, { code: 7 });
  await ends(`
    const running = (await Model.load(SLOW)).generate(LONG);
    running.next();
    setTimeout(() => process.exit(7), 30);
  `, { code: 7 });
  await ends(`
    const model = await Model.load(SLOW);
    model.logits(LONG);
    setTimeout(() => process.exit(7), 30);
  `, { code: 7 });
});

test("an exception that nobody catches ends the process as usual", async () => {
  const { code, err } = await run(`
    import { Model } from "skulk-node";
    const model = await Model.load(process.env.STORIES);
    for await (const event of model.generate("Once")) throw new RangeError("mine");
  `);
  assert.equal(code, 1);
  assert.match(err, /RangeError: mine/);
});

test("generations that nobody holds are collected and cancelled", async () => {
  const out = await ends(`
    const model = await Model.load(SLOW, { threads: 1 });
    const session = model.session();
    let gone = 0;
    const registry = new FinalizationRegistry(() => gone++);
    const begin = () => registry.register(session.generate(LONG), "x");
    begin();
    for (let i = 0; i < 500; i++) {
      gc();
      await sleep(10);
      try {
        session.tokens;
        break;
      } catch (error) {
        if (error.kind !== "SessionBusy") throw error;
      }
    }
    session.tokens;
    console.log(gone);
  `, { flags: ["--expose-gc"] });
  assert.equal(out, "1");
});

test("signals let go of what nobody holds, and end what somebody does", async () => {
  const out = await ends(`
    import { getEventListeners } from "node:events";
    const model = await Model.load(SLOW, { threads: 1, chatTemplate: "{{ messages[0].content }}" });
    const left = new AbortController();
    const begin = ({ signal }) => {
      model.generate(LONG, { signal });
      model.chat(LONG, { signal });
      model.chatWithTools(LONG, [], { signal });
    };
    begin(left);
    const before = getEventListeners(left.signal, "abort").length;
    for (let i = 0; i < 500 && getEventListeners(left.signal, "abort").length > 0; i++) {
      gc();
      await sleep(10);
    }
    console.log(before, getEventListeners(left.signal, "abort").length);

    const controller = new AbortController();
    const { signal } = controller;
    const chat = model.chatWithTools(LONG, [], { signal });
    const texts = model.generateBatch([LONG], { signal }).catch((error) => error.kind);
    const held = model.generate(LONG, { signal });
    for (let i = 0; i < 5; i++) {
      gc();
      await sleep(10);
    }
    controller.abort();
    console.log(await texts, await held.text().catch((error) => error.kind));
    await chat.run();
    console.log(chat.finish.reason);
  `, { flags: ["--expose-gc"] });
  assert.equal(out, "1 0\nCancelled Cancelled\ncancelled");
});

test("a generation that somebody waits for is not collected", async () => {
  const out = await ends(`
    const model = await Model.load(STORIES);
    const reading = model.generate("Once", { maxTokens: 100 }).output();
    const timer = setInterval(gc, 1);
    console.log((await reading).ids.length);
    clearInterval(timer);
  `, { flags: ["--expose-gc"] });
  assert.equal(out, "100");
});

test("many handles come and go", async () => {
  const out = await ends(`
    const model = await Model.load(STORIES, { threads: 1 });
    for (let i = 0; i < 300; i++) {
      const session = model.session();
      const running = session.generate("Once", { maxTokens: 4 });
      if (i % 3 === 0) await running.text();
      else if (i % 3 === 1) running.cancel();
      if (i % 50 === 0) gc();
    }
    console.log("done");
  `, { flags: ["--expose-gc"] });
  assert.equal(out, "done");
});

const WORKER = `
  import { parentPort, workerData } from "node:worker_threads";
  import { Model } from "skulk-node";
  const model = await Model.load(workerData.path, { threads: 1, ...workerData.options });
  parentPort.postMessage("loaded");
  const options = { maxTokens: workerData.maxTokens };
  parentPort.postMessage(await model.generate(workerData.prompt, options).text());
`;

test("workers have models of their own", async () => {
  const out = await ends(`
    const texts = await Promise.all([1, 2, 3].map(() => new Promise((resolve, reject) => {
      const workerData = { path: STORIES, prompt: "Once upon a time", maxTokens: 8 };
      const worker = new Worker(${JSON.stringify(WORKER)}, { eval: true, workerData });
      worker.on("message", (message) => message !== "loaded" && resolve(message));
      worker.on("error", reject);
    })));
    console.log(new Set(texts).size, texts[0].length > 0);
  `);
  assert.equal(out, "1 true");
});

test("workers may be terminated at any time", async () => {
  const out = await ends(`
    for (const [path, options, when] of [
      [SLOW, { memory: "resident" }, "now"],
      [SLOW, { memory: "resident" }, "soon"],
      [SLOW, {}, "loaded"],
      [STORIES, {}, "loaded"],
    ]) {
      const workerData = { path, options, prompt: LONG.slice(0, 300), maxTokens: 300 };
      const worker = new Worker(${JSON.stringify(WORKER)}, { eval: true, workerData });
      if (when === "loaded") await new Promise((resolve) => worker.once("message", resolve));
      if (when === "soon") await sleep(150);
      await worker.terminate();
    }
    await sleep(300);
    const model = await Model.load(STORIES);
    console.log((await model.generate("Once", { maxTokens: 3 }).output()).ids.length);
  `);
  assert.equal(out, "3");
});

test("every function that JavaScript calls catches panics", () => {
  const folder = path.join(PACKAGE, "src");
  let functions = 0;
  for (const file of readdirSync(folder)) {
    const source = readFileSync(path.join(folder, file), "utf8");
    for (const [, attributes, name] of source.matchAll(/#\[napi(\(.*\))?\]\n\s*pub fn (\w+)/g)) {
      assert.match(attributes ?? "", /catch_unwind/, `${file}: ${name}`);
      functions++;
    }
  }
  assert.ok(functions > 30, String(functions));
});
