// Does the AI SDK itself generate and stream with a model of ours, by both specifications?

import assert from "node:assert/strict";
import { test } from "node:test";

import { chatMessages, plainPrompt, skulk } from "skulk-node/ai-sdk";
import { Model } from "skulk-node";
import { PROMPT, failure, saying, slowCheckpoint, stories } from "./helpers.mjs";

const model = await stories();
const TEXT = ", there was a little girl named Lily. She loved to";
const [CALL, TOKEN] = [{ name: "weather", arguments: { days: 2, city: "Oslo" } }, 2047];
const SAID = `<think>Hm.</think>I look.<tool_call>${JSON.stringify(CALL)}</tool_call>`;
const chatTemplate =
  "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n" +
  "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}" +
  "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n" +
  "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const talking = await Model.load(saying(`${SAID}END`, TOKEN), { threads: 1, chatTemplate });
/** One token says all of it, and the stop string ends it. */
const says = { skulk: { logitBias: { [TOKEN]: 1e6 }, stop: ["END"], maxTokens: 4 } };
const SCHEMA = {
  $schema: "http://json-schema.org/draft-07/schema#",
  type: "object",
  properties: { city: { type: "string", enum: ["Lima", "Oslo"] } },
  required: ["city"],
  additionalProperties: false,
};

