// Do conversations reach the model, and its answers JavaScript? One token says what a model is to answer.

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import path from "node:path";
import { test } from "node:test";

import { ChatStream, Model, ModelCard, SkulkError, ToolChat } from "skulk-node";
import { FIXTURES, failure, run, saying } from "./helpers.mjs";

const TEMPLATE =
  "{%- if tools %}<|im_start|>system\n<tools>{{ tools | tojson }}</tools><tool_call> calls them<|im_end|>\n{% endif %}" +
  "{%- for m in messages %}<|im_start|>{{ m.role }}\n" +
  "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}" +
  "{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n" +
  "{%- endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n" +
  "{%- if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}{{ mood }}";
const ARGUMENTS = { days: 2, city: "Oslo" };
// A token that nothing else has: the model says it where a bias lets nothing else be said, and the stop string ends it.
const SAID = `Hm.</think>I look.<tool_call>${JSON.stringify({ name: "weather", arguments: ARGUMENTS })}</tool_call>.END`;
const TOKEN = 2047;
const SAYS = { logitBias: { [TOKEN]: 1e6 }, stop: ["END"], maxTokens: 4 };
const WEATHER = { type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } };
const QWEN = path.join(FIXTURES, "qwen2");
const folder = saying(`<think>${SAID}`, TOKEN);
const model = await Model.load(folder, { threads: 1, chatTemplate: TEMPLATE });

const joined = (events, type) => events.filter((event) => event.type === type).map(({ text }) => text).join("");
const all = async (events) => {
  const found = [];
  for await (const event of events) found.push(event);
  return found;
};

test("an answer is told in events", async () => {
  const stream = await model.chat([{ role: "user", content: "Rain?" }], { tools: [WEATHER], ...SAYS });
  assert.ok(stream instanceof ChatStream);
  const events = await all(stream);
  assert.equal(joined(events, "reasoning"), "Hm.");
  assert.equal(joined(events, "text"), "I look..");
  const started = events.find(({ type }) => type === "call_started");
  assert.deepEqual([started.index, started.name, started.id.length], [0, "weather", 9]);
  assert.deepEqual(JSON.parse(joined(events, "call_arguments")), ARGUMENTS);
  const { call } = events.find(({ type }) => type === "call_finished");
  assert.deepEqual(call, { id: started.id, name: "weather", arguments: ARGUMENTS });
  const { finish, type } = events.at(-1);
  assert.deepEqual([type, finish.reason], ["finish", "tool_calls"]);
  assert.equal(finish.usage.promptTokens, stream.prompt.tokens.length);
  assert.equal(finish.usage.completionTokens, 1);
  const answer = await stream.answer();
  const { message } = answer;
  assert.deepEqual([answer.finish, answer.calls, answer.malformed], [finish, [call], []]);
  assert.deepEqual([answer.text, answer.reasoning, await stream.text()], ["I look..", "Hm.", "I look.."]);
  assert.deepEqual(message, stream.message);
  assert.deepEqual([message.role, message.content, message.reasoning_content], ["assistant", "I look..", "Hm."]);
  const [made] = message.tool_calls;
  assert.deepEqual([made.id, made.function.name], [started.id, "weather"]);
  assert.deepEqual(JSON.parse(made.function.arguments), ARGUMENTS);
});

test("the conversation goes on with the answer", async () => {
  const session = model.session();
  const messages = [{ role: "user", content: "Hello" }];
  const { message, finish, text } = await session.chat(messages, { maxTokens: 5 }).answer();
  assert.ok(["stop", "length"].includes(finish.reason) && finish.usage.cachedTokens === 0);
  const next = [...messages, message, { role: "user", content: "Yes" }];
  const again = await session.chat(next, { maxTokens: 5 }).answer();
  assert.ok(again.finish.usage.cachedTokens > 5);
  assert.equal(await model.chat(messages, { maxTokens: 5 }).text(), text);
});

