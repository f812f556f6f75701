//! Which placement is this JSON? What is read strictly, and whether its parts agree.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::wire::{Assignments, Card, Direct, Given, Jaccl, LARGEST, Ring, Shard, tagged};
use super::{DIRECT, JACCL, RING};
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::kv_type::KvTypes;
use crate::plan::cluster::NodeId;
use crate::plan::coverage;
use crate::plan::instance::{Ids, Instance};
use crate::plan::placement::Placement;
use crate::plan::stage::{Budget, ExpertShard, Stage};
use crate::strict::{Document, Fault, Leaf, Tree, has_field};

const PLACEMENT: Document = Document {
    error: ErrorKind::PlacementInvalid,
    name: "a placement",
    hint: "give a placement as this library or Skulk 1.3 writes it",
};

pub(super) fn placement(text: &str) -> Result<Placement> {
    let whole = |e: Error| e.with("field", "the whole");
    let tree = PLACEMENT.json(text).map_err(whole)?;
    let (tag, tree, within) = match tagged(&tree, &[RING, JACCL, DIRECT]) {
        Some((tag, tree)) => (tag, tree, Within(Some(tag))),
        None => {
            let has = |names: [&str; 2]| names.iter().any(|name| has_field(&tree, name));
            let tag = if has(["hosts_by_node", "ephemeral_port"]) {
                RING
            } else if has(["jaccl_devices", "jaccl_coordinators"]) {
                JACCL
            } else if has(["stages", "coordinator"]) {
                DIRECT
            } else {
                let message = format!("expected a {DIRECT}, {RING} or {JACCL}, found {}", tree.show());
                return Err(whole(Error::new(ErrorKind::PlacementInvalid, message)).with_hint(PLACEMENT.hint));
            };
            (tag, &tree, Within(None))
        }
    };
    match tag {
        RING => ring(within.read(tree)?, &within),
        JACCL => jaccl(within.read(tree)?, &within),
        _ => direct(within.read(tree)?, &within),
    }
}

/// The tag of the instance, where it has one, with which its fields' paths begin.
struct Within(Option<&'static str>);

impl Within {
    fn read<T: Leaf>(&self, tree: &Tree) -> Result<T> {
        PLACEMENT.read(tree, self.0).map_err(|e| {
            let first = e.detail::<Vec<Fault>>().and_then(|faults| faults.first());
            let field = first.map(|fault| fault.field.clone()).filter(|field| !field.is_empty());
            e.with("field", field.as_deref().unwrap_or("the whole"))
        })
    }

    /// Parts that do not agree.
    fn wrong(&self, field: &str, message: String) -> Error {
        Error::new(ErrorKind::PlacementInvalid, message)
            .with("field", self.0.map_or_else(|| field.to_owned(), |tag| format!("{tag}.{field}")))
            .with_hint(PLACEMENT.hint)
    }

    /// Every node must be told how it reaches others, and no other node.
    fn check_nodes<'a>(
        &self,
        field: &str,
        ranks: &[Stage],
        told: impl ExactSizeIterator<Item = &'a NodeId>,
    ) -> Result<()> {
        let nodes: BTreeSet<_> = ranks.iter().map(|stage| &stage.node).collect();
        let found = told.len();
        if nodes.into_iter().eq(told) {
            return Ok(());
        }
        let expected = "expected an entry for each node of the placement and no other";
        Err(self.wrong(field, format!("{expected}, found {found} entries")))
    }

    /// The model's name stands beside its card, too.
    fn check_model_id(&self, field: &str, id: &Given<String>, card: Option<&ModelCard>) -> Result<()> {
        let expected = card.map(|card| card.model_id.as_str());
        if id.0.as_deref() == expected {
            return Ok(());
        }
        Err(self.wrong(field, format!("expected {expected:?}, as in the card, found another name")))
    }
}

const ASSIGNED: &str = "shardAssignments";

