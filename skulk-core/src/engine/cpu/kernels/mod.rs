//! Which machine code computes? Kernels for each instruction set, chosen at run time.
//!
//! Kernels are written once, generic over the vector operations of [`simd::Simd`] and, for products,
//! over the storage types of [`format::Format`]. This module compiles them for each instruction set and
//! offers them behind safe functions. It is the only place with vector instructions.
//!
//! All instruction sets give the same bits, but for the smallest numbers there are (see
//! [`simd::Simd::dot2`]), so results do not depend on the machine.
#![allow(unsafe_code)]

mod affine;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod cells;
mod codebook;
mod compact;
mod dense;
mod direct;
mod first_digit;
mod format;
mod gather;
mod kept;
mod latent;
mod linear;
mod matrix;
mod nearest;
#[cfg(target_arch = "aarch64")]
mod neon;
mod packed;
mod partition;
mod product;
mod recurrence;
mod rounding;
mod rows;
mod scalar;
mod scaled;
mod scratch;
mod screen;
mod simd;
mod small;
mod stored;
#[cfg(test)]
mod tests;
mod top;

use std::ops::Range;

use dense::{BF16, Dense, F16, F32, Pairs};
use format::{Format, Layout};
use packed::Gemm;
use product::Product;
#[cfg(test)]
use simd::LANES;

pub(crate) use attention::{PAGES, PARTITION, Softmax, WIDTH};
pub(crate) use cells::{Cell, Cells};
pub(crate) use gather::TILE;
pub(crate) use linear::Products;
pub(crate) use matrix::Matrix;
pub(crate) use nearest::{GROUP, Group, Hit, Tiles, WIDEST};
pub(crate) use partition::{Partition, PartitionScratch};
pub(crate) use recurrence::{Place, Recurrence};
pub(crate) use scratch::{Form, Part, ProductScratch};
pub(crate) use screen::Screen;
pub(crate) use simd::BLOCK;
pub(crate) use stored::{BYTES_BEHIND, Stored};

use crate::arch::{Activation, RopeLayout};
use crate::weights::DType;

