// What does the AI SDK hear of an answer? Its events as parts of a stream, or all of them as content.

const REASONS = { stop: "stop", eos: "stop", length: "length", tool_calls: "tool-calls" };

const usage = ({ promptTokens, cachedTokens, completionTokens, reasoningTokens }) => ({
  inputTokens: {
    total: promptTokens,
    noCache: promptTokens - cachedTokens,
    cacheRead: cachedTokens,
    cacheWrite: undefined,
  },
  outputTokens: {
    total: completionTokens,
    text: completionTokens - (reasoningTokens ?? 0),
    reasoning: reasoningTokens,
  },
});

const finished = ({ reason, usage: counts, timings }) => ({
  type: "finish",
  finishReason: { unified: REASONS[reason] ?? "other", raw: reason },
  usage: usage(counts),
  providerMetadata: { skulk: { timings } },
});

/** A generation's events in the words of an answer's. */
export async function* spoken(generation) {
  for await (const { text, finish } of generation) {
    if (text) yield { type: "text", text };
    if (finish) yield { type: "finish", finish };
  }
}

/** The parts that an answer's events are. */
export async function* partsOf(events, { includeRawChunks, abortSignal }) {
  const calls = new Map();
  let [open, blocks] = [null, 0];
  /** Ends the text or reasoning that is being told, and begins another. */
  function* begin(type) {
    if (open?.type === type) return;
    if (open) yield { type: `${open.type}-end`, id: open.id };
    open = type ? { type, id: String(blocks++) } : null;
    if (open) yield { type: `${type}-start`, id: open.id };
  }
  for await (const event of events) {
    if (includeRawChunks) yield { type: "raw", rawValue: event };
    switch (event.type) {
      case "text":
      case "reasoning":
        yield* begin(event.type);
        yield { type: `${event.type}-delta`, id: open.id, delta: event.text };
        break;
      case "call_started":
        yield* begin(null);
        calls.set(event.index, event);
        yield { type: "tool-input-start", id: event.id, toolName: event.name };
        break;
      case "call_arguments":
        yield { type: "tool-input-delta", id: calls.get(event.index).id, delta: event.text };
        break;
      case "call_finished": {
        const { id, name, arguments: input } = event.call;
        yield { type: "tool-input-end", id };
        yield { type: "tool-call", toolCallId: id, toolName: name, input: JSON.stringify(input) };
        break;
      }
      case "call_malformed": {
        const { name, raw } = event.call;
        const started = calls.get(event.index);
        if (started) yield { type: "tool-input-end", id: started.id };
        if (name) {
          // No JSON: the SDK tells the model, or has it repaired.
          yield* begin(null);
          const toolCallId = started?.id ?? `malformed-${event.index}`;
          yield { type: "tool-call", toolCallId, toolName: name, input: raw };
        } else {
          yield* begin("text");
          yield { type: "text-delta", id: open.id, delta: raw };
        }
        break;
      }
      case "finish":
        if (event.finish.reason === "cancelled") abortSignal?.throwIfAborted();
        yield* begin(null);
        yield finished(event.finish);
    }
  }
}

/** All parts at once: the content, and how it ended. */
export async function whole(parts) {
  const content = [];
  let ending;
  for await (const { type, ...part } of parts) {
    switch (type) {
      case "text-start":
      case "reasoning-start":
        content.push({ type: type.slice(0, -"-start".length), text: "" });
        break;
      case "text-delta":
      case "reasoning-delta":
        content.at(-1).text += part.delta;
        break;
      case "tool-call":
        content.push({ type, ...part });
        break;
      case "finish":
        ending = part;
    }
  }
  return { content, ...ending };
}
