"use strict";
// How is it planned where a model runs? `plan`, `Placement`, `PlanReport`, and clusters to plan on.

const native = require("./native.js");
const { KEY, invalid, own } = require("./errors.js");
const names = require("./names.js");
const { optionsOf } = require("./options.js");
const { countOf, json, pathOf, shown, textOf } = require("./values.js");
const { begin, call, work } = require("./work.js");

class PlanReport {
  #text;

  constructor(key, text) {
    own(key, "report");
    this.#text = text;
  }

  /** The report that plain data is, or its text. */
  static of(data) {
    return new PlanReport(KEY, typeof data === "string" ? data : json(data));
  }

  static fromJson(text) {
    const report = new PlanReport(KEY, textOf(text, "report"));
    report.#form("json");
    return report;
  }

  /** What the library makes of it. */
  #form(form) {
    return call("report", { text: this.#text, form });
  }

  toJson() {
    return this.#form("json");
  }

  toObject() {
    return JSON.parse(this.toJson());
  }

  toMarkdown() {
    return this.#form("markdown");
  }

  toHtml() {
    return this.#form("html");
  }

  toSvg() {
    return this.#form("svg");
  }

  toString() {
    return this.#form("text");
  }

  toJSON() {
    return this.toObject();
  }
}

/** What is behind a placement, or behind pairs of engines and layers. */
let placementOf;

class Placement {
  #native;

  constructor(key, placement) {
    own(key, "placement");
    this.#native = placement;
  }

  static fromJson(text) {
    return new Placement(KEY, native.placementFromJson(textOf(text, "text")));
  }

  static byCounts(counts) {
    if (!Array.isArray(counts)) {
      throw invalid("placement", `expected pairs of an engine and a number of layers, found ${shown(counts)}`);
    }
    return new Placement(KEY, native.placementByCounts(json({ placement: counts })));
  }

  static async build(model, options) {
    const isPath = typeof model === "string" || model instanceof URL;
    const what = isPath ? { path: pathOf(model, "model") } : { inventory: model };
    const given = optionsOf(options, names.PlacementOptions);
    return Placement.fromJson(await begin("placementBuild", { ...what, options: given }));
  }

  static {
    placementOf = (placement) => (placement instanceof Placement ? placement : Placement.byCounts(placement)).#native;
  }

  get #facts() {
    return JSON.parse(this.#native.facts());
  }

  withAddress(node, address) {
    return new Placement(KEY, this.#native.withAddress(textOf(node, "node"), textOf(address, "address")));
  }

  get nLayers() {
    return this.#facts.nLayers;
  }

  get stages() {
    return this.#facts.stages;
  }

  get experts() {
    return this.#facts.experts;
  }

  get addresses() {
    return this.#facts.addresses;
  }

  get budgets() {
    return this.#facts.budgets;
  }

  get ffnBudget() {
    return this.#facts.ffnBudget;
  }

  get contextTokens() {
    return this.#facts.contextTokens;
  }

  get sessions() {
    return this.#facts.sessions;
  }

  get drafter() {
    return this.#facts.drafter;
  }

  get contextLimit() {
    return this.#facts.contextLimit;
  }

  get kv() {
    return this.#facts.kv;
  }

  get kvValues() {
    return this.#facts.kvValues;
  }

  get card() {
    const text = this.#native.card();
    return text === null ? null : JSON.parse(text);
  }

  get report() {
    const text = this.#native.report();
    return text === null ? null : PlanReport.of(text);
  }

  get instanceId() {
    return this.#facts.instanceId;
  }

  toJson() {
    return this.#native.toJson();
  }

  toObject() {
    return JSON.parse(this.toJson());
  }

  shardMetadata(rank) {
    const shard = this.#native.shardMetadata(countOf(rank, "rank"));
    if (shard === null) throw invalid("rank", `expected a rank below ${this.stages.length}, found ${rank}`);
    return JSON.parse(shard);
  }

  check(card) {
    this.#native.check(json({ card }));
  }

  checkOn(card, cluster, options) {
    const { contextTokens = 8192 } = optionsOf(options, ["contextTokens"]);
    if (cluster === undefined || cluster === null) {
      throw invalid("cluster", `expected a cluster, found ${cluster}`, "give one, or call `check`, which needs none");
    }
    this.#native.check(json({ card, cluster, contextTokens }));
  }

  toString() {
    return this.#facts.text;
  }

  toJSON() {
    return this.toObject();
  }
}

/** What is asked of a model, which is a card or the path of a checkpoint, on a cluster. */
function asked(card, cluster, options) {
  const isPath = typeof card === "string" || card instanceof URL;
  const what = isPath ? { checkpoint: pathOf(card, "card") } : { card };
  return json({ ...what, cluster, options });
}

async function plan(card, cluster, options) {
  const { fixed, ...rest } = optionsOf(options, names.PlanOptions);
  const rules = fixed && optionsOf(fixed, names.PlacementOptions, "fixed");
  const text = asked(card, cluster, { ...rest, fixed: rules });
  return new Placement(KEY, await work((token, tell) => native.plan(text, token, tell)));
}

async function price(card, placement, cluster, options) {
  const text = asked(card, cluster, optionsOf(options, names.PriceOptions));
  const on = placementOf(placement);
  return JSON.parse(await work((token, tell) => native.price(text, on, token, tell)));
}

const Node = {
  local: () => begin("nodeLocal"),
  measureDisk: async (path) => begin("nodeMeasureDisk", { path: pathOf(path, "path") }),
  measureLink: async (address, options) => {
    const { signal, ...rest } = optionsOf(options, [...names.LinkOptions, "signal"]);
    return begin("nodeMeasureLink", { address: textOf(address, "address"), options: rest }, { signal });
  },
};

const Cluster = {
  local: () => begin("clusterLocal"),
  mesh: (nodes, speed = {}) => call("cluster", { cluster: { nodes, mesh: speed } }),
  fromJson: (text) => call("clusterFromJson", { text: textOf(text, "cluster") }),
  toJson: (cluster) => call("clusterToJson", { cluster }),
};

const EXPERTS = ["attention", "shared", "nExperts", "nUsed", "expert", "kvPerToken"];

const Inventory = {
  fromCheckpoint: async (path) => begin("inventoryFromCheckpoint", { path: pathOf(path, "path") }),
  fromDraftModel: async (model, path) =>
    begin("inventoryFromDraftModel", { model: pathOf(model, "model"), path: pathOf(path, "path") }),
  fromCard: (card) => call("inventoryFromCard", { card }),
  ofExperts: (nLayers, options) =>
    call("inventoryOfExperts", { shared: 0, kvPerToken: 0, ...optionsOf(options, EXPERTS), nLayers }),
};

module.exports = { Cluster, Inventory, Node, Placement, PlanReport, placementOf, plan, price };
