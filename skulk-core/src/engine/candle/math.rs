//! Which scalar functions run over whole rows? Written so that the compiler vectorises them.

use candle_core::cpu::erf::erf_f64;

use crate::arch::Activation;

/// `e^x`, within 2 units in the last place over the normal range.
///
/// Range reduction by powers of two and a degree-6 polynomial, as in Cephes `expf`; branch-free,
/// so loops over it become vector code, which calls to the system's `exp` do not.
pub(super) fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E + 0.5).floor();
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5.000_000_3e-1;
    let e = p * r * r + r + 1.0;
    e * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

/// `tanh x`, within 1e-6 of the true value.
pub(super) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// `gate = activation(gate) · up`.
pub(super) fn gated(activation: Activation, gate: &mut [f32], up: &[f32]) {
    match activation {
        Activation::Silu => {
            for (g, u) in gate.iter_mut().zip(up) {
                *g = *g / (1.0 + exp(-*g)) * u;
            }
        }
        Activation::GeluTanh => {
            const SQRT_2_OVER_PI: f32 = 0.797_884_6;
            for (g, u) in gate.iter_mut().zip(up) {
                *g = 0.5 * *g * (1.0 + tanh(SQRT_2_OVER_PI * (*g + 0.044_715 * *g * *g * *g))) * u;
            }
        }
        Activation::Gelu => {
            for (g, u) in gate.iter_mut().zip(up) {
                let x = f64::from(*g);
                *g = (0.5 * x * (1.0 + erf_f64(x * std::f64::consts::FRAC_1_SQRT_2))) as f32 * u;
            }
        }
    }
}

/// Sum of squares, in eight lanes so that it vectorises; the order is the same for every row.
pub(super) fn sum_of_squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += v * v;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|v| v * v).sum::<f32>()
}

/// `y = x / sqrt(mean(x²) + eps) · weight`.
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    let scale = rms_scale(x, eps);
    for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
        *y = x * scale * w;
    }
}

/// `1 / sqrt(mean(x²) + eps)`.
pub(super) fn rms_scale(x: &[f32], eps: f32) -> f32 {
    (sum_of_squares(x) / x.len() as f32 + eps).sqrt().recip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_systems() {
        for i in -86_000..88_000 {
            let x = i as f32 * 1e-3;
            let (found, expected) = (f64::from(exp(x)), f64::from(x).exp());
            // f32 rounding of the argument alone gives half a unit; four bounds the polynomial's too.
            assert!(
                (found / expected - 1.0).abs() < 4.0 * f64::from(f32::EPSILON),
                "exp({x}) = {found}, expected {expected}"
            );
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1000.0) < 1e-37 && exp(1000.0).is_finite());
    }

    #[test]
    fn tanh_is_close_to_the_systems() {
        for i in -12_000..12_000 {
            let x = i as f32 * 1e-3;
            assert!((f64::from(tanh(x)) - f64::from(x).tanh()).abs() < 1e-6, "tanh({x})");
        }
    }

    #[test]
    fn activations_match_their_formulas() {
        for i in -80..80 {
            let x = i as f32 * 0.1;
            let of = |activation| {
                let mut gate = [x];
                gated(activation, &mut gate, &[2.0]);
                f64::from(gate[0]) / 2.0
            };
            let d = f64::from(x);
            let tanh = (0.797_884_560_802_865_4 * (d + 0.044_715 * d * d * d)).tanh();
            assert!((of(Activation::Silu) - d / (1.0 + (-d).exp())).abs() < 2e-6);
            assert!((of(Activation::GeluTanh) - 0.5 * d * (1.0 + tanh)).abs() < 4e-6);
            // The tanh form stays within 5e-4 of the exact one.
            assert!((of(Activation::Gelu) - of(Activation::GeluTanh)).abs() < 1e-3);
        }
    }
}
