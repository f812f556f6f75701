//! How many tokens ahead pay? Those with which a session waits the least for a token, by times and acceptances as they were
//! measured.
//!
//! A step computes one row for each session that decodes, which gives a token, and rows of drafted tokens behind it. The
//! j-th drafted row gives one more token with the probability `pⱼ` that all drafts up to it are accepted. So a session
//! alone has `(1 + Σ p) / T(1 + m)` tokens a second with `m` drafted rows, `T` being the time of a step of so many rows. The
//! `m` with the most is taken.
//!
//! All sessions of a step wait for it, those without drafts, too. Of `n` together, `T(n + m) · Σ 1 / (1 + Σ p) / n` is how
//! long one waits for a token on average: the rows that take most of it come first, and as many are taken as make it the
//! shortest. What some gain is then more than what others lose; the most tokens of all together would often be those of one
//! session for which the others wait.
//!
//! Where a second model drafts, each of its steps takes time, too: a row costs its share of that, and `T(n + m)` is what is
//! left of a step.
//!
//! Of a model with states, what is right is computed again in the next step where what is behind it was not: these rows
//! count as part of the step that caused them.
//!
//! What trying costs is bounded: rows are drafted only while what steps with drafts have lost so far, beside what they
//! have won, is less than [`RISK`] of all time, counted by the tokens of all sessions, and but for first steps of so many
//! rows. Texts and models each have an account of their own, so that who does not pay does not keep the other from it; and so
//! has what a model takes for prompts before it can draft.

use std::time::Duration;

/// Rows of a step whose time is known by itself.
pub(super) const ROWS: usize = 64;
/// The share of all time that drafts may have lost, and steps whose time they may lose before that.
const RISK: f64 = 0.004;
const STAKE: f64 = 1.5;
/// Steps whose time a model may take for prompts before that.
const SPENT: f64 = 20.0;
/// Steps whose time may be won at most, to be lost again.
const WON: f64 = 40.0;
/// Times of what is known that a step takes, beyond which it is none like others.
const ODD: f64 = 3.0;
/// Times of what is expected of so many rows, beyond which their first step may have waited for what only such steps need.
const WAITED: f64 = 1.5;
/// Steps without drafts that are measured before any is drafted: the first may wait for weights.
const SURE: u8 = 2;
/// How much of a known time the next one changes.
const WEIGHT: f64 = 0.15;
/// What a row beyond those that are known is taken to add, as a share of a step.
const ROW: f64 = 0.04;
/// Steps with drafts between two without, which say what these take.
const PLAIN: u32 = 40;
/// And between two of a depth that is not the best by what is known: each depth in turn.
const PROBE: u32 = 32;

/// A step of sessions that decode.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::generate) struct Step {
    /// Each has a row of its own.
    pub(in crate::generate) sessions: usize,
    /// Rows that are computed again, as tokens behind them were not right.
    pub(in crate::generate) again: usize,
    /// Rows of drafted tokens, and those before that are computed for them in copies.
    pub(in crate::generate) drafted: usize,
    /// All of these because they pay.
    pub(in crate::generate) own: bool,
    /// A second model drafted some.
    pub(in crate::generate) by_model: bool,
    /// Seconds that drafting them took.
    pub(in crate::generate) drafting: f64,
}

impl Step {
    pub(in crate::generate) fn rows(&self) -> usize {
        self.sessions + self.again + self.drafted
    }

    /// Whether it is as if there were no drafts.
    pub(in crate::generate) fn is_plain(&self) -> bool {
        self.again + self.drafted == 0
    }
}

/// What becomes of a drafted row.
#[derive(Debug, Clone, Copy)]
pub(in crate::generate) struct Chance {
    /// That it is right.
    pub(in crate::generate) right: f64,
    /// By how much of a step its session waits less for a token.
    pub(in crate::generate) sooner: f64,
    /// Rows that are computed again for it, on average.
    again: f64,
    /// Seconds that drafting it takes.
    drafting: f64,
}

impl Chance {
    /// Rows behind one another, each of which is right with this chance where those before it are, and takes so many seconds
    /// to draft. If a model has states, rows that are right are computed again where the last one was not.
    pub(in crate::generate) fn chain(
        right: f64,
        states: bool,
        drafting: f64,
    ) -> impl Iterator<Item = Self> + Clone {
        (1..).scan(1.0, move |tokens, depth: i32| {
            let (own, before) = (right.powi(depth), right.powi(depth - 1));
            let again = if states { f64::from(depth - 1) * (before - own) } else { 0.0 };
            let sooner = sooner(*tokens, own);
            *tokens += own;
            Some(Self { right: own, sooner, again, drafting })
        })
    }
}

