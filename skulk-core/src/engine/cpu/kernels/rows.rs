//! What happens to whole rows between products? Norms, rotations, activations.
//!
//! # Safety
//! Every function here needs `S`'s instructions; lengths are checked by slices.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::simd::{LANES, Simd};
use crate::arch::{Activation, RopeLayout};
use crate::math;

/// Calls `$body` with the offset and length of each vector of `$n` elements: 16, the last one fewer.
macro_rules! vectors {
    ($n:expr, |$at:ident, $load:ident, $store:ident| $body:block) => {{
        let n: usize = $n;
        let mut $at = 0;
        {
            macro_rules! $load {
                ($p:expr) => {
                    S::load($p.as_ptr().add($at))
                };
            }
            macro_rules! $store {
                ($p:expr, $x:expr) => {{
                    let x = $x;
                    S::store($p.as_mut_ptr().add($at), x)
                }};
            }
            while $at + LANES <= n {
                $body
                $at += LANES;
            }
        }
        if $at < n {
            macro_rules! $load {
                ($p:expr) => {
                    S::load_part($p.as_ptr().add($at), n - $at)
                };
            }
            macro_rules! $store {
                ($p:expr, $x:expr) => {{
                    let x = $x;
                    S::store_part($p.as_mut_ptr().add($at), n - $at, x)
                }};
            }
            $body
        }
    }};
}

/// `e^x`, within 2 units in the last place from -87 to 88, beyond which it stays what it is there.
///
/// Range reduction by powers of two and the polynomial of Cephes' `expf`.
#[inline(always)]
pub(super) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // In this order what is not a number stays so.
    let x = S::min(S::splat(88.0), S::max(S::splat(-87.0), x));
    let n = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
    let whole = S::to_f32(n);
    let r = S::fma(whole, S::splat(-0.693_359_4), x);
    let r = S::fma(whole, S::splat(2.121_944_4e-4), r);
    let mut p = S::splat(1.987_569_1e-4);
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_3e-1] {
        p = S::fma(p, r, S::splat(c));
    }
    let e = S::add(S::fma(p, S::mul(r, r), r), S::splat(1.0));
    S::mul(e, S::exp2i(n))
}

/// `cap · tanh(x / cap)`.
#[inline(always)]
pub(super) unsafe fn cap<S: Simd>(x: S::F, cap: f32) -> S::F {
    let e = exp::<S>(S::mul(x, S::splat(2.0 / cap)));
    let tanh = S::sub(S::splat(1.0), S::div(S::splat(2.0), S::add(e, S::splat(1.0))));
    S::mul(S::splat(cap), tanh)
}

/// `x = cap · tanh(x / cap)`.
#[inline(always)]
pub(super) unsafe fn softcap<S: Simd>(x: &mut [f32], limit: f32) {
    vectors!(x.len(), |at, load, store| { store!(x, cap::<S>(load!(x), limit)) });
}

/// `x += y`.
#[inline(always)]
pub(super) unsafe fn add<S: Simd>(x: &mut [f32], y: &[f32]) {
    vectors!(x.len().min(y.len()), |at, load, store| { store!(x, S::add(load!(x), load!(y))) });
}

/// `x += factor · y`, rounded once.
#[inline(always)]
pub(super) unsafe fn add_scaled<S: Simd>(x: &mut [f32], factor: f32, y: &[f32]) {
    let factor = S::splat(factor);
    vectors!(x.len().min(y.len()), |at, load, store| { store!(x, S::fma(factor, load!(y), load!(x))) });
}

/// `1 / sqrt(mean(x²) + eps)`.
#[inline(always)]
unsafe fn norm_scale<S: Simd>(x: &[f32], eps: f32) -> f32 {
    let mut sums = S::zero();
    #[allow(unused_macros, reason = "a sum stores nothing")]
    {
        vectors!(x.len(), |at, load, store| {
            let v = load!(x);
            sums = S::fma(v, v, sums);
        });
    }
    (S::sum(sums) / x.len() as f32 + eps).sqrt().recip()
}

/// `y = x / sqrt(mean(x²) + eps) · weight`.
#[inline(always)]
pub(super) unsafe fn rms_norm<S: Simd>(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    let scale = S::splat(norm_scale::<S>(x, eps));
    let n = x.len().min(weight.len()).min(y.len());
    vectors!(n, |at, load, store| { store!(y, S::mul(S::mul(load!(x), scale), load!(weight))) });
}