fn ring(read: Ring, within: &Within) -> Result<Placement> {
    let assigned = Assigned::read(read.shard_assignments, within)?;
    let ranks = assigned.placement.stages.len();
    if let Some((_, hosts)) = read.hosts_by_node.iter().find(|(_, hosts)| hosts.len() != ranks) {
        let message = format!("expected a host for each of {ranks} ranks, found {}", hosts.len());
        return Err(within.wrong("hostsByNode", message));
    }
    within.check_nodes("hostsByNode", &assigned.placement.stages, read.hosts_by_node.keys())?;
    let (hosts_by_node, ephemeral_port) = (read.hosts_by_node, read.ephemeral_port);
    let instance = Instance::MlxRing { hosts_by_node, ephemeral_port };
    Ok(assigned.named(read.instance_id, read.context_token_limit, instance))
}

fn jaccl(read: Jaccl, within: &Within) -> Result<Placement> {
    let assigned = Assigned::read(read.shard_assignments, within)?;
    let ranks = assigned.placement.stages.len();
    let lengths = read.jaccl_devices.iter().map(Vec::len).chain([read.jaccl_devices.len()]);
    if let Some(found) = lengths.into_iter().find(|length| *length != ranks) {
        let message = format!("expected an entry for each of {ranks} ranks, found {found}");
        return Err(within.wrong("jacclDevices", message));
    }
    within.check_nodes("jacclCoordinators", &assigned.placement.stages, read.jaccl_coordinators.keys())?;
    let (jaccl_devices, jaccl_coordinators) = (read.jaccl_devices, read.jaccl_coordinators);
    let instance = Instance::MlxJaccl { jaccl_devices, jaccl_coordinators };
    Ok(assigned.named(read.instance_id, read.context_token_limit, instance))
}

fn direct(read: Direct, within: &Within) -> Result<Placement> {
    let card = read.model_card.0.map(|card| card.0);
    within.check_model_id("modelId", &read.model_id, card.as_deref())?;
    let stages = read.stages.into_iter().map(|stage| (String::new(), stage.node, stage.shard));
    let mut assigned = Assigned::new(stages.collect(), card, "stages", within)?;
    // Its ranks have no names of their own.
    assigned.runners.clear();
    let placement = &mut assigned.placement;
    if read.n_layers != placement.n_layers {
        let (expected, found) = (placement.n_layers, read.n_layers);
        let message = format!("expected {expected} layers, as the shards have, found {found}");
        return Err(within.wrong("nLayers", message));
    }
    placement.experts = read.experts.into_iter().map(ExpertShard::from).collect();
    coverage::check_experts(&placement.experts, placement.n_layers)
        .map_err(|e| within.wrong("experts", e.message().to_owned()))?;
    placement.addresses = read.addresses.unwrap_or_default();
    placement.budgets = read.budgets.into_iter().map(Budget::from).collect();
    placement.ffn_budget = read.ffn_budget.filter(|most| *most > 0);
    placement.weights = read.weights.filter(|weights| *weights > 0);
    // One of them alone leaves the other one in half precision.
    placement.kv = (read.keys.is_some() || read.values.is_some())
        .then(|| KvTypes { keys: read.keys.unwrap_or_default(), values: read.values.unwrap_or_default() });
    placement.context_tokens = read.context_tokens.filter(|tokens| *tokens > 0);
    placement.sessions = read.sessions.filter(|sessions| *sessions > 0);
    let instance = Instance::Direct { coordinator: read.coordinator };
    Ok(assigned.named(read.instance_id, read.context_token_limit, instance))
}

/// What all instances give: a placement with its ranks in order, and the names of their runners.
struct Assigned {
    placement: Placement,
    runners: Vec<String>,
}