/// By how much of a step a session waits less for a token, of which a step gives it so many, if it gives so many more.
pub(in crate::generate) fn sooner(tokens: f64, more: f64) -> f64 {
    tokens.recip() - (tokens + more).recip()
}

/// How long steps take.
#[derive(Debug, Clone)]
pub(in crate::generate) struct Times {
    /// By rows; 0 where nothing is known.
    seconds: [f64; ROWS + 1],
    /// How often so many rows were measured, up to [`SURE`].
    seen: [u8; ROWS + 1],
}

impl Default for Times {
    fn default() -> Self {
        Self { seconds: [0.0; ROWS + 1], seen: [0; ROWS + 1] }
    }
}

impl Times {
    /// What a step of so many rows takes, in seconds; `None` before any was measured.
    pub(in crate::generate) fn of(&self, rows: usize) -> Option<f64> {
        let known = |at: &usize| self.seconds[*at] > 0.0;
        let mut below = (1..=rows.min(ROWS)).rev().filter(known);
        let above = (rows..=ROWS).find(known);
        let (Some(a), b) = (below.next(), above.or_else(|| below.next())) else {
            return above.map(|at| self.seconds[at]);
        };
        let slope = match b {
            Some(b) if a != b => (self.seconds[b] - self.seconds[a]) / (b as f64 - a as f64),
            Some(_) => 0.0,
            None => ROW * self.seconds[a],
        };
        Some(self.seconds[a] + slope.max(0.0) * (rows - a) as f64)
    }

    /// Notes what a step took.
    pub(in crate::generate) fn note(&mut self, rows: usize, taken: f64) {
        let Some(known) = self.seconds.get_mut(rows) else { return };
        self.seen[rows] = (self.seen[rows] + 1).min(SURE);
        let settled = *known > 0.0 && taken > *known / ODD;
        *known = if settled { *known + WEIGHT * (taken - *known) } else { taken };
    }

    /// Whether this first step of so many rows took longer than those known let expect: the second one tells.
    fn has_waited(&mut self, rows: usize, taken: f64) -> bool {
        let is_first = self.seen.get(rows) == Some(&0);
        let waited = is_first && self.of(rows).is_some_and(|expected| taken > WAITED * expected);
        if waited {
            self.seen[rows] = 1;
        }
        waited
    }

    /// The most rows of a step so far.
    fn most(&self) -> usize {
        (1..=ROWS).rev().find(|at| self.seconds[*at] > 0.0).unwrap_or(0)
    }
}

/// How long steps take, and what drafts have won.
#[derive(Debug, Clone, Default)]
pub(in crate::generate) struct Gate {
    times: Times,
    /// Of texts, and of models.
    accounts: [Account; 2],
    /// Seconds of all steps.
    all: f64,
    /// Steps with drafts since one without, and all.
    drafted: u32,
    steps: u32,
    /// The last step took far longer than is known.
    odd: bool,
}

/// Seconds that were won, and what was spent before anything could be.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    won: f64,
    spent: f64,
}

/// Rows with which sessions wait the least for tokens.
struct Best {
    rows: usize,
    /// Tokens a second of a session that waits as long as they do on average.
    rate: f64,
    /// Of so many that may be.
    of: usize,
}

impl Gate {
    /// Of rows with these chances, those that make tokens come soonest first, as many as make it the soonest; `None` while it
    /// is not known what steps take.
    fn best(&self, step: Step, chances: impl Iterator<Item = Chance>) -> Option<Best> {
        let Step { sessions, again, .. } = step;
        let (plain, certain) = (self.times.of(sessions)?, sessions + again);
        let mut best = Best { rows: 0, rate: 1.0 / self.times.of(certain)?, of: 0 };
        // Steps that all wait for a token, in sum.
        let (mut steps, mut later, mut drafting) = (sessions as f64, 0.0, 0.0);
        // By no more than twice as many as ever were: what those take is known.
        let room = (2 * self.times.most()).min(ROWS).saturating_sub(certain);
        for (at, chance) in chances.enumerate().take(room) {
            (steps, later, drafting) =
                (steps - chance.sooner, later + chance.again, drafting + chance.drafting);
            best.of = at + 1;
            let rows = certain + best.of;
            let rate = self.times.of(rows).map_or(0.0, |time| {
                let row = (time - plain).max(0.0) / (rows - sessions) as f64;
                sessions as f64 / (steps * (time + later * row + drafting))
            });
            if rate > best.rate {
                (best.rows, best.rate) = (best.of, rate);
            }
        }
        Some(best)
    }

