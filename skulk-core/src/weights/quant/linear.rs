//! What do the bytes of a linear Q6_K block mean? LARQL's layout, which candle does not know.
//!
//! 128 bytes of lower nibbles, two elements each, the first in the lower half; 64 bytes of upper bit
//! pairs, four elements each, the first lowest; sixteen signed scales of 16 elements; an f16 scale of
//! these. An element is `d · scale · (integer - 32)`.

use half::f16;

const BYTES: usize = 210;
const ELEMENTS: usize = 256;

/// Whole blocks as numbers, as far as `out` goes.
pub(super) fn dequantise(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.chunks_exact(BYTES).zip(out.chunks_exact_mut(ELEMENTS)) {
        let (low, rest) = block.split_at(128);
        let (high, rest) = rest.split_at(64);
        let (scales, d) = rest.split_at(16);
        let d = f16::from_le_bytes([d[0], d[1]]).to_f32();
        for (i, out) in out.iter_mut().enumerate() {
            let integer = low[i / 2] >> (i % 2 * 4) & 15 | (high[i / 4] >> (i % 4 * 2) & 3) << 4;
            *out = d * f32::from(scales[i / 16] as i8) * (f32::from(integer) - 32.0);
        }
    }
}

/// Rewrites a row of Q6_K blocks, candle's and llama.cpp's, in this layout; no value changes. Both take
/// the same number of bytes.
pub(crate) fn from_interleaved(row: &[u8], out: &mut [u8]) {
    for (block, linear) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BYTES>().0) {
        let (codes, scales) = linear.split_at_mut(192);
        codes.fill(0);
        scales.copy_from_slice(&block[192..]);
        for i in 0..ELEMENTS {
            let (half, part, at) = (i / 128, i % 128 / 32, i % 32);
            let low = block[64 * half + part % 2 * 32 + at] >> (part / 2 * 4) & 15;
            let high = block[128 + 32 * half + at] >> (2 * part) & 3;
            codes[i / 2] |= low << (i % 2 * 4);
            codes[128 + i / 4] |= high << (i % 4 * 2);
        }
    }
}
