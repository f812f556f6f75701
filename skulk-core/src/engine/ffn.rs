//! Who computes feed-forward blocks away from their layer's attention? Services, which know no sequences, and the plan
//! that says which service computes what.
//!
//! A dense block is expert 0 of its layer, which every row takes. What a service gives for a row and an expert does not
//! depend on other rows and experts, nor on what was asked before, so that a job can be repeated, and given to another
//! service that has the same weights.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::{FfnMemory, StepCx};
use crate::arch::{ArchSpec, LayerSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::LayerIdx;

/// A place that computes feed-forward blocks and experts: the CPU beside a device, or another machine.
///
/// Wrappers are services, too: one that asks a second service where the first one fails, or one that measures.
pub trait FfnService: Send + Sync {
    /// What it is, in words.
    fn name(&self) -> &str;

    /// The experts of a layer that it computes; none: an empty range.
    fn serves(&self, layer: LayerIdx) -> Range<usize>;

    /// How precisely it computes, in words: two services that say the same, as `cpu, fast`, give the same bits for the
    /// same weights.
    fn computes(&self) -> String;

    /// Whether jobs need [`FfnJob::residual`].
    fn wants_residual(&self) -> bool {
        false
    }

    /// By layer a hash of its block's weights, as far as it knows: of two services that have the same layer's here and say
    /// otherwise, the results differ.
    fn weights(&self) -> Vec<(LayerIdx, String)> {
        Vec::new()
    }

    /// What is in memory of the weights it has in this process, where there is a budget for them.
    fn memory(&self) -> Option<FfnMemory> {
        None
    }

    /// A line to it, with which whoever computes layers asks for one job after the other. Lines are for jobs of up to
    /// `max_rows` rows.
    ///
    /// # Errors
    /// What keeps the service from taking jobs.
    fn line(&self, max_rows: usize) -> Result<Box<dyn FfnLine>>;
}

/// A line to a [service](FfnService), which has one job at a time. Dropping it gives up the job.
pub trait FfnLine: Send {
    /// Begins a job, and takes what it needs of it. A job that was begun before and not waited for is given up.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a job that the service cannot have; what keeps it from beginning; as
    /// [`StepCx::check`].
    fn begin(&mut self, job: &FfnJob<'_>, cx: &StepCx<'_>) -> Result<()>;

    /// Waits for the job that was begun, at most until then; whether [`wait`](Self::wait) has no more to wait for. It
    /// stays begun. For whoever can ask somebody else meanwhile; a line that computes in `wait` is always ready.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    fn ready(&mut self, until: Instant, cx: &StepCx<'_>) -> Result<bool> {
        let _ = until;
        cx.check().map(|()| true)
    }

    /// Waits for the job that was begun. `out` takes `[pairs, hidden]`, a row for each pair of the job: what the expert
    /// makes of the row; or for a job of [sums](FfnJob::sums) `[rows, hidden]`.
    ///
    /// # Errors
    /// What the service reports, and never numbers that it has not computed; as [`StepCx::check`], at once when the
    /// token is cancelled or the deadline passes. The next job can be begun in any case.
    fn wait(&mut self, out: &mut [f32], cx: &StepCx<'_>) -> Result<()>;
}

/// What a service is to compute: experts of one layer, each for some rows.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FfnJob<'a> {
    /// The layer.
    pub layer: LayerIdx,
    /// Elements of a row.
    pub hidden: usize,
    /// What the layer's block takes, behind its norm: `[rows, hidden]`; empty where the service shall
    /// [norm](Self::of_residual) rows itself.
    pub input: &'a [f32],
    /// The same rows before that norm, for services that [want](FfnService::wants_residual) them or shall norm them;
    /// otherwise empty.
    pub residual: &'a [f32],
    /// Which experts compute which rows.
    pub pairs: &'a [FfnPair],
    /// Of each row the sum of its results is wanted, each times its weight and in the pairs' order, beginning with 0.
    pub sums: bool,
}

impl<'a> FfnJob<'a> {
    /// A job of rows behind the block's norm.
    pub fn new(layer: LayerIdx, hidden: usize, input: &'a [f32], pairs: &'a [FfnPair]) -> Self {
        Self { layer, hidden, input, residual: &[], pairs, sums: false }
    }

    /// A job of rows before the block's norm, or of experts that norm them [apart](crate::arch::ExpertsSpec::apart)
    /// before that one: who computes them norms them first, as the layer does.
    pub fn of_residual(layer: LayerIdx, hidden: usize, residual: &'a [f32], pairs: &'a [FfnPair]) -> Self {
        Self { layer, hidden, input: &[], residual, pairs, sums: false }
    }

    /// With the rows before that norm.
    #[must_use]
    pub fn residual(self, residual: &'a [f32]) -> Self {
        Self { residual, ..self }
    }

    /// With sums in place of single results. Each row shall have as many pairs as the others, one behind the other.
    #[must_use]
    pub fn sums(self) -> Self {
        Self { sums: true, ..self }
    }

    /// Rows of `[rows, hidden]` that it gives.
    pub fn results(&self) -> usize {
        if self.sums { self.rows() } else { self.pairs.len() }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.given().len().checked_div(self.hidden).unwrap_or(0)
    }

    /// Whether rows are yet to be normed.
    pub fn is_of_residual(&self) -> bool {
        self.input.is_empty() && !self.residual.is_empty()
    }

