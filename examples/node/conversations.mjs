// How are 16 conversations held at once, with a progress line each? Run it with a model's path, or without.

import { fileURLToPath } from "node:url";

import { Model } from "skulk-node";

const STORIES = fileURLToPath(new URL("../models/stories260K", import.meta.url));
const [path = STORIES] = process.argv.slice(2);
const COUNT = 16;
const OPENING =
  "Once upon a time, there was a little girl named Lily. She lived in a big house with her mom and her dad. " +
  "She had many friends, and she loved to play with them in the park.";
const FRIENDS = ["cat", "dog", "bird", "boy", "fish", "bear", "bug", "duck"];

/** Draws a conversation's line again on a terminal; elsewhere it is written once. */
function show(i, text, last = false) {
  const up = COUNT - i;
  if (process.stdout.isTTY) process.stdout.write(`\x1b[${up}A\r\x1b[K${text.slice(0, 78)}\x1b[${up}B\r`);
  else if (last) console.log(text);
}

async function converse(i, session) {
  let [text, tokens, cached] = ["", 0, 0];
  for (const said of [` One day, Lily met a ${FRIENDS[i % FRIENDS.length]}`, " Her mom said,"]) {
    text += said;
    for await (const event of session.generate(said, { append: true, maxTokens: 32, temperature: 0.7, seed: i })) {
      text += event.text;
      if (event.token) tokens++;
      cached += event.finish?.usage.cachedTokens ?? 0;
      show(i, `${String(i).padStart(2)}: ${tokens} tokens ...${text.slice(-58)}`);
    }
  }
  session.close();
  show(i, `${String(i).padStart(2)}: ${tokens} tokens, ${cached} not computed again: ${text.trim()}`, true);
  return tokens;
}

const model = await Model.load(path);
// How all begin is computed once: each conversation is a fork of it.
const opening = model.session();
const { finish } = await opening.generate(OPENING, { maxTokens: 1 }).output();
opening.truncate(finish.usage.promptTokens);

if (process.stdout.isTTY) process.stdout.write("\n".repeat(COUNT));
const began = performance.now();
const counts = await Promise.all(Array.from({ length: COUNT }, (_, i) => converse(i, opening.fork())));
const tokens = counts.reduce((sum, count) => sum + count, 0);
const speed = (1000 * tokens) / (performance.now() - began);
console.log(`${tokens} tokens, ${speed.toFixed()} a second; keys and values ${model.kvMemory.inUseBytes} bytes`);
