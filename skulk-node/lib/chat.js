"use strict";
// How does JavaScript take part in conversations? `ChatStream`, an answer, and `ToolChat`, which calls functions.

const { KEY, SkulkError, aborted, invalid, own } = require("./errors.js");
const names = require("./names.js");
const { optionsOf } = require("./options.js");
const { Running } = require("./running.js");
const { json, shown } = require("./values.js");
const { link } = require("./work.js");

const CHAT = [...names.ChatOptions, "signal"];
const TOOLS = [...names.ChatOptions, ...names.ToolOptions, "signal"];

/** Messages and options as the native module reads them. */
function conversation(messages, options) {
  const list = typeof messages === "object" && messages !== null && !Array.isArray(messages) ? [messages] : messages;
  const given = { ...options };
  if (Array.isArray(given.tools)) given.tools = given.tools.map(told);
  return json({ messages: list, options: given });
}

/** What a model is told of a tool: all but the function that it calls. */
function told(tool) {
  if (typeof tool?.execute !== "function") return tool;
  const { execute, ...rest } = tool;
  return rest;
}

/** Tools with their functions, by name. Of one name the last one counts. */
function toolbox(tools) {
  if (!Array.isArray(tools)) throw invalid("tools", `expected an array of tools, found ${shown(tools)}`);
  const found = new Map();
  [...tools].forEach((tool, i) => {
    if (typeof tool?.execute !== "function") {
      const hint = "give each tool the function that is to be called, or call `chat`, which calls none";
      throw invalid(`tools.${i}.execute`, `expected a function, found ${shown(tool?.execute)}`, hint);
    }
    // What has no name is refused as a tool.
    found.set(tool.function?.name ?? i, tool);
  });
  return found;
}

/** Rejects once a conversation is cancelled, behind what a function that heeds its signal gives at once. */
function cutOff(signal) {
  const cut = new Promise((_, reject) => {
    signal.addEventListener("abort", () => setImmediate(reject, aborted(signal)), { once: true });
  });
  // There may be no function that it cuts off.
  cut.catch(() => {});
  return cut;
}

class ChatStream {
  #running;

  constructor(key, session, messages, options) {
    own(key, "chat stream");
    const { signal, ...rest } = optionsOf(options, CHAT);
    const text = conversation(messages, rest);
    this.#running = new Running(signal, (token, wake) => session.chat(text, token, wake));
  }

  get prompt() {
    return JSON.parse(this.#running.native.prompt());
  }

  get message() {
    return JSON.parse(this.#running.native.message());
  }

  async next() {
    const found = await this.#running.next();
    if (found === true) return { done: true, value: undefined };
    const value = JSON.parse(found);
    if (value.type === "finish") this.#running.end();
    return { done: false, value };
  }

  async return(value) {
    await this.close();
    return { done: true, value };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async answer() {
    const answer = JSON.parse(await this.#running.read("answer"));
    this.#running.end();
    return answer;
  }

  async text() {
    return (await this.answer()).text;
  }

  cancel() {
    this.#running.cancel();
  }

  async close() {
    await this.#running.close();
  }

  [Symbol.dispose]() {
    this.cancel();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}

class ToolChat {
  #running;
  #tools;
  #stop = new AbortController();
  #cut = cutOff(this.#stop.signal);
  #unlink;
  #closed = false;

  constructor(key, model, messages, tools, options) {
    own(key, "tool chat");
    const { signal, tools: among, ...rest } = optionsOf(options, TOOLS);
    if (among !== undefined) {
      throw invalid("tools", "expected tools in front of the options alone, found some among them", "leave the option out");
    }
    this.#tools = toolbox(tools);
    const text = conversation(messages, { ...rest, tools: [...this.#tools.values()] });
    this.#unlink = link(signal, this.#stop, (stop) => stop.abort(signal.reason));
    try {
      this.#running = new Running(this.#stop.signal, (token, wake) => model.chatWithTools(text, token, wake));
    } catch (error) {
      this.#unlink();
      throw error;
    }
  }

  get messages() {
    return JSON.parse(this.#running.native.messages());
  }

  get finish() {
    return JSON.parse(this.#running.native.finish());
  }

  get round() {
    return this.#running.native.round();
  }

  async next() {
    let value;
    try {
      value = await this.#running.turn(() => this.#step());
    } finally {
      if (value === undefined) this.#end();
    }
    return value === undefined ? { done: true, value } : { done: false, value };
  }

  /** The next event or result; nothing behind the last. */
  async #step() {
    if (this.#closed) return undefined;
    const found = await this.#running.read("poll");
    if (found === true) return undefined;
    const step = JSON.parse(found);
    if (step.type !== "call") return step.type === "event" ? step.event : step;
    const outcome = await this.#outcome(step.call);
    return this.#closed ? undefined : this.#give(step.call, outcome);
  }

  /** What became of a call. Once the conversation is cancelled no function is called, or waited for. */
  async #outcome({ name, arguments: args }) {
    const { signal } = this.#stop;
    try {
      if (signal.aborted) throw aborted(signal);
      const found = await Promise.race([this.#tools.get(name).execute(args, { signal }), this.#cut]);
      if (found instanceof Uint8Array || found instanceof ArrayBuffer) {
        throw invalid("result", "expected a text or plain data, found bytes", "decode them, as with `buffer.toString()`");
      }
      return { text: typeof found === "string" ? found : json(found, "result") };
    } catch (error) {
      const own = typeof error === "string" ? error : shown(error);
      return { text: String(error?.message || error?.name || own), failure: { error } };
    }
  }

  #give({ id }, { text, failure }) {
    try {
      return { type: "result", result: JSON.parse(this.#running.call("give", id, text, failure !== undefined)) };
    } catch (error) {
      throw error.kind === "ToolFailed" ? new SkulkError(error, { cause: failure?.error }) : error;
    }
  }

  async return(value) {
    await this.close();
    return { done: true, value };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async run() {
    while (!(await this.next()).done);
    return this.messages;
  }

  cancel() {
    this.#stop.abort();
    this.#end();
  }

  async close() {
    this.#closed = true;
    this.cancel();
    await this.#running.close();
  }

  #end() {
    this.#running.end();
    this.#unlink();
  }

  [Symbol.dispose]() {
    this.cancel();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}

const chatStream = (...args) => new ChatStream(KEY, ...args);
const toolChat = (...args) => new ToolChat(KEY, ...args);

module.exports = { ChatStream, ToolChat, chatStream, conversation, toolChat };
