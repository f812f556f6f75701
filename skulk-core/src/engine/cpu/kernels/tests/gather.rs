//! Are products with some rows those of the whole matrix, of woven rows, too?

use super::super::{Kernels, Matrix, ProductScratch};
use super::{Numbers, assert_same};
use crate::cancel::CancelToken;
use crate::engine::Precision;
use crate::engine::conformance::region;
use crate::engine::cpu::pool::Pool;
use crate::weights::DType;

#[test]
fn products_with_some_rows_are_those_of_all() {
    let (n_out, n_in, rows) = (48, 256, 2);
    let mut numbers = Numbers(41);
    let x = numbers.floats(rows * n_in);
    // As half-precision scales and as bfloat16 they are small numbers.
    let some = |dtype: DType, n_in: usize, by: usize| {
        let len = n_out * dtype.row_bytes(n_in).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| 0x20 + (at * by % 23) as u8).collect();
        region("weight", dtype, [n_out, n_in], &bytes, 0)
    };
    let scales = |by| some(DType::BF16, n_in / 64, by);
    let affine = some(DType::Affine4, n_in, 7).with_groups(scales(5), Some(scales(11)));
    // Some twice, and in no order.
    let ids: Vec<u32> = (0..rows as u32 * 32).map(|at| at * 29 % 47).collect();
    let pool = Pool::new(2).unwrap();
    for plain in [some(DType::Q8_0, n_in, 13), affine] {
        let woven = plain.clone().resident_for_products(&CancelToken::new()).unwrap();
        assert!(woven.woven().is_some() && woven.scales().is_none_or(|scales| scales.woven().is_some()));
        for kernels in Kernels::all() {
            let [plain, woven] = [&plain, &woven].map(|w| Matrix::new(kernels, w.clone(), None).unwrap());
            let mut scratch = ProductScratch::new(rows, n_in, Precision::Fast);
            let mut all = vec![0.0; rows * n_out];
            let mut list = scratch.products(kernels, &pool, &x, n_in, Precision::Fast);
            list.push(&plain, 0..rows, &mut all);
            list.run();
            let wanted = ids.iter().enumerate().map(|(at, id)| all[at / 32 * n_out + *id as usize]);
            let wanted: Vec<f32> = wanted.collect();
            assert!(wanted.iter().any(|x| *x != 0.0) && wanted.iter().all(|x| x.is_finite()));
            for matrix in [&plain, &woven] {
                let mut found = vec![f32::NAN; ids.len()];
                scratch
                    .products(kernels, &pool, &x, n_in, Precision::Fast)
                    .rows(matrix, &ids, 32, &mut found);
                assert_same(&found, &wanted, kernels.name);
            }
        }
    }
}
