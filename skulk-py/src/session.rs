//! How does Python hold a conversation? `skulk.Session`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use skulk::Prompt;
use skulk_contract::options::GenerateOptions;

use crate::cancel::CancelToken;
use crate::chat::{ChatStream, conversation};
use crate::convert::{each, is_sequence, numbers, text, token_ids, unsigned};
use crate::error::raise;
use crate::generation::Generation;
use crate::given;
use crate::handle::Handle;
use crate::model::{Model, placement_of};
use crate::wait::run;

/// One conversation with a model: prompts that begin like the tokens it holds are computed only
/// from where they differ. Made by `Model.session`.
///
/// Sessions are independent; one session runs one generation at a time.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Session(pub(crate) Handle<Arc<skulk::Session>>);

#[pymethods]
impl Session {
    /// Starts generating and returns at once; the work is done on the model's own thread, in steps with other sessions.
    ///
    /// `prompt` is text, or token ids that are used as given. With `append` the text follows what
    /// the session holds; without, the prompt is everything so far, of which what the session
    /// already computed is not computed again.
    ///
    /// `options` are those of `skulk.options.GenerateOptions`. `cancel` ends the generation within one layer.
    #[pyo3(signature = (prompt, *, cancel=None, **options), text_signature = "($self, prompt, *, append=False, max_tokens=None, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64, logit_bias=None, seed=None, speculate='auto', draft_tokens=None, draft_tree=None, draft_texts=(), stop=(), json_schema=None, regex=None, grammar=None, response_format=None, ignore_eos=False, logprobs=None, priority=0, cancel=None)")]
    pub(crate) fn generate(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        cancel: Option<&Bound<'_, CancelToken>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Generation> {
        let session = self.0.get()?;
        begin(py, prompt, cancel, options, |prompt, options| session.generate(prompt, options))
    }

    /// Answers a conversation. `messages` are all of it, as dictionaries of OpenAI's shape, or a text, which is one
    /// message of the user's; what the session holds of it is not computed again.
    ///
    /// `tools` are dictionaries of OpenAI's shape, or functions, whose signatures and docstrings the model is told; what
    /// it calls, `ChatAnswer.calls` says, and nothing is run. The other options are those of `skulk.options.ChatOptions`. `cancel` ends the
    /// answer within one layer.
    #[pyo3(signature = (messages, *, cancel=None, **options), text_signature = "($self, messages, *, tools=(), reasoning=None, documents=(), variables=None, template=None, now=None, trust_messages=False, reasoning_budget=None, max_tokens=None, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64, logit_bias=None, seed=None, speculate='auto', draft_tokens=None, draft_tree=None, draft_texts=(), stop=(), json_schema=None, regex=None, grammar=None, response_format=None, ignore_eos=False, priority=0, cancel=None)")]
    pub(crate) fn chat(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        cancel: Option<&Bound<'_, CancelToken>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<ChatStream> {
        let session = self.0.get()?;
        ChatStream::begin(py, &session, conversation(messages, options)?, CancelToken::child(cancel))
    }

    /// All tokens of the conversation: prompts and what was generated.
    #[getter]
    fn tokens(&self) -> PyResult<Vec<u32>> {
        self.0.get()?.tokens().map(|tokens| numbers(&tokens)).map_err(raise)
    }

    /// Forgets all tokens but the first `len`. Later prompts reuse what remains.
    fn truncate(&self, len: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.get()?.truncate(unsigned("len", len)?).map_err(raise)
    }

