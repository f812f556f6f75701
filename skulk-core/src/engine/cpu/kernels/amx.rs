//! How do many activation rows multiply a packed tile where the processor has AMX? Sixteen at a time, each block at once.
//!
//! A packed block is a tile of AMX as it is, of 16 outputs, and so are a block's integers of 16 rows. Their product, 16
//! by 16 exact integers, goes through memory to vectors, which scale and add as [`packed`](super::packed) does: the
//! results have the same bits. While vectors work on a block, the next one's product is under way.
//!
//! Weights are packed as signed bytes. Everything else is as with AVX-512 and VNNI, products of bfloat16 numbers, too:
//! these processors take twice as long for their instruction as for two products of floats.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions state their contracts")]

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

use super::avx512::Avx512;
use super::format::{Format, Layout};
use super::packed::{self, Gemm, Multiply, packed_vectors};
use super::product::{self, Product};
use super::simd::{BASE, BLOCK, LANES, Simd};
use super::{Kernels, Quantised, affine, avx512_vnni, by_format, codebook, format, small};
use crate::weights::DType;

/// Vectors as the tiles take them: weights are signed.
type S = Avx512<false, true>;

pub(super) static KERNELS: Kernels = Kernels { name: "avx512_amx", available, quantised, ..avx512_vnni::SET };

/// Whether the processor has AMX for bytes, and the system lets this process use it.
fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| (avx512_vnni::SET.available)() && has_tiles() && permitted())
}

/// Leaf 7, which all processors with AVX-512 have, tells it in its bits 24, for tiles, and 25, for products of bytes.
fn has_tiles() -> bool {
    #[allow(unused_unsafe, reason = "older compilers ask for it")]
    // SAFETY: every processor of 64 bits has the instruction.
    let leaf = unsafe { __cpuid_count(7, 0) };
    leaf.edx >> 24 & 3 == 3
}

/// Asks the system for the registers, which it grants to the process as a whole. It does not where a thread's stack for
/// signals is too small to save them.
fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const TILES: libc::c_ulong = 18;
    // SAFETY: the call takes two numbers and writes nothing.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILES) == 0 }
}

/// Those of AVX-512 but for many rows.
fn quantised(dtype: DType, exact: bool, lines: bool) -> Option<Quantised> {
    fn gemm<F: Format, const EXACT: bool>() -> Gemm {
        Gemm {
            pack: pack::<F>,
            grouped: LANES,
            multiply: const { &[multiply::<F::Layout, EXACT> as Multiply] },
            shift: product::shift::<S, F, true>(),
            packed_len: packed::packed_len::<F::Layout>,
        }
    }
    macro_rules! either {
        ($f:ty) => {
            if exact { gemm::<$f, true>() } else { gemm::<$f, false>() }
        };
    }
    let gemm = by_format!(either, dtype, lines)?;
    Some(Quantised { gemm, ..(avx512_vnni::SET.quantised)(dtype, exact, lines)? })
}

/// [`packed::pack`] for this machine.
///
/// # Safety
/// As of that.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn pack<F: Format>(product: &Product, tile: usize, to: *mut i32) {
    packed::pack::<S, F>(product, tile, to);
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Shapes the tiles: 0 for the sums of so many activation rows, 1 for so many bytes of each of these, 2 for as many of 16
/// outputs.
///
/// # Safety
/// The machine has tiles. [`release`] is to follow.
unsafe fn shape(rows: usize, bytes: usize) {
    let mut shapes =
        Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    let line = (4 * LANES) as u16;
    shapes.row_bytes[..3].copy_from_slice(&[line, bytes as u16, line]);
    shapes.rows[..3].copy_from_slice(&[rows as u8, rows as u8, (bytes / 4) as u8]);
    asm!("ldtilecfg [{}]", in(reg) &shapes, options(nostack, preserves_flags, readonly));
}

/// Gives the tiles back, so that the system need not save them.
///
/// # Safety
/// The machine has tiles.
unsafe fn release() {
    asm!("tilerelease", options(nostack, preserves_flags, nomem));
}

/// Integer sums of a block: of 16 rows, 16 outputs each.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Sums([[i32; LANES]; LANES]);

/// `to = x · weights`: activation rows are `distance` bytes apart.
///
/// # Safety
/// Tiles have their shapes, and both operands all rows.
#[inline(always)]
unsafe fn dot(x: *const i8, distance: usize, weights: *const i32, to: &mut Sums) {
    asm!(
        "tilezero tmm0",
        "tileloadd tmm1, [{x} + {distance}*1]",
        "tileloadd tmm2, [{weights} + {line}*1]",
        "tdpbssd tmm0, tmm1, tmm2",
        "tilestored [{to} + {line}*1], tmm0",
        x = in(reg) x,
        distance = in(reg) distance,
        weights = in(reg) weights,
        line = in(reg) 4 * LANES,
        to = in(reg) to,
        out("tmm0") _,
        out("tmm1") _,
        out("tmm2") _,
        options(nostack, preserves_flags),
    );
}

/// Up to 16 rows by a packed tile.
struct Rows<'a> {
    product: &'a Product,
    packed: *const i32,
    shift: i32,
    /// The first, and how many.
    row: usize,
    rows: usize,
}

/// Parts of a block that have scales of their own.
const fn parts<L: Layout>() -> usize {
    if L::HALVES { 2 } else { 1 }
}

/// Sums of a block, by part and digit.
const fn sums_of<L: Layout, const EXACT: bool>() -> usize {
    parts::<L>() * if EXACT { 2 } else { 1 }
}

