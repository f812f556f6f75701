"use strict";
// What may hosts pass? Paths, texts, tokens and plain data, checked and written for the native module.

const { fileURLToPath } = require("node:url");
const { invalid } = require("./errors.js");

const shown = (value) => {
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === "function") return "a function";
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "an array" : "an object";
  return typeof value === "bigint" ? `${value}n` : String(value);
};

/** Options whose numbers may be infinite, which JSON cannot say: the library knows what texts of these mean. */
const INFINITE = /^(logitBias|minScore)(\.|$)/;

/** A number that JSON cannot say. */
function odd(value, field) {
  if (INFINITE.test(field)) return `"${value}"`;
  throw invalid(field, `expected a value that JSON can hold, found ${value}`, "check how it was computed");
}

/** A value as JSON. */
const json = (value, field = "") => written(value, field, []);

function written(value, field, within) {
  const at = (name) => (field && field !== "options" ? `${field}.${name}` : String(name));
  switch (typeof value) {
    case "undefined":
      return "null";
    case "boolean":
    case "bigint":
      return String(value);
    case "number":
      return Number.isFinite(value) ? String(value) : odd(value, field);
    case "string":
      return JSON.stringify(value.toWellFormed());
    case "object":
      break;
    default:
      throw invalid(field, `expected plain data, found ${typeof value === "symbol" ? "a symbol" : "a function"}`);
  }
  if (value === null) return "null";
  if (within.includes(value)) throw invalid(field, "expected plain data, found an object within itself");
  if (within.length > 64) throw invalid(field, "expected plain data, found more than 64 objects within each other");
  const inner = [...within, value];
  const list = listed(value, field);
  if (list) return `[${list.map((item, i) => written(item, at(i), inner)).join()}]`;
  // As dates have, and buffers, which are lists.
  if (typeof value.toJSON === "function") return written(value.toJSON(), field, inner);
  const entries = value instanceof Map ? [...value] : Object.entries(value);
  const members = entries
    .filter(([, item]) => item !== undefined)
    .map(([name, item]) => `${JSON.stringify(String(name).toWellFormed())}:${written(item, at(name), inner)}`);
  return `{${members.join()}}`;
}

/** The items of an array, of whose holes too, a set or a typed array, which must have its memory still; of nothing else. */
function listed(value, field) {
  if (Array.isArray(value) || value instanceof Set) return [...value];
  if (!ArrayBuffer.isView(value) || value instanceof DataView) return null;
  try {
    new Uint8Array(value.buffer);
  } catch {
    throw invalid(field, "expected an array of numbers, found one whose buffer is detached", "pass it before, or a copy");
  }
  return Array.from(value);
}

/** The path that a text or a `file:` URL is. */
function pathOf(value, field) {
  if (typeof value === "string") return value;
  const found = value instanceof URL ? value.href : shown(value);
  const refused = (options) =>
    invalid(field, `expected a path as text or as a file: URL of this machine, found ${found}`, undefined, options);
  if (!(value instanceof URL && value.protocol === "file:")) throw refused();
  try {
    return fileURLToPath(value);
  } catch (cause) {
    throw refused({ cause });
  }
}

function textOf(value, field) {
  if (typeof value === "string") return value;
  throw invalid(field, `expected a text, found ${shown(value)}`);
}

function flagOf(value, field) {
  if (typeof value === "boolean") return value;
  throw invalid(field, `expected true or false, found ${shown(value)}`);
}

/** Unsigned 32-bit numbers. */
function countOf(value, field) {
  if (Number.isInteger(value) && value >= 0 && value <= 0xffffffff) return value;
  throw invalid(field, `expected a whole number from 0 to 4294967295, found ${shown(value)}`);
}

/** Token ids. */
function idsOf(value, field) {
  const ids = typeof value === "object" && value !== null ? listed(value, field) : null;
  if (!ids) throw invalid(field, `expected an array of token ids, found ${shown(value)}`);
  return ids.map((id) => countOf(id, field));
}

/** A text, or token ids that are used as given. */
function promptOf(value, field) {
  if (typeof value === "string") return value;
  if (typeof value !== "object" || value === null) {
    throw invalid(field, `expected a text or an array of token ids, found ${shown(value)}`);
  }
  if (value instanceof Uint8Array) {
    throw invalid(field, "expected a text or an array of token ids, found bytes", "decode them, as with `buffer.toString()`");
  }
  return idsOf(value, field);
}

/** A range as a pair of the first number and the one behind the last, or as such an object. */
const rangeOf = (value) => (Array.isArray(value) && value.length === 2 ? { start: value[0], end: value[1] } : value);

/** Several of them. */
const rangesOf = (value) => (Array.isArray(value) ? value.map(rangeOf) : value);

module.exports = {
  countOf,
  flagOf,
  idsOf,
  json,
  pathOf,
  promptOf,
  rangeOf,
  rangesOf,
  shown,
  textOf,
};
