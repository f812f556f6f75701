//! How do numbers become a stored row? One encoder for each storage type that this library writes.
//!
//! What they lose is measured without weights: the square of the difference, over the values that
//! there are. Results depend on the values alone, on every machine.

mod halves;
mod lanes;
mod plain;
mod q4_k;
mod q6_k;
mod q8_0;
#[cfg(test)]
mod tests;

use super::DType;

/// The largest half float.
const LARGEST_HALF: f32 = 65504.0;

/// Bytes that [`encode_row`] makes of `len` values, the last block whole. `None` for a type without
/// an encoder, and when the size overflows.
pub(crate) fn encoded_row_bytes(dtype: DType, len: usize) -> Option<usize> {
    largest(dtype)?;
    dtype.row_bytes(len.checked_next_multiple_of(dtype.block_len())?)
}

/// Encodes a row into the [`encoded_row_bytes`] of `out`. Values that the last block lacks are
/// zeros, and have no say in its scales.
///
/// F16 and BF16 round to nearest, ties to even. The block types take values up to the magnitude that
/// their scales reach in either direction: 65504·63 for `Q4_K`, 65504·127·31 for `Q6_K` in either bit
/// order, 65504·127 for `Q8_0`.
///
/// # Errors
/// The index of the first value that is not finite or that the type cannot hold. A type without
/// an encoder holds none.
pub(crate) fn encode_row(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), usize> {
    let largest = largest(dtype).unwrap_or(-1.0);
    if let Some(i) = first_beyond(values, largest) {
        return Err(i);
    }
    match dtype {
        DType::F32 => plain::f32(values, out),
        DType::F16 => plain::f16(values, out),
        DType::BF16 => plain::bf16(values, out),
        DType::Q8_0 => by_block(values, out, q8_0::encode),
        DType::Q4_K => by_block(values, out, q4_k::encode),
        DType::Q6_K => by_block(values, out, q6_k::encode_interleaved),
        DType::Q6_K_Linear => by_block(values, out, q6_k::encode_linear),
        _ => {}
    }
    Ok(())
}

/// The largest magnitude that a type holds; `None` for a type without an encoder.
fn largest(dtype: DType) -> Option<f32> {
    match dtype {
        DType::F32 => Some(f32::MAX),
        // What lies below the middle between the largest number and the next that there would be.
        DType::F16 => Some(65520.0_f32.next_down()),
        DType::BF16 => Some(f32::from_bits(0x7f7f_7fff)),
        DType::Q8_0 => Some(LARGEST_HALF * 127.0),
        DType::Q4_K => Some(LARGEST_HALF * 63.0),
        DType::Q6_K | DType::Q6_K_Linear => Some(LARGEST_HALF * 127.0 * 31.0),
        _ => None,
    }
}

/// The first value that is not a number, or larger than `largest` in magnitude.
fn first_beyond(values: &[f32], largest: f32) -> Option<usize> {
    // Without an early exit the compiler looks at several values at a time.
    let within = |x: &f32| x.abs() <= largest;
    let all = values.iter().fold(true, |all, x| all & within(x));
    if all { None } else { values.iter().position(|x| !within(x)) }
}

/// Encodes blocks of `N` values into `B` bytes each; the last one may lack values.
fn by_block<const N: usize, const B: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: fn(&[f32; N], usize, &mut [u8; B]),
) {
    let (blocks, _) = out.as_chunks_mut::<B>();
    for (values, out) in values.chunks(N).zip(blocks) {
        match values.try_into() {
            Ok(values) => encode(values, N, out),
            Err(_) => {
                let mut padded = [0.0; N];
                padded[..values.len()].copy_from_slice(values);
                encode(&padded, values.len(), out);
            }
        }
    }
}
