// Do the declarations of the AI SDK's provider fit the SDK's own? Checked by `tsc`; nothing runs it.

import type { Model } from "skulk-node";
import { skulk } from "skulk-node/ai-sdk";
import { streamText } from "ai";
import { generateText } from "ai-7";

export async function sdk(model: Model): Promise<string> {
  const { textStream } = streamText({ model: skulk(model, { specificationVersion: "v3" }), prompt: "Once" });
  for await (const text of textStream) console.log(text);
  const { text } = await generateText({ model: skulk(model, { prompt: (messages) => String(messages.length) }), prompt: "x" });
  return text;
}
