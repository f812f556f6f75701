//! Which fields do placements have in JSON? The reference's instances and shards, and this library's own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::{CFG, PIPELINE, TENSOR};
use crate::card::ModelCard;
use crate::kv_type::KvType;
use crate::plan::cluster::NodeId;
use crate::plan::instance::Host;
use crate::plan::report::Bytes;
use crate::plan::stage::{Budget, Drafter, ExpertShard, Part};
use crate::strict::{Bounds, FaultKind, Fields, Leaf, Reader, Section, Step, Tree, has_field, read_fields};

/// Layers, ranks and experts that a placement may have when it comes from elsewhere.
pub(super) const LARGEST: u64 = 65_536;
/// Where all 64 bits may be.
const ALL: u64 = u64::MAX;

/// Objects of the format: what writes one reads it.
macro_rules! wire {
    ($($(#[doc = $doc:literal])* struct $name:ident $(where $rules:path)? {
        $($(#[$meta:meta])* $field:ident: $type:ty $(, min $min:literal)? $(, max $max:expr)?;)*
    })*) => {$(
        $(#[doc = $doc])*
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        pub(super) struct $name { $($(#[$meta])* pub(super) $field: $type,)* }
        read_fields! { $name $(where $rules)? { $($field: $type $(, min $min)? $(, max $max)?;)* } }
    )*};
}

wire! {
    struct Ring {
        instance_id: String, min 1;
        shard_assignments: Assignments;
        context_token_limit: Option<u64>, max ALL;
        hosts_by_node: BTreeMap<NodeId, Vec<Host>>;
        ephemeral_port: u16;
    }
    struct Jaccl {
        instance_id: String, min 1;
        shard_assignments: Assignments;
        context_token_limit: Option<u64>, max ALL;
        jaccl_devices: Vec<Vec<Option<String>>>;
        jaccl_coordinators: BTreeMap<NodeId, String>;
    }
    struct Direct {
        instance_id: String, min 1;
        model_id: Given<String>, min 1;
        model_card: Given<Card>;
        n_layers: usize, max LARGEST;
        coordinator: NodeId;
        stages: Vec<PlacedShard>;
        experts: Vec<Experts>;
        context_tokens: Option<u64>, max ALL;
        #[serde(skip_serializing_if = "Option::is_none")]
        sessions: Option<usize>, max LARGEST;
        #[serde(skip_serializing_if = "Option::is_none")]
        keys: Option<KvType>;
        #[serde(skip_serializing_if = "Option::is_none")]
        values: Option<KvType>;
        context_token_limit: Option<u64>, max ALL;
        budgets: Vec<BudgetOf>;
        #[serde(skip_serializing_if = "Option::is_none")]
        ffn_budget: Option<u64>, max ALL;
        #[serde(skip_serializing_if = "Option::is_none")]
        weights: Option<u64>, max ALL;
        #[serde(skip_serializing_if = "Option::is_none")]
        addresses: Option<BTreeMap<NodeId, String>>, min 1;
    }
    /// What the reference's instances have in common.
    struct Assignments {
        model_id: Given<String>, min 1;
        runner_to_shard: BTreeMap<String, Shard<true>>;
        node_to_runner: BTreeMap<NodeId, String>, min 1;
    }
    struct PlacedShard {
        node: NodeId;
        shard: Shard<false>;
    }
    /// Experts away from their layers' attention.
    struct Experts {
        node: NodeId;
        resolved_backend: Option<String>, min 1;
        start_layer: usize, max LARGEST;
        end_layer: usize, max LARGEST;
        start_expert: usize, max LARGEST;
        end_expert: usize, max LARGEST;
        n_experts: usize, max LARGEST;
        replica: bool;
    }
    struct BudgetOf {
        node: NodeId;
        backend: Option<String>, min 1;
        usable: u64, max ALL;
        bytes: Bytes;
        #[serde(skip_serializing_if = "Option::is_none")]
        drafter: Option<Drafter>;
    }
    /// A part of a model, as the reference places it.
    struct Rank where nothing_for_tests {
        device_rank: usize, max LARGEST;
        world_size: usize, max LARGEST;
        resolved_backend: Option<String>, min 1;
        // Both are for tests of the reference: what they ask for, nothing here does.
        immediate_exception: Option<bool>;
        should_timeout: Option<Never>;
        start_layer: usize, max LARGEST;
        end_layer: usize, max LARGEST;
        n_layers: usize, max LARGEST;
    }
    /// Its place in a half of classifier-free guidance.
    struct CfgRank {
        cfg_rank: usize, max LARGEST;
        cfg_world_size: Option<usize>, max LARGEST;
        pipeline_rank: usize, max LARGEST;
        pipeline_world_size: usize, max LARGEST;
    }
}

read_fields! { Host { ip: String; port: u16; } }

read_fields! { Drafter { mtp: bool; bytes: Bytes; } }

read_fields! {
    Bytes {
        attention: u64, max ALL;
        feed_forward: u64, max ALL;
        kv_cache: u64, max ALL;
        activations: u64, max ALL;
        headroom: u64, max ALL;
    }
}

fn nothing_for_tests<'a>(fields: &Fields<'a>, reader: &mut Reader<'a>) {
    if fields.get("immediate_exception") == Some(&Tree::Bool(true)) {
        fields.fault("immediate_exception", FaultKind::Value, "false", reader);
    }
}

/// A shard of the reference; its card stands beside it `WITH_CARD`, else elsewhere.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShardFields<const WITH_CARD: bool> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_card: Option<Given<Card>>,
    #[serde(flatten)]
    pub(super) rank: Rank,
    #[serde(flatten)]
    pub(super) cfg: Option<CfgRank>,
}

/// The same with its tag, which may be missing where it is read.
#[derive(Serialize)]
pub(super) enum Shard<const WITH_CARD: bool> {
    #[serde(rename = "PipelineShardMetadata")]
    Pipeline(ShardFields<WITH_CARD>),
    #[serde(rename = "TensorShardMetadata")]
    Tensor(ShardFields<WITH_CARD>),
    #[serde(rename = "CfgShardMetadata")]
    Cfg(ShardFields<WITH_CARD>),
}

impl<const WITH_CARD: bool> Leaf for Shard<WITH_CARD> {
    fn read<'a>(tree: &'a Tree, _: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        match tagged(tree, &[PIPELINE, TENSOR, CFG]) {
            None => Self::untagged(None, tree, reader),
            Some((tag, tree)) => {
                reader.inside(Step::Field(tag, 0), |reader| Self::untagged(Some(tag), tree, reader))
            }
        }
    }
}

impl<const WITH_CARD: bool> Shard<WITH_CARD> {
    fn untagged<'a>(tag: Option<&str>, tree: &'a Tree, reader: &mut Reader<'a>) -> Option<Self> {
        const CARD: &[&str] = &["model_card"];
        let halved = tag.map_or_else(|| has_field(tree, "cfg_rank"), |tag| tag == CFG);
        let parts = [(WITH_CARD, CARD), (true, Rank::FIELDS), (halved, CfgRank::FIELDS)];
        let names = parts.iter().filter(|(has, _)| *has).flat_map(|(_, names)| *names);
        let fields = reader.fields(tree, &names.copied().collect::<Vec<_>>())?;
        let model_card = WITH_CARD.then(|| fields.read("model_card", Bounds::default(), None, reader));
        let rank = Rank::of(&fields, reader);
        let cfg = halved.then(|| CfgRank::of(&fields, reader));
        let fields = ShardFields {
            model_card: model_card.map_or(Some(None), |card| card.map(Some))?,
            rank: rank?,
            cfg: cfg.map_or(Some(None), |cfg| cfg.map(Some))?,
        };
        // Without a tag: no stage of several has all layers, and all shares of tensors do.
        let all = fields.rank.world_size > 1 && fields.rank.layers() == (0..fields.rank.n_layers);
        Some(match tag {
            _ if halved => Self::Cfg(fields),
            Some(TENSOR) => Self::Tensor(fields),
            None if all => Self::Tensor(fields),
            _ => Self::Pipeline(fields),
        })
    }

    pub(super) fn fields(&self) -> &ShardFields<WITH_CARD> {
        let (Self::Pipeline(fields) | Self::Tensor(fields) | Self::Cfg(fields)) = self;
        fields
    }

    pub(super) fn part(&self) -> Part {
        match (self, &self.fields().cfg) {
            (Self::Tensor(_), _) => Part::Tensor,
            (_, &Some(CfgRank { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size })) => {
                let cfg_world_size = cfg_world_size.unwrap_or(2);
                Part::Cfg { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size }
            }
            _ => Part::Whole,
        }
    }
}

impl Rank {
    pub(super) fn layers(&self) -> Range<usize> {
        self.start_layer..self.end_layer
    }
}

/// What stands under the only key, where that is one of these tags.
pub(super) fn tagged<'a>(tree: &'a Tree, tags: &[&'static str]) -> Option<(&'static str, &'a Tree)> {
    let Tree::Table(entries) = tree else { return None };
    let [(key, value)] = &entries[..] else { return None };
    Some((tags.iter().copied().find(|tag| tag == key)?, value))
}

/// A field that must be there, but may be `null`.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Given<T>(pub(super) Option<T>);

impl<T: Leaf> Leaf for Given<T> {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        Option::<T>::read(tree, bounds, reader).map(Self)
    }
}

impl Leaf for KvType {
    fn read<'a>(tree: &'a Tree, _: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        reader.name(tree, KvType::ALL, KvType::as_str)
    }
}

