//! What does a model expect behind each token of a text? Its logits.

use super::session::{Session, Shared};
use crate::cancel::CancelToken;
use crate::engine::{Activations, Logits, Segment, StepCx};
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
        let (width, rows) = (self.arch().vocab_size, ROWS.min(self.inner.prefill_chunk));
        let mut logits = Vec::new();
        let size = tokens.len().checked_mul(width);
        size.and_then(|size| logits.try_reserve_exact(size).ok()).ok_or_else(|| {
            let message =
                format!("cannot reserve memory for {} rows of logits of {width} tokens", tokens.len());
            Error::new(ErrorKind::OutOfMemory, message).with_hint("ask for a shorter text, part by part")
        })?;
        let mut buffers = Default::default();
        for (chunk, part) in tokens.chunks(rows).enumerate() {
            forward(&session.shared, chunk * rows, part, &mut buffers, &StepCx::new(cancel))?;
            logits.extend_from_slice(buffers[0].data());
        }
        Ok(logits)
    }
}

/// A text's tokens, where they fit.
pub(super) fn text_of(session: &Session, text: Prompt, available: usize) -> Result<Vec<TokenId>> {
    let tokens = session.tokens_of(text)?;
    if tokens.len() <= available {
        return Ok(tokens);
    }
    let message = format!("expected a text of at most {available} tokens, found {}", tokens.len());
    Err(Error::new(ErrorKind::ContextOverflow, message)
        .with_tokens(tokens.len(), available)
        .with_hint("give a shorter text, or load the model with a larger context"))
}

/// Logits behind each token of a part of a text.
pub(super) fn forward(
    shared: &Shared,
    start: usize,
    tokens: &[TokenId],
    buffers: &mut [Activations; 2],
    cx: &StepCx<'_>,
) -> Result<()> {
    let segment = Segment { seq: shared.seq, start, rows: tokens.len(), logits: Logits::All };
    shared.model.forward(segment, tokens, buffers, cx)
}
