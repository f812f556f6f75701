"use strict";
// What does a host ask for? Options by name, all of which somebody reads.

const { failed, invalid } = require("./errors.js");
const native = require("./native.js");
const { shown } = require("./values.js");

/** The options of these names that a host gave as `field`. Null and undefined stand for what is left out. */
function optionsOf(options, names, field = "options") {
  if (options === undefined || options === null) return {};
  if (!isPlain(options)) {
    const hint = "give options by name in a plain object, as in `{ signal }`, whose properties are its own";
    throw invalid(field, `expected an object of options, found ${shown(options)}`, hint);
  }
  const given = Object.getOwnPropertyNames(options);
  const failure = native.misnamed(given, names);
  if (failure !== null) throw failed(JSON.parse(failure));
  const pairs = given.map((name) => [name, options[name] ?? undefined]);
  return Object.fromEntries(pairs.filter(([, value]) => value !== undefined));
}

/** Whether all that a value has is its own. Other realms have an `Object.prototype` of their own. */
function isPlain(value) {
  if (typeof value !== "object" || Array.isArray(value)) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || (Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, "isPrototypeOf"));
}

module.exports = { optionsOf };
