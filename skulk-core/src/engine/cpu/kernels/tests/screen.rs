//! Are the largest logits the same, whichever way they are found?

use std::ops::Range;

use half::f16;

use super::super::{Kernels, Matrix, ProductScratch, first_digit};
use super::{Numbers, assert_same};
use crate::cancel::CancelToken;
use crate::engine::Precision;
use crate::engine::backend::TopLogits;
use crate::engine::conformance::{region, stored_floats};
use crate::engine::cpu::pool::Pool;
use crate::ids::TokenId;
use crate::weights::{DType, Region};

const N_IN: usize = 128;
/// No whole number of tiles.
const N_OUT: usize = 5003;

/// A head whose rows' elements are given.
fn head(dtype: DType, element: impl FnMut(usize, usize) -> f32) -> Region {
    head_of(N_OUT, dtype, element)
}

fn head_of(n_out: usize, dtype: DType, mut element: impl FnMut(usize, usize) -> f32) -> Region {
    let mut bytes = Vec::new();
    for row in 0..n_out {
        let row: Vec<f32> = (0..N_IN).map(|i| element(row, i)).collect();
        match dtype {
            DType::Q8_0 => {
                for block in row.chunks_exact(32) {
                    let d = f16::from_f32(block.iter().fold(0.0f32, |a, b| a.max(b.abs())) / 127.0);
                    bytes.extend(d.to_le_bytes());
                    bytes.extend(block.iter().map(|x| (x / d.to_f32().max(1e-9)).round() as i8 as u8));
                }
            }
            _ => bytes.extend(stored_floats(dtype, &row).0),
        }
    }
    region("head", dtype, [n_out, N_IN], &bytes, 0)
}

fn top(pool: &Pool, kernels: &Kernels, matrix: &Matrix, x: &[f32], k: usize) -> (Vec<TokenId>, Vec<f32>) {
    top_of(pool, kernels, matrix, x, k, &[])
}

fn top_of(
    pool: &Pool,
    kernels: &Kernels,
    matrix: &Matrix,
    x: &[f32],
    k: usize,
    shortlist: &[Range<u32>],
) -> (Vec<TokenId>, Vec<f32>) {
    let n_in = matrix.n_in();
    let rows = x.len() / n_in;
    let mut scratch = ProductScratch::new(rows, n_in, Precision::Exact);
    let (mut ids, mut logits) = (vec![TokenId(0); rows * k], vec![0.0; rows * k]);
    let products = scratch.products(kernels, pool, x, n_in, Precision::Exact);
    products.top(matrix, None, shortlist, TopLogits { k, ids: &mut ids, logits: &mut logits });
    (ids, logits)
}

