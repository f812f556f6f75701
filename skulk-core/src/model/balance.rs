//! How do a head's norms share what they scale elements by? Evenly between queries and keys, where keys are rounded.
//!
//! Products of queries and keys stay what they are. Rounding rotated keys is off by about as much in every element; where a
//! query's element is large and the key's small, that was most of what a score is off. Both elements that a position rotates
//! together are scaled alike, as rotations then are what they were.

use crate::arch::{RopeLayout, RopeSpec};

/// Divides the weights of both norms evenly.
pub(super) fn balance(query: &mut [f32], key: &mut [f32], rope: &RopeSpec) {
    let factors = factors(query, key, rope);
    for ((query, key), factor) in query.iter_mut().zip(key).zip(factors) {
        *query /= factor;
        *key *= factor;
    }
}

/// What queries are divided by for that, and keys multiplied by, by element.
pub(super) fn factors(query: &[f32], key: &[f32], rope: &RopeSpec) -> Vec<f32> {
    let (len, half) = (query.len().min(key.len()), rope.dim / 2);
    let pair = |first: usize| match rope.layout {
        RopeLayout::Halves => [first, first + half],
        RopeLayout::Pairs => [2 * first, 2 * first + 1],
    };
    let mut factors = vec![1.0; len];
    // Elements that are not rotated have no other.
    let pairs = (0..half).map(pair).chain((2 * half..len).map(|at| [at; 2]));
    for [a, b] in pairs.filter(|pair| pair.iter().all(|at| *at < len)) {
        let square = |weights: &[f32]| f64::from(weights[a]).powi(2) + f64::from(weights[b]).powi(2);
        let factor = (square(query) / square(key)).sqrt().sqrt() as f32;
        // Zeros stay what they are.
        if factor.is_normal() {
            (factors[a], factors[b]) = (factor, factor);
        }
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::RopeScaling;

    #[test]
    fn products_stay_and_sizes_are_even() {
        let (query, key) = ([4.0, 9.0, 3.0, 0.0, 2.0, 5.0], [1.0, 1.0, 0.0, 12.0, 2.0, 0.0]);
        for (layout, pairs) in [
            (RopeLayout::Halves, [[0, 2], [1, 3], [4, 4], [5, 5]]),
            (RopeLayout::Pairs, [[0, 1], [2, 3], [4, 4], [5, 5]]),
        ] {
            let (mut q, mut k): ([f32; 6], [f32; 6]) = (query, key);
            let (theta, scaling) = (1e4, RopeScaling::None);
            balance(&mut q, &mut k, &RopeSpec { theta, dim: 4, layout, scaling, amplitude: 1.0 });
            for at in 0..6 {
                assert!((q[at] * k[at] - query[at] * key[at]).abs() < 1e-5);
            }
            for [a, b] in pairs {
                let [of_q, of_k] = [q, k].map(|x| x[a].hypot(x[b]));
                assert!((of_q - of_k).abs() < 1e-5 || a == 5, "{of_q} {of_k} of {a} and {b}");
                assert!((q[a] * query[b] - q[b] * query[a]).abs() < 1e-4, "{a} and {b} alike");
            }
            assert_eq!((q[5], k[5]), (5.0, 0.0));
        }
    }
}
