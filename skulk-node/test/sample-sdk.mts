// Do the declarations of the AI SDK's provider fit the SDK's own? Checked by `tsc`; nothing runs it.

import type { EmbeddingModel, Model } from "skulk-node";
import { skulk, skulkEmbedding } from "skulk-node/ai-sdk";
import { embed, streamText } from "ai";
import { embedMany, generateText } from "ai-7";

export async function sdk(model: Model): Promise<string> {
  const { textStream } = streamText({ model: skulk(model, { specificationVersion: "v3" }), prompt: "Once" });
  for await (const text of textStream) console.log(text);
  const { text } = await generateText({ model: skulk(model, { prompt: (messages) => String(messages.length) }), prompt: "x" });
  return text;
}

export async function embeddings(model: EmbeddingModel): Promise<number[][]> {
  const { embedding } = await embed({ model: skulkEmbedding(model, { specificationVersion: "v3" }), value: "Once" });
  const { embeddings } = await embedMany({ model: skulkEmbedding(model, { modelId: "minilm" }), values: ["Once", "Twice"] });
  return [embedding, ...embeddings];
}
