//! Which sessions compute tokens ahead in a step, and how many?

use std::time::{Duration, Instant};

use super::{Fork, Other, Part, Running, Worker};
use crate::engine::{Logits, PAGE_TOKENS};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::draft::{Beside, Chance, Draft, MOST, MOST_OF_ALL, Proposal, Step, sooner};
use crate::ids::SeqId;

/// Rows of another guess: that of the token before it, and its own.
const FORKED: usize = 2;
/// Tokens that a text is taken to have, at most, where more may come.
const AHEAD: usize = 256;

impl Worker {
    /// Adds drafted tokens to the parts of sessions that decode, where that pays or is asked for. Says, too, how long a
    /// second model took for what it had not seen of them.
    pub(super) fn draft(&mut self, parts: &mut [Part]) -> (Step, Duration) {
        self.drafts.clear();
        self.chances.clear();
        let rows: usize = parts.iter().map(|part| part.rows).sum();
        let (sessions, again) = (parts.len(), rows - parts.len());
        let mut step = Step { sessions, again, own: true, ..Step::default() };
        // A row of the second model's, which drafts for all together.
        let row = self.draft.as_ref().map_or(0.0, |draft| draft.seconds(sessions) / sessions as f64);
        // What one of its steps takes is tried with one token.
        let tried = row > 0.0;
        let [texts_may, model_may] = [false, true].map(|by_model| self.gate.may_draft(sessions, by_model));
        let may_spend = self.gate.may_spend(sessions);
        let recurrent = self.limits.recurrent;
        let mut room = self.limits.rows.saturating_sub(rows);
        let mut of_all = MOST_OF_ALL;
        for (number, part) in parts.iter_mut().enumerate() {
            let Running { job, beside, .. } = &mut self.running[part.at];
            let state = job.turn.shared.state();
            part.of_all = job.ask.wants().0 == Logits::All;
            let most = if part.of_all { MOST_OF_ALL } else { MOST };
            // Without memory for the state before them, what is computed again grows by each step with drafts.
            let most = if part.rows > MOST { 0 } else { most };
            let most = most.min(self.limits.context.saturating_sub(state.history.len()));
            // States are kept at borders, where a step ends.
            let border = PAGE_TOKENS - (state.held.len() + part.rows) % PAGE_TOKENS;
            let most = if recurrent { most.min(border) } else { most };
            let proposal = job.ask.draft(&state.history, most);
            let Proposal { other: token, otherwise: [text, model], tree, .. } = proposal;
            let chances =
                [text * (1.0 - proposal.chance), model * (1.0 - proposal.model.unwrap_or_default())];
            part.other = Other { token, chances, tree };
            let first = self.drafts.len();
            self.drafts.extend_from_slice(proposal.tokens);
            part.drafted = first..first;
            let most = if texts_may || proposal.always { proposal.tokens.len() } else { 0 };
            let texts = Chance::chain(proposal.chance, recurrent, 0.0).take(most);
            let wait = self.draft.as_ref().and_then(|draft| draft.wait(beside, &state));
            let may = |(_, far): &(f64, bool)| proposal.always || model_may && (may_spend || !far);
            let model = proposal.model.zip(wait.filter(may));
            let most = if tried || proposal.always { proposal.most } else { proposal.most.min(1) };
            let model =
                model.map(|(chance, (wait, _))| (Chance::chain(chance, recurrent, row).take(most), wait));
            part.by_model = match &model {
                None => false,
                Some(_) if proposal.always => proposal.tokens.is_empty(),
                Some((model, wait)) => {
                    let rate =
                        |chances: &mut dyn Iterator<Item = Chance>| self.gate.rate(part.rows - 1, chances);
                    let (model, texts) = (rate(&mut model.clone()), rate(&mut texts.clone()));
                    // What it has not seen yet must be won back by what is left of the text.
                    model > texts && proposal.left.min(AHEAD) as f64 * (1.0 / texts - 1.0 / model) >= *wait
                }
            };
            let model = model.map(|(model, _)| model);
            let chances = model.filter(|_| part.by_model).unwrap_or(texts);
            if proposal.always {
                step.own = false;
                let most = if part.of_all { room.min(of_all) } else { room };
                part.drafted.end += chances.count().min(most);
                room -= part.drafted.len();
                of_all -= if part.of_all { part.drafted.len() } else { 0 };
            } else {
                self.chances.extend(chances.map(|chance| (chance, number)));
            }
        }
        // Which of a session's own comes first is all the same: they are taken from its first one on.
        self.chances.sort_unstable_by(|(a, _), (b, _)| b.sooner.total_cmp(&a.sooner));
        self.chances.retain(|(_, number)| {
            let (counts, left) = (parts[*number].of_all, of_all > 0);
            of_all -= usize::from(counts && left);
            !counts || left
        });
        let chances = self.chances.iter().take(room).map(|(chance, _)| *chance);
        step.by_model = parts.iter().any(|part| part.by_model);
        let rows = self.gate.rows(step, chances);
        for (_, number) in &self.chances[..rows] {
            parts[*number].drafted.end += 1;
        }
        // Whose rows are chosen.
        step.by_model = parts.iter().any(|part| part.by_model && !part.drafted.is_empty());
        for part in parts.iter().filter(|part| part.by_model) {
            self.running[part.at].job.ask.turn_to_model();
        }
        let (start, mut beside) = (Instant::now(), Duration::ZERO);
        if parts.iter().any(|part| part.by_model && !part.drafted.is_empty()) {
            beside = self.draft_by_model(parts);
            self.gate.spend(beside);
            step.drafting = start.elapsed().saturating_sub(beside).as_secs_f64();
        }
        step.drafted = parts.iter_mut().map(|part| self.reserve_ahead(part)).sum();
        self.fork_parts(parts, &mut step, rows);
        (step, beside)
    }

