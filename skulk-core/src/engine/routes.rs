//! Which experts does a row take, and how much of each? Routing, on the host.
//!
//! As in transformers and llama.cpp: the router's logits become scores by a softmax over all experts in f32, or each by
//! its sigmoid, and the best ones are taken, best first. Equal ones go by index, so that a row's experts follow from its
//! logits alone.

use std::ops::Range;

use super::backend::ExpertMemory;
use crate::arch::{ExpertGroups, ExpertsSpec, Scoring};
use crate::math;

/// Which experts each row takes, and how much of each; `[rows, n_used]`.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Experts a row takes.
    pub(crate) n_used: usize,
    /// The row of each place, where rows do not all take as many; otherwise empty.
    pub(crate) rows: Vec<u32>,
    /// Indices in the order of selection; within a row no two are equal.
    pub(crate) ids: Vec<u32>,
    /// Each multiplies its expert's result.
    pub(crate) weights: Vec<f32>,
    /// Room for logits, for what experts are chosen by, and for which of them can still be.
    logits: Vec<f32>,
    choice: Vec<f32>,
    open: Vec<bool>,
}

impl Routes {
    /// Routes `rows` rows by their logits `[rows, n_experts]`, which `read` writes. By expert, where there are
    /// some: what is added to the scores that experts are chosen by, and what multiplies their weights.
    pub(crate) fn select<E>(
        &mut self,
        spec: &ExpertsSpec,
        vectors: [&[f32]; 2],
        rows: usize,
        read: impl FnOnce(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut logits = std::mem::take(&mut self.logits);
        logits.resize(rows * spec.n_experts, 0.0);
        let done = read(&mut logits);
        if done.is_ok() {
            self.n_used = spec.n_used;
            self.rows.clear();
            self.ids.clear();
            self.weights.clear();
            for logits in logits.chunks_exact_mut(spec.n_experts) {
                select(logits, spec, vectors, self);
            }
        }
        self.logits = logits;
        done
    }

    /// Those of rows that take one expert each, of no rows yet.
    pub(crate) fn of_one_each() -> Self {
        Self { n_used: 1, ..Self::default() }
    }

    /// Becomes that of rows that all take expert 0, as a dense block is.
    pub(crate) fn all_take_the_first(&mut self, rows: usize) {
        self.n_used = 1;
        self.rows.clear();
        self.ids.clear();
        self.ids.resize(rows, 0);
        self.weights.clear();
        self.weights.resize(rows, 1.0);
    }

    /// Becomes a copy of other routes.
    pub(crate) fn copy(&mut self, other: &Routes) {
        self.n_used = other.n_used;
        self.rows.clone_from(&other.rows);
        self.ids.clone_from(&other.ids);
        self.weights.clone_from(&other.weights);
    }

    /// The row that a place belongs to.
    pub(crate) fn row(&self, place: u32) -> usize {
        self.rows.get(place as usize).map_or(place as usize / self.n_used.max(1), |row| *row as usize)
    }

    /// Places in [`ids`](Self::ids), sorted by expert: those of one expert lie together, rows
    /// ascending.
    pub(crate) fn by_expert(&self, places: &mut Vec<u32>) {
        places.clear();
        places.extend(0..self.ids.len() as u32);
        places.sort_unstable_by_key(|&place| (self.ids[place as usize], place));
    }

    /// Calls `work` with ranges of places that are [sorted by expert](Self::by_expert), one behind the other, each
    /// with all places of its experts, and these in `memory`. Who multiplies weights in place asks for them so.
    pub(crate) fn in_memory<E>(
        &self,
        places: &[u32],
        memory: Option<&dyn ExpertMemory>,
        mut work: impl FnMut(Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(memory) = memory else { return work(0..places.len()) };
        memory.begin(&mut self.experts(places));
        let mut from = 0;
        while from < places.len() {
            let rest = &places[from..];
            // Where there is room for none, one is used all the same.
            let n = memory.take(&mut self.experts(rest)).max(1);
            let to = from + self.same_expert(rest).take(n).map(<[u32]>::len).sum::<usize>();
            let _taken = Taken { memory, routes: self, places: &places[from..to] };
            work(from..to)?;
            from = to;
        }
        Ok(())
    }

    /// Sorted places, those of each expert together.
    pub(crate) fn same_expert<'a>(&'a self, places: &'a [u32]) -> impl Iterator<Item = &'a [u32]> {
        places.chunk_by(|&a, &b| self.expert(a) == self.expert(b))
    }

    /// The expert of a place.
    pub(crate) fn expert(&self, place: u32) -> u32 {
        self.ids[place as usize]
    }

    /// The experts of sorted places, each once.
    fn experts<'a>(&'a self, places: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        self.same_expert(places).map(|same| self.expert(same[0]))
    }
}

/// Experts that were taken into memory; released on drop, also after an error.
struct Taken<'a> {
    memory: &'a dyn ExpertMemory,
    routes: &'a Routes,
    places: &'a [u32],
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.memory.release(&mut self.routes.experts(self.places));
    }
}

