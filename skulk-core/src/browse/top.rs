//! Which of many scores are the largest? A bounded heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Room for the `k` scores of largest magnitude; kept between searches.
#[derive(Debug, Default)]
pub(super) struct Top {
    /// Magnitude above place, in one word, so that comparing words orders both; the smallest is on top.
    heap: BinaryHeap<Reverse<u64>>,
}

impl Top {
    /// Calls `each(place, score)` for the `k` scores of largest magnitude, the largest first and of equal ones the
    /// first. What is not a number is left out. There are fewer than 2^32 scores.
    pub(super) fn of(&mut self, scores: &[f32], k: usize, mut each: impl FnMut(usize, f32)) {
        self.heap.clear();
        if k == 0 {
            return;
        }
        let mut least = None;
        for (place, score) in scores.iter().enumerate() {
            let size = score.abs();
            // Later places of the same size come behind those in the heap.
            if size.is_nan() || least.is_some_and(|least| size <= least) {
                continue;
            }
            self.heap.push(Reverse(u64::from(size.to_bits()) << 32 | u64::from(!(place as u32))));
            if self.heap.len() > k {
                self.heap.pop();
            }
            if self.heap.len() == k {
                least = self.heap.peek().map(|Reverse(word)| f32::from_bits((word >> 32) as u32));
            }
        }
        let mut words = std::mem::take(&mut self.heap).into_vec();
        words.sort_unstable();
        for Reverse(word) in &words {
            let place = !(*word as u32) as usize;
            if let Some(&score) = scores.get(place) {
                each(place, score);
            }
        }
        words.clear();
        self.heap = words.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(scores: &[f32], k: usize) -> Vec<(usize, f32)> {
        let mut found = Vec::new();
        let mut top = Top::default();
        // The second search must not see the first.
        top.of(&[9.0, -8.0, 7.0], 2, |_, _| ());
        top.of(scores, k, |place, score| found.push((place, score)));
        found
    }

    #[test]
    fn magnitude_counts() {
        assert_eq!(top(&[0.5, -3.0, 1.0, 2.0], 3), [(1, -3.0), (3, 2.0), (2, 1.0)]);
        assert_eq!(top(&[0.5, -3.0], 5), [(1, -3.0), (0, 0.5)]);
        assert_eq!(top(&[], 5), []);
        assert_eq!(top(&[1.0], 0), []);
    }

    #[test]
    fn of_equal_ones_the_first_count() {
        assert_eq!(top(&[1.0, -1.0, 1.0, 0.0, -0.0], 2), [(0, 1.0), (1, -1.0)]);
        assert_eq!(top(&[0.0, -0.0, 0.0], 2), [(0, 0.0), (1, -0.0)]);
        assert_eq!(top(&[1.0, 2.0, 2.0, 2.0], 3), [(1, 2.0), (2, 2.0), (3, 2.0)]);
    }

    #[test]
    fn what_is_no_number_is_no_score() {
        let inf = f32::INFINITY;
        assert_eq!(top(&[f32::NAN, 1.0, -inf, -f32::NAN, inf], 3), [(2, -inf), (4, inf), (1, 1.0)]);
    }

    #[test]
    fn it_is_what_sorting_gives() {
        let mut state = 7u32;
        let scores: Vec<f32> = (0..500)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 16) % 40) as f32 - 20.0
            })
            .collect();
        let mut sorted: Vec<(usize, f32)> = scores.iter().copied().enumerate().collect();
        sorted.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        for k in [1, 2, 17, 499, 500, 501] {
            assert_eq!(top(&scores, k), sorted[..k.min(500)], "{k}");
        }
    }
}
