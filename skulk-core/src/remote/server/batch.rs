//! Whose rows are computed next? One thread computes what all clients wait for, a layer at a time.
//!
//! Rows that wait for the same are joined to one job. What comes of a row does not depend on the others, so nobody can tell.
//! The job is that of the rows that have waited longest; what is left over of many rows goes behind what others wait for.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::metrics::Metrics;
use crate::arch::ArchSpec;
use crate::cancel::CancelToken;
use crate::engine::{FfnJob, FfnLine, FfnPair, FfnService, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::LayerIdx;

/// What is wanted of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The dense block's result; rows are behind its norm.
    Block,
    /// The result of each row's one expert; rows are before the norm.
    Expert,
    /// The weighted sum of this many experts' results of each row; rows are before the norm.
    Sum(usize),
    /// The same of rows behind the norm.
    NormedSum(usize),
}

impl Form {
    /// Whether rows are yet to be normed.
    pub(super) fn is_of_residual(self) -> bool {
        matches!(self, Self::Expert | Self::Sum(_))
    }

    /// Experts that each row takes.
    fn each(self) -> usize {
        match self {
            Self::Block | Self::Expert => 1,
            Self::Sum(each) | Self::NormedSum(each) => each,
        }
    }
}

/// Rows of a request for one layer. They are checked: all is there, and finite.
pub(super) struct Piece {
    pub(super) layer: usize,
    pub(super) form: Form,
    /// `[rows, hidden]`.
    pub(super) rows: Arc<Vec<f32>>,
    /// Experts and weights, as many for each row as the form says.
    pub(super) pairs: Vec<(u32, f32)>,
}

/// What becomes of a piece.
pub(super) struct Done {
    /// `[rows, hidden]`.
    pub(super) rows: Vec<f32>,
    pub(super) computing: Duration,
}

/// Why a request is not taken.
pub(super) enum Refused {
    /// Too many wait.
    Full,
    /// The server stops.
    Stopping,
}

/// A piece that waits, or of which some is computed.
struct Waiting {
    piece: Piece,
    done: Done,
    admitted: Instant,
    /// Whether computing of its request has begun.
    begun: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<Done>>,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Waiting>,
    /// Requests of which nothing has been computed.
    waiting: usize,
    closed: bool,
}

/// Where requests wait.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
    metrics: Arc<Metrics>,
}

impl Queue {
    /// Room for so many requests.
    pub(super) fn new(most: usize, metrics: Arc<Metrics>) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), most, metrics }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request's pieces, all or none.
    pub(super) fn push(&self, pieces: Vec<Piece>) -> Result<Vec<oneshot::Receiver<Result<Done>>>, Refused> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Stopping);
        }
        if state.waiting >= self.most {
            return Err(Refused::Full);
        }
        let (admitted, begun) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let mut replies = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (reply, receiver) = oneshot::channel();
            let done = Done { rows: Vec::new(), computing: Duration::ZERO };
            state.pieces.push_back(Waiting { piece, done, admitted, begun: Arc::clone(&begun), reply });
            replies.push(receiver);
        }
        state.waiting += 1;
        self.metrics.queue.set(state.waiting as i64);
        drop(state);
        self.changed.notify_one();
        Ok(replies)
    }

    /// Lets nothing more in, and ends waiting for what is not being computed.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.pieces.clear();
        state.waiting = 0;
        self.metrics.queue.set(0);
        drop(state);
        self.changed.notify_all();
    }

    /// What is to be computed next: pieces that wait for the same, of `most` rows in all; `None` when the server stops.
    fn take(&self, hidden: usize, most: impl Fn(usize, Form) -> usize) -> Option<Vec<(Waiting, usize)>> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            let State { pieces, waiting, .. } = &mut *state;
            // Nobody waits for these any more.
            pieces.retain(|piece| {
                let gone = piece.reply.is_closed();
                if gone {
                    begin(piece, waiting);
                }
                !gone
            });
            if let Some(first) = pieces.front() {
                let (layer, form) = (first.piece.layer, first.piece.form);
                let (mut room, mut taken, mut at) = (most(layer, form), Vec::new(), 0);
                while room > 0
                    && let Some(next) = pieces.get(at)
                {
                    if (next.piece.layer, next.piece.form) != (layer, form) {
                        at += 1;
                        continue;
                    }
                    let Some(next) = pieces.remove(at) else { break };
                    if begin(&next, waiting) {
                        self.metrics.waiting.observe(next.admitted.elapsed().as_secs_f64());
                    }
                    let rows = room.min((next.piece.rows.len() - next.done.rows.len()) / hidden.max(1));
                    room -= rows;
                    taken.push((next, rows));
                }
                self.metrics.queue.set(*waiting as i64);
                return Some(taken);
            }
            self.metrics.queue.set(*waiting as i64);
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts a piece behind the others.
    fn put_back(&self, piece: Waiting) {
        let mut state = self.state();
        if !state.closed {
            state.pieces.push_back(piece);
        }
    }
}

