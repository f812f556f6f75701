//! How are blocks of ggml's codebooks read? Row by row, as each element's group is looked up where its bits say.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::format::{Format, Raw, Scales, Signed, SignedInHalves, Stored};
use super::simd::{LANES, Rows, Simd, each_column};
use crate::weights::quant::{Codebook, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Tq10};

/// The integers of the `j`th 32 elements of a block of each row, as columns.
#[inline(always)]
unsafe fn read<S: Simd, C: Codebook>(rows: &Rows, at: usize, j: usize) -> Raw<S> {
    let mut columns = [[0i32; LANES]; 8];
    let mut row = 0;
    while row < LANES {
        let integers = C::integers(&*rows.row(row).add(at).cast::<C::Block>(), j);
        let mut k = 0;
        while k < 8 {
            columns[k][row] = integers.as_ptr().add(4 * k).cast::<i32>().read_unaligned().to_le();
            k += 1;
        }
        row += 1;
    }
    let mut raw = [S::isplat(0); 24];
    let mut k = 0;
    while k < 8 {
        raw[k] = S::iload(columns[k].as_ptr());
        k += 1;
    }
    raw
}

/// The scales of a block of each row.
#[inline(always)]
unsafe fn scales<S: Simd, C: Codebook>(stored: &Stored, at: usize, out: &mut Scales<S>) {
    let mut lanes = [[0f32; LANES]; 16];
    let mut row = 0;
    while row < LANES {
        let scales = C::scales(&*stored.rows.row(row).add(at).cast::<C::Block>());
        let mut i = 0;
        while i < 16 {
            lanes[i][row] = scales[i];
            i += 1;
        }
        row += 1;
    }
    let (n, step) = if C::HALVES { (16, 1) } else { (8, 2) };
    let mut i = 0;
    while i < n {
        out.scale[i] = S::load(lanes[i * step].as_ptr());
        i += 1;
    }
}

macro_rules! codebooks {
    ($($name:ident, $codebook:ident, $layout:ty;)*) => {$(
        pub(super) struct $name;

        impl Format for $name {
            const BYTES: usize = size_of::<<$codebook as Codebook>::Block>();
            const BLOCKS: usize = 8;
            type Layout = $layout;
            const BITS: u32 = 8;
            const WOVEN: bool = false;

            #[inline(always)]
            unsafe fn read<S: Simd>(rows: &Rows, at: usize, group: usize) -> Raw<S> {
                read::<S, $codebook>(rows, at, group)
            }
            #[inline(always)]
            unsafe fn columns<S: Simd>(raw: &Raw<S>, _j: usize) -> [S::I; 8] {
                each_column!(|k| raw[k])
            }
            #[inline(always)]
            unsafe fn scales<S: Simd>(stored: &Stored, at: usize, out: &mut Scales<S>) {
                scales::<S, $codebook>(stored, at, out);
            }
        }
    )*};
}

codebooks! {
    TwoXxs, Iq2Xxs, Signed;
    TwoXs, Iq2Xs, SignedInHalves;
    TwoS, Iq2S, SignedInHalves;
    ThreeXxs, Iq3Xxs, Signed;
    ThreeS, Iq3S, Signed;
    OneS, Iq1S, Signed;
    OneM, Iq1M, SignedInHalves;
    Ternary, Tq10, Signed;
}
