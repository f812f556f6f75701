// Can what is packed be installed with no network and no compiler, and used as it is?

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { PACKAGE, PROMPT, STORIES, program, temporary } from "./helpers.mjs";

test("packages install and run", async () => {
  const [out, project] = [temporary(), temporary()];
  const packed = execFileSync(process.execPath, ["pack.mjs", out], { cwd: PACKAGE }).toString().trim().split("\n");
  assert.equal(packed.length, 2);
  writeFileSync(path.join(project, "package.json"), '{ "name": "project", "private": true }');
  execFileSync("npm", ["install", "--offline", "--silent", "--no-audit", "--no-fund", ...packed], { cwd: project });
  const modules = path.join(project, "node_modules");
  const described = JSON.parse(readFileSync(path.join(modules, "skulk-node", "package.json"), "utf8"));
  const platforms = Object.keys(described.optionalDependencies);
  assert.equal(described.scripts, undefined);
  for (const name of ["skulk-node", platforms.find((name) => existsSync(path.join(modules, name)))]) {
    assert.ok(existsSync(path.join(modules, name, "LICENSE-MIT")) && existsSync(path.join(modules, name, "LICENSE-APACHE")));
  }
  assert.ok(!existsSync(path.join(modules, "skulk-node", "skulk-node.node")));
  writeFileSync(
    path.join(project, "use.mjs"),
    `import { createRequire } from "node:module";
    import { Model } from "skulk-node";
    import { skulk } from "skulk-node/ai-sdk";
    const { Model: same } = createRequire(import.meta.url)("skulk-node");
    const model = await Model.load(${JSON.stringify(STORIES)});
    const prompt = [{ role: "user", content: [{ type: "text", text: ${JSON.stringify(PROMPT)} }] }];
    const { content } = await skulk(model).doGenerate({ prompt, maxOutputTokens: 3 });
    console.log(same === Model, content[0].text === (await model.generate(${JSON.stringify(PROMPT)}, { maxTokens: 3 }).text()));`,
  );
  const { code, out: said, err } = await program(["use.mjs"], { cwd: project });
  assert.deepEqual({ code, err, said: said.trim() }, { code: 0, err: "", said: "true true" });
});
