//! What does the thread do, over and over? Take commands, choose a step's rows, compute them, hand out the results.

mod ahead;
mod room;

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::job::Place;
use super::share::{Candidate, Room, share};
use super::{Command, Drafted, Job, Rows, Signals, Taken};
use crate::cancel::{CancelToken, OnCancel};
use crate::engine::{Batch, Logits, Reply, Segment, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::WhenFull;
use crate::generate::draft::{Beside, Chance, Draft, Gate, MOST, Second};
use crate::generate::session::{Shared, State, common};
use crate::generate::stages::Stages;
use crate::ids::{SeqId, TokenId};

/// What a model's sessions may take.
#[derive(Debug, Clone, Copy)]
pub(in crate::generate) struct Limits {
    /// Sessions that run at a time; those whose reader has no room do not count.
    pub(in crate::generate) sessions: usize,
    /// Rows of a step, and prompt rows of a step.
    pub(in crate::generate) rows: usize,
    pub(in crate::generate) chunk: usize,
    pub(in crate::generate) when_full: WhenFull,
    /// Positions of a session.
    pub(in crate::generate) context: usize,
    /// What is kept goes back only to where a step began, or to what was sure of it.
    pub(in crate::generate) recurrent: bool,
}

/// A job's part of a step.
#[derive(Debug, Clone)]
struct Part {
    at: usize,
    /// Rows of its session's tokens.
    rows: usize,
    /// Drafted tokens behind them, within the step's.
    drafted: Range<usize>,
    /// All logits of its rows are wanted.
    of_all: bool,
    /// The second model drafts.
    by_model: bool,
    other: Other,
}

/// Another guess at a part's first drafted token.
#[derive(Debug, Clone, Default)]
struct Other {
    token: Option<TokenId>,
    /// The chances that it is right, of a text's and of the second model's.
    chances: [f64; 2],
    /// Whether it is computed; `None`: where that pays.
    tree: Option<bool>,
}

/// A copy of a part's sequence in which another guess is computed.
struct Fork {
    /// The job, and its segment.
    at: usize,
    segment: usize,
    seq: SeqId,
}

pub(super) struct Worker {
    stages: Arc<Stages>,
    limits: Limits,
    signals: Arc<Signals>,
    commands: VecDeque<Command>,
    waiting: Vec<Waiting>,
    running: Vec<Running>,
    /// Sessions that have a sequence and do nothing, the one that was used last at the end.
    idle: VecDeque<Weak<Shared>>,
    /// Counts jobs as they come, and steps.
    arrivals: u64,
    steps: usize,
    /// What cuts the last step off.
    step: CancelToken,
    /// What tokens ahead cost and give.
    gate: Gate,
    /// The model that drafts, and what is said of it once it does no more.
    draft: Option<Draft>,
    second: Option<Arc<Second>>,
    warning: Option<String>,
    // Used again for every step.
    candidates: Vec<Candidate>,
    chosen: Vec<(usize, usize)>,
    parts: Vec<Part>,
    forks: Vec<Fork>,
    drafts: Vec<TokenId>,
    chances: Vec<(Chance, usize)>,
    /// Tokens that the step has given so far.
    given: usize,
    segments: Vec<Segment>,
    tokens: Vec<TokenId>,
    replies: [Reply; 2],
}

/// A job that has not begun, or that had to give its pages to others.
struct Waiting {
    place: Arc<Place>,
    priority: i32,
    /// When it came.
    arrival: u64,
    /// Ends the job when it is cancelled, or the step that it is in.
    on_cancel: OnCancel,
    /// It has begun before.
    begun: bool,
    /// How many jobs must have ended before it may try again.
    after: u64,
}

struct Running {
    job: Job,
    /// Where it waits when it must.
    place: Arc<Place>,
    arrival: u64,
    on_cancel: OnCancel,
    /// Positions that it has pages for.
    reserved: usize,
    /// Rows before its next token's that are computed again, as what is kept did not go back to there.
    again: usize,
    /// What the second model holds of it.
    beside: Beside,
    /// There are no pages for it now.
    starved: bool,
    /// The job is over, and this is how.
    over: Option<Result<()>>,
}

impl Worker {
    pub(super) fn new(
        (stages, second): (Arc<Stages>, Option<Arc<Second>>),
        limits: Limits,
        signals: Arc<Signals>,
    ) -> Self {
        Self {
            stages,
            limits,
            signals,
            commands: VecDeque::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            idle: VecDeque::new(),
            arrivals: 0,
            steps: 0,
            step: CancelToken::new(),
            gate: Gate::default(),
            draft: second.clone().map(Draft::new),
            second,
            warning: None,
            candidates: Vec::new(),
            chosen: Vec::new(),
            parts: Vec::new(),
            forks: Vec::new(),
            drafts: Vec::new(),
            chances: Vec::new(),
            given: 0,
            segments: Vec::new(),
            tokens: Vec::new(),
            replies: Default::default(),
        }
    }

    /// Works until the model is dropped.
    pub(super) fn run(&mut self) {
        let mut idle = true;
        while self.signals.take(&mut self.commands, idle) {
            let more = catch_unwind(AssertUnwindSafe(|| self.turn()));
            idle = more.map_or_else(|_| self.lose_all(), |more| !more);
        }
    }

    /// Does what was asked for, then a step; false when there is nothing that can be done now.
    fn turn(&mut self) -> bool {
        if !self.commands.is_empty() {
            // Whoever gives pages back tells.
            self.running.iter_mut().for_each(|running| running.starved = false);
        }
        while let Some(command) = self.commands.pop_front() {
            self.obey(command);
        }
        self.end_cancelled();
        self.admit();
        self.step()
    }

    /// Ends all jobs after a panic of this library's own, so that nobody waits for it forever.
    fn lose_all(&mut self) -> bool {
        let error = || Error::new(ErrorKind::Internal, "the model's thread panicked");
        if self.draft.is_none() {
            self.lose_draft(&error());
        }
        (0..self.running.len()).for_each(|at| self.fail(at, error()));
        self.close_forks();
        self.end_over();
        for Waiting { place, on_cancel, .. } in std::mem::take(&mut self.waiting) {
            on_cancel.leave();
            if let Some(job) = place.take() {
                self.end(job, Err(error()));
            }
        }
        true
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start(place, priority, on_cancel) => {
                self.arrivals += 1;
                let arrival = self.arrivals;
                self.waiting.push(Waiting { place, priority, arrival, on_cancel, begun: false, after: 0 });
            }
            Command::Freed => {}
            // The job has gone from its place.
            Command::Cancelled(shared) => drop(shared),
            Command::Close(seq) => self.stages.close(seq),
            Command::Fork(from, to) => self.fork(&from, &to),
            Command::Idle(shared) => self.rest(&shared),
            Command::Evict(done) => {
                let evicted = self.limits.when_full != WhenFull::Fail && self.evict();
                // Who asked may wait no more.
                let _ = done.send(evicted);
            }
        }
    }

    /// Makes a session's sequence a copy of another one's. Where that fails, the copy computes its tokens anew.
    fn fork(&mut self, from: &Arc<Shared>, to: &Arc<Shared>) {
        let (from, mut copy) = (from.state(), to.state());
        if let Some(seq) = from.seq
            && let Ok((seq, len)) = self.stages.fork(seq, from.held.len())
        {
            copy.seq = Some(seq);
            copy.held.clear();
            copy.held.extend_from_slice(&from.held[..len]);
            drop(copy);
            self.rest(to);
        }
    }

    /// Ends jobs that were cancelled.
    fn end_cancelled(&mut self) {
        for at in (0..self.waiting.len()).rev() {
            if self.waiting[at].place.is_left() {
                let Waiting { place, on_cancel, .. } = self.waiting.remove(at);
                // Who cancels may be with the reader's waker, which may wait for this thread.
                on_cancel.leave();
                // It was cancelled on its way back to its place.
                if let Some(job) = place.take() {
                    let cancelled = job.cancel.check();
                    self.end(job, cancelled);
                }
            }
        }
        for running in &mut self.running {
            if let Err(error) = running.job.cancel.check() {
                running.over = Some(Err(error));
            }
        }
        self.end_over();
    }

    /// Ends jobs that are over.
    fn end_over(&mut self) {
        for at in (0..self.running.len()).rev() {
            if let Some(result) = self.running[at].over.take() {
                let Running { job, on_cancel, .. } = self.running.remove(at);
                drop(on_cancel);
                self.end(job, result);
            }
        }
    }

    /// Notes that a session has a sequence and does nothing.
    fn rest(&mut self, shared: &Arc<Shared>) {
        let shared = Arc::downgrade(shared);
        self.idle.retain(|other| !other.ptr_eq(&shared) && other.strong_count() > 0);
        self.idle.push_back(shared);
    }

    /// Ends a job whose session is idle from then on.
    fn end(&mut self, job: Job, result: Result<()>) {
        let shared = Arc::clone(&job.turn.shared);
        if shared.state().seq.is_some() {
            self.rest(&shared);
        }
        // What waited for memory may find some now.
        self.running.iter_mut().for_each(|running| running.starved = false);
        self.waiting.iter_mut().for_each(|waiting| waiting.after = waiting.after.saturating_sub(1));
        job.end(result);
    }

    /// Lets jobs begin while there is room, those of higher priority first, then those that came first.
    fn admit(&mut self) {
        loop {
            let busy = self.running.iter().filter(|running| running.job.ask.has_room()).count();
            if busy >= self.limits.sessions {
                return;
            }
            let alone = busy == 0;
            let next = self.waiting.iter().enumerate().filter(|(_, waiting)| alone || waiting.after == 0);
            let next = next.min_by_key(|(_, w)| (std::cmp::Reverse(w.priority), w.arrival));
            let Some((at, _)) = next else { return };
            let Waiting { place, arrival, on_cancel, begun, .. } = self.waiting.remove(at);
            let Some(mut job) = place.take() else {
                on_cancel.leave();
                continue;
            };
            match self.begin(&mut job, begun) {
                Ok(()) => {
                    if let Some(warning) = &self.warning {
                        job.ask.warn(warning);
                    }
                    let (reserved, again, starved, over) = (0, 0, false, None);
                    self.running.push(Running {
                        job,
                        place,
                        arrival,
                        on_cancel,
                        reserved,
                        again,
                        beside: Beside::default(),
                        starved,
                        over,
                    });
                }
                Err(error) => {
                    drop(on_cancel);
                    // Its stages may be at different lengths.
                    self.forget(&job.turn.shared);
                    self.end(job, Err(error));
                }
            }
        }
    }

    /// Brings a session's sequence to what its tokens share with what is held, by itself or by others. The last token
    /// is always computed, as its logits are needed.
    fn begin(&mut self, job: &mut Job, begun: bool) -> Result<()> {
        let mut state = job.turn.shared.state();
        let State { history, held, seq, .. } = &mut *state;
        if !begun {
            *history = std::mem::take(&mut job.tokens);
        }
        let wanted = match job.ask.wants() {
            // Logits of every token: nothing can be left out.
            (_, Rows::Every) => 0,
            (_, Rows::Last) => history.len() - 1,
        };
        let kept = common(&history[..wanted], held);
        // Others may have computed more of it.
        if kept < wanted || seq.is_none() {
            let (other, found) = self.stages.open(&history[..wanted])?;
            if found > kept || seq.is_none() {
                if let Some(seq) = seq.replace(other) {
                    self.stages.close(seq);
                }
                held.clear();
                held.extend_from_slice(&history[..found]);
            } else {
                self.stages.close(other);
            }
        }
        let kept = common(&history[..wanted], held);
        if kept < held.len()
            && let Some(seq) = seq
        {
            let kept = self.stages.truncate(*seq, kept)?;
            held.truncate(kept);
        }
        let cached = held.len();
        drop(state);
        if !begun {
            job.ask.begin(cached);
        }
        Ok(())
    }

    /// Computes some rows; false when there is nothing that can be computed now.
    fn step(&mut self) -> bool {
        self.candidates.clear();
        for (at, running) in self.running.iter().enumerate() {
            let ask = &running.job.ask;
            if ask.has_room() && !running.starved {
                let state = running.job.turn.shared.state();
                let pending = state.history.len() - state.held.len();
                let (most, priority) = (ask.most_rows(), running.job.priority);
                // Only rows of which the last alone is wanted are like a token that follows.
                // What is much is computed in pieces.
                let few = pending <= self.limits.rows.min(2 * MOST + 1);
                let decodes = pending == 1 + running.again && few && most > 0;
                self.candidates.push(Candidate { at, pending, decodes, most, priority });
            }
        }
        let room = Room { rows: self.limits.rows, chunk: self.limits.chunk };
        let mut chosen = std::mem::take(&mut self.chosen);
        share(room, &mut self.candidates, self.steps, &mut chosen);
        self.steps = self.steps.wrapping_add(1);
        chosen.retain(|(at, rows)| self.reserve(*at, *rows));
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        parts.extend(chosen.drain(..).map(|(at, rows)| Part {
            at,
            rows,
            drafted: 0..0,
            of_all: false,
            by_model: false,
            other: Other::default(),
        }));
        self.chosen = chosen;
        let any = !parts.is_empty();
        if any {
            let start = Instant::now();
            let all_decode = parts.iter().all(|part| self.decodes(part));
            let (step, beside) = if all_decode { self.draft(&mut parts) } else { Default::default() };
            self.given = 0;
            self.compute(&parts);
            if !all_decode {
                self.gate.pass(start.elapsed());
            }
            if all_decode && self.given > 0 {
                let taken = start.elapsed();
                self.gate.note(step, self.given, taken.saturating_sub(beside));
                if let Some(without) = self.gate.without(parts.len()) {
                    let taken = taken.as_secs_f64();
                    let without = if step.is_plain() { taken } else { without };
                    parts.iter().for_each(|part| self.running[part.at].job.ask.note_step(taken, without));
                }
            }
        }
        self.parts = parts;
        let useless = self.draft.as_ref().and_then(|draft| draft.shared.check_use().err());
        if let Some(error) = useless {
            self.draft = None;
            self.lose_draft(&error);
        }
        self.catch_up();
        let ended = self.running.iter().any(|running| running.over.is_some());
        self.end_over();
        any || ended || self.make_room()
    }

    /// Whether a part is its session's next token, with what is computed again for it.
    fn decodes(&self, part: &Part) -> bool {
        let running = &self.running[part.at];
        let state = running.job.turn.shared.state();
        part.rows == 1 + running.again && state.held.len() + part.rows == state.history.len()
    }

    /// Computes rows of these jobs together. Where that fails they are computed one by one, so that only those end that
    /// fail alone.
    fn compute(&mut self, chosen: &[Part]) {
        match self.forward(chosen) {
            Ok(()) => self.hand_out(chosen),
            // One of them was cancelled, or the model is dropped: the others come again.
            Err(_) if self.is_cancelled(chosen) => self.rewind(chosen),
            Err(error) => match chosen {
                [part] if self.forks.is_empty() => self.fail(part.at, error),
                _ => {
                    self.close_forks();
                    chosen.chunks(1).for_each(|one| self.compute(one));
                }
            },
        }
        self.close_forks();
    }

    /// Gives up copies in which nothing was right, and sequences in whose place one is.
    fn close_forks(&mut self) {
        self.forks.drain(..).for_each(|fork| self.stages.close(fork.seq));
    }

    /// Brings stages that have computed more of these jobs than the others back to what all of them have. Later they may
    /// have given up what a sliding window needs for that.
    fn rewind(&mut self, chosen: &[Part]) {
        for Part { at, .. } in chosen {
            // Pages behind what it has computed go back, too.
            self.running[*at].reserved = 0;
            let mut state = self.running[*at].job.turn.shared.state();
            let State { held, seq, .. } = &mut *state;
            let kept = seq.ok_or_else(no_sequence).and_then(|seq| self.stages.truncate(seq, held.len()));
            let lost = kept.as_ref().map_or(0, |kept| held.len() - kept);
            held.truncate(held.len() - lost);
            drop(state);
            self.running[*at].again += lost;
            if let Err(error) = kept {
                self.fail(*at, error);
            }
        }
    }

    fn forward(&mut self, chosen: &[Part]) -> Result<()> {
        self.segments.clear();
        self.tokens.clear();
        let is_head = |beside: &Beside| self.draft.as_ref().is_some_and(|draft| draft.sees(beside));
        let may_draft = self.gate.may_draft(chosen.len(), true);
        for Part { at, rows, drafted, .. } in chosen {
            let Running { job, beside, .. } = &self.running[*at];
            let state = job.turn.shared.state();
            let (start, end, all) = (state.held.len(), state.held.len() + rows, rows + drafted.len());
            let segment = Segment::new(state.seq.ok_or_else(no_sequence)?, start, all);
            let segment = segment.drafted(drafted.len());
            // What rests costs nothing, and has a gap then.
            let taps = match job.ask.has_model() {
                Some(always) => is_head(beside) && (always || may_draft),
                None => false,
            };
            let segment = match self.draft.as_ref().filter(|_| taps) {
                Some(draft) => segment.tap(draft.tapped(*rows, all)),
                None => segment,
            };
            self.segments.push(match job.ask.wants() {
                (logits, Rows::Every) => segment.want_every(logits),
                (logits, Rows::Last) if end == state.history.len() => segment.want(rows - 1..all, logits),
                _ => segment,
            });
            self.tokens.extend_from_slice(&state.history[start..end]);
            self.tokens.extend_from_slice(&self.drafts[drafted.clone()]);
        }
        self.add_forks(chosen);
        self.step = self.signals.next_step();
        // Who was cancelled before the step had this token has not cancelled it.
        chosen.iter().try_for_each(|part| self.running[part.at].job.cancel.check())?;
        let (batch, cx) = (Batch::new(&self.segments, &self.tokens), StepCx::new(&self.step));
        let is_tapped = self.segments.iter().any(|segment| !segment.tapped.is_empty());
        let batch = match self.draft.as_ref().filter(|_| is_tapped) {
            Some(draft) => batch.taps(draft.taken()),
            None => batch,
        };
        self.stages.forward(&batch, &mut self.replies, &cx)
    }

    /// Adds the rows of copies in which other guesses are computed.
    fn add_forks(&mut self, chosen: &[Part]) {
        for fork in &mut self.forks {
            let Some(number) = chosen.iter().position(|part| part.at == fork.at) else { continue };
            let (Part { rows, other, .. }, segment) = (&chosen[number], &self.segments[number]);
            let state = self.running[fork.at].job.turn.shared.state();
            self.tokens.extend_from_slice(&state.history[segment.start..segment.start + rows]);
            self.tokens.extend(other.token);
            let copy = Segment::new(fork.seq, segment.start, rows + 1).drafted(1).want_last(segment.logits);
            let tapped = segment.tapped.start..segment.tapped.end.min(rows + 1);
            let copy = if tapped.is_empty() { copy } else { copy.tap(tapped) };
            fork.segment = self.segments.len();
            self.segments.push(copy);
        }
    }

    /// Whether the last step was cut off, or one of its jobs was cancelled before.
    fn is_cancelled(&self, chosen: &[Part]) -> bool {
        let job = |part: &Part| self.running[part.at].job.cancel.is_cancelled();
        self.step.is_cancelled() || chosen.iter().any(job)
    }

    /// Notes what was computed, and lets jobs take the results they want.
    fn hand_out(&mut self, chosen: &[Part]) {
        for (segment, Part { at, rows, drafted, other, .. }) in chosen.iter().enumerate() {
            let mut fork = self.forks.iter_mut().find(|fork| fork.at == *at);
            let Running { job, over, reserved, again, beside, .. } = &mut self.running[*at];
            let mut state = job.turn.shared.state();
            let Segment { start, logits, .. } = self.segments[segment];
            let State { history, held, .. } = &mut *state;
            held.extend_from_slice(&history[start..start + rows]);
            *again = 0;
            let seen = |beside: &mut Beside, replies: &[Reply; 2], segment: usize, rows: usize| {
                if let Some(draft) = &self.draft {
                    let first = self.segments[segment].tapped.start;
                    let tap = |layer| replies[0].tap(segment, layer);
                    draft.see(beside, (start + first, rows - first), tap);
                }
            };
            if logits == Logits::None {
                seen(beside, &self.replies, segment, *rows);
                continue;
            }
            let (reply, known) = (&mut self.replies[0], history.len());
            let computed = fork.as_ref().map(|fork| fork.segment);
            let tokens = &self.drafts[drafted.clone()];
            let drafted = Drafted { tokens, other: other.token.map(|other| (other, computed)) };
            // Readers' wakers are foreign code.
            let take = || job.ask.take(&mut state, reply, segment, drafted);
            let taken = catch_unwind(AssertUnwindSafe(take));
            let State { history, held, seq, .. } = &mut *state;
            let (new, right) = (&history[known..], drafted.right(&history[known..]));
            held.extend_from_slice(&new[..right]);
            let mut all = start + rows + tokens.len();
            let copied = drafted.other_right(new).zip(fork.as_mut()).zip(seq.as_mut());
            let segment = match copied {
                Some(((segment, fork), seq)) => {
                    // What is right goes on in the copy.
                    std::mem::swap(seq, &mut fork.seq);
                    (*reserved, all) = (0, start + rows + 1);
                    segment
                }
                None => segment,
            };
            seen(beside, &self.replies, segment, rows + right);
            self.given += (history.len() - known).min(right + 1);
            *over = match taken {
                Ok(Ok(Taken::GoesOn)) => None,
                Ok(Ok(Taken::Again)) => {
                    // What was right is not computed again but for the last, whose row it is about.
                    let sure = if right > 0 { held.len() - 1 } else { start };
                    *again = if right > 0 { 0 } else { rows - 1 };
                    held.truncate(sure);
                    None
                }
                Ok(result) => Some(result.map(drop)),
                Err(_) => {
                    Some(Err(Error::new(ErrorKind::Cancelled, "what was to take the results panicked")))
                }
            };
            if held.len() < all
                && let Some(seq) = *seq
            {
                // Pages behind go back, too.
                *reserved = 0;
                match self.stages.truncate(seq, held.len()) {
                    Ok(kept) => {
                        *again += held.len() - kept;
                        held.truncate(kept);
                    }
                    Err(error) => {
                        drop(state);
                        self.fail(*at, error);
                    }
                }
            }
        }
    }

    /// Ends a job that failed. Its stages may be at different lengths: its sequence is given up.
    fn fail(&mut self, at: usize, error: Error) {
        self.forget(&self.running[at].job.turn.shared);
        // What was over before stays as it ended.
        self.running[at].over.get_or_insert(Err(error));
    }
}

fn no_sequence() -> Error {
    Error::new(ErrorKind::Internal, "a session that runs has no sequence")
}
