//! Which states does a sequence hold? That behind its last row, the one before its last step, and some on the way.
//!
//! A state says all of the positions up to it and nothing of where they part, so a sequence can only go back to where one
//! was kept. A step never writes a state that it reads: the one before the step stays, so that steps can be repeated, and
//! states can be shared. Those at borders of blocks are found by the tokens up to there, as pages are.

use super::{Pages, Sequence, Store};
use crate::arch::STATES_HELD;
use crate::engine::Segment;
use crate::engine::backend::{PAGE, Run};
use crate::error::{Error, ErrorKind, Result};

/// A sequence's states.
#[derive(Default)]
pub(super) struct States {
    /// In the order of their positions.
    held: Vec<Held>,
    /// Nobody's: what later steps write.
    spare: Vec<u32>,
    pending: Option<Pending>,
}

#[derive(Clone, Copy)]
struct Held {
    /// Positions up to there are in it.
    at: usize,
    page: u32,
    mark: Mark,
}

/// Whether a state is kept for going back there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    No,
    /// Behind what was sure of the last step.
    Sure,
    /// The last border that single rows passed.
    Passed,
    /// The last border within a text that was computed together: where other sequences may part.
    Text,
}

/// What a step under way writes.
struct Pending {
    to: u32,
    mark: Option<Held>,
    /// Rows of tokens that were drafted are among its own.
    drafted: bool,
}

impl Pending {
    fn pages(&self) -> impl Iterator<Item = u32> + use<> {
        [Some(self.to), self.mark.map(|mark| mark.page)].into_iter().flatten()
    }
}

impl States {
    fn with_room() -> Self {
        // Steps take nothing.
        const ROOM: usize = 8;
        Self { held: Vec::with_capacity(ROOM), spare: Vec::with_capacity(ROOM), pending: None }
    }

    fn at(&self, at: usize) -> Option<u32> {
        self.held.iter().find(|held| held.at == at).map(|held| held.page)
    }

    /// Where its states are, the last first.
    pub(super) fn positions(&self) -> impl Iterator<Item = usize> {
        self.held.iter().rev().map(|held| held.at)
    }
}

impl Sequence {
    /// The state behind its last row, where it has any.
    pub(in crate::model) fn state(&self) -> Option<u32> {
        self.states.at(self.len)
    }

    /// Where one was [placed](Pages::place), ahead of its positions.
    pub(in crate::model) fn placed_state(&self) -> Option<u32> {
        self.states.held.last().map(|held| held.page)
    }

    /// All its states, those without positions included.
    #[cfg(test)]
    pub(in crate::model) fn all_states(&self) -> Vec<u32> {
        let States { held, spare, pending } = &self.states;
        let pending = pending.iter().flat_map(Pending::pages);
        held.iter().map(|held| held.page).chain(spare.iter().copied()).chain(pending).collect()
    }
}

impl Pages {
    /// The group of states, where layers have some.
    pub(super) fn states(&self) -> Option<usize> {
        self.groups.iter().position(|group| group.spec.state)
    }

    /// The state of a sequence's first `at` positions: its own, or one that is kept.
    pub(super) fn state(&self, sequence: &Sequence, group: usize, at: usize) -> Option<u32> {
        let kept = || {
            let block = (at / PAGE).checked_sub(1).filter(|_| at.is_multiple_of(PAGE))?;
            self.chain.page(*sequence.blocks.get(block)?, group)
        };
        sequence.states.at(at).or_else(kept)
    }

    /// The states of a sequence of another one's first `len` positions.
    pub(super) fn branch_states(&mut self, from: &Sequence, group: usize, len: usize) -> States {
        let mut states = States::with_room();
        let sure = from.states.held.iter().any(|held| held.at == len && held.mark == Mark::Sure);
        // Where another shard has no state there, all of them go back to where the step began.
        let last = from.states.held.iter().map(|held| held.at).filter(|at| sure && *at < len).max();
        let stays = |held: &&Held| held.at < len && (held.mark != Mark::No || Some(held.at) == last);
        states.held.extend(from.states.held.iter().filter(stays));
        if let Some(page) = self.state(from, group, len).filter(|_| len > 0) {
            let own = from.states.held.iter().find(|held| held.at == len);
            states.held.push(own.copied().unwrap_or(Held { at: len, page, mark: Mark::Text }));
        }
        states.held.iter().for_each(|held| self.groups[group].take(held.page));
        states
    }