    /// Copies the sequences of parts whose other guesses are to be computed, in a step that has the first `rows` of all
    /// chances.
    fn fork_parts(&mut self, parts: &[Part], step: &mut Step, rows: usize) {
        let drafted_of_all: usize =
            parts.iter().filter(|part| part.of_all).map(|part| part.drafted.len()).sum();
        let mut of_all = MOST_OF_ALL.saturating_sub(drafted_of_all);
        let may = self.gate.may_draft(step.sessions, step.by_model);
        let mut steps =
            step.sessions as f64 - self.chances[..rows].iter().map(|(chance, _)| chance.sooner).sum::<f64>();
        let drafted = |(_, part): &(usize, &Part)| part.rows == 1 && !part.drafted.is_empty();
        for (number, part) in parts.iter().enumerate().filter(drafted) {
            let own = self.chances[..rows].iter().filter(|(_, of)| *of == number);
            let tokens = 1.0 + own.map(|(chance, _)| chance.right).sum::<f64>();
            let sooner = sooner(tokens, part.other.chances[usize::from(part.by_model)]);
            let pays = |step: &Step| may && self.gate.gains(*step, steps, (FORKED, sooner));
            let wanted = part.other.tree.unwrap_or_else(|| step.own && pays(step));
            let room = step.rows() + FORKED <= self.limits.rows && (!part.of_all || of_all > 0);
            if !wanted || !room || self.limits.recurrent || part.other.token.is_none() {
                continue;
            }
            let Some(seq) = self.fork_part(part) else { continue };
            self.forks.push(Fork { at: part.at, segment: 0, seq });
            step.drafted += FORKED;
            step.own &= part.other.tree.is_none();
            steps -= sooner;
            of_all -= usize::from(part.of_all);
        }
    }

    /// A copy of a part's sequence with pages for its token and another one, where there are any.
    fn fork_part(&self, part: &Part) -> Option<SeqId> {
        let (seq, held) = {
            let state = self.running[part.at].job.turn.shared.state();
            (state.seq?, state.held.len())
        };
        let (copy, len) = self.stages.fork(seq, held).ok()?;
        if len == held && self.stages.reserve(copy, held + FORKED).is_ok() {
            return Some(copy);
        }
        self.stages.close(copy);
        None
    }

