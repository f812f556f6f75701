//! What may a text look like? What a constraint says, told token by token.
//!
//! A [`Constraint`] is what callers ask for. With the feature `grammar`, `llguidance` reads it; `vocabulary.rs` says what
//! a model's tokens spell, `numbers.rs` which numbers of schemas it keeps, `readings.rs` what it would read otherwise,
//! `running.rs` which tokens may come next. Without it, constraints are refused.

mod constraint;
#[cfg(feature = "grammar")]
mod numbers;
#[cfg(feature = "grammar")]
mod readings;
#[cfg(feature = "grammar")]
mod running;
#[cfg(test)]
#[cfg(feature = "grammar")]
mod tests;
#[cfg(feature = "grammar")]
mod vocabulary;

use std::sync::Arc;
#[cfg(feature = "grammar")]
use std::sync::OnceLock;

pub use constraint::Constraint;
#[cfg(feature = "grammar")]
pub(crate) use running::Grammar;
#[cfg(feature = "grammar")]
use vocabulary::Vocabulary;

use crate::error::Result;
use crate::tokenizer::{Detokenizer, Tokenizer};

/// What all constraints of a model share, made when the first one comes.
#[derive(Default)]
pub(crate) struct Grammars {
    #[cfg(feature = "grammar")]
    vocabulary: OnceLock<Result<Arc<Vocabulary>>>,
}

#[cfg(feature = "grammar")]
impl Grammars {
    /// What may come behind the prompt that `text` has seen.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a constraint that cannot be read, is beyond the limits,
    /// or that no text of these tokens satisfies; [`TokenizerInvalid`](crate::ErrorKind::TokenizerInvalid).
    pub(crate) fn begin(
        &self,
        constraint: &Constraint,
        tokenizer: &Arc<Tokenizer>,
        text: &Detokenizer,
    ) -> Result<Grammar> {
        constraint.check()?;
        numbers::check(constraint)?;
        let vocabulary = self.vocabulary.get_or_init(|| Vocabulary::new(tokenizer).map(Arc::new));
        let vocabulary = vocabulary.as_ref().map_err(crate::error::Error::again)?;
        Grammar::new(constraint, Arc::clone(vocabulary), text.drops_space())
    }
}

/// There is none without the feature `grammar`.
#[cfg(not(feature = "grammar"))]
pub(crate) enum Grammar {}

#[cfg(not(feature = "grammar"))]
impl Grammars {
    pub(crate) fn begin(
        &self,
        constraint: &Constraint,
        _: &Arc<Tokenizer>,
        _: &Detokenizer,
    ) -> Result<Grammar> {
        let message = "expected no constraint, as this build cannot enforce any";
        Err(crate::error::Error::argument(constraint.field(), message)
            .with_hint("build skulk-core with the feature `grammar`"))
    }
}

#[cfg(not(feature = "grammar"))]
impl Grammar {
    pub(crate) fn allows(&mut self, _: crate::ids::TokenId) -> Result<bool> {
        match *self {}
    }

    pub(crate) fn narrow(&mut self, _: &mut [f32]) -> Result<()> {
        match *self {}
    }

    pub(crate) fn take(&mut self, _: crate::ids::TokenId) -> Result<()> {
        match *self {}
    }

    pub(crate) fn forced(&mut self) -> Result<Option<crate::ids::TokenId>> {
        match *self {}
    }

    pub(crate) fn is_over(&self) -> bool {
        match *self {}
    }
}