    /// A place for a state behind `len` positions.
    pub(super) fn place_state(&mut self, group: usize, len: usize, store: &mut dyn Store) -> Result<States> {
        let mut states = States::with_room();
        if len > 0 {
            states.held.push(Held { at: len, page: self.take(group, store)?, mark: Mark::No });
        }
        Ok(states)
    }

    /// Takes what steps up to position `end` write: as one state is read, another one, and a third where a border on the
    /// way keeps one and memory is not tight.
    pub(super) fn reserve_states(
        &mut self,
        sequence: &mut Sequence,
        group: usize,
        end: usize,
        tight: bool,
        store: &mut dyn Store,
    ) -> Result<()> {
        if let Some(pending) = sequence.states.pending.take() {
            sequence.states.spare.extend(pending.pages());
        }
        if end <= sequence.len {
            return Ok(());
        }
        let own = |held: &&Held| held.mark != Mark::Text && self.is_own(group, held.page);
        let own = sequence.states.held.iter().filter(own).count() + sequence.states.spare.len();
        let wanted = match sequence.states.spare.is_empty() {
            true if tight => own + 1,
            false if tight => own,
            _ if end / PAGE > sequence.len / PAGE => 3,
            _ => 2,
        };
        for _ in own..wanted {
            let page = self.take(group, store)?;
            sequence.states.spare.push(page);
        }
        Ok(())
    }

    /// Gives up a state that the sequence can do without, which only makes going back cheaper; false when there is none.
    pub(super) fn spare_state(&mut self, sequence: &mut Sequence, store: &mut dyn Store) -> bool {
        let Some(group) = self.states() else { return false };
        let len = sequence.len;
        let States { held, spare, .. } = &mut sequence.states;
        let page = if spare.len() > 1 {
            spare.pop()
        } else {
            let marks = [Mark::No, Mark::Sure, Mark::Passed, Mark::Text];
            let of = |mark: Mark| held.iter().position(|held| held.at != len && held.mark == mark);
            marks.into_iter().find_map(of).map(|at| held.remove(at).page)
        };
        page.is_some_and(|page| {
            self.give_up(group, page, store);
            true
        })
    }

    fn is_own(&self, group: usize, page: u32) -> bool {
        self.groups[group].pages[page as usize].users == 1
    }

    /// What a segment's rows behind its sequence read and write, which was [reserved](Self::reserve_states). They are the
    /// rows from `first` on of a step.
    pub(in crate::model) fn begin(
        &mut self,
        sequence: &mut Sequence,
        group: usize,
        first: usize,
        segment: &Segment,
        store: &mut dyn Store,
    ) -> Result<Run> {
        let to = match sequence.states.spare.pop() {
            Some(page) => page,
            None => {
                let all = [Mark::No, Mark::Sure, Mark::Passed, Mark::Text];
                let none = || Error::new(ErrorKind::Internal, "a step has no room for its state");
                self.recycle(sequence, group, &all).ok_or_else(none)?
            }
        };
        let Segment { rows, drafted, .. } = *segment;
        let (len, end) = (sequence.len, sequence.len + rows);
        let (sure, border) = (end - drafted.min(rows), (len / PAGE + 1) * PAGE);
        let (at, mark) = match drafted {
            0 => (end / PAGE * PAGE, Mark::No),
            // A border keeps its state, from which what is sure is computed again if need be.
            _ if border <= sure => (border, Mark::No),
            _ => (sure, Mark::Sure),
        };
        // One more where there is memory for it; else what comes back is computed from further on.
        let mark = (at > len && at < end).then(|| {
            let own = sequence.states.spare.pop();
            let again = own.is_none() && drafted > 0;
            let own = if again { self.recycle(sequence, group, &[Mark::No, Mark::Sure]) } else { own };
            own.or_else(|| self.take(group, store).ok()).map(|page| Held { at, page, mark })
        });
        let mark = mark.flatten();
        sequence.states.pending = Some(Pending { to, mark, drafted: drafted > 0 });
        let mark = mark.map(|mark| (mark.at - len, mark.page));
        Ok(Run { rows: first..first + rows, from: sequence.states.at(len), to, mark })
    }