    /// Lets the second model draft for those parts that it shall, as many as they have. Says how long it took for what it had
    /// not seen before.
    fn draft_by_model(&mut self, parts: &mut [Part]) -> Duration {
        let Some(mut draft) = self.draft.take() else { return Duration::ZERO };
        let found = self.run_model(&mut draft, parts);
        for part in parts.iter_mut().filter(|part| part.by_model) {
            (part.drafted, part.other.token) = (0..0, None);
        }
        if found.is_ok() {
            for (number, tokens, other) in draft.found() {
                let (part, first) = (&mut parts[number], self.drafts.len());
                part.other.token = other;
                self.drafts.extend_from_slice(tokens);
                part.drafted = first..self.drafts.len();
                draft.keep(&mut self.running[part.at].beside, tokens);
            }
        }
        let beside = found.as_ref().copied().unwrap_or_default();
        self.give_back(draft, found.map(drop));
        beside
    }

    /// Ends a step of the second model's, which drafts no more where it failed.
    fn give_back(&mut self, mut draft: Draft, found: Result<()>) {
        draft.end();
        if found.is_err() {
            // Its stages may be at different lengths.
            self.running.iter_mut().for_each(|running| running.beside = Beside::default());
        }
        match &found {
            Err(error) if error.kind() != ErrorKind::Cancelled && !error.is_full() => self.lose_draft(error),
            _ => self.draft = Some(draft),
        }
    }

    /// Notes that the second model drafts no more.
    pub(super) fn lose_draft(&mut self, error: &Error) {
        let Some(second) = &self.second else { return };
        second.fail(error.message().to_owned());
        let warning = format!("the draft model failed and drafts no more: {error}");
        for running in &mut self.running {
            running.beside = Beside::default();
            running.job.ask.warn(&warning);
        }
        // Those that began before and wait are told when it is their turn.
        self.warning.get_or_insert(warning);
    }

    fn run_model(&mut self, draft: &mut Draft, parts: &[Part]) -> Result<Duration> {
        draft.begin();
        for (number, part) in parts.iter().enumerate().filter(|(_, part)| part.by_model) {
            let running = &mut self.running[part.at];
            let state = running.job.turn.shared.state();
            draft.add(number, &mut running.beside, &state, part.drafted.len())?;
        }
        self.step = self.signals.next_step();
        draft.run(&self.step).map(Duration::from_secs_f64)
    }

    /// Lets a head see what it has not of prompts, where its drafts may pay.
    pub(super) fn catch_up(&mut self) {
        let Some(mut draft) = self.draft.take() else { return };
        let behind = |running: &Running| running.over.is_none() && draft.is_behind(&running.beside);
        if !self.running.iter().any(behind) {
            self.draft = Some(draft);
            return;
        }
        let usual = Chance::chain(draft.shared.usual(), self.limits.recurrent, 0.0);
        let pays = self.gate.may_spend(1) && self.gate.pays(usual.take(MOST));
        let mut charged = false;
        draft.begin();
        let mut found = Ok(());
        for (number, running) in self.running.iter_mut().enumerate() {
            if running.over.is_some() || !draft.is_behind(&running.beside) {
                continue;
            }
            let always = running.job.ask.has_model() == Some(true);
            if !pays && !always {
                draft.skip(&mut running.beside);
            } else if found.is_ok() {
                charged |= !always;
                let state = running.job.turn.shared.state();
                found = draft.add(number, &mut running.beside, &state, 0);
            }
        }
        self.step = self.signals.next_step();
        let start = Instant::now();
        let found = found.and_then(|()| draft.run(&self.step).map(drop));
        if charged {
            self.gate.spend(start.elapsed());
        }
        self.give_back(draft, found);
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
