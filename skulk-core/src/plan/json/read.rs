//! Which placement is this JSON? Strict reading of the reference's instances and this library's own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::fields::{Fields, Place};
use super::shard::Shard;
use super::{DIRECT, JACCL, LARGEST, RING};
use crate::card::{CardFault, ModelCard};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::cluster::NodeId;
use crate::plan::coverage;
use crate::plan::instance::{Host, Ids, Instance};
use crate::plan::placement::{Budget, ExpertShard, Placement, Stage};
use crate::plan::report::Bytes;

pub(super) fn placement(text: &str) -> Result<Placement> {
    let value: Value = serde_json::from_str(text).map_err(|e| {
        let found = format!("expected JSON, found a fault in line {}, column {}", e.line(), e.column());
        Error::new(ErrorKind::PlacementInvalid, found).with("field", "the whole").with_source(e)
    })?;
    let root = Place::root(&value);
    let (tag, place) = match root.tagged(&[RING, JACCL, DIRECT]) {
        Some(tagged) => tagged,
        None if root.has("hostsByNode") || root.has("ephemeralPort") => (RING, root),
        None if root.has("jacclDevices") || root.has("jacclCoordinators") => (JACCL, root),
        None if root.has("stages") || root.has("coordinator") => (DIRECT, root),
        None => return Err(root.wrong(&format!("a {DIRECT}, {RING} or {JACCL}"))),
    };
    match tag {
        RING => ring(&place),
        JACCL => jaccl(&place),
        _ => direct(&place),
    }
}

fn ring(place: &Place<'_>) -> Result<Placement> {
    let fields = place.fields(&[
        "instanceId",
        "shardAssignments",
        "contextTokenLimit",
        "hostsByNode",
        "ephemeralPort",
    ])?;
    let assigned = Assigned::read(&fields)?;
    let mut hosts_by_node = BTreeMap::new();
    let by_node = fields.get("hostsByNode")?;
    for (node, hosts) in by_node.entries()? {
        let list = hosts.list()?.map(|host| {
            let fields = host.fields(&["ip", "port"])?;
            Ok(Host { ip: fields.get("ip")?.text()?.to_owned(), port: port(&fields.get("port")?)? })
        });
        let list = list.collect::<Result<Vec<_>>>()?;
        if list.len() != assigned.ranks.len() {
            return Err(hosts.wrong(&format!("a host for each of {} ranks", assigned.ranks.len())));
        }
        hosts_by_node.insert(NodeId::new(node), list);
    }
    assigned.check_nodes(&by_node, hosts_by_node.keys())?;
    let ephemeral_port = port(&fields.get("ephemeralPort")?)?;
    assigned.placement(&fields, Instance::MlxRing { hosts_by_node, ephemeral_port })
}

fn jaccl(place: &Place<'_>) -> Result<Placement> {
    let fields = place.fields(&[
        "instanceId",
        "shardAssignments",
        "contextTokenLimit",
        "jacclDevices",
        "jacclCoordinators",
    ])?;
    let assigned = Assigned::read(&fields)?;
    let square = |place: &Place<'_>, length: usize| match assigned.ranks.len() {
        ranks if ranks == length => Ok(()),
        ranks => Err(place.wrong(&format!("an entry for each of {ranks} ranks"))),
    };
    let mut jaccl_devices = Vec::new();
    let rows = fields.get("jacclDevices")?;
    for row in rows.list()? {
        let interface = |cell: Place<'_>| cell.some().map(|cell| cell.text().map(str::to_owned)).transpose();
        let cells = row.list()?.map(interface).collect::<Result<Vec<_>>>()?;
        square(&row, cells.len())?;
        jaccl_devices.push(cells);
    }
    square(&rows, jaccl_devices.len())?;
    let coordinators = fields.get("jacclCoordinators")?;
    let addresses =
        coordinators.entries()?.map(|(node, address)| Ok((NodeId::new(node), address.text()?.to_owned())));
    let jaccl_coordinators = addresses.collect::<Result<BTreeMap<_, _>>>()?;
    assigned.check_nodes(&coordinators, jaccl_coordinators.keys())?;
    assigned.placement(&fields, Instance::MlxJaccl { jaccl_devices, jaccl_coordinators })
}

