// Do the declarations say what hosts write? Checked by `tsc`, for ESM; nothing runs it.

import {
  CardLibrary,
  type ChatAnswer,
  type ChatMessage,
  type ChatStream,
  Cluster,
  EmbeddingModel,
  type Event,
  type GenerateOptions,
  type Generation,
  Model,
  ModelCard,
  Node,
  type Output,
  Placement,
  type Price,
  Profile,
  type Server,
  type Session,
  SkulkError,
  type ToolChat,
  VindexReader,
  devices,
  errorKinds,
  extract,
  plan,
  planning,
  price,
  serve,
  verifyVindex,
  version,
} from "skulk-node";

export async function generate(signal: AbortSignal): Promise<string> {
  await using model = await Model.load(new URL("file:///model.gguf"), {
    stages: 2,
    engine: "cpu",
    kv: "f16",
    placement: [["cpu", 3]],
    onProgress: ({ done, total }) => console.log(done / total),
    signal,
  });
  let text = "";
  for await (const event of model.generate("Once", { maxTokens: 3, seed: 7n, logitBias: { 3: -Infinity }, signal })) {
    const one: Event = event;
    text += one.text;
    const reason: "eos" | "stop" | "length" | undefined = one.finish?.reason;
    console.log(reason, one.token?.topLogprobs[0]?.logprob);
  }
  // As options are often put together, and with lists that are only read.
  const stop: readonly string[] = ["x"];
  const whatever: GenerateOptions = { maxTokens: undefined, signal: undefined, seed: null, stop, draftTexts: stop };
  model.generate("x", null);
  await Model.load("x", { ffnAt: stop, onProgress: undefined, placement: undefined });
  await plan("x", null, { requiredNodes: stop, rings: [stop], fixed: { layers: stop } });
  const ranges: readonly (readonly [number, number])[] = [[0, 2]];
  await (await VindexReader.open("x", null)).slice("y", { layers: ranges, signal: undefined });
  model.chatWithTools("x", [], { maxRounds: undefined, variables: undefined });
  model.tokenizer.encode("x", { addSpecial: undefined });
  using session = model.session();
  session.generate("x", { ...whatever, append: undefined });
  const running: Generation = session.generate([1, 2, 3], { append: false, stop: ["x"] });
  const output: Output = await running.output();
  session.truncate(session.tokens.length - 1);
  const logits: Float32Array = await model.logits(Uint32Array.of(1));
  const process: number | null = model.memory.processBytes;
  console.log(process, model.memory.planned?.kvCache, model.memory.deviceBytes["wgpu"]);
  const { meanKl } = await model.divergence(model, "x", { signal });
  console.log(output.finish.usage.promptTokens, logits[0], meanKl, model.tokenizer.encode("x", { addSpecial: false }));
  // @ts-expect-error There is no such option.
  model.generate("x", { maxToken: 3 });
  // @ts-expect-error A model's own session holds nothing that could be continued.
  model.generate("x", { append: true });
  // @ts-expect-error It is a number.
  await Model.load("x", { stages: "two" });
  // @ts-expect-error Models are loaded.
  new Model();
  return text;
}

export async function serving(signal: AbortSignal): Promise<string> {
  await using server: Server = await serve("model.vindex", { layers: [0, 3], experts: { start: 0, end: 4 }, key: "k", signal });
  const model = await Model.load("model", { ffnAt: [server.address], peerKey: "k", peerWire: "f16", addresses: { a: "b" } });
  const session: Session = await model.session().recover([["cpu", 5]]);
  const other = await session.recoverIn(await model.replan((await plan("model")).withAddress("a", "b")));
  const rest: Generation = other.resume({ signal });
  await server.stop({ grace: 10 });
  await server.wait();
  // @ts-expect-error It has a first and a last.
  await serve("model", { layers: 3 });
  // @ts-expect-error Loading is not followed.
  await serve("model", { onProgress: () => 0 });
  return (await rest.text()) + server.metrics;
}

export async function embed(texts: Set<string>, signal: AbortSignal): Promise<Float32Array[]> {
  await using model = await EmbeddingModel.load(new URL("file:///minilm"), { threads: 2 });
  const one: Float32Array = await model.embed("Once", { truncate: false, signal });
  console.log(one.length === model.dimensions, model.maxTokens, model.poolings[0] === "mean", model.tokenizer.vocabSize);
  // @ts-expect-error There is no such option.
  await model.embed("x", { truncat: true });
  // @ts-expect-error Loading one is not followed.
  await EmbeddingModel.load("x", { signal });
  return model.embed(texts);
}

