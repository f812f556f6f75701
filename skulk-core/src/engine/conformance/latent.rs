//! Are heads multiplied with weights of their own, and rotated behind what is not?

use super::material::{Numbers, Weights, wide};
use super::{check, check_same, filled, oracle, values};
use crate::arch::RopeLayout;
use crate::engine::backend::{Backend, NormRope};
use crate::weights::DType;

pub(in crate::engine) fn heads_with_weights<B: Backend>(b: &B) {
    let mut numbers = Numbers::new(21);
    // Elements that a head's weight takes and gives, and those behind.
    for (heads, [n_in, n_out, behind]) in
        [(1, [8, 8, 0]), (3, [24, 32, 8]), (20, [64, 40, 0]), (5, [33, 17, 2])]
    {
        let s = &mut b.stream(70, heads * (n_in.max(n_out) + behind)).unwrap();
        let weights: Vec<_> =
            (0..heads).map(|_| Weights::new(&mut numbers, DType::F32, [n_out, n_in], 0)).collect();
        let stack = b.stack(weights.iter().map(|w| w.region.clone()).collect(), None).unwrap();
        let (of_head, to_head) = (n_in + behind, n_out + behind);
        for rows in [1, 5, 70] {
            let x = numbers.floats(rows * heads * of_head);
            let input = filled(b, s, heads * of_head, &x);
            // Wider than the result.
            let mut out = b.buffer(rows, heads * to_head + 3).unwrap();
            b.linear_heads(s, &stack, &input, rows, &mut out).unwrap();
            let mut expected = Vec::new();
            for (at, head) in x.chunks(of_head).enumerate() {
                let head = wide(head);
                let weights = weights[at % heads].values.chunks(n_in);
                expected.extend(weights.map(|w| oracle::dot(w, &head[..n_in])));
                expected.extend(&head[n_in..]);
            }
            let what = format!("{heads} heads of {n_in} and {behind} elements");
            let found = values(b, s, &out, expected.len());
            check(&found, &expected, |_| n_in as f64 * 6e-8 * n_in as f64, &what);
            let single = filled(b, s, heads * of_head, &x[(rows - 1) * heads * of_head..]);
            b.linear_heads(s, &stack, &single, 1, &mut out).unwrap();
            let single = values(b, s, &out, heads * to_head);
            check_same::<B>(&found[(rows - 1) * heads * to_head..], &single, &what);
        }
    }
    rotated_behind(b, &mut numbers);
}

fn rotated_behind<B: Backend>(b: &B, numbers: &mut Numbers) {
    let (heads, plain, rotated, rows) = (3, 12, 8, 4);
    let head_dim = plain + rotated + 4;
    let s = &mut b.stream(rows, heads * head_dim).unwrap();
    let frequencies = [1.0, 0.5, 0.25, 0.125];
    let mut angles = b.buffer(rows, rotated).unwrap();
    b.angles(s, &frequencies, &[0, 1, 2, 30], &[1.0; 4], &mut angles).unwrap();
    for layout in [RopeLayout::Halves, RopeLayout::Pairs] {
        let x = numbers.floats(rows * heads * head_dim);
        let mut found = filled(b, s, heads * head_dim, &x);
        let op = NormRope { head_dim, plain, norm: None, layout };
        b.norm_rope(s, &op, Some(&angles), rows, &mut found).unwrap();
        let mut expected = wide(&x);
        for (at, head) in expected.chunks_mut(head_dim).enumerate() {
            oracle::rotate(&mut head[plain..], layout, &frequencies, [0, 1, 2, 30][at / heads]);
        }
        check(&values(b, s, &found, x.len()), &expected, |_| 1e-5, &format!("{layout:?} behind {plain}"));
    }
}
