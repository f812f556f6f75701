//! What do these tests share? The fixtures as models, and generations by their ids.

use skulk::{EngineOptions, GenerateOptions, LoadOptions, Model, Output, Prompt, Session, TokenId};

pub(crate) use crate::fixtures::path;
use crate::fixtures::{ids, json};

pub(crate) const NAMES: [&str; 3] = ["stories260K", "llama", "gemma3"];
pub(crate) const OPENING: &str = "Once upon a time, there was a";

pub(crate) fn one_thread() -> LoadOptions {
    threads(1)
}

pub(crate) fn threads(n: usize) -> LoadOptions {
    with_engine(EngineOptions::default().threads(n))
}

pub(crate) fn with_engine(options: EngineOptions) -> LoadOptions {
    LoadOptions::default().engine_options(options)
}

pub(crate) fn model(name: &str) -> Model {
    Model::open(path(name), &one_thread()).unwrap()
}

/// The tokens of a prompt of the fixture's reference.
pub(crate) fn reference_prompt(name: &str, prompt: usize) -> Vec<TokenId> {
    ids(&json(&path(name).join("reference.json"))["prompts"][prompt]["ids"])
}

/// Greedy, exactly `n` tokens.
pub(crate) fn greedy(n: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(n).ignore_eos(true)
}

/// What a session of its own generates.
pub(crate) fn fresh(model: &Model, prompt: impl Into<Prompt>, options: &GenerateOptions) -> Output {
    on(&model.session().unwrap(), prompt, options)
}

pub(crate) fn on(session: &Session, prompt: impl Into<Prompt>, options: &GenerateOptions) -> Output {
    session.generate(prompt, options.clone()).unwrap().output().unwrap()
}

/// The session generates what a fresh one does.
pub(crate) fn expect_usable(model: &Model, session: &Session, prompt: &[TokenId]) {
    let expected = fresh(model, prompt.to_vec(), &greedy(6)).ids;
    assert_eq!(on(session, prompt.to_vec(), &greedy(6)).ids, expected);
    let other = reference_prompt("llama", 0);
    let expected = fresh(model, other.clone(), &greedy(6)).ids;
    assert_eq!(on(session, other, &greedy(6)).ids, expected);
}

pub(crate) fn long_prompt() -> Vec<TokenId> {
    reference_prompt("llama", 2).into_iter().cycle().take(500).collect()
}
