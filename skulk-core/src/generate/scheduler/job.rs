//! What is to be computed for a session? Its tokens that the stages do not hold yet, and what becomes of the results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::lock;
use crate::cancel::CancelToken;
use crate::engine::{Logits, Reply};
use crate::error::Result;
use crate::generate::draft::Proposal;
use crate::generate::session::{State, Turn, common};
use crate::ids::TokenId;

/// Work of a session that takes part in steps until it ends.
pub(in crate::generate) struct Job {
    pub(in crate::generate) turn: Turn,
    /// All tokens that the session shall have when it begins.
    pub(in crate::generate) tokens: Vec<TokenId>,
    pub(in crate::generate) cancel: CancelToken,
    /// Jobs of a higher one go first.
    pub(in crate::generate) priority: i32,
    pub(in crate::generate) ask: Box<dyn Ask>,
}

impl Job {
    pub(super) fn end(self, result: Result<()>) {
        let Self { turn, ask, .. } = self;
        // The reader's waker is foreign code.
        let _ = catch_unwind(AssertUnwindSafe(|| ask.end(result, turn)));
    }
}

/// Where a job waits. Who cancels it ends it there at once.
pub(in crate::generate) struct Place(Mutex<Option<Job>>);

impl Place {
    pub(super) fn of(job: Job) -> Self {
        Self(Mutex::new(Some(job)))
    }

    /// Takes the job, if it waits here.
    pub(super) fn take(&self) -> Option<Job> {
        lock(&self.0).take()
    }

    pub(super) fn put(&self, job: Job) {
        *lock(&self.0) = Some(job);
    }

    /// Whether the job went away, or shall.
    pub(super) fn is_left(&self) -> bool {
        lock(&self.0).as_ref().is_none_or(|job| job.cancel.is_cancelled())
    }
}

/// What a job wants of its rows, and what it does with them.
pub(in crate::generate) trait Ask: Send {
    /// The most rows of a step.
    fn most_rows(&self) -> usize;
    /// What is wanted of logits, and whether of every row or of the last one alone.
    fn wants(&self) -> (Logits, Rows);
    /// Tokens that may come next, at most so many.
    fn draft(&mut self, _history: &[TokenId], _most: usize) -> Proposal<'_> {
        Proposal::default()
    }
    /// Whether a second model may draft, and if so, whether it does in every step.
    fn has_model(&self) -> Option<bool> {
        None
    }
    /// Says that a second model drafts these in place of what was proposed.
    fn turn_to_model(&mut self) {}
    /// Says what went wrong that ends nothing.
    fn warn(&mut self, _warning: &str) {}
    /// Says what a step took of its last token on, in seconds, and would have taken without drafted ones.
    fn note_step(&mut self, _taken: f64, _without: f64) {}
    /// Whether who reads the results has room for more.
    fn has_room(&self) -> bool;
    /// Says that the job begins, with so many tokens that need not be computed.
    fn begin(&mut self, cached: usize);
    /// Takes the results of a step's segment: of rows of which something was wanted, the last ones being of drafted
    /// tokens. Tokens that are to be computed next are added to the state's history; of drafted ones those that were right.
    fn take(
        &mut self,
        state: &mut State,
        reply: &mut Reply,
        segment: usize,
        drafted: Drafted<'_>,
    ) -> Result<Taken>;
    /// Gives the session's turn back, then says how it ended.
    fn end(self: Box<Self>, result: Result<()>, turn: Turn);
}

/// What was drafted behind a job's tokens.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::generate) struct Drafted<'a> {
    /// Behind one another.
    pub(in crate::generate) tokens: &'a [TokenId],
    /// What else may come first, and the segment whose one wanted row is of it, where it was computed.
    pub(in crate::generate) other: Option<(TokenId, Option<usize>)>,
}

impl Drafted<'_> {
    /// How many of them were computed.
    pub(in crate::generate) fn len(&self) -> usize {
        self.tokens.len() + usize::from(self.other.is_some_and(|(_, segment)| segment.is_some()))
    }

    /// How many of these tokens were computed: the first ones of what was drafted, or the other guess.
    pub(in crate::generate) fn right(&self, chosen: &[TokenId]) -> usize {
        let right = common(chosen, self.tokens);
        if right == 0 && self.other_right(chosen).is_some() { 1 } else { right }
    }

    /// The segment of the other guess, if that was computed and is what was chosen.
    pub(in crate::generate) fn other_right(&self, chosen: &[TokenId]) -> Option<usize> {
        let (other, segment) = self.other?;
        segment.filter(|_| chosen.first() == Some(&other) && self.tokens.first() != Some(&other))
    }

    /// The segment and wanted row of the last of these tokens, if all of them were computed.
    pub(in crate::generate) fn row_behind(
        &self,
        chosen: &[TokenId],
        segment: usize,
    ) -> Option<(usize, usize)> {
        if self.tokens.starts_with(chosen) {
            return Some((segment, chosen.len()));
        }
        self.other_right(chosen).filter(|_| chosen.len() == 1).map(|segment| (segment, 0))
    }
}

/// What becomes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generate) enum Taken {
    GoesOn,
    Over,
    /// It has taken nothing: the same rows are to be computed again, now that it wants more of them.
    Again,
}

/// The rows of a job that something is wanted of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generate) enum Rows {
    /// The last of all.
    Last,
    Every,
}
