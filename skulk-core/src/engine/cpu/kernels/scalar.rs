//! What should every vector operation give? One lane after the other, on any machine.
#![allow(unsafe_op_in_unsafe_fn, reason = "`Simd` states the contract of all these functions")]

use std::cmp::Ordering;

use half::{bf16, f16};

use super::simd::{LANES, Rows, Simd, Weights, dot_block, operations};

/// Portable code: the oracle, and the fallback. What takes many instructions is not inlined: kernels would be
/// several times as large, and no faster.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

type F = [f32; LANES];
type I = [i32; LANES];

/// In a loop of its own: the standard library's calls `f` through functions that need not be inlined.
#[inline(always)]
fn lanes<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; LANES] {
    let mut lanes = [T::default(); LANES];
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = f(i);
    }
    lanes
}

#[inline(always)]
fn each<T: Copy, U: Copy + Default>(a: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    lanes(|i| f(a[i]))
}

#[inline(always)]
fn both<T: Copy, U: Copy + Default>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> U) -> [U; LANES] {
    lanes(|i| f(a[i], b[i]))
}

/// Zero for what is too small for a normal number.
fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0f32.copysign(x) } else { x }
}

impl Simd for Scalar {
    type F = F;
    type I = I;

    const SIGNED: bool = true;
    const ROWS: usize = 4;
    const ALONE: bool = false;

    operations! {
        inline:
        zero() -> F = [0.0; LANES];
        splat(x: f32) -> F = [x; LANES];
        load(p: *const f32) -> F = p.cast::<F>().read_unaligned();
        load_part(p: *const f32, n: usize) -> F =
            lanes(|i| if i < n { p.add(i).read_unaligned() } else { 0.0 });
        load_bf16(p: *const u16) -> F =
            each(p.cast::<[u16; LANES]>().read_unaligned(), |x| bf16::from_bits(x).to_f32());
        store(p: *mut f32, x: F) = p.cast::<F>().write_unaligned(x);
        add(a: F, b: F) -> F = both(a, b, |a, b| a + b);
        sub(a: F, b: F) -> F = both(a, b, |a, b| a - b);
        mul(a: F, b: F) -> F = both(a, b, |a, b| a * b);
        div(a: F, b: F) -> F = both(a, b, |a, b| a / b);
        max(a: F, b: F) -> F = both(a, b, |a, b| if a > b { a } else { b });
        min(a: F, b: F) -> F = both(a, b, |a, b| if a < b { a } else { b });
        abs(a: F) -> F = each(a, f32::abs);
        exp2i(n: I) -> F = each(n, |n| f32::from_bits((n.wrapping_add(127) << 23) as u32));
        prefetch(_: *const u8) = {};

        isplat(x: i32) -> I = [x; LANES];
        iload(p: *const i32) -> I = p.cast::<I>().read_unaligned();
        istore(p: *mut i32, x: I) = p.cast::<I>().write_unaligned(x);
        iadd(a: I, b: I) -> I = both(a, b, i32::wrapping_add);
        imul(a: I, b: I) -> I = both(a, b, i32::wrapping_mul);
        iand(a: I, b: I) -> I = both(a, b, |a, b| a & b);
        ior(a: I, b: I) -> I = both(a, b, |a, b| a | b);
        ishl(a: I, n: u32) -> I = each(a, |a| a << n);
        ishr(a: I, n: u32) -> I = each(a, |a| (a as u32 >> n) as i32);
        isar(a: I, n: u32) -> I = each(a, |a| a >> n);
        to_f32(a: I) -> F = each(a, |a| a as f32);
        as_f32(a: I) -> F = each(a, |a| f32::from_bits(a as u32));
        ixor(a: I, b: I) -> I = both(a, b, |a, b| a ^ b);
    }

