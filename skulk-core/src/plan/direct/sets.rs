//! Which of few devices should take part, and in which order? Where there are no more than [`SETS`], each set of them is
//! tried, and where orders by speed fit nowhere, whatever order reaches furthest.
//!
//! A set of devices is arranged as if there were no others. So others, as they join, never make a plan slower or end a
//! fit.

use std::cmp::Ordering;

use super::arrange::{Arrangement, QUARTERS};
use super::fill::{Parts, Room};
use super::group::{Group, Reached};

/// Devices up to which each set of them is tried.
pub(super) const SETS: usize = 8;

/// For each set of devices, by the bits of their places, how far its parts reach in the best order, and the last device of
/// that order.
struct Orders(Vec<(usize, usize)>);

impl Orders {
    /// Of parts from one on, given to devices of which these may be the first.
    fn new(parts: &Parts, start: usize, rooms: &[Room], may_begin: impl Fn(usize) -> bool) -> Self {
        let n = parts.len();
        let mut furthest: Vec<(usize, usize)> = vec![(start, 0)];
        for set in 1usize..1 << rooms.len() {
            let reached = (0..rooms.len()).filter(|at| set >> at & 1 == 1).map(|at| {
                let before = set & !(1 << at);
                let from = furthest[before].0;
                let bytes = rooms[at].bytes;
                let end = match before {
                    0 if !may_begin(at) => start,
                    0 if start == 0 && parts.holds_all(bytes) => n,
                    _ => parts.reach(from, n - from, bytes),
                };
                (end, at)
            });
            furthest.push(reached.max().unwrap_or((start, 0)));
        }
        Self(furthest)
    }

    /// The devices of a set, in the order in which they reach furthest.
    fn order(&self, mut set: usize) -> Vec<usize> {
        let mut order = Vec::new();
        while set > 0 {
            let last = self.0[set].1;
            order.push(last);
            set &= !(1 << last);
        }
        order.reverse();
        order
    }

    /// The sets that reach the end, none of which does without one of its devices, the smallest first.
    fn least(&self, end: usize) -> Vec<usize> {
        let reaches = |set: usize| self.0[set].0 == end;
        let without = |set: usize| (0..SETS).map(move |at| set & !(1 << at)).filter(move |it| *it != set);
        let is_least = |set: &usize| reaches(*set) && !without(*set).any(reaches);
        let mut sets: Vec<usize> = (0..self.0.len()).filter(is_least).collect();
        sets.sort_by_key(|set| set.count_ones());
        sets
    }
}

impl Group<'_> {
    /// The fastest arrangement of some of few devices, if it is faster than this one.
    pub(super) fn of_sets(&self, known: &Arrangement) -> Option<Arrangement> {
        if self.seats.len() > SETS || !self.problem.fixed.seats.is_empty() {
            return None;
        }
        let mut best = known.clone();
        let mut compare = |found: Vec<Arrangement>| {
            let found = found.into_iter().min_by(Arrangement::faster);
            if let Some(found) = found.filter(|found| found.faster(&best) == Ordering::Less) {
                best = found;
            }
            best.estimate.seconds()
        };
        let mut seconds = known.estimate.seconds();
        for coordinator in self.coordinators() {
            seconds = compare(self.in_runs(coordinator, seconds));
        }
        // Of many first: what they are compared with is soon fast.
        for set in (1usize..(1 << self.seats.len()) - 1).rev() {
            let group = self.only(set, seconds);
            if group.least_with(None) <= seconds {
                seconds = compare(group.search(usize::MAX));
            }
        }
        (best.faster(known) == Ordering::Less).then_some(best)
    }

    /// Ways around a coordinator in whatever order of few devices reaches furthest.
    pub(super) fn in_any_order(&self, coordinator: usize) -> Vec<Arrangement> {
        let problem = self.problem;
        let Reached { all, with_attention, own } = self.reached(coordinator);
        if all.len() > SETS || !problem.fixed.seats.is_empty() {
            return Vec::new();
        }
        let rooms = |seats: &[usize]| self.rooms(seats).collect::<Vec<Room>>();
        let pick =
            |seats: &[usize], order: &[usize]| order.iter().map(|&at| seats[at]).collect::<Vec<usize>>();
        let begins = |at: usize| own.contains(&with_attention[at]);
        let mut found = Vec::new();
        let whole = Orders::new(&self.model.whole, 0, &rooms(&with_attention), begins);
        for set in 0..whole.0.len() {
            if whole.0[set].0 == self.model.whole.len() {
                let order = pick(&with_attention, &whole.order(set));
                found.push(self.whole_layers(&order, coordinator, QUARTERS));
            }
        }
        for &seat in &own {
            let Some((order, rooms)) = self.beside_attention(seat, &all) else { continue };
            let experts = &self.model.experts;
            let start = experts.reach(0, experts.len(), rooms[0].bytes);
            let orders = Orders::new(experts, start, &rooms[1..], |_| true);
            let all = (1 << (rooms.len() - 1)) - 1;
            found.push(self.in_a_row(seat, &pick(&order[1..], &orders.order(all))));
        }
        let attention = Orders::new(&self.model.attention, 0, &rooms(&with_attention), begins);
        for set in attention.least(self.model.attention.len()) {
            let order = pick(&with_attention, &attention.order(set));
            let others: Vec<usize> = all.iter().copied().filter(|seat| !order.contains(seat)).collect();
            let rooms: Vec<Room> = self.rooms_for_blocks(&others).collect();
            let blocks = Orders::new(&self.model.experts, 0, &rooms, |_| true);
            let others = pick(&others, &blocks.order((1 << others.len()) - 1));
            found.push(self.attention_over(&order, &others, coordinator, QUARTERS));
        }
        self.complete(found)
    }

    /// Seconds that no arrangement of these devices falls below, with all attention on one where that is given.
    pub(super) fn least_with(&self, home: Option<usize>) -> f64 {
        let (costs, seats) = (self.problem.costs(), &self.problem.seats);
        let least = |seconds: &dyn Fn(usize) -> f64| {
            self.seats.iter().map(|&seat| seconds(seat)).fold(f64::INFINITY, f64::min)
        };
        let rate: f64 = self.seats.iter().map(|&seat| seats[seat].rate).sum();
        let layers = self.problem.inventory.layers.chunk_by(|a, b| a == b).map(|layers| {
            let layer = &layers[0];
            let attention = |seat: usize| match seats[seat].attention {
                true => costs.attention(&seats[seat], layer) + costs.shared(&seats[seat], layer),
                false => f64::INFINITY,
            };
            let attention = home.map_or_else(|| least(&attention), attention);
            let block = match layer.n_experts {
                0 => least(&|seat| costs.experts(&seats[seat], layer, 1)),
                _ => layer.expert as f64 * layer.n_used as f64 / rate,
            };
            (attention + block) * layers.len() as f64
        });
        // Sums are rounded otherwise than estimates are.
        layers.sum::<f64>() * (1.0 - 1e-9)
    }
}
