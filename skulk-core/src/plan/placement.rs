//! What is a placement? Contiguous ranges of layers, each on an engine, covering the model once.

use std::fmt;
use std::ops::Range;

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
