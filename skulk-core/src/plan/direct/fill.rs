//! How far does memory reach? Consecutive parts of a model, given to devices in order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// States of ways to fill devices that are compared at most: to use enough nodes is NP-hard where nodes have several
/// devices with others between them.
const STATES: usize = 1 << 15;

/// Parts of a model in order, by the bytes that each takes.
pub(super) struct Parts {
    /// Bytes before each part, and of all.
    before: Vec<u64>,
    /// Bytes that one device with all of them saves; no more than the first has.
    shared: u64,
}

/// A device that parts can go to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Bytes it has for them.
    pub(super) bytes: u64,
    /// Its node.
    pub(super) node: usize,
}

impl Parts {
    pub(super) fn new(sizes: impl IntoIterator<Item = u64>, shared: u64) -> Self {
        let mut sum = 0u64;
        let after = sizes.into_iter().map(|size| {
            sum = sum.saturating_add(size);
            sum
        });
        Self { before: [0].into_iter().chain(after).collect(), shared }
    }

    /// Whether they are more than can be counted.
    pub(super) fn overflow(&self) -> bool {
        self.before.last() == Some(&u64::MAX)
    }

    pub(super) fn len(&self) -> usize {
        self.before.len() - 1
    }

    /// Bytes of a range of parts.
    pub(super) fn bytes(&self, range: &Range<usize>) -> u64 {
        let bytes = self.before[range.end] - self.before[range.start];
        if range.len() == self.len() { bytes.saturating_sub(self.shared) } else { bytes }
    }

    /// The bytes of the most parts from the first that fit and end at one of these `ends`, which rise.
    pub(super) fn whole_within(&self, bytes: u64, ends: &[usize]) -> u64 {
        let fitting = ends.partition_point(|&end| self.before[end] <= bytes);
        fitting.checked_sub(1).map_or(0, |last| self.before[ends[last]])
    }

    /// Whether a device with so many bytes can have all parts.
    pub(super) fn holds_all(&self, bytes: u64) -> bool {
        self.bytes(&(0..self.len())) <= bytes
    }

    /// The end of the longest range that starts here, has at most `limit` parts and fits.
    pub(super) fn reach(&self, start: usize, limit: usize, bytes: u64) -> usize {
        let most = self.before[start].saturating_add(bytes);
        let limit = start.saturating_add(limit).min(self.len());
        start + self.before[start + 1..=limit].partition_point(|&end| end <= most)
    }

    /// Gives consecutive parts to devices in turn, so that at least `nodes` nodes have some; nodes that were `used`
    /// before count. `None` when parts are left over, or there were too few nodes.
    ///
    /// The first devices get as much as fits. Where that leaves nothing that the others can hold, all ways are
    /// compared. So this finds a way if there is one in this order of devices, and more bytes anywhere never end it,
    /// up to [`STATES`].
    pub(super) fn fill(
        &self,
        rooms: impl IntoIterator<Item = Room>,
        used: Vec<usize>,
        nodes: usize,
    ) -> Option<Vec<Range<usize>>> {
        let rooms: Vec<Room> = rooms.into_iter().collect();
        if self.overflow() {
            return None;
        }
        let missing = nodes.saturating_sub(used.len());
        self.fill_greedily(&rooms, used.clone(), nodes).or_else(|| self.fill_exactly(&rooms, &used, missing))
    }

    /// Gives each device in turn as many of the remaining parts as fit, but leaves one for each node that must still
    /// get some. Whatever a device leaves over, one that starts later in the parts gets at least as far: unless nodes
    /// are missing, this finds a way if there is one.
    fn fill_greedily(&self, rooms: &[Room], mut used: Vec<usize>, nodes: usize) -> Option<Vec<Range<usize>>> {
        let mut start = 0;
        let mut ranges = Vec::new();
        for room in rooms {
            let is_new = !used.contains(&room.node);
            let missing = nodes.saturating_sub(used.len() + usize::from(is_new));
            let limit = (self.len() - start).saturating_sub(missing);
            let all = limit == self.len() && self.holds_all(room.bytes);
            let end = if all { limit } else { self.reach(start, limit, room.bytes) };
            if end > start && is_new && used.len() < nodes {
                used.push(room.node);
            }
            ranges.push(start..end);
            start = end;
            if start == self.len() {
                break;
            }
        }
        (start == self.len() && used.len() >= nodes).then_some(ranges)
    }

