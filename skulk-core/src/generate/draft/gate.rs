//! How many tokens ahead pay? Those that make the most tokens a second, by times and acceptances as they were measured.
//!
//! A step computes one row for each session that decodes, which gives a token, and rows of drafted tokens behind it. The
//! j-th drafted row gives one more token with the probability that all drafts up to it are accepted. With `n` sessions
//! and `m` drafted rows that are accepted with probabilities `p`, the largest of all first, a step gives
//! `(n + Σ p) / T(n + m)` tokens a second, `T` being the time of a step of so many rows. The `m` with the largest is taken.
//!
//! Of a model with states, what is right is computed again in the next step where what is behind it was not: these rows
//! count as part of the step that caused them.
//!
//! What trying costs is bounded: rows are drafted only while what steps with drafts have lost so far, beside what they
//! have won, is less than [`RISK`] of all time.

use std::time::Duration;

/// Rows of a step whose time is known by itself.
pub(super) const ROWS: usize = 64;
/// The share of all time that drafts may have lost, and steps whose time they may lose before that.
const RISK: f64 = 0.004;
const STAKE: f64 = 1.5;
/// Steps whose time may be won at most, to be lost again.
const WON: f64 = 40.0;
/// Times of what is known that a step takes, beyond which it is none like others.
const ODD: f64 = 3.0;
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
    /// Rows of drafted tokens.
    pub(in crate::generate) drafted: usize,
    /// All of these because they pay.
    pub(in crate::generate) own: bool,
}

impl Step {
    fn rows(&self) -> usize {
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
    /// Rows that are computed again for it, on average.
    again: f64,
}

impl Chance {
    /// Rows behind one another, each of which is right with this chance where those before it are. If a model has states,
    /// rows that are right are computed again where the last one was not.
    pub(in crate::generate) fn chain(right: f64, states: bool) -> impl Iterator<Item = Self> {
        (1..).map(move |depth: i32| {
            let (own, before) = (right.powi(depth), right.powi(depth - 1));
            let again = if states { f64::from(depth - 1) * (before - own) } else { 0.0 };
            Self { right: own, again }
        })
    }
}

/// How long steps take, and what drafts have won.
#[derive(Debug, Clone)]
pub(in crate::generate) struct Gate {
    /// By rows; 0 where nothing is known.
    seconds: [f64; ROWS + 1],
    /// How often so many rows were measured, up to [`SURE`].
    seen: [u8; ROWS + 1],
    /// Seconds won, and seconds of all steps.
    won: f64,
    all: f64,
    /// Steps with drafts since one without, and all.
    drafted: u32,
    steps: u32,
    /// The last step took far longer than is known.
    odd: bool,
}

impl Default for Gate {
    fn default() -> Self {
        let (seconds, seen) = ([0.0; ROWS + 1], [0; ROWS + 1]);
        Self { seconds, seen, won: 0.0, all: 0.0, drafted: 0, steps: 0, odd: false }
    }
}

impl Gate {
    /// What a step of so many rows takes, in seconds; `None` before any was measured.
    fn time(&self, rows: usize) -> Option<f64> {
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

    /// The most rows of a step so far.
    fn most(&self) -> usize {
        (1..=ROWS).rev().find(|at| self.seconds[*at] > 0.0).unwrap_or(0)
    }

    /// How many rows to draft in a step, of rows with these chances, the largest first.
    pub(in crate::generate) fn rows(&mut self, step: Step, chances: impl Iterator<Item = Chance>) -> usize {
        let Step { sessions, again, .. } = step;
        let Some(plain) = self.time(sessions) else { return 0 };
        if self.seen.get(sessions).is_some_and(|seen| *seen < SURE) {
            return 0;
        }
        let stake = RISK * self.all + STAKE * plain;
        if self.won < -stake || self.drafted >= PLAIN {
            return 0;
        }
        let certain = sessions + again;
        let (mut best, mut most) = (0, sessions as f64 / self.time(certain).unwrap_or(plain));
        let (mut tokens, mut later, mut all) = (sessions as f64, 0.0, 0);
        // By no more than twice as many as ever were: what those take is known.
        let room = (2 * self.most()).min(ROWS).saturating_sub(certain);
        for (at, chance) in chances.enumerate().take(room) {
            (tokens, later, all) = (tokens + chance.right, later + chance.again, at + 1);
            let rows = certain + all;
            let rate = self.time(rows).map_or(0.0, |time| {
                let row = (time - plain).max(0.0) / (rows - sessions) as f64;
                tokens / (time + later * row)
            });
            if rate > most {
                (best, most) = (at + 1, rate);
            }
        }
        if best > 0 && self.won > 0.0 && self.steps % PROBE == PROBE - 1 {
            return 1 + (self.steps / PROBE) as usize % all.min(2 * best + 2);
        }
        best
    }

    /// Seconds of a step of so many sessions without drafts, where one was measured.
    pub(in crate::generate) fn without(&self, sessions: usize) -> Option<f64> {
        self.seconds.get(sessions).copied().filter(|seconds| *seconds > 0.0)
    }

    /// Notes a step that gave so many tokens. Its drafts may be others than [`rows`](Self::rows) said: then nothing was lost
    /// or won by it.
    pub(in crate::generate) fn note(&mut self, step: Step, tokens: usize, taken: Duration) {
        let Step { sessions, own, .. } = step;
        let (rows, taken) = (step.rows(), taken.as_secs_f64());
        if rows > ROWS || sessions == 0 {
            return;
        }
        // What else the machine did is no loss of drafts, and says nothing of steps, unless it goes on.
        let known = self.seconds[rows];
        let (odd, before) = (known > 0.0 && taken > ODD * known, self.odd);
        self.odd = odd;
        if odd && !before {
            return;
        }
        if !step.is_plain()
            && own
            && let Some(plain) = self.time(sessions)
        {
            // What was won long ago is not lost again.
            let won = plain * tokens as f64 / sessions as f64 - taken;
            self.won = (self.won + won).min(WON * plain);
            self.drafted += 1;
            self.steps = self.steps.wrapping_add(1);
        } else {
            self.drafted = 0;
        }
        self.all += taken;
        self.seen[rows] = (self.seen[rows] + 1).min(SURE);
        let settled = known > 0.0 && taken > known / ODD;
        self.seconds[rows] = if settled { known + WEIGHT * (taken - known) } else { taken };
    }
}

/// How often drafts of a generation are accepted, by how long the text agreed before them.
#[derive(Debug, Clone)]
pub(in crate::generate) struct Acceptance([f64; CLASSES]);

/// Classes of lengths: 3, 4 to 7, 8 to 15, 16 to 31, and more.
const CLASSES: usize = 5;
/// What is expected at first.
const FIRST: [f64; CLASSES] = [0.35, 0.5, 0.7, 0.8, 0.9];
/// How much of it each drafted token changes, and how much of what was found is forgotten where none is drafted.
const CHANGE: f64 = 0.08;
const FORGETTING: f64 = 0.005;

fn class(len: usize) -> usize {
    [4, 8, 16, 32].iter().filter(|least| len >= **least).count()
}

impl Default for Acceptance {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Acceptance {
    /// The chance that a token is accepted behind which others were, where so many tokens agreed before all of them.
    pub(in crate::generate) fn chance(&self, len: usize) -> f64 {
        self.0[class(len)]
    }