fn direct(place: &Place<'_>) -> Result<Placement> {
    let fields = place.fields(&[
        "instanceId",
        "modelId",
        "modelCard",
        "nLayers",
        "coordinator",
        "stages",
        "experts",
        "contextTokens",
        "contextTokenLimit",
        "budgets",
    ])?;
    let card = card(&fields.get("modelCard")?)?;
    check_model_id(&fields.get("modelId")?, card.as_deref())?;
    let list = fields.get("stages")?;
    let stages = list.list()?.map(|stage| {
        let fields = stage.fields(&["node", "shard"])?;
        Ok((
            String::new(),
            NodeId::new(fields.get("node")?.name()?),
            Shard::read(&fields.get("shard")?, false)?,
        ))
    });
    let assigned = Assigned::new(&list, stages.collect::<Result<_>>()?, card)?;
    let n_layers = fields.get("nLayers")?;
    if n_layers.index()? != assigned.n_layers {
        return Err(n_layers.wrong(&format!("{} layers, as the shards have", assigned.n_layers)));
    }
    let coordinator = NodeId::new(fields.get("coordinator")?.name()?);
    let experts = fields.get("experts")?;
    let shards = experts.list()?.map(|place| expert_shard(&place)).collect::<Result<Vec<_>>>()?;
    coverage::check_experts(&shards, assigned.n_layers).map_err(|e| experts.fault(e.message().to_owned()))?;
    let budgets = fields.get("budgets")?.list()?.map(|place| budget(&place)).collect::<Result<_>>()?;
    let instance = Instance::Direct { coordinator };
    assigned.placement_with(&fields, instance, shards, budgets)
}

/// Ranks in order, as all instances give them.
struct Assigned {
    ranks: Vec<Stage>,
    runners: Vec<String>,
    n_layers: usize,
    card: Option<Arc<ModelCard>>,
}

impl Assigned {
    /// Of the reference's instances.
    fn read(instance: &Fields<'_>) -> Result<Self> {
        let fields =
            instance.get("shardAssignments")?.fields(&["modelId", "runnerToShard", "nodeToRunner"])?;
        let (shards, nodes) = (fields.get("runnerToShard")?, fields.get("nodeToRunner")?);
        let mut node_of = HashMap::new();
        for (node, runner) in nodes.entries()? {
            if node_of.insert(runner.name()?, node).is_some() {
                return Err(runner.wrong("a runner for each node"));
            }
        }
        let mut ranks = Vec::new();
        // The card stands in every shard: it is read once, and others only where they are written otherwise.
        let mut first: Option<(&Value, Option<Arc<ModelCard>>)> = None;
        for (runner, place) in shards.entries()? {
            let shard = Shard::read(&place, true)?;
            let node = node_of
                .remove(runner)
                .ok_or_else(|| place.fault("expected a node for this runner, found none".to_owned()))?;
            if let Some(own) = &shard.card {
                match &first {
                    None => first = Some((own.value(), card(own)?)),
                    Some((value, _)) if *value == own.value() => {}
                    Some((_, read)) if *read == card(own)? => {}
                    Some(_) => {
                        return Err(
                            own.fault("expected the same card in all shards, found another".to_owned())
                        );
                    }
                }
            }
            ranks.push((runner.to_owned(), NodeId::new(node), shard));
        }
        if !node_of.is_empty() {
            return Err(nodes.wrong(&format!("a node for each of {} shards", ranks.len())));
        }
        let card = first.and_then(|(_, card)| card);
        check_model_id(&fields.get("modelId")?, card.as_deref())?;
        Self::new(&shards, ranks, card)
    }

    /// Puts shards in the order of their ranks. `place` is where they stand.
    fn new(
        place: &Place<'_>,
        shards: Vec<(String, NodeId, Shard<'_>)>,
        card: Option<Arc<ModelCard>>,
    ) -> Result<Self> {
        let world = shards.len();
        if world == 0 || world as u64 > LARGEST {
            return Err(place.wrong(&format!("1 to {LARGEST} shards")));
        }
        let mut by_rank: BTreeMap<usize, (String, Stage)> = BTreeMap::new();
        let n_layers = shards.first().map_or(0, |(.., shard)| shard.n_layers.1);
        for (runner, node, shard) in shards {
            if shard.world.1 != world {
                return Err(shard.world.0.wrong(&format!("{world}, the number of shards")));
            }
            if shard.n_layers.1 != n_layers {
                return Err(shard.n_layers.0.wrong(&format!("{n_layers}, as in the first shard")));
            }
            let stage = Stage { node, backend: shard.backend, layers: shard.layers, part: shard.part };
            if shard.rank.1 >= world || by_rank.insert(shard.rank.1, (runner, stage)).is_some() {
                return Err(shard.rank.0.wrong(&format!("each rank from 0 to {} once", world - 1)));
            }
        }
        let (runners, ranks): (Vec<_>, Vec<_>) = by_rank.into_values().unzip();
        coverage::check_stages(&ranks, n_layers).map_err(|e| place.fault(e.message().to_owned()))?;
        Ok(Self { ranks, runners, n_layers, card })
    }

    /// Every node must be told how it reaches others, and no other node.
    fn check_nodes<'a>(&self, place: &Place<'_>, told: impl Iterator<Item = &'a NodeId>) -> Result<()> {
        let nodes: BTreeSet<_> = self.ranks.iter().map(|stage| &stage.node).collect();
        if nodes.into_iter().eq(told) {
            return Ok(());
        }
        Err(place.wrong("an entry for each node of the placement and no other"))
    }