    /// Whether sessions that wait so many steps for a token in sum, in a step with drafts, get them sooner with so many
    /// further rows, with which they wait so much less.
    pub(in crate::generate) fn gains(&self, step: Step, steps: f64, (rows, sooner): (usize, f64)) -> bool {
        let all = step.rows() + rows;
        let time = |rows| Some(self.times.of(rows)? + step.drafting);
        // Of more rows than ever were it is not known what they take.
        let times = time(step.rows()).zip(time(all)).filter(|_| all <= self.times.most());
        times.is_some_and(|(without, with)| (steps - sooner) * with < steps * without)
    }

    /// Tokens a second of a session alone, with as many rows of these chances as make the most.
    pub(in crate::generate) fn rate(&self, again: usize, chances: impl Iterator<Item = Chance>) -> f64 {
        let step = Step { sessions: 1, again, ..Step::default() };
        self.best(step, chances).map_or(0.0, |best| best.rate)
    }

    /// Whether rows with these chances would be drafted for a session alone, or it is not known what steps take.
    pub(in crate::generate) fn pays(&self, chances: impl Iterator<Item = Chance>) -> bool {
        let step = Step { sessions: 1, ..Step::default() };
        self.best(step, chances).is_none_or(|best| best.rows > 0)
    }

    /// How many rows to draft in a step, of rows with these chances, those that make tokens come soonest first.
    pub(in crate::generate) fn rows(&mut self, step: Step, chances: impl Iterator<Item = Chance>) -> usize {
        if self.times.seen.get(step.sessions).is_some_and(|seen| *seen < SURE) {
            return 0;
        }
        if self.drafted >= PLAIN {
            return 0;
        }
        let Some(best) = self.best(step, chances) else { return 0 };
        if best.rows > 0 && self.account(step.by_model).won > 0.0 && self.steps % PROBE == PROBE - 1 {
            return 1 + (self.steps / PROBE) as usize % best.of.min(2 * best.rows + 2);
        }
        best.rows
    }

    fn account(&self, by_model: bool) -> &Account {
        &self.accounts[usize::from(by_model)]
    }

    /// What each account may lose, where so many sessions decode.
    fn risk(&self, sessions: usize) -> f64 {
        RISK * self.all + STAKE * self.times.of(sessions).unwrap_or_default()
    }

    /// Whether drafts of texts, or of a model, have not yet lost all that they may.
    pub(in crate::generate) fn may_draft(&self, sessions: usize, by_model: bool) -> bool {
        self.account(by_model).won >= -self.risk(sessions)
    }

    /// Whether a model may take time before it drafts: while it is not known what steps take, and then as long as what it
    /// took was won back, but for some.
    pub(in crate::generate) fn may_spend(&self, sessions: usize) -> bool {
        let most = self.times.of(sessions).map(|plain| RISK * self.all + SPENT * plain);
        most.is_none_or(|most| self.account(true).spent <= most)
    }

    /// Notes that a step of other rows took so long.
    pub(in crate::generate) fn pass(&mut self, taken: Duration) {
        self.all += taken.as_secs_f64();
    }

    /// Notes that a model took so long before it drafted.
    pub(in crate::generate) fn spend(&mut self, taken: Duration) {
        self.accounts[1].spent += taken.as_secs_f64();
        self.all += taken.as_secs_f64();
    }

    /// Seconds of a step of so many sessions without drafts, where one was measured.
    pub(in crate::generate) fn without(&self, sessions: usize) -> Option<f64> {
        self.times.seconds.get(sessions).copied().filter(|seconds| *seconds > 0.0)
    }

