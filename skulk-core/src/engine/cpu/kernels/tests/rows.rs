//! Are norms, rotations and activations the same everywhere, and what formulas in f64 say?

use super::super::{Kernels, LANES, portable};
use super::{EPSILON, Numbers, assert_near, assert_same, others};
use crate::arch::{Activation, RopeLayout};
use crate::engine::conformance::{oracle, wide};

const LENGTHS: [usize; 11] = [1, 2, 7, 15, 16, 17, 31, 32, 48, 100, 259];
const EPS: f32 = 1e-6;

/// Runs all kernels on copies of `x`; the result, which is the same of all.
fn all(x: &[f32], what: &str, run: impl Fn(&Kernels, &mut [f32])) -> Box<[f32]> {
    let results = |kernels: &Kernels| {
        let mut x: Box<[f32]> = x.into();
        run(kernels, &mut x);
        x
    };
    let oracle = results(&portable::KERNELS);
    for kernels in others() {
        assert_same(&results(kernels), &oracle, &format!("{} {what} of {}", kernels.name, x.len()));
    }
    oracle
}

/// A norm by its formula, and how far off one may be, relative to its result: the sum has a step for every
/// 16 elements and four for the lanes, and the root halves what it is off.
fn norm(x: &[f64], weight: &[f32]) -> (Vec<f64>, f64) {
    let steps = (x.len().div_ceil(LANES) + 4) as f64 / 2.0 + 6.0;
    (oracle::rms_norm(x, &wide(weight), EPS.into()), steps * EPSILON)
}

#[test]
fn norms() {
    let mut numbers = Numbers(10);
    for n in LENGTHS {
        let (x, y, weight) = (numbers.floats(n), numbers.floats(n), numbers.floats(n));
        let (expected, off) = norm(&wide(&y), &weight);
        let out = all(&x, "rms_norm", |kernels, out| kernels.rms_norm(&y, (&weight, EPS), out));
        for (out, expected) in out.iter().zip(&expected) {
            assert_near(*out, *expected, off * expected.abs(), "rms_norm");
        }
        let out = all(&x, "add_norm", |kernels, x| kernels.add_norm(x, &y, (&weight, EPS)));
        for ((out, x), added) in out.iter().zip(&x).zip(&expected) {
            let expected = f64::from(*x) + added;
            let bound = off * added.abs() + EPSILON * expected.abs() * 1.01;
            assert_near(*out, expected, bound, "add_norm");
        }
    }
    let zeros = all(&[1.0; 20], "rms_norm", |kernels, out| {
        kernels.rms_norm(&[0.0; 20], (&[1.0; 20], EPS), out);
    });
    assert!(zeros.iter().all(|&x| x == 0.0));
}

#[test]
fn sums() {
    let mut numbers = Numbers(11);
    for n in LENGTHS {
        let (x, y) = (numbers.floats(n), numbers.floats(n));
        let out = all(&x, "add", |kernels, x| kernels.add(x, &y));
        for i in 0..n {
            assert_eq!(out[i], x[i] + y[i]);
        }
        let out = all(&x, "add_scaled", |kernels, x| kernels.add_scaled(x, 0.3, &y));
        for i in 0..n {
            assert_eq!(out[i], 0.3f32.mul_add(y[i], x[i]));
        }
    }
}

#[test]
fn exp_is_within_two_units_in_the_last_place() {
    let exp = |kernels: &Kernels, mut x: [f32; LANES]| {
        // SAFETY: the machine has the instructions.
        unsafe { (kernels.tested.exp)(&mut x) };
        x
    };
    let (mut worst, mut at) = (0.0f64, 0.0);
    // Steps through the bits of all numbers of either sign up to 88; a prime, to meet all endings.
    for sign in [1.0f32, -1.0] {
        let end = if sign > 0.0 { 88.0f32 } else { 87.0 }.to_bits();
        let mut bits = 0;
        while bits <= end {
            let x = std::array::from_fn(|i| sign * f32::from_bits((bits + i as u32 * 4001).min(end)));
            let oracle = exp(&portable::KERNELS, x);
            for kernels in others() {
                assert_same(&exp(kernels, x), &oracle, kernels.name);
            }
            for (x, y) in x.into_iter().zip(oracle) {
                let expected = f64::from(x).exp();
                let power = f32::from_bits((expected as f32).to_bits() & 0x7f80_0000);
                let off = (f64::from(y) - expected).abs() / (f64::from(power) * 2.0 * EPSILON);
                if off > worst {
                    (worst, at) = (off, x);
                }
            }
            bits += 16 * 4001;
        }
    }
    assert!(worst <= 2.0, "{worst} units at {at:e}");
    for kernels in Kernels::all() {
        let of = |x: f32| exp(kernels, [x; LANES])[3];
        assert_eq!(of(f32::INFINITY), of(88.0));
        assert_eq!(of(89.0), of(88.0));
        assert_eq!(of(f32::NEG_INFINITY), of(-87.0));
        assert_eq!(of(-1e30), of(-87.0));
        assert!(of(f32::NAN).is_nan() && of(-f32::NAN).is_nan());
        assert_eq!(of(0.0), 1.0);
    }
}

/// From the tiny to what saturates, of both signs.
fn arguments(numbers: &mut Numbers, n: usize) -> Box<[f32]> {
    (0..n).map(|i| numbers.float() * [1e-3, 1.0, 8.0, 40.0, 200.0][i % 5]).collect()
}