/// A norm's weights and epsilon.
type Norm<'a> = (&'a [f32], f32);
type Direct = unsafe fn(&Product, Range<usize>);
type Multiply = unsafe fn(&Dense, Range<usize>);
type Round = unsafe fn(*const f32, usize, rounding::Activations, usize);
type Pair = unsafe fn(&[i8], &mut [i8]);
type Compress = unsafe fn(&[f32], usize, &mut [f32], *mut u8) -> bool;
type Convolve = unsafe fn(&[&[f32]], &[f32], usize, Option<&[f32]>, &mut [f32]);
type Rotate = unsafe fn(&mut [f32], Option<Norm<'_>>, RopeLayout, &[f32], &[f32]);

/// One instruction set's kernels.
pub(crate) struct Kernels {
    /// Its name, e.g. `avx512`.
    pub(crate) name: &'static str,
    available: fn() -> bool,
    /// Of a storage type, whether exact, and whether a line of the cache is read of each row at a time.
    quantised: fn(DType, bool, bool) -> Option<Quantised>,
    dense: fn(DType) -> Option<Multiply>,
    /// Of 8-bit floats.
    unpack: scaled::Unpack,
    /// Of bfloat16 numbers by activations that are such, too.
    pairs: Multiply,
    round: [Round; 2],
    /// Of rounded rows, for weights whose columns are paired.
    pair: [Pair; 2],
    round_bf16: unsafe fn(&[f32], &mut [u32]),
    /// Words that a row of so many elements takes.
    bf16_words: fn(usize) -> usize,
    rms_norm: unsafe fn(&[f32], &[f32], f32, &mut [f32]),
    add_norm: unsafe fn(&mut [f32], &[f32], &[f32], f32),
    add: unsafe fn(&mut [f32], &[f32]),
    add_scaled: unsafe fn(&mut [f32], f32, &[f32]),
    softcap: unsafe fn(&mut [f32], f32),
    gated: unsafe fn(Activation, &mut [f32], &[f32]),
    norm_rope: Rotate,
    recur: unsafe fn(&recurrence::Tile),
    streamed: unsafe fn(),
    convolve: Convolve,
    dampen: unsafe fn(&mut [f32], &[f32]),
    decay: unsafe fn(&mut [f32], &[f32], f32),
    unit: unsafe fn(&mut [f32], f32),
    attention: attention::Functions,
    compress: Compress,
    coarse: unsafe fn(&compact::Coarse, Range<usize>),
    nearest: nearest::Functions,
    prefetch: unsafe fn(*const u8, usize),
    #[cfg(test)]
    tested: tests::Tested,
}

/// The kernels of one storage type.
#[derive(Clone, Copy)]
struct Quantised {
    /// Of one activation row.
    one: Direct,
    /// Of a few, by their number; the first one, and where there is none for a number, of any.
    few: &'static [Direct; direct::OWN + 1],
    /// It takes activations in pairs.
    paired: bool,
    /// It takes woven rows, too.
    woven: bool,
    /// Rows from which on tiles are packed.
    many: usize,
    gemm: Gemm,
}

impl Quantised {
    /// What multiplies so few rows.
    fn few(&self, rows: usize) -> Direct {
        self.few.get(rows).copied().unwrap_or(self.few[0])
    }

    /// In which form it takes so many rows.
    fn form(&self, rows: usize) -> Form {
        match self {
            _ if self.paired => Form::Paired,
            _ if rows >= self.many => Form::Grouped(self.gemm.grouped),
            _ => Form::Ordered,
        }
    }
}

/// The kernel of a type of floats.
#[derive(Clone, Copy)]
struct Floats {
    multiply: Multiply,
    /// It takes activations in bfloat16.
    bf16: bool,
    /// What many rows are multiplied by instead, where tiles are unpacked for them.
    many: Option<(scaled::Unpack, Multiply)>,
}

/// What `$of!` makes of the [`Format`] that reads rows of a type, in lines of the cache or not; `None` for types of floats.
macro_rules! by_format {
    ($of:ident, $dtype:expr, $lines:expr) => {{
        let lines: bool = $lines;
        Some(match $dtype {
            DType::Q4_0 => $of!(format::Q4_0),
            DType::Q4_1 => $of!(format::Q4_1),
            DType::Q5_0 => $of!(format::Q5_0),
            DType::Q5_1 => $of!(format::Q5_1),
            DType::Q8_0 => $of!(format::Q8_0),
            DType::Q2_K => $of!(format::Q2K),
            DType::Q3_K => $of!(format::Q3K),
            DType::Q4_K => $of!(format::Q4K),
            DType::Q5_K => $of!(format::Q5K),
            DType::Q6_K => $of!(format::Q6K),
            DType::Q6_K_Linear => $of!(format::Q6Linear),
            DType::Q8_K => $of!(format::Q8K),
            DType::Affine2 => $of!(affine::Affine2),
            DType::Affine3 => $of!(affine::Affine3),
            DType::Affine4 if lines => $of!(affine::Affine4Lines),
            DType::Affine4 => $of!(affine::Affine4),
            DType::Affine5 => $of!(affine::Affine5),
            DType::Affine6 => $of!(affine::Affine6),
            DType::Affine8 if lines => $of!(affine::Affine8Lines),
            DType::Affine8 => $of!(affine::Affine8),
            DType::MXFP4 => $of!(small::Mxfp4),
            DType::IQ4_NL => $of!(small::Iq4Nl),
            DType::IQ4_XS => $of!(small::Iq4Xs),
            DType::TQ2_0 => $of!(format::Tq2),
            DType::TQ1_0 => $of!(codebook::Ternary),
            DType::IQ1_S => $of!(codebook::OneS),
            DType::IQ1_M => $of!(codebook::OneM),
            DType::IQ2_XXS => $of!(codebook::TwoXxs),
            DType::IQ2_XS => $of!(codebook::TwoXs),
            DType::IQ2_S => $of!(codebook::TwoS),
            DType::IQ3_XXS => $of!(codebook::ThreeXxs),
            DType::IQ3_S => $of!(codebook::ThreeS),
            DType::FP4 if lines => $of!(small::Fp4Lines),
            DType::FP4 => $of!(small::Fp4),
            DType::NVFP4 if lines => $of!(small::Nvfp4Lines),
            DType::NVFP4 => $of!(small::Nvfp4),
            DType::F32 | DType::F16 | DType::BF16 | DType::FP8 | DType::E8M0 | DType::E4M3 => return None,
        })
    }};
}
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use by_format;

/// Compiles kernels for an instruction set, by the features of processors that it needs. One that extends another
/// names it, and what it has of its own.
macro_rules! instruction_set {
    ($name:ident, $simd:ty) => {
        instruction_set!(@compile $name, $simd, || true, inline);
    };
    (
        $name:ident, $simd:ty, $detect:ident($($feature:tt)+)
        $(; $like:ident but $($field:ident: $value:expr),*)?
    ) => {
        instruction_set!(
            @compile $name,
            $simd,
            || ![$(std::arch::$detect!($feature)),+].contains(&false),
            target_feature($(enable = $feature),+)
            $(; $like but $($field: $value),*)?
        );
    };
    (
        @compile $name:ident, $simd:ty, $available:expr, $feature:meta
        $(; $like:ident but $($field:ident: $value:expr),*)?
    ) => {
        mod $name {
            #![allow(unsafe_op_in_unsafe_fn, reason = "thin shells around kernels, which state their contracts")]
            #![allow(dead_code, reason = "sets that extend another need only some of them")]
            use super::*;
            use simd::{Simd, operations};

            type S = $simd;

            #[$feature]
            unsafe fn direct<F: Format, const EXACT: bool, const ROWS: usize>(product: &Product, tiles: Range<usize>) {
                direct::multiply::<S, F, EXACT, { S::TOGETHER }, ROWS>(product, tiles);
            }
            #[$feature]
            unsafe fn pack_tile<F: Format>(product: &Product, tile: usize, to: *mut i32) {
                packed::pack::<S, F>(product, tile, to);
            }
            #[$feature]
            unsafe fn multiply_packed<L: Layout, const EXACT: bool, const N: usize>(
                product: &Product,
                tile: usize,
                packed: *const i32,
                row: usize,
                shift: i32,
            ) -> usize {
                packed::multiply::<S, L, EXACT, N>(product, tile, packed, row, shift)
            }
            #[$feature]
            unsafe fn multiply<W: dense::Factors>(product: &Dense, tiles: Range<usize>) {
                dense::multiply::<S, W>(product, tiles);
            }
            #[$feature]
            unsafe fn multiply_scaled(product: &Dense, tiles: Range<usize>) {
                scaled::multiply::<S>(product, tiles);
            }
            #[$feature]
            unsafe fn unpack(product: &Dense, tile: usize, to: *mut f32) {
                scaled::unpack::<S>(product, tile, to);
            }
            #[$feature]
            unsafe fn round<const EXACT: bool>(x: *const f32, blocks: usize, to: rounding::Activations, step: usize) {
                rounding::round::<S, EXACT>(x, blocks, to, step);
            }
            #[$feature]
            unsafe fn paired<const EXACT: bool>(x: &[i8], to: &mut [i8]) {
                rounding::paired::<S, EXACT>(x, to);
            }
            operations! {
                $feature:
                round_bf16(x: &[f32], to: &mut [u32]) = rounding::round_bf16::<S>(x, to);
                rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) =
                    rows::rms_norm::<S>(x, weight, eps, y);
                add_norm(x: &mut [f32], y: &[f32], weight: &[f32], eps: f32) =
                    rows::add_norm::<S>(x, y, weight, eps);
                add(x: &mut [f32], y: &[f32]) = rows::add::<S>(x, y);
                add_scaled(x: &mut [f32], factor: f32, y: &[f32]) = rows::add_scaled::<S>(x, factor, y);
                softcap(x: &mut [f32], limit: f32) = rows::softcap::<S>(x, limit);
                gated(activation: Activation, gate: &mut [f32], up: &[f32]) =
                    rows::gated::<S>(activation, gate, up);
                norm_rope(head: &mut [f32], norm: Option<Norm<'_>>, layout: RopeLayout, cos: &[f32], sin: &[f32]) =
                    rows::norm_rope::<S>(head, norm, layout, cos, sin);
                recur(tile: &recurrence::Tile) = recurrence::recur::<S>(tile);
                streamed() = S::streamed();
                convolve(taps: &[&[f32]], weights: &[f32], distance: usize, bias: Option<&[f32]>, out: &mut [f32]) =
                    recurrence::convolve::<S>(taps, weights, distance, bias, out);
                dampen(x: &mut [f32], gate: &[f32]) = recurrence::dampen::<S>(x, gate);
                decay(left: &mut [f32], biases: &[f32], decay: f32) = recurrence::decay::<S>(left, biases, decay);
                unit(head: &mut [f32], length: f32) = recurrence::unit::<S>(head, length);
                compress(row: &[f32], lane: usize, distances: &mut [f32], tile: *mut u8) -> bool =
                    compact::compress::<S>(row, lane, distances, tile);
                coarse(product: &compact::Coarse, tiles: Range<usize>) = compact::multiply::<S, { S::TOGETHER }>(product, tiles);
                round_row(x: &[f32], to: &mut [i8]) -> nearest::Rounded = nearest::round::<S>(x, to);
                pack(rows: *const i8, blocks: usize, to: *mut i32) = nearest::pack::<S>(rows, blocks, to);
                pass(work: &nearest::Pass, tiles: Range<usize>, found: &mut Vec<Hit>) =
                    nearest::pass::<S, { S::ROWS }, { S::TAIL }>(work, tiles, found);
            }
            #[$feature]
            unsafe fn dot<E: dense::Float>(a: *const u8, b: &[f32]) -> f32 {
                nearest::dot::<S, E>(a, b)
            }
            #[$feature]
            unsafe fn prefetch(from: *const u8, bytes: usize) {
                for at in (0..bytes).step_by(64) {
                    S::prefetch(from.wrapping_add(at));
                }
            }

            attention::instantiate!(S, #[$feature]);

            fn gemm<F: Format, const EXACT: bool>() -> Gemm {
                let multiply = const {
                    &[
                        multiply_packed::<F::Layout, EXACT, { S::GROUP }> as packed::Multiply,
                        multiply_packed::<F::Layout, EXACT, { S::TAIL }>,
                        multiply_packed::<F::Layout, EXACT, 1>,
                    ]
                };
                let shift = product::shift::<S, F, true>();
                let packed_len = packed::packed_len::<F::Layout>;
                Gemm { pack: pack_tile::<F>, multiply, grouped: S::GROUP, shift, packed_len }
            }

            /// Functions of their own: together they would need megabytes of the stack where a build is not optimised.
            const fn few<F: Format, const EXACT: bool>() -> [Direct; direct::OWN + 1] {
                let mut few = [direct::<F, EXACT, 0> as Direct; direct::OWN + 1];
                if S::FEW {
                    (few[2], few[3]) = (direct::<F, EXACT, 2>, direct::<F, EXACT, 3>);
                    few[4] = direct::<F, EXACT, 4>;
                    // Few ask for two digits: more of their rows go by fours, as each kernel takes time to compile.
                    if !EXACT {
                        (few[5], few[6]) = (direct::<F, EXACT, 5>, direct::<F, EXACT, 6>);
                        (few[7], few[8]) = (direct::<F, EXACT, 7>, direct::<F, EXACT, 8>);
                    }
                }
                few
            }

            fn of<F: Format, const EXACT: bool>() -> Quantised {
                Quantised {
                    one: if S::ALONE { direct::<F, EXACT, 1> } else { direct::<F, EXACT, 0> },
                    few: const { &few::<F, EXACT>() },
                    paired: F::PAIRED,
                    woven: F::WOVEN,
                    many: S::MANY,
                    gemm: gemm::<F, EXACT>(),
                }
            }

            /// For many rows alone.
            pub(super) fn many(dtype: DType, exact: bool, lines: bool) -> Option<Gemm> {
                macro_rules! either {
                    ($f:ty) => {
                        if exact { gemm::<$f, true>() } else { gemm::<$f, false>() }
                    };
                }
                by_format!(either, dtype, lines)
            }

            fn quantised(dtype: DType, exact: bool, lines: bool) -> Option<Quantised> {
                macro_rules! either {
                    ($f:ty) => {
                        if exact { of::<$f, true>() } else { of::<$f, false>() }
                    };
                }
                by_format!(either, dtype, lines)
            }

            fn dense(dtype: DType) -> Option<Multiply> {
                Some(match dtype {
                    DType::F32 => multiply::<F32>,
                    DType::F16 => multiply::<F16>,
                    DType::BF16 => multiply::<BF16>,
                    DType::FP8 => multiply_scaled,
                    _ => return None,
                })
            }

            fn bf16_words(n: usize) -> usize {
                rounding::bf16_words::<S>(n)
            }

            #[cfg(test)]
            operations! {
                $feature:
                exp(x: &mut [f32; LANES]) = S::store(x.as_mut_ptr(), rows::exp::<S>(S::load(x.as_ptr())));
                operations(input: &tests::Operands) -> Vec<u32> = tests::operations::<S>(input);
            }

            const ROUND: [Round; 2] = [round::<false>, round::<true>];
            const PAIR: [Pair; 2] = [paired::<false>, paired::<true>];
            const NEAREST: nearest::Functions = nearest::Functions {
                round: round_row,
                pack,
                pass,
                dot: [dot::<F32>, dot::<F16>, dot::<BF16>],
            };
            #[cfg(test)]
            const TESTED: tests::Tested = tests::Tested { exp, operations, words: S::WORDS };

            pub(super) const SET: Kernels =
                instruction_set!(@set $name, $available $(, $like, $($field: $value),*)?);
            pub(super) static KERNELS: Kernels = SET;
        }
    };
    (@set $name:ident, $available:expr) => {
        Kernels {
            name: stringify!($name),
            available: $available,
            quantised,
            dense,
            unpack,
            pairs: multiply::<Pairs>,
            round: ROUND,
            pair: PAIR,
            round_bf16,
            bf16_words,
            rms_norm,
            add_norm,
            add,
            add_scaled,
            softcap,
            gated,
            norm_rope,
            recur,
            streamed,
            convolve,
            dampen,
            decay,
            unit,
            attention: ATTENTION,
            compress,
            coarse,
            nearest: NEAREST,
            prefetch,
            #[cfg(test)]
            tested: TESTED,
        }
    };
    (@set $name:ident, $available:expr, $like:ident, $($field:ident: $value:expr),*) => {
        Kernels {
            name: stringify!($name),
            available: $available,
            $($field: $value,)*
            #[cfg(test)]
            tested: TESTED,
            ..super::$like::SET
        }
    };
}

instruction_set!(portable, scalar::Scalar);
#[cfg(target_arch = "x86_64")]
instruction_set!(
    avx512_bf16,
    avx512::Avx512<true>,
    is_x86_feature_detected("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni" "avx512bf16" "avx2" "fma" "f16c");
    avx512_vnni but pairs: multiply::<Pairs>, round_bf16: round_bf16, bf16_words: bf16_words,
        attention: attention::Functions { pairs: PAIRED, ..super::avx512_vnni::SET.attention }
);
#[cfg(target_arch = "x86_64")]
instruction_set!(
    avx512_vnni,
    avx512::Avx512<false>,
    is_x86_feature_detected("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni" "avx2" "fma" "f16c")
);
#[cfg(target_arch = "x86_64")]
instruction_set!(
    avx2_vnni,
    avx2::Avx2<true>,
    is_x86_feature_detected("avx2" "fma" "f16c" "avxvnni");
    avx2_fma but quantised: quantised, round: ROUND, pair: PAIR, coarse: coarse, nearest: NEAREST
);
#[cfg(target_arch = "x86_64")]
instruction_set!(avx2_fma, avx2::Avx2<false>, is_x86_feature_detected("avx2" "fma" "f16c"));
#[cfg(target_arch = "aarch64")]
instruction_set!(
    neon_i8mm,
    neon::Neon<true, true>,
    is_aarch64_feature_detected("neon" "dotprod" "i8mm");
    neon_dot but quantised: super::by_matrices, nearest: NEAREST
);
#[cfg(target_arch = "aarch64")]
instruction_set!(
    neon_dot,
    neon::Neon<true, false>,
    is_aarch64_feature_detected("neon" "dotprod");
    neon_mul but quantised: quantised, coarse: coarse, nearest: NEAREST
);
#[cfg(target_arch = "aarch64")]
instruction_set!(neon_mul, neon::Neon<false, false>, is_aarch64_feature_detected("neon"));

/// Products of few rows are those without matrix products.
#[cfg(target_arch = "aarch64")]
fn by_matrices(dtype: DType, exact: bool, lines: bool) -> Option<Quantised> {
    let (gemm, few) =
        (neon_i8mm::many(dtype, exact, lines)?, (neon_dot::SET.quantised)(dtype, exact, lines)?);
    Some(Quantised { gemm, ..few })
}

/// Every instruction set this library is compiled for, best first.
static COMPILED: &[&Kernels] = &[
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    &amx::KERNELS,
    #[cfg(target_arch = "x86_64")]
    &avx512_bf16::KERNELS,
    #[cfg(target_arch = "x86_64")]
    &avx512_vnni::KERNELS,
    #[cfg(target_arch = "x86_64")]
    &avx2_vnni::KERNELS,
    #[cfg(target_arch = "x86_64")]
    &avx2_fma::KERNELS,
    #[cfg(target_arch = "aarch64")]
    &neon_i8mm::KERNELS,
    #[cfg(target_arch = "aarch64")]
    &neon_dot::KERNELS,
    #[cfg(target_arch = "aarch64")]
    &neon_mul::KERNELS,
    &portable::KERNELS,
];

impl Kernels {
    /// Those of the best instruction set that this machine has.
    pub(crate) fn detect() -> &'static Kernels {
        Self::all().next().unwrap_or(&portable::KERNELS)
    }

    /// Those of every instruction set that this machine has, best first.
    pub(crate) fn all() -> impl Iterator<Item = &'static Kernels> {
        COMPILED.iter().copied().filter(|kernels| (kernels.available)())
    }

    /// The kernel of a type of floats, with activations in bfloat16 where that is wanted and there is one.
    fn floats(&self, dtype: DType, bf16: bool) -> Option<Floats> {
        let multiply = (self.dense)(dtype)?;
        let bf16 = bf16 && dtype == DType::BF16;
        let many = (dtype == DType::FP8).then_some(self.unpack).zip((self.dense)(DType::F32));
        Some(Floats { multiply: if bf16 { self.pairs } else { multiply }, bf16, many })
    }

    /// `y = x / sqrt(mean(x²) + eps) · weight`.
    pub(crate) fn rms_norm(&self, x: &[f32], (weight, eps): Norm<'_>, y: &mut [f32]) {
        // SAFETY: the machine has the instructions, and slices check lengths; so below.
        unsafe { (self.rms_norm)(x, weight, eps, y) }
    }

    /// `x += norm(y)`.
    pub(crate) fn add_norm(&self, x: &mut [f32], y: &[f32], (weight, eps): Norm<'_>) {
        // SAFETY: as above.
        unsafe { (self.add_norm)(x, y, weight, eps) }
    }

    /// `x += y`.
    pub(crate) fn add(&self, x: &mut [f32], y: &[f32]) {
        // SAFETY: as above.
        unsafe { (self.add)(x, y) }
    }

    /// `x += factor · y`.
    pub(crate) fn add_scaled(&self, x: &mut [f32], factor: f32, y: &[f32]) {
        // SAFETY: as above.
        unsafe { (self.add_scaled)(x, factor, y) }
    }

    /// `x = cap · tanh(x / cap)`.
    pub(crate) fn softcap(&self, x: &mut [f32], cap: f32) {
        // SAFETY: as above.
        unsafe { (self.softcap)(x, cap) }
    }

    /// `gate = activation(gate) · up`.
    pub(crate) fn gated(&self, activation: Activation, gate: &mut [f32], up: &[f32]) {
        // SAFETY: as above.
        unsafe { (self.gated)(activation, gate, up) }
    }

    /// Asks for memory that will be read soon.
    pub(crate) fn prefetch(&self, bytes: &[u8]) {
        // SAFETY: the machine has the instructions.
        unsafe { (self.prefetch)(bytes.as_ptr(), bytes.len()) }
    }

    /// The same for numbers.
    pub(crate) fn prefetch_floats(&self, x: &[f32]) {
        // SAFETY: as above.
        unsafe { (self.prefetch)(x.as_ptr().cast(), size_of_val(x)) }
    }

    /// Norms a head where there is a norm, then rotates its first `2 · cos.len()` elements.
    pub(crate) fn norm_rope(
        &self,
        head: &mut [f32],
        norm: Option<Norm<'_>>,
        layout: RopeLayout,
        cos: &[f32],
        sin: &[f32],
    ) {
        // SAFETY: as above.
        unsafe { (self.norm_rope)(head, norm, layout, cos, sin) }
    }
}
