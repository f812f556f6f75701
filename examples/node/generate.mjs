// How is a model loaded and its text streamed? Run it with a model's path and a prompt, or with neither.

import { fileURLToPath } from "node:url";

import { Model, SkulkError } from "skulk-node";

const STORIES = fileURLToPath(new URL("../models/stories260K", import.meta.url));
const [path = STORIES, prompt = "Once upon a time"] = process.argv.slice(2);

// Ctrl-C ends the generation, not the program.
const controller = new AbortController();
process.once("SIGINT", () => controller.abort());

try {
  const model = await Model.load(path, { stages: 2 });
  for (const [i, stage] of model.stages.entries()) {
    console.log(`stage ${i}: layers ${stage.layers.start} to ${stage.layers.end} on ${stage.engine}`);
  }
  process.stdout.write(prompt);
  for await (const event of model.generate(prompt, { maxTokens: 64, signal: controller.signal })) {
    process.stdout.write(event.text);
    if (event.finish) console.log(`\n${event.finish.timings.decodeTokensPerSecond.toFixed()} tokens a second`);
  }
  model.close();
} catch (error) {
  if (!(error instanceof SkulkError)) throw error;
  console.error(`${error.code}: ${error.text}`);
  process.exitCode = 1;
}