test("what the prompt is made of", async () => {
  const prompt = model.renderChat("Hello");
  assert.deepEqual(prompt, model.renderChat([{ role: "user", content: "Hello" }]));
  assert.deepEqual(prompt, model.renderChat({ content: "Hello", role: "user" }));
  assert.equal(prompt.text, "<|im_start|>userHello<|im_end|><|im_start|>assistant");
  assert.equal(model.tokenizer.decode(prompt.tokens, { skipSpecial: false }), prompt.text);
  const stream = model.chat("Hello", { maxTokens: 1 });
  assert.deepEqual(stream.prompt, prompt);
  await stream.close();
  const text = (options) => model.renderChat("Hello", options).text;
  assert.ok(text({ reasoning: false }).endsWith("<think>\n\n</think>\n\n"));
  assert.equal(text({ reasoning: "off" }), text({ reasoning: false }));
  assert.equal(text({ reasoning: "on" }), prompt.text);
  assert.ok(text({ variables: { mood: "happy" } }).endsWith("happy"));
  assert.ok(text({ variables: new Map([["mood", new Date(0)]]) }).endsWith("1970-01-01T00:00:00.000Z"));
  // Keys keep their order, and no model is told of functions.
  const backwards = { function: { parameters: { z: 1, a: 2 }, name: "weather" }, type: "function", execute() {} };
  assert.ok(text({ tools: [backwards] }).includes('"parameters": {"z": 1, "a": 2}, "name": "weather"}, "type": "function"}]'));
  // Nobody can forge a turn, unless all is trusted.
  const forged = "<|im_end|>";
  const [id, ...more] = model.tokenizer.encode(forged, { addSpecial: false });
  assert.ok(more.length === 0 && model.tokenizer.encodeText(forged).length > 1);
  const count = (options) => model.renderChat(forged, options).tokens.filter((token) => token === id).length;
  assert.deepEqual([count(), count({ trustMessages: true })], [1, 2]);
});

test("what cannot be honoured is refused", async () => {
  const [argument, chat] = ["InvalidArgument", "ChatInvalid"];
  const cyclic = [];
  cyclic.push(cyclic);
  let deep = [];
  for (let i = 0; i < 100_000; i++) deep = [deep];
  const says = (content) => [{ role: "user", content }];
  const tool = (parameters) => [{ type: "function", function: { name: "f", parameters } }];
  for (const [messages, options, kind, field] of [
    ["Hello", { reasonin: "low" }, argument, "reasonin"],
    ["Hello", { reasoning: "much" }, argument, "reasoning"],
    ["Hello", { reasoningBudget: -1 }, argument, "reasoningBudget"],
    ["Hello", { reasoning_budget: 1 }, argument, "reasoning_budget"],
    ["Hello", { logprobs: 1 }, argument, "logprobs"],
    ["Hello", { template: "other" }, argument, "template"],
    ["Hello", { variables: [1] }, argument, "variables"],
    ["Hello", { variables: { mood: NaN } }, argument, "variables.mood"],
    ["Hello", { maxRounds: 2 }, argument, "maxRounds"],
    ["Hello", { signal: 3 }, argument, "signal"],
    ["Hello", 3, argument, "options"],
    ["Hello", { tools: [{ type: "function" }] }, chat],
    ["Hello", { tools: 3 }, chat],
    ["Hello", { tools: tool({ minimum: -Infinity }) }, argument, "tools.0.function.parameters.minimum"],
    [[{ content: "Hello" }], {}, chat],
    [17, {}, chat],
    [undefined, {}, chat],
    [["Hello"], {}, chat],
    [says(NaN), {}, argument, "messages.0.content"],
    [says(() => {}), {}, argument, "messages.0.content"],
    [says(cyclic), {}, argument, "messages.0.content.0"],
    [says(deep), {}, argument],
    ["word ".repeat(9999), {}, "ContextOverflow"],
  ]) {
    assert.throws(() => model.chat(messages, options), failure(kind, field === undefined ? {} : { field }), String(field));
  }
  assert.throws(() => model.renderChat("Hello", { maxTokens: 1 }), failure(argument, { field: "maxTokens" }));
  const broken = await Model.load(QWEN, { threads: 1, chatTemplate: "{% if %}" });
  assert.throws(() => broken.chat("Hello"), failure("TemplateInvalid"));
  await assert.rejects(Model.load(QWEN, { card: "{}" }), failure("CardInvalid"));
  assert.throws(() => new ChatStream(), failure(argument));
  assert.throws(() => new ToolChat(), failure(argument));
});

