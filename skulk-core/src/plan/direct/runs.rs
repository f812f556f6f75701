//! What is the fastest way to give runs of consecutive parts to few devices? All sets of devices, orders and ends of runs
//! are compared, by how far a set gets.

use std::ops::Range;

use super::arrange::Arrangement;
use super::cost::Owner;
use super::fill::{Parts, Room};
use super::group::{Group, Reached};
use super::sets::SETS;

/// Parts, and what devices take for them.
struct Runs<'a> {
    parts: &'a Parts,
    rooms: Vec<Room>,
    /// For each device its seconds for the parts before each, and for all.
    before: Vec<Vec<f64>>,
    /// Seconds of each device that has any, and of the one with the last.
    any: Vec<f64>,
    last: Vec<f64>,
    /// The device that must begin.
    first: Option<usize>,
}

impl Runs<'_> {
    /// The devices with their runs, in order, that take least, less than `limit`, of the sets that are complete.
    fn fastest(&self, limit: f64, complete: impl Fn(usize) -> bool) -> Option<Vec<(usize, Range<usize>)>> {
        let (n, devices) = (self.parts.len(), self.rooms.len());
        // What the parts from each on take at least.
        let mut rest = vec![0.0; n + 1];
        for at in (0..n).rev() {
            let own = self.before.iter().map(|before| before[at + 1] - before[at]);
            rest[at] = rest[at + 1] + own.fold(f64::INFINITY, f64::min);
        }
        let limit = limit * (1.0 - 1e-12);
        // Seconds until a set of devices has the parts before one, and the last of these devices with its first part.
        let mut reached = vec![vec![(f64::INFINITY, 0, 0); n + 1]; 1 << devices];
        reached[0][0].0 = 0.0;
        let mut best: Option<(f64, usize)> = None;
        for set in 0..1usize << devices {
            for start in 0..n {
                let until = reached[set][start].0;
                if until + rest[start] >= best.map_or(limit, |best| best.0) {
                    continue;
                }
                for at in 0..devices {
                    if set >> at & 1 == 1 || set == 0 && self.first.is_some_and(|first| first != at) {
                        continue;
                    }
                    let furthest = self.parts.reach(start, n - start, self.rooms[at].bytes);
                    let with = set | 1 << at;
                    let ends = reached[with].iter_mut().enumerate().take(furthest + 1).skip(start + 1);
                    for (end, known) in ends {
                        let own = self.any[at] + self.before[at][end] - self.before[at][start];
                        let last = if end == n { self.last[at] } else { 0.0 };
                        let seconds = until + own + last;
                        if seconds < known.0 {
                            *known = (seconds, at, start);
                            if end == n && complete(with) && best.is_none_or(|best| seconds < best.0) {
                                best = Some((seconds, with));
                            }
                        }
                    }
                }
            }
        }
        let (seconds, mut set) = best?;
        if seconds >= limit {
            return None;
        }
        let (mut runs, mut end) = (Vec::new(), n);
        while set > 0 {
            let (_, at, start) = reached[set][end];
            runs.push((at, start..end));
            (set, end) = (set & !(1 << at), start);
        }
        runs.reverse();
        Some(runs)
    }
}

