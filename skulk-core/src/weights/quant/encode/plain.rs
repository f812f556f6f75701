//! How are numbers stored as plain floats? Little-endian, rounded to nearest, ties to even.

use half::slice::HalfFloatSliceExt;

/// Values converted at a time, on the stack.
const PIECE: usize = 256;

pub(super) fn f32(values: &[f32], out: &mut [u8]) {
    for (x, out) in values.iter().zip(out.as_chunks_mut().0) {
        *out = x.to_le_bytes();
    }
}

pub(super) fn f16(values: &[f32], out: &mut [u8]) {
    let mut halves = [half::f16::ZERO; PIECE];
    for (values, out) in values.chunks(PIECE).zip(out.chunks_mut(2 * PIECE)) {
        let halves = &mut halves[..values.len()];
        halves.convert_from_f32_slice(values);
        for (half, out) in halves.iter().zip(out.as_chunks_mut().0) {
            *out = half.to_le_bytes();
        }
    }
}

pub(super) fn bf16(values: &[f32], out: &mut [u8]) {
    for (x, out) in values.iter().zip(out.as_chunks_mut().0) {
        // Finite values only, so that the sum cannot turn one into NaN.
        let bits = x.to_bits();
        *out = ((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes();
    }
}
