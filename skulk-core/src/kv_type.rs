//! How are keys and values kept? As floats, or rotated and quantised in blocks.

use std::fmt;

use crate::macros::closed_set;

closed_set! {
    /// How keys or values are kept.
    ///
    /// Quantised ones are rotated first, each head by a Hadamard matrix, which spreads what is large over all elements;
    /// queries and results are rotated with them. Blocks are of 32 elements of a head, the last one of what is left over,
    /// each with a scale in half precision.
    #[derive(Default)]
    pub enum KvType {
        /// Half precision: 2 bytes an element.
        #[default]
        F16 = "f16",
        /// bfloat16: 2 bytes an element. The CPU also rounds queries, and the weights of positions, to it, as processors with
        /// instructions for it multiply such pairs in half the time; what is smaller than 2^-56 is zero there.
        BF16 = "bf16",
        /// Single precision: 4 bytes an element.
        F32 = "f32",
        /// Rotated, 8 bits an element and a scale for 32: 53 % of half precision.
        Q8_0 = "q8_0",
        /// Rotated, 4 bits an element and a scale for 32: 28 % of half precision.
        Q4_0 = "q4_0",
    }
}

/// Elements that share a scale.
const BLOCK: usize = 32;
/// Bits of a word: quantised elements of a head at a position, and those in bfloat16, have room in whole ones.
const WORD: usize = 32;
/// Bytes of a scale.
const SCALE: usize = 2;

impl KvType {
    /// Bits of an element, without its block's scale.
    pub(crate) const fn bits(self) -> usize {
        match self {
            KvType::F32 => 32,
            KvType::F16 | KvType::BF16 => 16,
            KvType::Q8_0 => 8,
            KvType::Q4_0 => 4,
        }
    }

    /// Elements of a key, and values of neighbouring positions, that lie side by side where the CPU multiplies so many at once.
    pub(crate) const fn side_by_side(self) -> usize {
        if matches!(self, KvType::BF16) { 2 } else { 1 }
    }

    /// Blocks share scales; what they are of is rotated.
    pub const fn is_quantised(self) -> bool {
        matches!(self, KvType::Q8_0 | KvType::Q4_0)
    }

    /// Scales of a head of so many elements.
    pub(crate) const fn scales(self, head_dim: usize) -> usize {
        if self.is_quantised() { head_dim.div_ceil(BLOCK) } else { 0 }
    }

    /// Bytes of a head's keys, or values, at so many positions, without their scales.
    pub(crate) const fn element_bytes(self, head_dim: usize, positions: usize) -> usize {
        let unit = if self.is_quantised() || self.side_by_side() > 1 { WORD } else { 8 };
        let each = head_dim.saturating_mul(self.bits()).div_ceil(unit).saturating_mul(unit / 8);
        each.saturating_mul(positions)
    }

    /// Bytes of a head's keys, or values, at so many positions.
    pub(crate) const fn bytes(self, head_dim: usize, positions: usize) -> usize {
        let scales = self.scales(head_dim).saturating_mul(SCALE).saturating_mul(positions);
        self.element_bytes(head_dim, positions).saturating_add(scales)
    }

    /// Bytes of 32 elements with what belongs to them: 128 for F32, 64 for F16 and BF16, 34 for Q8_0 and 18 for Q4_0.
    pub const fn block_bytes(self) -> usize {
        self.bytes(BLOCK, 1)
    }
}

/// How keys are kept, and how values are. Latent vectors, which are both at once, are kept in the more precise type.
///
/// ```
/// use skulk::{KvType, KvTypes, LoadOptions};
/// let both = LoadOptions::default().kv(KvType::Q8_0);
/// let apart = LoadOptions::default().kv(KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 });
/// # let _ = (both, apart);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KvTypes {
    /// Keys.
    pub keys: KvType,
    /// Values.
    pub values: KvType,
}

impl KvTypes {
    /// Bytes of 32 elements of keys and of values, together.
    pub(crate) fn block_bytes(self) -> usize {
        self.keys.block_bytes() + self.values.block_bytes()
    }

    /// Keys or values are quantised.
    pub(crate) fn are_quantised(self) -> bool {
        self.keys.is_quantised() || self.values.is_quantised()
    }

    /// How latent vectors are kept, which are keys and values at once: in the more precise type of both.
    pub(crate) fn of_latent(self) -> Self {
        let Self { keys, values } = self;
        let precision = |kind: KvType| (kind.bits(), kind != KvType::BF16);
        if precision(keys) >= precision(values) { keys.into() } else { values.into() }
    }
}

impl From<KvType> for KvTypes {
    fn from(both: KvType) -> Self {
        Self { keys: both, values: both }
    }
}

impl fmt::Display for KvTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { keys, values } if keys == values => keys.fmt(f),
            Self { keys, values } => write!(f, "{keys} with values in {values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_blocks() {
        let bytes = KvType::ALL.iter().map(|kv| (kv.as_str(), kv.block_bytes())).collect::<Vec<_>>();
        assert_eq!(bytes, [("f16", 64), ("bf16", 64), ("f32", 128), ("q8_0", 34), ("q4_0", 18)]);
        // Blocks that are left over have a scale of their own.
        assert_eq!(KvType::Q8_0.bytes(80, 64), 64 * (80 + 3 * 2));
        // Quantised elements have room in whole words, and so have pairs.
        assert_eq!(KvType::Q4_0.bytes(20, 64), 64 * (12 + 2));
        assert_eq!([KvType::F16, KvType::BF16].map(|kv| kv.bytes(5, 64)), [64 * 10, 64 * 12]);
        assert_eq!(KvType::Q4_0.bytes(usize::MAX, 64), usize::MAX);
    }

    #[test]
    fn latent_vectors_are_kept_as_precisely_as_asked_for() {
        for (keys, values, both) in [
            (KvType::Q4_0, KvType::Q8_0, KvType::Q8_0),
            (KvType::F32, KvType::F16, KvType::F32),
            (KvType::F16, KvType::F16, KvType::F16),
            (KvType::BF16, KvType::F16, KvType::F16),
            (KvType::BF16, KvType::Q8_0, KvType::BF16),
        ] {
            assert_eq!(KvTypes { keys, values }.of_latent(), both.into());
        }
    }

    #[test]
    fn names_of_both() {
        let apart = KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 };
        assert_eq!(apart.to_string(), "q8_0 with values in q4_0");
        assert_eq!(KvTypes::from(KvType::F32).to_string(), "f32");
    }
}
