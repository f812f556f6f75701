// What does a call of the AI SDK ask for? Messages, tools and options as `Model.chat` takes them, and warnings.

/** Parts of messages that the models here do not read, or that others made. */
const UNREAD = {
  file: "files in prompts",
  "reasoning-file": "files in prompts",
  "tool-approval-response": "approvals of tools",
};

/** The texts of all messages, with an empty line between them. */
export function plainPrompt(messages) {
  const texts = (content) => {
    if (typeof content === "string") return [content];
    return content.filter((part) => part.type === "text").map((part) => part.text);
  };
  return messages.flatMap(({ content }) => texts(content)).join("\n\n");
}

/** Messages as OpenAI's chat API has them. */
export function chatMessages(prompt) {
  return prompt.flatMap(({ role, content }) => {
    if (role === "system") return [{ role, content }];
    if (role === "tool") return content.filter((part) => part.type === "tool-result").map(resultOf);
    const of = (type) => content.filter((part) => part.type === type);
    const message = { role, content: of("text").map((part) => part.text).join("") };
    if (role !== "assistant") return [message];
    const reasoning = of("reasoning").map((part) => part.text).join("");
    if (reasoning) message.reasoning_content = reasoning;
    const calls = of("tool-call").map(callOf);
    if (calls.length) message.tool_calls = calls;
    // A tool that the provider ran has its result beside its call.
    return [message, ...of("tool-result").map(resultOf)];
  });
}

const callOf = ({ toolCallId, toolName, input }) => ({
  id: toolCallId,
  type: "function",
  // What was no object was no call that could be made.
  function: { name: toolName, arguments: typeof input === "object" && input !== null ? input : {} },
});

const resultOf = ({ toolCallId, toolName, output }) => ({
  role: "tool",
  tool_call_id: toolCallId,
  name: toolName,
  content: resultText(output),
});

function resultText({ type, value, reason }) {
  switch (type) {
    case "text":
    case "error-text":
      return value;
    case "execution-denied":
      return reason ?? "the user did not allow the call";
    case "content":
      return value.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("\n");
    default:
      return JSON.stringify(value) ?? "null";
  }
}

/** Tools as the model is told of them. */
function chatTools(tools, choice) {
  const asked = (tools ?? []).filter(({ type, name }) => {
    if (type !== "function" || choice?.type === "none") return false;
    return choice?.type !== "tool" || name === choice.toolName;
  });
  return asked.map(({ name, description, inputSchema }) => ({
    type: "function",
    function: { name, description, parameters: inputSchema },
  }));
}

/** Collects what cannot be honoured, each once. */
class Warnings {
  #features = new Map();

  add(feature, details) {
    this.#features.set(feature, details);
  }

  list() {
    return [...this.#features].map(([feature, details]) => ({ type: "unsupported", feature, details }));
  }
}

/** What is left out of a prompt, for whoever reads `read` of its parts. */
function warnOfParts(warnings, prompt, read) {
  for (const { content } of prompt) {
    for (const { type, output } of Array.isArray(content) ? content : []) {
      const unread = !read.includes(type) || output?.value?.some?.((part) => output.type === "content" && part.type !== "text");
      if (unread) warnings.add(UNREAD[type] ?? `${type} parts in prompts`, "left out");
    }
  }
}

/** The options of a generation that the SDK has words for. */
function generateOptions(call) {
  const { maxOutputTokens, temperature, topP, topK, presencePenalty, frequencyPenalty, seed, stopSequences } = call;
  return {
    maxTokens: maxOutputTokens,
    temperature,
    topP,
    topK,
    presencePenalty,
    frequencyPenalty,
    seed,
    stop: stopSequences,
    responseFormat: call.responseFormat,
    signal: call.abortSignal,
    ...call.providerOptions?.skulk,
  };
}

/** A call for a prompt that somebody else makes a text of. */
export function asText(call) {
  const warnings = new Warnings();
  warnOfParts(warnings, call.prompt, ["text"]);
  if (call.tools?.length) warnings.add("tools", "prompts made by the option `prompt` tell of none");
  if (isAsked(call.reasoning)) warnings.add("reasoning", "it is as the prompt asks for it");
  return { options: generateOptions(call), warnings };
}

/** A call for a conversation. */
export function asChat(call) {
  const warnings = new Warnings();
  const options = generateOptions(call);
  warnOfParts(warnings, call.prompt, ["text", "reasoning", "tool-call", "tool-result"]);
  const { tools: given = [], toolChoice: choice } = call;
  for (const { type, id } of given) if (type !== "function") warnings.add(`tool ${id}`, "no such tool is known");
  if (["required", "tool"].includes(choice?.type)) warnings.add("toolChoice", "the model is free not to call");
  const tools = chatTools(given, choice);
  if (tools.length) options.tools ??= tools;
  if (isAsked(call.reasoning)) options.reasoning ??= call.reasoning === "none" ? false : call.reasoning;
  return { messages: chatMessages(call.prompt), options, warnings };
}

const isAsked = (reasoning) => Boolean(reasoning) && reasoning !== "provider-default";
