//! What is asked of a plan?

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::builder::PlacementBuilder;
use super::cluster::NodeId;
use super::inventory::Inventory;
use super::strictness::Strictness;
use crate::kv_type::KvTypes;
use crate::macros::{closed_set, setters};

closed_set! {
    /// How a model is split.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Sharding {
        /// By layers: each node has some.
        #[default]
        #[serde(alias = "Pipeline")]
        Pipeline = "pipeline",
        /// By tensors: each node has a part of every layer.
        #[serde(alias = "Tensor")]
        Tensor = "tensor",
    }
}

closed_set! {
    /// How the nodes of a placement talk. JSON may have Skulk 1.3's spelling, as in `MlxRing`.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Transport {
        /// The coordinator, which has the first stage, talks to each of the others: this library's own way.
        #[default]
        #[serde(alias = "Direct")]
        Direct = "direct",
        /// In a ring of sockets, as MLX does.
        #[serde(alias = "MlxRing")]
        MlxRing = "mlx_ring",
        /// Each with each by RDMA, as MLX does.
        #[serde(alias = "MlxJaccl")]
        MlxJaccl = "mlx_jaccl",
    }
}

/// What a plan shall do. [`Default`] asks for the fastest placement with a context of 8,192 tokens.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// How the model is split.
    pub sharding: Sharding,
    /// How its nodes talk.
    pub transport: Transport,
    /// Nodes to use at least.
    pub min_nodes: usize,
    /// Nodes that must be used.
    pub required_nodes: BTreeSet<NodeId>,
    /// Nodes that must not.
    pub excluded_nodes: BTreeSet<NodeId>,
    /// The node that holds the conversation and the first stage; `None`: the planner chooses. Only for
    /// [`Transport::Direct`].
    pub coordinator: Option<NodeId>,
    /// Tokens for which keys and values are reserved, of each session. With [`Transport::Direct`] no more than the model was
    /// trained for and its card allows, as in loading.
    pub context_tokens: u64,
    /// Tokens of the prompt whose time is estimated, no more than the context has.
    pub prompt_tokens: u64,
    /// Sessions that generate at once, each of which has its keys and values. Only for [`Transport::Direct`].
    pub sessions: usize,
    /// How keys and values are kept, which MLX does in F16. `None`: in two bytes an element, of what the engines
    /// [prefer](crate::LoadOptions::kv).
    pub kv: Option<KvTypes>,
    /// How careful it is with memory.
    pub strictness: Strictness,
    /// Feed-forward blocks and experts that fit in no memory may stay on the coordinator's disk, and be read when they are
    /// needed. Only for [`Transport::Direct`].
    pub from_disk: bool,
    /// Owners that each block and expert on another node than its layer's attention gets beside its first, where there is
    /// room on further nodes. The report warns where some have fewer.
    pub replicas: usize,
    /// The model's tensors, where a checkpoint is at hand; else the card's size is divided.
    pub inventory: Option<Arc<Inventory>>,
    /// The head for tokens ahead (MTP) that the checkpoint has drafts, as with [`mtp`](crate::LoadOptions::mtp) of loading:
    /// the device of the last stage has memory for it. Only for [`Transport::Direct`].
    pub mtp: bool,
    /// What drafts instead, as with [`draft_model`](crate::LoadOptions::draft_model) of loading:
    /// [counted](Inventory::from_draft_model) in its checkpoint, or of its [card](Inventory::from_card).
    pub draft_model: Option<Arc<Inventory>>,
    /// What is fixed by hand: its layers, blocks and experts stay where rules have them, and the planner places what no
    /// rule names, blocks of layers that rules name among it. Places are engines of the cluster's nodes, as `wgpu@shed`. A
    /// device has one run of layers, with what lies between two that rules give it. Only for [`Transport::Direct`].
    pub fixed: Option<Arc<PlacementBuilder>>,
    /// Rings to consider, in this order and no others; `None`: those the planner finds. Not for
    /// [`Transport::Direct`].
    pub rings: Option<Vec<Vec<NodeId>>>,
    /// The port on which nodes listen.
    pub port: u16,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            sharding: Sharding::default(),
            transport: Transport::default(),
            min_nodes: 1,
            required_nodes: BTreeSet::new(),
            excluded_nodes: BTreeSet::new(),
            coordinator: None,
            context_tokens: 8192,
            prompt_tokens: 512,
            sessions: 1,
            kv: None,
            strictness: Strictness::default(),
            from_disk: false,
            replicas: 0,
            inventory: None,
            mtp: false,
            draft_model: None,
            fixed: None,
            rings: None,
            port: 50_000,
        }
    }
}

impl Request {
    /// How keys and values are kept, or would be as short.
    pub(super) fn kept(&self) -> KvTypes {
        self.kv.unwrap_or_default()
    }

    /// Uses this node in any case.
    #[must_use]
    pub fn require(mut self, node: impl Into<NodeId>) -> Self {
        self.required_nodes.insert(node.into());
        self
    }

    /// Does not use this node.
    #[must_use]
    pub fn exclude(mut self, node: impl Into<NodeId>) -> Self {
        self.excluded_nodes.insert(node.into());
        self
    }
}

setters!(Request {
    /// Splits like this.
    sharding: Sharding;
    /// Talks like this.
    transport: Transport;
    /// Uses at least so many nodes.
    min_nodes: usize;
    /// Has the conversation on this node.
    coordinator: impl Into<NodeId> => Some(coordinator.into());
    /// Reserves keys and values of so many tokens.
    context_tokens: u64;
    /// Estimates the time of a prompt of so many tokens.
    prompt_tokens: u64;
    /// Has so many sessions at once.
    sessions: usize;
    /// Keeps keys and values like this.
    kv: impl Into<KvTypes> => Some(kv.into());
    /// Is as careful with memory as this.
    strictness: Strictness;
    /// Leaves on disk what fits in no memory, or refuses it.
    from_disk: bool;
    /// Gives each expert so many more owners.
    replicas: usize;
    /// Counts a checkpoint's own bytes.
    inventory: Inventory => Some(Arc::new(inventory));
    /// Counts the checkpoint's head for tokens ahead, or not.
    mtp: bool;
    /// Counts what drafts.
    draft_model: Inventory => Some(Arc::new(draft_model));
    /// Leaves what these rules name where they have it.
    fixed: PlacementBuilder => Some(Arc::new(fixed));
});
