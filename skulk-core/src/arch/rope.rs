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
    /// Multiplies what is rotated, of queries and of keys: more than 1 where contexts were stretched by YaRN or LongRoPE.
    pub amplitude: f32,
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
    /// Divisors per pair: LongRoPE's, and what GGUF files store in `rope_freqs.weight`.
    Factors(Vec<f32>),
    /// LongRoPE (Ding et al. 2024): divisors per pair, others where sequences may be longer than the model was trained for.
    Long {
        /// For sequences of up to that many positions.
        short: Vec<f32>,
        /// For longer ones.
        long: Vec<f32>,
        /// Context length before scaling, in tokens.
        original_context: f64,
    },
    /// Only the first pairs turn, by the frequencies that they have among all (Gemma 4).
    Proportional {
        /// How many.
        rotated: usize,
        /// Divides their frequencies.
        factor: f64,
    },
    /// YaRN (Peng et al. 2023): pairs that turn rarely within the original context are divided, those that turn often are
    /// kept, smooth in between.
    Yarn {
        /// Divisor of low frequencies.
        factor: f64,
        /// Pairs that turn more often than this within the original context are kept.
        beta_fast: f64,
        /// Pairs that turn less often are divided.
        beta_slow: f64,
        /// Context length before scaling, in tokens.
        original_context: f64,
        /// The pairs between which it changes are rounded to whole ones.
        truncate: bool,
    },
}

/// By how much pairs turn for a position at most, in radians: published models' turn by 1 or little more. Of much larger
/// angles nothing but noise is left, and no number at the end.
const MOST_TURNED: f32 = 1e6;
/// Elements of a head whose pairs are looked at.
const MOST_DIM: usize = 1 << 16;

impl RopeSpec {
    /// Angle per position of each pair, for sequences of up to `context` positions: `dim / 2` values, in radians.
    ///
    /// Llama 3's scaling and YaRN's are those of Hugging Face transformers.
    pub fn inverse_frequencies(&self, context: usize) -> Vec<f32> {
        let [first_divided, last_kept] = self.yarn_range().unwrap_or_default();
        (0..self.dim / 2)
            .map(|pair| {
                let frequency = math::pow(self.theta, -((2 * pair) as f64) / self.dim as f64);
                (match &self.scaling {
                    RopeScaling::None => frequency,
                    RopeScaling::Linear(factor) => frequency / factor,
                    RopeScaling::Proportional { rotated, factor } => {
                        if pair < *rotated {
                            frequency / factor
                        } else {
                            0.0
                        }
                    }
                    RopeScaling::Factors(factors) => {
                        frequency / f64::from(factors.get(pair).copied().unwrap_or(1.0))
                    }
                    RopeScaling::Long { short, long, original_context } => {
                        let factors = if context as f64 > *original_context { long } else { short };
                        frequency / f64::from(factors.get(pair).copied().unwrap_or(1.0))
                    }
                    RopeScaling::Yarn { factor, .. } => {
                        let divided = (pair as f64 - last_kept) / (first_divided - last_kept);
                        let kept = 1.0 - divided.clamp(0.0, 1.0);
                        frequency / factor * (1.0 - kept) + frequency * kept
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

    /// The pairs between which YaRN goes from all divided to none: the first that is divided, the last that is kept.
    fn yarn_range(&self) -> Option<[f64; 2]> {
        let RopeScaling::Yarn { beta_fast, beta_slow, original_context, truncate, .. } = self.scaling else {
            return None;
        };
        let dim = self.dim as f64;
        let pair_of = |turns: f64| {
            let pair = dim * math::ln(original_context / (turns * std::f64::consts::TAU));
            pair / (2.0 * math::ln(self.theta))
        };
        let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(dim - 1.0));
        Some([if low == high { high + 0.001 } else { high }, low])
    }

    pub(super) fn check(&self) -> Result<()> {
        positive("rope theta", self.theta)?;
        positive("rope attention factor", self.amplitude)?;
        if self.dim == 0 || !self.dim.is_multiple_of(2) {
            return Err(invalid(
                "rotary dimension",
                format!("expected a positive even number, found {}", self.dim),
            ));
        }
        self.check_scaling()?;
        if self.dim > MOST_DIM {
            // Heads are not as long, which is said of them.
            return Ok(());
        }
        let of = |context| self.inverse_frequencies(context).into_iter();
        match of(0).chain(of(usize::MAX)).find(|turn| !(0.0..=MOST_TURNED).contains(turn)) {
            None => Ok(()),
            Some(turn) => {
                let message =
                    format!("expected pairs that turn by 0 to {MOST_TURNED} a position, found {turn}");
                Err(invalid("rope theta or scaling", message))
            }
        }
    }

    fn check_scaling(&self) -> Result<()> {
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear(factor) | RopeScaling::Proportional { factor, .. } => {
                positive("rope scaling factor", *factor)
            }
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
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context, .. } => {
                positive("rope scaling factor", *factor)?;
                positive("beta_fast", *beta_fast)?;
                positive("beta_slow", *beta_slow)?;
                positive("original_max_position_embeddings", *original_context)?;
                if self.theta > 1.0 {
                    return Ok(());
                }
                Err(invalid("rope theta", format!("expected more than 1 for YaRN, found {}", self.theta)))
            }
            RopeScaling::Factors(factors) => self.check_factors(factors),
            RopeScaling::Long { short, long, original_context } => {
                positive("original_max_position_embeddings", *original_context)?;
                self.check_factors(short)?;
                self.check_factors(long)
            }
        }
    }

    fn check_factors(&self, factors: &[f32]) -> Result<()> {
        if factors.len() != self.dim / 2 {
            let message = format!("expected {} factors, found {}", self.dim / 2, factors.len());
            return Err(invalid("rope factors", message));
        }
        factors.iter().try_for_each(|&factor| positive("rope factors", factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(scaling: RopeScaling) -> RopeSpec {
        RopeSpec { theta: 10_000.0, dim: 8, layout: RopeLayout::Halves, scaling, amplitude: 1.0 }
    }

    #[test]
    fn unscaled_frequencies_fall_geometrically() {
        let f = spec(RopeScaling::None).inverse_frequencies(512);
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
        .inverse_frequencies(512);
        // Wavelengths 6.3, 62.8, 628 and 6283 against the borders 32 and 128.
        assert_eq!(f[0], 1.0);
        let smooth = (128.0 / 62.831_853_071_795_86 - 1.0) / 3.0;
        let expected = (1.0 - smooth) * 0.1 / 8.0 + smooth * 0.1;
        assert!((f64::from(f[1]) - expected).abs() < 1e-8);
        assert_eq!(f[2], 0.01 / 8.0);
        assert_eq!(f[3], 0.001 / 8.0);
    }

    #[test]
    fn proportional_ones_turn_the_first_pairs_alone() {
        let f = spec(RopeScaling::Proportional { rotated: 2, factor: 2.0 }).inverse_frequencies(512);
        assert_eq!(f, [0.5, 0.05, 0.0, 0.0]);
    }

    #[test]
    fn impossible_values_are_errors() {
        assert!(spec(RopeScaling::Linear(0.0)).check().is_err());
        assert!(spec(RopeScaling::Factors(vec![1.0; 3])).check().is_err());
        assert!(spec(RopeScaling::Factors(vec![f32::NAN; 4])).check().is_err());
        assert!(RopeSpec { dim: 7, ..spec(RopeScaling::None) }.check().is_err());
    }
}
