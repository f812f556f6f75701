"use strict";
// What is thrown? A `SkulkError`, whoever found the failure.

/** What ended a call. Its `kind` and `code` are the same in every language. */
class SkulkError extends Error {
  constructor(failure, options) {
    super(failure.message, options);
    // As everything that an `AbortSignal` ends is called in JavaScript.
    const name = failure.kind === "Cancelled" ? "AbortError" : "SkulkError";
    Object.defineProperty(this, "name", { value: name, configurable: true, writable: true });
    this.kind = failure.kind;
    this.code = failure.code;
    this.hint = failure.hint ?? null;
    this.retry = failure.retry;
    this.context = failure.context ?? {};
    this.detail = failure.detail ?? null;
    this.text = failure.text ?? failure.message;
  }
}

const MARK = "skulk:";

/** What the native module threw, as an error for hosts. */
function raise(error) {
  if (error instanceof SkulkError) return error;
  const message = String(error?.message ?? error);
  if (message.startsWith(MARK)) return failed(JSON.parse(message.slice(MARK.length)));
  const hint = "please report this";
  return new SkulkError({ kind: "Internal", code: "internal", message, hint, retry: "never" }, { cause: error });
}

/** The error that the library describes. */
function failed(failure) {
  const facts = Object.entries(failure.detail ?? {}).filter(([, fact]) => fact !== null);
  const { PlanReport } = require("./plans.js");
  const read = ([name, fact]) => [name, name === "report" ? PlanReport.of(fact) : fact];
  const detail = facts.length > 0 ? Object.fromEntries(facts.map(read)) : null;
  return new SkulkError({ ...failure, detail });
}

/** An argument that cannot be. */
function invalid(field, message, hint, options) {
  const context = field ? { field } : {};
  const failure = { kind: "InvalidArgument", code: "argument.invalid", message, hint, retry: "never", context };
  return new SkulkError(failure, options);
}

/** What to throw once work ended early, `signal` being its own. */
function ended(error, signal) {
  if (error.kind !== "Cancelled" || !signal?.aborted) return error;
  return new SkulkError(error, { cause: signal.reason });
}

/** The error of work that was not begun. */
function aborted(signal) {
  const failure = { kind: "Cancelled", code: "cancelled", retry: "now", message: "the work was cancelled" };
  failure.hint = "nothing is lost but what was under way: call again with a fresh signal";
  return new SkulkError(failure, { cause: signal.reason });
}

const KEY = Symbol("skulk");

/** Refuses to make a handle for anybody but this package. */
function own(key, what) {
  if (key !== KEY) throw invalid("", `a ${what} cannot be made with new`, `see how a ${what} is made in the guide`);
}

module.exports = { KEY, SkulkError, aborted, ended, failed, invalid, own, raise };