for (const [version, sdk] of [
  ["v3", await import("ai")],
  ["v4", await import("ai-7")],
]) {
  const { Output, generateText, jsonSchema, stepCountIs, streamText, tool } = sdk;
  const ours = skulk(model, { specificationVersion: version, modelId: "stories", prompt: plainPrompt });
  const chat = skulk(talking, { specificationVersion: version });

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

  const weather = (execute) =>
    tool({ description: "Rain?", inputSchema: jsonSchema({ type: "object", properties: {} }), execute });

  test(`${version}: messages are a conversation`, async () => {
    // Without a template it is the message's text.
    const plain = skulk(model, { specificationVersion: version });
    assert.equal((await generateText({ model: plain, prompt: PROMPT, maxOutputTokens: 15 })).text, TEXT);
    const messages = [
      { role: "system", content: "Tell." },
      { role: "user", content: [{ type: "text", text: "Rain?" }] },
    ];
    const { text, usage, finishReason } = await generateText({ model: chat, allowSystemInMessages: true, messages, maxOutputTokens: 6 });
    const same = [{ role: "system", content: "Tell." }, { role: "user", content: "Rain?" }];
    assert.equal(text, await talking.chat(same, { maxTokens: 6 }).text());
    assert.equal(usage.inputTokens, talking.renderChat(same).tokens.length);
    assert.ok(["stop", "length"].includes(finishReason));
  });

  test(`${version}: tools are called, in rounds`, async () => {
    const given = [];
    const result = await generateText({
      model: chat,
      prompt: "Rain?",
      tools: { weather: weather(async (input) => (given.push(input), { rain: true })) },
      stopWhen: stepCountIs(2),
      providerOptions: says,
    });
    assert.deepEqual(given, [CALL.arguments, CALL.arguments]);
    const [first, second] = result.steps;
    assert.deepEqual([first.text, first.reasoningText, first.finishReason], ["I look.", "Hm.", "tool-calls"]);
    assert.deepEqual(first.toolCalls[0].input, CALL.arguments);
    assert.ok(second.usage.inputTokens > first.usage.inputTokens + 20);
    assert.equal(first.usage.outputTokens, 1);
    assert.deepEqual(first.warnings ?? [], []);
  });

  test(`${version}: streams tell of reasoning, texts and calls`, async () => {
    const tools = { weather: weather() };
    const result = streamText({ model: chat, prompt: "Rain?", tools, providerOptions: says });
    const types = [];
    for await (const { type } of result.fullStream) if (types.at(-1) !== type) types.push(type);
    const block = (name) => [`${name}-start`, `${name}-delta`, `${name}-end`];
    assert.deepEqual(
      types,
      ["start", "start-step", ...block("reasoning"), ...block("text"), ...block("tool-input"), "tool-call", "finish-step", "finish"],
    );
    assert.deepEqual((await result.toolCalls)[0].input, CALL.arguments);
    assert.equal(await result.finishReason, "tool-calls");
  });

  test(`${version}: objects keep to their schema`, async () => {
    const output = Output.object({ schema: jsonSchema(SCHEMA) });
    for (const one of [ours, chat]) {
      const result = await generateText({ model: one, prompt: "Where?", maxOutputTokens: 200, output, seed: 3, temperature: 1 });
      assert.deepEqual(Object.keys(result.output), ["city"]);
      assert.ok(["Lima", "Oslo"].includes(result.output.city));
      assert.deepEqual(result.warnings ?? [], []);
    }
  });

  test(`${version}: beside tools, an answer calls or keeps to its schema`, async () => {
    const [opening] = talking.tokenizer.encode("<tool_call>", { addSpecial: false });
    const answer = async (bias) => {
      const { content, finishReason, warnings } = await chat.doGenerate({
        prompt: [{ role: "user", content: [{ type: "text", text: "Where?" }] }],
        maxOutputTokens: 500,
        temperature: 1,
        seed: 3,
        responseFormat: { type: "json", schema: SCHEMA },
        tools: [{ type: "function", name: "weather", inputSchema: { type: "object" } }],
        providerOptions: { skulk: { logitBias: { [opening]: bias }, reasoningBudget: 4 } },
      });
      assert.deepEqual(warnings, []);
      return [finishReason.unified ?? finishReason, ...content.filter(({ type }) => type !== "reasoning")];
    };
    const [reason, text, ...rest] = await answer(-1e6);
    assert.deepEqual([reason, text.type, rest], ["stop", "text", []]);
    assert.ok(["Lima", "Oslo"].includes(JSON.parse(text.text).city));
    const [end, ...called] = await answer(1e6);
    assert.equal(end, "length");
    const isCall = (part) => part.type !== "text" || part.text.startsWith("<tool_call>");
    assert.ok(called.length > 0 && called.every(isCall), JSON.stringify(called));
  });

  test(`${version}: what cannot be honoured is warned of`, async () => {
    const call = {
      prompt: [
        { role: "system", content: "Tell." },
        { role: "user", content: [{ type: "text", text: PROMPT }, { type: "file", data: "", mediaType: "image/png" }] },
      ],
      maxOutputTokens: 2,
      responseFormat: { type: "json" },
      tools: [{ type: "function", name: "t", inputSchema: {} }, { type: "provider", id: "x.y", name: "y", args: {} }],
      toolChoice: { type: "required" },
      reasoning: "high",
    };
    const features = ({ warnings }) => warnings.map(({ type, feature }) => `${type} ${feature}`);
    const unsupported = (...names) => names.map((name) => `unsupported ${name}`);
    const raw = await ours.doGenerate(call);
    assert.deepEqual(features(raw), unsupported("files in prompts", "tools", "reasoning"));
    assert.equal(raw.content.length, 1);
    assert.deepEqual(
      features(await chat.doGenerate(call)),
      unsupported("files in prompts", "tool x.y", "toolChoice", "reasoning"),
    );
    const reader = (await ours.doStream({ ...call, includeRawChunks: true })).stream.getReader();
    assert.equal((await reader.read()).value.warnings.length, 3);
    await reader.cancel();
  });

  test(`${version}: a signal aborts`, async () => {
    const slow = skulk(await Model.load(slowCheckpoint(), { threads: 1 }), { specificationVersion: version, prompt: plainPrompt });
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
    const long = { model: chat, prompt: PROMPT.repeat(100), maxRetries: 0, abortSignal: AbortSignal.abort() };
    await assert.rejects(generateText(long), (error) => error.name === "AbortError");
  });

  test(`${version}: a failure is the SDK's error`, async () => {
    const bad = { model: ours, prompt: PROMPT, maxRetries: 0, providerOptions: { skulk: { maxToken: 1 } } };
    await assert.rejects(generateText(bad), (error) => error.kind === "InvalidArgument");
    const broken = await stories({ chatTemplate: "{% if %}" });
    const call = { model: skulk(broken, { specificationVersion: version }), prompt: PROMPT, maxRetries: 0 };
    await assert.rejects(generateText(call), failure("TemplateInvalid"));
  });
}

