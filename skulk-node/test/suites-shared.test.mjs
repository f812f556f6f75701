// Do models write, errors say and folders hold here what they do in every language? Cases as data.

import assert from "node:assert/strict";

import { error, generation, vindex } from "./observed.mjs";
import { each } from "./suites.mjs";

each("generation", "models write the same", async (one) => assert.deepEqual(await generation(one), one.expected));
each("errors", "calls are refused the same", async (one) => assert.deepEqual(await error(one), one.expected));
each("vindex", "folders hold the same", async (one) => assert.deepEqual(await vindex(one), one.expected));
