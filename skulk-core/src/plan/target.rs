//! Where does a part of a model run? On an engine, of this process or of another node.

use std::fmt;
use std::ops::Range;

use super::backend::{can_name_an_engine, serves, tag_of};
use super::cluster::NodeId;
use super::stage::{ExpertShard, Part, Stage};
use crate::ids::EngineId;

/// An engine of a node. As text `engine`, of this process, or `engine@node`; llama.cpp's `CPU` is `cpu`.
///
/// ```
/// use skulk::plan::Target;
/// let target = Target::from("cpu@shed");
/// assert_eq!((target.engine.as_str(), target.node.as_str()), ("cpu", "shed"));
/// assert_eq!(Target::from("CPU").to_string(), "cpu");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// The node.
    pub node: NodeId,
    /// The engine.
    pub engine: EngineId,
}

impl From<&str> for Target {
    fn from(text: &str) -> Self {
        let (engine, node) = text.split_once('@').unwrap_or((text, NodeId::LOCAL));
        let (engine, node) = (engine.trim(), node.trim());
        let engine = if engine.eq_ignore_ascii_case("cpu") { "cpu" } else { engine };
        Self { node: NodeId::new(node), engine: EngineId::new(engine) }
    }
}

impl From<&EngineId> for Target {
    fn from(engine: &EngineId) -> Self {
        Self { node: NodeId::new(NodeId::LOCAL), engine: engine.clone() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node.as_str() {
            NodeId::LOCAL => write!(f, "{}", self.engine),
            node => write!(f, "{}@{node}", self.engine),
        }
    }
}

impl Target {
    pub(super) fn is_named(&self) -> bool {
        can_name_an_engine(self.engine.as_str()) && !self.node.as_str().is_empty()
    }

    /// Whether it is a backend of a node.
    pub(super) fn is_on(&self, node: &NodeId, backend: Option<&str>) -> bool {
        self.node == *node && backend.is_some_and(|backend| serves(backend, &tag_of(&self.engine)))
    }

    pub(super) fn stage(&self, layers: Range<usize>) -> Stage {
        Stage { node: self.node.clone(), backend: Some(tag_of(&self.engine)), layers, part: Part::Whole }
    }

    pub(super) fn shard(&self, layers: Range<usize>, experts: Range<usize>, n_experts: usize) -> ExpertShard {
        ExpertShard::new(self.node.clone(), &self.engine, layers, n_experts).experts(experts)
    }

    /// Whether it can compute blocks of a layer whose attention is there: as its own engine, as the CPU beside that, or on
    /// another node.
    pub(super) fn serves(&self, attention: &Self) -> bool {
        let engine = self.engine.as_str();
        // A name may mean an engine of a more precise id.
        self.node != attention.node || engine == "cpu" || attention.engine.as_str().starts_with(engine)
    }
}
