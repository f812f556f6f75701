//! Which of a layer's experts does a token take? As if drawn, each set of so many as likely as any other.
//!
//! Devices that share a layer's experts wait for the slowest of them, and that is one with more of the drawn experts
//! than its share: of 8 of 256 experts on 8 devices, each is expected to have one, but the slowest between two and three.
//! How many each device has follows the multivariate hypergeometric distribution, which is that of independent
//! binomials, given that they add up to what is drawn. So the chance that all devices are done at a time is a
//! coefficient of a product of polynomials, one a device, and the expected time of the slowest a sum over the times at
//! which one can be done.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::math::{exp, ln, pow};

/// Drawn experts up to which the expected time is exact, but for less than one part in 10^9.
const EXACT: usize = 64;
/// What is left out of the chances.
const NEGLIGIBLE: f64 = 1e-12;

/// Devices with as many of a layer's experts each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share {
    /// Experts that each has.
    pub(super) experts: usize,
    /// Seconds before the first one, where it has to compute any.
    pub(super) wait: f64,
    /// Seconds for each.
    pub(super) each: f64,
}

impl Share {
    /// Seconds for so many of its experts.
    fn time(&self, taken: usize) -> f64 {
        if taken == 0 { 0.0 } else { self.wait + self.each * taken as f64 }
    }

    /// How many of its experts it has computed by then.
    fn done_by(&self, time: f64, most: usize) -> usize {
        let most = most.min(self.experts);
        (1..=most).take_while(|&taken| self.time(taken) <= time).last().unwrap_or(0)
    }

    /// What sorts and tells apart.
    fn key(&self) -> [u64; 3] {
        [self.experts as u64, self.wait.to_bits(), self.each.to_bits()]
    }
}

/// Experts of a layer, those of them that are drawn, and who shares them.
type Key = (usize, usize, Vec<[u64; 3]>);

/// Expected times that were computed before: layers of a model are alike.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    known: RefCell<HashMap<Key, f64>>,
}

impl Drawn {
    /// Seconds until the slowest device has computed those of its experts that are among `k` drawn of `n`. Beyond
    /// [`EXACT`] drawn ones it is an upper bound.
    pub(super) fn slowest(&self, n: usize, k: usize, shares: &[Share]) -> f64 {
        let mut sorted = shares.to_vec();
        sorted.sort_by_key(Share::key);
        let key = (n, k, sorted.iter().map(Share::key).collect::<Vec<_>>());
        if let Some(&time) = self.known.borrow().get(&key) {
            return time;
        }
        let time = match k {
            0 => 0.0,
            k if k >= n => sorted.iter().map(|share| share.time(share.experts)).fold(0.0, f64::max),
            k if k > EXACT => bound(n, k, &sorted),
            k => expected(n, k, &sorted),
        };
        self.known.borrow_mut().insert(key, time);
        time
    }
}

/// The chance that none of `c` experts is among `k` drawn of `n`.
pub(super) fn chance_of_none(n: usize, k: usize, c: usize) -> f64 {
    if c + k > n {
        return if c == 0 || k == 0 { 1.0 } else { 0.0 };
    }
    // The shorter product: over the drawn ones, or over the device's.
    let (few, many) = (c.min(k), c.max(k));
    (0..few).map(|i| (n - many - i) as f64 / (n - i) as f64).product()
}

/// How many different experts of `n` several rows take, each `k` of them.
pub(super) fn distinct(n: usize, k: usize, rows: f64) -> f64 {
    let n_f = n as f64;
    if k >= n { n_f } else { n_f * (1.0 - pow(1.0 - k as f64 / n_f, rows)) }
}

/// Each device's number of drawn experts is distributed as a sum of independent ones, so Bernstein's inequality holds
/// for it: the largest of `m` such numbers is expected to be at most √(2 v ln m) + ln m / 3 beyond its mean, `v` being
/// the variance.
fn bound(n: usize, k: usize, shares: &[Share]) -> f64 {
    let largest = |of: &dyn Fn(&Share) -> f64| shares.iter().map(of).fold(0.0, f64::max);
    let drawn = k as f64 / n as f64;
    let mean = largest(&|share| share.wait + share.each * drawn * share.experts as f64);
    let variance = largest(&|share| {
        let held = share.experts as f64 / n as f64;
        k as f64 * held * (1.0 - held) * (n - k) as f64 / (n as f64 - 1.0)
    });
    let owners = ln(shares.len() as f64);
    let beyond = largest(&|share| share.each) * ((2.0 * variance * owners).sqrt() + owners / 3.0);
    (mean + beyond).min(largest(&|share| share.time(share.experts.min(k))))
}