    /// A state of the sequence's own, of the first of these kinds, that it can do without.
    fn recycle(&mut self, sequence: &mut Sequence, group: usize, marks: &[Mark]) -> Option<u32> {
        let len = sequence.len;
        let free = |mark: Mark| {
            let free = |held: &Held| held.at != len && held.mark == mark && self.is_own(group, held.page);
            sequence.states.held.iter().position(free)
        };
        let at = marks.iter().find_map(|mark| free(*mark))?;
        let page = sequence.states.held.remove(at).page;
        self.unlabel(group, page);
        Some(page)
    }

    /// Notes that a step has written its states, up to position `end`; whether some of its rows were of drafted tokens.
    pub(super) fn wrote(&mut self, sequence: &mut Sequence, end: usize) -> bool {
        let Some(Pending { to, mark, drafted }) = sequence.states.pending.take() else { return false };
        let held = &mut sequence.states.held;
        held.extend(mark);
        held.push(Held { at: end, page: to, mark: Mark::No });
        drafted
    }

    /// Lets the state behind a sequence's last block be found, whose node this is.
    pub(super) fn label_state(
        &mut self,
        sequence: &mut Sequence,
        group: usize,
        node: super::NodeId,
        single: bool,
    ) {
        let at = (sequence.blocks.len() + 1) * PAGE;
        let Some(held) = sequence.states.held.iter_mut().find(|held| held.at == at) else { return };
        // Another one may be found already, and be gone before this one is.
        held.mark = if single { Mark::Passed } else { Mark::Text };
        if self.chain.page(node, group).is_none() {
            self.chain.label(node, group, held.page);
            self.groups[group].pages[held.page as usize].label = Some(node);
        }
    }

    /// Gives up what a sequence need not hold behind a step from `start` on.
    pub(super) fn thin_out(
        &mut self,
        sequence: &mut Sequence,
        group: usize,
        start: usize,
        store: &mut dyn Store,
    ) {
        let len = sequence.len;
        let mut at = 0;
        while let Some(held) = sequence.states.held.get(at).copied() {
            let last = |mark| sequence.states.held.iter().rfind(|held| held.mark == mark).map(|held| held.at);
            let marked = match held.mark {
                Mark::No => false,
                Mark::Sure => held.at > start,
                Mark::Passed | Mark::Text => last(held.mark) == Some(held.at),
            };
            if held.at == len || held.at == start || marked {
                at += 1;
                continue;
            }
            sequence.states.held.remove(at);
            // Others may begin with the same text; what single rows passed is written again.
            if held.mark == Mark::Text || !self.is_own(group, held.page) {
                self.give_up(group, held.page, store);
            } else {
                self.unlabel(group, held.page);
                sequence.states.spare.push(held.page);
            }
        }
        let States { held, .. } = &sequence.states;
        let goes_back = held.iter().any(|held| held.mark == Mark::Sure);
        let most = STATES_HELD as usize - usize::from(!goes_back);
        let room = most.saturating_sub(held.len());
        while sequence.states.spare.len() > room
            && let Some(page) = sequence.states.spare.pop()
        {
            self.give_up(group, page, store);
        }
    }

    /// Gives up all of a sequence's states.
    pub(super) fn close_states(&mut self, states: States, store: &mut dyn Store) {
        let Some(group) = self.states() else { return };
        let States { held, spare, pending } = states;
        let pending = pending.iter().flat_map(Pending::pages);
        for page in spare.into_iter().chain(pending).chain(held.into_iter().map(|held| held.page)) {
            self.give_up(group, page, store);
        }
    }
}
