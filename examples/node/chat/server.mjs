// How does a service stream a model's text to browsers? Plain HTTP, with server-sent events; a page is beside this file.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

import { Model, SkulkError } from "skulk-node";

const STORIES = fileURLToPath(new URL("../../models/stories260K", import.meta.url));
const [path = STORIES, port = "8080"] = process.argv.slice(2);
const model = await Model.load(path);
const page = await readFile(new URL("index.html", import.meta.url));

/** The conversations that go on, the one heard of last behind the others. Sessions hold what was computed of them. */
const sessions = new Map();
const MOST = 16;

function sessionOf(id) {
  const session = sessions.get(id) ?? model.session();
  sessions.delete(id);
  sessions.set(id, session);
  const [[oldest, first]] = sessions;
  if (sessions.size > MOST) {
    first.close();
    sessions.delete(oldest);
  }
  return session;
}

/** Reads a request: a conversation's id, all of its text so far, and how many tokens to add. */
async function read(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    if ((size += chunk.length) > 1 << 20) throw new RangeError("the request is larger than a megabyte");
    chunks.push(chunk);
  }
  const { id, text, maxTokens } = JSON.parse(Buffer.concat(chunks).toString());
  if (typeof id !== "string" || id.length > 64) throw new TypeError("expected an id of at most 64 characters");
  return { id, text, maxTokens: Math.min(Number(maxTokens) || 128, 1024) };
}

async function tell(request, response) {
  const { id, text, maxTokens } = await read(request);
  // Whoever closes the page need not be answered.
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  const options = { maxTokens, temperature: 0.8, topP: 0.95, seed: Date.now(), signal: gone.signal };
  const generation = sessionOf(id).generate(text, options);
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  for await (const event of generation) response.write(`data: ${JSON.stringify(event)}\n\n`);
  response.end();
}

function fail(response, error) {
  if (error.name === "AbortError") return;
  const status = { SessionBusy: 409, Internal: 500 }[error.kind] ?? 400;
  if (!(error instanceof SkulkError || error instanceof TypeError || error instanceof SyntaxError)) console.error(error);
  const body = JSON.stringify({ code: error.code, message: error.message, hint: error.hint });
  if (response.headersSent) response.end(`event: failure\ndata: ${body}\n\n`);
  else response.writeHead(status, { "content-type": "application/json" }).end(body);
}

const server = createServer((request, response) => {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /") {
    response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(page);
  } else if (route === "POST /tell") {
    tell(request, response).catch((error) => fail(response, error));
  } else {
    response.writeHead(404).end();
  }
});

server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
