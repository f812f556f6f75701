// Does the AI SDK itself generate and stream with a model of ours, by both specifications?

import assert from "node:assert/strict";
import { test } from "node:test";

import { plainPrompt, skulk } from "skulk-node/ai-sdk";
import { Model } from "skulk-node";
import { PROMPT, slowCheckpoint, stories } from "./helpers.mjs";

const model = await stories();
const TEXT = ", there was a little girl named Lily. She loved to";

for (const [version, sdk] of [
  ["v3", await import("ai")],
  ["v4", await import("ai-7")],
]) {
  const { generateText, streamText } = sdk;
  const ours = skulk(model, { specificationVersion: version, modelId: "stories" });

  test(`${version}: generateText`, async () => {
    const result = await generateText({ model: ours, prompt: PROMPT, maxOutputTokens: 15 });
    assert.equal(result.text, TEXT);
    assert.equal(result.finishReason, "length");
    assert.equal(result.usage.outputTokens, 15);
    assert.equal(result.usage.inputTokens, model.tokenizer.encode(PROMPT).length);
    assert.equal(result.response.modelId, "stories");
    assert.ok(result.providerMetadata.skulk.timings.decodeTokensPerSecond > 0);
    assert.deepEqual(result.warnings ?? [], []);
  });

  test(`${version}: streamText`, async () => {
    const result = streamText({ model: ours, prompt: PROMPT, maxOutputTokens: 15 });
    const deltas = [];
    for await (const delta of result.textStream) deltas.push(delta);
    assert.ok(deltas.length > 5);
    assert.equal(deltas.join(""), TEXT);
    assert.equal(await result.finishReason, "length");
    assert.equal((await result.usage).outputTokens, 15);
  });

  test(`${version}: options reach the model`, async () => {
    const drawn = async (seed) =>
      (await generateText({ model: ours, prompt: PROMPT, maxOutputTokens: 12, temperature: 1, seed })).text;
    assert.equal(await drawn(1), await drawn(1));
    assert.notEqual(await drawn(1), await drawn(2));
    const stopped = await generateText({ model: ours, prompt: PROMPT, stopSequences: ["little"] });
    assert.equal(stopped.text, ", there was a ");
    assert.equal(stopped.finishReason, "stop");
    const own = { skulk: { maxTokens: 3 } };
    const short = await generateText({ model: ours, prompt: PROMPT, providerOptions: own });
    assert.equal(short.usage.outputTokens, 3);
  });

  test(`${version}: what cannot be honoured is warned of`, async () => {
    const call = {
      prompt: [
        { role: "system", content: "Tell." },
        { role: "user", content: [{ type: "text", text: PROMPT }, { type: "file", data: "", mediaType: "image/png" }] },
      ],
      maxOutputTokens: 2,
      responseFormat: { type: "json" },
      tools: [{ type: "function", name: "t", inputSchema: {} }],
      reasoning: "high",
    };
    const { warnings, content } = await ours.doGenerate(call);
    assert.deepEqual(
      warnings.map(({ type, feature }) => `${type} ${feature}`),
      ["files in prompts", "responseFormat", "tools", "reasoning"].map((feature) => `unsupported ${feature}`),
    );
    assert.equal(content.length, 1);
    const reader = (await ours.doStream({ ...call, includeRawChunks: true })).stream.getReader();
    assert.equal((await reader.read()).value.warnings.length, 4);
    await reader.cancel();
  });

  test(`${version}: a signal aborts`, async () => {
    const slow = skulk(await Model.load(slowCheckpoint(), { threads: 1 }), { specificationVersion: version });
    const call = { model: slow, prompt: PROMPT.repeat(100), maxRetries: 0 };
    await assert.rejects(
      generateText({ ...call, abortSignal: AbortSignal.timeout(50) }),
      (error) => error.name === "AbortError" || error.name === "TimeoutError",
    );
    let aborted = 0;
    const controller = new AbortController();
    const result = streamText({ ...call, abortSignal: controller.signal, onAbort: () => aborted++ });
    setTimeout(() => controller.abort(), 50);
    const types = [];
    for await (const part of result.fullStream) types.push(part.type);
    assert.ok(types.includes("abort"), types.join());
    assert.equal(aborted, 1);
  });

  test(`${version}: a failure is the SDK's error`, async () => {
    const bad = { model: ours, prompt: PROMPT, maxRetries: 0, providerOptions: { skulk: { maxToken: 1 } } };
    await assert.rejects(generateText(bad), (error) => error.kind === "InvalidArgument");
  });
}

test("messages become text as told", async () => {
  const messages = [
    { role: "system", content: "Tell." },
    { role: "user", content: [{ type: "text", text: "One." }, { type: "file" }] },
    { role: "assistant", content: [{ type: "text", text: "Two." }] },
  ];
  assert.equal(plainPrompt(messages), "Tell.\n\nOne.\n\nTwo.");
  const prompt = (messages) => messages.map(({ role }) => role).join(" ");
  const told = skulk(model, { prompt });
  const { usage } = await told.doGenerate({ prompt: messages, maxOutputTokens: 1 });
  assert.equal(usage.inputTokens.total, model.tokenizer.encode("system user assistant").length);
  assert.throws(() => skulk(model, { specificationVersion: "v2" }), RangeError);
});
