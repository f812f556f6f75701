//! How far does memory reach around parts that are fixed? Others go to devices in order, or to neighbours of theirs.

use std::collections::BTreeSet;
use std::ops::Range;

use super::fill::{Parts, Room};

/// Parts that a device has in any case.
#[derive(Debug, Clone)]
pub(super) struct Pin {
    /// The device, by its place in the order.
    pub(super) at: usize,
    pub(super) parts: Range<usize>,
    /// Bytes that it has for these and their neighbours.
    pub(super) bytes: u64,
}

impl Parts {
    /// Gives consecutive parts to devices, so that at least `nodes` nodes have some: pinned ones, in order of their parts,
    /// to their devices with as many neighbours as fit, the others to the other devices in turn, to each as many as fit. Of
    /// the parts before pinned ones their device takes only what the others leave. The parts come with their device's
    /// place in the order. `None` when parts are left over, or there were too few nodes.
    pub(super) fn fill_around(
        &self,
        rooms: &[Room],
        pins: &[Pin],
        nodes: usize,
    ) -> Option<Vec<(usize, Range<usize>)>> {
        if self.overflow() {
            return None;
        }
        let n = self.len();
        let mut others = (0..rooms.len()).filter(|at| pins.iter().all(|pin| pin.at != *at));
        let mut used: BTreeSet<usize> = pins.iter().map(|pin| rooms[pin.at].node).collect();
        let mut found = Vec::new();
        let (mut start, mut open) = (0, n - pins.iter().map(|pin| pin.parts.len()).sum::<usize>());
        for turn in 0..=pins.len() {
            let pin = pins.get(turn);
            let end = pin.map_or(n, |pin| pin.parts.start);
            let least = match pin {
                Some(pin) => self.first_within(start, pin)?,
                None => n,
            };
            while start < least || start < end && used.len() < nodes {
                let Some(at) = others.next() else { break };
                let room = rooms[at];
                let missing = nodes.saturating_sub(used.len() + usize::from(!used.contains(&room.node)));
                let limit = (end - start).min(open.saturating_sub(missing));
                let reached = self.reach(start, limit, room.bytes);
                if reached > start {
                    used.insert(room.node);
                    found.push((at, start..reached));
                    open -= reached - start;
                    start = reached;
                }
            }
            if start < least {
                return None;
            }
            let Some(pin) = pin else { continue };
            open -= end - start;
            let missing = nodes.saturating_sub(used.len());
            let next = pins.get(turn + 1).map_or(n, |next| next.parts.start);
            let limit = next.min(pin.parts.end + open.saturating_sub(missing));
            let all = start == 0 && limit == n && self.holds_all(pin.bytes);
            let reached = if all { n } else { self.reach(start, limit - start, pin.bytes) };
            found.push((pin.at, start..reached));
            open -= reached.checked_sub(pin.parts.end)?;
            start = reached;
        }
        (used.len() >= nodes).then_some(found)
    }

    /// The first part, from `start` on, from which on a pinned device has room up to the end of its own.
    fn first_within(&self, start: usize, pin: &Pin) -> Option<usize> {
        let fits = |first: usize| self.bytes(&(first..pin.parts.end)) <= pin.bytes;
        (start..=pin.parts.start).find(|&first| fits(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rooms(bytes: &[u64]) -> Vec<Room> {
        bytes.iter().enumerate().map(|(node, &bytes)| Room { bytes, node }).collect()
    }

    fn pin(at: usize, parts: Range<usize>, bytes: u64) -> Pin {
        Pin { at, parts, bytes }
    }

    #[test]
    fn pinned_parts_stay_and_neighbours_join_them() {
        let parts = Parts::new([1; 10], 0);
        let fill = |bytes: &[u64], pins: &[Pin], nodes| parts.fill_around(&rooms(bytes), pins, nodes);
        // Nothing else is needed.
        assert_eq!(fill(&[9, 10], &[pin(1, 4..6, 10)], 1), Some(vec![(1, 0..10)]));
        // Without room beside its own, others have the rest.
        assert_eq!(fill(&[4, 2, 9], &[pin(1, 4..6, 2)], 1), Some(vec![(0, 0..4), (1, 4..6), (2, 6..10)]));
        assert_eq!(fill(&[4, 2, 3], &[pin(1, 4..6, 2)], 1), None);
        assert_eq!(fill(&[3, 3, 4], &[pin(1, 4..6, 3)], 1), Some(vec![(0, 0..3), (1, 3..6), (2, 6..10)]));
        // It has no room for its own.
        assert_eq!(fill(&[9, 1], &[pin(1, 4..6, 1)], 1), None);
        let two = [pin(1, 0..1, 3), pin(0, 9..10, 4)];
        assert_eq!(fill(&[4, 3, 3], &two, 1), Some(vec![(1, 0..3), (2, 3..6), (0, 6..10)]));
        assert_eq!(fill(&[4, 3, 2], &two, 1), None);
        // So many nodes must have some.
        assert_eq!(fill(&[9, 10, 9], &[pin(1, 4..6, 10)], 3).unwrap().len(), 3);
    }

    proptest! {
        #[test]
        fn all_parts_are_somewhere_and_pinned_ones_where_they_must(
            sizes in prop::collection::vec(0u64..9, 1..12), bytes in prop::collection::vec(0u64..40, 2..6),
            cut in 0usize..12, len in 1usize..4, at in 0usize..6, nodes in 0usize..4, shared in 0u64..9,
        ) {
            let shared = if sizes.len() > 1 { shared.min(sizes[0]) } else { 0 };
            let parts = Parts::new(sizes, shared);
            let (start, at) = (cut % parts.len(), at % bytes.len());
            let pins = [pin(at, start..(start + len).min(parts.len()), bytes[at])];
            let found = parts.fill_around(&rooms(&bytes), &pins, nodes);
            let mut next = 0;
            for (at, range) in found.iter().flatten() {
                prop_assert_eq!(range.start, next);
                prop_assert!(!range.is_empty() && parts.bytes(range) <= bytes[*at]);
                next = range.end;
            }
            if let Some(found) = found {
                prop_assert_eq!(next, parts.len());
                prop_assert!(found.len() >= nodes);
                let own = found.iter().find(|(it, _)| *it == at).unwrap();
                prop_assert!(own.1.start <= pins[0].parts.start && own.1.end >= pins[0].parts.end);
            }
        }
    }
}
