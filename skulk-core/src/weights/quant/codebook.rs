//! Which integers and scales are in blocks of ggml's codebooks? A few bits choose a group of numbers, others their signs.
//!
//! Also [`Tq10`], whose bytes hold five digits to the base of three each. Layouts are ggml's (`ggml-common.h`,
//! `dequantize_row_iq*`). A number is a small integer times the scale of its 16 elements.

use half::f16;

use super::grids;

/// A storage type with blocks of 256 elements.
pub(crate) trait Codebook: 'static {
    /// A block: so many bytes.
    type Block: 'static;
    /// Halves of 32 elements have scales of their own.
    const HALVES: bool;
    /// The integers of the `j`th 32 elements.
    fn integers(block: &Self::Block, j: usize) -> [i8; 32];
    /// The scales of all 16 elements each.
    fn scales(block: &Self::Block) -> [f32; 16];
}

/// A block's numbers.
pub(super) fn numbers<C: Codebook>(block: &C::Block, out: &mut [f32; 256]) {
    let scales = C::scales(block);
    for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let integers = C::integers(block, j);
        for (i, (out, x)) in out.iter_mut().zip(integers).enumerate() {
            *out = scales[2 * j + i / 16] * f32::from(x);
        }
    }
}

/// Groups of eight, a byte of each, from codes of two bits.
const fn eights<const N: usize>(codes: &[u16; N], list: [i8; 3]) -> [u64; N] {
    let mut groups = [0; N];
    let mut at = 0;
    while at < N {
        let mut i = 0;
        while i < 8 {
            groups[at] |= (list[(codes[at] >> (2 * i) & 3) as usize] as u8 as u64) << (8 * i);
            i += 1;
        }
        at += 1;
    }
    groups
}

/// Groups of four, from codes of three bits.
const fn fours<const N: usize>(codes: &[u16; N], list: [u8; 8]) -> [u32; N] {
    let mut groups = [0; N];
    let mut at = 0;
    while at < N {
        let mut i = 0;
        while i < 4 {
            groups[at] |= (list[(codes[at] >> (3 * i) & 7) as usize] as u32) << (8 * i);
            i += 1;
        }
        at += 1;
    }
    groups
}

const TWO_BITS: [i8; 3] = [8, 25, 43];
static IQ2_XXS: [u64; 256] = eights(&grids::IQ2_XXS, TWO_BITS);
static IQ2_XS: [u64; 512] = eights(&grids::IQ2_XS, TWO_BITS);
static IQ2_S: [u64; 1024] = eights(&grids::IQ2_S, TWO_BITS);
static IQ3_XXS: [u32; 256] = fours(&grids::IQ3_XXS, [4, 12, 20, 28, 36, 44, 52, 62]);
static IQ3_S: [u32; 512] = fours(&grids::IQ3_S, [1, 3, 5, 7, 9, 11, 13, 15]);
/// Eight times -1, 0 or 1.
static IQ1: [u64; 2048] = eights(&grids::IQ1, [-8, 0, 8]);

/// A byte of ones for each bit that is set.
static SPREAD: [u64; 256] = {
    let mut spread = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut i = 0;
        while i < 8 {
            spread[at] |= if at >> i & 1 == 1 { 0xff << (8 * i) } else { 0 };
            i += 1;
        }
        at += 1;
    }
    spread
};

/// Eight numbers, those negative whose bit is set; none is zero.
fn signed(numbers: u64, signs: u8) -> u64 {
    let negative = SPREAD[usize::from(signs)];
    (numbers ^ negative) + (negative & 0x0101_0101_0101_0101)
}

