//! What is a placement? Contiguous ranges of layers, each on an engine, covering the model once.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::engine::EngineId;
use crate::error::{Error, ErrorKind, Result};

/// Where each layer of a model runs: stages in the order a token passes them.
///
/// ```
/// use skulk::{EngineId, Placement};
/// let placement = Placement::even(18, 4, &EngineId::new("cpu")).unwrap();
/// assert_eq!(placement.stages().len(), 4);
/// assert_eq!(placement.stages()[0].layers, 0..5);
/// assert_eq!(placement.stages()[3].layers, 14..18);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    stages: Vec<Stage>,
}

/// A contiguous range of layers on one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The engine that runs them.
    pub engine: EngineId,
    /// The layers, by index within the model.
    pub layers: Range<usize>,
}

impl Placement {
    /// A placement of these stages over a model of `n_layers` layers.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] unless the stages cover every layer exactly once, in order.
    pub fn new(stages: Vec<Stage>, n_layers: usize) -> Result<Self> {
        if stages.is_empty() {
            return Err(invalid("expected at least one stage, found none".to_owned()));
        }
        let mut next = 0;
        for (i, stage) in stages.iter().enumerate() {
            if stage.layers.start != next || stage.layers.is_empty() {
                return Err(invalid(format!(
                    "expected stage {i} to start at layer {next} and hold at least one, found {}..{}",
                    stage.layers.start, stage.layers.end
                )));
            }
            next = stage.layers.end;
        }
        if next != n_layers {
            return Err(invalid(format!("expected the stages to cover {n_layers} layers, found {next}")));
        }
        Ok(Self { stages })
    }

    /// `stages` ranges of as equal length as possible, all on one engine.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] for zero stages, or more stages than layers.
    pub fn even(n_layers: usize, stages: usize, engine: &EngineId) -> Result<Self> {
        if stages == 0 || stages > n_layers {
            return Err(invalid(format!(
                "expected 1 to {n_layers} stages, one layer each at least, found {stages}"
            ))
            .with("field", "stages"));
        }
        let (size, larger) = (n_layers / stages, n_layers % stages);
        let mut start = 0;
        let stages = (0..stages)
            .map(|stage| {
                let layers = start..start + size + usize::from(stage < larger);
                start = layers.end;
                Stage { engine: engine.clone(), layers }
            })
            .collect();
        Self::new(stages, n_layers)
    }

    /// Stages of so many layers each, one behind the other, on engines by name. The model says later
    /// whether that is all of its layers.
    ///
    /// ```
    /// let placement = skulk::Placement::by_counts([("candle-cuda", 20), ("cpu", 12)]).unwrap();
    /// assert_eq!(placement, "candle-cuda=20,cpu=12".parse().unwrap());
    /// assert_eq!(placement.stages()[1].layers, 20..32);
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] for a stage without layers, or no stages.
    pub fn by_counts<E: AsRef<str>>(counts: impl IntoIterator<Item = (E, usize)>) -> Result<Self> {
        let mut end = 0usize;
        let stages = counts.into_iter().map(|(engine, layers)| {
            let start = end;
            // Too many for any model: the model will say so.
            end = end.saturating_add(layers);
            Stage { engine: EngineId::new(engine.as_ref()), layers: start..end }
        });
        Self::new(stages.collect(), end)
    }

    /// The stages, in the order a token passes them.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, stage) in self.stages.iter().enumerate() {
            if i > 0 {
                f.write_str(" → ")?;
            }
            write!(f, "layers {}..{} on {}", stage.layers.start, stage.layers.end, stage.engine)?;
        }
        Ok(())
    }
}

/// [`Placement::by_counts`] from text: `engine=layers`, separated by commas, as in `candle-cuda=20,cpu=12`.
impl FromStr for Placement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let stage = |part: &str| {
            let (engine, layers) = part.split_once('=')?;
            Some((engine.trim().to_owned(), layers.trim().parse().ok()?))
        };
        let counts = text.split(',').map(|part| {
            stage(part).ok_or_else(|| {
                invalid(format!("expected engine=layers, as in cpu=3, found `{part}`"))
                    .with("field", "placement")
            })
        });
        Self::by_counts(counts.collect::<Result<Vec<_>>>()?)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::PlacementInvalid, message).with_hint(
        "give contiguous stages from layer 0 to the last, each on an engine the model is loaded with",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_covers_every_layer_once() {
        let engine = EngineId::new("e");
        for n_layers in 1..40 {
            for stages in 1..=n_layers {
                let placement = Placement::even(n_layers, stages, &engine).unwrap();
                let sizes: Vec<_> = placement.stages().iter().map(|s| s.layers.len()).collect();
                assert_eq!(sizes.iter().sum::<usize>(), n_layers);
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            }
            assert!(Placement::even(n_layers, n_layers + 1, &engine).is_err());
            assert!(Placement::even(n_layers, 0, &engine).is_err());
        }
    }

    #[test]
    fn counts_follow_each_other() {
        let placement = Placement::by_counts([("a", 3), ("b:1", 1), ("a", 2)]).unwrap();
        assert_eq!(placement.to_string(), "layers 0..3 on a → layers 3..4 on b:1 → layers 4..6 on a");
        assert_eq!(placement, " a=3, b:1 = 1,a=2".parse().unwrap());
        let none: [(&str, usize); 0] = [];
        assert!(Placement::by_counts(none).is_err());
        assert!(Placement::by_counts([("a", 1), ("b", 0)]).is_err());
        assert!(Placement::by_counts([("a", usize::MAX), ("b", 1)]).is_err());
        for text in ["", "a", "a=", "a=x", "a=-1", "a=1,", "a=1;b=2", "a=0", "a=99999999999999999999"] {
            let error = text.parse::<Placement>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PlacementInvalid, "{text}");
            assert!(error.message().contains("expected") && error.message().contains("found"), "{error}");
        }
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "placements of one stage")]
    fn gaps_and_overlaps_are_errors() {
        let stage = |layers| Stage { engine: EngineId::new("e"), layers };
        for ranges in
            [vec![0..2, 3..4], vec![0..2, 1..4], vec![1..4], vec![0..3], vec![0..5], vec![0..0, 0..4], vec![]]
        {
            let error = Placement::new(ranges.into_iter().map(stage).collect(), 4).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PlacementInvalid);
        }
    }
}