interface OpenAiMessage {
  role: "user";
  content: string;
}

export async function chat(model: Model, said: OpenAiMessage[], signal: AbortSignal): Promise<ChatMessage[]> {
  const tool = { type: "function", function: { name: "weather", parameters: { type: "object" } } } as const;
  const stream: ChatStream = model.chat(said, { tools: [tool], reasoning: "low", reasoningBudget: 9, seed: 7n, signal });
  for await (const event of stream) {
    if (event.type === "text" || event.type === "reasoning") console.log(event.text);
    if (event.type === "call_finished") console.log(event.call.name, event.call.arguments.city);
    if (event.type === "finish" && event.finish.reason === "tool_calls") console.log(event.finish.usage.reasoningTokens);
  }
  const answer: ChatAnswer = await model.session().chat([...said, stream.message], { reasoning: false }).answer();
  const ids: number[] = model.renderChat([...said, answer.message], { variables: { mood: "happy" } }).tokens;
  const execute = async ({ city }: { city: string }, { signal }: { signal: AbortSignal }) => ({ city, at: signal.aborted });
  const rounds: ToolChat = model.chatWithTools("Rain?", [{ ...tool, execute }], { maxRounds: 3, onToolFailure: "end" });
  for await (const event of rounds) if (event.type === "result") console.log(event.result.failed, ids);
  // @ts-expect-error Efforts have names.
  model.chat("Hello", { reasoning: "much" });
  // @ts-expect-error Nothing could be called.
  model.chatWithTools("Hello", [tool]);
  // @ts-expect-error Its log-probabilities are those of a generation.
  model.chat("Hello", { logprobs: 1 });
  return rounds.run();
}

export function explain(error: unknown): string {
  if (!(error instanceof SkulkError)) throw error;
  if (error.kind === "PlanNoFit" && error.detail && "report" in error.detail) return error.detail.report.toMarkdown();
  if (error.detail && "faults" in error.detail) return error.detail.faults.map((fault) => fault.field).join();
  return `${error.code} ${error.hint ?? ""} ${error.context["field"] ?? ""} ${error.retry}`;
}

export async function plans(card: ModelCard): Promise<Placement> {
  const library = new CardLibrary(["cards"], { builtin: true });
  const known: ModelCard | null = library.get("org/name");
  const profile: Profile = ModelCard.profile(known ?? card, { hasTools: true });
  const cluster: Cluster = { nodes: [{ id: "a", memory: { ramTotal: 1, ramAvailable: 1 } }], mesh: {} };
  const placement = await plan({ ...card, family: profile.family }, cluster, { strictness: "relaxed", minNodes: 2 });
  const engines: (string | null)[] = placement.stages.map((stage) => stage.engine);
  const svg: string | undefined = placement.report?.toSvg();
  for (const [kind, code] of errorKinds()) console.log(kind, code, version, engines, svg);
  const cost: Price = await price(card, placement, cluster, { sessions: 2, kv: "q8_0" });
  const sessions: number | null = placement.sessions;
  console.log(cost.estimate.tokensPerSecond, cost.prompt.seconds, sessions, ModelCard.factFindings(card)[0]?.field);
  const node: Node = { ...(await Node.local()), diskBytesPerSecond: await Node.measureDisk("model.gguf"), layerSeconds: 1e-5 };
  console.log(node.accelerators?.[0]?.roundTripSeconds, ModelCard.parameters(card), ModelCard.sizeByFacts(card));
  // @ts-expect-error What is there is not chosen.
  await price(card, placement, cluster, { replicas: 1 });
  for (const chunk of planning.prefillChunks(100, 30, { media: [[1, 2]] })) console.log(chunk + planning.OVERHEAD);
  for (const device of await devices()) console.log(device.engine, device.memoryBytes);
  return Placement.fromJson(placement.toJson());
}

export async function folders(signal: AbortSignal): Promise<void> {
  const report = await extract("model.gguf", "model.vindex", { storage: "q4k", onProgress: (step) => step.bytesDone });
  using reader = await VindexReader.open(report.path);
  const row: Float32Array = await reader.embed(7);
  const [hit] = await reader.nearest(row, { k: 3, layers: [1], signal });
  const bytes: Buffer = await reader.bytes("norms");
  await reader.slice("client.vindex", { preset: "client", layers: [[0, 3]] });
  const { problems } = await verifyVindex("client.vindex", { hashes: false });
  console.log(hit?.score, bytes.length, problems[0]?.kind, reader.bands.syntax.end);
}
