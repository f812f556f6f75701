//! Which layers, or which experts? Numbers as ranges in ascending order.

use std::fmt;
use std::ops::Range;

/// Ranges in order that neither touch nor are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<usize>>);

impl Ranges {
    /// The numbers of all `ranges` together; `None` where there is none, or a range has none.
    pub(super) fn new(ranges: &[Range<usize>]) -> Option<Self> {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable_by_key(|range| (range.start, range.end));
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            if range.is_empty() {
                return None;
            }
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        (!joined.is_empty()).then_some(Self(joined))
    }

    /// The same from pairs of the first number and the one behind the last, as an index has them.
    pub(super) fn from_pairs(pairs: &[[usize; 2]]) -> Option<Self> {
        Self::new(&pairs.iter().map(|&[start, end]| start..end).collect::<Vec<_>>())
    }

    pub(super) fn to_pairs(&self) -> Vec<[usize; 2]> {
        self.0.iter().map(|range| [range.start, range.end]).collect()
    }

    /// The number behind the last.
    pub(super) fn end(&self) -> usize {
        self.0.last().map_or(0, |range| range.end)
    }

    /// How many numbers there are.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    pub(super) fn contains(&self, n: usize) -> bool {
        self.0.iter().any(|range| range.contains(&n))
    }

    /// The number with `i` others before it.
    pub(super) fn nth(&self, i: usize) -> Option<usize> {
        let mut left = i;
        for range in &self.0 {
            if left < range.len() {
                return Some(range.start + left);
            }
            left -= range.len();
        }
        None
    }

    /// The first number that `other` does not have.
    pub(super) fn first_not_in(&self, other: &Self) -> Option<usize> {
        self.0.iter().find_map(|range| {
            let from =
                other.0.iter().find(|other| other.contains(&range.start)).map_or(range.start, |o| o.end);
            (from < range.end).then_some(from)
        })
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            write!(f, "{}{}..{}", if i > 0 { ", " } else { "" }, range.start, range.end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_in_order() {
        let ranges = Ranges::new(&[4..6, 0..1, 1..3, 5..9]).unwrap();
        assert_eq!((ranges.to_string(), ranges.count(), ranges.end()), ("0..3, 4..9".to_owned(), 8, 9));
        assert_eq!((0..9).map_while(|i| ranges.nth(i)).collect::<Vec<_>>(), [0, 1, 2, 4, 5, 6, 7, 8]);
        assert!(ranges.contains(2) && !ranges.contains(3));
        assert_eq!(Ranges::from_pairs(&ranges.to_pairs()), Some(ranges));
        #[allow(clippy::reversed_empty_ranges)] // What callers may pass.
        let backwards = 3..2;
        assert_eq!(Ranges::new(&[]), None);
        assert_eq!(Ranges::new(&[0..1, 2..2]), None);
        assert_eq!(Ranges::new(&[backwards]), None);
    }

    #[test]
    fn what_another_lacks_is_named() {
        let have = Ranges::new(&[0..4, 6..8]).unwrap();
        for (asked, missing) in
            [(0..4, None), (6..8, None), (3..5, Some(4)), (4..5, Some(4)), (7..99, Some(8))]
        {
            assert_eq!(Ranges::new(&[asked]).unwrap().first_not_in(&have), missing);
        }
    }
}
