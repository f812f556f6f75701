//! Do parts of rows, each rounded in a form of its own, give what each row gives alone?

use super::super::{Form, Kernels, Matrix, Part, ProductScratch};
use super::{Numbers, assert_same};
use crate::engine::Precision;
use crate::engine::conformance::region;
use crate::engine::cpu::pool::Pool;
use crate::weights::DType;

#[test]
fn parts_of_rows_give_what_each_row_gives() {
    // Fewer and more than kernels of many rows take, of whole groups and not; one part has all rows, too.
    let lists: [&[usize]; 3] = [&[1, 20, 3, 17, 9, 40, 16], &[33], &[2, 2]];
    let (n_out, n_in) = (48, 256);
    let mut numbers = Numbers(43);
    let pool = Pool::new(2).unwrap();
    // As half-precision scales and as bfloat16 they are small numbers.
    let some = |dtype: DType, n_in: usize, by: usize| {
        let len = n_out * dtype.row_bytes(n_in).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| 0x20 + (at * by % 23) as u8).collect();
        region("weight", dtype, [n_out, n_in], &bytes, 0)
    };
    let affine = some(DType::Affine4, n_in, 7)
        .with_groups(some(DType::BF16, n_in / 64, 5), Some(some(DType::BF16, n_in / 64, 11)));
    // Of types that take rows in the same form; of types that take them in different ones.
    let pairs = [
        [some(DType::Q8_0, n_in, 13), some(DType::Q4_K, n_in, 5)],
        [some(DType::Q6_K, n_in, 3), affine.clone()],
        [affine, some(DType::Q2_K, n_in, 9)],
    ];
    for kernels in Kernels::all() {
        for precision in [Precision::Fast, Precision::Exact] {
            for (weights, lens) in pairs.iter().flat_map(|pair| lists.map(|lens| (pair, lens))) {
                let matrices = weights.clone().map(|w| Matrix::new(kernels, w, None).unwrap());
                let rows: usize = lens.iter().sum();
                let x = numbers.floats(rows * n_in);
                let expected = matrices.each_ref().map(|matrix| {
                    let mut out = vec![f32::NAN; rows * n_out];
                    for (x, out) in x.chunks_exact(n_in).zip(out.chunks_exact_mut(n_out)) {
                        let mut scratch = ProductScratch::new(1, n_in, precision);
                        let mut list = scratch.products(kernels, &pool, x, n_in, precision);
                        list.push(matrix, 0..1, out);
                        list.run();
                    }
                    out
                });
                assert!(expected.iter().flatten().all(|x| x.is_finite() && *x != 0.0));

                let (mut first, mut parts) = (0, Vec::new());
                for n in lens {
                    let forms = matrices.each_ref().map(|matrix| matrix.form(precision, *n).unwrap());
                    parts.push(Part { rows: first..first + n, form: forms[0].both(forms[1]) });
                    first += n;
                }
                // Turned round where they are, and made in place.
                let backwards: Vec<f32> = x.rchunks_exact(n_in).flatten().copied().collect();
                let mut made = vec![f32::NAN; x.len()];
                for gathered in [true, false] {
                    let mut scratch = ProductScratch::new(1, n_in, precision);
                    let mut found = [(); 2].map(|()| vec![f32::NAN; rows * n_out]);
                    let mut list = if gathered {
                        let row = |i: usize| &backwards[(rows - 1 - i) * n_in..][..n_in];
                        scratch.products_from(kernels, &pool, (rows, n_in), (precision, &parts), row)
                    } else {
                        scratch.products_of(
                            kernels,
                            &pool,
                            (&mut made, n_in),
                            (precision, &parts),
                            |i, row| row.copy_from_slice(&x[i * n_in..][..n_in]),
                        )
                    };
                    let [a, b] = &mut found;
                    let (mut a, mut b) = (&mut a[..], &mut b[..]);
                    for part in &parts {
                        let (out, also);
                        (out, a) = a.split_at_mut(part.rows.len() * n_out);
                        (also, b) = b.split_at_mut(part.rows.len() * n_out);
                        list.push(&matrices[0], part.rows.clone(), out);
                        list.push(&matrices[1], part.rows.clone(), also);
                    }
                    list.run();
                    for (found, expected) in found.iter().zip(&expected) {
                        assert_same(found, expected, kernels.name);
                    }
                }
            }
        }
    }
}

#[test]
fn what_two_forms_can_be_made_of() {
    let [small, large] = [Form::Grouped(8), Form::Grouped(16)];
    assert!(small.both(small) == small && small.both(large) == Form::Ordered);
    assert!(large.both(Form::Paired) == Form::Paired && Form::Ordered.both(small) == Form::Ordered);
}