#[test]
fn the_largest_logits_are_the_same_screened() {
    let mut numbers = Numbers(31);
    let ordinary = numbers.floats(N_IN);
    let mut outlier = ordinary.clone();
    outlier[40] = 500.0;
    let inputs = [&ordinary[..], &outlier, &[0.0; N_IN], &[1e-35; N_IN], &[1e30; N_IN]];
    for dtype in [DType::Q8_0, DType::BF16, DType::F32] {
        for kind in ["ordinary", "all the same", "nearly the same", "a few large", "runs of large"] {
            let weight = head(dtype, |row, i| match kind {
                "ordinary" => numbers.float(),
                "all the same" => i as f32 - 40.0,
                "nearly the same" => i as f32 + numbers.float() * 1e-2,
                "a few large" => numbers.float() * if row % 997 == 5 { 30.0 } else { 1.0 },
                _ => numbers.float() * if row % 1000 < 40 { 30.0 } else { 1.0 },
            });
            for threads in [1, 3] {
                let pool = Pool::new(threads).unwrap();
                for kernels in Kernels::all() {
                    let plain = Matrix::new(kernels, weight.clone(), None).unwrap();
                    let mut screened = Matrix::new(kernels, weight.clone(), None).unwrap();
                    assert!(screened.screen(kernels, &pool, &CancelToken::new()).unwrap() > 0);
                    for k in [1, 40, 700] {
                        let alone = inputs.map(|x| top(&pool, kernels, &plain, x, k));
                        let mut steps =
                            vec![(0..1, 1), (1..2, 1), (2..3, 1), (3..4, 1), (4..5, 1), (0..2, 1), (0..5, 1)];
                        if k == 40 {
                            // So many that tiles are packed for them.
                            steps.push((0..5, 4));
                        }
                        for (rows, times) in steps {
                            let (ids, logits): (Vec<_>, Vec<_>) = alone[rows.clone()].iter().cloned().unzip();
                            let x = inputs[rows.clone()].concat().repeat(times);
                            let found = top(&pool, kernels, &screened, &x, k);
                            let what = format!(
                                "{} {dtype} {kind}: inputs {rows:?} {times} times, {k} largest",
                                kernels.name
                            );
                            assert_same(&found.1, &logits.concat().repeat(times), &what);
                            assert_eq!(found.0, ids.concat().repeat(times), "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_largest_logits_of_several_rows_are_those_of_each() {
    let mut numbers = Numbers(32);
    let mut inputs: Vec<_> = (0..32).map(|_| numbers.floats(N_IN)).collect();
    inputs[1][40] = 500.0;
    inputs[2].fill(0.0);
    inputs[3].fill(1e-35);
    // Any bytes, with scales of its sixteens that are small, and one of its own.
    let q6_k = |numbers: &mut Numbers| {
        let mut bytes: Vec<u8> = (0..N_OUT * 210).map(|_| numbers.float().to_bits() as u8).collect();
        for block in bytes.as_chunks_mut::<210>().0 {
            block[192..208].iter_mut().for_each(|scale| *scale &= 0x8f);
            block[208..].copy_from_slice(&f16::from_f32(numbers.float() * 1e-2).to_le_bytes());
        }
        region("head", DType::Q6_K, [N_OUT, 256], &bytes, 0)
    };
    let heads = [
        head(DType::Q8_0, |_, _| numbers.float()),
        head(DType::Q8_0, |_, i| i as f32 - 40.0),
        head(DType::Q8_0, |row, _| numbers.float() * if row % 997 == 5 { 30.0 } else { 1.0 }),
        q6_k(&mut numbers),
    ];
    for weight in heads {
        let n_in = weight.row_len();
        let inputs: Vec<_> = inputs.iter().map(|x| x.repeat(n_in / N_IN)).collect();
        for (threads, kernels) in
            [1, 3].into_iter().flat_map(|threads| Kernels::all().map(move |k| (threads, k)))
        {
            let pool = Pool::new(threads).unwrap();
            let matrix = Matrix::new(kernels, weight.clone(), None).unwrap();
            for k in [1, 40, 700] {
                let alone: Vec<_> = inputs.iter().map(|x| top(&pool, kernels, &matrix, x, k)).collect();
                for rows in [4, 5, 16, 17, 32] {
                    let x = inputs[..rows].concat();
                    let (ids, logits): (Vec<_>, Vec<_>) = alone[..rows].iter().cloned().unzip();
                    let found = top(&pool, kernels, &matrix, &x, k);
                    let what = format!("{} {}: {rows} rows, {k} largest", kernels.name, weight.dtype());
                    assert_same(&found.1, &logits.concat(), &what);
                    assert_eq!(found.0, ids.concat(), "{what}");
                    // And it is one digit that tells.
                    let mut scratch = ProductScratch::new(rows, n_in, Precision::Exact);
                    let mut products = scratch.products(kernels, &pool, &x, n_in, Precision::Exact);
                    assert_eq!(first_digit::top(&mut products, &matrix, k).is_some(), k <= 64, "{what}");
                }
            }
            // What is no number, or too large, tells nothing.
            for element in [f32::NAN, 1e30, f32::MAX] {
                let mut x = inputs[..4].concat();
                x[0] = element;
                let mut scratch = ProductScratch::new(4, n_in, Precision::Exact);
                let mut products = scratch.products(kernels, &pool, &x, n_in, Precision::Exact);
                assert!(first_digit::top(&mut products, &matrix, 1).is_none(), "{element}");
            }
        }
    }
}

/// Of woven rows, too: of one activation row and of several, screened or not, some candidates and whole tiles of them.
#[test]
fn the_largest_logits_of_woven_heads() {
    let mut numbers = Numbers(35);
    let never = CancelToken::new();
    let mut inputs: Vec<_> = (0..5).map(|_| numbers.floats(N_IN)).collect();
    inputs[2][40] = 500.0;
    let n_out = N_OUT.next_multiple_of(16);
    let large = |row: usize| if row % 1000 < 40 || row % 997 == 5 { 30.0 } else { 1.0 };
    let weights = [
        head_of(n_out, DType::Q8_0, |_, _| numbers.float()),
        head_of(n_out, DType::Q8_0, |row, _| numbers.float() * large(row)),
    ];
    for weight in weights {
        let woven = weight.clone().resident_for_products(&never).unwrap();
        assert!(woven.woven().is_some());
        let pool = Pool::new(3).unwrap();
        for kernels in Kernels::all() {
            let plain = Matrix::new(kernels, weight.clone(), None).unwrap();
            let woven = Matrix::new(kernels, woven.clone(), None).unwrap();
            let mut screened = Matrix::new(kernels, woven.weight().clone(), None).unwrap();
            assert!(screened.screen(kernels, &pool, &never).unwrap() > 0);
            for (rows, k) in [(0..1, 1), (2..3, 40), (0..5, 1), (0..5, 40), (0..5, 700)] {
                let x = inputs[rows].concat();
                let (ids, logits) = top(&pool, kernels, &plain, &x, k);
                for matrix in [&woven, &screened] {
                    let found = top(&pool, kernels, matrix, &x, k);
                    let what = format!("{}: {} rows, {k} largest", kernels.name, x.len() / N_IN);
                    assert_same(&found.1, &logits, &what);
                    assert_eq!(found.0, ids, "{what}");
                }
            }
        }
    }
}

/// Where too many are about as large for one digit to tell, two do; of so many rows that tiles are packed.
#[test]
fn the_largest_logits_of_many_that_are_alike() {
    let mut numbers = Numbers(34);
    let (rows, k) = (19, 3);
    let weight = head_of(70_000, DType::Q8_0, |row, i| i as f32 - 40.0 + (row % 7) as f32 * 1e-3);
    let inputs: Vec<_> = (0..rows).map(|_| numbers.floats(N_IN)).collect();
    let pool = Pool::new(1).unwrap();
    for kernels in Kernels::all() {
        let matrix = Matrix::new(kernels, weight.clone(), None).unwrap();
        let x = inputs.concat();
        let mut scratch = ProductScratch::new(rows, N_IN, Precision::Exact);
        let mut products = scratch.products(kernels, &pool, &x, N_IN, Precision::Exact);
        assert!(first_digit::top(&mut products, &matrix, k).is_none(), "{}", kernels.name);
        let alone: Vec<_> = inputs.iter().map(|x| top(&pool, kernels, &matrix, x, k)).collect();
        let (ids, logits): (Vec<_>, Vec<_>) = alone.into_iter().unzip();
        let found = top(&pool, kernels, &matrix, &x, k);
        assert_same(&found.1, &logits.concat(), kernels.name);
        assert_eq!(found.0, ids.concat(), "{}", kernels.name);
    }
}

/// Of a shortlist all tiles are looked at, and nothing else, whether or not the head is screened.
#[test]
fn of_a_shortlist_the_largest_logits_are_found() {
    let mut numbers = Numbers(33);
    let inputs: Vec<_> = (0..5).map(|_| numbers.floats(N_IN)).collect();
    // Ranges that share a tile, that begin and end within one, and the last row.
    let shortlist = [0..1000, 1003..1004, 1005..1006, 1100..1117, 2048..2049, 5002..5003];
    let in_tiles = |id: &TokenId| {
        let tile = id.0 / 16;
        shortlist.iter().any(|range| range.start / 16 <= tile && tile <= (range.end - 1) / 16)
    };
    for dtype in [DType::Q8_0, DType::BF16, DType::F32] {
        let weight = head(dtype, |_, _| numbers.float());
        for (threads, kernels) in
            [1, 3].into_iter().flat_map(|threads| Kernels::all().map(move |k| (threads, k)))
        {
            let pool = Pool::new(threads).unwrap();
            let mut matrix = Matrix::new(kernels, weight.clone(), None).unwrap();
            for screened in [false, true] {
                if screened {
                    assert!(matrix.screen(kernels, &pool, &CancelToken::new()).unwrap() > 0);
                }
                for rows in [1, 2, 5] {
                    let x = inputs[..rows].concat();
                    let all = top(&pool, kernels, &matrix, &x, N_OUT);
                    for k in [1, 40, 2000] {
                        let found = top_of(&pool, kernels, &matrix, &x, k, &shortlist);
                        let what = format!("{} {dtype}: {rows} rows, {k} largest", kernels.name);
                        for row in 0..rows {
                            let all =
                                all.0[row * N_OUT..][..N_OUT].iter().zip(&all.1[row * N_OUT..][..N_OUT]);
                            let listed = all.filter(|(id, _)| in_tiles(id)).map(|(id, logit)| (*id, *logit));
                            // Fewer than are wanted are followed by none.
                            let none = std::iter::repeat((TokenId(u32::MAX), f32::NEG_INFINITY));
                            let found = found.0[row * k..][..k].iter().zip(&found.1[row * k..][..k]);
                            let found: Vec<_> = found.map(|(id, logit)| (*id, *logit)).collect();
                            assert_eq!(found, listed.chain(none).take(k).collect::<Vec<_>>(), "{what}");
                        }
                    }
                }
            }
        }
    }
}