    fn placement(self, fields: &Fields<'_>, instance: Instance) -> Result<Placement> {
        self.placement_with(fields, instance, Vec::new(), Vec::new())
    }

    fn placement_with(
        self,
        fields: &Fields<'_>,
        instance: Instance,
        experts: Vec<ExpertShard>,
        budgets: Vec<Budget>,
    ) -> Result<Placement> {
        let tokens = |name| fields.find_some(name).map(|limit| limit.number(u64::MAX)).transpose();
        let given = tokens("contextTokenLimit")?;
        let trained = self.card.as_ref().and_then(|card| u64::try_from(card.context_length).ok());
        let mut placement = Placement {
            n_layers: self.n_layers,
            stages: self.ranks,
            experts,
            budgets,
            context_tokens: tokens("contextTokens")?,
            context_limit: given.or(trained.filter(|tokens| *tokens > 0)),
            card: self.card,
            instance,
            report: None,
            ids: None,
        };
        // Names that would follow anyway are not kept, so that what was planned here comes back as it was.
        let runners = match placement.instance {
            Instance::Direct { .. } => Vec::new(),
            _ => self.runners,
        };
        let given = Ids { instance: fields.get("instanceId")?.name()?.to_owned(), runners };
        let follows = given.instance == placement.instance_id()
            && given.runners.iter().enumerate().all(|(rank, runner)| *runner == placement.runner_id(rank));
        placement.ids = (!follows).then_some(given);
        Ok(placement)
    }
}

fn expert_shard(place: &Place<'_>) -> Result<ExpertShard> {
    let fields = place.fields(&[
        "node",
        "resolvedBackend",
        "startLayer",
        "endLayer",
        "startExpert",
        "endExpert",
        "nExperts",
        "replica",
    ])?;
    Ok(ExpertShard {
        node: NodeId::new(fields.get("node")?.name()?),
        backend: fields
            .find_some("resolvedBackend")
            .map(|place| place.name().map(str::to_owned))
            .transpose()?,
        layers: fields.get("startLayer")?.index()?..fields.get("endLayer")?.index()?,
        experts: fields.get("startExpert")?.index()?..fields.get("endExpert")?.index()?,
        n_experts: fields.get("nExperts")?.index()?,
        replica: fields.get("replica")?.flag()?,
    })
}

fn budget(place: &Place<'_>) -> Result<Budget> {
    let fields = place.fields(&["node", "backend", "usable", "bytes"])?;
    let kinds =
        fields.get("bytes")?.fields(&["attention", "feedForward", "kvCache", "activations", "headroom"])?;
    let bytes = |fields: &Fields<'_>, name| fields.get(name)?.number(u64::MAX);
    Ok(Budget {
        node: NodeId::new(fields.get("node")?.name()?),
        backend: fields.find_some("backend").map(|place| place.name().map(str::to_owned)).transpose()?,
        usable: bytes(&fields, "usable")?,
        bytes: Bytes {
            attention: bytes(&kinds, "attention")?,
            feed_forward: bytes(&kinds, "feedForward")?,
            kv_cache: bytes(&kinds, "kvCache")?,
            activations: bytes(&kinds, "activations")?,
            headroom: bytes(&kinds, "headroom")?,
        },
    })
}

fn port(place: &Place<'_>) -> Result<u16> {
    u16::try_from(place.number(u64::from(u16::MAX))?).map_err(|_| place.wrong("a port"))
}

fn card(place: &Place<'_>) -> Result<Option<Arc<ModelCard>>> {
    let Some(place) = place.clone().some() else { return Ok(None) };
    match ModelCard::from_value(place.value()) {
        Ok(card) => Ok(Some(Arc::new(card))),
        Err(e) => {
            let error = place.fault(format!("expected a model card, found faults in it: {}", e.message()));
            Err(match e.detail::<Vec<CardFault>>() {
                Some(detail) => error.with_detail(detail.clone()),
                None => error,
            })
        }
    }
}

/// The model's name stands beside its card, too.
fn check_model_id(place: &Place<'_>, card: Option<&ModelCard>) -> Result<()> {
    match (place.clone().some(), card) {
        (None, None) => Ok(()),
        (Some(id), Some(card)) if id.name()? == card.model_id => Ok(()),
        (_, Some(card)) => Err(place.wrong(&format!("\"{}\", as in the card", card.model_id.escape_debug()))),
        (Some(id), None) => Err(id.wrong("null, as there is no card")),
    }
}