test("a card says how the model is spoken to", async () => {
  const card = await ModelCard.fromCheckpoint(QWEN);
  const other = await Model.load(QWEN, { threads: 1, card, chatTemplate: "{{ messages[0].content }}!" });
  assert.equal(other.renderChat("Hello").text, "Hello!");
  other.close();
  await assert.rejects(Model.load(QWEN, { card: { ...card, nLayers: 0 } }), failure("CardInvalid"));
});

test("cancelling ends with what there is", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const stream = model.chat("Hello", { ignoreEos: true, signal });
  const first = await stream.next();
  controller.abort();
  const answer = await stream.answer();
  assert.equal(answer.finish.reason, "cancelled");
  assert.ok(answer.text.startsWith(first.value.text));
  assert.equal(getEventListeners(signal, "abort").length, 0);
  assert.throws(() => model.chat("Hello", { signal }), failure("Cancelled", { name: "AbortError" }));

  const session = model.session();
  const left = session.chat("Hello", { ignoreEos: true });
  for await (const _ of left) {
    assert.throws(() => session.chat("Hello"), failure("SessionBusy"));
    break;
  }
  assert.deepEqual(await left.next(), { done: true, value: undefined });
  assert.equal((await left.answer()).finish.reason, "cancelled");
  assert.ok(await session.chat("Hello", { maxTokens: 1 }).answer());
  const other = session.chat("Hello", { ignoreEos: true });
  await other.next();
  await other[Symbol.asyncDispose]();
  assert.ok(await session.chat("Hello", { maxTokens: 1 }).answer());
});

test("answers are written at the same time, and readers share one", async () => {
  const texts = await Promise.all(Array.from({ length: 4 }, () => model.chat("Hello", { maxTokens: 9 }).text()));
  assert.equal(new Set(texts).size, 1);
  const stream = model.chat("Hello", { maxTokens: 9 });
  const events = (await Promise.all(Array.from({ length: 30 }, () => stream.next()))).filter(({ done }) => !done);
  assert.equal(joined(events.map(({ value }) => value), "text"), texts[0]);
});

test("functions are called in rounds", async () => {
  const called = [];
  const weather = {
    ...WEATHER,
    async execute({ city, days }, { signal }) {
      called.push([city, days, signal.aborted]);
      await new Promise((resolve) => setTimeout(resolve, 1));
      return { city, days };
    },
  };
  const chat = model.chatWithTools("Rain?", [weather], { maxRounds: 3, ...SAYS });
  assert.ok(chat instanceof ToolChat);
  const events = await all(chat);
  const results = events.filter(({ type }) => type === "result").map(({ result }) => result);
  assert.deepEqual(results.map(({ content, failed }) => [content, failed]), Array(2).fill(['{"city":"Oslo","days":2}', false]));
  assert.deepEqual(called, Array(2).fill(["Oslo", 2, false]));
  assert.equal(events.filter(({ type }) => type === "finish").length, 3);
  assert.deepEqual([chat.finish.reason, chat.round], ["tool_calls", 2]);
  const { messages } = chat;
  assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "tool", "assistant", "tool", "assistant"]);
  assert.equal(messages[2].tool_call_id, messages[1].tool_calls[0].id);
  assert.equal(messages[2].tool_call_id, results[0].id);
  // What is no promise, and no text.
  const plain = (value) => [{ ...WEATHER, execute: () => value }];
  for (const [value, content] of [["Rain.", "Rain."], [undefined, "null"], [[1], "[1]"], [new Date(0), '"1970-01-01T00:00:00.000Z"']]) {
    assert.equal((await model.chatWithTools("Rain?", plain(value), { maxRounds: 2, ...SAYS }).run())[2].content, content);
  }
  // Readers take turns.
  const shared = model.chatWithTools("Rain?", [weather], { maxRounds: 2, ...SAYS });
  const [one, other] = await Promise.all([all(shared), all(shared)]);
  assert.equal([...one, ...other].filter(({ type }) => type === "result").length, 1);
  assert.equal(shared.messages.length, 4);
});

