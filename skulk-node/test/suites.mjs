// Which cases are there? Those of tests/suites, and of the folder that SKULK_EXTRA_SUITES names.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { ModelCard } from "skulk-node";
import { REPOSITORY } from "./helpers.mjs";

const FOLDERS = [path.join(REPOSITORY, "tests", "suites")];
if (process.env.SKULK_EXTRA_SUITES) FOLDERS.push(process.env.SKULK_EXTRA_SUITES);

/** The suites of this name: the repository's own must be there. Numbers of many digits are text, as in `"18…n"`. */
export function suites(name) {
  return FOLDERS.map((folder) => path.join(folder, `${name}.json`))
    .filter((file, i) => i === 0 || existsSync(file))
    .map((file) => readFileSync(file, "utf8"))
    .map((text) => JSON.parse(text.replace(/: (\d{17,})([,}])/g, ': "$1n"$2')));
}

/** Runs all cases, and says of each that fails which it is. */
export function cases(what, found, check) {
  test(what, async (t) => {
    assert.ok(found.length > 0, `${what}: there are no cases`);
    for (const [i, one] of found.entries()) {
      const name = one.name ?? one.file ?? one.modelId ?? one.tag ?? "";
      await t.test(`${i} ${name}`, () => check(one));
    }
  });
}

/** One test for each case of the suites of this name. */
export const each = (name, what, check) => cases(what, suites(name).flatMap((suite) => suite.cases), check);

/** Sections of planner_units.json that a test handles. */
export const SECTIONS = new Set();

/** One test for each vector of a section of planner_units.json; of a part of it as in `gguf.rank`. */
export function unit(section, check) {
  SECTIONS.add(section);
  const vectors = (suite) => section.split(".").reduce((vectors, step) => vectors?.[step], suite.units) ?? [];
  cases(section, suites("planner_units").flatMap(vectors), check);
}

/** The card that a case gives as data. */
export const cardOf = (data) => ModelCard.fromJson(JSON.stringify(data));

/** A name as TOML spells it. */
export const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** A value with its keys as JSON spells them. */
export function camelKeys(value) {
  if (Array.isArray(value)) return value.map(camelKeys);
  if (typeof value !== "object" || value === null) return value;
  const camel = (key) => key.replace(/_([a-z0-9]?)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [camel(key), camelKeys(item)]));
}
