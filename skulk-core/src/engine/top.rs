//! Which logits are the largest? A short list kept while they are computed.

use crate::ids::TokenId;

/// The largest logits seen so far, falling; of equal ones the token of the lower id comes first.
/// What is not a number above -∞ is never among them.
#[derive(Debug, Default)]
pub(crate) struct Top {
    k: usize,
    entries: Vec<(f32, TokenId)>,
}

/// Logits that are compared with the smallest listed one together.
const STRIP: usize = 64;

impl Top {
    /// Empties the list, which shall hold `k`.
    pub(crate) fn reset(&mut self, k: usize) {
        self.k = k;
        self.entries.clear();
        self.entries.reserve(k + 1);
    }

    /// Looks at the logits of the tokens from `first` on.
    pub(crate) fn see(&mut self, first: usize, logits: &[f32]) {
        for (i, strip) in logits.chunks(STRIP).enumerate() {
            // Nearly always nothing here is large enough, which a comparison of vectors tells.
            let least = self.least();
            if !strip.iter().fold(false, |any, logit| any | (*logit >= least)) {
                continue;
            }
            for (j, &logit) in strip.iter().enumerate() {
                self.put(logit, TokenId((first + i * STRIP + j) as u32));
            }
        }
    }

    /// Looks at what another list holds.
    pub(crate) fn merge(&mut self, other: &Top) {
        for &(logit, id) in &other.entries {
            self.put(logit, id);
        }
    }

    /// The tokens listed.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|(_, id)| id.0)
    }

    /// The tokens listed and their logits, falling.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (u32, f32)> {
        self.entries.iter().map(|(logit, id)| (id.0, *logit))
    }

    /// The n-th largest, from 1 on; -∞ where there are fewer.
    pub(crate) fn number(&self, n: usize) -> f32 {
        n.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(f32::NEG_INFINITY, |(logit, _)| *logit)
    }

    /// Below this nothing gets listed.
    pub(crate) fn least(&self) -> f32 {
        if self.entries.len() < self.k {
            f32::NEG_INFINITY
        } else {
            self.entries.last().map_or(f32::INFINITY, |e| e.0)
        }
    }

    fn put(&mut self, logit: f32, id: TokenId) {
        let before = |other: &(f32, TokenId)| other.0 > logit || other.0 == logit && other.1 < id;
        // False for what is not a number.
        let listed = logit > f32::NEG_INFINITY
            && (self.entries.len() < self.k || self.entries.last().is_some_and(|last| !before(last)));
        if listed {
            let at = self.entries.partition_point(before);
            self.entries.insert(at, (logit, id));
            self.entries.truncate(self.k);
        }
    }

    /// Writes the list; where it is shorter than `ids`, -∞ follows.
    pub(crate) fn write(&self, ids: &mut [TokenId], logits: &mut [f32]) {
        let all =
            self.entries.iter().copied().chain(std::iter::repeat((f32::NEG_INFINITY, TokenId(u32::MAX))));
        for ((id, logit), (found, of)) in ids.iter_mut().zip(logits).zip(all) {
            (*logit, *id) = (found, of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_largest_in_any_order_of_seeing() {
        let mut state = 1u32;
        let logits: Vec<f32> = (0..1000)
            .map(|i| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                match i % 97 {
                    5 => f32::NAN,
                    6 => f32::NEG_INFINITY,
                    // Many equal ones.
                    _ => (state >> 24) as f32 - 100.0,
                }
            })
            .collect();
        let mut sorted: Vec<usize> = (0..logits.len()).filter(|&i| logits[i] > f32::NEG_INFINITY).collect();
        sorted.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        for k in [0, 1, 2, 40, 999, 1000] {
            let mut whole = Top::default();
            whole.reset(k);
            whole.see(0, &logits);
            // Other parts first, and through another list.
            let (mut late, mut merged) = (Top::default(), Top::default());
            late.reset(k);
            merged.reset(k);
            late.see(300, &logits[300..]);
            merged.see(0, &logits[..300]);
            merged.merge(&late);
            for top in [whole, merged] {
                let (mut ids, mut values) = (vec![TokenId(0); k], vec![0.0; k]);
                top.write(&mut ids, &mut values);
                for (i, (id, value)) in ids.iter().zip(values).enumerate() {
                    match sorted.get(i) {
                        Some(&expected) => assert!(id.0 as usize == expected && value == logits[expected]),
                        None => assert!(id.0 == u32::MAX && value == f32::NEG_INFINITY),
                    }
                }
            }
        }
    }
}
