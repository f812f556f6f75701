// Are plans, placements, cards and libraries in Node what they are in the library?

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import {
  CardLibrary,
  Cluster,
  Inventory,
  Model,
  ModelCard,
  Node,
  Placement,
  PlanReport,
  Profile,
  isGemma4Family,
  plan,
  planning,
  price,
} from "skulk-node";
import { FIXTURES, PROMPT, STORIES, failure, temporary } from "./helpers.mjs";

const GiB = 2 ** 30;
const library = new CardLibrary();
const card = library.get("mlx-community/Llama-3.2-1B-Instruct-4bit") ?? library.get(library.ids[0]);
const ours = { ...card, placement: { ...card.placement, compatibleBackends: ["skulk-cpu"] } };
const nodes = ["a", "b"].map((id) => ({
  id,
  backends: ["skulk-cpu"],
  memory: { ramTotal: 64 * GiB, ramAvailable: 48 * GiB },
}));

test("a model is planned on this machine and loaded so", async () => {
  const placement = await plan(STORIES, undefined, { contextTokens: 64, kv: "q8_0", kvValues: "q4_0" });
  assert.deepEqual([placement.kv, placement.kvValues], ["q8_0", "q4_0"]);
  assert.equal(placement.nLayers, 5);
  assert.equal(placement.stages[0].node, "local");
  assert.equal(placement.contextTokens, 64);
  const model = await Model.load(STORIES, { placement });
  assert.equal(model.context, 64);
  assert.ok((await model.generate(PROMPT, { maxTokens: 3 }).text()).length > 0);
  const again = Placement.fromJson(placement.toJson());
  assert.equal(again.toJson(), placement.toJson());
  assert.equal(again.instanceId, placement.instanceId);
  assert.equal(JSON.stringify(placement), placement.toJson());
  placement.check(placement.card);
  placement.checkOn(placement.card, await Cluster.local());
  assert.throws(() => placement.shardMetadata(9), failure("InvalidArgument", { field: "rank" }));
  assert.equal(typeof placement.shardMetadata(0), "object");
  assert.equal(String(placement), "layers 0..5 on cpu");
});

test("what a placement costs is known", async () => {
  const cluster = Cluster.mesh(nodes, { roundTripSeconds: 2e-4, bytesPerSecond: 1.2e9 });
  const placement = await plan(ours, cluster, { minNodes: 2 });
  const near = (found, expected) => assert.ok(Math.abs(found / expected - 1) < 1e-9, `${found} ${expected}`);
  const { estimate, prompt } = placement.report.toObject();
  const found = await price(ours, placement, cluster);
  near(found.estimate.tokensPerSecond, estimate.tokensPerSecond);
  near(found.prompt.seconds, prompt.seconds);
  assert.deepEqual(Object.keys(found.estimate).sort(), Object.keys(estimate).sort());
  assert.equal(found.prompt.tokens, 512);
  const faster = { ...cluster, nodes: nodes.map((node) => ({ ...node, bytesPerSecond: 1e12, layerSeconds: 0 })) };
  const quick = await price(ours, placement, faster, { promptTokens: 64, kv: "q8_0", kvValues: "q4_0" });
  assert.ok(quick.estimate.tokensPerSecond > estimate.tokensPerSecond && quick.prompt.tokens === 64);
  const many = await price(ours, placement, cluster, { sessions: 4, contextTokens: 64 });
  assert.ok(many.estimate.tokensPerSecond > estimate.tokensPerSecond);
  // A checkpoint's tensors are counted, and pairs are placements.
  const alone = { nodes: [{ ...nodes[0], id: "local" }] };
  const counted = await price(STORIES, [["cpu", 5]], alone);
  const own = await ModelCard.fromCheckpoint(STORIES);
  const inventory = await Inventory.fromCheckpoint(STORIES);
  assert.deepEqual(await price(own, Placement.byCounts([["cpu", 5]]), alone, { inventory }), counted);
  assert.notDeepEqual(await price(own, [["cpu", 5]], alone), counted);
  assert.equal((await price(STORIES, await plan(STORIES))).estimate.hopSeconds, 0);
});