impl Rows<'_> {
    /// Number of one of their blocks among the grouped ones.
    #[inline(always)]
    fn at(&self, block: usize, n: usize) -> usize {
        self.row * self.product.x_blocks + block * self.rows + n
    }

    /// Begins with a block's integers.
    ///
    /// # Safety
    /// As of [`multiply`](multiply()), and tiles have their shapes.
    #[inline(always)]
    unsafe fn dot<L: Layout, const EXACT: bool>(&self, block: usize, to: &mut [Sums]) {
        let digits = if EXACT { 2 } else { 1 };
        let x = self.product.grouped.digits.add(self.at(block, 0) * digits * BLOCK);
        let packed = self.packed.add(block * packed_vectors::<L>() * LANES);
        for (i, to) in to.iter_mut().enumerate() {
            let (part, digit) = (i / digits, i % digits);
            let x = x.add(digit * BLOCK + part * BLOCK / 2);
            dot(x, digits * BLOCK, packed.add(part * 4 * LANES), to);
        }
    }

    /// Adds what a block contributes.
    ///
    /// # Safety
    /// As of [`multiply`](multiply()), and there are [`sums_of`] integers.
    #[inline(always)]
    unsafe fn add<L: Layout, const EXACT: bool, const ALL: bool>(
        &self,
        block: usize,
        integers: &[Sums],
        sums: &mut [<S as Simd>::F; LANES],
    ) {
        let x = &self.product.grouped;
        // Of rows that are not there the last one stands in.
        let at = |n: usize| if ALL { self.at(block, n) } else { self.at(block, n.min(self.rows - 1)) };
        let packed: *const f32 = self.packed.add(block * packed_vectors::<L>() * LANES).cast();
        // Behind the integers: scale and minimum of each part.
        let vector = |i: usize| S::load(packed.add((8 + i) * LANES));
        let (parts, step) = (const { parts::<L>() }, if L::MIN { 2 } else { 1 });
        for part in 0..parts {
            let scale = vector(part * step);
            for (n, sum) in sums.iter_mut().enumerate() {
                let digit = |i: usize| S::iload(integers[i].0[n].as_ptr());
                let mut total = digit(if EXACT { 2 * part } else { part });
                if EXACT {
                    let lower = digit(2 * part + 1);
                    total = S::iadd(S::imul(total, S::isplat(BASE)), lower);
                }
                if L::WIDE {
                    let of_block =
                        if L::HALVES { *x.half_sum.add(2 * at(n) + part) } else { *x.sum.add(at(n)) };
                    total = S::iadd(total, S::isplat(of_block.wrapping_mul(-self.shift)));
                }
                let d = S::splat(*x.scale.add(at(n)));
                *sum = S::fma(S::to_f32(total), S::mul(scale, d), *sum);
            }
        }
        for part in 0..if L::MIN { parts } else { 0 } {
            let min = vector(part * step + 1);
            for (n, sum) in sums.iter_mut().enumerate() {
                let of_block = if L::HALVES {
                    *x.scaled_half_sum.add(2 * at(n) + part)
                } else {
                    *x.scaled_sum.add(at(n))
                };
                *sum = S::fma(min, S::splat(of_block), *sum);
            }
        }
    }

    /// Block after block; `ALL`: there are 16 rows.
    ///
    /// # Safety
    /// As of [`multiply`](multiply()).
    #[inline(always)]
    unsafe fn multiply<L: Layout, const EXACT: bool, const ALL: bool>(
        &self,
        tile: usize,
        memory: &mut [Sums; 8],
    ) {
        let blocks = self.product.x_blocks;
        let mut sums = [S::zero(); LANES];
        // They lie side by side, as loads wait for stores a multiple of 4096 bytes away.
        let (mut next, rest) = memory.split_at_mut(const { sums_of::<L, EXACT>() });
        let mut own = &mut rest[..const { sums_of::<L, EXACT>() }];
        self.dot::<L, EXACT>(0, next);
        for block in 0..blocks {
            std::mem::swap(&mut own, &mut next);
            if block + 1 < blocks {
                self.dot::<L, EXACT>(block + 1, next);
            }
            self.add::<L, EXACT, ALL>(block, own, &mut sums);
        }
        let (first_out, _) = self.product.tile(tile);
        for (n, sum) in sums.into_iter().enumerate().take(self.rows) {
            self.product.store::<S>(self.row + n, tile, first_out, sum);
        }
    }
}

/// As [`packed::multiply`], of all rows from `row` on, which is a group's first.
///
/// # Safety
/// As of [`packed::multiply`]; activations are grouped, too, and the machine has what [`available`] asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn multiply<L: Layout, const EXACT: bool>(
    product: &Product,
    tile: usize,
    packed: *const i32,
    mut row: usize,
    shift: i32,
) -> usize {
    let bytes = BLOCK / const { parts::<L>() };
    let mut memory = [Sums([[0; LANES]; LANES]); 8];
    shape(LANES, bytes);
    while row + LANES <= product.rows {
        let of = Rows { product, packed, shift, row, rows: LANES };
        of.multiply::<L, EXACT, true>(tile, &mut memory);
        row += LANES;
    }
    if row < product.rows {
        let of = Rows { product, packed, shift, row, rows: product.rows - row };
        shape(of.rows, bytes);
        of.multiply::<L, EXACT, false>(tile, &mut memory);
    }
    release();
    product.rows
}
