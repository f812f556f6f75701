// Do cards and profiles agree with the software whose they are? Cases as data.

import assert from "node:assert/strict";

import { ModelCard, Profile, isGemma4Family } from "skulk-node";
import { camelKeys, cardOf, cases, each, snake, suites } from "./suites.mjs";

/** Fields of `runtime` that came after the reference. */
const LATER = "served_spec_";

/** Without the fields that the reference lacks, which must be empty. */
function withoutLater(card) {
  const { facts, ...reference } = card;
  assert.equal(facts, null);
  if (card.runtime === null) return reference;
  const known = ([key, value]) => !(key.startsWith("servedSpec") && value === null);
  return { ...reference, runtime: Object.fromEntries(Object.entries(card.runtime).filter(known)) };
}

each("cards", "shipped cards are written as the reference writes them", ({ card: given }) => {
  const card = cardOf(given);
  assert.deepEqual(withoutLater(card), given);
  const text = ModelCard.toToml(card);
  for (const again of [ModelCard.fromToml(text), ModelCard.fromJson(ModelCard.toJson(card))]) {
    assert.deepEqual(again, card);
    assert.equal(ModelCard.toToml(again), text);
  }
});

each("cards_invalid", "cards are accepted and refused as by the reference", (one) => {
  // Some cases cannot be written as TOML, and the reference was not run on some.
  if (one.toml && one.viaToml) judge(one.viaToml, one.input, () => ModelCard.fromToml(one.toml));
  // JavaScript has one kind of number: 32.0 is 32.
  if (one.viaCamelJson && !one.name.endsWith("_float")) judge(one.viaCamelJson, one.input, () => cardOf(camelKeys(one.input)));
});

/** Compares one reading of a case with the reference's. */
function judge(expected, given, read) {
  const errors = (expected.errors ?? []).map((error) => [snake(error.field.join(".")), kindOf(error.type)]);
  const isLater = ([path, kind]) => kind === "unknown" && path.startsWith(`runtime.${LATER}`);
  const [later, known] = [errors.filter(isLater), errors.filter((error) => !isLater(error))];
  let card;
  try {
    card = read();
  } catch (error) {
    if (error.kind !== "CardInvalid") throw error;
    const { faults } = error.detail;
    assert.ok(faults.length > 0);
    // The reference may fail without saying where.
    if (!expected.accepted && errors.length === 0) return;
    const others = faults.filter((fault) => !isDeliberate(fault, given));
    assert.ok(others.length < faults.length || !expected.accepted, JSON.stringify(faults));
    const found = others.map(({ field, kind }) => [snake(field), kind === "type" ? "value" : kind].join());
    assert.deepEqual(new Set(found), new Set(known.map((error) => error.join())));
    return;
  }
  assert.ok(expected.accepted || (later.length > 0 && known.length === 0), JSON.stringify(expected));
  if (expected.accepted) assert.deepEqual(withoutLater(card), expected.card);
}

/** The reference tells wrong values and values of a wrong type apart only in part. */
function kindOf(type) {
  const known = { extra_forbidden: "unknown", missing: "missing", value_error: "value", literal_error: "value" };
  if (type in known) return known[type];
  if (type.startsWith("greater_than")) return "range";
  assert.match(type, /_type$/);
  return "value";
}

/** A field in either spelling. */
function lookup(table, name) {
  if (typeof table !== "object" || table === null || Array.isArray(table)) return undefined;
  const key = Object.keys(table).find((key) => snake(key) === name);
  return key === undefined ? undefined : table[key];
}

function at(given, path) {
  const step = (value, name) => (Array.isArray(value) ? value[Number(name)] : lookup(value, name));
  return path.split(".").reduce(step, given) ?? null;
}

/** Whether this library refuses here what the reference accepts, for a documented reason that holds of the input. */
function isDeliberate(fault, given) {
  const path = snake(fault.field);
  const value = at(given, path);
  const runtime = lookup(given, "runtime");
  const named = (name) => typeof lookup(runtime, name) === "string" && lookup(runtime, name) !== "";
  const below = (least) => typeof value === "number" && value < least;
  const heads = lookup(runtime, "mtp_heads") === true;
  const drafts = ["mtp_sidecar_repo", "mtp_norm_convention", "mtp_concat_order"];
  const reasons = {
    "model_id value": value === "",
    "placement.min_vram_gib range": below(0),
    "placement.max_context_tokens range": below(1),
    "runtime.mtp_heads conflict": heads && !named("mtp_sidecar_repo"),
    "runtime.assistant_model_repo conflict": named("assistant_model_repo") && (heads || drafts.some(named)),
    "runtime.served_spec_n_max range": below(1),
    "runtime.served_spec_draft_repo conflict": value !== null && !named("served_spec_draft_file"),
    "runtime.served_spec_draft_file conflict": value !== null && !named("served_spec_draft_repo"),
  };
  const reason = reasons[`${path} ${fault.kind}`];
  if (reason !== undefined) return reason;
  if (fault.kind === "range") return path.endsWith("storage_size.in_bytes") && below(0);
  // Values of fields that the reference does not know at all.
  return ["type", "value"].includes(fault.kind) && path.startsWith(`runtime.${LATER}`) && value !== null;
}

/** Cards by file, the first of each. */
const CARDS = new Map();
for (const { cases } of suites("cards")) for (const { file, card } of cases) if (!CARDS.has(file)) CARDS.set(file, card);

each("profiles_builtin", "cards that ship with the reference resolve as there", (one) => {
  const [card, { modelId }] = [cardOf(CARDS.get(one.file)), one];
  assert.deepEqual(ModelCard.profile(card), one.profile);
  const known = Profile.resolve(modelId, card, { tokenizerTools: true, tokenizerThinking: true });
  assert.deepEqual(known, one.profileTokenizerToolsThinking);
  const asked = Profile.resolve(modelId, card, { hasMessages: true, hasTools: true });
  assert.deepEqual(asked, one.profileWithToolsRequest);
  assert.equal(isGemma4Family(modelId, card), one.isGemma4Family);
});

each("profiles_synthetic", "every rule resolves as in the reference", (one) => {
  const card = one.card && cardOf(one.card);
  const [tokenizer, request] = [one.tokenizer ?? {}, one.taskParams];
  const profile = Profile.resolve(one.modelId, card, {
    tokenizerTools: tokenizer.hasToolCalling ?? false,
    tokenizerThinking: tokenizer.hasThinking ?? false,
    hasMessages: request && (request.chatTemplateMessagesPresent ?? false),
    hasTools: request && (request.toolsPresent ?? false),
  });
  assert.deepEqual(profile, one.profile);
  assert.equal(isGemma4Family(one.modelId, card), one.isGemma4Family);
});

cases(
  "requests are normalised as in the reference",
  suites("reasoning_params").flatMap(({ profiles, cases }) =>
    cases.map((one) => ({ ...one, facts: profiles[one.profile] })),
  ),
  ({ facts, reasoningEffort, enableThinking, outEffort, outEnableThinking }) => {
    const found = Profile.reasoning(facts ?? Profile.permissive(), { effort: reasoningEffort, enableThinking });
    assert.deepEqual(found, { effort: outEffort, enableThinking: outEnableThinking });
  },
);