test("what cannot be priced is refused", async () => {
  const cluster = Cluster.mesh(nodes);
  const placement = await plan(ours, cluster, { minNodes: 2 });
  await assert.rejects(price(ours, placement, { nodes: [nodes[0]] }), failure("PlacementInvalid"));
  await assert.rejects(price(ours, placement, { nodes }), failure("PlacementInvalid"));
  await assert.rejects(price(ours, [["cpu", 1]], cluster), failure("PlacementInvalid"));
  const bad = (field) => failure("InvalidArgument", { field });
  await assert.rejects(price(ours, placement, cluster, { strictness: "safe" }), bad("strictness"));
  await assert.rejects(price(ours, placement, cluster, { sessions: 0 }), bad("sessions"));
  await assert.rejects(price(ours, placement, { nodes: 3 }), bad("cluster"));
  await assert.rejects(price(ours, 3, cluster), bad("placement"));
  await assert.rejects(price(3, placement, cluster), failure("CardInvalid"));
  await assert.rejects(price("no/such", placement, cluster), failure("FileNotFound"));
});

test("a model tells its memory beside its plan, for as many sessions", async () => {
  const placement = await plan(STORIES, undefined, { contextTokens: 128, sessions: 3 });
  assert.deepEqual([placement.sessions, Placement.fromJson(placement.toJson()).sessions], [3, 3]);
  assert.equal(Placement.byCounts([["cpu", 5]]).sessions, null);
  await assert.rejects(Model.load(STORIES, { placement, sessions: 4 }), failure("InvalidArgument"));
  const model = await Model.load(STORIES, { placement });
  await model.generate(PROMPT, { maxTokens: 3 }).text();
  const { memory } = model;
  assert.deepEqual(memory.planned, placement.budgets[0].bytes);
  assert.ok(memory.weightBytes > 0 && memory.weightBytes <= memory.planned.attention + memory.planned.feedForward);
  assert.equal(memory.kvCacheBytes, model.kvMemory.reservedBytes);
  assert.ok(memory.kvCacheBytes > 0 && memory.kvCacheBytes <= memory.planned.kvCache);
  assert.deepEqual(memory.deviceBytes, {});
  assert.ok(memory.processBytes === null || memory.processBytes > 2 ** 20);
  assert.equal((await Model.load(STORIES, { placement: [["cpu", 5]] })).memory.planned, null);
  model.close();
  assert.throws(() => model.memory, failure("InvalidArgument"));
});

test("what drafts is planned and loaded", async () => {
  const [model, draftModel] = [`${FIXTURES}/llama`, `${FIXTURES}/../ahead/llama_eagle3`];
  const counted = await Inventory.fromDraftModel(model, draftModel);
  assert.ok(counted.exact && counted.sharesEmbedding && !counted.sharesHead);
  const placement = await plan(model, null, { contextTokens: 128, draftModel: counted });
  const { drafter } = placement;
  assert.ok(!drafter.mtp && drafter.bytes.kvCache > 0);
  assert.deepEqual(placement.budgets.at(-1).drafter, drafter);
  assert.deepEqual(Placement.fromJson(placement.toJson()).drafter, drafter);
  assert.match(String(placement.report), /the draft model on/);
  const { estimate } = await price(model, placement, null, { contextTokens: 128, draftModel: counted });
  assert.ok(estimate.draftSeconds > 0);
  const { memory } = await Model.load(model, { placement, draftModel, threads: 1 });
  assert.equal(memory.weightBytes, memory.planned.attention + memory.planned.feedForward);
  assert.ok(memory.draftModel);
  await assert.rejects(Model.load(model, { placement, threads: 1 }), failure("InvalidArgument", { field: "draftModel" }));
  const own = `${FIXTURES}/qwen3_5`;
  const planned = await plan(own, null, { contextTokens: 128, mtp: true });
  assert.ok(planned.drafter.mtp);
  assert.ok((await Model.load(own, { placement: planned, threads: 1 })).memory.draftModel);
  assert.equal((await plan(own, null, { contextTokens: 128 })).drafter, null);
  await assert.rejects(plan(model, null, { mtp: true }), failure("InvalidArgument", { field: "mtp" }));
});