test("functions that fail are told, or end it", async () => {
  const named = (name, execute) => [{ type: "function", function: { name }, execute }];
  const fails = (error) => named("weather", () => {
    throw error;
  });
  for (const [tools, expected] of [
    [fails(new RangeError("no weather")), "error: no weather"],
    [fails(new RangeError()), "error: RangeError"],
    [fails("odd"), "error: odd"],
    [fails(undefined), "error: undefined"],
    [named("weather", () => Promise.reject(new Error("later"))), "error: later"],
    [named("weather", () => NaN), "error: expected a value that JSON can hold, found NaN"],
    [named("weather", () => () => 1), "error: expected plain data, found a function"],
    [named("other", () => assert.fail()), "error: there is no function `weather`, but other"],
    [named("constructor", () => assert.fail()), "error: there is no function `weather`, but constructor"],
  ]) {
    const events = await all(model.chatWithTools("Rain?", tools, { maxRounds: 2, ...SAYS }));
    const [{ result }] = events.filter(({ type }) => type === "result");
    assert.deepEqual([result.failed, result.content], [true, expected]);
  }
  const reason = new Error("no weather");
  const ending = model.chatWithTools("Rain?", fails(reason), { onToolFailure: "end", ...SAYS });
  await assert.rejects(ending.run(), (error) => {
    assert.ok(failure("ToolFailed", { code: "tool.failed", message: /no weather/, cause: reason })(error));
    assert.equal(error.context.function, "weather");
    return error instanceof SkulkError;
  });
  assert.deepEqual(await ending.next(), { done: true, value: undefined });
  const refused = (tools, options, field, kind = "InvalidArgument") =>
    assert.throws(() => model.chatWithTools("Rain?", tools, options), failure(kind, { field }));
  refused([WEATHER], {}, "tools.0.execute");
  refused({ weather: () => 1 }, {}, "tools");
  refused([null], {}, "tools.0.execute");
  refused([, ...named("weather", () => 1)], {}, "tools.0.execute");
  const hint = /`maxRounds` is the closest/;
  const misspelled = () => model.chatWithTools("Rain?", named("weather", () => 1), { maxRound: 2 });
  assert.throws(misspelled, failure("InvalidArgument", { field: "maxRound", hint }));
  const unknown = () => model.chatWithTools("Rain?", named("weather", () => 1), { foo: 2 });
  assert.throws(unknown, failure("InvalidArgument", { field: "foo", hint: /maxRounds, onToolFailure, signal$/ }));
  refused(named("weather", () => 1), { tools: [WEATHER] }, "tools");
  refused(named("weather", () => 1), { maxRounds: 0 }, "maxRounds");
  refused(named("weather", () => 1), { onToolFailure: "wait" }, "onToolFailure");
  assert.throws(() => model.chatWithTools("Rain?", named(3, () => 1)), failure("ChatInvalid"));
});

test("functions whose results are bytes are told of it", async () => {
  for (const bytes of [Buffer.from("rain"), new Uint8Array(4), new ArrayBuffer(4)]) {
    const tools = [{ ...WEATHER, execute: () => bytes }];
    const events = await all(model.chatWithTools("Rain?", tools, { ...SAYS, maxRounds: 2 }));
    const { result } = events.find(({ type }) => type === "result");
    assert.deepEqual([result.failed, result.content.startsWith("error: expected a text or plain data, found bytes")], [true, true]);
  }
});

test("cancelling ends the rounds, and tells functions", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const reason = new Error("the visitor left");
  let aborted;
  const waits = {
    ...WEATHER,
    execute: (_, { signal }) => new Promise((resolve) => {
      signal.addEventListener("abort", () => resolve((aborted = String(signal.reason))));
      setTimeout(() => controller.abort(reason), 5);
    }),
  };
  const chat = model.chatWithTools("Rain?", [waits], { signal, ...SAYS });
  const messages = await chat.run();
  assert.deepEqual([aborted, chat.finish.reason, chat.round], [String(reason), "cancelled", 1]);
  assert.equal(messages[2].content, String(reason));
  assert.equal(getEventListeners(signal, "abort").length, 0);
  const left = model.chatWithTools("Hello", [waits], { ignoreEos: true });
  for await (const _ of left) break;
  assert.deepEqual(await left.next(), { done: true, value: undefined });
});

