// Do texts keep to schemas, expressions and grammars that JavaScript gives?

import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";

import { Model } from "skulk-node";
import { FIXTURES, failure } from "./helpers.mjs";

const SCHEMA = {
  type: "object",
  properties: { z: { type: "boolean" }, a: { type: "array", items: { enum: ["x", "y"] }, maxItems: 2 } },
  required: ["z", "a"],
  additionalProperties: false,
  "x-guidance": { whitespace_flexible: false },
};
const FORMS = [
  { jsonSchema: SCHEMA },
  { responseFormat: { type: "json_schema", json_schema: { name: "za", strict: true, schema: SCHEMA } } },
  { responseFormat: { type: "json", schema: SCHEMA } },
];
const CHOICES = [{}, { temperature: 1, seed: 3 }, { temperature: 1, topK: 4 }];

const chatTemplate = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
const model = await Model.load(path.join(FIXTURES, "llama"), { threads: 1, chatTemplate });

function check(text) {
  const value = JSON.parse(text);
  assert.deepEqual(Object.keys(value), ["z", "a"]);
  assert.equal(typeof value.z, "boolean");
  assert.ok(value.a.length <= 2 && value.a.every((item) => ["x", "y"].includes(item)));
}

test("JSON keeps to its schema", async () => {
  for (const form of FORMS) {
    for (const choice of CHOICES) {
      const options = { ...form, ...choice, maxTokens: 100 };
      const output = await model.generate("Once", options).output();
      check(output.text);
      assert.equal(output.finish.reason, "eos");
      for (const { value } of await model.generateBatch(["Once", "Twice"], options)) check(value.text);
      const answer = await model.chat("Once", options).answer();
      check(answer.text);
      assert.equal(answer.finish.reason, "stop");
    }
  }
});

test("expressions and grammars", async () => {
  assert.match(await model.generate("Once", { regex: "[ab]{3}c?", maxTokens: 20 }).text(), /^[ab]{3}c?$/);
  const grammar = 'start: word (" " word)~2\nword: "yes" | "no"\n';
  const words = (await model.session().generate("Once", { grammar, maxTokens: 40 }).text()).split(" ");
  assert.ok(words.length === 3 && words.every((word) => ["yes", "no"].includes(word)));
});

test("what ends early is a beginning", async () => {
  const { finish, text } = await model.generate("Once", { jsonSchema: SCHEMA, maxTokens: 2 }).output();
  assert.equal(finish.reason, "length");
  assert.ok('{"z":'.startsWith(text.slice(0, 5)));
});

test("what cannot be is refused", () => {
  for (const [options, field] of [
    [{ regex: "(" }, "regex"],
    [{ grammar: "start: nothing" }, "grammar"],
    [{ jsonSchema: { type: "tree" } }, "jsonSchema"],
    [{ jsonSchema: { maximum: Infinity } }, "jsonSchema.maximum"],
    [{ responseFormat: { type: "xml" } }, "responseFormat.type"],
    [{ regex: "a", grammar: 'start: "a"' }, "responseFormat"],
    [{ regex: "a", ignoreEos: true }, "ignoreEos"],
  ]) {
    assert.throws(() => model.generate("Once", options), failure("InvalidArgument", { field }));
    if (!options.ignoreEos) assert.throws(() => model.chat("Once", options), failure("InvalidArgument", { field }));
  }
});