test("the speed of a drive is measured", async () => {
  const folder = temporary();
  const file = path.join(folder, "bytes");
  writeFileSync(file, Buffer.alloc(2 ** 20));
  const measured = await Node.measureDisk(file).catch((error) => error);
  // Not every file system has a drive.
  if (measured instanceof Error) failure("FileIo", { hint: /drive/ })(measured);
  else assert.ok(measured > 0);
  await assert.rejects(Node.measureDisk(folder), failure("FileIo"));
  await assert.rejects(Node.measureDisk(path.join(folder, "missing")), failure("FileNotFound"));
  await assert.rejects(Node.measureDisk(3), failure("InvalidArgument", { field: "path" }));
});

test("what a cluster cannot say is named", async () => {
  const memory = { ramTotal: GiB, ramAvailable: GiB };
  const node = { id: "a", backends: ["skulk-cpu"], memory };
  for (const [wrong, place] of [
    [{ bytesPerSecond: "fast" }, "bytesPerSecond"],
    [{ layerSeconds: {} }, "layerSeconds"],
    [{ memory: { ...memory, ramTotal: -1 } }, "memory.ramTotal"],
    [{ memory: { ...memory, ramAvailable: 1.5 } }, "memory.ramAvailable"],
    [{ role: "boss" }, "role"],
  ]) {
    const named = { field: "cluster", at: `nodes[0].${place}` };
    await assert.rejects(plan(STORIES, { nodes: [{ ...node, ...wrong }] }), failure("InvalidArgument", named));
  }
  for (const [wrong, field] of [
    [{ bytesPerSecond: NaN }, "cluster.nodes.0.bytesPerSecond"],
    [{ layerSeconds: Infinity }, "cluster.nodes.0.layerSeconds"],
    [{ id: NaN }, "cluster.nodes.0.id"],
  ]) {
    await assert.rejects(plan(STORIES, { nodes: [{ ...node, ...wrong }] }), failure("InvalidArgument", { field }));
  }
});

test("engines by hand are engines that there are", async () => {
  assert.ok(planning.isEngine("candle-cuda:1") && !planning.isEngine("skulk-cpu"));
  for (const engine of ["skulk-cpu", "zorp", "@a"]) {
    await assert.rejects(Placement.build(STORIES, { engine }), failure("PlacementInvalid", { field: "engine" }));
  }
  assert.throws(() => Placement.byCounts([["zorp", 5]]), failure("PlacementInvalid", { field: "placement" }));
  const placement = await plan(STORIES, null, { contextTokens: 2 ** 40 });
  assert.equal(placement.contextTokens, 512);
  placement.check(await ModelCard.fromCheckpoint(STORIES));
  const sizes = { attention: 1, nExperts: 8, expert: 1 };
  assert.throws(() => Inventory.ofExperts(5000, { ...sizes, nUsed: 2 }), failure("InvalidArgument", { field: "nLayers" }));
  assert.throws(() => Inventory.ofExperts(2, { ...sizes, nUsed: 9 }), failure("InvalidArgument", { field: "nUsed" }));
});

