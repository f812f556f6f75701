//! What stays on disk? Feed-forward blocks and experts that the coordinator's processor has no memory for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::cost::Owner;
use super::problem::Problem;
use super::seats::{Missing, Seat};

/// Bytes a second at which pages of the system's cache become a process' own, from wherever they came there.
pub(super) const CACHE: f64 = 1.4e10;

/// Blocks and experts that one device computes, some of which are not in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OnDisk {
    /// The device.
    pub(super) seat: usize,
    /// Bytes of them that are in memory at most.
    pub(super) budget: u64,
    /// Bytes of the others.
    pub(super) bytes: u64,
    /// Of what it reads of them.
    missing: Missing,
}

impl OnDisk {
    /// Of a device that has so many bytes for the blocks and experts that it computes. `None` where it cannot be: an engine
    /// needs room for two of the largest, and does not leave on disk what it copies.
    pub(super) fn new(
        problem: &Problem<'_>,
        seat: usize,
        budget: u64,
        stages: &[(usize, Range<usize>)],
        owners: &[Owner],
    ) -> Option<Self> {
        let disk = problem.seats[seat].disk?;
        let layers = &problem.inventory.layers;
        let mut computed: BTreeMap<usize, usize> = BTreeMap::new();
        let own = stages.iter().filter(|(home, _)| *home == seat).flat_map(|(_, layers)| layers.clone());
        computed.extend(own.map(|layer| (layer, layers[layer].blocks().0)));
        let elsewhere: BTreeSet<usize> = owners.iter().map(|owner| owner.layer).collect();
        computed.retain(|layer, _| !elsewhere.contains(layer));
        for owner in owners.iter().filter(|owner| owner.seat == seat) {
            *computed.entry(owner.layer).or_default() += owner.experts.len();
        }
        let (mut total, mut largest, mut chosen, mut copied) = (0u64, 0, false, false);
        for (layer, count) in computed {
            let each = layers[layer].blocks().1;
            copied |= layers[layer].copied;
            total = total.saturating_add(each.saturating_mul(count as u64));
            largest = each.max(largest);
            chosen |= layers[layer].n_experts > 0;
        }
        if total <= budget {
            return Some(Self {
                seat,
                budget,
                bytes: 0,
                missing: Missing { share: 0.0, rate: f64::INFINITY },
            });
        }
        if copied || budget / 2 < largest {
            return None;
        }
        // Blocks are needed one after the other: as many as fit stay but for one, through whose place the others pass.
        // Which experts are needed is drawn.
        let kept = if chosen { budget } else { budget - largest };
        // What an engine lets go stays in the system's cache, unless memory has no room for all of it.
        let held = stages.iter().find(|(home, _)| *home == seat).map_or(0..0, |(_, layers)| layers.clone());
        let cached = problem.bytes(seat, &held, total).total() <= disk.memory;
        let rate = if cached { f64::INFINITY } else { disk.rate };
        let missing = Missing { share: 1.0 - kept as f64 / total as f64, rate };
        Some(Self { seat, budget, bytes: total - budget, missing })
    }

    /// Whether what is missing is read from the disk each time.
    pub(super) fn is_read(&self) -> bool {
        self.missing.rate.is_finite()
    }

    /// All devices, this one as one that waits for what is missing.
    pub(super) fn seats(&self, problem: &Problem<'_>) -> Vec<Seat> {
        let mut seats = problem.seats.clone();
        seats[self.seat].missing = Some(self.missing);
        seats
    }
}
