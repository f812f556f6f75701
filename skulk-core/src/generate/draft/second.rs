//! What would a smaller model say? One with the same vocabulary runs ahead in a sequence of its own beside each session's.
//!
//! It computes the tokens that it has not seen yet in one step, and then its likeliest token over and over, of all sessions
//! together. What was not right is forgotten when it drafts again.
//!
//! A head for tokens ahead (MTP) is such a model, too: its rows are a token each with the hidden state that the model gave of
//! the row before it, and where it drafts on its own, with the one that it gave itself. An assistant drafts so from the
//! session's own keys and values: there is nothing that it has not seen.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::shortlist::Shortlist;
use super::{FIRST_OF_MODEL, MOST, Times};
use crate::arch::{AheadSpec, ArchSpec};
use crate::cancel::CancelToken;
use crate::engine::{Batch, Logits, Reply, Segment, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::StageInfo;
use crate::generate::session::{State, common};
use crate::generate::stages::Stages;
use crate::ids::{SeqId, TokenId};

/// What it takes of the model, and what it drafts.
pub(in crate::generate) struct Drafts {
    /// Layers of the model whose hidden states it takes; their number stands for the last norm.
    pub(in crate::generate) taken: Vec<usize>,
    /// Tokens by their number in it, where these are not all.
    pub(in crate::generate) tokens: Option<Vec<TokenId>>,
}

/// What it takes of the model beside tokens: hidden states of so many numbers, of all that it takes some of.
#[derive(Debug, Clone, Copy)]
struct Head {
    width: usize,
    /// It has no sequences: it attends to the model's own.
    assists: bool,
    /// What is tapped of it where it goes on from that.
    own: usize,
    /// Files may mean it otherwise than they are taken.
    may_err: bool,
}

/// A model that drafts for another one.
pub(in crate::generate) struct Second {
    pub(in crate::generate) stages: Arc<Stages>,
    pub(in crate::generate) info: StageInfo,
    /// Positions of a sequence, and rows of a step.
    pub(in crate::generate) context: usize,
    pub(in crate::generate) rows: usize,
    /// Tokens from there on are unknown to the other one.
    pub(in crate::generate) vocab_size: usize,
    pub(in crate::generate) ends: Vec<TokenId>,
    /// What it keeps goes back nowhere near: it runs ahead in copies.
    pub(in crate::generate) recurrent: bool,
    head: Option<Head>,
    drafts: Drafts,
    usual: Usual,
    /// Steps that it has drafted for before a token of it was right.
    wrong: AtomicU32,
    failed: OnceLock<String>,
}

/// How often its tokens are right, in all generations.
struct Usual(AtomicU32);

/// How much of it each draft changes, and each generation that begins forgets.
const CHANGE: f32 = 0.02;

impl Usual {
    fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn turn_to(&self, chance: f32) {
        let usual = self.get();
        self.0.store((usual + CHANGE * (chance - usual)).to_bits(), Ordering::Relaxed);
    }
}

impl Second {
    pub(in crate::generate) fn new(
        stages: Arc<Stages>,
        info: StageInfo,
        arch: &ArchSpec,
        [context, rows, vocab_size]: [usize; 3],
        (ends, drafts): (Vec<TokenId>, Drafts),
    ) -> Self {
        let recurrent = arch.has_states();
        let usual = Usual(AtomicU32::new((FIRST_OF_MODEL as f32).to_bits()));
        let head = arch.ahead.map(|ahead| Head {
            width: arch.row_width(),
            assists: arch.is_assistant(),
            own: arch.own_tap(),
            may_err: matches!(ahead, AheadSpec::Head { .. }),
        });
        let (wrong, failed) = (AtomicU32::new(0), OnceLock::new());
        Self { stages, info, context, rows, vocab_size, ends, recurrent, head, drafts, usual, wrong, failed }
    }

    /// Tokens that it looks at, where an own vocabulary does not say which.
    fn shortlist(&self) -> Option<Shortlist> {
        if self.drafts.tokens.is_some() { None } else { Shortlist::new(self.vocab_size) }
    }

    /// Whether it takes hidden states of the model that it drafts for.
    pub(in crate::generate) fn is_head(&self) -> bool {
        self.head.is_some()
    }

    /// `Ok` while it drafts.
    pub(in crate::generate) fn check(&self) -> Result<()> {
        match self.failed.get() {
            None => Ok(()),
            Some(why) => Err(Error::new(ErrorKind::EngineFailed, format!("the draft model failed: {why}"))
                .with("field", "speculate")
                .with_hint("load the model again, or choose another way to speculate")),
        }
    }

    /// Notes that it drafts no more.
    pub(in crate::generate) fn fail(&self, why: String) {
        let _ = self.failed.set(why);
    }

    /// The chance that a token is right, for a generation that begins: some of what is known is forgotten, so that what did
    /// not pay is tried again one day.
    pub(super) fn begin(&self) -> f64 {
        self.usual.turn_to(FIRST_OF_MODEL as f32);
        self.usual()
    }

    /// The chance that a token is right, over all generations.
    pub(in crate::generate) fn usual(&self) -> f64 {
        f64::from(self.usual.get())
    }

    /// Notes how many of a step's drafted tokens were right, and how often those of their generation are; and whether the
    /// tokens were the model's own choice.
    pub(super) fn note(&self, accepted: usize, chance: f64, own: bool) {
        self.usual.turn_to(chance as f32);
        if accepted > 0 {
            self.wrong.store(NEVER, Ordering::Relaxed);
        } else if own && self.wrong.load(Ordering::Relaxed) < NEVER {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `Ok` unless it is a head whose conventions may be others, and of which nothing was right, ever.
    pub(in crate::generate) fn check_use(&self) -> Result<()> {
        let wrong = self.wrong.load(Ordering::Relaxed);
        if !self.head.is_some_and(|head| head.may_err) || !(WRONG..NEVER).contains(&wrong) {
            return Ok(());
        }
        let message = format!("in none of its first {wrong} steps a token was right");
        Err(Error::new(ErrorKind::EngineFailed, message).with_hint(
            "it may be another model's, or its norms or its order of another convention: the card may say which, with mtp_norm_convention and mtp_concat_order",
        ))
    }
}

/// What it holds of a session.
#[derive(Default)]
pub(in crate::generate) struct Beside {
    seq: Option<Own>,
    /// Tokens of the session that it has computed, and its own behind them.
    known: usize,
    own: Vec<TokenId>,
    /// Tokens of the session that were noted as used.
    noted: usize,
    /// Hidden states that a head has not seen yet, from a row of the session on. Rows before that are what it has computed,
    /// but for those whose hidden states nobody had.
    from: usize,
    hidden: Vec<f32>,
    /// It has tokens that the model does not know, or there was no memory.
    hopeless: bool,
}

impl Beside {
    /// Whether a session's sequence ends with the row whose hidden state is known, and the next token is, too.
    fn is_next(&self, state: &State) -> bool {
        let sure = state.history.len().saturating_sub(1);
        !self.hidden.is_empty() && self.from + 1 == sure && state.held.len() == sure && state.seq.is_some()
    }
}

/// A sequence, which ends when it is dropped.
struct Own(Arc<Stages>, SeqId);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}

/// So many steps of a head's tell that no token will be right; and what stands for one that was.
const WRONG: u32 = 48;
const NEVER: u32 = 1 << 20;
/// Tokens that it has not seen of a session where it drafted hardly anything.
const LEAST: usize = 2;
/// Tokens that it has not seen of a session where it drafts in each step: the last step's, at most.
const FEW: usize = MOST + 1;
/// Rows of a session that a head has not seen yet are kept up to so many where it does not draft.
const UNSEEN: usize = 64;

/// The model as steps use it.
pub(in crate::generate) struct Draft {
    pub(in crate::generate) shared: Arc<Second>,
    times: Times,
    /// Seconds of a row that it has not seen, where there are many.
    row: f64,
    /// Tokens that it drafts, where these are not all.
    shortlist: Option<Shortlist>,
    // Used again for every step.
    at: Vec<At>,
    segments: Vec<Segment>,
    tokens: Vec<TokenId>,
    hidden: Vec<f32>,
    /// There is more in the step that it has not seen than the last step's tokens.
    catches_up: bool,
    replies: [Reply; 2],
}

/// What is wanted of the first token's logits.
const FIRST_GUESSES: Logits = Logits::Top(2);

/// The two likeliest tokens behind a segment's row.
fn likeliest(reply: &Reply, segment: usize) -> [Option<TokenId>; 2] {
    let found = reply.logits(segment);
    if let Some(ids) = found.row_ids(0) {
        return [0, 1].map(|at| ids.get(at).copied());
    }
    // Engines may give all where few would do.
    let mut best = [(f32::NEG_INFINITY, None); 2];
    for (logit, id) in found.row(0).unwrap_or_default().iter().zip(0..) {
        if *logit > best[1].0 {
            best[1] = (*logit, Some(TokenId(id)));
        }
        if best[1].0 > best[0].0 {
            best.swap(0, 1);
        }
    }
    best.map(|(_, id)| id)
}

/// A session in a step.
#[derive(Default)]
struct At {
    number: usize,
    /// The sequence that it runs ahead in, with its positions.
    seq: SeqId,
    len: usize,
    copy: Option<Own>,
    /// Where its logits are in the last step.
    segment: Option<usize>,
    depth: usize,
    drafts: [TokenId; MOST],
    drafted: usize,
    /// Its second guess at the first.
    other: Option<TokenId>,
}

impl Draft {
    pub(in crate::generate) fn new(shared: Arc<Second>) -> Self {
        let (at, segments, tokens, hidden) = Default::default();
        let (times, replies) = Default::default();
        let catches_up = false;
        let shortlist = shared.shortlist();
        Self { shared, times, row: 0.0, shortlist, at, segments, tokens, hidden, catches_up, replies }
    }

    /// Layers of the model that are tapped for it.
    pub(in crate::generate) fn taken(&self) -> &[usize] {
        &self.shared.drafts.taken
    }

    /// Notes the hidden states of so many rows of a session from this one on, which are tapped behind layers.
    pub(in crate::generate) fn see<'a>(
        &self,
        beside: &mut Beside,
        (start, n): (usize, usize),
        tap: impl Fn(usize) -> Option<&'a [f32]>,
    ) {
        let Some(Head { width, assists, .. }) = self.shared.head.filter(|_| !beside.hopeless) else { return };
        let taken = self.taken();
        let each = width / taken.len().max(1);
        if n == 0 || taken.iter().any(|layer| tap(*layer).is_none_or(|rows| rows.len() < n * each)) {
            return;
        }
        let row = |at: usize| {
            let parts = taken.iter().filter_map(|layer| tap(*layer));
            parts.flat_map(move |rows| &rows[at * each..(at + 1) * each])
        };
        let Beside { from, hidden, .. } = beside;
        if assists {
            // There is nothing to go on from but the last one.
            hidden.clear();
            hidden.extend(row(n - 1));
            *from = start + n - 1;
            return;
        }
        let end = *from + hidden.len() / width;
        if start > end {
            // Those between are lost.
            hidden.clear();
            *from = start;
        }
        // Some may have been computed again.
        let seen = end.saturating_sub(start);
        (seen..n).for_each(|at| hidden.extend(row(at)));
    }

    /// Which rows of a session's are tapped for it, of `all` in a step of which the first `rows` are sure.
    pub(in crate::generate) fn tapped(&self, rows: usize, all: usize) -> Range<usize> {
        let assists = self.shared.head.is_some_and(|head| head.assists);
        if assists { rows.saturating_sub(1)..all } else { 0..all }
    }

    /// Whether there is much of a session that a head has not seen.
    pub(in crate::generate) fn is_behind(&self, beside: &Beside) -> bool {
        self.shared.head.is_some_and(|head| !beside.hopeless && beside.hidden.len() > UNSEEN * head.width)
    }

    /// Whether a head may draft for a session one day.
    pub(in crate::generate) fn sees(&self, beside: &Beside) -> bool {
        self.shared.is_head() && !beside.hopeless
    }

    /// Forgets what a head has not seen, but for some rows.
    pub(in crate::generate) fn skip(&self, beside: &mut Beside) {
        let Some(Head { width, .. }) = self.shared.head else { return };
        let rows = (beside.hidden.len() / width).saturating_sub(UNSEEN / 2);
        beside.hidden.drain(..rows * width);
        beside.hidden.shrink_to(2 * UNSEEN * width);
        beside.from += rows;
    }

    /// Seconds of one token for each of so many sessions; 0 while that is not known.
    pub(in crate::generate) fn seconds(&self, sessions: usize) -> f64 {
        self.times.of(sessions).unwrap_or_default()
    }

    /// How long it takes until it can draft behind a history, beyond a token or two, and whether that is more than what it
    /// has not seen where it drafts in each step; `None` where it cannot.
    pub(in crate::generate) fn wait(&self, beside: &Beside, state: &State) -> Option<(f64, bool)> {
        let history = &state.history;
        if beside.hopeless || history.len() >= self.shared.context {
            return None;
        }
        let unseen = match self.shared.head {
            None => history.len().saturating_sub(beside.known),
            // Without the last row's there is nothing to go on from.
            Some(_) if beside.hidden.is_empty() => return None,
            Some(head) if head.assists => return beside.is_next(state).then_some((0.0, false)),
            Some(head) => beside.hidden.len() / head.width,
        };
        Some((if unseen > LEAST { unseen as f64 * self.row } else { 0.0 }, unseen > FEW))
    }

    /// Begins a step.
    pub(in crate::generate) fn begin(&mut self) {
        self.at.clear();
        self.segments.clear();
        self.tokens.clear();
        self.hidden.clear();
        self.catches_up = false;
    }

    /// Lets a session take part that wants so many tokens behind its history. Where much of that is to be computed before,
    /// or where there is no memory, it gets none this time.
    pub(in crate::generate) fn add(
        &mut self,
        number: usize,
        beside: &mut Beside,
        state: &State,
        depth: usize,
    ) -> Result<()> {
        let history = &*state.history;
        if let (Some(shortlist), Some(new)) = (&mut self.shortlist, history.get(beside.noted..)) {
            shortlist.see(new);
            beside.noted = history.len();
        }
        match self.shared.head {
            Some(head) if head.assists => {
                self.add_to_assistant(number, beside, state, depth);
                return Ok(());
            }
            Some(head) => return self.add_to_head(head, number, beside, history, depth),
            None => {}
        }
        let Second { stages, context, rows, vocab_size, .. } = &*self.shared;
        let Some(sure) = history.len().checked_sub(1) else { return Ok(()) };
        let Beside { seq, known, own, .. } = beside;
        let seq = match seq {
            None => {
                let (new, found) = stages.open(&history[..sure])?;
                *known = found;
                seq.insert(Own(Arc::clone(stages), new)).1
            }
            Some(Own(_, seq)) => {
                let right = (*known + common(&history[*known..], own)).min(sure);
                *known = match right < *known + own.len() {
                    true => stages.truncate(*seq, right)?,
                    false => right,
                };
                own.clear();
                *seq
            }
        };
        let room = rows.saturating_sub(self.tokens.len());
        let n = (history.len() - *known).min(room);
        let depth = depth.min(context.saturating_sub(history.len())).min(MOST);
        if n == 0 || depth == 0 {
            return Ok(());
        }
        if stages.reserve(seq, *known + n + depth).is_err() {
            beside.hopeless = true;
            return Ok(());
        }
        let (segment, end) = (Segment::new(seq, *known, n), *known + n);
        if history[*known..end].iter().any(|token| token.0 as usize >= *vocab_size) {
            beside.hopeless = true;
            return Ok(());
        }
        let whole = end == history.len();
        let at = whole.then_some(self.segments.len());
        self.catches_up |= n > FEW;
        self.tokens.extend_from_slice(&history[*known..end]);
        self.segments.push(if whole { segment.want_last(FIRST_GUESSES) } else { segment });
        *known = end;
        self.at.push(At { number, seq, len: end, segment: at, depth, ..At::default() });
        Ok(())
    }

    /// The same of a head. With a depth of 0 it sees all rows but the last, from which it drafts later.
    fn add_to_head(
        &mut self,
        Head { width, .. }: Head,
        number: usize,
        beside: &mut Beside,
        history: &[TokenId],
        depth: usize,
    ) -> Result<()> {
        let Second { stages, context, rows, vocab_size, .. } = &*self.shared;
        let Beside { seq, known, from, hidden, .. } = beside;
        let unseen = hidden.len() / width;
        let room = rows.saturating_sub(self.tokens.len());
        let n = if depth == 0 { unseen.saturating_sub(1) } else { unseen }.min(room);
        // Of each row it takes the token behind.
        let Some(tokens) = history.get(*from + 1..*from + 1 + n).filter(|_| n > 0) else { return Ok(()) };
        let own = match seq {
            Some(Own(_, own)) => *own,
            None => {
                let (new, found) = stages.open(&history[1..=*from])?;
                *known = found;
                seq.insert(Own(Arc::clone(stages), new)).1
            }
        };
        let whole = depth > 0 && n == unseen;
        let depth = depth.min(context.saturating_sub(history.len())).min(MOST);
        let unknown = tokens.iter().any(|token| token.0 as usize >= *vocab_size);
        if unknown || stages.reserve(own, *known + n + depth).is_err() {
            *beside = Beside { hopeless: true, ..Beside::default() };
            return Ok(());
        }
        let segment = Segment::new(own, *known, n);
        self.catches_up |= n > FEW;
        let at = (whole && depth > 0).then_some(self.segments.len());
        self.segments.push(match at {
            Some(_) => segment.want_last(FIRST_GUESSES).tap(n - 1..n),
            None => segment,
        });
        self.tokens.extend_from_slice(tokens);
        self.hidden.extend(hidden.drain(..n * width));
        hidden.shrink_to(2 * UNSEEN * width);
        (*known, *from) = (*known + n, *from + n);
        self.at.push(At { number, seq: own, len: *known, segment: at, depth, ..At::default() });
        Ok(())
    }

    /// The same of an assistant, whose rows are all behind the session's last one.
    fn add_to_assistant(&mut self, number: usize, beside: &mut Beside, state: &State, depth: usize) {
        let Second { context, rows, vocab_size, .. } = &*self.shared;
        let (Some(seq), Some((token, sure))) = (state.seq, state.history.split_last()) else { return };
        let depth = depth.min(context.saturating_sub(state.history.len())).min(MOST);
        if !beside.is_next(state) || depth == 0 || self.tokens.len() >= *rows {
            return;
        }
        if token.0 as usize >= *vocab_size {
            *beside = Beside { hopeless: true, ..Beside::default() };
            return;
        }
        let (len, segment) = (sure.len(), Some(self.segments.len()));
        self.segments.push(Segment::new(seq, len, 1).want_last(FIRST_GUESSES).tap(0..1));
        self.tokens.push(*token);
        self.hidden.extend_from_slice(&beside.hidden);
        self.at.push(At { number, seq, len, segment, depth, ..At::default() });
    }

    /// Drafts. Says how many seconds of it went to what it had not seen of sessions, beyond the last step's tokens.
    pub(in crate::generate) fn run(&mut self, cancel: &CancelToken) -> Result<f64> {
        if self.segments.is_empty() {
            return Ok(0.0);
        }
        let start = Instant::now();
        self.step(cancel)?;
        let (rows, taken) = (self.tokens.len(), start.elapsed().as_secs_f64());
        let much = self.catches_up;
        match much {
            true => self.row = taken / rows as f64,
            false => self.times.note(rows, taken),
        }
        while self.choose()? {
            let start = Instant::now();
            self.step(cancel)?;
            self.times.note(self.tokens.len(), start.elapsed().as_secs_f64());
        }
        Ok(if much { taken } else { 0.0 })
    }

    /// Takes the likeliest tokens of the last step; whether there is another step, which it makes ready.
    fn choose(&mut self) -> Result<bool> {
        let Second { stages, vocab_size, ends, recurrent, head, drafts, .. } = &*self.shared;
        self.segments.clear();
        self.tokens.clear();
        self.hidden.clear();
        for at in &mut self.at {
            let Some(segment) = at.segment.take() else { continue };
            let none = || {
                Error::new(ErrorKind::EngineFailed, "no token of the draft model's is the likeliest")
                    .with_hint("its file is broken or another model's: fetch it again")
            };
            let found = likeliest(&self.replies[0], segment).map(|found| match &drafts.tokens {
                Some(tokens) => found.and_then(|own| tokens.get(own.0 as usize).copied()),
                None => found,
            });
            let (token, known) =
                (found[0].ok_or_else(none)?, |token: &TokenId| (token.0 as usize) < *vocab_size);
            if at.drafted == 0 {
                at.other = found[1].filter(known);
            }
            if !known(&token) {
                continue;
            }
            at.drafts[at.drafted] = token;
            at.drafted += 1;
            if at.drafted >= at.depth || ends.contains(&token) {
                continue;
            }
            if *recurrent && at.copy.is_none() {
                // Of a state nothing can be taken away.
                let (copy, len) = stages.fork(at.seq, at.len)?;
                at.copy = Some(Own(Arc::clone(stages), copy));
                if len < at.len {
                    continue;
                }
                at.seq = copy;
            }
            let mut next = Segment::new(at.seq, at.len, 1).want_last(Logits::Top(1));
            if let Some(head) = head {
                let none = || Error::new(ErrorKind::Internal, "a head gave no hidden states");
                self.hidden.extend_from_slice(self.replies[0].tap(segment, head.own).ok_or_else(none)?);
                next = next.tap(0..1);
            }
            at.segment = Some(self.segments.len());
            self.segments.push(next);
            self.tokens.push(token);
            at.len += usize::from(!head.is_some_and(|head| head.assists));
        }
        Ok(!self.segments.is_empty())
    }

    fn step(&mut self, cancel: &CancelToken) -> Result<()> {
        let shortlist = self.shortlist.as_ref().map_or(&[][..], Shortlist::ranges);
        let batch = Batch::new(&self.segments, &self.tokens).shortlist(shortlist);
        let own = self.shared.head.map(|head| [head.own]);
        let batch = match &own {
            Some(own) => batch.hidden(&self.hidden).taps(own),
            None => batch,
        };
        self.shared.stages.forward(&batch, &mut self.replies, &StepCx::new(cancel))
    }

    /// What was drafted, session by session, and what else may come first.
    pub(in crate::generate) fn found(&self) -> impl Iterator<Item = (usize, &[TokenId], Option<TokenId>)> {
        self.at.iter().map(|at| (at.number, &at.drafts[..at.drafted], at.other))
    }

    /// Notes what it has computed of a session whose drafts these are.
    pub(in crate::generate) fn keep(&self, beside: &mut Beside, drafts: &[TokenId]) {
        // The last one was drafted and not computed.
        if let Some((_, computed)) = drafts.split_last()
            && !self.shared.recurrent
            && !self.shared.is_head()
        {
            beside.own.extend_from_slice(computed);
        }
    }

    /// Ends the step: copies are given up.
    pub(in crate::generate) fn end(&mut self) {
        self.at.clear();
    }
}
