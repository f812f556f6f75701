// How does the Vercel AI SDK stream from a model that is loaded here? `v3` is for `ai` 6; `ai` 7 takes the default.
import { streamText } from "ai";
import { Model } from "skulk-node";
import { skulk } from "skulk-node/ai-sdk";

const path = process.argv[2] ?? new URL("../models/stories260K", import.meta.url);
const model = skulk(await Model.load(path), { specificationVersion: "v3" });
const { textStream } = streamText({ model, prompt: "Once upon a time", maxOutputTokens: 64 });
for await (const text of textStream) process.stdout.write(text);
console.log();