    /// Notes a step that gave so many tokens, and took so long with the drafting. Its drafts may be others than
    /// [`rows`](Self::rows) said: then nothing was lost or won by it.
    pub(in crate::generate) fn note(&mut self, step: Step, tokens: usize, taken: Duration) {
        let Step { sessions, own, drafting, .. } = step;
        let (rows, all) = (step.rows(), taken.as_secs_f64());
        if rows > ROWS || sessions == 0 {
            self.all += all;
            return;
        }
        // What else the machine did is no loss of drafts, and says nothing of steps, unless it goes on.
        let (known, taken) = (self.times.seconds[rows], all - drafting);
        let (odd, before) = (known > 0.0 && taken > ODD * known, self.odd);
        self.odd = odd;
        if odd && !before || self.times.has_waited(rows, taken) {
            return;
        }
        if !(step.is_plain() && drafting == 0.0)
            && own
            && let Some(plain) = self.times.of(sessions)
        {
            // What was won long ago is not lost again.
            let won = plain * tokens as f64 / sessions as f64 - all;
            let account = &mut self.accounts[usize::from(step.by_model)];
            account.won = (account.won + won).min(WON * plain);
            account.spent = (account.spent - won.max(0.0)).max(0.0);
            self.drafted += 1;
            self.steps = self.steps.wrapping_add(1);
        } else {
            self.drafted = 0;
        }
        self.all += all;
        self.times.note(rows, taken);
    }
}

/// Where a drafted token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::generate) enum Source {
    /// A text that read the same for so many tokens.
    Text(usize),
    /// A second model.
    Model,
}

/// How often drafts of a generation are accepted: those of texts by how long these agreed before, and those of a model.
#[derive(Debug, Clone)]
pub(in crate::generate) struct Acceptance {
    classes: [f64; CLASSES],
    /// Of other guesses, of texts and of a model, where the first was wrong.
    others: [f64; 2],
}

/// Classes of lengths: 3, 4 to 7, 8 to 15, 16 to 31, and more; and a model.
const CLASSES: usize = 6;
/// What is expected at first.
const FIRST: [f64; CLASSES] = [0.35, 0.5, 0.7, 0.8, 0.9, FIRST_OF_MODEL];
pub(super) const FIRST_OF_MODEL: f64 = 0.7;
const FIRST_OF_OTHERS: f64 = 0.3;
/// How much of it each drafted token changes, and how much of what was found is forgotten where none is drafted.
const CHANGE: f64 = 0.08;
const FORGETTING: f64 = 0.005;

impl Source {
    fn class(self) -> usize {
        match self {
            Self::Text(len) => [4, 8, 16, 32].iter().filter(|least| len >= **least).count(),
            Self::Model => CLASSES - 1,
        }
    }
}

impl Default for Acceptance {
    fn default() -> Self {
        Self { classes: FIRST, others: [FIRST_OF_OTHERS; 2] }
    }
}

impl Acceptance {
    /// The chance that a token is accepted behind which others were.
    pub(in crate::generate) fn chance(&self, source: Source) -> f64 {
        self.classes[source.class()]
    }

    /// Expects this of a source.
    pub(in crate::generate) fn expect(&mut self, source: Source, chance: f64) {
        self.classes[source.class()] = chance;
    }

    /// Notes that nothing was drafted: what is known gets old, and nears what is usual.
    pub(in crate::generate) fn rest(&mut self, source: Source, usual: Option<f64>) {
        let class = source.class();
        self.classes[class] += FORGETTING * (usual.unwrap_or(FIRST[class]) - self.classes[class]);
    }

    /// Notes that of `drafted` tokens the first `accepted` were.
    pub(in crate::generate) fn note(&mut self, source: Source, drafted: usize, accepted: usize) {
        let chance = &mut self.classes[source.class()];
        for _ in 0..accepted {
            *chance += CHANGE * (1.0 - *chance);
        }
        if accepted < drafted {
            *chance -= CHANGE * *chance;
        }
    }

    /// The chances that other guesses are right where the first is wrong: of texts, and of a model.
    pub(in crate::generate) fn otherwise(&self) -> [f64; 2] {
        self.others
    }

