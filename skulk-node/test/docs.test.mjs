// Do the snippets of README and guide run as they are?

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { MINILM, PACKAGE, REPOSITORY, STORIES, TINY_BERT, program, temporary } from "./helpers.mjs";

const SAID = {
  "README.md": /a little girl/,
  "skulk-node/README.md": /a little girl/,
  "docs/guide/node.md": /a little girl/,
  "docs/guide/sessions.md": /a little girl/,
  "docs/guide/embeddings.md": /3 vectors/,
};

for (const [page, said] of Object.entries(SAID)) {
  test(page, async () => {
    const text = readFileSync(path.join(REPOSITORY, page), "utf8");
    const snippets = [...text.matchAll(/```js\n(.*?)```/gs)].map(([, snippet]) => snippet);
    assert.ok(snippets.length > 0);
    const made = temporary();
    // Beside the tests, from where the package is found.
    const folder = mkdtempSync(path.join(PACKAGE, "test", ".snippets-"));
    try {
      const file = path.join(folder, "page.mjs");
      const models = { "model.gguf": STORIES, "all-MiniLM-L6-v2": existsSync(MINILM) ? MINILM : TINY_BERT };
      const source = Object.entries(models).reduce(
        (text, [name, there]) => text.replaceAll(JSON.stringify(name), JSON.stringify(there)),
        snippets.join("\n"),
      );
      writeFileSync(file, source.replace(/"(\w+\.vindex)"/g, (_, name) => JSON.stringify(path.join(made, name))));
      const { code, err, out } = await program([file], { cwd: REPOSITORY });
      assert.deepEqual({ code, err }, { code: 0, err: "" });
      assert.match(out, said);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}
