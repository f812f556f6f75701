//! How does the CPU compute a block of which a row takes only the features with the largest gate scores? All gate
//! scores, then of the other matrices only what those features need, where that can be had.
//!
//! A feature is a row of gate and of up, and a column of down. Rows of up are multiplied alone where that is less
//! than all of them. Columns of down are not, as every stored row has a bit of each: all of it is multiplied, with
//! zeros for the other features, unless it is stored by features too. What a row gets does not depend on the rows
//! beside it, in any bit.

use std::sync::{Mutex, PoisonError};

use super::kernels::TILE;
use super::lines::clear;
use super::{Buffer, Cpu, LEAST_ELEMENTS, Stream, all};
use crate::engine::backend::{FeatureDown, Features, TopFeatures};
use crate::error::Result;

/// Features are summed up in as many parts, whatever the number of threads: it decides about bits.
const PARTS: usize = 16;

/// Scratch memory for what rows take.
#[derive(Default)]
pub(super) struct Chosen {
    /// The features of each row, ascending, `[rows, stride]`: of the stride, whole tiles of them, the first k count.
    ids: Vec<u32>,
    /// Their gate scores, which become their activations, and what they are multiplied with.
    gate: Vec<f32>,
    up: Vec<f32>,
    /// What parts of the features add to a row, `[PARTS, hidden]`.
    sums: Vec<f32>,
    /// A thread's own.
    workers: Vec<Mutex<Worker>>,
}

#[derive(Default)]
struct Worker {
    /// One row's features, to be ordered by their scores.
    keys: Vec<u64>,
    /// What one feature adds.
    values: Vec<f32>,
}

impl Features for Cpu {
    fn top_features(
        &self,
        stream: &mut Stream,
        op: &TopFeatures<'_, Self>,
        x: &Buffer,
        rows: usize,
        inner: &mut [Buffer; 2],
        out: &mut Buffer,
    ) -> Result<()> {
        let TopFeatures { activation, k, gate: to_gate, up: to_up, down } = *op;
        let Stream { products: scratch, chosen, .. } = stream;
        let [scores, all_up] = inner;
        let (width, stride) = (to_gate.n_out(), k.next_multiple_of(TILE));
        let x = &x.data[..rows * x.width];
        let n_in = to_gate.n_in();
        // One row's features are fewer than all; those of many rows soon are all.
        let apart = rows * stride < width && !to_up.has_bias();

        let products = &mut [(to_gate, &mut *scores), (to_up, &mut *all_up)];
        let first = if apart { 1 } else { 2 };
        all(
            scratch.products(self.kernels, &self.pool, x, n_in, self.precision),
            rows,
            &mut products[..first],
        );
        chosen.choose(self, scores, rows, k, stride);
        if apart {
            let up = &mut chosen.up[..rows * stride];
            scratch.products(self.kernels, &self.pool, x, n_in, self.precision).rows(
                to_up,
                &chosen.ids,
                stride,
                up,
            );
        } else {
            gather(self, all_up, &chosen.ids, stride, &mut chosen.up[..rows * stride]);
        }
        gather(self, scores, &chosen.ids, stride, &mut chosen.gate[..rows * stride]);
        let Chosen { ids, gate, up, sums, workers } = chosen;
        let (ids, up) = (&ids[..rows * stride], &up[..rows * stride]);
        self.pool.rows(
            &mut gate[..rows * stride],
            stride,
            LEAST_ELEMENTS.div_ceil(stride),
            |row, gate, _| {
                self.kernels.gated(activation, gate, &up[row * stride..][..stride]);
            },
        );
        let gate = &gate[..rows * stride];
        match down {
            FeatureDown::Columns(down) => {
                self.rows(scores, rows, |row, values| {
                    clear(values);
                    let of_row = row * stride..row * stride + k;
                    for (id, activation) in ids[of_row.clone()].iter().zip(&gate[of_row]) {
                        values[*id as usize] = *activation;
                    }
                });
                let values = &scores.data[..rows * width];
                let list = scratch.products(self.kernels, &self.pool, values, width, self.precision);
                all(list, rows, &mut [(down, out)]);
            }
            FeatureDown::Rows(down) => {
                let hidden = down.n_in();
                out.width = hidden;
                sums.resize(sums.len().max(PARTS * hidden), 0.0);
                for own in &mut *workers {
                    own.get_mut().unwrap_or_else(PoisonError::into_inner).values.resize(hidden, 0.0);
                }
                for row in 0..rows {
                    let of_row = row * stride..row * stride + k;
                    let (ids, gate) = (&ids[of_row.clone()], &gate[of_row]);
                    let part = k.div_ceil(PARTS);
                    self.pool.rows(&mut sums[..PARTS * hidden], hidden, 1, |i, sum, thread| {
                        let mut own = workers[thread].lock().unwrap_or_else(PoisonError::into_inner);
                        clear(sum);
                        let of_part = (i * part).min(k)..((i + 1) * part).min(k);
                        for (id, activation) in ids[of_part.clone()].iter().zip(&gate[of_part]) {
                            down.weight().decode(*id as usize, &mut own.values);
                            self.kernels.add_scaled(sum, *activation, &own.values);
                        }
                    });
                    let sum = &mut out.data[row * hidden..][..hidden];
                    clear(sum);
                    sums.chunks_exact(hidden).take(PARTS).for_each(|part| self.kernels.add(sum, part));
                }
            }
        }
        Ok(())
    }
}