fn expected(n: usize, k: usize, shares: &[Share]) -> f64 {
    let p = k as f64 / n as f64;
    let held: usize = shares.iter().map(|share| share.experts).sum();
    // Equal shares together, and experts that are nowhere else.
    let kinds: Vec<(Share, usize)> =
        shares.chunk_by(|a, b| a == b).map(|equal| (equal[0], equal.len())).collect();
    let rest = binomial(n.saturating_sub(held), p, k);
    let whole = binomial(n, p, k)[k];
    let mut product = Product::new(kinds.len() + 1, k);
    product.set(kinds.len(), rest);
    let powers: Vec<Vec<f64>> = kinds.iter().map(|(share, _)| binomial(share.experts, p, k)).collect();
    let mut done = vec![usize::MAX; kinds.len()];
    // When each kind is done with one more, from none on.
    let steps = kinds
        .iter()
        .enumerate()
        .flat_map(|(at, (share, _))| (0..=k.min(share.experts)).map(move |taken| (share.time(taken), at)));
    let mut steps: Vec<(f64, usize)> = steps.collect();
    steps.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (mut sum, mut before) = (0.0, 0.0);
    for steps in steps.chunk_by(|(a, _), (b, _)| a == b) {
        let time = steps[0].0;
        for &(_, at) in steps {
            let (share, owners) = &kinds[at];
            let now = share.done_by(time, k);
            if done[at] != now {
                done[at] = now;
                product.set(at, power(&powers[at][..=now.min(powers[at].len() - 1)], *owners, k));
            }
        }
        let chance = (product.last() / whole).clamp(before, 1.0);
        sum += time * (chance - before);
        before = chance;
        if chance > 1.0 - NEGLIGIBLE {
            break;
        }
    }
    sum
}

/// Chances of 0 to `k` successes of `c` tries.
fn binomial(c: usize, p: f64, k: usize) -> Vec<f64> {
    let (yes, no, mut ways) = (ln(p), ln(1.0 - p), 0.0);
    let chances = (0..=k.min(c)).map(|j| {
        if j > 0 {
            ways += ln((c - j + 1) as f64 / j as f64);
        }
        exp(ways + j as f64 * yes + (c - j) as f64 * no)
    });
    let mut chances: Vec<f64> = chances.collect();
    chances.resize(k + 1, 0.0);
    chances
}

/// A product of polynomials, up to degree `k`, in the place of what was there.
fn times(a: &[f64], b: &[f64], k: usize, product: &mut Vec<f64>) {
    product.clear();
    product.resize((a.len() + b.len()).saturating_sub(1).min(k + 1), 0.0);
    for (i, a) in a.iter().enumerate().filter(|(_, a)| **a > 0.0) {
        for (out, b) in product[i.min(k)..].iter_mut().zip(b) {
            *out += a * b;
        }
    }
}

fn power(polynomial: &[f64], mut exponent: usize, k: usize) -> Vec<f64> {
    let (mut result, mut square, mut next) = (vec![1.0], polynomial.to_vec(), Vec::new());
    while exponent > 0 {
        if exponent % 2 == 1 {
            times(&result, &square, k, &mut next);
            std::mem::swap(&mut result, &mut next);
        }
        exponent /= 2;
        if exponent > 0 {
            times(&square, &square, k, &mut next);
            std::mem::swap(&mut square, &mut next);
        }
    }
    result
}

/// Polynomials and their products in pairs, so that few are multiplied again when one changes.
struct Product {
    /// The root at 1; the children of `i` at `2 i` and `2 i + 1`.
    nodes: Vec<Vec<f64>>,
    leaves: usize,
    k: usize,
}

