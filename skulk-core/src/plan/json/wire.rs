//! Which fields do placements have in JSON? The reference's instances and shards, and this library's own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::{CFG, PIPELINE, TENSOR};
use crate::card::ModelCard;
use crate::plan::cluster::NodeId;
use crate::plan::instance::Host;
use crate::plan::report::Bytes;
use crate::plan::stage::{Budget, ExpertShard, Part};
use crate::strict::{FaultKind, Leaf, Reader, Step, Tree, has_field, read_fields};

/// Layers, ranks and experts that a placement may have when it comes from elsewhere.
pub(super) const LARGEST: u64 = 65_536;

/// Objects of the format: what writes one reads it.
macro_rules! wire {
    ($($(#[doc = $doc:literal])* struct $name:ident { $($field:ident: $type:ty;)* })*) => {$(
        $(#[doc = $doc])*
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        pub(super) struct $name { $(pub(super) $field: $type,)* }
        read_fields! { $name { $($field: $type;)* } }
    )*};
}

wire! {
    struct Ring {
        instance_id: Name;
        shard_assignments: Assignments;
        context_token_limit: Option<Whole>;
        hosts_by_node: BTreeMap<NodeId, Vec<Host>>;
        ephemeral_port: u16;
    }
    struct Jaccl {
        instance_id: Name;
        shard_assignments: Assignments;
        context_token_limit: Option<Whole>;
        jaccl_devices: Vec<Vec<Option<String>>>;
        jaccl_coordinators: BTreeMap<NodeId, String>;
    }
    struct Direct {
        instance_id: Name;
        model_id: Given<Name>;
        model_card: Given<Card>;
        n_layers: Index;
        coordinator: NodeId;
        stages: Vec<PlacedShard>;
        experts: Vec<Experts>;
        context_tokens: Option<Whole>;
        context_token_limit: Option<Whole>;
        budgets: Vec<BudgetOf>;
    }
    /// What the reference's instances have in common.
    struct Assignments {
        model_id: Given<Name>;
        runner_to_shard: BTreeMap<String, Shard<true>>;
        node_to_runner: BTreeMap<NodeId, Name>;
    }
    struct PlacedShard {
        node: NodeId;
        shard: Shard<false>;
    }
    /// Experts away from their layers' attention.
    struct Experts {
        node: NodeId;
        resolved_backend: Option<Name>;
        start_layer: Index;
        end_layer: Index;
        start_expert: Index;
        end_expert: Index;
        n_experts: Index;
        replica: bool;
    }
    struct BudgetOf {
        node: NodeId;
        backend: Option<Name>;
        usable: Whole;
        bytes: Kinds;
    }
    struct Kinds {
        attention: Whole;
        feed_forward: Whole;
        kv_cache: Whole;
        activations: Whole;
        headroom: Whole;
    }
}

read_fields! { Host { ip: String; port: u16; } }

/// The place of a shard of a half of classifier-free guidance.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CfgRanks {
    pub(super) cfg_rank: Index,
    pub(super) cfg_world_size: Index,
    pub(super) pipeline_rank: Index,
    pub(super) pipeline_world_size: Index,
}

/// A shard of the reference; its card stands beside it `WITH_CARD`, else elsewhere.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShardFields<const WITH_CARD: bool> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_card: Option<Given<Card>>,
    pub(super) device_rank: Index,
    pub(super) world_size: Index,
    pub(super) resolved_backend: Option<Name>,
    // Both are for tests of the reference: what they ask for, nothing here does.
    pub(super) immediate_exception: Option<No>,
    pub(super) should_timeout: Option<Never>,
    pub(super) start_layer: Index,
    pub(super) end_layer: Index,
    pub(super) n_layers: Index,
    #[serde(flatten)]
    pub(super) cfg: Option<CfgRanks>,
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
    fn read<'a>(tree: &'a Tree, _: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
        const NAMES: &[&str] = &[
            "model_card",
            "device_rank",
            "world_size",
            "resolved_backend",
            "immediate_exception",
            "should_timeout",
            "start_layer",
            "end_layer",
            "n_layers",
            "cfg_rank",
            "cfg_world_size",
            "pipeline_rank",
            "pipeline_world_size",
        ];
        let Some((tag, tree)) = tagged(tree, &[PIPELINE, TENSOR, CFG]) else {
            return Self::untagged(None, tree, reader, NAMES);
        };
        reader.inside(Step::Field(tag, 0), |reader| Self::untagged(Some(tag), tree, reader, NAMES))
    }
}

