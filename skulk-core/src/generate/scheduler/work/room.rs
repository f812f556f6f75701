//! Which job gets pages, and who gives his up when there are too few?

use std::sync::Arc;

use super::{Running, Waiting, Worker, no_sequence};
use crate::engine::PAGE_TOKENS;
use crate::generate::WhenFull;
use crate::generate::session::Shared;

impl Worker {
    /// Takes pages for a job's rows; false when it cannot take part now.
    pub(super) fn reserve(&mut self, at: usize, rows: usize) -> bool {
        let (seq, end) = {
            let state = self.running[at].job.turn.shared.state();
            (state.seq, state.held.len() + rows)
        };
        // Which states there are changes with each step.
        if end <= self.running[at].reserved && !self.limits.recurrent {
            return true;
        }
        loop {
            let found = seq.ok_or_else(no_sequence).and_then(|seq| self.stages.reserve(seq, end));
            let Err(error) = found else {
                self.running[at].reserved = end.next_multiple_of(PAGE_TOKENS);
                return true;
            };
            // Memory that others have now may be free later.
            let full = error.is_full();
            let when_full = self.limits.when_full;
            if full && when_full != WhenFull::Fail && self.evict() {
                continue;
            }
            let others = when_full == WhenFull::Wait && self.running.len() > 1;
            if full && when_full != WhenFull::Fail && (others || self.will_free()) {
                self.running[at].starved = true;
                return false;
            }
            // What it has may do for those behind it.
            self.fail(at, error);
            return false;
        }
    }

    /// Whether the thread will hear of pages that others had: those who tell of them, and sessions that are being dropped.
    /// What idle ones had was taken before.
    fn will_free(&self) -> bool {
        let running = |running: &&Running| running.job.turn.shared.state().seq.is_some();
        self.signals.will_free() || self.stages.sequences() > self.running.iter().filter(running).count()
    }

    /// Takes the sequence of the session that has done nothing for longest; false when there is none.
    pub(super) fn evict(&mut self) -> bool {
        while let Some(shared) = self.idle.pop_front() {
            let Some(shared) = shared.upgrade() else { continue };
            // One that runs again is in the list no more when its turn ends; till then it is not idle.
            if self.running.iter().any(|running| Arc::ptr_eq(&running.job.turn.shared, &shared)) {
                continue;
            }
            if self.forget(&shared) {
                return true;
            }
        }
        false
    }

    /// Gives up what the stages hold of a session; it is computed again when it is needed.
    pub(super) fn forget(&self, shared: &Shared) -> bool {
        let mut state = shared.state();
        state.held.clear();
        let seq = state.seq.take();
        if let Some(seq) = seq {
            self.stages.close(seq);
        }
        seq.is_some()
    }

    /// When no job can go on for want of pages, takes those of one of them: of lower priority, of one whose reader has no
    /// room, or that came last. It goes on when another one has ended.
    pub(super) fn make_room(&mut self) -> bool {
        // Whoever gives pages back tells.
        if !self.running.iter().any(|running| running.starved) || self.will_free() {
            return false;
        }
        let victim = self.running.iter().enumerate().min_by_key(|(_, running)| {
            let Running { job, arrival, .. } = running;
            (job.ask.has_room(), job.priority, std::cmp::Reverse(*arrival))
        });
        let Some((at, _)) = victim else { return false };
        let Running { job, place, arrival, on_cancel, .. } = self.running.remove(at);
        self.forget(&job.turn.shared);
        let priority = job.priority;
        place.put(job);
        self.waiting.push(Waiting { place, priority, arrival, on_cancel, begun: true, after: 1 });
        self.running.iter_mut().for_each(|running| running.starved = false);
        true
    }
}