/// `x += norm(y)`.
#[inline(always)]
pub(super) unsafe fn add_norm<S: Simd>(x: &mut [f32], y: &[f32], weight: &[f32], eps: f32) {
    let scale = S::splat(norm_scale::<S>(y, eps));
    let n = x.len().min(weight.len()).min(y.len());
    vectors!(n, |at, load, store| {
        store!(x, S::add(load!(x), S::mul(S::mul(load!(y), scale), load!(weight))))
    });
}

/// `gate = activation(gate) · up`; the activation is `x · sigmoid(…)`.
#[inline(always)]
pub(super) unsafe fn gated<S: Simd>(activation: Activation, gate: &mut [f32], up: &[f32]) {
    let n = gate.len().min(up.len());
    match activation {
        Activation::Silu => vectors!(n, |at, load, store| {
            let g = load!(gate);
            let e = exp::<S>(S::sub(S::zero(), g));
            store!(gate, S::mul(S::div(g, S::add(S::splat(1.0), e)), load!(up)));
        }),
        // Bounds come first, so that what is not a number stays so.
        Activation::ClampedSilu(limit) => vectors!(n, |at, load, store| {
            let (g, limit) = (load!(gate), S::splat(limit));
            let e = exp::<S>(S::sub(S::zero(), g));
            let silu = S::min(limit, S::div(g, S::add(S::splat(1.0), e)));
            let up = S::max(S::sub(S::zero(), limit), S::min(limit, load!(up)));
            store!(gate, S::mul(silu, up));
        }),
        Activation::ClampedGlu { alpha, limit } => vectors!(n, |at, load, store| {
            let limit = S::splat(limit);
            let g = S::min(limit, load!(gate));
            let e = exp::<S>(S::mul(g, S::splat(-alpha)));
            let up = S::max(S::sub(S::zero(), limit), S::min(limit, load!(up)));
            store!(gate, S::mul(S::div(g, S::add(S::splat(1.0), e)), S::add(up, S::splat(1.0))));
        }),
        // 0.5 · (1 + tanh u) is the sigmoid of 2u.
        Activation::GeluTanh => vectors!(n, |at, load, store| {
            let g = load!(gate);
            let cube = S::mul(S::mul(g, g), g);
            let u = S::fma(cube, S::splat(0.044_715), g);
            let e = exp::<S>(S::mul(u, S::splat(-2.0 * 0.797_884_6)));
            store!(gate, S::mul(S::div(g, S::add(S::splat(1.0), e)), load!(up)));
        }),
        Activation::SquaredRelu => vectors!(gate.len(), |at, load, store| {
            // In this order what is not a number stays so.
            let g = S::max(S::zero(), load!(gate));
            store!(gate, S::mul(g, g));
        }),
        Activation::Gelu => {
            for (g, u) in gate.iter_mut().zip(up) {
                let x = f64::from(*g);
                let erf = math::erf(x * std::f64::consts::FRAC_1_SQRT_2);
                *g = (0.5 * x * (1.0 + erf)) as f32 * u;
            }
        }
    }
}

/// Norms a head where there is a norm, then rotates its first `2 · cos.len()` elements.
#[inline(always)]
pub(super) unsafe fn norm_rope<S: Simd>(
    head: &mut [f32],
    norm: Option<(&[f32], f32)>,
    layout: RopeLayout,
    cos: &[f32],
    sin: &[f32],
) {
    if let Some((weight, eps)) = norm {
        let scale = S::splat(norm_scale::<S>(head, eps));
        vectors!(head.len().min(weight.len()), |at, load, store| {
            store!(head, S::mul(S::mul(load!(head), scale), load!(weight)))
        });
    }
    let half = cos.len();
    match layout {
        RopeLayout::Halves => {
            let (first, second) = head[..2 * half].split_at_mut(half);
            vectors!(half.min(sin.len()), |at, load, store| {
                let (a, b, cos, sin) = (load!(first), load!(second), load!(cos), load!(sin));
                store!(first, S::sub(S::mul(a, cos), S::mul(b, sin)));
                store!(second, S::add(S::mul(b, cos), S::mul(a, sin)));
            });
        }
        RopeLayout::Pairs => {
            let pairs = head[..2 * half].as_chunks_mut::<2>().0;
            for i in 0..half.min(sin.len()) {
                let [a, b] = pairs[i];
                pairs[i] = [a * cos[i] - b * sin[i], b * cos[i] + a * sin[i]];
            }
        }
    }
}