impl<const WITH_CARD: bool> Shard<WITH_CARD> {
    fn untagged<'a>(
        tag: Option<&str>,
        tree: &'a Tree,
        reader: &mut Reader<'a>,
        names: &'static [&'static str],
    ) -> Option<Self> {
        let halved = tag.map_or_else(|| has_field(tree, "cfg_rank"), |tag| tag == CFG);
        let names = &names[usize::from(!WITH_CARD)..if halved { names.len() } else { names.len() - 4 }];
        let fields = reader.fields(tree, names)?;
        let index = |name, reader: &mut Reader<'a>| fields.read::<Index>(name, None, None, reader);
        let model_card = WITH_CARD.then(|| fields.read("model_card", None, None, reader));
        let (device_rank, world_size) = (index("device_rank", reader), index("world_size", reader));
        let resolved_backend = fields.read("resolved_backend", None, None, reader);
        let immediate_exception = fields.read("immediate_exception", None, None, reader);
        let should_timeout = fields.read("should_timeout", None, None, reader);
        let (start_layer, end_layer) = (index("start_layer", reader), index("end_layer", reader));
        let n_layers = index("n_layers", reader);
        let cfg = halved.then(|| {
            let (cfg_rank, pipeline_rank) = (index("cfg_rank", reader), index("pipeline_rank", reader));
            let halves: Option<Option<Index>> = fields.read("cfg_world_size", None, None, reader);
            let pipeline_world_size = index("pipeline_world_size", reader);
            Some(CfgRanks {
                cfg_rank: cfg_rank?,
                cfg_world_size: halves?.unwrap_or(Index(2)),
                pipeline_rank: pipeline_rank?,
                pipeline_world_size: pipeline_world_size?,
            })
        });
        let fields = ShardFields {
            model_card: match model_card {
                None => None,
                Some(card) => Some(card?),
            },
            device_rank: device_rank?,
            world_size: world_size?,
            resolved_backend: resolved_backend?,
            immediate_exception: immediate_exception?,
            should_timeout: should_timeout?,
            start_layer: start_layer?,
            end_layer: end_layer?,
            n_layers: n_layers?,
            cfg: match cfg {
                None => None,
                Some(cfg) => Some(cfg?),
            },
        };
        // Without a tag: no stage of several has all layers, and all shares of tensors do.
        let all = fields.world_size.0 > 1 && fields.layers() == (0..fields.n_layers.0);
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
            (_, Some(cfg)) => Part::Cfg {
                cfg_rank: cfg.cfg_rank.0,
                cfg_world_size: cfg.cfg_world_size.0,
                pipeline_rank: cfg.pipeline_rank.0,
                pipeline_world_size: cfg.pipeline_world_size.0,
            },
            _ => Part::Whole,
        }
    }
}

impl<const WITH_CARD: bool> ShardFields<WITH_CARD> {
    pub(super) fn layers(&self) -> Range<usize> {
        self.start_layer.0..self.end_layer.0
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
    fn read<'a>(tree: &'a Tree, least: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
        Option::<T>::read(tree, least, reader).map(Self)
    }
}

/// A text that is not empty.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Name(pub(super) String);

impl Leaf for Name {
    fn read<'a>(tree: &'a Tree, least: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
        let name = String::read(tree, least, reader)?;
        if name.is_empty() {
            reader.fault(FaultKind::Value, tree.show(), "a name");
            return None;
        }
        Some(Self(name))
    }
}

