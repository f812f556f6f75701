"use strict";
// What does a host ask for? Options by name, all of which somebody reads.

const { invalid } = require("./errors.js");
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
  const unknown = given.find((name) => !names.includes(name));
  if (unknown !== undefined) throw misnamed(unknown, names);
  const pairs = given.map((name) => [name, options[name] ?? undefined]);
  return Object.fromEntries(pairs.filter(([, value]) => value !== undefined));
}

/** Whether all that a value has is its own. Other realms have an `Object.prototype` of their own. */
function isPlain(value) {
  if (typeof value !== "object" || Array.isArray(value)) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || (Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, "isPrototypeOf"));
}

/** The error for an option that there is not. */
function misnamed(name, names) {
  const closest = native.closest(name, names);
  const all = names.length > 0 ? `options are ${names.join(", ")}` : "leave it out: there are none here";
  const clipped = name.length > 60 ? `${name.slice(0, 60)}…` : name;
  const hint = closest ? `\`${closest}\` is the closest option` : all;
  return invalid(clipped, `there is no option \`${clipped}\``, hint);
}

module.exports = { optionsOf };