/// Seven signs of eight: the last makes their number even.
fn eight_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Four groups of eight in their order.
fn in_order(groups: impl Fn(usize) -> u64) -> [i8; 32] {
    let mut integers = [0; 32];
    for l in 0..4 {
        let eight = groups(l).to_le_bytes();
        for i in 0..8 {
            integers[8 * l + i] = eight[i] as i8;
        }
    }
    integers
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

fn short(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// `d · (2s + 1)`, of the `s` of each half.
fn odd(d: f32, s: impl Fn(usize) -> u8) -> [f32; 16] {
    let mut scales = [0.0; 16];
    for (at, scale) in scales.iter_mut().enumerate() {
        *scale = d * f32::from(2 * s(at) + 1);
    }
    scales
}

/// A nibble of bytes from a place on, the lower half of a byte first.
fn nibble(block: &[u8], from: usize, at: usize) -> u8 {
    block[from + at / 2] >> (at % 2 * 4) & 15
}

macro_rules! codebooks {
    ($(
        $(#[$doc:meta])* $name:ident: $bytes:literal bytes, halves = $halves:literal;
        integers($block:ident, $j:ident) $integers:expr;
        scales $scales:expr;
    )*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl Codebook for $name {
            type Block = [u8; $bytes];
            const HALVES: bool = $halves;
            fn integers($block: &Self::Block, $j: usize) -> [i8; 32] {
                $integers
            }
            fn scales($block: &Self::Block) -> [f32; 16] {
                $scales
            }
        }
    )*};
}

codebooks! {
    /// Scale; for every 32 elements four groups, and in a word their signs and the scale's 4 bits.
    Iq2Xxs: 66 bytes, halves = false;
    integers(b, j) in_order(|l| {
        let signs = eight_signs(word(b, 6 + 8 * j) >> (7 * l));
        signed(IQ2_XXS[usize::from(b[2 + 8 * j + l])], signs)
    });
    scales odd(half(b, 0) * 0.125, |at| b[9 + at / 2 * 8] >> 4);

    /// Scale; groups with their signs; scales of 4 bits.
    Iq2Xs: 74 bytes, halves = true;
    integers(b, j) in_order(|l| {
        let code = short(b, 2 + 8 * j + 2 * l);
        signed(IQ2_XS[usize::from(code & 511)], eight_signs(u32::from(code >> 9)))
    });
    scales odd(half(b, 0) * 0.125, |at| nibble(b, 66, at));

    /// Scale; the groups' lower bits; signs; their upper bits; scales of 4 bits.
    Iq2S: 82 bytes, halves = true;
    integers(b, j) in_order(|l| {
        let code = usize::from(b[2 + 4 * j + l]) | usize::from(b[66 + j] >> (2 * l) & 3) << 8;
        signed(IQ2_S[code], b[34 + 4 * j + l])
    });
    scales odd(half(b, 0) * 0.125, |at| nibble(b, 74, at));

    /// Scale; groups of four; words of signs and scales as of [`Iq2Xxs`].
    Iq3Xxs: 98 bytes, halves = false;
    integers(b, j) in_order(|l| {
        let group = |i: usize| u64::from(IQ3_XXS[usize::from(b[2 + 8 * j + 2 * l + i])]);
        signed(group(0) | group(1) << 32, eight_signs(word(b, 66 + 4 * j) >> (7 * l)))
    });
    scales odd(half(b, 0) * 0.25, |at| b[69 + at / 2 * 4] >> 4);

    /// Scale; groups of four; their ninth bits; signs; scales of 4 bits.
    Iq3S: 110 bytes, halves = false;
    integers(b, j) in_order(|l| {
        let group = |i: usize| {
            let i = 2 * l + i;
            u64::from(IQ3_S[usize::from(b[2 + 8 * j + i]) | usize::from(b[66 + j] >> i & 1) << 8])
        };
        signed(group(0) | group(1) << 32, b[74 + 4 * j + l])
    });
    scales odd(half(b, 0), |at| nibble(b, 106, at / 2));

    /// Scale; the groups' lower bits; for every 32 elements their upper ones, a scale of 3 bits and which eighth is added to
    /// all.
    Iq1S: 50 bytes, halves = false;
    integers(b, j) {
        let high = short(b, 34 + 2 * j);
        let eighth = if high & 0x8000 == 0 { 1 } else { -1 };
        let mut integers =
            in_order(|l| IQ1[usize::from(b[2 + 4 * j + l]) | usize::from(high >> (3 * l) & 7) << 8]);
        for x in &mut integers {
            *x += eighth;
        }
        integers
    };
    scales odd(half(b, 0) * 0.125, |at| b[35 + at / 2 * 2] >> 4 & 7);

    /// The groups' lower bits; of each the upper ones, and which eighth is added; scales of 3 bits, in whose upper bits is
    /// their scale.
    Iq1M: 56 bytes, halves = true;
    integers(b, j) {
        let high = |l: usize| nibble(b, 32, 4 * j + l);
        let mut integers = in_order(|l| IQ1[usize::from(b[4 * j + l]) | usize::from(high(l) & 7) << 8]);
        for (i, x) in integers.iter_mut().enumerate() {
            *x += if high(i / 8) & 8 == 0 { 1 } else { -1 };
        }
        integers
    };
    scales {
        let upper = |at: usize| short(b, 48 + 2 * at) >> 12 << (4 * at);
        let d = f16::from_bits(upper(0) | upper(1) | upper(2) | upper(3)).to_f32();
        odd(d * 0.125, |at| (short(b, 48 + at / 4 * 2) >> (3 * (at % 4)) & 7) as u8)
    };

    /// Bytes of five digits, or at last four, -1 to 1: 32 bytes with elements that are 32 apart, 16 that are 16 apart, 4 that
    /// are 4 apart; scale.
    Tq10: 54 bytes, halves = false;
    integers(b, j) {
        let mut integers = [0; 32];
        for (i, x) in integers.iter_mut().enumerate() {
            let (from, apart, at) = match 32 * j + i {
                at @ 0..160 => (0, 32, at),
                at @ 160..240 => (32, 16, at - 160),
                at => (48, 4, at - 240),
            };
            let power = [1u8, 3, 9, 27, 81][at / apart];
            let digit = (u16::from(b[from + at % apart].wrapping_mul(power)) * 3) >> 8;
            *x = digit as i8 - 1;
        }
        integers
    };
    scales [half(b, 52); 16];
}
