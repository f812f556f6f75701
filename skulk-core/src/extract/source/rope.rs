//! Which scaling of rotary embeddings do a GGUF file's factors stand for?
//!
//! Converters store Llama 3's scaling as one divisor for each pair (`generate_extra_tensors` of llama.cpp's
//! `convert_hf_to_gguf.py`): 1 for short wavelengths, the factor for long ones, and in between
//! `1 / ((1 - s) / factor + s)` with `s = (context / wavelength - low) / (high - low)`. So `s` is a straight line over
//! `1 / wavelength`, and two pairs in between tell it. Multiples of context, low and high are the same line; as in
//! every published model, low is taken for 1.

use crate::arch::{RopeScaling, RopeSpec};
use crate::error::{Error, ErrorKind, Result};

/// By how much frequencies may differ, as a share of them. Converters compute in float32, where the line's rounding is
/// magnified by the factor, 32 at most in published models.
const TOLERANCE: f32 = 2e-5;
/// What high is where too few pairs lie in between to tell: as in every published model.
const HIGH: f64 = 4.0;

/// The scaling that has these factors.
pub(super) fn llama3(rope: &RopeSpec, factors: &[f32]) -> Result<RopeScaling> {
    candidates(rope, factors)
        .into_iter()
        .find(|scaling| is_same(rope, &RopeSpec { scaling: scaling.clone(), ..rope.clone() }))
        .ok_or_else(|| {
            Error::new(
                ErrorKind::ArchUnsupported,
                "expected factors that scale rotary embeddings as Llama 3 does, found others",
            )
            .with("tensor", "rope_freqs.weight")
            .with_hint("use the model's safetensors checkpoint, whose configuration tells the scaling")
        })
}

/// Whether both rotate by the same angles.
pub(super) fn is_same(a: &RopeSpec, b: &RopeSpec) -> bool {
    if matches!((&a.scaling, &b.scaling), (RopeScaling::Factors(_), _) | (_, RopeScaling::Factors(_))) {
        let (a, b) = (a.inverse_frequencies(0), b.inverse_frequencies(0));
        return a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= TOLERANCE * a.abs());
    }
    (a.theta, a.dim, &a.scaling, a.amplitude) == (b.theta, b.dim, &b.scaling, b.amplitude)
}

fn candidates(rope: &RopeSpec, factors: &[f32]) -> Vec<RopeScaling> {
    let factor = f64::from(factors.iter().copied().fold(1.0, f32::max));
    let scaling = |context: f64, high: f64| RopeScaling::Llama3 {
        factor,
        low_freq_factor: 1.0,
        high_freq_factor: high,
        original_context: context,
    };
    let frequencies = RopeSpec { scaling: RopeScaling::None, ..rope.clone() }.inverse_frequencies(0);
    // 1 / wavelength and s of the pairs in between.
    let line: Vec<(f64, f64)> = frequencies
        .iter()
        .zip(factors)
        .map(|(&frequency, &f)| {
            let share = (1.0 / f64::from(f) - 1.0 / factor) / (1.0 - 1.0 / factor);
            (f64::from(frequency) / std::f64::consts::TAU, share)
        })
        .filter(|(_, share)| *share > 1e-5 && *share < 1.0 - 1e-5)
        .collect();
    let mut candidates = vec![RopeScaling::None];
    match line[..] {
        [] => candidates.extend((8..24).map(|power| scaling(f64::from(1 << power), HIGH))),
        [(x, share)] => candidates.push(scaling(((share * (HIGH - 1.0) + 1.0) / x).round(), HIGH)),
        [(x, share), .., (last_x, last_share)] => {
            let slope = (share - last_share) / (x - last_x);
            let below = slope * x - share;
            let (context, high) = (slope / below, 1.0 + 1.0 / below);
            candidates.push(scaling(context.round(), high.round()));
            candidates.push(scaling(context.round(), high));
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::RopeLayout;

    /// The converter's arithmetic, in float32.
    fn factors(theta: f32, dim: usize, [factor, low, high, context]: [f32; 4]) -> Vec<f32> {
        (0..dim / 2)
            .map(|pair| {
                let frequency = 1.0 / theta.powf((2 * pair) as f32 / dim as f32);
                let wavelength = std::f32::consts::TAU / frequency;
                if wavelength < context / high {
                    1.0
                } else if wavelength > context / low {
                    factor
                } else {
                    let smooth = (context / wavelength - low) / (high - low);
                    1.0 / ((1.0 - smooth) / factor + smooth)
                }
            })
            .collect()
    }

    fn rope(theta: f64, dim: usize, factors: Vec<f32>) -> RopeSpec {
        // Not all fields are of this module's making.
        RopeSpec {
            theta,
            dim,
            layout: RopeLayout::Pairs,
            scaling: RopeScaling::Factors(factors),
            amplitude: 1.0,
        }
    }

    #[test]
    fn published_scalings_are_found_again() {
        // Llama 3.1 8B, 3.2 1B, and smaller ones.
        for (theta, dim, told) in [
            (500_000.0, 128, [8.0, 1.0, 4.0, 8192.0]),
            (500_000.0, 64, [32.0, 1.0, 4.0, 8192.0]),
            (10_000.0, 64, [4.0, 1.0, 8.0, 1000.0]),
            (10_000.0, 16, [8.0, 1.0, 4.0, 8192.0]),
            (500_000.0, 8, [8.0, 1.0, 4.0, 8192.0]),
        ] {
            let factors = factors(theta as f32, dim, told);
            let found = llama3(&rope(theta, dim, factors.clone()), &factors).unwrap();
            let RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } = found
            else {
                panic!("{found:?}");
            };
            let found = [factor, low_freq_factor, high_freq_factor, original_context];
            assert_eq!(found.map(|x| x as f32), told, "{theta} {dim}");
        }
    }

    #[test]
    fn other_factors_are_refused() {
        let ones = vec![1.0; 16];
        assert_eq!(llama3(&rope(10_000.0, 32, ones.clone()), &ones).unwrap(), RopeScaling::None);
        // Such as those of LongRoPE.
        let long: Vec<f32> = (0..16).map(|pair| 1.0 + pair as f32 * 0.7).collect();
        let error = llama3(&rope(10_000.0, 32, long.clone()), &long).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArchUnsupported);
        assert!(error.hint().is_some());
    }
}
