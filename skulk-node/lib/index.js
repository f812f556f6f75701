"use strict";
// What does the package offer? Everything public, for CommonJS; `index.mjs` has it for ESM.

const native = require("./native.js");
const { SkulkError } = require("./errors.js");
const { CardLibrary, ModelCard, Profile, isGemma4Family } = require("./cards.js");
const { ChatStream, ToolChat } = require("./chat.js");
const { EmbeddingModel } = require("./embed.js");
const { Generation } = require("./generation.js");
const { Model, Session, Tokenizer } = require("./model.js");
const planning = require("./planning.js");
const { Cluster, Inventory, Node, Placement, PlanReport, plan, price } = require("./plans.js");
const { Server, serve } = require("./server.js");
const { VindexReader, extract, verifyVindex } = require("./vindex.js");
const { begin, call } = require("./work.js");

module.exports = {
  CardLibrary,
  ChatStream,
  Cluster,
  EmbeddingModel,
  Generation,
  Inventory,
  Model,
  ModelCard,
  Node,
  Placement,
  PlanReport,
  Profile,
  Server,
  Session,
  SkulkError,
  Tokenizer,
  ToolChat,
  VindexReader,
  devices: () => begin("devices"),
  errorKinds: () => call("errorKinds"),
  extract,
  isGemma4Family,
  plan,
  planning,
  price,
  serve,
  verifyVindex,
  version: native.version(),
};