#[test]
fn softcap() {
    let mut numbers = Numbers(12);
    for n in LENGTHS {
        let x = arguments(&mut numbers, n);
        let out = all(&x, "softcap", |kernels, x| kernels.softcap(x, 30.0));
        for (x, out) in x.iter().zip(out) {
            let expected = oracle::softcap(f64::from(*x), 30.0);
            assert_near(out, expected, 30.0 * 6.0 * EPSILON, "softcap");
            assert!(out.abs() <= 30.0);
        }
    }
    let odd = all(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY], "softcap", |k, x| k.softcap(x, 30.0));
    assert!(odd[0].is_nan());
    assert_eq!(odd[1..], [30.0, -30.0]);
}

#[test]
fn gated() {
    let mut numbers = Numbers(13);
    for n in LENGTHS {
        let (gate, up) = (arguments(&mut numbers, n), numbers.floats(n));
        // The argument of the second one's exponential is itself off by some units.
        for (activation, off) in
            [(Activation::Silu, 8.0), (Activation::GeluTanh, 12.0), (Activation::Gelu, 2.1)]
        {
            let out = all(&gate, "gated", |kernels, gate| kernels.gated(activation, gate, &up));
            for ((out, gate), up) in out.iter().zip(&gate).zip(&up) {
                let (gate, up) = (f64::from(*gate), f64::from(*up));
                // Far out the sigmoid stays at e^-88 instead of vanishing.
                let bound = off * EPSILON * (gate * up).abs() + 1e-36;
                let expected = oracle::activation(activation, gate) * up;
                assert_near(*out, expected, bound, &format!("{activation:?} of {gate}"));
            }
        }
    }
    for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
        let gate = [f32::NAN, f32::INFINITY];
        let out = all(&gate, "gated", |kernels, gate| kernels.gated(activation, gate, &[1.0, 1.0]));
        assert!(out[0].is_nan() && out[1] == f32::INFINITY, "{activation:?}: {out:?}");
    }
}

#[test]
fn heads_are_normed_and_rotated() {
    let mut numbers = Numbers(14);
    for half in [1, 2, 8, 15, 16, 17, 32, 50] {
        // Some elements behind the rotated ones.
        for rest in [0, 3] {
            let n = 2 * half + rest;
            let (x, weight) = (numbers.floats(n), numbers.floats(n));
            let angles = numbers.floats(half);
            let cos: Box<[f32]> = angles.iter().map(|x| (3.0 * x).cos()).collect();
            let sin: Box<[f32]> = angles.iter().map(|x| (3.0 * x).sin()).collect();
            for layout in [RopeLayout::Halves, RopeLayout::Pairs] {
                for normed in [false, true] {
                    let with = normed.then_some((&*weight, EPS));
                    let out = all(&x, "norm_rope", |k, head| k.norm_rope(head, with, layout, &cos, &sin));
                    let (values, off) = if normed { norm(&wide(&x), &weight) } else { (wide(&x), 0.0) };
                    for i in 0..half {
                        let (at, to) = match layout {
                            RopeLayout::Halves => (i, i + half),
                            RopeLayout::Pairs => (2 * i, 2 * i + 1),
                        };
                        let (a, b) = (values[at], values[to]);
                        let (cos, sin) = (f64::from(cos[i]), f64::from(sin[i]));
                        let bound = |x: f64, y: f64| (off + 2.1 * EPSILON) * (x.abs() + y.abs());
                        let (x, y) = (a * cos, b * sin);
                        assert_near(out[at], x - y, bound(x, y), "first");
                        let (x, y) = (b * cos, a * sin);
                        assert_near(out[to], x + y, bound(x, y), "second");
                    }
                    for i in 2 * half..n {
                        assert_near(out[i], values[i], off * values[i].abs(), "not rotated");
                    }
                }
            }
        }
    }
}

#[test]
fn decays() {
    let mut numbers = Numbers(17);
    for (n, decay) in LENGTHS.into_iter().zip([1.0f32, 0.05, 0.3, 4.0].into_iter().cycle()) {
        let (x, biases) = (arguments(&mut numbers, n), numbers.floats(n));
        let out = all(&x, "decay", |kernels, left| kernels.decay(left, &biases, decay));
        for ((x, bias), out) in x.iter().zip(&biases).zip(out) {
            let x = f64::from(x + bias);
            let exponent = f64::from(decay) * (x.max(0.0) + (-x.abs()).exp().ln_1p());
            // Beyond that `exp` stays what it is there. Of the exponent's formula each step is off by a unit, its `exp` by four.
            let expected = (-exponent.min(87.0)).exp();
            assert_near(out, expected, (14.0 * exponent.min(87.0) + 4.0) * EPSILON * expected, "decay");
        }
    }
    let out = all(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY], "decay", |kernels, left| {
        kernels.decay(left, &[0.0; 3], 1.0);
    });
    assert!(out[0].is_nan() && out[1] < 1.7e-38 && out[2] == 1.0);
}

#[test]
fn gates_dampen() {
    let mut numbers = Numbers(18);
    for n in LENGTHS {
        let (x, gate) = (numbers.floats(n), arguments(&mut numbers, n));
        let out = all(&x, "dampen", |kernels, x| kernels.dampen(x, &gate));
        for ((x, gate), out) in x.iter().zip(&gate).zip(out) {
            let expected = f64::from(*x) / (1.0 + (-f64::from(*gate).clamp(-87.0, 88.0)).exp());
            assert_near(out, expected, 7.0 * EPSILON * expected.abs() + 1e-37, "dampen");
        }
    }
}
