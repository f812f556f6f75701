//! Does screening a table find the rows with the largest products, and no others?

use half::f16;

use super::super::Kernels;
use super::Numbers;
use crate::cancel::CancelToken;
use crate::engine::Precision;
use crate::engine::conformance::{self, stored_floats};
use crate::engine::cpu::{Cpu, Nearest};
use crate::error::ErrorKind;
use crate::weights::{DType, Region, quant};

fn region(dtype: DType, shape: [usize; 2], bytes: &[u8]) -> Region {
    conformance::region("table", dtype, shape, bytes, 0)
}

fn floats(dtype: DType, values: &[f32], width: usize) -> Region {
    region(dtype, [values.len() / width, width], &stored_floats(dtype, values).0)
}

/// All rows' products, largest first, each as one plain loop in f64 and as it is to be in f32.
fn plain(kernels: &Kernels, table: &Region, query: &[f32]) -> Vec<(u32, f32)> {
    let mut row = vec![0.0; table.row_len()];
    let size = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let mut all: Vec<(u32, f32)> = Vec::new();
    for (i, stored) in table.bytes().chunks_exact(table.row_bytes()).enumerate() {
        quant::dequantise(table.dtype(), stored, &mut row);
        let product = kernels.dot(&row, query);
        let expected: f64 = row.iter().zip(query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let bound = size(&row) * size(query) * row.len() as f64 * super::EPSILON + 1e-37;
        super::assert_near(product, expected, bound, kernels.name);
        all.push((i as u32, product));
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

/// Compares with the plain loop; returns how many products were computed from the table itself, for each query.
#[track_caller]
fn check(kernels: &'static Kernels, threads: usize, table: &Region, queries: &[f32], k: usize) -> u64 {
    let cpu = Cpu::with_kernels(kernels, threads, Precision::Exact).unwrap();
    let nearest = Nearest::new(&cpu, table, &CancelToken::new()).unwrap();
    let mut found = Vec::new();
    let computed = nearest.find(queries, k, &CancelToken::new(), &mut found).unwrap();
    let (n, k) = (queries.len() / table.row_len(), k.min(table.rows()));
    assert_eq!(found.len(), n * k);
    for (i, query) in queries.chunks_exact(table.row_len()).enumerate() {
        let expected = &plain(kernels, table, query)[..k];
        // Zeros of either sign are the same.
        for (found, expected) in found[i * k..].iter().zip(expected) {
            assert_eq!(found, expected, "{}, {:?}, query {i} of {n}", kernels.name, table.shape());
        }
    }
    computed / n.max(1) as u64
}

#[test]
fn all_sizes_give_what_a_plain_loop_does() {
    let mut numbers = Numbers(77);
    for rows in [1, 15, 16, 17, 1000] {
        for width in [1, 4, 31, 32, 33, 640] {
            let table = floats(DType::F32, &numbers.floats(rows * width), width);
            for n in [1, 13] {
                let queries = numbers.floats(n * width);
                for kernels in Kernels::all() {
                    check(kernels, 2, &table, &queries, 10);
                }
            }
        }
    }
}

#[test]
fn every_type_is_compared_as_it_is_decoded() {
    let mut numbers = Numbers(5);
    let (rows, width) = (300, 64);
    let values = numbers.floats(rows * width);
    let queries = numbers.floats(3 * width);
    let mut tables: Vec<_> =
        [DType::F32, DType::F16, DType::BF16].map(|dtype| floats(dtype, &values, width)).into();
    let mut q8 = Vec::new();
    for block in values.chunks_exact(32) {
        q8.extend(f16::from_f32(1.0 / 127.0).to_le_bytes());
        q8.extend(block.iter().map(|x| (x * 127.0).round() as i8 as u8));
    }
    tables.push(region(DType::Q8_0, [rows, width], &q8));
    // Rows of 64 elements, padded to whole blocks of 256 with what is not to count.
    let mut q4 = numbers.bytes(rows * 144);
    for block in q4.chunks_exact_mut(144) {
        block[..2].copy_from_slice(&f16::from_f32(0.01).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(0.05).to_le_bytes());
    }
    tables.push(region(DType::Q4_K, [rows, width], &q4));
    for table in tables {
        for kernels in Kernels::all() {
            check(kernels, 1, &table, &queries, 7);
        }
    }
}

/// Rows, or a query, of about `size` in the sense of `signs`, and of two far larger elements whose products with
/// them cancel out. They are where `at` says, so that every column of as many rows as columns has the same mean square,
/// and weights are ones.
fn with_outliers(signs: &[f32], at: usize, size: f32, largest: f32) -> Vec<f32> {
    let mut row: Vec<f32> = signs.iter().map(|sign| sign * size).collect();
    let (a, b) = (at % signs.len(), (at + 1) % signs.len());
    (row[a], row[b]) = (largest * signs[a], -largest * signs[b]);
    row
}

fn signs(width: usize) -> Vec<f32> {
    let mut numbers = Numbers(9);
    (0..width).map(|_| if numbers.next().is_multiple_of(2) { 1.0 } else { -1.0 }).collect()
}

#[test]
fn rows_are_found_that_rounding_makes_small() {
    let (width, signs) = (96, signs(96));
    // Those before are rounded up, to nearly twice what they are; the larger ones behind them down, and by nearly
    // half a step in the sense of every element of the query.
    let up = (0..4 * width).map(|at| with_outliers(&signs, at, 2.47, 127.0 * 4.7));
    let down = (0..width).map(|at| with_outliers(&signs, at, 2.49, 127.0));
    let table = floats(DType::F32, &up.chain(down).flatten().collect::<Vec<_>>(), width);
    for kernels in Kernels::all() {
        check(kernels, 1, &table, &signs, 1);
        check(kernels, 1, &table, &signs, 10);
    }
}

#[test]
fn rows_are_found_with_queries_that_rounding_makes_small() {
    let (width, signs) = (96, signs(96));
    // Rows lose nothing. All signs of the later ones are the query's, and all but one of those before.
    let most = (0..4 * width).flat_map(|at| {
        let (mut row, at) = (signs.clone(), 2 + at % (width - 2));
        row[at] = -row[at];
        row
    });
    let all = (0..width).flat_map(|_| signs.clone());
    let table = floats(DType::F32, &most.chain(all).collect::<Vec<_>>(), width);
    let query = with_outliers(&signs, 0, 2.49, 127.0);
    for kernels in Kernels::all() {
        check(kernels, 1, &table, &query, 1);
        check(kernels, 1, &table, &query, 10);
    }
}

#[test]
fn rows_of_all_kinds_are_found() {
    let mut numbers = Numbers(9);
    let (rows, width) = (300, 96);
    let ordinary = numbers.floats(width);
    let mut outlier = ordinary.clone();
    outlier[7] = 300.0;
    let tiny: Vec<f32> = ordinary.iter().map(|x| x * 1e-34).collect();
    let queries: Vec<f32> = [&ordinary[..], &outlier, &tiny, &vec![0.0; width]].concat();
    let kinds = ["the same", "nearly the same", "sizes", "tiny", "subnormal", "columns", "zeros", "negative"];
    for kind in kinds {
        let base = numbers.floats(width);
        let values = (0..rows * width).map(|i| {
            let (row, i) = (i / width, i % width);
            match kind {
                "the same" => base[i],
                "nearly the same" => base[i] + numbers.float() * 1e-6,
                "sizes" => numbers.float() * 10f32.powi((row * 37 % 60) as i32 - 30),
                "tiny" => numbers.float() * 1e-35,
                "subnormal" => numbers.float() * 1e-44,
                "columns" => numbers.float() * 10f32.powi(i as i32 % 9 - 4),
                "negative" => -ordinary[i].signum() * (numbers.float() + 1.0),
                _ => 0.0,
            }
        });
        let table = floats(DType::F32, &values.collect::<Vec<_>>(), width);
        for kernels in Kernels::all() {
            for k in [1, 10, 400] {
                check(kernels, 1 + k % 3, &table, &queries, k);
            }
        }
    }
}

#[test]
fn few_products_are_computed_from_the_table() {
    let mut numbers = Numbers(21);
    let (rows, width) = (20_000, 128);
    let mut normal = || (0..6).map(|_| numbers.float()).sum::<f32>();
    let values: Vec<f32> = (0..rows * width).map(|_| normal()).collect();
    let queries: Vec<f32> = (0..12 * width).map(|_| normal()).collect();
    let table = floats(DType::BF16, &values, width);
    let computed = check(Kernels::detect(), 2, &table, &queries, 10);
    assert!((10..800).contains(&computed), "{computed} products for each query");
}

#[test]
fn what_is_no_finite_number_is_an_error() {
    let mut numbers = Numbers(4);
    let cpu = Cpu::new(2, Precision::Exact).unwrap();
    let cancel = CancelToken::new();
    let (rows, width) = (100, 40);
    let good = numbers.floats(rows * width).to_vec();
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = good.clone();
        values[37 * width + 5] = wrong;
        values[80 * width] = wrong;
        let error = Nearest::new(&cpu, &floats(DType::F32, &values, width), &cancel).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::CheckpointInvalid);
        assert!(error.to_string().contains("table") && error.to_string().contains("37"), "{error}");

        let nearest = Nearest::new(&cpu, &floats(DType::F32, &good, width), &cancel).unwrap();
        let error = nearest.top(&values[30 * width..], 3, &cancel, &mut Vec::new()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::CheckpointInvalid);
        assert!(error.to_string().contains('7'), "{error}");
    }
    // Finite numbers whose products are not.
    let huge: Vec<f32> = good.iter().map(|x| x * 1e30).collect();
    let nearest = Nearest::new(&cpu, &floats(DType::F32, &huge, width), &cancel).unwrap();
    let error = nearest.top(&huge[..width], 3, &cancel, &mut Vec::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::CheckpointInvalid, "{error}");
    // Nothing but lengths overflows.
    let small: Vec<f32> = good[..width].iter().map(|x| x * 1e-3).collect();
    let largest: Vec<f32> = good.iter().map(|x| x * 3e38).collect();
    for kernels in Kernels::all() {
        check(kernels, 2, &floats(DType::F32, &largest, width), &small, 5);
    }
}

#[test]
fn shapes_and_cancelling() {
    let cpu = Cpu::new(2, Precision::Exact).unwrap();
    let cancel = CancelToken::new();
    for shape in [[0, 32], [32, 0], [1, (1 << 17) + 1]] {
        let table = region(DType::F32, shape, &vec![0; 4 * shape[0] * shape[1]]);
        let error = Nearest::new(&cpu, &table, &cancel).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TensorShape, "{error}");
    }
    let table = floats(DType::F32, &[1.0; 40 * 32], 32);
    let nearest = Nearest::new(&cpu, &table, &cancel).unwrap();
    let mut out = vec![(1, 1.0)];
    nearest.top(&[], 10, &cancel, &mut out).unwrap();
    assert!(out.is_empty());
    nearest.top(&[1.0; 32], 0, &cancel, &mut out).unwrap();
    assert!(out.is_empty());
    assert_eq!(nearest.top(&[1.0; 33], 1, &cancel, &mut out).unwrap_err().kind(), ErrorKind::InvalidArgument);
    cancel.cancel();
    assert_eq!(nearest.top(&[1.0; 32], 1, &cancel, &mut out).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(Nearest::new(&cpu, &table, &cancel).err().unwrap().kind(), ErrorKind::Cancelled);
}

#[test]
fn the_widest_rows_do_not_overflow() {
    let width = super::super::WIDEST;
    // All products of the same sign and of the largest size that integers have.
    let mut values = vec![1.0f32; 2 * width];
    values[width..].fill(-1.0);
    let table = floats(DType::F32, &values, width);
    for kernels in Kernels::all() {
        check(kernels, 1, &table, &vec![1.0; width], 2);
        check(kernels, 1, &table, &vec![-1.0; width], 2);
    }
}