    /// Compares all ways by how far they get, how many nodes are still missing, and which nodes with several devices
    /// have some. Where [`STATES`] allow for too few of these, the others count with the last of their devices.
    fn fill_exactly(&self, rooms: &[Room], used: &[usize], missing: usize) -> Option<Vec<Range<usize>>> {
        let states = rooms.len().saturating_mul(missing.saturating_add(1));
        if missing > self.len() || states > STATES {
            return None;
        }
        self.fill_greedily(rooms, Vec::new(), 0)?;
        let least = self.before.windows(2).map(|pair| pair[1] - pair[0]).min()?;
        let able = rooms.iter().filter(|room| room.bytes >= least && !used.contains(&room.node));
        if able.map(|room| room.node).collect::<BTreeSet<_>>().len() < missing {
            return None;
        }
        let is_last = |at: usize| rooms[at + 1..].iter().all(|later| later.node != rooms[at].node);
        let mut several: Vec<usize> =
            (0..rooms.len()).filter(|&at| !is_last(at)).map(|at| rooms[at].node).collect();
        several.sort_unstable();
        several.dedup();
        several.truncate((STATES / states).ilog2() as usize);
        // For each device the mark of its node, and whether the node may count with it.
        let mark = |node: usize| several.iter().position(|&it| it == node).map_or(0usize, |at| 1 << at);
        let counting = rooms.iter().enumerate().map(|(at, room)| {
            let mark = mark(room.node);
            (mark, !used.contains(&room.node) && (mark != 0 || is_last(at)))
        });
        let counting: Vec<(usize, bool)> = counting.collect();
        let with = |at: usize, (missing, having): State| {
            let (mark, may_count) = counting[at];
            match missing.saturating_sub(usize::from(may_count && having & mark == 0)) {
                0 => (0, 0),
                left => (left, having | mark),
            }
        };
        // Before each device, the positions that ways of each state get to.
        let start: Vec<Range<usize>> = std::iter::once(0..1).collect();
        let mut reached = vec![BTreeMap::from([((missing, 0), start)])];
        for (at, room) in rooms.iter().enumerate() {
            let fitting = (0..self.len()).filter(|&part| self.bytes(&(part..part + 1)) <= room.bytes);
            let fitting = union(fitting.map(|part| part..part + 1).collect());
            let mut next: BTreeMap<State, Vec<Range<usize>>> = BTreeMap::new();
            for (&state, starts) in &reached[at] {
                next.entry(state).or_default().extend(starts.iter().cloned());
                next.entry(with(at, state)).or_default().extend(self.ends(starts, &fitting, room.bytes));
            }
            reached.push(next.into_iter().map(|(state, ends)| (state, union(ends))).collect());
        }
        // Back from the last, each device having as little as possible.
        let (mut state, mut end) = ((0, 0), self.len());
        reached.last()?.get(&state)?.last().filter(|last| last.end > end)?;
        let mut ranges = Vec::new();
        for (at, room) in rooms.iter().enumerate().rev() {
            let fits =
                |&start: &usize| start == end || start < end && self.bytes(&(start..end)) <= room.bytes;
            let starts = reached[at].iter().flat_map(|(&before, starts)| {
                let most = if before == state { end + 1 } else { end };
                let last = starts.iter().rev().find(|range| range.start < most);
                let last = last.map(|range| range.end.min(most) - 1);
                let first = starts.first().map(|range| range.start);
                last.into_iter().chain(first).filter(fits).map(move |start| (start, before))
            });
            let leads_here = |&(start, before): &(usize, State)| {
                let after = if start == end { before } else { with(at, before) };
                after == state
            };
            let (start, before) = starts.filter(leads_here).max()?;
            ranges.push(start..end);
            (state, end) = (before, start);
        }
        ranges.reverse();
        Some(ranges)
    }

    /// The ends of ranges of one part and more that start at these positions and fit. `fitting` are the parts that
    /// fit by themselves.
    fn ends(&self, starts: &[Range<usize>], fitting: &[Range<usize>], bytes: u64) -> Vec<Range<usize>> {
        let both = fitting.iter().flat_map(|fitting| {
            starts.iter().map(|starts| starts.start.max(fitting.start)..starts.end.min(fitting.end))
        });
        let ends = both
            .filter(|starts| !starts.is_empty())
            .map(|starts| starts.start + 1..self.reach(starts.end - 1, self.len(), bytes) + 1);
        let all = starts.first().is_some_and(|first| first.start == 0) && self.holds_all(bytes);
        ends.chain(all.then_some(self.len()..self.len() + 1)).collect()
    }
}

