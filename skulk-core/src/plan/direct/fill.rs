//! How far does memory reach? Consecutive parts of a model, given to devices in order.

use std::ops::Range;

/// Parts of a model in order, by the bytes that each takes.
pub(super) struct Parts {
    /// Bytes before each part, and of all.
    before: Vec<u64>,
    /// Bytes that one device with all of them saves.
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

    /// The end of the longest range that starts here, has at most `limit` parts and fits.
    fn reach(&self, start: usize, limit: usize, bytes: u64) -> usize {
        if start == 0 && limit >= self.len() && self.bytes(&(0..self.len())) <= bytes {
            return self.len();
        }
        let most = self.before[start].saturating_add(bytes);
        let limit = start.saturating_add(limit).min(self.len());
        start + self.before[start + 1..=limit].partition_point(|&end| end <= most)
    }

    /// Gives each device in turn as many of the remaining parts as fit, but leaves one for each node that
    /// must still get some, so that at least `nodes` nodes do. Devices without room for the next part get
    /// none. Nodes that were `used` before count. `None` when parts are left over, or there were too few nodes.
    ///
    /// In a given order of devices this finds a way if there is one with consecutive parts, and more bytes
    /// anywhere never end it: whatever a device leaves over, one that starts later in the parts gets at
    /// least as far.
    pub(super) fn fill(
        &self,
        rooms: impl IntoIterator<Item = Room>,
        mut used: Vec<usize>,
        nodes: usize,
    ) -> Option<Vec<Range<usize>>> {
        if self.overflow() {
            return None;
        }
        let mut start = 0;
        let mut ranges = Vec::new();
        for room in rooms {
            let is_new = !used.contains(&room.node);
            let missing = nodes.saturating_sub(used.len() + usize::from(is_new));
            let limit = (self.len() - start).saturating_sub(missing);
            let end = if limit == 0 { start } else { self.reach(start, limit, room.bytes) };
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

    proptest! {
        #[test]
        fn every_part_once_within_bytes_and_more_never_hurts(
            sizes in prop::collection::vec(0u64..9, 1..12), bytes in prop::collection::vec(0u64..30, 1..8),
            nodes in 1usize..4, more in 0usize..8, by in 1u64..20,
        ) {
            let parts = Parts::new(sizes, 0);
            let found = parts.fill(rooms(&bytes), vec![], nodes);
            if let Some(ranges) = &found {
                let mut next = 0;
                for (range, room) in ranges.iter().zip(&bytes) {
                    prop_assert_eq!(range.start, next);
                    prop_assert!(parts.bytes(range) <= *room);
                    next = range.end;
                }
                prop_assert_eq!(next, parts.len());
                prop_assert!(ranges.iter().filter(|r| !r.is_empty()).count() >= nodes);
                let mut richer = bytes.clone();
                let at = more % richer.len();
                richer[at] += by;
                prop_assert!(parts.fill(rooms(&richer), vec![], nodes).is_some());
            }
        }
    }
}
