"use strict";
// How is work followed and stopped? As a promise, with an `AbortSignal` and a callback for its steps.

const native = require("./native.js");
const { aborted, ended, failed, invalid } = require("./errors.js");
const { json, shown } = require("./values.js");

/** Who is cancelled by each signal that somebody follows. */
const followed = new WeakMap();
/** Who is collected follows no more. */
const collected = new FinalizationRegistry((unlink) => unlink());

/** The followers of a signal, which share a listener: of many Node warns. */
function followersOf(signal) {
  const known = followed.get(signal);
  if (known) return known;
  const all = new Set();
  const abort = () => {
    for (const { target, cancel } of all) {
      const one = target.deref();
      if (one) cancel(one);
    }
  };
  const end = () => {
    signal.removeEventListener("abort", abort);
    followed.delete(signal);
  };
  signal.addEventListener("abort", abort, { once: true });
  followed.set(signal, { all, end });
  return { all, end };
}

const METHODS = ["addEventListener", "removeEventListener"];

/** Lets a signal cancel a target, which it does not keep. Returns what ends that. */
function link(signal, target, cancel = (one) => one.cancel()) {
  if (signal === undefined) return () => {};
  if (typeof signal.aborted !== "boolean" || METHODS.some((name) => typeof signal[name] !== "function")) {
    throw invalid("signal", `expected an AbortSignal, found ${shown(signal)}`);
  }
  if (signal.aborted) throw aborted(signal);
  const { all, end } = followersOf(signal);
  const follower = { target: new WeakRef(target), cancel };
  const unlink = () => {
    collected.unregister(follower);
    if (all.delete(follower) && all.size === 0) end();
  };
  all.add(follower);
  collected.register(target, unlink, follower);
  return unlink;
}

/** What `start` begins: it takes a token and a callback. An exception of `onProgress` ends it, and is what it rejects with. */
function work(start, { signal, onProgress } = {}) {
  // What fails later on another thread was begun here.
  const begun = {};
  Error.captureStackTrace(begun, work);
  return new Promise((resolve, reject) => {
    if (onProgress !== undefined && typeof onProgress !== "function") {
      throw invalid("onProgress", `expected a function, found ${shown(onProgress)}`);
    }
    const token = new native.CancelToken();
    const unlink = link(signal, token);
    let thrown = null;
    const fail = (error) => {
      thrown ??= { error };
      token.cancel();
    };
    const report = (step) => {
      try {
        const going = onProgress(step);
        if (typeof going?.then === "function") going.then(undefined, fail);
      } catch (error) {
        fail(error);
      }
    };
    const tell = (step, failure, answer) => {
      if (step !== null) {
        if (onProgress && !thrown) report(JSON.parse(step));
        return;
      }
      unlink();
      if (thrown || (signal?.aborted && answer !== null)) {
        // It came too late.
        answer?.close?.();
        reject(thrown ? thrown.error : aborted(signal));
      } else if (failure !== null) {
        const error = ended(failed(JSON.parse(failure)), signal);
        error.stack = `${error}\n${begun.stack.split("\n").slice(1).join("\n")}`;
        reject(error);
      } else {
        resolve(answer);
      }
    };
    try {
      start(token, tell);
    } catch (error) {
      unlink();
      throw error;
    }
  });
}

/** Calls a function of the contract. */
const call = (name, args = {}) => JSON.parse(native.call(name, json(args)));

/** The same beside JavaScript. */
const begin = async (name, args = {}, own = {}) => {
  const text = json(args);
  return JSON.parse(await work((token, tell) => native.start(name, text, token, tell), own));
};

module.exports = { begin, call, link, work };
