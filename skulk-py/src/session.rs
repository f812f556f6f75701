//! How does Python hold a conversation? `skulk.Session`.

use std::collections::HashMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use skulk::{GenerateOptions, Prompt, TokenId};

use crate::cancel::CancelToken;
use crate::convert::{numbers, optional, token_ids, unsigned};
use crate::error::raise;
use crate::generation::Generation;

/// One conversation with a model: prompts that begin like the tokens it holds are computed only
/// from where they differ. Made by `Model.session`.
///
/// Sessions are independent; one session runs one generation at a time.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Session(pub(crate) skulk::Session);

#[pymethods]
impl Session {
    /// Starts generating and returns at once; the work is done on a thread of its own.
    ///
    /// `prompt` is text, or token ids that are used as given. With `append` the text follows what
    /// the session holds; without, the prompt is everything so far, of which what the session
    /// already computed is not computed again.
    ///
    /// `temperature` 0 takes the likeliest token; `top_k`, `top_p` and `min_p` leave out unlikely
    /// ones; the penalties look at the last `penalty_window` tokens; `logit_bias` maps token ids to
    /// what is added to their logits; the same `seed` (0 by default) draws the same tokens. `stop`
    /// texts end the generation and are not part of its text. `logprobs` reports each token's
    /// log-probability, and those of this many likeliest (0 to 64).
    #[pyo3(signature = (
        prompt, *, append=false, max_tokens=None, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0,
        repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64,
        logit_bias=None, seed=None, stop=vec![], ignore_eos=false, logprobs=None, cancel=None
    ), text_signature = "($self, prompt, *, append=False, max_tokens=None, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64, logit_bias=None, seed=None, stop=(), ignore_eos=False, logprobs=None, cancel=None)")]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        append: bool,
        max_tokens: Option<i128>,
        temperature: f32,
        top_k: Option<i128>,
        top_p: f32,
        min_p: f32,
        repetition_penalty: f32,
        presence_penalty: f32,
        frequency_penalty: f32,
        penalty_window: i128,
        logit_bias: Option<HashMap<i128, f32>>,
        seed: Option<i128>,
        stop: Vec<String>,
        ignore_eos: bool,
        logprobs: Option<i128>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Generation> {
        let prompt = match prompt_of(prompt)? {
            Prompt::Text(text) if append => Prompt::Append(text),
            _ if append => return Err(PyTypeError::new_err("append takes a prompt of text")),
            prompt => prompt,
        };
        let mut options = GenerateOptions::default().stop(stop).ignore_eos(ignore_eos);
        options.max_tokens = optional("max_tokens", max_tokens)?;
        options.logprobs = optional("logprobs", logprobs)?;
        options.cancel = CancelToken::child(cancel);
        let sampling = &mut options.sampling;
        sampling.temperature = temperature;
        sampling.top_k = optional("top_k", top_k)?;
        sampling.top_p = top_p;
        sampling.min_p = min_p;
        sampling.repetition_penalty = repetition_penalty;
        sampling.presence_penalty = presence_penalty;
        sampling.frequency_penalty = frequency_penalty;
        sampling.penalty_window = unsigned("penalty_window", penalty_window)?;
        sampling.seed = optional("seed", seed)?;
        for (id, bias) in logit_bias.unwrap_or_default() {
            sampling.logit_bias.push((TokenId(unsigned("logit_bias", id)?), bias));
        }
        let cancel = options.cancel.clone();
        let running = py.detach(|| self.0.generate(prompt, options)).map_err(raise)?;
        Ok(Generation::new(running, cancel))
    }

    /// All tokens of the conversation: prompts and what was generated.
    #[getter]
    fn tokens(&self) -> PyResult<Vec<u32>> {
        self.0.tokens().map(|tokens| numbers(&tokens)).map_err(raise)
    }

    /// Forgets all tokens but the first `len`. Later prompts reuse what remains.
    fn truncate(&self, len: i128) -> PyResult<()> {
        self.0.truncate(unsigned("len", len)?).map_err(raise)
    }

    fn __repr__(&self) -> String {
        match self.0.tokens() {
            Ok(tokens) => format!("<skulk.Session: {} tokens>", tokens.len()),
            Err(_) => "<skulk.Session: generating>".into(),
        }
    }
}

/// A text, or tokens that are used as given.
pub(crate) fn prompt_of(prompt: &Bound<'_, PyAny>) -> PyResult<Prompt> {
    if let Ok(text) = prompt.cast::<PyString>() {
        return Ok(Prompt::Text(text.extract()?));
    }
    let ids = prompt.extract().map_err(|cause| {
        let error = PyTypeError::new_err("expected a prompt of text or of token ids");
        error.set_cause(prompt.py(), Some(cause));
        error
    })?;
    token_ids("prompt", ids).map(Prompt::Tokens)
}