impl Leaf for NodeId {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        String::read(tree, Bounds { least: Some(1), ..bounds }, reader).map(Self::new)
    }
}

/// No value but `null` may be here.
#[derive(Serialize)]
pub(super) enum Never {}

impl Leaf for Never {
    fn read<'a>(tree: &'a Tree, _: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        reader.fault(FaultKind::Value, tree.show(), "null");
        None
    }
}

/// A card as the reference takes it: without unset fields that Skulk 1.3 does not know and would refuse.
#[derive(Clone, PartialEq)]
pub(super) struct Card(pub(super) Arc<ModelCard>);

impl Serialize for Card {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut card = self.0.to_camel_tree();
        let Tree::Table(fields) = &mut card else { return card.serialize(serializer) };
        fields.retain(|(name, value)| !(name == "facts" && *value == Tree::Null));
        for (name, section) in fields {
            if let (Tree::Table(fields), "runtime") = (section, name.as_str()) {
                fields.retain(|(key, value)| !(key.starts_with("servedSpec") && *value == Tree::Null));
            }
        }
        card.serialize(serializer)
    }
}

impl Leaf for Card {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        ModelCard::read(tree, bounds, reader).map(|card| Self(Arc::new(card.complete())))
    }
}

impl From<&ExpertShard> for Experts {
    fn from(shard: &ExpertShard) -> Self {
        let ExpertShard { node, backend, layers, experts, n_experts, replica } = shard.clone();
        Self {
            node,
            resolved_backend: backend,
            start_layer: layers.start,
            end_layer: layers.end,
            start_expert: experts.start,
            end_expert: experts.end,
            n_experts,
            replica,
        }
    }
}

impl From<Experts> for ExpertShard {
    fn from(read: Experts) -> Self {
        Self {
            node: read.node,
            backend: read.resolved_backend,
            layers: read.start_layer..read.end_layer,
            experts: read.start_expert..read.end_expert,
            n_experts: read.n_experts,
            replica: read.replica,
        }
    }
}

impl From<&Budget> for BudgetOf {
    fn from(budget: &Budget) -> Self {
        let Budget { node, backend, bytes, usable, drafter } = budget.clone();
        Self { node, backend, usable, bytes, drafter }
    }
}

impl From<BudgetOf> for Budget {
    fn from(BudgetOf { node, backend, usable, bytes, drafter }: BudgetOf) -> Self {
        Self { node, backend, bytes, usable, drafter }
    }
}