    operations! {
        inline(never):
        load_f16(p: *const u16) -> F =
            each(p.cast::<[u16; LANES]>().read_unaligned(), |x| f16::from_bits(x).to_f32());
        store_f16(p: *mut u16, x: F) =
            p.cast::<[u16; LANES]>().write_unaligned(each(x, |x| f16::from_f32(x).to_bits()));
        fma(a: F, b: F, c: F) -> F = lanes(|i| a[i].mul_add(b[i], c[i]));
        sums(x: &[F; LANES]) -> F = lanes(|i| Self::sum(x[i]));
        gather(rows: &Rows, offset: usize) -> I =
            lanes(|i| i32::from_le(rows.row(i).add(offset).cast::<i32>().read_unaligned()));
        half(a: I) -> F = each(a, |a| f16::from_bits(a as u16).to_f32());
        load_i8(p: *const i8) -> I = each(p.cast::<[i8; LANES]>().read_unaligned(), i32::from);
        store_i8(p: *mut i8, a: I) = p.cast::<[i8; LANES]>().write_unaligned(each(a, |a| a as i8));
        store_upper(p: *mut u16, a: I) =
            p.cast::<[u16; LANES]>().write_unaligned(each(a, |a| (a as u32 >> 16) as u16));
        bytes_sub(a: I, n: u8) -> I =
            each(a, |a| i32::from_le_bytes(a.to_le_bytes().map(|byte| byte.wrapping_sub(n))));
        reorder(p: *const i8, order: &[i8; 16], to: *mut i8) = {
            let x = p.cast::<[i8; 16]>().read_unaligned();
            to.cast::<[i8; 16]>().write_unaligned(order.map(|i| x[i as usize % LANES]));
        };
        looked_up(table: &[i8; 16], a: I) -> I =
            each(a, |a| i32::from_le_bytes(a.to_le_bytes().map(|byte| table[usize::from(byte & 15)] as u8)));
        columns(rows: &Rows, offset: usize) -> [I; 4] =
            [0, 4, 8, 12].map(|at| Self::gather(rows, offset + at));
    }

    unsafe fn store_part(p: *mut f32, n: usize, x: F) {
        for (i, x) in x[..n].iter().enumerate() {
            p.add(i).write_unaligned(*x);
        }
    }
    #[inline(never)]
    unsafe fn round(a: F) -> I {
        each(a, |a| {
            let a = a.round_ties_even();
            if (-2147483648.0..2147483648.0).contains(&a) { a as i32 } else { i32::MIN }
        })
    }
    #[inline(never)]
    unsafe fn sum(x: F) -> f32 {
        let mut x = x;
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                x[i] += x[i + half];
            }
            half /= 2;
        }
        x[0]
    }
    #[inline(never)]
    unsafe fn largest(a: F, b: F) -> f32 {
        // As integers, what is not a number is larger than all numbers.
        f32::from_bits(a.into_iter().chain(b).fold(0, |largest, x| largest.max(x.abs().to_bits())))
    }
    #[inline(never)]
    unsafe fn not_below(a: F, b: F) -> u32 {
        let lanes = both(a, b, |a, b| a.partial_cmp(&b) != Some(Ordering::Less));
        lanes.into_iter().rev().fold(0, |bits, lane| bits << 1 | u32::from(lane))
    }

    #[inline(never)]
    unsafe fn dot4<const WIDE: bool>(sum: I, weights: I, x: *const i8) -> I {
        let x = x.cast::<[i8; 4]>().read_unaligned();
        both(sum, weights, |sum, weights| {
            let w = weights.to_le_bytes();
            (0..4).fold(sum, |sum, i| sum.wrapping_add(i32::from(w[i] as i8) * i32::from(x[i])))
        })
    }
    // Long, and in every kernel of few rows.
    #[inline(never)]
    unsafe fn dot_rows<const FROM: usize, const TO: usize, const N: usize>(
        sums: &mut [I; N],
        weights: &Weights<Self>,
        bits: u32,
        x: *const i8,
        distance: usize,
    ) {
        dot_block::<Self, FROM, TO, N>(sums, weights, bits, x, distance);
    }
    #[inline(never)]
    unsafe fn dot2(sum: F, weights: I, x: *const u32) -> F {
        let step = |sum: F, weights: I, x: F| -> F {
            let weights = each(Self::as_f32(weights), flushed);
            each(Self::fma(weights, x, each(sum, flushed)), flushed)
        };
        let upper = Self::iand(weights, Self::isplat(0xffff_0000_u32 as i32));
        let sum = step(sum, upper, Self::load(x.cast()));
        step(sum, Self::ishl(weights, 16), Self::load(x.add(LANES).cast()))
    }
}
