// Do other processes' servers compute what this one does not, and do conversations go on without them?

import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";

import { Cluster, Model, Node, Placement, Server, serve } from "skulk-node";
import { FIXTURES, PROMPT, STORIES, failure, run, temporary } from "./helpers.mjs";

const MIXTRAL = path.join(FIXTURES, "mixtral");
const served = (path, options) => serve(path, { threads: 1, ...options });
const load = (path, options) => Model.load(path, { threads: 1, ...options });
const at = (path, servers, options) => load(path, { ffnAt: servers.map((server) => server.address), ...options });
const text = (model, options = { maxTokens: 24 }) => model.generate(PROMPT, options).text();

for (const path of [STORIES, MIXTRAL]) {
  test(`what a server computes says the same: ${path.slice(FIXTURES.length)}`, async () => {
    const server = await served(path);
    const [model, alone] = [await at(path, [server]), await load(path)];
    assert.ok(model.stages[0].device.includes(server.address), model.stages[0].device);
    assert.equal(await text(model), await text(alone));
    assert.deepEqual(await model.logits(PROMPT), await alone.logits(PROMPT));
    assert.match(server.metrics, /skulk_ffn/);
    await server[Symbol.asyncDispose]();
  });
}

test("links are measured", async () => {
  const server = await served(STORIES, { key: "k" });
  const speed = await Node.measureLink(server.address, { key: "k" });
  assert.ok(speed.roundTripSeconds > 0 && speed.bytesPerSecond > 1e5, JSON.stringify(speed));
  assert.deepEqual(Cluster.mesh([{ id: "a" }, { id: "b" }], speed).mesh, speed);
  await assert.rejects(Node.measureLink(server.address), failure("PeerFailed"));
  await assert.rejects(Node.measureLink(server.address, { key: "k", signal: AbortSignal.abort() }));
  await assert.rejects(Node.measureLink("here"), failure("InvalidArgument", { field: "address" }));
  await assert.rejects(Node.measureLink(server.address, { timeout: 0 }), failure("InvalidArgument", { field: "timeout" }));
  await server[Symbol.asyncDispose]();
  await assert.rejects(Node.measureLink(server.address, { key: "k" }), failure("PeerLost"));
});

test("servers share layers and experts", async () => {
  const servers = await Promise.all([
    served(MIXTRAL, { experts: [0, 4] }),
    served(MIXTRAL, { experts: { start: 4, end: 8 }, layers: [1, 3] }),
  ]);
  const model = await at(MIXTRAL, servers);
  for (const { address } of servers) assert.ok(model.stages[0].device.includes(address), model.stages[0].device);
  assert.equal(await text(model), await text(await load(MIXTRAL)));
  for (const server of servers) server[Symbol.dispose]();
});

test("a key is asked for", async () => {
  const listen = process.platform === "win32" ? undefined : `unix://${temporary()}/s`;
  const server = await served(STORIES, { key: "a-long-key", listen });
  if (listen) assert.equal(server.address, listen);
  assert.ok(await text(await at(STORIES, [server], { peerKey: "a-long-key" })));
  for (const peerKey of ["another", undefined]) {
    const hint = "give the server's key with the option peerKey";
    const refused = failure("PeerFailed", { retry: "after_replan", code: "peer.failed", hint });
    await assert.rejects(at(STORIES, [server], { peerKey }), refused);
  }
  await server.stop();
});

test("a server that is not there is lost", async () => {
  const server = await served(STORIES);
  await server.stop();
  await assert.rejects(at(STORIES, [server], { peerTimeout: 2 }), failure("PeerLost", { code: "peer.lost" }));
});

/** The text until the server was lost. */
async function cutOff(session, server, options) {
  let text = "";
  const read = async () => {
    for await (const event of session.generate(PROMPT, options)) {
      text += event.text;
      await server.stop();
    }
  };
  await assert.rejects(read(), failure("PeerLost", { retry: "after_replan" }));
  assert.ok(text.length > 0);
  return text;
}

for (const [path, layers] of [[STORIES, 5], [MIXTRAL, 3]]) {
  test(`a conversation goes on elsewhere: ${path.slice(FIXTURES.length)}`, async () => {
    const options = { maxTokens: 200, ignoreEos: true, temperature: 1.2, seed: 3 };
    const expected = await (await load(path)).generate(PROMPT, options).output();
    const server = await served(path);
    const session = (await at(path, [server])).session();
    const text = await cutOff(session, server, options);
    const recovered = await session.recover([["cpu", layers]]);
    const rest = await recovered.resume().output();
    assert.equal(text + rest.text, expected.text);
    assert.equal(rest.finish.usage.completionTokens, 200);
    assert.deepEqual(recovered.tokens.slice(-200), expected.ids);
    assert.throws(() => recovered.resume(), failure("InvalidArgument", { message: /cut off/ }));
  });
}