    /// Another session that begins as this one is: its tokens, and what the model holds of them. From then on they are
    /// independent; what they share is stored once.
    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        let session = self.0.get()?;
        let fork = py.detach(|| session.fork()).map_err(raise)?;
        Ok(Self(Handle::new(Arc::new(fork))))
    }

    /// Writes the conversation to a file: its tokens, and the keys and values that the model holds of them, so that
    /// `Model.restore` need not compute them again. A file that is there is replaced when all is written.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let session = self.0.get()?;
        py.detach(|| session.save(path)).map_err(raise)
    }

    /// This conversation with its model placed otherwise, see `Model.replan`: all its tokens, and the generation that an error
    /// cut off, which `resume` goes on with. Keys and values are computed again when it does. `cancel` and Ctrl-C end loading within one layer.
    #[pyo3(signature = (placement, *, cancel=None))]
    fn recover(
        &self,
        py: Python<'_>,
        placement: &Bound<'_, PyAny>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Self> {
        let (session, placement) = (self.0.get()?, placement_of(placement)?);
        let recover = |cancel, _silent: Sender<()>| session.recover_with(placement, cancel);
        run(py, cancel, recover, |()| Ok(())).map(|session| Self(Handle::new(Arc::new(session))))
    }

    /// The same in a model that is loaded already, which several conversations may share.
    fn recover_in(&self, py: Python<'_>, model: &Bound<'_, Model>) -> PyResult<Self> {
        let (session, model) = (self.0.get()?, model.get().0.get()?);
        let session = py.detach(|| session.recover_in(&model)).map_err(raise)?;
        Ok(Self(Handle::new(Arc::new(session))))
    }

    /// Goes on with the generation that a lost machine or another error cut off, whose `retry` is `after_replan`: with the same
    /// options, so that both texts together are the one that it would have generated. Its events follow those that were given
    /// before. `cancel` ends it within one layer.
    #[pyo3(signature = (*, cancel=None))]
    fn resume(&self, py: Python<'_>, cancel: Option<&Bound<'_, CancelToken>>) -> PyResult<Generation> {
        let (session, cancel) = (self.0.get()?, CancelToken::child(cancel));
        let running = py.detach(|| session.resume_with(cancel.clone())).map_err(raise)?;
        Ok(Generation::new(running, cancel))
    }

    /// Lets go of the session; used afterwards, it raises `InvalidArgumentError`. A generation that runs goes on.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.0.close(py);
    }

    fn __repr__(&self) -> String {
        match self.0.get().map(|session| session.tokens()) {
            Ok(Ok(tokens)) => format!("<skulk.Session: {} tokens>", tokens.len()),
            Ok(Err(_)) => "<skulk.Session: generating>".into(),
            Err(_) => "<skulk.Session: closed>".into(),
        }
    }
}

/// The prompts of a sequence of them; `None` for what is to be one prompt.
pub(crate) fn prompts_of(given: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Prompt>>> {
    if given.is_instance_of::<PyString>() || !is_sequence(given)? {
        return Ok(None);
    }
    // Of one prompt the items are numbers.
    match given.get_item(0) {
        Ok(first) if is_sequence(&first)? => each(given, |prompt| prompt_of(&prompt)),
        _ => Ok(None),
    }
}

/// A text, or tokens that are used as given.
pub(crate) fn prompt_of(prompt: &Bound<'_, PyAny>) -> PyResult<Prompt> {
    match prompt.cast::<PyString>() {
        Ok(prompt) => text("prompt", prompt).map(Prompt::Text),
        Err(_) => token_ids("prompt", "a text or a list of token ids", prompt).map(Prompt::Tokens),
    }
}

/// What `generate` begins with a prompt and options that were given by name.
pub(crate) fn begin(
    py: Python<'_>,
    prompt: &Bound<'_, PyAny>,
    cancel: Option<&Bound<'_, CancelToken>>,
    options: Option<&Bound<'_, PyDict>>,
    generate: impl FnOnce(Prompt, skulk::GenerateOptions) -> skulk::Result<skulk::Generation> + Send,
) -> PyResult<Generation> {
    let (mut options, append) = given::options(options, GenerateOptions::read)?;
    options.cancel = CancelToken::child(cancel);
    let prompt = skulk_contract::options::prompt(prompt_of(prompt)?, append).map_err(raise)?;
    let cancel = options.cancel.clone();
    let running = py.detach(|| generate(prompt, options)).map_err(raise)?;
    Ok(Generation::new(running, cancel))
}