    /// Notes that nothing was drafted: what is known gets old.
    pub(in crate::generate) fn rest(&mut self, len: usize) {
        let class = class(len);
        self.0[class] += FORGETTING * (FIRST[class] - self.0[class]);
    }

    /// Notes that of `drafted` tokens the first `accepted` were.
    pub(in crate::generate) fn note(&mut self, len: usize, drafted: usize, accepted: usize) {
        let chance = &mut self.0[class(len)];
        for _ in 0..accepted {
            *chance += CHANGE * (1.0 - *chance);
        }
        if accepted < drafted {
            *chance -= CHANGE * *chance;
        }
    }
}

#[cfg(test)]
mod tests {
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
        states: bool,
        fixed: Option<usize>,
        noise: f64,
        odd: &dyn Fn(usize) -> f64,
    ) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (mut gate, mut acceptance) = (Gate::default(), Acceptance::default());
        let (mut seconds, mut tokens, mut again) = (0.0, 0, 0);
        for at in 0..STEPS {
            let mut step = Step { sessions: 1, again, drafted: 0, own: true };
            let chances = Chance::chain(acceptance.chance(8), states).take(MOST);
            step.drafted = fixed.unwrap_or_else(|| gate.rows(step, chances));
            let drafted = step.drafted;
            let accepted = (0..drafted).take_while(|_| draw(&mut rng) < chance).count();
            let usual = time(step.rows()) * (1.0 + noise * (draw(&mut rng) - 0.5));
            gate.note(step, 1 + accepted, Duration::from_secs_f64(usual * odd(at)));
            again = if states && accepted < drafted { accepted } else { 0 };
            match drafted {
                0 => acceptance.rest(8),
                _ => acceptance.note(8, drafted, accepted),
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
                for (noise, states) in [(0.0, false), (0.1, false), (0.0, true), (0.1, true)] {
                    let speed = |fixed| speed(chance, time, states, fixed, noise, &|_| 1.0);
                    let (own, plain) = (speed(None), speed(Some(0)));
                    let best = (0..=MOST).map(|depth| speed(Some(depth))).fold(0.0, f64::max);
                    assert!(own >= 0.99 * plain, "{name}, {chance}: {} of plain", own / plain);
                    assert!(
                        own >= 0.95 * best,
                        "{name}, {chance}, {noise}, {states}: {} of the best",
                        own / best
                    );
                }
            }
        }
    }

    /// A first step that waits for the disk, and pauses of the process, which take as long as hundreds of steps.
    #[test]
    fn odd_steps_mislead_nobody() {
        let first: &dyn Fn(usize) -> f64 = &|step| if step == 0 { 200.0 } else { 1.0 };
        let pauses: &dyn Fn(usize) -> f64 = &|step| if step % 100 == 50 { 200.0 } else { 1.0 };
        for (name, odd) in [("first", first), ("pauses", pauses)] {
            for (chance, row) in [(0.02, 0.6), (0.6, 0.6), (0.9, 0.05)] {
                let time = |rows: usize| 1e-2 * (1.0 + row * (rows - 1) as f64);
                let [own, plain] = [None, Some(0)].map(|fixed| speed(chance, &time, false, fixed, 0.0, odd));
                assert!(own >= 0.99 * plain, "{name}, {chance}: {} of plain", own / plain);
            }
        }
    }
}