test("conversations share a model that was placed otherwise", async () => {
  const server = await served(STORIES);
  const model = await at(STORIES, [server]);
  const [first, second] = [model.session(), model.session()];
  const options = { maxTokens: 100, ignoreEos: true };
  const controller = new AbortController();
  const text = await cutOff(first, server, { ...options, signal: controller.signal });
  await assert.rejects(second.generate(PROMPT, { maxTokens: 8 }).text(), failure("PeerLost"));
  // It was for what was cut off.
  controller.abort();
  const elsewhere = await model.replan(Placement.byCounts([["cpu", 2], ["cpu", 3]]));
  assert.equal(elsewhere.stages.length, 2);
  const expected = await elsewhere.generate(PROMPT, options).text();
  assert.equal(text + (await (await first.recoverIn(elsewhere)).resume().text()), expected);
  const brief = await (await second.recoverIn(elsewhere)).resume().text();
  assert.equal(brief, await elsewhere.generate(PROMPT, { maxTokens: 8 }).text());
  await assert.rejects(first.recoverIn(await load(path.join(FIXTURES, "llama"))), failure("SessionMismatch"));
  await assert.rejects(first.recoverIn(server), failure("InvalidArgument", { field: "model" }));
  await assert.rejects(first.recover([["cpu", 4]]), failure("PlacementInvalid"));
  await assert.rejects(model.replan(3), failure("InvalidArgument", { field: "placement" }));
  const { signal } = controller;
  await assert.rejects(model.replan([["cpu", 5]], { signal }), failure("Cancelled"));
  await assert.rejects(first.recover([["cpu", 5]], { signal }), failure("Cancelled"));
});

test("what resumes can be cancelled", async () => {
  const server = await served(STORIES);
  const session = (await at(STORIES, [server])).session();
  await cutOff(session, server, { maxTokens: 400, ignoreEos: true });
  const recovered = await session.recover([["cpu", 5]]);
  assert.throws(() => recovered.resume({ signal: AbortSignal.abort() }), failure("Cancelled"));
  assert.throws(() => recovered.resume({ maxTokens: 3 }), failure("InvalidArgument", { field: "maxTokens" }));
  const controller = new AbortController();
  const running = recovered.resume({ signal: controller.signal });
  await running.next();
  controller.abort();
  await assert.rejects(running.text(), failure("Cancelled"));
});

test("options of serving that cannot be are named", async () => {
  for (const [field, options] of [
    ["listen", { listen: "ftp://here" }],
    ["listen", { listen: 3 }],
    ["layers", { layers: [0, 9] }],
    ["layers", { layers: [0, 1, 2] }],
    ["layers", { layers: 3 }],
    ["key", { key: "" }],
    ["key", { listen: "http://0.0.0.0:0" }],
    ["identity", { listen: "https://127.0.0.1:0" }],
    ["identity", { identity: "none", listen: "https://127.0.0.1:0" }],
    ["clients", { clients: "none" }],
    ["maxRows", { maxRows: 0 }],
    ["maxConnection", { maxConnection: 1 }],
    ["signal", { signal: 3 }],
  ]) {
    await assert.rejects(served(STORIES, options), failure("InvalidArgument", { field }));
  }
  await assert.rejects(serve(3), failure("InvalidArgument", { field: "path" }));
  await assert.rejects(serve("no/such/model"), failure("FileNotFound"));
  await assert.rejects(served(STORIES, { signal: AbortSignal.abort() }), failure("Cancelled"));
  assert.throws(() => new Server(), failure("InvalidArgument", { message: /cannot be made with new/ }));
});

test("options of peers that cannot be are named", async () => {
  for (const [field, options] of [
    ["ffnAt", { ffnAt: ["here"] }],
    ["ffnAt", { ffnAt: "http://127.0.0.1:1" }],
    ["addresses", { addresses: { shed: 3 } }],
    ["peerRoots", { peerRoots: "none" }],
    ["peerIdentity", { peerIdentity: "none" }],
    ["peerWire", { peerWire: "f64" }],
    ["peerTimeout", { peerTimeout: 0 }],
  ]) {
    await assert.rejects(load(STORIES, options), failure("InvalidArgument", { field }));
  }
});

test("a server stops once and for all", async () => {
  const server = await served(STORIES);
  const waiting = server.wait();
  for (const grace of [-1, NaN, Infinity, "soon"]) {
    await assert.rejects(server.stop({ grace }), failure("InvalidArgument", { field: "grace" }));
  }
  await server.stop({ grace: 1 });
  await waiting;
  await Promise.all([server.stop(), server.wait()]);
  server[Symbol.dispose]();
  await server[Symbol.asyncDispose]();
  assert.match(server.metrics, /skulk_ffn/);
});

test("a process ends beside its server, and when it waits, not before it", async () => {
  const begin = 'import { serve } from "skulk-node"; const server = await serve(process.env.STORIES, { threads: 1 });';
  const left = await run(begin);
  assert.deepEqual([left.code, left.err], [0, ""]);
  const stopped = await run(`${begin}
    setTimeout(() => server.stop(), 200).unref();
    await server.wait();
    console.log("stopped");`);
  assert.deepEqual(stopped, { code: 0, signal: null, out: "stopped\n", err: "" });
});

test("placements have addresses", async () => {
  const placement = Placement.byCounts([["cpu", 3]]);
  assert.deepEqual(placement.addresses, {});
  const data = placement.toObject();
  const span = { startLayer: 0, endLayer: 3, startExpert: 0, endExpert: 8, nExperts: 8, replica: false };
  data.SkulkInstance.experts = [{ node: "shed", resolvedBackend: "skulk-cpu", ...span }];
  const server = await served(MIXTRAL);
  const shed = Placement.fromJson(JSON.stringify(data));
  const there = shed.withAddress("shed", server.address);
  assert.deepEqual(Placement.fromJson(there.toJson()).addresses, { shed: server.address });
  assert.throws(() => shed.withAddress("shed", 3), failure("InvalidArgument", { field: "address" }));
  const expected = await text(await load(MIXTRAL));
  assert.equal(await text(await load(MIXTRAL, { placement: there })), expected);
  const addresses = { shed: server.address };
  assert.equal(await text(await load(MIXTRAL, { placement: shed, addresses })), expected);
  await assert.rejects(load(MIXTRAL, { placement: shed }), failure("PlacementInvalid", { message: /shed/ }));
  await server.stop();
});
