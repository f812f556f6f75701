"use strict";
// What is known about models that are not open? Cards, their libraries, and what they resolve to.

const native = require("./native.js");
const { failed } = require("./errors.js");
const names = require("./names.js");
const { optionsOf } = require("./options.js");
const { flagOf, json, pathOf, textOf } = require("./values.js");
const { begin, call } = require("./work.js");

const Profile = {
  resolve: (modelId, card, options) => {
    const given = optionsOf(options, names.ProfileOptions);
    return call("profileResolve", { modelId: textOf(modelId, "modelId"), card, options: given });
  },
  permissive: () => call("profilePermissive"),
  reasoning: (profile, request) =>
    call("profileReasoning", { ...optionsOf(request, ["effort", "enableThinking"]), profile }),
};

const ModelCard = {
  open: async (path) => begin("cardOpen", { path: pathOf(path, "path") }),
  fromToml: (text) => call("cardRead", { text: textOf(text, "text"), toml: true }),
  fromJson: (text) => call("cardRead", { text: textOf(text, "text"), toml: false }),
  fromCheckpoint: async (path) => begin("cardFromCheckpoint", { path: pathOf(path, "path") }),
  schema: () => call("cardSchema"),
  toJson: (card) => call("cardToJson", { card }),
  toToml: (card) => call("cardToToml", { card }),
  save: async (card, path) => begin("cardSave", { card, path: pathOf(path, "path") }),
  fileName: (card) => call("cardFileName", { card }),
  parameters: (card) => call("cardParameters", { card }),
  sizeByFacts: (card) => call("cardSizeByFacts", { card }),
  factFindings: (card) => call("cardFactFindings", { card }),
  profile: (card, options) => Profile.resolve(card?.modelId, card, options),
};

const isGemma4Family = (modelId, card = null) => call("isGemma4Family", { modelId: textOf(modelId, "modelId"), card });

class CardLibrary {
  #native;

  constructor(folders = [], options) {
    const { builtin = true } = optionsOf(options, ["builtin"]);
    const all = Array.isArray(folders) ? [...folders] : [folders];
    const paths = all.map((folder) => pathOf(folder, "folders"));
    this.#native = new native.Library(flagOf(builtin, "builtin"), paths);
  }

  #ask(name, args = {}) {
    return JSON.parse(this.#native.ask(name, json(args)));
  }

  get(modelId) {
    return this.#ask("get", { modelId: textOf(modelId, "modelId") });
  }

  has(modelId) {
    return this.ids.includes(modelId);
  }

  get ids() {
    return this.#ask("ids");
  }

  get size() {
    return this.ids.length;
  }

  *[Symbol.iterator]() {
    for (const id of this.ids) yield [id, this.get(id)];
  }

  get folders() {
    return this.#ask("folders");
  }

  get problems() {
    return this.#ask("problems").map((failure) => failed(failure));
  }

  file(modelId) {
    return this.#ask("file", { modelId: textOf(modelId, "modelId") });
  }

  addFolder(folder) {
    this.#ask("addFolder", { folder: pathOf(folder, "folder") });
  }

  reload() {
    this.#ask("reload");
  }

  save(folder, card) {
    return this.#ask("save", { folder: pathOf(folder, "folder"), card });
  }

  remove(modelId) {
    return this.#ask("remove", { modelId: textOf(modelId, "modelId") });
  }
}

module.exports = { CardLibrary, ModelCard, Profile, isGemma4Family };
