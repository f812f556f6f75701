//! How are positions rotated into queries and keys? RoPE bases, layouts and scalings.

use super::{invalid, positive};
use crate::error::Result;
use crate::math;

/// Rotary position embedding (Su et al. 2021).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RopeSpec {
    /// Base of the geometric progression of wavelengths.
    pub theta: f64,
    /// Elements of a head that are rotated, from its start; even.
    pub dim: usize,
    /// Which elements form a pair.
    pub layout: RopeLayout,
    /// How frequencies are stretched for contexts beyond the training length.
    pub scaling: RopeScaling,
}

/// Which two elements of a head rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RopeLayout {
    /// `i` and `i + dim / 2`: Hugging Face checkpoints, and GGUF families of the "neox" kind.
    Halves,
    /// `2i` and `2i + 1`: GGUF files of the llama family, whose converter permutes the rows.
    Pairs,
}

/// Frequency scaling.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Frequencies as trained.
    None,
    /// Every frequency divided by the factor.
    Linear(f64),
    /// Llama 3.1: low frequencies divided, high ones kept, smooth in between.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length before scaling, in tokens.
        original_context: f64,
    },
    /// Divisors per pair, as GGUF files store them in `rope_freqs.weight`.
    Factors(Vec<f32>),
}

impl RopeSpec {
    /// Angle per position of each pair: `dim / 2` values, in radians.
    ///
    /// Llama 3 scaling follows `_compute_llama3_parameters` of Hugging Face transformers.
    pub fn inverse_frequencies(&self) -> Vec<f32> {
        (0..self.dim / 2)
            .map(|pair| {
                let frequency = math::pow(self.theta, -((2 * pair) as f64) / self.dim as f64);
                (match &self.scaling {
                    RopeScaling::None => frequency,
                    RopeScaling::Linear(factor) => frequency / factor,
                    RopeScaling::Factors(factors) => {
                        frequency / f64::from(factors.get(pair).copied().unwrap_or(1.0))
                    }
                    RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                        let wavelength = std::f64::consts::TAU / frequency;
                        if wavelength < original_context / high_freq_factor {
                            frequency
                        } else if wavelength > original_context / low_freq_factor {
                            frequency / factor
                        } else {
                            let smooth = (original_context / wavelength - low_freq_factor)
                                / (high_freq_factor - low_freq_factor);
                            (1.0 - smooth) * frequency / factor + smooth * frequency
                        }
                    }
                }) as f32
            })
            .collect()
    }

    pub(super) fn check(&self) -> Result<()> {
        positive("rope theta", self.theta)?;
        if self.dim == 0 || !self.dim.is_multiple_of(2) {
            return Err(invalid(
                "rotary dimension",
                format!("expected a positive even number, found {}", self.dim),
            ));
        }
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear(factor) => positive("rope scaling factor", *factor),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                positive("rope scaling factor", *factor)?;
                positive("low_freq_factor", *low_freq_factor)?;
                positive("original_max_position_embeddings", *original_context)?;
                if high_freq_factor > low_freq_factor {
                    return Ok(());
                }
                Err(invalid(
                    "high_freq_factor",
                    format!("expected more than low_freq_factor {low_freq_factor}, found {high_freq_factor}"),
                ))
            }
            RopeScaling::Factors(factors) => {
                if factors.len() != self.dim / 2 {
                    return Err(invalid(
                        "rope_freqs.weight",
                        format!("expected {} factors, found {}", self.dim / 2, factors.len()),
                    ));
                }
                factors.iter().try_for_each(|&f| positive("rope_freqs.weight", f64::from(f)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(scaling: RopeScaling) -> RopeSpec {
        RopeSpec { theta: 10_000.0, dim: 8, layout: RopeLayout::Halves, scaling }
    }

    #[test]
    fn unscaled_frequencies_fall_geometrically() {
        let f = spec(RopeScaling::None).inverse_frequencies();
        assert_eq!(f, [1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn llama3_keeps_high_and_divides_low_frequencies() {
        let f = spec(RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 128.0,
        })
        .inverse_frequencies();
        // Wavelengths 6.3, 62.8, 628 and 6283 against the borders 32 and 128.
        assert_eq!(f[0], 1.0);
        let smooth = (128.0 / 62.831_853_071_795_86 - 1.0) / 3.0;
        let expected = (1.0 - smooth) * 0.1 / 8.0 + smooth * 0.1;
        assert!((f64::from(f[1]) - expected).abs() < 1e-8);
        assert_eq!(f[2], 0.01 / 8.0);
        assert_eq!(f[3], 0.001 / 8.0);
    }

    #[test]
    fn impossible_values_are_errors() {
        assert!(spec(RopeScaling::Linear(0.0)).check().is_err());
        assert!(spec(RopeScaling::Factors(vec![1.0; 3])).check().is_err());
        assert!(spec(RopeScaling::Factors(vec![f32::NAN; 4])).check().is_err());
        assert!(RopeSpec { dim: 7, ..spec(RopeScaling::None) }.check().is_err());
    }
}
