// Which models do the tests run on? The fixtures, and one made here that is slow.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { copyFileSync, cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { Model, SkulkError } from "skulk-node";

export const REPOSITORY = fileURLToPath(new URL("../..", import.meta.url));
export const PACKAGE = path.join(REPOSITORY, "skulk-node");
export const FIXTURES = path.join(REPOSITORY, "tests", "fixtures", "models");
export const STORIES = path.join(FIXTURES, "stories260K");
export const TINY_BERT = path.join(REPOSITORY, "tests", "fixtures", "embeddings", "tiny-bert");
/** all-MiniLM-L6-v2, where tests/run fetched it. */
export const MINILM = process.env.SKULK_MINILM ?? path.join(REPOSITORY, ".cache", "all-MiniLM-L6-v2");
export const PROMPT = "Once upon a time";

export const stories = (options) => Model.load(STORIES, { threads: 1, ...options });

/** Matches a `SkulkError` of this kind that has these properties. */
export function failure(kind, { message, ...properties } = {}) {
  return (error) => {
    if (!(error instanceof SkulkError) || error.kind !== kind) throw error;
    if (message !== undefined && !message.test(error.message)) throw error;
    for (const [name, value] of Object.entries(properties)) {
      const found = ["at", "field"].includes(name) ? error.context[name] : error[name];
      if (value instanceof RegExp ? !value.test(found) : found !== value) throw error;
    }
    return true;
  };
}

const folders = [];
process.on("exit", () => folders.forEach((folder) => rmSync(folder, { recursive: true, force: true })));

/** A folder that is gone after the tests. */
export function temporary() {
  const folder = mkdtempSync(path.join(tmpdir(), "skulk-node-"));
  folders.push(folder);
  return folder;
}

/** A checkpoint whose last token is this text. Where a bias lets nothing else be said, it says that. */
export function saying(text, token) {
  const folder = path.join(temporary(), "qwen2");
  cpSync(path.join(FIXTURES, "qwen2"), folder, { recursive: true });
  const change = (name, how) => {
    const file = path.join(folder, name);
    const json = JSON.parse(readFileSync(file, "utf8"));
    how(json);
    writeFileSync(file, JSON.stringify(json));
  };
  change("tokenizer.json", ({ added_tokens: added }) => {
    assert.equal(added.at(-1).id, token);
    Object.assign(added.at(-1), { content: text, special: false });
  });
  change("tokenizer_config.json", (config) => {
    delete config.pad_token;
    delete config.added_tokens_decoder?.[token];
  });
  return folder;
}

let slow;

/** A checkpoint of 100 million zeros, whose prefill takes seconds, with the tokenizer of another. */
export function slowCheckpoint() {
  if (slow) return slow;
  slow = temporary();
  for (const name of ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]) {
    copyFileSync(path.join(STORIES, name), path.join(slow, name));
  }
  const [hidden, inner, layers, vocab] = [1024, 4096, 6, 512];
  const config = JSON.parse(readFileSync(path.join(STORIES, "config.json"), "utf8"));
  Object.assign(config, { hidden_size: hidden, intermediate_size: inner, num_hidden_layers: layers });
  Object.assign(config, { num_attention_heads: 8, num_key_value_heads: 8, head_dim: hidden / 8 });
  Object.assign(config, { max_position_embeddings: 8192, tie_word_embeddings: true });
  writeFileSync(path.join(slow, "config.json"), JSON.stringify(config));
  const shapes = { "model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden] };
  for (let layer = 0; layer < layers; layer++) {
    const prefix = `model.layers.${layer}.`;
    for (const p of "qkvo") shapes[`${prefix}self_attn.${p}_proj.weight`] = [hidden, hidden];
    for (const p of ["gate", "up"]) shapes[`${prefix}mlp.${p}_proj.weight`] = [inner, hidden];
    shapes[`${prefix}mlp.down_proj.weight`] = [hidden, inner];
    for (const p of ["input", "post_attention"]) shapes[`${prefix}${p}_layernorm.weight`] = [hidden];
  }
  const header = {};
  let end = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    const start = end;
    end += 2 * shape[0] * (shape[1] ?? 1);
    header[name] = { dtype: "F16", shape, data_offsets: [start, end] };
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const file = path.join(slow, "model.safetensors");
  writeFileSync(file, Buffer.concat([length, text]));
  truncateSync(file, 8 + text.length + end);
  return slow;
}

/** Runs a program of its own: how it ended, and what it said. */
export function run(source, { flags = [], env = {} } = {}) {
  return program([...flags, "--input-type=module", "--eval", source], { cwd: PACKAGE, env: { STORIES, ...env } });
}

/** Runs Node. What drivers say about a system without a desktop does not count. */
export function program(args, { cwd, env = {} }) {
  const child = spawn(process.execPath, args, { cwd, env: { XDG_RUNTIME_DIR: tmpdir(), ...process.env, ...env } });
  const [out, err] = [[], []];
  child.stdout.on("data", (data) => out.push(data));
  child.stderr.on("data", (data) => err.push(data));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => {
      resolve({ code, signal, out: Buffer.concat(out).toString(), err: Buffer.concat(err).toString() });
    });
  });
}
