//! Are streams blended, made as large as others, scaled, and gates cut off?

use super::material::{Numbers, wide};
use super::{check, check_same, filled, values};
use crate::engine::backend::{Backend, Blend};

const MOST_ROWS: usize = 150;

pub(in crate::engine) fn streams<B: Backend>(b: &B) {
    let mut numbers = Numbers::new(31);
    for (rows, width) in [(1, 1), (3, 40), (5, 64), (33, 300), (MOST_ROWS, 128)] {
        for (n_from, n_out) in [(4, 4), (1, 4), (3, 2), (6, 2)] {
            blended(b, &mut numbers, [rows, width], [n_from, n_out]);
        }
        rows_alone(b, &mut numbers, [rows, width]);
    }
}

/// Four numbers say how much.
fn blended<B: Backend>(b: &B, numbers: &mut Numbers, [rows, width]: [usize; 2], [n_from, n_out]: [usize; 2]) {
    const N: usize = 4;
    let s = &mut b.stream(MOST_ROWS, width).unwrap();
    let weights = numbers.floats(n_out * n_from * N);
    let vector = b.vector(weights.clone()).unwrap();
    let by = numbers.floats(rows * N);
    let all = |numbers: &mut Numbers, n: usize| -> Vec<_> {
        (0..n).map(|_| numbers.floats(rows * width)).collect()
    };
    let (from, out) = (all(numbers, n_from), all(numbers, n_out));
    for plus in [0.0, 1.0] {
        let mut blend = |range: std::ops::Range<usize>| -> Vec<Vec<f32>> {
            let mut part =
                |x: &[f32], width: usize| filled(b, s, width, &x[range.start * width..range.end * width]);
            let given: Vec<_> = from.iter().map(|x| part(x, width)).collect();
            let mut taken: Vec<_> = out.iter().map(|x| part(x, width)).collect();
            let by = part(&by, N);
            let op = Blend { from: &given, by: &by, weights: &vector, plus };
            b.blend(s, &op, range.len(), &mut taken).unwrap();
            taken.iter().map(|x| values(b, s, x, range.len() * width)).collect()
        };
        let (together, last) = (blend(0..rows), blend(rows - 1..rows));
        for (i, found) in together.iter().enumerate() {
            let share = |row: usize, j: usize| {
                let weights = &weights[(i * n_from + j) * N..][..N];
                let by = &by[row * N..][..N];
                let products = weights.iter().zip(by).map(|(w, by)| f64::from(*w) * f64::from(*by));
                f64::from(plus) + products.sum::<f64>()
            };
            let expected: Vec<f64> = (0..rows * width)
                .map(|at| {
                    let taken = from.iter().enumerate().map(|(j, x)| share(at / width, j) * f64::from(x[at]));
                    f64::from(out[i][at]) + taken.sum::<f64>()
                })
                .collect();
            // Up to four numbers below 5, each with a few roundings.
            check(found, &expected, |_| 1e-5, &format!("{n_from} streams to {n_out}"));
            check_same::<B>(&found[(rows - 1) * width..], &last[i], "blended streams");
        }
    }
}

/// What is done to each row by itself.
fn rows_alone<B: Backend>(b: &B, numbers: &mut Numbers, [rows, width]: [usize; 2]) {
    let s = &mut b.stream(MOST_ROWS, width).unwrap();
    let (x, like, by) = (numbers.floats(rows * width), numbers.floats(rows * width), numbers.floats(width));
    let vector = b.vector(by.clone()).unwrap();
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let square = |x: &[f64]| mean(&x.iter().map(|x| x * x).collect::<Vec<_>>());

    // The second is so small that the least counts.
    for (shrunk, least) in [(1.0, 1e-5), (1e-4, 1e-5)] {
        let small: Vec<f32> = x.iter().map(|x| x * shrunk).collect();
        let mut sized = |range: std::ops::Range<usize>| {
            let part = range.start * width..range.end * width;
            let mut out = filled(b, s, width, &small[part.clone()]);
            let other = filled(b, s, width, &like[part.clone()]);
            b.match_size(s, &mut out, &other, least, range.len()).unwrap();
            values(b, s, &out, part.len())
        };
        let (found, last) = (sized(0..rows), sized(rows - 1..rows));
        let pairs = wide(&small)
            .chunks(width)
            .map(<[f64]>::to_vec)
            .zip(wide(&like).chunks(width).map(<[f64]>::to_vec))
            .collect::<Vec<_>>();
        let expected: Vec<f64> = pairs
            .iter()
            .flat_map(|(x, like)| {
                let factor = (square(like) / square(x).max(f64::from(least))).sqrt();
                x.iter().map(move |x| x * factor)
            })
            .collect();
        check(&found, &expected, |i| 2e-5 * expected[i].abs() + 1e-9, "the size of another row");
        check_same::<B>(&found[(rows - 1) * width..], &last, "the size of another row");
    }

    let mut scaled = filled(b, s, width, &x);
    b.scale_elements(s, &mut scaled, &vector, rows).unwrap();
    let expected: Vec<f64> =
        wide(&x).iter().enumerate().map(|(at, x)| x * f64::from(by[at % width])).collect();
    check(&values(b, s, &scaled, x.len()), &expected, |i| 6e-8 * expected[i].abs(), "elements by others");

    for deviations in [1.644_853_6, 0.0, -0.5] {
        let mut cut = |range: std::ops::Range<usize>| {
            let part = range.start * width..range.end * width;
            let mut out = filled(b, s, width, &x[part.clone()]);
            b.cut_off(s, &mut out, deviations, range.len()).unwrap();
            values(b, s, &out, part.len())
        };
        let (found, last) = (cut(0..rows), cut(rows - 1..rows));
        let expected: Vec<f64> = wide(&x)
            .chunks(width)
            .flat_map(|row| {
                let middle = mean(row);
                let variance = mean(&row.iter().map(|x| (x - middle).powi(2)).collect::<Vec<_>>());
                let least = middle + f64::from(deviations) * variance.sqrt();
                row.iter().map(move |x| (x - least).max(0.0)).collect::<Vec<_>>()
            })
            .collect();
        check(&found, &expected, |_| 2e-6, &format!("cut off at {deviations}"));
        check_same::<B>(&found[(rows - 1) * width..], &last, "cut-off gates");
    }
    // What is no number stays so.
    let mut none = filled(b, s, width, &vec![f32::NAN; width]);
    b.cut_off(s, &mut none, 1.0, 1).unwrap();
    assert!(values(b, s, &none, width).iter().all(|x| x.is_nan()));
}
