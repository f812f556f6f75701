//! What does one conversation remember? Its tokens, and which of them the shards still hold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::channel::BACKLOG;
use super::model::Inner;
use super::options::expect_known;
use super::scheduler::Command;
use super::writing::{Constrained, Steering, Writing};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::{GenerateOptions, Generation, Prompt};
use crate::ids::{SeqId, TokenId};
use crate::macros::opaque;
use crate::plan::admit_max_tokens;
use crate::tokenizer::Detokenizer;

/// One conversation with a model: prompts that begin like the tokens it holds are computed only
/// from where they differ.
///
/// Sessions are independent; one session runs one generation at a time.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
/// # use skulk::{GenerateOptions, LoadOptions, Model, Prompt};
/// # let model = Model::open(path, &LoadOptions::default())?;
/// let session = model.session()?;
/// let first = session.generate("Once upon a time", GenerateOptions::default().max_tokens(8))?.output()?;
/// let next = Prompt::Append(" Then".into());
/// let second = session.generate(next, GenerateOptions::default().max_tokens(8))?.output()?;
/// assert!(second.finish.usage.cached_tokens > first.finish.usage.prompt_tokens);
/// # Ok::<(), skulk::Error>(())
/// ```
pub struct Session {
    pub(super) shared: Arc<Shared>,
}

opaque!(Session);

/// What a session and its running generation share.
pub(super) struct Shared {
    pub(super) model: Arc<Inner>,
    busy: AtomicBool,
    state: Mutex<State>,
}

/// A session's tokens.
#[derive(Default)]
pub(super) struct State {
    /// Every token of the conversation.
    pub(super) history: Vec<TokenId>,
    /// Its sequence in the stages, where it has one, and the tokens whose keys and values they hold.
    pub(super) seq: Option<SeqId>,
    pub(super) held: Vec<TokenId>,
    /// A generation that an error cut off and that can go on; its last token is the history's.
    pub(super) interrupted: Option<Box<Writing>>,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many tokens two lists begin with alike.
pub(super) fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Drop for Shared {
    fn drop(&mut self) {
        let seq = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).seq;
        if let Some(seq) = seq {
            self.model.scheduler.tell(Command::Close(seq));
        }
    }
}

/// The right to run a generation; given back on drop, also when the generation panics.
pub(super) struct Turn {
    pub(super) shared: Arc<Shared>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.busy.store(false, Ordering::Release);
    }
}

impl Session {
    pub(super) fn open(model: Arc<Inner>) -> Self {
        Self { shared: Arc::new(Shared { model, busy: AtomicBool::new(false), state: Mutex::default() }) }
    }

    /// Starts generating. Everything that can be checked is checked here, before any computing. Prompt tokens whose keys
    /// and values the model still holds, from this session or from another one that began alike, are not computed again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an empty prompt, unknown token ids or impossible options, a constraint among
    /// them that cannot be enforced;
    /// [`ErrorKind::ContextOverflow`] when the prompt, or prompt plus `max_tokens`, does not fit;
    /// [`ErrorKind::SessionBusy`] while another generation of this session runs.
    pub fn generate(&self, prompt: impl Into<Prompt>, options: GenerateOptions) -> Result<Generation> {
        self.start(prompt.into(), options, BACKLOG, None)
    }

    /// The same with so many events ahead of the reader, and with steering.
    pub(super) fn start(
        &self,
        prompt: Prompt,
        options: GenerateOptions,
        backlog: usize,
        steering: Option<Box<dyn Steering>>,
    ) -> Result<Generation> {
        let turn = self.turn()?;
        let model = &self.shared.model;
        options.validate(&model.arch, model.second.as_deref())?;
        let tokens = self.tokens_of(prompt)?;
        admit_max_tokens(tokens.len(), options.max_tokens, model.context, Some(model.context as u64))?;
        let steering = match &options.constraint {
            None => steering,
            Some(constraint) => {
                let text = Detokenizer::new(Arc::clone(&model.tokenizer), &tokens, true);
                let grammar = model.grammars.begin(constraint, &model.tokenizer, &text)?;
                Some(Box::new(Constrained(grammar)) as _)
            }
        };
        Generation::start(turn, tokens, options, backlog, steering)
    }

    /// Another session that begins as this one is: its tokens, and what the model holds of them. From then on they are
    /// independent; what they share is stored once.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// # use skulk::{GenerateOptions, LoadOptions, Model, Prompt};
    /// # let model = Model::open(path, &LoadOptions::default())?;
    /// let session = model.session()?;
    /// session.generate("Once upon a time", GenerateOptions::default().max_tokens(8))?.output()?;
    /// let other = session.fork()?;
    /// let [one, two] = [&session, &other].map(|s| s.generate(Prompt::Append(" Then".into()), GenerateOptions::default().max_tokens(8)));
    /// assert_eq!(one?.text()?, two?.text()?);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::SessionBusy`] while a generation runs.
    pub fn fork(&self) -> Result<Session> {
        let turn = self.turn()?;
        let fork = Self::open(Arc::clone(&self.shared.model));
        fork.shared.state().history.clone_from(&turn.shared.state().history);
        let (from, to) = (Arc::clone(&self.shared), Arc::clone(&fork.shared));
        self.shared.model.scheduler.tell(Command::Fork(from, to));
        Ok(fork)
    }

    /// All tokens of the conversation: prompts and what was generated.
    ///
    /// # Errors
    /// [`ErrorKind::SessionBusy`] while a generation runs.
    pub fn tokens(&self) -> Result<Vec<TokenId>> {
        let turn = self.turn()?;
        let tokens = turn.shared.state().history.clone();
        Ok(tokens)
    }

    /// Forgets all tokens but the first `len`. Later prompts reuse what remains.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the session has fewer tokens,
    /// [`ErrorKind::SessionBusy`] while a generation runs.
    pub fn truncate(&self, len: usize) -> Result<()> {
        let turn = self.turn()?;
        let mut state = turn.shared.state();
        if len > state.history.len() {
            return Err(Error::argument(
                "len",
                format!("expected at most the session's {} tokens, found {len}", state.history.len()),
            )
            .with_hint("truncating only shortens: generate to grow the session"));
        }
        state.history.truncate(len);
        state.interrupted = None;
        Ok(())
    }

    pub(super) fn turn(&self) -> Result<Turn> {
        if self.shared.busy.swap(true, Ordering::AcqRel) {
            return Err(Error::new(ErrorKind::SessionBusy, "the session is already generating")
                .with_hint("finish or drop the running generation first, or open another session"));
        }
        Ok(Turn { shared: Arc::clone(&self.shared) })
    }

    /// A prompt's tokens, checked.
    pub(super) fn tokens_of(&self, prompt: Prompt) -> Result<Vec<TokenId>> {
        let empty = || {
            Error::argument("prompt", "expected a prompt of at least one token, found an empty one")
                .with_hint("to generate from nothing, give the beginning-of-sequence token as the prompt")
        };
        let model = &self.shared.model;
        let tokens = match prompt {
            Prompt::Text(text) | Prompt::Append(text) if text.is_empty() => return Err(empty()),
            Prompt::Text(text) => model.tokenizer.encode(&text, true)?,
            Prompt::Tokens(tokens) => tokens,
            Prompt::Append(text) => {
                let mut tokens = self.shared.state().history.clone();
                let first = tokens.is_empty();
                tokens.extend(model.tokenizer.encode(&text, first)?);
                tokens
            }
        };
        expect_known("prompt", tokens.iter(), model.arch.vocab_size)?;
        if tokens.is_empty() { Err(empty()) } else { Ok(tokens) }
    }
}
