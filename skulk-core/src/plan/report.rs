//! Why is a plan as it is? What was considered and turned down, where the bytes go, what limits the
//! context, and how fast it should be.

use serde::{Deserialize, Serialize};

use super::cluster::{NodeId, Role};
use super::request::{Request, Sharding, Transport};
use super::stage::Drafter;
use super::strictness::Strictness;
use crate::card::ModelCard;
use crate::macros::closed_set;

closed_set! {
    /// A step of planning that can turn candidates down, in the order in which they are taken.
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Rule {
        /// Enough nodes are connected.
        Connected = "connected",
        /// None of them is excluded.
        Excluded = "excluded",
        /// Their roles and backends allow it.
        Eligible = "eligible",
        /// Their accelerators have the memory that the card asks for.
        MinVram = "min_vram",
        /// The engine can work over several nodes.
        SingleNodeEngine = "single_node_engine",
        /// Those that must be used are.
        Required = "required",
        /// Weights, keys and values fit.
        Memory = "memory",
        /// Tensors can be divided by the number of nodes.
        TensorDivisible = "tensor_divisible",
        /// The model can be split by layers.
        PipelineSupported = "pipeline_supported",
        /// As few nodes as possible.
        FewestNodes = "fewest_nodes",
        /// All are connected by RDMA.
        Rdma = "rdma",
        /// Nodes with a single neighbour first.
        LeafFirst = "leaf_first",
        /// The best of what is left.
        Best = "best",
        /// Layers can be shared out.
        Layers = "layers",
        /// Neighbours have addresses at which they reach each other.
        Hosts = "hosts",
    }
}

/// What a rule left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RuleReport {
    /// The rule.
    pub rule: Rule,
    /// Candidates before it.
    pub before: usize,
    /// Candidates that passed.
    pub after: usize,
    /// Those that it turned down, the first [`PlanReport::LISTED`] of them.
    pub rejected: Vec<Rejection>,
}

impl RuleReport {
    /// A rule with all that it turned down of so many.
    pub(super) fn new(rule: Rule, before: usize, mut rejected: Vec<Rejection>) -> Self {
        let after = before.saturating_sub(rejected.len());
        rejected.truncate(PlanReport::LISTED);
        Self { rule, before, after, rejected }
    }
}

/// A candidate that was turned down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Rejection {
    /// Its nodes, in rank order.
    pub nodes: Vec<NodeId>,
    /// Why, in numbers.
    pub reason: String,
}

/// Where the bytes of a node or device go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Bytes {
    /// Weights of attention, norms, embedding and head.
    pub attention: u64,
    /// Weights of feed-forward blocks and experts.
    pub feed_forward: u64,
    /// Keys and values.
    pub kv_cache: u64,
    /// Rows between layers, and what computing them takes.
    pub activations: u64,
    /// Kept free on top, as the strictness asks.
    pub headroom: u64,
}

impl std::ops::Add for Bytes {
    type Output = Self;

    /// Of several devices together.
    fn add(self, other: Self) -> Self {
        Self {
            attention: self.attention.saturating_add(other.attention),
            feed_forward: self.feed_forward.saturating_add(other.feed_forward),
            kv_cache: self.kv_cache.saturating_add(other.kv_cache),
            activations: self.activations.saturating_add(other.activations),
            headroom: self.headroom.saturating_add(other.headroom),
        }
    }
}

impl Bytes {
    /// Whether a part of them is no more than all, of each kind.
    pub(super) fn hold(&self, part: &Self) -> bool {
        part.attention <= self.attention
            && part.feed_forward <= self.feed_forward
            && part.kv_cache <= self.kv_cache
            && part.activations <= self.activations
            && part.headroom <= self.headroom
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        [self.attention, self.feed_forward, self.kv_cache, self.activations, self.headroom]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// What one node's device is to hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct NodeReport {
    /// The node.
    pub node: NodeId,
    /// Where it serves what is there, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its role.
    pub role: Role,
    /// The backend that runs on the device.
    pub backend: Option<String>,
    /// Whose memory it is, in words: the accelerator's name, or `main memory`.
    pub device: String,
    /// Layers whose attention is there; empty when it has none.
    pub layers: std::ops::Range<usize>,
    /// Feed-forward blocks and experts there.
    pub experts: usize,
    /// What it is to hold.
    pub bytes: Bytes,
    /// What it may hold.
    pub usable: u64,
    /// Feed-forward blocks and experts that stay on its disk until they are needed.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub on_disk: u64,
    /// What drafts there, whose bytes are among those that it is to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafter: Option<Drafter>,
    /// Seconds that it computes for each token.
    pub seconds_per_token: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde passes it")]
fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

impl NodeReport {
    /// Bytes beyond what it may hold.
    pub fn over(&self) -> u64 {
        self.bytes.total().saturating_sub(self.usable)
    }
}

/// What the context is limited to, and by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ContextCeiling {
    /// Tokens; `None`: nothing is known that limits it.
    pub tokens: Option<u64>,
    /// What limits it.
    pub limited_by: ContextLimit,
}

/// What limits a context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContextLimit {
    /// Nothing that is known.
    Nothing,
    /// What the model was trained for.
    Model,
    /// The card's `max_context_tokens`.
    Card,
    /// What llama.cpp is started with.
    LlamaCpp,
    /// This node's memory.
    Memory(NodeId),
}