impl Assigned {
    /// Of the reference's instances.
    fn read(read: Assignments, within: &Within) -> Result<Self> {
        let shards = format!("{ASSIGNED}.runnerToShard");
        let mut node_of = HashMap::new();
        for (node, runner) in read.node_to_runner {
            if node_of.insert(runner, node).is_some() {
                let message = "expected a runner for each node, found one twice".to_owned();
                return Err(within.wrong(&format!("{ASSIGNED}.nodeToRunner"), message));
            }
        }
        let mut ranks = Vec::new();
        let mut first: Option<Option<Card>> = None;
        for (runner, shard) in read.runner_to_shard {
            let Some(node) = node_of.remove(&runner) else {
                let message = "expected a node for each runner, found none for one".to_owned();
                return Err(within.wrong(&shards, message));
            };
            let card = shard.fields().model_card.as_ref().and_then(|card| card.0.clone());
            if *first.get_or_insert_with(|| card.clone()) != card {
                let message = "expected the same card in all shards, found another".to_owned();
                return Err(within.wrong(&shards, message));
            }
            ranks.push((runner, node, shard));
        }
        if !node_of.is_empty() {
            let (expected, more) = (ranks.len(), node_of.len());
            let message = format!("expected a node for each of {expected} shards, found {more} more");
            return Err(within.wrong(&format!("{ASSIGNED}.nodeToRunner"), message));
        }
        let card = first.flatten().map(|card| card.0);
        within.check_model_id(&format!("{ASSIGNED}.modelId"), &read.model_id, card.as_deref())?;
        Self::new(ranks, card, &shards, within)
    }

    /// Puts shards in the order of their ranks. `field` is where they stand.
    fn new<const WITH_CARD: bool>(
        shards: Vec<(String, NodeId, Shard<WITH_CARD>)>,
        card: Option<Arc<ModelCard>>,
        field: &str,
        within: &Within,
    ) -> Result<Self> {
        let wrong = |message: String| Err(within.wrong(field, message));
        let world = shards.len();
        if world == 0 || world as u64 > LARGEST {
            return wrong(format!("expected 1 to {LARGEST} shards, found {world}"));
        }
        let mut by_rank: BTreeMap<usize, (String, Stage)> = BTreeMap::new();
        let n_layers = shards.first().map_or(0, |(.., shard)| shard.fields().rank.n_layers);
        for (runner, node, shard) in shards {
            let fields = &shard.fields().rank;
            let rank = fields.device_rank;
            if fields.world_size != world {
                let found = fields.world_size;
                return wrong(format!("expected worldSize {world}, the number of shards, found {found}"));
            }
            if fields.n_layers != n_layers {
                let found = fields.n_layers;
                return wrong(format!("expected nLayers {n_layers}, as in the first shard, found {found}"));
            }
            let (backend, layers) = (fields.resolved_backend.clone(), fields.layers());
            let stage = Stage { node, backend, layers, part: shard.part() };
            if rank >= world || by_rank.insert(rank, (runner, stage)).is_some() {
                return wrong(format!("expected each deviceRank from 0 to {} once, found {rank}", world - 1));
            }
        }
        let (runners, stages): (Vec<_>, Vec<_>) = by_rank.into_values().unzip();
        let placement = Placement::new(stages, n_layers);
        let placement = placement.map_err(|e| within.wrong(field, e.message().to_owned()))?;
        Ok(Self { placement: Placement { card, ..placement }, runners })
    }

    /// The placement with its name, and the limit that was given.
    fn named(self, id: String, given: Option<u64>, instance: Instance) -> Placement {
        let Self { mut placement, runners } = self;
        placement.instance = instance;
        let trained = placement.card.as_ref().and_then(|card| u64::try_from(card.context_length).ok());
        placement.context_limit = given.or(trained).filter(|tokens| *tokens > 0);
        // Names that would follow anyway are not kept, so that what was planned here comes back as it was.
        let mut named = runners.iter().enumerate();
        let follows =
            id == placement.instance_id() && named.all(|(rank, runner)| *runner == placement.runner_id(rank));
        placement.ids = (!follows).then_some(Ids { instance: id, runners });
        placement
    }
}
