// Do the examples do what they say? The chat's page in a browser, where there is one.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";

import puppeteer from "puppeteer-core";
import { Model } from "skulk-node";
import { PACKAGE, REPOSITORY, STORIES, program, temporary } from "./helpers.mjs";

const EXAMPLES = path.join(REPOSITORY, "examples", "node");
const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const STORY = "Once upon a time, there was a little girl named Lily.";

before(() => {
  // As `npm install` in that folder would.
  const modules = path.join(EXAMPLES, "node_modules");
  rmSync(modules, { recursive: true, force: true });
  mkdirSync(modules);
  symlinkSync(PACKAGE, path.join(modules, "skulk-node"), "junction");
  symlinkSync(path.join(PACKAGE, "node_modules", "ai"), path.join(modules, "ai"), "junction");
});

const example = (...args) => program(args, { cwd: EXAMPLES });

test("generate streams a story, and says what is wrong", async () => {
  const { code, out, err } = await example("generate.mjs");
  assert.deepEqual({ code, err }, { code: 0, err: "" });
  assert.match(out, /^stage 0: layers 0 to 3 on cpu\nstage 1: layers 3 to 5 on cpu\n/);
  assert.ok(out.includes(STORY), out);
  assert.match(out, /\d+ tokens a second\n$/);
  const missing = await example("generate.mjs", "no/such");
  assert.equal(missing.code, 1);
  assert.match(missing.err, /^file\.not_found: /);
});

test("the AI SDK streams in ten lines", async () => {
  const { code, out, err } = await example("ai-sdk.mjs");
  assert.deepEqual({ code, err }, { code: 0, err: "" });
  assert.ok(out.startsWith(STORY.slice("Once upon a time".length)), out);
});

test("serve computes a model's blocks until Ctrl-C", async () => {
  const key = path.join(temporary(), "key");
  writeFileSync(key, "a-long-key\n");
  const args = ["serve.mjs", "--layers", "1:4", "--threads", "1", "--key-file", key];
  const child = spawn(process.execPath, args, { cwd: EXAMPLES, stdio: ["ignore", "pipe", "inherit"] });
  let out = "";
  const ended = once(child, "close");
  const [line] = await once(child.stdout, "data");
  child.stdout.on("data", (data) => (out += data));
  const model = await Model.load(STORIES, { ffnAt: [String(line).trim()], peerKey: "a-long-key" });
  const told = await model.generate("Once upon a time", { maxTokens: 20 }).text();
  assert.ok(`Once upon a time${told}`.startsWith(STORY), told);
  child.kill("SIGINT");
  assert.deepEqual(await ended, [0, null]);
  assert.match(out, /skulk_ffn/);
  const help = await example("serve.mjs", "--help");
  assert.match(help.out, /--key-file FILE/);
  const refused = await example("serve.mjs", "--listen", "ftp://here");
  assert.equal(refused.code, 1);
  assert.match(refused.err, /^argument\.invalid: /);
});

let server, address;

before(async () => {
  server = spawn(process.execPath, ["chat/server.mjs", path.join(REPOSITORY, "examples/models/stories260K"), "0"], {
    cwd: EXAMPLES,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = await new Promise((resolve) => server.stdout.once("data", (data) => resolve(String(data).split("\n"))));
  address = line;
});

after(() => server.kill());

const ask = (body, options) => fetch(`${address}tell`, { method: "POST", body: JSON.stringify(body), ...options });

test("the chat streams events, and refuses what is no request", async () => {
  const response = await ask({ id: "a", text: "Once upon a time", maxTokens: 8 });
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  const events = (await response.text()).trim().split("\n\n").map((event) => JSON.parse(event.slice("data: ".length)));
  assert.equal(events.length, 8);
  assert.equal(events.at(-1).finish.usage.completionTokens, 8);
  for (const [body, code] of [[{ id: "a", text: 3 }, "argument.invalid"], [{ id: 3 }, undefined], ["x", undefined]]) {
    const refused = await ask(body);
    assert.equal(refused.status, 400);
    assert.equal((await refused.json()).code, code);
  }
  assert.equal((await fetch(`${address}elsewhere`)).status, 404);
});

test("whoever leaves frees the conversation", async () => {
  const gone = new AbortController();
  const first = await ask({ id: "b", text: "Once", maxTokens: 400 }, { signal: gone.signal });
  await first.body.getReader().read();
  gone.abort();
  for (let status = 409, tries = 0; status === 409; tries++) {
    assert.ok(tries < 200);
    const again = await ask({ id: "b", text: "Once", maxTokens: 1 });
    status = again.status;
    await again.text();
  }
});

test("the page tells a story and goes on with it", { skip: CHROMIUM ? false : "there is no Chromium" }, async () => {
  const browser = await puppeteer.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    userDataDir: temporary(),
  });
  try {
    const page = await browser.newPage();
    const errors = [];
    page.on("pageerror", (error) => errors.push(error));
    await page.goto(address);
    const story = () => page.$eval("#story", (element) => element.textContent);
    const status = (text) => page.waitForFunction((text) => document.querySelector("#status").textContent.includes(text), {}, text);
    await page.click("#send");
    await status("tokens a second");
    const waits = () => page.waitForFunction(() => !document.querySelector("#send").disabled);
    await waits();
    const told = await story();
    assert.ok(told.startsWith("Once upon a time") && told.length > 100, told);
    await page.type("#line", " The dog");
    await page.click("#send");
    await page.waitForFunction((length) => document.querySelector("#story").textContent.length > length, {}, told.length + 9);
    await waits();
    assert.ok((await story()).startsWith(`${told} The dog`));
    assert.deepEqual(errors, []);
  } finally {
    await browser.close();
  }
});