test("a schema beside calls that no token begins is warned of", async () => {
  const template = "Action:\\n```json {{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}";
  const model = await stories({ chatTemplate: template });
  const call = {
    prompt: [{ role: "user", content: [{ type: "text", text: PROMPT }] }],
    tools: [{ type: "function", name: "weather", inputSchema: { type: "object" } }],
    responseFormat: { type: "json", schema: SCHEMA },
    maxOutputTokens: 4,
  };
  const { content, warnings } = await skulk(model).doGenerate(call);
  assert.deepEqual(warnings.map(({ feature }) => feature), ["responseFormat"]);
  assert.equal(content[0].type, "text");
});

test("calls that are none go back to the SDK", async () => {
  const broken = `<tool_call>{"name": "weather", "arguments": {"city": </tool_call>`;
  const model = await Model.load(saying(`${broken}END`, TOKEN), { threads: 1, chatTemplate });
  const call = {
    prompt: [{ role: "user", content: [{ type: "text", text: "Rain?" }] }],
    tools: [{ type: "function", name: "weather", inputSchema: { type: "object" } }],
    providerOptions: says,
  };
  const { content } = await skulk(model).doGenerate(call);
  const [made] = content;
  assert.deepEqual([content.length, made.type, made.toolName], [1, "tool-call", "weather"]);
  assert.throws(() => JSON.parse(made.input), SyntaxError);
  assert.ok(made.input.includes('{"city":'));
});

test("messages are those of OpenAI's API", () => {
  const call = { toolCallId: "1", toolName: "t" };
  const result = (output) => ({ type: "tool-result", ...call, output });
  const outputs = [
    [{ type: "text", value: "4" }, "4"],
    [{ type: "json", value: { a: [1] } }, '{"a":[1]}'],
    [{ type: "error-text", value: "no" }, "no"],
    [{ type: "error-json", value: null }, "null"],
    [{ type: "execution-denied", reason: "never" }, "never"],
    [{ type: "execution-denied" }, "the user did not allow the call"],
    [{ type: "content", value: [{ type: "text", text: "a" }, { type: "file-data" }] }, "a\n[file-data]"],
  ];
  const messages = chatMessages([
    { role: "system", content: "Tell." },
    { role: "user", content: [{ type: "text", text: "One" }, { type: "file" }, { type: "text", text: "." }] },
    {
      role: "assistant",
      content: [
        { type: "reasoning", text: "Hm." },
        { type: "text", text: "Two." },
        { type: "tool-call", ...call, input: { a: 1 } },
      ],
    },
    { role: "tool", content: outputs.map(([output]) => result(output)) },
  ]);
  const made = { id: "1", type: "function", function: { name: "t", arguments: { a: 1 } } };
  assert.deepEqual(messages, [
    { role: "system", content: "Tell." },
    { role: "user", content: "One." },
    { role: "assistant", content: "Two.", reasoning_content: "Hm.", tool_calls: [made] },
    ...outputs.map(([, content]) => ({ role: "tool", tool_call_id: "1", name: "t", content })),
  ]);
});

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
});

test("what models of the SDK are made of is checked", () => {
  for (const [field, ...made] of [
    ["model", undefined],
    ["model", {}],
    ["options", model, "v3"],
    ["specificationVersion", model, { specificationVersion: "v2" }],
    ["modelId", model, { modelId: 3 }],
    ["prompt", model, { prompt: "Once" }],
  ]) {
    assert.throws(() => skulk(...made), failure("InvalidArgument", { field }));
  }
  const hint = /`specificationVersion` is the closest/;
  const misspelled = { specificationversion: "v3" };
  assert.throws(() => skulk(model, misspelled), failure("InvalidArgument", { field: "specificationversion", hint }));
  assert.equal(skulk(model, null).specificationVersion, "v4");
});
