//! What becomes of blocks that no quantiser would write? The same everywhere, and no number of none.

use super::super::format::Beside;
use super::super::{BLOCK, Kernels, portable};
use super::products::{By, Matrix};
use super::rounding::{Rows, activations};
use super::stored::all;
use super::{Bytes, Numbers, assert_same};

const N_OUT: usize = 18;
const ROWS: usize = 7;

/// Compares all kernels' products with the portable ones, which are returned.
fn same_everywhere(matrix: &Matrix<'_>, x: &[f32], exact: bool, what: &str) -> Vec<f32> {
    let oracle = matrix.oracle(&Rows::new(&portable::KERNELS, x, ROWS, exact), exact);
    for kernels in Kernels::all() {
        let x = Rows::new(kernels, x, ROWS, exact);
        let what = format!("{} {}: {what}", kernels.name, matrix.stored.name);
        for by in [By::Few, By::Many] {
            assert_same(&matrix.multiply(kernels, &x, [0, ROWS], exact, by), &oracle, &what);
        }
        assert_same(&matrix.multiply(kernels, &x, [0, 1], exact, By::One), &oracle[..N_OUT], &what);
    }
    oracle
}

#[test]
fn bytes_of_one_kind() {
    let mut numbers = Numbers(5);
    for stored in all() {
        let x = activations(&mut numbers, ROWS, stored.len / BLOCK);
        for byte in [0, 0x7f, 0x80, 0xff] {
            let mut bytes = vec![byte; N_OUT * stored.bytes];
            let matrix = Bytes::new(&bytes, 1);
            let matrix = Matrix {
                step: 1,
                stored: &stored,
                bytes: &matrix,
                n_out: N_OUT,
                blocks: stored.len / BLOCK,
                bias: None,
                beside: Beside::NOTHING,
            };
            for exact in [false, true] {
                let results = same_everywhere(&matrix, &x, exact, &format!("bytes of {byte:#x}"));
                assert!(byte != 0 || results.iter().all(|&result| result == 0.0));
            }
            // The same with ordinary scales, to see the integers' extremes.
            let ordinary = stored.random(&mut numbers, N_OUT);
            for (block, ordinary) in
                bytes.chunks_exact_mut(stored.bytes).zip(ordinary.chunks_exact(stored.bytes))
            {
                for &at in stored.halves {
                    block[at..at + 2].copy_from_slice(&ordinary[at..at + 2]);
                }
                if stored.halves.is_empty() {
                    block[..4].copy_from_slice(&ordinary[..4]);
                }
            }
            let matrix = Bytes::new(&bytes, 3);
            let matrix = Matrix {
                step: 1,
                stored: &stored,
                bytes: &matrix,
                n_out: N_OUT,
                blocks: stored.len / BLOCK,
                bias: None,
                beside: Beside::NOTHING,
            };
            for exact in [false, true] {
                let results = same_everywhere(&matrix, &x, exact, &format!("integers of {byte:#x}"));
                assert!(results.iter().all(|result| result.is_finite()));
            }
        }
    }
}

#[test]
fn activations_that_are_not_finite() {
    let mut numbers = Numbers(7);
    for stored in all() {
        let mut x = activations(&mut numbers, ROWS, 2 * stored.len / BLOCK);
        let wrong = [(0, f32::INFINITY), (2, f32::NEG_INFINITY), (5, f32::NAN)];
        for (row, value) in wrong {
            x[row * 2 * stored.len + stored.len + 3] = value;
        }
        let bytes = Bytes::new(&stored.random(&mut numbers, 2 * N_OUT), 2);
        let matrix = Matrix {
            step: 1,
            stored: &stored,
            bytes: &bytes,
            n_out: N_OUT,
            blocks: 2 * stored.len / BLOCK,
            bias: None,
            beside: Beside::NOTHING,
        };
        for exact in [false, true] {
            let results = same_everywhere(&matrix, &x, exact, "activations that are not finite");
            for (row, results) in results.chunks_exact(N_OUT).enumerate() {
                let none = wrong.iter().any(|(wrong, _)| *wrong == row);
                assert!(results.iter().all(|x| if none { x.is_nan() } else { x.is_finite() }));
            }
        }
    }
}

#[test]
fn scales_of_every_kind() {
    // Zeros, denormals, the largest, infinity and what is no number, which is no number afterwards.
    let halves = [0, 0x8000, 1, 0x83ff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01];
    let singles = [0, 0x8000_0000, 1, 0x807f_ffff, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000];
    let mut numbers = Numbers(6);
    for stored in all() {
        let x = activations(&mut numbers, ROWS, 2 * stored.len / BLOCK);
        let bytes = stored.random(&mut numbers, 2 * N_OUT);
        let check = |bytes: &[u8], finite: bool, what: String| {
            let bytes = Bytes::new(bytes, 2);
            let matrix = Matrix {
                step: 1,
                stored: &stored,
                bytes: &bytes,
                n_out: N_OUT,
                blocks: 2 * stored.len / BLOCK,
                bias: None,
                beside: Beside::NOTHING,
            };
            for exact in [false, true] {
                let results = same_everywhere(&matrix, &x, exact, &what);
                for (i, result) in results.into_iter().enumerate() {
                    if i % N_OUT != 4 {
                        assert!(result.is_finite(), "{}: {what}", stored.name);
                    } else if !finite {
                        assert!(!result.is_finite(), "{}: {what}", stored.name);
                    }
                }
            }
        };
        // The second block of row 4.
        let block = 9 * stored.bytes;
        // One type has its scale in the upper halves of four bytes.
        for &at in stored.halves.iter().filter(|_| stored.name != "IQ1_M") {
            for half in halves {
                let mut bytes = bytes.clone();
                bytes[block + at..][..2].copy_from_slice(&u16::to_le_bytes(half));
                check(&bytes, half & 0x7c00 != 0x7c00, format!("{half:#x} at {at}"));
            }
        }
        // Its scales are powers of two in a byte.
        let powers = stored.name == "MXFP4";
        for power in [0, 1, 2, 127, 254, 255].into_iter().filter(|_| powers) {
            let mut bytes = bytes.clone();
            bytes[block] = power;
            check(&bytes, true, format!("{power:#x}"));
        }
        for single in singles.into_iter().filter(|_| stored.halves.is_empty() && !powers) {
            let mut bytes = bytes.clone();
            bytes[block..][..4].copy_from_slice(&u32::to_le_bytes(single));
            check(&bytes, single & 0x7f80_0000 != 0x7f80_0000, format!("{single:#x}"));
        }
    }
}
