//! Are compact copies the same everywhere, as near as they say, and their bounds never below?

use super::super::compact::{Coarse, tile_bytes};
use super::super::{BLOCK, Kernels, LANES, portable};
use super::rounding::{Rows, activations};
use super::{GAP, Numbers, assert_same, others, without_gaps};

/// Copies sixteen rows; returns what it says of itself, too.
fn copy(kernels: &Kernels, rows: &[f32]) -> (Vec<u8>, Vec<bool>) {
    let n_in = rows.len() / LANES;
    let mut tile = vec![0; tile_bytes(n_in / BLOCK)];
    let mut distances = vec![0.0; n_in / BLOCK];
    let holds = rows.chunks_exact(n_in).enumerate().map(|(lane, row)| {
        // SAFETY: there is room for the tile, and the machine has the instructions.
        unsafe { (kernels.compress)(row, lane, &mut distances, tile.as_mut_ptr()) }
    });
    let holds = holds.collect();
    (tile, holds)
}

/// Products of rows with tiles, and what the rows' own products are at most.
fn multiply(kernels: &Kernels, tiles: &[u8], x: &[f32], rows: usize, apart: f32) -> [Vec<f32>; 2] {
    let blocks = x.len() / rows / BLOCK;
    let n = tiles.len() / tile_bytes(blocks);
    let rounded = Rows::new(kernels, x, rows, false);
    let norms: Box<[f32]> = x.chunks_exact(BLOCK).map(|block| (norm(block) * 1.001) as f32).collect();
    let apart: Box<[f32]> = (0..rows).map(|row| apart * (1.0 + row as f32)).collect();
    let (stride, upper_stride) = (n * LANES + 1, n * LANES + 2);
    let mut out = vec![GAP; (rows - 1) * stride + n * LANES].into_boxed_slice();
    let mut upper = vec![GAP; (rows - 1) * upper_stride + n * LANES].into_boxed_slice();
    let product = Coarse {
        tiles: tiles.as_ptr(),
        blocks,
        x: rounded.from(0),
        rows,
        norms: norms.as_ptr(),
        apart: apart.as_ptr(),
        out: out.as_mut_ptr(),
        stride,
        from: 0,
        upper: upper.as_mut_ptr(),
        upper_stride,
    };
    // SAFETY: all arrays are as long as the product says, and the machine has the instructions.
    unsafe { (kernels.coarse)(&product, 0..n) };
    [without_gaps(&out, n * LANES, stride), without_gaps(&upper, n * LANES, upper_stride)]
}

fn norm(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

/// Sixteen rows of many kinds.
fn rows(numbers: &mut Numbers, blocks: usize) -> Vec<f32> {
    let mut rows = numbers.floats(LANES * blocks * BLOCK).into_vec();
    for (lane, row) in rows.chunks_exact_mut(blocks * BLOCK).enumerate() {
        match lane {
            1 => row.fill(0.0),
            2 => row.iter_mut().for_each(|x| *x *= 1e-40),
            3 => row.iter_mut().for_each(|x| *x *= 1e-25),
            4 => row.iter_mut().for_each(|x| *x *= 1e5),
            // Blocks far smaller than the largest, beyond what scales of eight bits reach.
            5 => row.chunks_exact_mut(BLOCK).enumerate().for_each(|(j, block)| {
                block.iter_mut().for_each(|x| *x *= (-8.0 * j as f32).exp2());
            }),
            6 => row[BLOCK / 2] = 300.0,
            7 => row[BLOCK / 2] = -300.0,
            8 => row.fill(1.0),
            9 => row.fill(-1.0),
            10 => row.iter_mut().step_by(2).for_each(|x| *x = 0.0),
            11 => row.iter_mut().for_each(|x| *x = x.signum()),
            _ => {}
        }
    }
    rows
}

#[test]
fn copies_and_their_products_are_the_same_everywhere() {
    let mut numbers = Numbers(21);
    for blocks in [1, 2, 3, 8] {
        let (tile, holds) = copy(&portable::KERNELS, &rows(&mut numbers, blocks));
        assert!(holds.iter().all(|holds| *holds));
        let two = [tile.clone(), tile].concat();
        let x = activations(&mut numbers, 11, blocks);
        let alone = x.chunks_exact(blocks * BLOCK).enumerate().map(|(row, x)| {
            let [products, upper] = multiply(&portable::KERNELS, &two, x, 1, 0.5 * (1.0 + row as f32));
            assert_same(&products[LANES..], &products[..LANES], "the second tile");
            (products, upper)
        });
        let (products, upper): (Vec<_>, Vec<_>) = alone.unzip();
        let (products, upper) = (products.concat(), upper.concat());
        for kernels in Kernels::all() {
            for rows in 1..=11 {
                let found = multiply(kernels, &two, &x[..rows * blocks * BLOCK], rows, 0.5);
                assert_same(&found[0], &products[..rows * 2 * LANES], kernels.name);
                assert_same(&found[1], &upper[..rows * 2 * LANES], kernels.name);
            }
        }
        let rows = rows(&mut numbers, blocks);
        let oracle = copy(&portable::KERNELS, &rows);
        for kernels in others() {
            assert!(copy(kernels, &rows) == oracle, "{}", kernels.name);
        }
    }
}

#[test]
fn bounds_hold_and_are_narrow() {
    let mut numbers = Numbers(22);
    for blocks in [1, 2, 5, 20] {
        let n_in = blocks * BLOCK;
        for _ in 0..20 {
            let rows = rows(&mut numbers, blocks);
            let (tile, _) = copy(&portable::KERNELS, &rows);
            for x in activations(&mut numbers, 8, blocks).chunks_exact(n_in) {
                let rounded = Rows::new(&portable::KERNELS, x, 1, false).values();
                let moved = x.iter().zip(&rounded).map(|(x, r)| (f64::from(*x) - r).powi(2)).sum::<f64>();
                let apart = (moved.sqrt() + 1e-4 * norm(x)) * 1.001;
                let [products, upper] = multiply(&portable::KERNELS, &tile, x, 1, apart as f32);
                for (lane, row) in rows.chunks_exact(n_in).enumerate() {
                    let exact: f64 = row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    let (product, upper) = (f64::from(products[lane]), f64::from(upper[lane]));
                    let most = upper - product;
                    assert!(
                        exact <= upper && exact >= product - most,
                        "row {lane}: {exact} {product} ± {most}"
                    );
                    // Four bits leave less than a seventh of an ordinary block's norm. Activations that
                    // count as zeros leave all.
                    let scale = norm(row) * norm(x);
                    let ordinary = lane >= 12 && norm(x) > 1e-20;
                    assert!(!ordinary || most <= scale / 7.0, "row {lane}: ± {most} of {scale}");
                }
            }
        }
    }
}

#[test]
fn nothing_is_said_of_what_is_no_number_or_too_large() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
        for at in [0, BLOCK - 1, BLOCK, 3 * BLOCK - 1] {
            let mut rows = Numbers(23).floats(LANES * 3 * BLOCK);
            rows[2 * 3 * BLOCK + at] = value;
            for kernels in Kernels::all() {
                let (_, holds) = copy(kernels, &rows);
                let bad: Vec<_> = (0..LANES).filter(|lane| !holds[*lane]).collect();
                assert_eq!(bad, [2], "{}: {value}", kernels.name);
            }
        }
    }
}