impl Leaf for NodeId {
    fn read<'a>(tree: &'a Tree, least: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
        Name::read(tree, least, reader).map(|name| Self::new(name.0))
    }
}

/// The number of a layer, rank or expert, or how many there are.
#[derive(Serialize, Clone, Copy)]
#[serde(transparent)]
pub(super) struct Index(pub(super) usize);

impl Leaf for Index {
    fn read<'a>(tree: &'a Tree, least: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
        let index = usize::read(tree, least, reader)?;
        if index as u64 > LARGEST {
            reader.fault(FaultKind::Range, tree.show(), format!("a whole number of at most {LARGEST}"));
            return None;
        }
        Some(Self(index))
    }
}

/// A whole number of all 64 bits, which TOML does not have.
#[derive(Serialize, Clone, Copy)]
#[serde(transparent)]
pub(super) struct Whole(pub(super) u64);

impl Leaf for Whole {
    fn read<'a>(tree: &'a Tree, least: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
        let huge = if let Tree::Huge(digits) = tree { digits.parse().ok() } else { None };
        huge.or_else(|| u64::read(tree, least, reader)).map(Self)
    }
}

/// `false`, and nothing else.
pub(super) struct No;

impl Serialize for No {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(false)
    }
}

impl Leaf for No {
    fn read<'a>(tree: &'a Tree, least: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
        if bool::read(tree, least, reader)? {
            reader.fault(FaultKind::Value, "true", "false");
            return None;
        }
        Some(Self)
    }
}

/// No value but `null` may be here.
#[derive(Serialize)]
pub(super) enum Never {}

impl Leaf for Never {
    fn read<'a>(tree: &'a Tree, _: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
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
        for (name, section) in fields {
            if let (Tree::Table(fields), "runtime") = (section, name.as_str()) {
                fields.retain(|(key, value)| !(key.starts_with("servedSpec") && *value == Tree::Null));
            }
        }
        card.serialize(serializer)
    }
}

impl Leaf for Card {
    fn read<'a>(tree: &'a Tree, least: Option<i64>, reader: &mut Reader<'a>) -> Option<Self> {
        ModelCard::read(tree, least, reader).map(|card| Self(Arc::new(card.complete())))
    }
}

impl From<&ExpertShard> for Experts {
    fn from(shard: &ExpertShard) -> Self {
        let ExpertShard { node, backend, layers, experts, n_experts, replica } = shard.clone();
        Self {
            node,
            resolved_backend: backend.map(Name),
            start_layer: Index(layers.start),
            end_layer: Index(layers.end),
            start_expert: Index(experts.start),
            end_expert: Index(experts.end),
            n_experts: Index(n_experts),
            replica,
        }
    }
}

impl From<Experts> for ExpertShard {
    fn from(read: Experts) -> Self {
        Self {
            node: read.node,
            backend: read.resolved_backend.map(|name| name.0),
            layers: read.start_layer.0..read.end_layer.0,
            experts: read.start_expert.0..read.end_expert.0,
            n_experts: read.n_experts.0,
            replica: read.replica,
        }
    }
}

impl From<&Budget> for BudgetOf {
    fn from(budget: &Budget) -> Self {
        let Budget { node, backend, bytes, usable } = budget.clone();
        let [attention, feed_forward, kv_cache, activations, headroom] =
            [bytes.attention, bytes.feed_forward, bytes.kv_cache, bytes.activations, bytes.headroom]
                .map(Whole);
        let bytes = Kinds { attention, feed_forward, kv_cache, activations, headroom };
        Self { node, backend: backend.map(Name), usable: Whole(usable), bytes }
    }
}

impl From<BudgetOf> for Budget {
    fn from(read: BudgetOf) -> Self {
        let bytes = Bytes {
            attention: read.bytes.attention.0,
            feed_forward: read.bytes.feed_forward.0,
            kv_cache: read.bytes.kv_cache.0,
            activations: read.bytes.activations.0,
            headroom: read.bytes.headroom.0,
        };
        Self { node: read.node, backend: read.backend.map(|name| name.0), bytes, usable: read.usable.0 }
    }
}