/// Appends one row's selection; its logits are used up.
fn select(logits: &mut [f32], spec: &ExpertsSpec, [correction, scales]: [&[f32]; 2], routes: &mut Routes) {
    let Routes { ids, weights, choice, open, .. } = routes;
    choice.clear();
    choice.extend_from_slice(logits);
    match spec.scoring {
        Scoring::Softmax => softmax(logits),
        Scoring::Sigmoid => logits.iter_mut().for_each(|x| *x = math::sigmoid(*x)),
    }
    let (scores, first) = (&*logits, weights.len());
    // Sigmoids of large logits are equal: where nothing is added to them, logits choose.
    if spec.scoring == Scoring::Softmax || !correction.is_empty() || spec.groups.is_some() {
        choice.copy_from_slice(scores);
    }
    choice.iter_mut().zip(correction).for_each(|(choice, correction)| *choice += correction);
    open.clear();
    open.resize(scores.len(), true);
    if let Some(groups) = spec.groups {
        close_groups(groups, choice, open);
    }
    for _ in 0..spec.n_used {
        // A row that is not a number stays so, but takes as many different experts as any other.
        let free = choice.iter().zip(&*open).enumerate().filter(|(_, (_, open))| **open);
        let best = free.reduce(|best, next| if next.1.0 > best.1.0 { next } else { best });
        let Some((expert, _)) = best else { break };
        ids.push(expert as u32);
        weights.push(scores[expert]);
        open[expert] = false;
    }
    let chosen = &mut weights[first..];
    if spec.normalise {
        // Sigmoids may all be too small to be numbers.
        let total = chosen.iter().sum::<f32>() + 1e-20;
        chosen.iter_mut().for_each(|weight| *weight /= total);
    }
    if spec.scale != 1.0 {
        chosen.iter_mut().for_each(|weight| *weight *= spec.scale);
    }
    for (weight, expert) in chosen.iter_mut().zip(&ids[first..]) {
        *weight *= scales.get(*expert as usize).unwrap_or(&1.0);
    }
}

fn softmax(logits: &mut [f32]) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut total = 0.0;
    for x in &mut *logits {
        *x = math::exp_f32(*x - most);
        total += *x;
    }
    logits.iter_mut().for_each(|x| *x /= total);
}