/// Values of the features that rows take.
fn gather(cpu: &Cpu, from: &Buffer, ids: &[u32], stride: usize, to: &mut [f32]) {
    cpu.pool.rows(to, stride, LEAST_ELEMENTS.div_ceil(stride), |row, to, _| {
        let from = from.row(row);
        for (to, id) in to.iter_mut().zip(&ids[row * stride..]) {
            *to = from[*id as usize];
        }
    });
}

impl Chosen {
    /// Chooses each row's features.
    fn choose(&mut self, cpu: &Cpu, scores: &Buffer, rows: usize, k: usize, stride: usize) {
        let Self { ids, gate, up, workers, .. } = self;
        if workers.len() < cpu.pool.threads() {
            workers.resize_with(cpu.pool.threads(), Mutex::default);
        }
        // Of every thread, as any may get the next row.
        for own in &mut *workers {
            let own = own.get_mut().unwrap_or_else(PoisonError::into_inner);
            own.keys.clear();
            own.keys.reserve(scores.width);
        }
        let len = rows * stride;
        ids.resize(len.max(ids.len()), 0);
        gate.resize(len.max(gate.len()), 0.0);
        up.resize(len.max(up.len()), 0.0);
        cpu.pool.rows(&mut ids[..len], stride, LEAST_ELEMENTS.div_ceil(scores.width), |row, ids, thread| {
            let mut own = workers[thread].lock().unwrap_or_else(PoisonError::into_inner);
            top(scores.row(row), &mut own.keys, &mut ids[..k]);
            // Behind them the last one again: it is computed with its tile, and counts once.
            let last = ids[k - 1];
            ids[k..].fill(last);
        });
    }
}

/// The features with the largest scores, ascending; of equal scores those of lower index. What is no number counts
/// as the largest.
fn top(scores: &[f32], keys: &mut Vec<u64>, ids: &mut [u32]) {
    keys.clear();
    // Without their sign, floats are ordered as their bits are.
    let key = |(id, score): (u32, &f32)| u64::from(score.abs().to_bits()) << 32 | u64::from(u32::MAX - id);
    keys.extend((0..).zip(scores).map(key));
    let k = ids.len();
    if k < keys.len() {
        keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    }
    for (id, key) in ids.iter_mut().zip(keys) {
        *id = u32::MAX - *key as u32;
    }
    ids.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_scores_count_whatever_their_sign() {
        let top = |scores: &[f32], k: usize| {
            let mut ids = vec![0; k];
            top(scores, &mut vec![7; 3], &mut ids);
            ids
        };
        assert_eq!(top(&[0.5, -3.0, 2.0, 0.0, -0.75], 3), [1, 2, 4]);
        assert_eq!(top(&[1.0, -1.0, 1.0, -1.0], 2), [0, 1]);
        assert_eq!(top(&[-0.0, 0.0, 0.0], 1), [0]);
        assert_eq!(top(&[1.0, f32::NAN, f32::INFINITY, -f32::NAN], 2), [1, 3]);
        assert_eq!(top(&[2.0, 1.0], 2), [0, 1]);
        let scores: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32 - 500.0).collect();
        let mut expected: Vec<u32> = (0..1000).collect();
        expected
            .sort_by(|&a, &b| scores[b as usize].abs().total_cmp(&scores[a as usize].abs()).then(a.cmp(&b)));
        for k in [1, 2, 15, 500, 999] {
            let mut expected = expected[..k].to_vec();
            expected.sort();
            assert_eq!(top(&scores, k), expected);
        }
    }
}