/// Nodes that are still missing, and the marks of those with several devices that have some.
type State = (usize, usize);

/// The same numbers in ascending ranges that do not touch.
fn union(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut union: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match union.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => union.push(range),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rooms(bytes: &[u64]) -> Vec<Room> {
        bytes.iter().enumerate().map(|(node, &bytes)| Room { bytes, node }).collect()
    }

    #[test]
    fn devices_take_what_fits_and_leave_some_for_others() {
        let parts = Parts::new([3, 3, 3, 3], 0);
        assert_eq!(parts.fill(rooms(&[7, 2, 6]), vec![], 1), Some(vec![0..2, 2..2, 2..4]));
        assert_eq!(parts.fill(rooms(&[12, 1]), vec![], 1).unwrap()[0], 0..4);
        assert_eq!(parts.fill(rooms(&[100, 100, 100]), vec![], 3), Some(vec![0..2, 2..3, 3..4]));
        assert_eq!(parts.fill(rooms(&[100, 2]), vec![], 2), None);
        assert_eq!(parts.fill(rooms(&[5, 5, 2]), vec![], 1), None);
        assert_eq!(parts.fill(rooms(&[100; 5]), vec![], 5), None);
    }

    #[test]
    fn one_device_with_all_parts_holds_what_they_share_once() {
        let parts = Parts::new([5, 1, 5], 4);
        assert_eq!(parts.fill(rooms(&[7, 1]), vec![], 1).unwrap()[0], 0..3);
        assert_eq!(parts.fill(rooms(&[6]), vec![], 1), None);
        assert_eq!(parts.fill(rooms(&[6, 5]), vec![], 1), Some(vec![0..2, 2..3]));
    }

    #[test]
    fn the_first_leave_what_the_others_can_hold() {
        let parts = Parts::new([3, 4, 7, 0], 0);
        for bytes in [[3, 4, 7], [7, 4, 7]] {
            assert_eq!(parts.fill(rooms(&bytes), vec![], 3), Some(vec![0..1, 1..2, 2..4]), "{bytes:?}");
        }
    }

    /// Whether there is a way to give the parts from `start` on to these devices.
    fn has_way(parts: &Parts, start: usize, rooms: &[Room], used: &BTreeSet<usize>, nodes: usize) -> bool {
        let Some((room, others)) = rooms.split_first() else {
            return start == parts.len() && used.len() >= nodes;
        };
        let with: BTreeSet<usize> = used.iter().copied().chain([room.node]).collect();
        (start..=parts.len()).any(|end| match end == start {
            true => has_way(parts, end, others, used, nodes),
            false => parts.bytes(&(start..end)) <= room.bytes && has_way(parts, end, others, &with, nodes),
        })
    }

    proptest! {
        #[test]
        fn a_way_is_found_if_there_is_one(
            sizes in prop::collection::vec(0u64..9, 1..8),
            rooms in prop::collection::vec((0u64..24, 0usize..5), 1..7),
            used in prop::collection::btree_set(0usize..5, 0..3), nodes in 0usize..6, shared in 0u64..9,
        ) {
            let shared = if sizes.len() > 1 { shared.min(sizes[0]) } else { 0 };
            let parts = Parts::new(sizes, shared);
            let rooms: Vec<Room> = rooms.into_iter().map(|(bytes, node)| Room { bytes, node }).collect();
            let found = parts.fill(rooms.clone(), used.iter().copied().collect(), nodes);
            prop_assert_eq!(found.is_some(), has_way(&parts, 0, &rooms, &used, nodes), "{:?}", found);
            let mut having = used;
            let mut next = 0;
            for (range, room) in found.iter().flatten().zip(&rooms).filter(|(range, _)| !range.is_empty()) {
                prop_assert_eq!(range.start, next);
                prop_assert!(parts.bytes(range) <= room.bytes);
                next = range.end;
                having.insert(room.node);
            }
            prop_assert!(found.is_none() || next == parts.len() && having.len() >= nodes);
        }
    }
}
