//! Which sessions compute tokens ahead in a step, and how many?

use super::{Part, Worker};
use crate::engine::{Logits, PAGE_TOKENS};
use crate::generate::draft::{Chance, MOST, MOST_OF_ALL, Step};

impl Worker {
    /// Adds drafted tokens to the parts of sessions that decode, where that pays or is asked for.
    pub(super) fn draft(&mut self, parts: &mut [Part]) -> Step {
        self.drafts.clear();
        self.chances.clear();
        let rows: usize = parts.iter().map(|part| part.rows).sum();
        let mut step = Step { sessions: parts.len(), again: rows - parts.len(), drafted: 0, own: true };
        let mut room = self.limits.rows.saturating_sub(rows);
        let mut of_all = MOST_OF_ALL;
        for (number, part) in parts.iter_mut().enumerate() {
            let job = &mut self.running[part.at].job;
            let state = job.turn.shared.state();
            part.of_all = job.ask.wants().0 == Logits::All;
            let most = if part.of_all { MOST_OF_ALL } else { MOST };
            // Without memory for the state before them, what is computed again grows by each step with drafts.
            let most = if part.rows > MOST { 0 } else { most };
            let most = most.min(self.limits.context.saturating_sub(state.history.len()));
            let proposal = job.ask.draft(&state.history, most);
            let first = self.drafts.len();
            self.drafts.extend_from_slice(proposal.tokens);
            part.drafted = first..first;
            if proposal.always {
                step.own = false;
                let most = if part.of_all { room.min(of_all) } else { room };
                part.drafted.end += proposal.tokens.len().min(most);
                room -= part.drafted.len();
                of_all -= if part.of_all { part.drafted.len() } else { 0 };
            } else {
                let chances = Chance::chain(proposal.chance, self.limits.recurrent);
                self.chances.extend(chances.take(proposal.tokens.len()).map(|chance| (chance, number)));
            }
        }
        // Which of a session's own comes first is all the same: they are taken from its first one on.
        self.chances.sort_unstable_by(|(a, _), (b, _)| b.right.total_cmp(&a.right));
        self.chances.retain(|(_, number)| {
            let (counts, left) = (parts[*number].of_all, of_all > 0);
            of_all -= usize::from(counts && left);
            !counts || left
        });
        let chances = self.chances.iter().take(room).map(|(chance, _)| *chance);
        let rows = self.gate.rows(step, chances);
        for (_, number) in &self.chances[..rows] {
            parts[*number].drafted.end += 1;
        }
        step.drafted = parts.iter_mut().map(|part| self.reserve_ahead(part)).sum();
        step
    }

    /// Takes pages for a part's drafted tokens; where there are none, it computes those that have some. Says how many.
    fn reserve_ahead(&mut self, part: &mut Part) -> usize {
        let running = &mut self.running[part.at];
        let (seq, held) = {
            let state = running.job.turn.shared.state();
            (state.seq, state.held.len() + part.rows)
        };
        let end = held + part.drafted.len();
        let drafts = !part.drafted.is_empty();
        if end > running.reserved || (drafts && self.limits.recurrent) {
            match seq.map(|seq| self.stages.reserve(seq, end)) {
                Some(Ok(())) => running.reserved = end.next_multiple_of(PAGE_TOKENS),
                _ if self.limits.recurrent => part.drafted.end = part.drafted.start,
                _ => part.drafted.end = part.drafted.start + running.reserved.saturating_sub(held),
            }
        }
        part.drafted.len()
    }
}