    /// Notes whether another guess was right where the first was wrong.
    pub(in crate::generate) fn note_other(&mut self, source: Source, right: bool) {
        let chance = &mut self.others[usize::from(source == Source::Model)];
        *chance += CHANGE * (f64::from(u8::from(right)) - *chance);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    const MOST: usize = 12;
    const STEPS: usize = 4000;

    /// Numbers from 0 to 1.
    fn draw(rng: &mut ChaCha8Rng) -> f64 {
        f64::from(rng.next_u32()) / f64::from(u32::MAX)
    }

    /// Tokens a second where each drafted token is accepted with this chance, at a fixed depth or at the gate's. A step takes
    /// what `time` says of its rows, times what `odd` says of its number; of odd steps what is usual counts, as they come
    /// with drafts and without.
    fn speed(
        chance: f64,
        time: &dyn Fn(usize) -> f64,
        (states, draft): (bool, f64),
        fixed: Option<usize>,
        noise: f64,
        odd: &dyn Fn(usize) -> f64,
    ) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (mut gate, mut acceptance) = (Gate::default(), Acceptance::default());
        let (mut seconds, mut tokens, mut again) = (0.0, 0, 0);
        for at in 0..STEPS {
            let mut step = Step { sessions: 1, again, own: true, ..Step::default() };
            let chances = Chance::chain(acceptance.chance(Source::Text(8)), states, draft);
            let most = if gate.may_draft(1, false) { MOST } else { 0 };
            step.drafted = fixed.unwrap_or_else(|| gate.rows(step, chances.take(most)));
            step.drafting = draft * step.drafted as f64;
            let drafted = step.drafted;
            let accepted = (0..drafted).take_while(|_| draw(&mut rng) < chance).count();
            let usual = (time(step.rows()) + step.drafting) * (1.0 + noise * (draw(&mut rng) - 0.5));
            gate.note(step, 1 + accepted, Duration::from_secs_f64(usual * odd(at)));
            again = if states && accepted < drafted { accepted } else { 0 };
            match drafted {
                0 => acceptance.rest(Source::Text(8), None),
                _ => acceptance.note(Source::Text(8), drafted, accepted),
            }
            seconds += usual;
            tokens += 1 + accepted;
        }
        tokens as f64 / seconds
    }

    /// Never slower than without drafts by more than a hundredth, and nearly as fast as the best depth for all steps.
    #[test]
    fn what_pays_is_found_and_what_does_not_costs_nothing() {
        let flat: &dyn Fn(usize) -> f64 = &|rows| 1e-2 * (1.0 + 0.02 * rows as f64);
        let steep: &dyn Fn(usize) -> f64 = &|rows| 1e-2 * (1.0 + 0.6 * rows as f64);
        // In fours, as tiles of rows are.
        let stairs: &dyn Fn(usize) -> f64 = &|rows| 1e-2 * (1.0 + 0.5 * (rows.div_ceil(4) - 1) as f64);
        for (name, time) in [("flat", flat), ("steep", steep), ("stairs", stairs)] {
            for chance in [0.0, 0.02, 0.3, 0.6, 0.8, 0.95, 1.0] {
                let kinds = [(false, 0.0), (true, 0.0), (false, 1e-3), (false, 4e-3), (true, 4e-3)];
                for (noise, kind) in [0.0, 0.1].into_iter().flat_map(|noise| kinds.map(|kind| (noise, kind)))
                {
                    let speed = |fixed| speed(chance, time, kind, fixed, noise, &|_| 1.0);
                    let (own, plain) = (speed(None), speed(Some(0)));
                    let best = (0..=MOST).map(|depth| speed(Some(depth))).fold(0.0, f64::max);
                    assert!(
                        own >= 0.99 * plain,
                        "{name}, {chance}, {noise}, {kind:?}: {} of plain",
                        own / plain
                    );
                    assert!(
                        own >= 0.95 * best,
                        "{name}, {chance}, {noise}, {kind:?}: {} of the best",
                        own / best
                    );
                }
            }
        }
    }

    /// The first step of four rows waits for what only such steps need, as long as eight others take.
    #[test]
    fn first_steps_of_so_many_rows_mislead_nobody() {
        for (chance, draft) in [(0.75, 7e-4), (0.9, 0.0), (0.3, 0.0)] {
            let speed = |fixed| {
                let first = Cell::new(true);
                let time = |rows: usize| {
                    let waits = if rows >= 4 && first.replace(false) { 8e-2 } else { 0.0 };
                    1e-2 * (1.0 + 0.08 * (rows - 1) as f64) + waits
                };
                speed(chance, &time, (false, draft), fixed, 0.1, &|_| 1.0)
            };
            let (own, best) = (speed(None), (0..=MOST).map(|depth| speed(Some(depth))).fold(0.0, f64::max));
            assert!(own >= 0.95 * best, "{chance}: {} of the best", own / best);
        }
    }

