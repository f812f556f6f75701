// How are a model's feed-forward blocks and experts served to other processes and machines? Run it with --help, or without.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { SkulkError, serve } from "skulk-node";

const STORIES = fileURLToPath(new URL("../models/stories260K", import.meta.url));
const HELP = `node serve.mjs [MODEL]
  --listen ADDRESS        http://host:port, https://host:port or unix:///path; by default a free port
  --layers FIRST:BEHIND   only these layers
  --experts FIRST:BEHIND  only these experts of each layer
  --key-file FILE         holds the key that clients must know
  --identity-file FILE    certificate and key for https, in PEM
  --clients-file FILE     certificates of clients' authority, in PEM
  --ffn-budget BYTES      weights that are kept in memory at a time
  --threads N             threads that compute
Elsewhere: Model.load(MODEL, { ffnAt: [ADDRESS] })`;

const names = [...HELP.matchAll(/--([\w-]+)/g)].map(([, name]) => name);
const options = Object.fromEntries(names.map((name) => [name, { type: "string" }]));
const { values, positionals } = parseArgs({ options: { ...options, help: { type: "boolean" } }, allowPositionals: true });
const [path = STORIES] = positionals;
const span = (text) => text?.split(":").map(Number);
const number = (text) => text && Number(text);
const content = (file) => file && readFileSync(file, "utf8").trim();

try {
  if (values.help) {
    console.log(HELP);
  } else {
    const server = await serve(path, {
      listen: values.listen,
      layers: span(values.layers),
      experts: span(values.experts),
      key: content(values["key-file"]),
      identity: content(values["identity-file"]),
      clients: content(values["clients-file"]),
      ffnBudget: number(values["ffn-budget"]),
      threads: number(values.threads),
    });
    console.log(server.address);
    // What was begun may end.
    process.once("SIGINT", () => server.stop({ grace: 10 }));
    await server.wait();
    console.log(server.metrics);
  }
} catch (error) {
  if (!(error instanceof SkulkError)) throw error;
  console.error(`${error.code}: ${error.text}`);
  process.exitCode = 1;
}