test("what fits in no memory stays on disk", async () => {
  const model = Inventory.ofExperts(48, { attention: 2e8, nExperts: 16, nUsed: 2, expert: 5e7 });
  const own = await ModelCard.fromCheckpoint(STORIES);
  const large = { ...own, nLayers: 48, storageSize: { inBytes: 48 * 1e9 } };
  const memory = { ramTotal: 64 * GiB, ramAvailable: 24 * GiB };
  const alone = Cluster.mesh([{ id: "a", backends: ["skulk-cpu"], memory, diskBytesPerSecond: 2e9 }]);
  await assert.rejects(plan(large, alone, { inventory: model }), failure("PlanNoFit"));
  const placement = await plan(large, alone, { inventory: model, fromDisk: true });
  assert.ok(placement.ffnBudget > 0 && placement.ffnBudget < 24 * GiB);
  assert.equal(Placement.fromJson(placement.toJson()).ffnBudget, placement.ffnBudget);
  assert.ok(placement.report.toObject().nodes[0].onDisk > 0);
});

test("reports say why, in every form", async () => {
  const card = await ModelCard.fromCheckpoint(STORIES);
  const placement = await plan(card, Cluster.mesh(nodes), { minNodes: 2 });
  assert.deepEqual(new Set(placement.stages.map((stage) => stage.node)), new Set(["a", "b"]));
  assert.ok(placement.budgets.length >= 2);
  const { report } = placement;
  assert.match(String(report), /^Placed/);
  assert.match(report.toMarkdown(), /\*\*Placed/);
  assert.match(report.toHtml(), /<table/);
  assert.match(report.toSvg(), /^<svg/);
  assert.equal(report.toObject().modelId, card.modelId);
  const again = PlanReport.fromJson(report.toJson());
  assert.equal(again.toHtml(), report.toHtml());
  assert.throws(() => PlanReport.fromJson("{}"), failure("InvalidArgument"));
  assert.throws(() => PlanReport.fromJson("nonsense"), failure("InvalidArgument"));
});

test("what does not fit says why", async () => {
  const small = nodes.map((node) => ({ ...node, memory: { ramTotal: 1 << 20, ramAvailable: 1 << 20 } }));
  await assert.rejects(plan(card, { nodes: small }), (error) => {
    failure("PlanNoFit", { code: "plan.no_fit" })(error);
    assert.ok(error.detail.report instanceof PlanReport);
    assert.match(String(error.detail.report), /^Refused/);
    return true;
  });
  await assert.rejects(plan(card, { nodes: [{ id: "x" }] }), failure("PlanPending", { retry: "now" }));
});

test("options of plans are checked", async () => {
  const bad = (field) => failure("InvalidArgument", { field });
  await assert.rejects(plan(card, null, { strictnes: "safe" }), failure("InvalidArgument", { hint: /`strictness`/ }));
  await assert.rejects(plan(card, null, { strictness: "lax" }), bad("strictness"));
  await assert.rejects(plan(card, { nodes: 3 }), bad("cluster"));
  await assert.rejects(plan(card, "here"), bad("cluster"));
  await assert.rejects(plan("no/such"), failure("FileNotFound"));
  await assert.rejects(plan(3), failure("CardInvalid"));
  assert.throws(() => Placement.fromJson("{}"), (error) => error.name === "SkulkError");
  assert.throws(() => Placement.byCounts([["cpu", -1]]), bad("placement"));
  assert.throws(() => Placement.byCounts({}), bad("placement"));
});

test("placements are made by hand", async () => {
  const placement = await Placement.build(STORIES, {
    layers: ["0..3=cpu"],
    engine: "cpu",
    experts: ["0..1=cpu@shed"],
    overrideTensors: [String.raw`layers\.[34]\.mlp\.=CPU`],
  });
  assert.deepEqual(placement.stages.map((stage) => [stage.layers.start, stage.layers.end]), [[0, 3], [3, 5]]);
  assert.equal(placement.experts[0].node, "shed");
  const described = await Inventory.fromCheckpoint(STORIES);
  assert.equal((await Placement.build(described, { engine: "cpu" })).nLayers, 5);
  await assert.rejects(Placement.build(STORIES, { layers: ["0..3=cpu"] }), failure("PlacementInvalid"));
  await assert.rejects(Placement.build(STORIES, { engine: "cpu", layers: ["0..3"] }), failure("InvalidArgument"));
  await assert.rejects(Placement.build(STORIES, { engine: "cpu", overrideTensors: ["attn=CPU"] }), failure("PlacementInvalid"));
});

