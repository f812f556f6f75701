// What does the package make of a case that all languages share? The same data, in camelCase, in each of them.

import path from "node:path";

import { Model, ModelCard, VindexReader, plan } from "skulk-node";
import { REPOSITORY } from "./helpers.mjs";

const load = (file, options) => Model.load(path.join(REPOSITORY, file), { threads: 1, ...options });

/** Numbers that JSON does not have are texts in cases, and so are those that JavaScript has as bigints alone. */
function number(value) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, number(item)]));
  }
  if (/^\d+n$/.test(value)) return BigInt(value.slice(0, -1));
  return { "-Infinity": -Infinity, NaN }[value] ?? value;
}

async function turn(session, { prompt, options, cancelAfter }) {
  const generation = session.generate(prompt, number(options));
  const events = [];
  try {
    for await (const event of generation) {
      events.push(event);
      if (events.length !== cancelAfter) continue;
      generation.cancel();
      generation.cancel();
    }
  } catch (error) {
    if (error.kind === undefined) throw error;
    // How many events come before it is a matter of time.
    return { error: error.code, events: events.slice(0, cancelAfter) };
  }
  for (const { finish } of events) if (finish) delete finish.timings;
  return { text: events.map((event) => event.text).join(""), events };
}

/** What a conversation's turns write, without times. */
export async function generation(one) {
  const model = await load(one.model, one.load);
  const session = model.session();
  const turns = [];
  for (const asked of one.turns) turns.push(await turn(session, asked));
  session.close();
  model.close();
  return turns;
}

async function failing(one) {
  const options = number(one.options ?? {});
  const file = one.path && path.join(REPOSITORY, one.path);
  switch (one.call) {
    case "load":
      return load(one.path, options);
    case "generate":
      return (await load(one.path, one.load)).generate(one.prompt, options).output();
    case "card":
      return ModelCard.fromToml(one.toml);
    case "vindex":
      return VindexReader.open(file);
    case "plan":
      return plan(file, { nodes: [{ id: "a" }] }, options);
    default:
      throw new Error(`there is no such call: ${one.call}`);
  }
}

/** How a call is refused. */
export async function error(one) {
  try {
    await failing(one);
  } catch (found) {
    if (found.kind === undefined) throw found;
    const { code, kind, retry, context } = found;
    return { code, kind, retry, field: context.field ?? null, places: Object.keys(context).sort() };
  }
  throw new Error(`${one.name} was not refused`);
}

/** What a folder holds, and what is found in it. */
export async function vindex(one) {
  const reader = await VindexReader.open(path.join(REPOSITORY, one.path), { threads: 1 });
  const query = new Float32Array(reader.hiddenSize);
  query[0] = 1;
  return {
    index: reader.index,
    layers: reader.layers,
    lacks: reader.lacks,
    bands: reader.bands,
    tensors: reader.tensors.map((tensor) => ({ ...tensor, file: path.basename(tensor.file) })),
    parts: await reader.parts(),
    feature: await reader.feature(0, 0),
    select: await reader.select({ limit: 3 }),
    nearest: await reader.nearest(query, { k: 2 }),
  };
}