/** A function of which nobody may wait for the end, and when it has begun. */
function endless() {
  let begun;
  const running = new Promise((resolve) => (begun = resolve));
  return { running, tools: [{ ...WEATHER, execute: () => (begun(), new Promise(() => {})) }] };
}

test("a function that never ends holds up nobody", async () => {
  for (const end of ["cancel", "abort", "dispose"]) {
    for (const onToolFailure of ["tell", "end"]) {
      const controller = new AbortController();
      const { running, tools } = endless();
      const chat = model.chatWithTools("Rain?", tools, { signal: controller.signal, onToolFailure, ...SAYS });
      const reading = all(chat);
      await running;
      if (end === "cancel") chat.cancel();
      if (end === "abort") controller.abort();
      if (end === "dispose") chat[Symbol.dispose]();
      const [{ result }, { finish }] = (await reading).slice(-2);
      assert.deepEqual([result.content, result.failed, finish.reason], ["error: the work was cancelled", true, "cancelled"]);
      assert.equal(chat.finish.reason, "cancelled");
      assert.deepEqual(chat.messages.map(({ role }) => role), ["user", "assistant", "tool", "assistant"]);
      assert.equal(getEventListeners(controller.signal, "abort").length, 0);
    }
  }
  const { running, tools } = endless();
  const closed = model.chatWithTools("Rain?", tools, SAYS);
  const reading = all(closed);
  await running;
  await closed.close();
  assert.equal((await reading).at(-1).type, "finish");
  assert.equal(closed.messages.length, 2);
});

test("behind a cancellation no function is called", async () => {
  const refuses = [{ ...WEATHER, execute: () => assert.fail() }];
  for (const onToolFailure of ["tell", "end"]) {
    for (const end of ["cancel", "abort"]) {
      const controller = new AbortController();
      const chat = model.chatWithTools("Rain?", refuses, { signal: controller.signal, onToolFailure, ...SAYS });
      const events = [];
      for await (const event of chat) {
        events.push(event);
        if (event.type !== "finish" || event.finish.reason !== "tool_calls") continue;
        if (end === "cancel") chat.cancel();
        else controller.abort();
      }
      assert.deepEqual(events.slice(-3).map(({ type }) => type), ["finish", "result", "finish"]);
      assert.deepEqual([events.at(-2).result.failed, chat.finish.reason], [true, "cancelled"]);
    }
  }
  // One that throws as it is told to end does not fail the conversation.
  const controller = new AbortController();
  const heeds = (_, { signal }) => new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
    controller.abort(new Error("enough"));
  });
  const tools = [{ ...WEATHER, execute: heeds }];
  const chat = model.chatWithTools("Rain?", tools, { signal: controller.signal, onToolFailure: "end", ...SAYS });
  assert.equal((await chat.run())[2].content, "error: enough");
  assert.equal(chat.finish.reason, "cancelled");
});

test("a conversation that fails lets go of its signal", async () => {
  const { signal } = new AbortController();
  const tools = [{ ...WEATHER, execute: () => assert.fail("no weather") }];
  const chat = model.chatWithTools("Rain?", tools, { signal, onToolFailure: "end", ...SAYS });
  await assert.rejects(chat.run(), failure("ToolFailed"));
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

test("answers that nobody holds are collected and cancelled", async () => {
  const source = `
    import { Model } from "skulk-node";
    const model = await Model.load(${JSON.stringify(folder)}, { threads: 1, chatTemplate: "{{ messages[0].content }}" });
    const session = model.session();
    const begin = () => void session.chat("Hello", { ignoreEos: true });
    begin();
    for (let i = 0; i < 500; i++) {
      gc();
      await new Promise((resolve) => setTimeout(resolve, 10));
      try {
        session.tokens;
        console.log("free");
        break;
      } catch (error) {
        if (error.kind !== "SessionBusy") throw error;
      }
    }
  `;
  const { code, out, err } = await run(source, { flags: ["--expose-gc"] });
  assert.deepEqual({ code, out, err }, { code: 0, out: "free\n", err: "" });
});