impl Product {
    /// Of none of so many.
    fn new(n: usize, k: usize) -> Self {
        let leaves = n.next_power_of_two();
        Self { nodes: vec![vec![1.0]; 2 * leaves], leaves, k }
    }

    fn set(&mut self, at: usize, polynomial: Vec<f64>) {
        let mut node = self.leaves + at;
        self.nodes[node] = polynomial;
        while node > 1 {
            node /= 2;
            // Children come behind their parent.
            let (before, children) = self.nodes.split_at_mut(2 * node);
            times(&children[0], &children[1], self.k, &mut before[node]);
        }
    }

    /// The last coefficient of all of them.
    fn last(&self) -> f64 {
        self.nodes[1].get(self.k).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(experts: &[usize], wait: f64, each: f64) -> Vec<Share> {
        experts.iter().map(|&experts| Share { experts, wait, each }).collect()
    }

    /// By listing every set of `k` of `n` experts.
    fn listed(n: usize, k: usize, shares: &[Share]) -> f64 {
        let (mut sum, mut sets) = (0.0, 0.0);
        for set in (0u32..1 << n).filter(|set| set.count_ones() as usize == k) {
            let mut first = 0;
            let mut slowest = 0.0f64;
            for share in shares {
                let own = (set >> first) & ((1 << share.experts) - 1);
                slowest = slowest.max(share.time(own.count_ones() as usize));
                first += share.experts;
            }
            (sum, sets) = (sum + slowest, sets + 1.0);
        }
        sum / sets
    }

    #[test]
    fn the_slowest_is_what_all_sets_say() {
        for (n, k, owners) in [
            (12, 4, shares(&[3, 3, 3, 3], 0.0, 1.0)),
            (12, 3, shares(&[6, 6], 0.5, 1.0)),
            (10, 4, shares(&[5, 3], 0.25, 2.0)),
            (8, 8, shares(&[5, 3], 1.0, 1.0)),
            (9, 0, shares(&[9], 1.0, 1.0)),
            (9, 4, shares(&[9], 1.0, 1.0)),
        ] {
            let found = Drawn::default().slowest(n, k, &owners);
            assert!((found - listed(n, k, &owners)).abs() < 1e-9, "{n} {k} {owners:?}: {found}");
        }
        let mixed = vec![
            Share { experts: 4, wait: 0.1, each: 1.0 },
            Share { experts: 2, wait: 0.0, each: 3.0 },
            Share { experts: 5, wait: 2.0, each: 0.5 },
        ];
        let found = Drawn::default().slowest(11, 4, &mixed);
        assert!((found - listed(11, 4, &mixed)).abs() < 1e-9);
    }

    #[test]
    fn eight_owners_of_eight_in_256_take_twice_their_share() {
        let found = Drawn::default().slowest(256, 8, &shares(&[32; 8], 0.0, 1.0));
        assert!((2.4..2.8).contains(&found), "{found}");
    }

    #[test]
    fn many_drawn_ones_are_bounded_from_above() {
        let owners = shares(&[64; 4], 0.0, 1.0);
        let (exact, bound) = (expected(256, 64, &owners), bound(256, 64, &owners));
        assert!(exact > 16.0 && bound >= exact && bound < 1.3 * exact, "{exact} {bound}");
        let all = Drawn::default().slowest(1 << 22, 1 << 21, &shares(&[1 << 20; 4], 0.0, 1.0));
        assert!(all.is_finite() && all >= (1 << 19) as f64);
    }

    #[test]
    fn chances_and_rows() {
        assert!((chance_of_none(4, 2, 1) - 0.5).abs() < 1e-12);
        assert!((chance_of_none(4, 2, 2) - 1.0 / 6.0).abs() < 1e-12);
        assert_eq!(
            (chance_of_none(4, 3, 2), chance_of_none(4, 0, 2), chance_of_none(4, 4, 0)),
            (0.0, 1.0, 1.0)
        );
        assert!((distinct(8, 2, 1.0) - 2.0).abs() < 1e-12);
        assert!((distinct(8, 2, 2.0) - 3.5).abs() < 1e-12);
        assert_eq!(distinct(8, 8, 3.0), 8.0);
    }
}