test("what is fixed by hand stays", async () => {
  const memory = { ramTotal: 2 ** 34, ramAvailable: 2 ** 33 };
  const both = ["desk", "shed"].map((id) => ({ id, backends: ["skulk-cpu"], memory }));
  const cluster = await Cluster.mesh(both);
  const fixed = { layers: ["0..2=cpu@shed"], experts: ["3..5=cpu@desk"], overrideTensors: [String.raw`layers\.2\.mlp\.=CPU@desk`] };
  const placement = await plan(STORIES, cluster, { contextTokens: 128, fixed });
  assert.equal(placement.stages[0].node, "shed");
  assert.equal(placement.report.toObject().fixed.length, 3);
  const nowhere = { layers: ["0..2=cpu@nowhere"] };
  await assert.rejects(plan(STORIES, cluster, { fixed: nowhere }), failure("InvalidArgument", { field: "fixed" }));
  await assert.rejects(plan(STORIES, cluster, { fixed: { lairs: [] } }), failure("InvalidArgument", { field: "lairs" }));
});

test("clusters and inventories", async () => {
  const here = await Cluster.local();
  assert.deepEqual(here.nodes[0].id, (await Node.local()).id);
  assert.deepEqual(Cluster.fromJson(Cluster.toJson(here)), here);
  const speeds = { bytesPerSecond: 5e11, operationsPerSecond: 1e13, layerSeconds: 2e-5 };
  const gpu = { vendor: "amd", name: "x", ...speeds, roundTripSeconds: 3e-5 };
  const told = Cluster.fromJson(JSON.stringify({ nodes: [{ id: "a", ...speeds, accelerators: [gpu] }] })).nodes[0];
  assert.deepEqual({ ...told, ...speeds }, told);
  assert.deepEqual({ ...told.accelerators[0], ...gpu }, told.accelerators[0]);
  assert.equal(told.accelerators[0].roundTripSeconds, 3e-5);
  for (const [field, node] of [
    ["layerSeconds", { id: "a", layerSeconds: -1 }],
    ["roundTripSeconds", { id: "a", accelerators: [{ vendor: "amd", roundTripSeconds: 1e9 }] }],
  ]) {
    await assert.rejects(plan(card, { nodes: [node] }), failure("InvalidArgument", { field }));
  }
  assert.throws(() => Cluster.fromJson('{"nodes":'), failure("InvalidArgument"));
  // What would be sound among arguments, but is no document.
  assert.throws(() => Cluster.fromJson(`${Cluster.toJson(here)},"more":1`), failure("InvalidArgument"));
  const counted = await Inventory.fromCheckpoint(STORIES);
  assert.equal(counted.exact, true);
  assert.equal(counted.layers.length, 5);
  assert.equal(Inventory.fromCard(card).layers.length, card.nLayers);
  const moe = Inventory.ofExperts(2, { attention: 1, nExperts: 8, nUsed: 2, expert: 100 });
  assert.equal(moe.layers[1].nExperts, 8);
});