    /// Other guesses are computed where what they give is more than what their rows take.
    #[test]
    fn rows_of_other_guesses_pay_or_not() {
        let mut gate = Gate::default();
        let step = |drafted| Step { sessions: 1, drafted, own: true, ..Step::default() };
        assert!(!gate.gains(step(2), 0.5, (2, 0.4)), "nothing is known");
        for drafted in [0, 0, 2, 4] {
            let taken = 10.0 * (1.0 + 0.1 * drafted as f64);
            gate.note(step(drafted), 1, Duration::from_secs_f64(taken * 1e-3));
        }
        // Two rows more take a sixth of a step of three, which gives two tokens.
        let gains = |step, more| gate.gains(step, 0.5, (2, sooner(2.0, more)));
        assert!(gains(step(2), 0.34) && !gains(step(2), 0.33));
        let slow = Step { drafting: 0.012, ..step(2) };
        assert!(gains(slow, 0.17) && !gains(slow, 0.16));
        assert!(!gate.gains(step(ROWS - 2), 1.0, (2, 0.9)), "of more rows nothing is known");
    }

    /// All wait for a step with drafts, those who gain nothing by it, too.
    #[test]
    fn what_some_gain_outweighs_what_others_wait() {
        let gate = |more: f64| {
            let mut gate = Gate::default();
            for (drafted, taken) in [(0, 1.0), (1, 1.0 + more), (8, 1.0 + more), (12, 2.0)] {
                let step = Step { sessions: 4, drafted, own: true, ..Step::default() };
                (0..2).for_each(|_| gate.note(step, 4 + drafted, Duration::from_secs_f64(taken * 1e-2)));
            }
            gate
        };
        let rows = |more: f64, who: usize| {
            let mut chances: Vec<_> =
                (0..who).flat_map(|_| Chance::chain(0.95, false, 0.0).take(MOST)).collect();
            chances.sort_by(|a, b| b.sooner.total_cmp(&a.sooner));
            let step = Step { sessions: 4, own: true, ..Step::default() };
            gate(more).rows(step, chances.into_iter())
        };
        // Steps would take a third longer for one of four sessions, which had seven times as many tokens.
        assert_eq!([rows(0.35, 1), rows(0.05, 1)], [0, 8]);
        // Two gain more than two lose.
        assert_eq!([rows(0.35, 2), rows(0.35, 4)], [8, 8]);
    }

    /// A model that does not pay keeps no text from drafting, nor itself for ever.
    #[test]
    fn accounts_are_apart() {
        let ms = Duration::from_millis;
        let mut gate = Gate::default();
        let plain = Step { sessions: 1, own: true, ..Step::default() };
        (0..10).for_each(|_| gate.note(plain, 1, ms(10)));
        let drafted = Step { drafted: 1, by_model: true, drafting: 0.01, ..plain };
        assert!(gate.may_draft(1, true) && gate.may_spend(1));
        (0..3).for_each(|_| gate.note(drafted, 1, ms(22)));
        gate.spend(ms(400));
        assert!(!gate.may_draft(1, true) && !gate.may_spend(1) && gate.may_draft(1, false));
        // It has won back what it took, or time has passed.
        let mut later = gate.clone();
        (0..40).for_each(|_| gate.note(drafted, 2, ms(12)));
        assert!(gate.may_draft(1, true) && gate.may_spend(1));
        (0..1000).for_each(|_| later.note(plain, 1, ms(10)));
        assert!(later.may_draft(1, true) && !later.may_spend(1));
        later.pass(ms(60_000));
        assert!(later.may_spend(1));
    }

    /// A first step that waits for the disk, and pauses of the process, which take as long as hundreds of steps.
    #[test]
    fn odd_steps_mislead_nobody() {
        let first: &dyn Fn(usize) -> f64 = &|step| if step == 0 { 200.0 } else { 1.0 };
        let pauses: &dyn Fn(usize) -> f64 = &|step| if step % 100 == 50 { 200.0 } else { 1.0 };
        for (name, odd) in [("first", first), ("pauses", pauses)] {
            for (chance, row) in [(0.02, 0.6), (0.6, 0.6), (0.9, 0.05)] {
                let time = |rows: usize| 1e-2 * (1.0 + row * (rows - 1) as f64);
                let [own, plain] =
                    [None, Some(0)].map(|fixed| speed(chance, &time, (false, 0.0), fixed, 0.0, odd));
                assert!(own >= 0.99 * plain, "{name}, {chance}: {} of plain", own / plain);
            }
        }
    }
}