/// Its request does not wait any more; whether it did.
fn begin(piece: &Waiting, waiting: &mut usize) -> bool {
    let first = !piece.begun.swap(true, Ordering::Relaxed);
    *waiting -= usize::from(first && *waiting > 0);
    first
}

/// Computes what waits, until the queue is closed.
pub(super) struct Worker {
    pub(super) queue: Arc<Queue>,
    pub(super) service: Arc<dyn FfnService>,
    pub(super) arch: Arc<ArchSpec>,
    pub(super) max_rows: usize,
    /// Ends what is being computed.
    pub(super) cancel: CancelToken,
    pub(super) metrics: Arc<Metrics>,
}

/// What jobs are put together in.
#[derive(Default)]
struct Room {
    line: Option<Box<dyn FfnLine>>,
    rows: Vec<f32>,
    pairs: Vec<FfnPair>,
    out: Vec<f32>,
}

impl Worker {
    /// The thread's work.
    pub(super) fn run(self) {
        let hidden = self.arch.hidden_size;
        let mut room = Room::default();
        // A row's experts count as far as they are more than the model's own rows take.
        let most = |layer: usize, form: Form| {
            let used = self.arch.layers.get(layer).and_then(|spec| spec.ffn.experts);
            let used = used.map_or(1, |experts| experts.n_used.max(1));
            match form {
                Form::Block | Form::Expert => self.max_rows,
                Form::Sum(each) | Form::NormedSum(each) => {
                    (self.max_rows.saturating_mul(used) / each.max(1)).clamp(1, self.max_rows)
                }
            }
        };
        while let Some(taken) = self.queue.take(hidden, most) {
            let started = Instant::now();
            let computed = catch_unwind(AssertUnwindSafe(|| self.compute(&taken, &mut room)));
            let computed = computed.unwrap_or_else(|_| {
                // What it was computed in may be half written.
                room = Room::default();
                Err(Error::new(ErrorKind::Internal, "computing ended in a panic"))
            });
            let computing = started.elapsed();
            let rows = taken.iter().map(|(_, rows)| *rows as u64).sum();
            self.metrics.computed(rows, computing);
            let mut results = room.out.chunks(hidden.max(1));
            for (mut next, rows) in taken {
                if let Err(error) = &computed {
                    next.reply.send(Err(error.again())).ok();
                    continue;
                }
                results.by_ref().take(rows).for_each(|row| next.done.rows.extend_from_slice(row));
                next.done.computing += computing;
                if next.done.rows.len() == next.piece.rows.len() {
                    next.reply.send(Ok(next.done)).ok();
                } else {
                    self.queue.put_back(next);
                }
            }
        }
    }

    /// Leaves the results in the room, a row for each that was taken.
    fn compute(&self, taken: &[(Waiting, usize)], room: &mut Room) -> Result<()> {
        let Some((first, _)) = taken.first() else { return Ok(()) };
        let (layer, form, hidden) = (LayerIdx(first.piece.layer), first.piece.form, self.arch.hidden_size);
        let Room { line, rows, pairs, out } = room;
        rows.clear();
        pairs.clear();
        for (next, count) in taken {
            let start = next.done.rows.len();
            rows.extend_from_slice(&next.piece.rows[start..start + count * hidden]);
            let (first, own) = (pairs.len() / form.each().max(1), start / hidden.max(1));
            for row in 0..*count {
                for at in 0..form.each() {
                    let pair = next.piece.pairs.get((own + row) * form.each() + at);
                    let (expert, weight) = pair.copied().unwrap_or((0, 1.0));
                    pairs.push(FfnPair::new((first + row) as u32, expert, weight));
                }
            }
        }
        let job = match form {
            Form::Block => FfnJob::new(layer, hidden, rows, pairs),
            Form::Expert => FfnJob::of_residual(layer, hidden, rows, pairs),
            Form::Sum(_) => FfnJob::of_residual(layer, hidden, rows, pairs).sums(),
            Form::NormedSum(_) => FfnJob::new(layer, hidden, rows, pairs).sums(),
        };
        out.clear();
        out.resize(rows.len(), 0.0);
        let line = match line {
            Some(line) => line,
            None => line.insert(self.service.line(self.max_rows)?),
        };
        let cx = StepCx::new(&self.cancel);
        line.begin(&job, &cx)?;
        line.wait(out, &cx)
    }
}
