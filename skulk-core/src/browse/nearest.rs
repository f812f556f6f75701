//! Which features answer to a residual? Those whose gate rows have the largest products with it.

use std::sync::PoisonError;

use serde::Serialize;

use super::top::Top;
use super::{VindexBrowser, get};
use crate::cancel::CancelToken;
use crate::engine::StepCx;
use crate::engine::backend::Backend;
use crate::engine::cpu::Cpu;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Checkpoint;

type Matrix = <Cpu as Backend>::Matrix;
type Buffer = <Cpu as Backend>::Buffer;

/// A feature, and the product of its gate row with a query.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FeatureHit {
    /// The layer.
    pub layer: usize,
    /// The feature's number in its layer; those of a mixture are numbered over all experts in their order.
    pub feature: usize,
    /// The product, before any activation.
    #[serde(serialize_with = "crate::wire::wide")]
    pub score: f32,
}

/// Scratch memory of one search.
pub(super) struct Room {
    query: Buffer,
    scores: Buffer,
    /// Scores that there is room for.
    capacity: usize,
    stream: <Cpu as Backend>::Stream,
    top: Top,
}

impl VindexBrowser {
    /// The `k` features of a layer whose products with `query`, `hidden_size` numbers, have the largest magnitude:
    /// the largest first, of equal ones the one with the lower number, as many as there are.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a query of another width or with infinite numbers or such as are none, and
    /// for a layer that the model does not have; [`ErrorKind::TensorMissing`] for one whose gate vectors the folder
    /// lacks; [`ErrorKind::CheckpointTruncated`] and [`ErrorKind::FileIo`] when the file has changed since opening.
    pub fn nearest(&self, layer: usize, query: &[f32], k: usize) -> Result<Vec<FeatureHit>> {
        self.nearest_in([layer], query, k, &CancelToken::new())
    }

    /// The same in each of some layers: `k` hits of the first, then those of the next. Looks at `cancel` before each.
    ///
    /// # Errors
    /// As [`nearest`](Self::nearest), and [`ErrorKind::Cancelled`].
    pub fn nearest_in(
        &self,
        layers: impl IntoIterator<Item = usize>,
        query: &[f32],
        k: usize,
        cancel: &CancelToken,
    ) -> Result<Vec<FeatureHit>> {
        // The first that there is not ends even a range without an end.
        let known = |layer| match self.num_features(layer) {
            0 => Err(self.reader.no_layer(layer)),
            _ => Ok(layer),
        };
        let layers: Vec<usize> = layers.into_iter().map(known).collect::<Result<_>>()?;
        let mut hits = Vec::new();
        self.scan(&layers, query, cancel, |layer, scores, top| {
            hits.reserve(k.min(scores.len()));
            top.of(scores, k, |feature, score| hits.push(FeatureHit { layer, feature, score }));
            Ok(())
        })?;
        Ok(hits)
    }

    /// The products of all features of a layer with `query`, into `out`, which takes
    /// [`num_features`](Self::num_features) numbers.
    ///
    /// # Errors
    /// As [`nearest`](Self::nearest), and [`ErrorKind::InvalidArgument`] for an `out` of another length.
    pub fn scores(&self, layer: usize, query: &[f32], out: &mut [f32]) -> Result<()> {
        self.scan(&[layer], query, &CancelToken::new(), |_, scores, _| {
            if out.len() != scores.len() {
                let message = format!("expected {} numbers, found {}", scores.len(), out.len());
                return Err(Error::new(ErrorKind::InvalidArgument, message)
                    .with("field", "out")
                    .with_hint("make room for one number for each feature"));
            }
            out.copy_from_slice(scores);
            Ok(())
        })
    }

    /// Features of a layer; 0 where it has none here.
    pub fn num_features(&self, layer: usize) -> usize {
        let entry = self.reader.index().layers.iter().find(|e| e.layer == layer);
        entry.map_or(0, |e| e.num_features)
    }

    /// Calls `each` with the scores of all features of each layer.
    fn scan(
        &self,
        layers: &[usize],
        query: &[f32],
        cancel: &CancelToken,
        mut each: impl FnMut(usize, &[f32], &mut Top) -> Result<()> + Send,
    ) -> Result<()> {
        self.expect_width("query", query.len())?;
        if !query.iter().all(|x| x.is_finite()) {
            return Err(Error::new(ErrorKind::InvalidArgument, "expected finite numbers, found others")
                .with("field", "query")
                .with_hint("give a residual or an embedding"));
        }
        let mut room = self.room()?;
        room.query.rows_mut(1).copy_from_slice(query);
        let mut search = || {
            let mut next = layers.iter().skip(1);
            for &layer in layers {
                cancel.check()?;
                let gates = self.gate(layer)?;
                if let Some(&next) = next.next() {
                    // Its pages are read meanwhile.
                    self.gate(next)?;
                }
                room.score(&self.cpu, gates)?;
                each(layer, room.scores.rows(1), &mut room.top)?;
            }
            Ok(())
        };
        let done = self.cpu.run(&StepCx::new(cancel), &mut search);
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner).push(room);
        done
    }

    /// Scratch memory, of an earlier search where there is some.
    fn room(&self) -> Result<Room> {
        if let Some(room) = self.rooms.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(room);
        }
        let (cpu, width) = (&self.cpu, self.reader.index().hidden_size);
        Ok(Room {
            query: cpu.buffer(1, width)?,
            scores: cpu.buffer(1, 0)?,
            capacity: 0,
            stream: cpu.stream(1, width)?,
            top: Top::default(),
        })
    }

    /// A layer's gate vectors, mapped.
    fn gate(&self, layer: usize) -> Result<&Matrix> {
        let load = || {
            let region = self.reader.gates(layer)?;
            if u32::try_from(region.rows()).is_err() {
                let message = format!("expected fewer than 2^32 features, found {}", region.rows());
                return Err(Error::new(ErrorKind::CheckpointInvalid, message)
                    .with("file", self.reader.path().display())
                    .with("layer", layer)
                    .with_hint("the folder is damaged or hostile: extract or fetch it again"));
            }
            self.cpu.matrix(region, None)
        };
        match self.gates.get(layer) {
            Some(cell) => get(cell, load),
            None => Err(self.reader.no_layer(layer)),
        }
    }
}

impl Room {
    fn score(&mut self, cpu: &Cpu, gates: &Matrix) -> Result<()> {
        let features = gates.n_out();
        if features > self.capacity {
            self.scores = cpu.buffer(1, features)?;
            self.capacity = features;
        }
        cpu.linear(&mut self.stream, &self.query, 1, &mut [(gates, &mut self.scores)])
    }
}
