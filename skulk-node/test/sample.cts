// Do the declarations say what hosts write? Checked by `tsc`, for CommonJS; nothing runs it.

import skulk = require("skulk-node");

export async function generate(): Promise<string> {
  const model: skulk.Model = await skulk.Model.load("model.gguf");
  return model.generate("Once", { maxTokens: 3 }).text();
}
