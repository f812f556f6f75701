//! How are stored bytes seen as blocks, and as numbers?
//!
//! Block layouts and arithmetic are candle's; this module only views mapped bytes as its block
//! types, which is the one thing candle's own tensors cannot do without copying.
#![allow(unsafe_code)]

mod encode;
mod expand;
mod linear;

pub(crate) use encode::{encode_row, encoded_row_bytes};
pub(crate) use expand::{Expanded, SEGMENT};
pub(crate) use linear::from_interleaved;

use candle_core::quantized::GgmlType;
use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0,
    BlockQ8K,
};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::{DType, Region};
use crate::error::{Error, ErrorKind, Result};

/// A `repr(C)` type of integers and half floats without padding: any bytes are a valid value.
///
/// # Safety
/// Implementors must hold to that sentence.
pub(crate) unsafe trait PlainBlock: GgmlType {}

macro_rules! plain_blocks {
    ($($t:ty),*) => {$(
        // SAFETY: integers and floats only; candle asserts that sizes leave no room for padding.
        unsafe impl PlainBlock for $t {}
    )*};
}
plain_blocks!(
    f32, f16, bf16, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ2K, BlockQ3K, BlockQ4K,
    BlockQ5K, BlockQ6K, BlockQ8K
);

/// Views bytes as blocks; `None` when they are misaligned or no whole number of blocks.
pub(crate) fn blocks<T: PlainBlock>(bytes: &[u8]) -> Option<&[T]> {
    // SAFETY: `PlainBlock` accepts any bytes, and `align_to` yields a correctly aligned middle.
    let (head, blocks, tail) = unsafe { bytes.align_to::<T>() };
    (head.is_empty() && tail.is_empty()).then_some(blocks)
}

/// Turns one stored row, or several that lie behind each other, into numbers.
///
/// `out` takes as many values as `bytes` hold; a shorter one is filled, as from a row that is padded.
pub(crate) fn dequantise(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    let whole = out.len() / dtype.block_len();
    let (out, rest) = out.split_at_mut(whole * dtype.block_len());
    whole_blocks(dtype, bytes, out);
    if !rest.is_empty()
        && let Some(bytes) = bytes.get(whole * dtype.block_bytes()..)
    {
        let mut last = [0.0; LARGEST_BLOCK];
        whole_blocks(dtype, bytes, &mut last[..dtype.block_len()]);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Elements of the largest block.
const LARGEST_BLOCK: usize = 256;

/// Likewise, as far as whole blocks go.
fn whole_blocks(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    fn by_block<T: PlainBlock>(bytes: &[u8], out: &mut [f32]) {
        match blocks::<T>(bytes) {
            Some(blocks) => {
                let n = blocks.len().min(out.len() / T::BLCK_SIZE);
                T::to_float(&blocks[..n], &mut out[..n * T::BLCK_SIZE]);
            }
            // A misaligned file: one block at a time through an aligned copy.
            None => {
                let mut block = [T::zeros()];
                for (bytes, out) in bytes.chunks_exact(size_of::<T>()).zip(out.chunks_exact_mut(T::BLCK_SIZE))
                {
                    // SAFETY: `PlainBlock` accepts any bytes, and the sizes are equal.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            bytes.as_ptr(),
                            block.as_mut_ptr().cast::<u8>(),
                            size_of::<T>(),
                        );
                    }
                    T::to_float(&block, out);
                }
            }
        }
    }
    match dtype {
        DType::F32 => by_block::<f32>(bytes, out),
        DType::F16 => match blocks::<f16>(bytes) {
            Some(halves) => {
                let n = halves.len().min(out.len());
                halves[..n].convert_to_f32_slice(&mut out[..n]);
            }
            None => by_block::<f16>(bytes, out),
        },
        DType::BF16 => {
            // A shift, which the compiler vectorises; no alignment needed.
            for (bytes, out) in bytes.chunks_exact(2).zip(out) {
                *out = f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16);
            }
        }
        DType::Q4_0 => by_block::<BlockQ4_0>(bytes, out),
        DType::Q4_1 => by_block::<BlockQ4_1>(bytes, out),
        DType::Q5_0 => by_block::<BlockQ5_0>(bytes, out),
        DType::Q5_1 => by_block::<BlockQ5_1>(bytes, out),
        DType::Q8_0 => by_block::<BlockQ8_0>(bytes, out),
        DType::Q2_K => by_block::<BlockQ2K>(bytes, out),
        DType::Q3_K => by_block::<BlockQ3K>(bytes, out),
        DType::Q4_K => by_block::<BlockQ4K>(bytes, out),
        DType::Q5_K => by_block::<BlockQ5K>(bytes, out),
        DType::Q6_K => by_block::<BlockQ6K>(bytes, out),
        DType::Q6_K_Linear => linear::dequantise(bytes, out),
        DType::Q8_K => by_block::<BlockQ8K>(bytes, out),
    }
}

/// A small tensor (a norm, a bias, rope factors) as numbers.
///
/// # Errors
/// [`ErrorKind::TensorShape`] when it is too large to be small, [`ErrorKind::DTypeUnsupported`] when its rows are
/// padded.
pub(crate) fn to_f32(region: &Region) -> Result<Vec<f32>> {
    const LARGEST: usize = 1 << 24;
    let len = region.rows().saturating_mul(region.row_len());
    if len > LARGEST {
        return Err(Error::new(ErrorKind::TensorShape, format!("expected a vector, found {len} elements"))
            .with("tensor", region.name()));
    }
    region.expect_plain()?;
    let mut values = vec![0.0; len];
    dequantise(region.dtype(), region.bytes(), &mut values);
    Ok(values)
}