/// How fast a placement should be: a token of each session.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Estimate {
    /// Tokens a second, of all sessions together.
    pub tokens_per_second: f64,
    /// Seconds a token for reading weights, keys and values where attention is.
    pub attention_seconds: f64,
    /// Seconds a token for reading feed-forward blocks and experts.
    pub feed_forward_seconds: f64,
    /// Seconds a token between stages.
    pub hop_seconds: f64,
    /// Seconds a token between stages and the owners of their feed-forward blocks and experts.
    pub fan_out_seconds: f64,
    /// Seconds that a draft takes beside that of each session, where something drafts that the request counts; else 0.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub draft_seconds: f64,
}

impl Estimate {
    /// Seconds a token, without drafts.
    pub(super) fn seconds(&self) -> f64 {
        let Self { attention_seconds, feed_forward_seconds, hop_seconds, fan_out_seconds, .. } = self;
        attention_seconds + feed_forward_seconds + hop_seconds + fan_out_seconds
    }
}

/// How long a prompt should take.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PromptEstimate {
    /// Its tokens.
    pub tokens: u64,
    /// Seconds until the first token of the answer is known.
    pub seconds: f64,
    /// Seconds of these between stages, and between them and the owners of their feed-forward blocks and experts.
    pub link_seconds: f64,
}

/// Whether drafting tokens ahead should pay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Speculation {
    /// It should.
    pub on: bool,
    /// Why, or why not.
    pub reason: String,
}

/// A placement that was considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Candidate {
    /// Its nodes, in rank order.
    pub nodes: Vec<NodeId>,
    /// How it is arranged, in words.
    pub arrangement: String,
    /// How fast it should be, where the planner estimates that.
    pub estimate: Option<Estimate>,
    /// It was chosen.
    pub chosen: bool,
    /// Why it was chosen, or what was better.
    pub reason: String,
}

/// Why a plan is as it is, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PlanReport {
    /// The model.
    pub model_id: String,
    /// Bytes of its weights.
    pub weights: u64,
    /// They were counted in a checkpoint; else the card's size was divided.
    pub exact: bool,
    /// What was guessed of the model, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guessed: Vec<String>,
    /// What was fixed by hand, a rule each, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<String>,
    /// How it was to be split.
    pub sharding: Sharding,
    /// How nodes were to talk.
    pub transport: Transport,
    /// How careful the plan is.
    pub strictness: Strictness,
    /// Tokens for which keys and values are reserved.
    pub context_tokens: u64,
    /// Nodes of the cluster.
    pub cluster_nodes: usize,
    /// The rules that were applied, in order.
    pub rules: Vec<RuleReport>,
    /// Placements that were compared, the chosen one first; at most [`LISTED`](Self::LISTED).
    pub candidates: Vec<Candidate>,
    /// What each device of the chosen placement holds; of a refusal, of what came closest.
    pub nodes: Vec<NodeReport>,
    /// What the context is limited to.
    pub context: ContextCeiling,
    /// How fast it should be.
    pub estimate: Option<Estimate>,
    /// How long the prompt should take that was asked for.
    #[serde(default)]
    pub prompt: Option<PromptEstimate>,
    /// What is worth knowing: links that take most of the time, devices whose speed is not known, excluded nodes that are not
    /// there, owners for which there is no room.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Whether drafting should pay.
    pub speculation: Option<Speculation>,
    /// The rule that left nothing, and what it found; `None`: there is a placement.
    pub refused: Option<Refusal>,
    /// What would make it fit.
    pub would_fit: Vec<String>,
}

/// Why there is no placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Refusal {
    /// The rule that left nothing.
    pub rule: Rule,
    /// What it found.
    pub message: String,
    /// Nodes have not reported yet: asking again shortly may help.
    pub pending: bool,
}

impl PlanReport {
    /// What a card and a request say of a cluster of these nodes, before anything is planned.
    pub(super) fn new(
        card: &ModelCard,
        request: &Request,
        nodes: &[&NodeId],
        rules: Vec<RuleReport>,
        context: ContextCeiling,
    ) -> Self {
        let unknown = request.excluded_nodes.iter().filter(|id| !nodes.contains(id)).take(Self::LISTED);
        let warnings = unknown.map(|id| format!("`{id}`, which is excluded, is no node of the cluster"));
        Self {
            model_id: card.model_id.clone(),
            weights: card.storage_size.in_bytes,
            exact: false,
            guessed: Vec::new(),
            fixed: request.fixed.iter().flat_map(|fixed| fixed.rules()).map(ToString::to_string).collect(),
            sharding: request.sharding,
            transport: request.transport,
            strictness: request.strictness,
            context_tokens: request.context_tokens,
            cluster_nodes: nodes.len(),
            rules,
            candidates: Vec::new(),
            nodes: Vec::new(),
            context,
            estimate: None,
            prompt: None,
            warnings: warnings.collect(),
            speculation: None,
            refused: None,
            would_fit: Vec::new(),
        }
    }

    /// Rejections and candidates that a report lists at most, for each rule.
    pub const LISTED: usize = 16;
}
