//! What does a model expect behind each token of a text? Its logits.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, atomic};

use super::scheduler::{Ask, Drafted, Job, Rows, Signals, Taken};
use super::session::{Session, State, Turn};
use crate::cancel::CancelToken;
use crate::engine::{Logits, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::{Model, Prompt};
use crate::ids::TokenId;

/// Rows of logits that are computed together: bounds their memory, as a row can be a megabyte.
pub(super) const ROWS: usize = 16;

impl Model {
    /// Logits of the next token behind every token of a text: rows of [`vocab_size`](crate::arch::ArchSpec::vocab_size)
    /// numbers, one row a token, behind each other. Ends within one layer when `cancel` is cancelled.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// # use skulk::{CancelToken, LoadOptions, Model};
    /// let model = Model::open(path, &LoadOptions::default())?;
    /// let logits = model.logits("Once upon a time", &CancelToken::new())?;
    /// assert_eq!(logits.len() % model.arch().vocab_size, 0);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an empty text and for tokens that are not in the vocabulary;
    /// [`ErrorKind::ContextOverflow`] for a text that is too long; [`ErrorKind::OutOfMemory`], [`ErrorKind::Cancelled`],
    /// [`ErrorKind::EngineFailed`].
    pub fn logits(&self, text: impl Into<Prompt>, cancel: &CancelToken) -> Result<Vec<f32>> {
        let session = self.session()?;
        let tokens = text_of(&session, text.into(), self.context())?;
        let width = self.arch().vocab_size;
        let mut logits = Vec::new();
        let size = tokens.len().checked_mul(width);
        size.and_then(|size| logits.try_reserve_exact(size).ok()).ok_or_else(|| {
            let message =
                format!("cannot reserve memory for {} rows of logits of {width} tokens", tokens.len());
            Error::new(ErrorKind::OutOfMemory, message).with_hint("ask for a shorter text, part by part")
        })?;
        for rows in scored(&session, tokens, ROWS, cancel)? {
            logits.extend_from_slice(&rows?);
        }
        Ok(logits)
    }
}

/// A text's tokens, where they fit.
pub(super) fn text_of(session: &Session, text: Prompt, available: usize) -> Result<Vec<TokenId>> {
    let tokens = session.tokens_of(text.whole()?)?;
    if tokens.len() <= available {
        return Ok(tokens);
    }
    let message = format!("expected a text of at most {available} tokens, found {}", tokens.len());
    Err(Error::new(ErrorKind::ContextOverflow, message)
        .with_tokens(tokens.len(), available)
        .with_hint("give a shorter text, or load the model with a larger context"))
}

/// Logits behind each token of a text, computed in the session: `rows` of them at a time, but for the last ones.
pub(super) fn scored(
    session: &Session,
    tokens: Vec<TokenId>,
    rows: usize,
    cancel: &CancelToken,
) -> Result<Scores> {
    let scheduler = &session.shared.model.scheduler;
    let (sender, rows_of) = sync_channel(AHEAD + 1);
    let waiting = Arc::<atomic::AtomicUsize>::default();
    let cancel = cancel.child();
    let ask = Scoring { rows, sender, waiting: Arc::clone(&waiting), all: tokens.len(), sent: 0 };
    let job = Job { turn: session.turn()?, tokens, cancel: cancel.clone(), priority: 0, ask: Box::new(ask) };
    let signals = Arc::clone(scheduler.signals());
    scheduler.add(job);
    Ok(Scores { rows: rows_of, waiting, signals, cancel })
}

/// Rows that are computed before they are read.
const AHEAD: usize = 1;

/// Rows of logits as they are computed. Dropping it ends the job.
pub(super) struct Scores {
    rows: Receiver<Result<Vec<f32>>>,
    waiting: Arc<atomic::AtomicUsize>,
    signals: Arc<Signals>,
    cancel: CancelToken,
}

impl Iterator for Scores {
    type Item = Result<Vec<f32>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.rows.recv().ok()?;
        self.waiting.fetch_sub(1, atomic::Ordering::AcqRel);
        self.signals.wake();
        Some(rows)
    }
}

impl Drop for Scores {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// Sends all logits of every row.
struct Scoring {
    rows: usize,
    sender: SyncSender<Result<Vec<f32>>>,
    /// What was sent and not yet read.
    waiting: Arc<atomic::AtomicUsize>,
    /// Rows that there are, and how many of them were sent.
    all: usize,
    sent: usize,
}

impl Scoring {
    fn send(&self, rows: Result<Vec<f32>>) -> bool {
        self.waiting.fetch_add(1, atomic::Ordering::AcqRel);
        self.sender.send(rows).is_ok()
    }
}

impl Ask for Scoring {
    fn most_rows(&self) -> usize {
        self.rows
    }

    fn wants(&self) -> (Logits, Rows) {
        (Logits::All, Rows::Every)
    }

    fn has_room(&self) -> bool {
        self.waiting.load(atomic::Ordering::Acquire) < AHEAD
    }

    fn begin(&mut self, _cached: usize) {}

    fn take(
        &mut self,
        state: &mut State,
        reply: &mut Reply,
        segment: usize,
        _drafted: Drafted<'_>,
    ) -> Result<Taken> {
        let logits = reply.logits(segment);
        // Who had to give its pages away computes from the beginning: the first rows were sent before.
        let first = state.held.len() - logits.data.len() / logits.width.max(1);
        let new = logits.data.get(self.sent.saturating_sub(first) * logits.width..).unwrap_or_default();
        self.sent += new.len() / logits.width.max(1);
        let heard = new.is_empty() || self.send(Ok(new.to_vec()));
        Ok(if heard && self.sent < self.all { Taken::GoesOn } else { Taken::Over })
    }

    fn end(self: Box<Self>, result: Result<()>, turn: Turn) {
        drop(turn);
        if let Err(error) = result {
            self.send(Err(error));
        }
    }
}
