// What is a model of the AI SDK made of? A model that is loaded, and options.

import { invalid } from "../lib/errors.js";
import { optionsOf } from "../lib/options.js";
import { shown, textOf } from "../lib/values.js";

const VERSIONS = ["v4", "v3"];

/** The options that it is made with, these among them; `model` must be of this class. */
export function madeOf(model, Class, given, names = []) {
  if (!(model instanceof Class)) {
    const expected = `expected what \`${Class.name}.load\` gives, found ${shown(model)}`;
    throw invalid("model", expected, "load a model first");
  }
  const made = optionsOf(given, ["modelId", "specificationVersion", ...names]);
  const { modelId, specificationVersion = VERSIONS[0], prompt } = made;
  if (modelId !== undefined) textOf(modelId, "modelId");
  if (!VERSIONS.includes(specificationVersion)) {
    const found = shown(specificationVersion);
    throw invalid("specificationVersion", `expected ${VERSIONS.join(" or ")}, found ${found}`, "v4 is for `ai` 7, v3 for `ai` 6");
  }
  if (prompt !== undefined && typeof prompt !== "function") {
    throw invalid("prompt", `expected a function, found ${shown(prompt)}`);
  }
  return { ...made, specificationVersion };
}