impl Group<'_> {
    /// The fastest arrangements around a coordinator of whole layers, and of attention on one device with whole blocks on
    /// devices, that take less than `limit` seconds. Of few devices.
    pub(super) fn in_runs(&self, coordinator: usize, limit: f64) -> Vec<Arrangement> {
        let Reached { all, with_attention, own } = self.reached(coordinator);
        if all.len() > SETS || !self.problem.fixed.seats.is_empty() {
            return Vec::new();
        }
        let whole = own.iter().map(|&first| self.layers_in_runs(first, &with_attention, limit));
        let blocks = own.iter().map(|&home| self.blocks_in_runs(home, &all, limit));
        self.complete(whole.chain(blocks).collect())
    }

    /// Whether a set of devices, and a node, are as many nodes as must be used, and those that must.
    fn is_complete(&self, seats: &[usize], set: usize, node: usize) -> bool {
        let problem = self.problem;
        let own = (0..seats.len()).filter(|at| set >> at & 1 == 1).map(|at| problem.seats[seats[at]].node);
        let mut nodes: Vec<usize> = own.chain([node]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len() >= problem.request.min_nodes && problem.required.iter().all(|node| nodes.contains(node))
    }

    fn layers_in_runs(&self, first: usize, seats: &[usize], limit: f64) -> Option<Arrangement> {
        let (problem, costs) = (self.problem, self.problem.costs());
        let model = &self.model;
        let before = seats.iter().map(|&seat| {
            let layers = (0..problem.inventory.layers.len())
                .map(|layer| costs.layer(&problem.seats, seat, layer, &[]));
            let mut sums = vec![0.0];
            for layer in layers {
                sums.push(sums[sums.len() - 1] + layer.unwrap_or(f64::INFINITY));
            }
            (0..=model.whole.len()).map(|part| sums[self.first_layer(part)]).collect()
        });
        let trip = |&seat: &usize| costs.trip(&problem.seats[first], &problem.seats[seat], costs.sessions);
        let runs = Runs {
            parts: &model.whole,
            rooms: self.rooms(seats).collect(),
            before: before.collect(),
            any: seats.iter().map(|seat| trip(seat).unwrap_or(f64::INFINITY)).collect(),
            last: seats.iter().map(|&seat| costs.head(&problem.seats[seat])).collect(),
            first: seats.iter().position(|&seat| seat == first),
        };
        let node = problem.seats[first].node;
        let found = runs.fastest(limit, |set| self.is_complete(seats, set, node))?;
        let layers = |parts: Range<usize>| self.first_layer(parts.start)..self.first_layer(parts.end);
        let stages: Vec<_> = found.into_iter().map(|(at, parts)| (seats[at], layers(parts))).collect();
        let words = format!("whole layers on {} devices", stages.len());
        self.arranged(stages, Vec::new(), words)
    }

    fn blocks_in_runs(&self, home: usize, reached: &[usize], limit: f64) -> Option<Arrangement> {
        let (problem, costs) = (self.problem, self.problem.costs());
        let (seats, rooms) = self.beside_attention(home, reached)?;
        let layers = &problem.inventory.layers;
        let owner = |seat: usize, layer: usize| Owner { seat, layer, experts: 0..layers[layer].blocks().0 };
        let blocks = |layer: usize| problem.charged(&self.seats, layers[layer].blocks().1);
        let sizes =
            (0..layers.len()).map(|layer| blocks(layer).saturating_mul(layers[layer].blocks().0 as u64));
        let before = seats.iter().map(|&seat| {
            let mut sums = vec![0.0];
            for layer in 0..layers.len() {
                let owner = [owner(seat, layer)];
                let owners: &[Owner] = if seat == home { &[] } else { &owner };
                let seconds = costs.layer(&problem.seats, home, layer, owners).unwrap_or(f64::INFINITY);
                sums.push(sums[layer] + seconds);
            }
            sums
        });
        let before: Vec<Vec<f64>> = before.collect();
        let nothing = vec![0.0; seats.len()];
        let parts = Parts::new(sizes, 0);
        let runs = Runs { parts: &parts, rooms, before, any: nothing.clone(), last: nothing, first: None };
        let node = problem.seats[home].node;
        let head = costs.head(&problem.seats[home]);
        let found = runs.fastest(limit - head, |set| self.is_complete(&seats, set, node))?;
        let owners = found.into_iter().flat_map(|(at, layers)| layers.map(move |layer| (at, layer)));
        let owners = owners.map(|(at, layer)| owner(seats[at], layer)).collect();
        self.row(home, owners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The least seconds of all ways to give the parts from `start` on to devices that are not in `set`.
    fn least(runs: &Runs<'_>, set: usize, start: usize) -> f64 {
        let n = runs.parts.len();
        if start == n {
            return 0.0;
        }
        let mut least_seconds = f64::INFINITY;
        for at in (0..runs.rooms.len()).filter(|at| set >> at & 1 == 0) {
            if set == 0 && runs.first.is_some_and(|first| first != at) {
                continue;
            }
            for end in start + 1..=n {
                if runs.parts.bytes(&(start..end)) <= runs.rooms[at].bytes {
                    let own = runs.any[at] + runs.before[at][end] - runs.before[at][start];
                    let last = if end == n { runs.last[at] } else { 0.0 };
                    least_seconds = least_seconds.min(own + last + least(runs, set | 1 << at, end));
                }
            }
        }
        least_seconds
    }

    proptest! {
        #[test]
        fn no_way_is_faster(
            sizes in prop::collection::vec(1u64..9, 1..7),
            devices in prop::collection::vec((0u64..30, 1u32..9, 0u32..9, 0u32..9), 1..5),
            first in prop::option::of(0usize..5),
        ) {
            let n = sizes.len();
            let parts = Parts::new(sizes, 0);
            let room = |(node, &(bytes, ..)): (usize, &(u64, u32, u32, u32))| Room { bytes, node };
            let runs = Runs {
                parts: &parts,
                rooms: devices.iter().enumerate().map(room).collect(),
                before: devices.iter().map(|it| (0..=n).map(|at| f64::from(it.1) * at as f64).collect()).collect(),
                any: devices.iter().map(|it| f64::from(it.2)).collect(),
                last: devices.iter().map(|it| f64::from(it.3)).collect(),
                first: first.map(|at| at % devices.len()),
            };
            let found = runs.fastest(f64::INFINITY, |_| true);
            let expected = least(&runs, 0, 0);
            prop_assert_eq!(found.is_some(), expected.is_finite());
            let Some(found) = found else { return Ok(()) };
            let (mut start, mut seconds) = (0, 0.0);
            for (at, run) in &found {
                prop_assert_eq!(run.start, start);
                prop_assert!(parts.bytes(run) <= devices[*at].0);
                seconds += runs.any[*at] + runs.before[*at][run.end] - runs.before[*at][run.start];
                start = run.end;
            }
            prop_assert_eq!(start, n);
            seconds += runs.last[found[found.len() - 1].0];
            prop_assert!((seconds - expected).abs() < 1e-9, "{} {}", seconds, expected);
        }
    }
}
