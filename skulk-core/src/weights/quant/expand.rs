//! How does a stored row become blocks that a fast dot product takes?
//!
//! candle has no vector code for some block types. Their values are expanded, a short segment at a
//! time and into the caller's stack frame, to a type it has vector code for. No value is rounded:
//! a 5-bit integer fits an 8-bit one, and every stored type fits f32.

use candle_core::quantized::k_quants::BlockQ8_0;

use super::{DType, blocks, dequantise};

/// Elements expanded at a time: a whole number of every block type's blocks.
pub(crate) const SEGMENT: usize = 512;

/// Bytes of a `Q5_0` and of a `Q8_0` block, and elements in either.
const Q5_0_BYTES: usize = 22;
const Q8_0_BYTES: usize = 34;
const BLOCK: usize = 32;

/// For eight fifth bits, eight bytes to combine with the nibbles: `x - 16` is the nibble itself where
/// the bit is set, and the nibble with all upper bits set where it is not.
static SIGNS: [u64; 256] = {
    let mut table = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut at = 0;
        while at < 8 {
            if bits >> at & 1 == 0 {
                table[bits] |= 0xf0 << (8 * at);
            }
            at += 1;
        }
        bits += 1;
    }
    table
};

/// Room for one expanded segment; made once per task, as zeroing it costs as much as a short row.
#[repr(C, align(64))]
pub(crate) struct Expanded {
    q8_0: [u8; SEGMENT / BLOCK * Q8_0_BYTES],
    f32: [f32; SEGMENT],
}

impl Expanded {
    pub(crate) fn new() -> Self {
        Self { q8_0: [0; SEGMENT / BLOCK * Q8_0_BYTES], f32: [0.0; SEGMENT] }
    }

    /// Up to [`SEGMENT`] `Q5_0` elements as `Q8_0` blocks of the same values.
    pub(crate) fn q5_0_as_q8_0(&mut self, bytes: &[u8]) -> &[BlockQ8_0] {
        let n = (bytes.len() / Q5_0_BYTES).min(SEGMENT / BLOCK);
        for (from, to) in bytes.chunks_exact(Q5_0_BYTES).zip(self.q8_0.chunks_exact_mut(Q8_0_BYTES)) {
            let (scale, from) = from.split_at(2);
            let (high, low) = from.split_at(4);
            let (to_scale, to) = to.split_at_mut(2);
            to_scale.copy_from_slice(scale);
            // Low nibbles are the first 16 elements, high nibbles the others; eight at a time.
            for (i, to) in to.chunks_exact_mut(8).enumerate() {
                let Some(nibbles) = low[i % 2 * 8..].first_chunk() else { continue };
                let nibbles = u64::from_le_bytes(*nibbles) >> (i / 2 * 4) & 0x0f0f_0f0f_0f0f_0f0f;
                to.copy_from_slice(&(nibbles | SIGNS[usize::from(high[i])]).to_le_bytes());
            }
        }
        // The buffer is aligned by its type, so the view always exists.
        blocks::<BlockQ8_0>(&self.q8_0[..n * Q8_0_BYTES]).unwrap_or(&[])
    }

    /// Up to [`SEGMENT`] elements of any type as numbers.
    pub(crate) fn as_f32(&mut self, dtype: DType, bytes: &[u8]) -> &[f32] {
        let n = (bytes.len() / dtype.block_bytes() * dtype.block_len()).min(SEGMENT);
        dequantise(dtype, bytes, &mut self.f32[..n]);
        &self.f32[..n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::GgmlType;
    use candle_core::quantized::k_quants::BlockQ5_0;

    #[test]
    fn q5_0_expands_to_the_same_values() {
        // Every byte value at every place, scales from zero over denormals to infinity.
        let mut bytes: Vec<u8> = (0..Q5_0_BYTES * 64).map(|i| (i * 37 + i / 255) as u8).collect();
        for (i, block) in bytes.chunks_exact_mut(Q5_0_BYTES).enumerate() {
            block[..2].copy_from_slice(&half::f16::from_f32(i as f32 * 0.37 - 3.0).to_le_bytes());
        }
        for segment in bytes.chunks(SEGMENT / BLOCK * Q5_0_BYTES) {
            let mut expected = vec![0.0; segment.len() / Q5_0_BYTES * BLOCK];
            BlockQ5_0::to_float(blocks(segment).unwrap(), &mut expected);
            let mut room = Expanded::new();
            let mut found = vec![0.0; expected.len()];
            BlockQ8_0::to_float(room.q5_0_as_q8_0(segment), &mut found);
            assert_eq!(expected, found);
        }
    }

    #[test]
    fn every_type_expands_as_candle_decodes_it() {
        for &dtype in DType::ALL {
            let bytes: Vec<u8> =
                (0..dtype.row_bytes(SEGMENT).unwrap()).map(|i| (i * 11 % 113) as u8).collect();
            let mut room = Expanded::new();
            let aligned = room.as_f32(dtype, &bytes).to_vec();
            assert_eq!(aligned.len(), SEGMENT, "{dtype}");
            // The same bytes from an odd address.
            let mut shifted = vec![0; bytes.len() + 1];
            shifted[1..].copy_from_slice(&bytes);
            let odd = room.as_f32(dtype, &shifted[1..]).to_vec();
            assert!(aligned.iter().zip(&odd).all(|(a, b)| a.to_bits() == b.to_bits()), "{dtype}");
        }
    }
}