test("cards are read, written and used", async () => {
  const folder = temporary();
  const text = ModelCard.toToml(card);
  assert.deepEqual(ModelCard.fromToml(text), card);
  assert.deepEqual(ModelCard.fromJson(ModelCard.toJson(card)), card);
  const file = path.join(folder, ModelCard.fileName(card));
  await ModelCard.save(card, file);
  assert.deepEqual(await ModelCard.open(file), card);
  assert.equal(readFileSync(file, "utf8"), text);
  assert.equal((await ModelCard.fromCheckpoint(STORIES)).nLayers, 5);
  assert.equal(ModelCard.schema().type, "object");
  assert.equal(ModelCard.profile(card).family, Profile.resolve(card.modelId, card).family);
  assert.throws(() => ModelCard.toToml({ modelId: "x", nLayer: 3 }), (error) => {
    failure("CardInvalid")(error);
    assert.ok(error.detail.faults.some((fault) => fault.field === "nLayer" && fault.kind === "unknown"));
    return true;
  });
  assert.throws(() => Profile.resolve("x", null, { tokenizerTool: true }), failure("InvalidArgument"));
  assert.equal(Profile.reasoning(Profile.permissive(), { effort: "low" }).effort, "low");
  assert.throws(
    () => Profile.reasoning(Profile.permissive(), { effort: "lots" }),
    failure("InvalidArgument", { field: "effort" }),
  );
  assert.equal(isGemma4Family("google/gemma-4-27b-it"), true);
  assert.equal(isGemma4Family(card.modelId, card), false);
});

test("what a card's facts add up to is known", async () => {
  const large = library.get("mlx-community/DeepSeek-V3.1-4bit");
  assert.equal(Math.floor(ModelCard.parameters(large) / 1e9), 671);
  assert.ok(Math.abs(ModelCard.sizeByFacts(large) / large.storageSize.inBytes - 1) < 0.1);
  assert.deepEqual(ModelCard.factFindings(large), []);
  const without = { ...large, facts: null };
  const said = [ModelCard.parameters(without), ModelCard.sizeByFacts(without), ModelCard.factFindings(without)];
  assert.deepEqual(said, [null, null, []]);
  const wrong = { ...large, storageSize: { inBytes: 10 * large.storageSize.inBytes } };
  const [fault] = ModelCard.factFindings(wrong);
  assert.equal(fault.field, "facts");
  assert.ok(fault.found.length > 0 && fault.allowed.length > 0);
  assert.equal(ModelCard.parameters(wrong), null);
  assert.throws(() => ModelCard.parameters({ modelId: "x" }), failure("CardInvalid"));
});

test("libraries of cards", () => {
  const [mine, more] = [temporary(), temporary()];
  const own = { ...card, modelId: "me/mine" };
  const cards = new CardLibrary([mine]);
  assert.equal(cards.size, library.size);
  const file = cards.save(mine, own);
  assert.deepEqual(cards.get("me/mine"), { ...own, isCustom: true });
  assert.equal(cards.file("me/mine"), file);
  assert.equal(cards.file(card.modelId), null);
  assert.equal(cards.get("no/such"), null);
  assert.ok(cards.has("me/mine") && !cards.has("no/such"));
  mkdirSync(path.join(more, "sub"));
  writeFileSync(path.join(more, "sub", "broken.toml"), "n_layers = 'many'");
  cards.addFolder(more);
  assert.deepEqual(cards.folders, [mine, more]);
  assert.equal(cards.problems.length, 1);
  assert.equal(cards.problems[0].kind, "CardInvalid");
  assert.equal(cards.remove("me/mine"), true);
  assert.equal(cards.remove("me/mine"), false);
  cards.reload();
  assert.equal([...cards].length, cards.size);
  assert.equal(new CardLibrary([], { builtin: false }).size, 0);
  assert.throws(() => cards.save("/elsewhere", own), failure("InvalidArgument"));
});

test("chunks come one by one, however many there are", () => {
  assert.deepEqual([...planning.prefillChunks(100, 30, { media: [[25, 40]] })], [40, 30, 29]);
  assert.equal([...planning.prefillChunks(5000, 1)].length, 4999);
  const [first, second] = planning.prefillChunks(2 ** 50, 1);
  assert.deepEqual([first, second], [1, 1]);
  assert.throws(() => [...planning.prefillChunks(-1, 1)], failure("InvalidArgument", { field: "tokens" }));
});