/// Closes the experts of all groups but the best.
fn close_groups(groups: ExpertGroups, choice: &[f32], open: &mut [bool]) {
    let of_group = choice.len() / groups.n_groups.max(1);
    let score = |group: usize| {
        let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        for &x in &choice[group * of_group..][..of_group] {
            second = second.max(first.min(x));
            first = first.max(x);
        }
        first + second
    };
    for group in 0..groups.n_groups {
        let own = score(group);
        let before = (0..groups.n_groups).filter(|&other| {
            let other_score = score(other);
            other_score > own || other_score == own && other < group
        });
        if before.count() >= groups.n_used {
            open[group * of_group..][..of_group].fill(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn softmaxed(n_experts: usize, n_used: usize) -> ExpertsSpec {
        let (scoring, groups) = (Scoring::Softmax, None);
        ExpertsSpec { n_experts, n_used, scoring, groups, normalise: true, ..ExpertsSpec::PLAIN }
    }

    fn selected(logits: &[f32], n_used: usize, normalise: bool) -> (Vec<u32>, Vec<f32>) {
        let spec = ExpertsSpec { normalise, ..softmaxed(logits.len(), n_used) };
        let mut routes = Routes::default();
        select(&mut logits.to_vec(), &spec, [&[], &[]], &mut routes);
        (routes.ids, routes.weights)
    }

    #[test]
    fn the_most_probable_experts_come_first() {
        let logits = [0.0, 2.0, -1.0, 3.0];
        let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        let (ids, weights) = selected(&logits, 2, false);
        assert_eq!(ids, [3, 1]);
        for (weight, logit) in weights.iter().zip([3.0f64, 2.0]) {
            assert!((f64::from(*weight) - logit.exp() / total).abs() < 1e-6);
        }
        let (ids, weights) = selected(&logits, 2, true);
        assert_eq!(ids, [3, 1]);
        let share = 1.0 / (1.0 + (-1.0f64).exp());
        assert!((f64::from(weights[0]) - share).abs() < 1e-6);
        assert!((weights[0] + weights[1] - 1.0).abs() < 1e-6);
    }

    /// A memory for so many experts, which notes what is asked of it.
    struct Few(usize, std::sync::Mutex<Vec<(char, Vec<u32>)>>);

    impl Few {
        fn note(&self, what: char, experts: Vec<u32>) -> usize {
            let n = experts.len();
            self.1.lock().unwrap().push((what, experts));
            n
        }
    }

    impl ExpertMemory for Few {
        fn begin(&self, experts: &mut dyn Iterator<Item = u32>) {
            self.note('b', experts.collect());
        }
        fn take(&self, experts: &mut dyn Iterator<Item = u32>) -> usize {
            self.note('t', experts.take(self.0).collect())
        }
        fn release(&self, experts: &mut dyn Iterator<Item = u32>) {
            self.note('r', experts.collect());
        }
    }

    #[test]
    fn experts_are_in_memory_while_they_are_worked_on() {
        let routes = Routes { n_used: 2, ids: vec![7, 2, 2, 9, 7, 2, 4, 9], ..Routes::default() };
        let mut places = Vec::new();
        routes.by_expert(&mut places);
        assert_eq!(places, [1, 2, 5, 6, 0, 4, 3, 7]);
        let parts = |few: &Few, fail: usize| {
            let mut parts = Vec::new();
            let done = routes.in_memory(&places, Some(few), |range| {
                few.note('w', Vec::new());
                parts.push(range.clone());
                if range.contains(&fail) { Err(()) } else { Ok(()) }
            });
            (parts, done)
        };
        let few = Few(3, Default::default());
        assert_eq!(parts(&few, 99), (vec![0..6, 6..8], Ok(())));
        let (all, nothing) = (vec![2, 4, 7, 9], Vec::new);
        let expected = [
            ('b', all),
            ('t', vec![2, 4, 7]),
            ('w', nothing()),
            ('r', vec![2, 4, 7]),
            ('t', vec![9]),
            ('w', nothing()),
            ('r', vec![9]),
        ];
        assert_eq!(*few.1.lock().unwrap(), expected);
        // Whatever the memory says, it comes to an end.
        assert_eq!(parts(&Few(0, Default::default()), 99), (vec![0..3, 3..4, 4..6, 6..8], Ok(())));
        // An error ends it, and nothing stays taken.
        let few = Few(1, Default::default());
        assert_eq!(parts(&few, 3), (vec![0..3, 3..4], Err(())));
        assert_eq!(few.1.lock().unwrap().last(), Some(&('r', vec![4])));
        routes.in_memory(&places, None, |range| if range == (0..8) { Ok(()) } else { Err(()) }).unwrap();
    }

    #[test]
    fn equal_experts_go_by_index() {
        assert_eq!(selected(&[1.0, 5.0, 1.0, 5.0, 1.0], 4, true).0, [1, 3, 0, 2]);
        // So far behind that all probabilities but one are zero.
        assert_eq!(selected(&[-300.0, -200.0, 900.0], 3, true), (vec![2, 0, 1], vec![1.0, 0.0, 0.0]));
    }

    #[test]
    fn logits_choose_where_sigmoids_are_equal() {
        let spec = ExpertsSpec { scoring: Scoring::Sigmoid, normalise: false, ..softmaxed(3, 1) };
        let mut routes = Routes::default();
        select(&mut [30.0, 40.0, 35.0], &spec, [&[], &[]], &mut routes);
        assert_eq!((routes.ids, routes.weights), (vec![1], vec![1.0]));
    }

    #[test]
    fn rows_that_are_no_numbers_take_different_experts() {
        for broken in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for logits in [[broken; 4], [1.0, broken, 2.0, broken]] {
                let (mut ids, weights) = selected(&logits, 4, true);
                ids.sort_unstable();
                assert_eq!((ids, weights.len()), (vec![0, 1, 2, 3], 4), "{logits:?}");
            }
        }
    }
}
