// Do the snippets of README and guide run as they are?

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { PACKAGE, REPOSITORY, STORIES, program, temporary } from "./helpers.mjs";

for (const page of ["README.md", "skulk-node/README.md", "docs/guide/node.md", "docs/guide/sessions.md"]) {
  test(page, async () => {
    const text = readFileSync(path.join(REPOSITORY, page), "utf8");
    const snippets = [...text.matchAll(/```js\n(.*?)```/gs)].map(([, snippet]) => snippet);
    assert.ok(snippets.length > 0);
    const made = temporary();
    // Beside the tests, from where the package is found.
    const folder = mkdtempSync(path.join(PACKAGE, "test", ".snippets-"));
    try {
      const file = path.join(folder, "page.mjs");
      const source = snippets.join("\n").replaceAll('"model.gguf"', JSON.stringify(STORIES));
      writeFileSync(file, source.replace(/"(\w+\.vindex)"/g, (_, name) => JSON.stringify(path.join(made, name))));
      const { code, err, out } = await program([file], { cwd: REPOSITORY });
      assert.deepEqual({ code, err }, { code: 0, err: "" });
      assert.match(out, /a little girl/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}
