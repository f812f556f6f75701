//! How are a tensor's elements stored? Plain floats, the GGML block quantisations, the integers of MLX, and small floats.

use std::fmt;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $block:literal, $bytes:literal;)*) => {
        /// A storage type. Block types hold [`block_len`](Self::block_len) elements in
        /// [`block_bytes`](Self::block_bytes) bytes; rows are whole numbers of blocks.
        ///
        /// Layouts: `ggml-common.h` of llama.cpp, but for [`Q6_K_Linear`](Self::Q6_K_Linear), [`FP4`](Self::FP4),
        /// [`NVFP4`](Self::NVFP4), [`FP8`](Self::FP8) and the affine types. The last four are elements only: scales are a
        /// tensor beside them ([`Region::scales`](crate::Region::scales)), one for each group of elements; so are biases of
        /// affine types.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[allow(non_camel_case_types)]
        pub enum DType { $($(#[$doc])* $name,)* }

        impl DType {
            /// Every storage type.
            pub const ALL: &'static [DType] = &[$(DType::$name,)*];

            /// Elements a block holds; 1 for plain types.
            pub const fn block_len(self) -> usize {
                match self { $(DType::$name => $block,)* }
            }

            /// Bytes a block takes.
            pub const fn block_bytes(self) -> usize {
                match self { $(DType::$name => $bytes,)* }
            }

            /// The usual spelling, e.g. `Q4_K`.
            pub const fn label(self) -> &'static str {
                match self { $(DType::$name => $label,)* }
            }
        }
    };
}

dtypes! {
    /// IEEE 754 binary32.
    F32 = "F32", 1, 4;
    /// IEEE 754 binary16.
    F16 = "F16", 1, 2;
    /// bfloat16.
    BF16 = "BF16", 1, 2;
    /// 4-bit, one scale a block.
    Q4_0 = "Q4_0", 32, 18;
    /// 4-bit, scale and minimum a block.
    Q4_1 = "Q4_1", 32, 20;
    /// 5-bit, one scale a block.
    Q5_0 = "Q5_0", 32, 22;
    /// 5-bit, scale and minimum a block.
    Q5_1 = "Q5_1", 32, 24;
    /// 8-bit, one scale a block.
    Q8_0 = "Q8_0", 32, 34;
    /// 2-bit K-quant.
    Q2_K = "Q2_K", 256, 84;
    /// 3-bit K-quant.
    Q3_K = "Q3_K", 256, 110;
    /// 4-bit K-quant.
    Q4_K = "Q4_K", 256, 144;
    /// 5-bit K-quant.
    Q5_K = "Q5_K", 256, 176;
    /// 6-bit K-quant.
    Q6_K = "Q6_K", 256, 210;
    /// 6-bit K-quant with its bits in the order of the elements, as LARQL stores it.
    Q6_K_Linear = "Q6_K_Linear", 256, 210;
    /// 8-bit K-quant: the activation format of the K-quants, rarely a weight.
    Q8_K = "Q8_K", 256, 292;
    /// 2-bit integers of MLX.
    Affine2 = "Affine2", 32, 8;
    /// 3-bit integers of MLX.
    Affine3 = "Affine3", 32, 12;
    /// 4-bit integers of MLX.
    Affine4 = "Affine4", 32, 16;
    /// 5-bit integers of MLX.
    Affine5 = "Affine5", 32, 20;
    /// 6-bit integers of MLX.
    Affine6 = "Affine6", 32, 24;
    /// 8-bit integers of MLX.
    Affine8 = "Affine8", 32, 32;
    /// 4-bit floats (E2M1 of the OCP's microscaling formats), the lower half of a byte first.
    FP4 = "FP4", 32, 16;
    /// The same, of which 16 share a scale that is an 8-bit float.
    NVFP4 = "NVFP4", 32, 16;
    /// 8-bit floats (E4M3 of the OCP, without infinities).
    FP8 = "FP8", 1, 1;
    /// 4-bit floats, a power of two a block.
    MXFP4 = "MXFP4", 32, 17;
    /// 4-bit numbers of a table that is not even, one scale a block.
    IQ4_NL = "IQ4_NL", 32, 18;
    /// The same with eight scales of 6 bits.
    IQ4_XS = "IQ4_XS", 256, 136;
    /// -1, 0 or 1 in 2 bits, one scale.
    TQ2_0 = "TQ2_0", 256, 66;
    /// The same in bytes of five.
    TQ1_0 = "TQ1_0", 256, 54;
    /// Groups of eight from a codebook with an eighth more or less; eight scales of 3 bits.
    IQ1_S = "IQ1_S", 256, 50;
    /// The same with sixteen scales.
    IQ1_M = "IQ1_M", 256, 56;
    /// Signed groups of eight from a codebook of 256; eight scales of 4 bits.
    IQ2_XXS = "IQ2_XXS", 256, 66;
    /// The same, of 512 and with sixteen scales.
    IQ2_XS = "IQ2_XS", 256, 74;
    /// The same, of 1024.
    IQ2_S = "IQ2_S", 256, 82;
    /// Signed groups of four from a codebook of 256; eight scales of 4 bits.
    IQ3_XXS = "IQ3_XXS", 256, 98;
    /// The same, of 512.
    IQ3_S = "IQ3_S", 256, 110;
    /// Powers of two (E8M0): the scales of small floats, never a weight.
    E8M0 = "E8M0", 1, 1;
    /// 8-bit floats: the scales of smaller ones, never a weight.
    E4M3 = "E4M3", 1, 1;
}

impl DType {
    /// Whether elements are stored in quantised blocks, or with scales beside them.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1 || self.has_scales_beside()
    }

    /// The integers of MLX with so many bits.
    pub(crate) fn affine(bits: usize) -> Option<Self> {
        Some(match bits {
            2 => Self::Affine2,
            3 => Self::Affine3,
            4 => Self::Affine4,
            5 => Self::Affine5,
            6 => Self::Affine6,
            8 => Self::Affine8,
            _ => return None,
        })
    }

    /// Whether elements are integers whose scales and biases lie beside them.
    pub const fn is_affine(self) -> bool {
        matches!(
            self,
            Self::Affine2 | Self::Affine3 | Self::Affine4 | Self::Affine5 | Self::Affine6 | Self::Affine8
        )
    }

    /// Whether elements have their scales in a tensor beside them.
    pub const fn has_scales_beside(self) -> bool {
        self.is_affine() || matches!(self, Self::FP4 | Self::NVFP4 | Self::FP8)
    }

    /// Whether the engine `cpu` alone has products with it where it is stored.
    pub(crate) const fn is_for_cpus(self) -> bool {
        self.has_scales_beside()
            || self.is_of_codebook()
            || matches!(self, Self::MXFP4 | Self::IQ4_NL | Self::IQ4_XS | Self::TQ2_0)
    }

    /// Whether elements are looked up in groups, or are digits of bytes.
    pub(crate) const fn is_of_codebook(self) -> bool {
        matches!(
            self,
            Self::IQ1_S
                | Self::IQ1_M
                | Self::IQ2_XXS
                | Self::IQ2_XS
                | Self::IQ2_S
                | Self::IQ3_XXS
                | Self::IQ3_S
                | Self::TQ1_0
        )
    }

    /// Whether it stores weights, rather than what is beside them.
    pub const fn is_weight(self) -> bool {
        !matches!(self, Self::E8M0 | Self::E4M3)
    }

    /// Bytes that a row of `len` elements takes; `None` when `len` is no whole number of blocks
    /// or the size overflows.
    pub const fn row_bytes(self, len: usize) -> Option<usize> {
        if !len.is_multiple_of(self.block_len()) {
            return None;
        }
        (len / self.block_len()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
