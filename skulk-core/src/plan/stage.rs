//! What is a part of a placement? Layers and experts on a node, and what its device is to hold for them.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::backend::{own_engine, tag_of};
use super::cluster::NodeId;
use super::report::{Bytes, NodeReport};
use super::strictness::Strictness;
use crate::error::{Error, ErrorKind};
use crate::ids::EngineId;

/// A part of the model on one node: a contiguous range of layers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stage {
    /// The node that runs it.
    pub node: NodeId,
    /// The backend that runs it there, as in `mlx` or `skulk-cpu`; `None`: the node chooses.
    pub backend: Option<String>,
    /// The layers, by index within the model.
    pub layers: Range<usize>,
    /// What of these layers.
    pub part: Part,
}

/// What of its layers a stage has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Part {
    /// All of them.
    #[default]
    Whole,
    /// Of each tensor its share, as rank of so many.
    Tensor,
    /// All of them, for one of the two halves of classifier-free guidance.
    Cfg {
        /// The half.
        cfg_rank: usize,
        /// Halves.
        cfg_world_size: usize,
        /// The stage within the half.
        pipeline_rank: usize,
        /// Stages of the half.
        pipeline_world_size: usize,
    },
}

/// Experts of a range of layers on one node, away from the layers' attention. A dense feed-forward
/// block is expert 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertShard {
    /// The node that computes them.
    pub node: NodeId,
    /// The backend that computes them there.
    pub backend: Option<String>,
    /// The layers.
    pub layers: Range<usize>,
    /// The same experts of each of these layers.
    pub experts: Range<usize>,
    /// Experts that each of these layers has in all.
    pub n_experts: usize,
    /// Another node owns them; this one helps.
    pub replica: bool,
}

/// What a device of a placement is to hold, and what it may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Budget {
    /// The node.
    pub node: NodeId,
    /// The backend that runs on the device.
    pub backend: Option<String>,
    /// Bytes by kind.
    pub bytes: Bytes,
    /// Bytes that it may hold; of plans under [`Strictness::Force`] no fewer than it is to hold.
    pub usable: u64,
    /// What drafts there, whose bytes are among these.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub drafter: Option<Drafter>,
}

/// What a plan counts that drafts tokens ahead, on the device of the last stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Drafter {
    /// It is the head for tokens ahead (MTP) of the model's own checkpoint; else what
    /// [`draft_model`](crate::LoadOptions::draft_model) of loading names.
    pub mtp: bool,
    /// Bytes by kind.
    pub bytes: Bytes,
}

impl Budget {
    /// Of a planned device. Where memory is no reason to refuse, it may hold all that it is to hold.
    pub(super) fn new(report: &NodeReport, strictness: Strictness) -> Self {
        let NodeReport { node, backend, bytes, usable, drafter, .. } = report.clone();
        let least = if strictness == Strictness::Force { bytes.total() } else { 0 };
        Self { node, backend, bytes, usable: usable.max(least), drafter }
    }
}

impl Stage {
    /// Layers on an engine of this process.
    pub fn new(engine: &EngineId, layers: Range<usize>) -> Self {
        let backend = Some(tag_of(engine));
        Self { node: NodeId::new(NodeId::LOCAL), backend, layers, part: Part::Whole }
    }

    /// The engine of this library that runs it; `None` for other software's backends.
    pub fn engine(&self) -> Option<EngineId> {
        own_engine(self.backend.as_deref()?)
    }

    pub(crate) fn set_engine(&mut self, engine: &EngineId) {
        self.backend = Some(tag_of(engine));
    }
}

impl ExpertShard {
    /// All `n_experts` experts of layers, on an engine of a node; a dense feed-forward block is one expert.
    pub fn new(node: NodeId, engine: &EngineId, layers: Range<usize>, n_experts: usize) -> Self {
        Self { node, backend: Some(tag_of(engine)), layers, experts: 0..n_experts, n_experts, replica: false }
    }

    /// The same, of some of them.
    #[must_use]
    pub fn experts(self, experts: Range<usize>) -> Self {
        Self { experts, ..self }
    }

    /// The engine of this library that computes them; `None` for other software's backends.
    pub fn engine(&self) -> Option<EngineId> {
        own_engine(self.backend.as_deref()?)
    }
}

/// An error of a placement that cannot be, and what to do.
pub(super) fn invalid(message: impl Into<Cow<'static, str>>, hint: &'static str) -> Error {
    Error::new(ErrorKind::PlacementInvalid, message).with_hint(hint)
}