    /// The rows that it is computed from.
    pub(crate) fn given(&self) -> &'a [f32] {
        if self.input.is_empty() { self.residual } else { self.input }
    }

    /// `Ok` for a job of whole rows, whose pairs are of these rows and experts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`].
    pub fn check(&self, hidden: usize, experts: &Range<usize>) -> Result<()> {
        let rows = self.rows();
        let expected = |what: &str, expected: String, found: String| {
            Err(Error::new(ErrorKind::InvalidArgument, format!("expected {what} {expected}, found {found}"))
                .with("layer", self.layer)
                .with_hint("ask a service for what it serves, in rows of the model's width"))
        };
        let given = self.given().len();
        if self.hidden != hidden || given != rows * hidden {
            let found = format!("{given} numbers in rows of {}", self.hidden);
            return expected("whole rows of", hidden.to_string(), found);
        }
        let each = self.pairs.len().checked_div(rows).unwrap_or(0);
        let sorted = |(at, pair): (usize, &FfnPair)| Some(pair.row as usize) == at.checked_div(each);
        if self.sums && !(self.pairs.len() == rows * each && self.pairs.iter().enumerate().all(sorted)) {
            return expected("sums of", "rows in order, with as many pairs each".into(), "others".into());
        }
        let wrong = self
            .pairs
            .iter()
            .find(|pair| pair.row as usize >= rows || !experts.contains(&(pair.expert as usize)));
        match wrong {
            None => Ok(()),
            Some(FfnPair { row, expert, .. }) => expected(
                "pairs of",
                format!("{rows} rows and experts {} to {}", experts.start, experts.end),
                format!("row {row} and expert {expert}"),
            ),
        }
    }
}

/// A row and an expert that computes it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FfnPair {
    /// The row, from 0 on.
    pub row: u32,
    /// The expert, by its index in the layer; a dense block is expert 0.
    pub expert: u32,
    /// The weight with which the row takes the expert. It multiplies results where [sums](FfnJob::sums) are wanted; of
    /// models whose experts get weighted rows it multiplies these instead, in any job.
    pub weight: f32,
}

impl FfnPair {
    /// A row and an expert that it takes with this weight.
    pub const fn new(row: u32, expert: u32, weight: f32) -> Self {
        Self { row, expert, weight }
    }
}

/// Who computes which feed-forward blocks and experts, beside the engine that has their layers' attention. What the plan
/// does not name that engine computes itself.
#[derive(Clone, Default)]
pub struct FfnPlan {
    shares: Vec<FfnShare>,
}

/// The same experts of some layers, and who computes them.
#[derive(Clone)]
#[non_exhaustive]
pub struct FfnShare {
    /// The layers, by index within the model.
    pub layers: Range<usize>,
    /// The experts of each of them; a dense block is expert 0.
    pub experts: Range<usize>,
    /// Who computes them.
    pub service: Arc<dyn FfnService>,
}

impl fmt::Debug for FfnShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layers, experts, service } = self;
        write!(f, "experts {experts:?} of layers {layers:?} on {}", service.name())
    }
}

impl fmt::Debug for FfnPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.shares).finish()
    }
}

/// Experts of a layer's block.
pub(crate) fn experts_of(layer: &LayerSpec) -> usize {
    match layer.ffn.experts {
        _ if layer.ffn.is_absent() => 0,
        Some(experts) => experts.n_experts,
        None => 1,
    }
}

impl FfnPlan {
    /// The engine computes all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `service` compute these experts of each of these layers.
    #[must_use]
    pub fn share(
        mut self,
        layers: Range<usize>,
        experts: Range<usize>,
        service: Arc<dyn FfnService>,
    ) -> Self {
        self.shares.push(FfnShare { layers, experts, service });
        self
    }

    /// What services compute.
    pub fn shares(&self) -> &[FfnShare] {
        &self.shares
    }

    /// What services compute of one layer.
    pub(crate) fn of(&self, layer: usize) -> impl Iterator<Item = &FfnShare> {
        self.shares.iter().filter(move |share| share.layers.contains(&layer))
    }

    /// Whether a service computes this expert of a layer.
    pub(crate) fn has(&self, layer: usize, expert: usize) -> bool {
        self.of(layer).any(|share| share.experts.contains(&expert))
    }

    /// `Ok` where each expert has at most one service, which serves it, of these layers of a model.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`].
    pub(crate) fn check(&self, arch: &ArchSpec, layers: Range<usize>) -> Result<()> {
        let invalid = |layer: usize, share: &FfnShare, found: String| {
            Err(Error::new(ErrorKind::PlacementInvalid, found)
                .with("layer", layer)
                .with("service", share.service.name())
                .with_hint("give each expert of a layer to one service, which serves it, or to none"))
        };
        for layer in layers {
            let n = experts_of(&arch.layers[layer]);
            for (at, share) in self.of(layer).enumerate() {
                let (own, served) = (&share.experts, share.service.serves(LayerIdx(layer)));
                if own.is_empty() || own.end > n {
                    let found = format!("expected some of {n} experts, found {} to {}", own.start, own.end);
                    return invalid(layer, share, found);
                }
                if own.start < served.start || own.end > served.end {
                    let found = format!(
                        "expected experts that the service has, {} to {}, found {} to {}",
                        served.start, served.end, own.start, own.end
                    );
                    return invalid(layer, share, found);
                }
                let twice = |other: &FfnShare| own.start < other.experts.end && other.experts.start < own.end;
                if self.of(layer).take(at).any(twice) {
                    let found = format!(
                        "expected each expert once, found some of {} to {} twice",
                        own.start, own.end
                    );
                    return invalid(layer, share, found);
                }
            }
        }
        Ok(())
    }
}
