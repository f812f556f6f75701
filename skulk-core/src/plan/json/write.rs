//! Which JSON is this placement? The reference's instances and shards field by field, and this library's own.

use serde_json::{Map, Value, json};

use super::{CFG, DIRECT, JACCL, PIPELINE, RING, TENSOR};
use crate::plan::instance::Instance;
use crate::plan::placement::{Budget, ExpertShard, Part, Placement, Stage};

pub(super) fn instance(placement: &Placement) -> Value {
    let mut fields = Map::new();
    fields.insert("instanceId".to_owned(), placement.instance_id().into());
    match placement.instance() {
        Instance::Direct { coordinator } => {
            fields.insert("modelId".to_owned(), model_id(placement));
            fields.insert("modelCard".to_owned(), card(placement));
            fields.insert("nLayers".to_owned(), placement.n_layers().into());
            fields.insert("coordinator".to_owned(), coordinator.as_str().into());
            let stages = placement.stages().iter().enumerate();
            let stage = |(rank, stage): (usize, &Stage)| json!({ "node": stage.node.as_str(), "shard": shard(placement, rank, stage, None) });
            fields.insert("stages".to_owned(), stages.map(stage).collect());
            fields.insert("experts".to_owned(), placement.experts().iter().map(experts).collect());
            fields.insert("contextTokens".to_owned(), placement.context_tokens().into());
            fields.insert("contextTokenLimit".to_owned(), placement.context_limit().into());
            fields.insert("budgets".to_owned(), placement.budgets().iter().map(budget).collect());
        }
        Instance::MlxRing { hosts_by_node, ephemeral_port } => {
            assignments(placement, &mut fields);
            let hosts = hosts_by_node.iter().map(|(node, hosts)| {
                let host = |host: &crate::plan::Host| json!({ "ip": host.ip, "port": host.port });
                (node.to_string(), hosts.iter().map(host).collect::<Value>())
            });
            fields.insert("hostsByNode".to_owned(), Value::Object(hosts.collect()));
            fields.insert("ephemeralPort".to_owned(), (*ephemeral_port).into());
        }
        Instance::MlxJaccl { jaccl_devices, jaccl_coordinators } => {
            assignments(placement, &mut fields);
            let row = |row: &Vec<Option<String>>| row.iter().cloned().map(Value::from).collect::<Value>();
            fields.insert("jacclDevices".to_owned(), jaccl_devices.iter().map(row).collect());
            let coordinators =
                jaccl_coordinators.iter().map(|(node, address)| (node.to_string(), address.as_str().into()));
            fields.insert("jacclCoordinators".to_owned(), Value::Object(coordinators.collect()));
        }
    }
    tagged(tag(placement.instance()), Value::Object(fields))
}

/// The tag of an instance.
pub(super) fn tag(instance: &Instance) -> &'static str {
    match instance {
        Instance::Direct { .. } => DIRECT,
        Instance::MlxRing { .. } => RING,
        Instance::MlxJaccl { .. } => JACCL,
    }
}

/// What the reference's instances have in common.
fn assignments(placement: &Placement, fields: &mut Map<String, Value>) {
    let card = card(placement);
    let runners: Vec<_> = (0..placement.stages().len()).map(|rank| placement.runner_id(rank)).collect();
    let ranks = || placement.stages().iter().enumerate().zip(&runners);
    let shards: Map<_, _> = ranks()
        .map(|((rank, stage), runner)| (runner.clone(), shard(placement, rank, stage, Some(&card))))
        .collect();
    let nodes: Map<_, _> =
        ranks().map(|((_, stage), runner)| (stage.node.to_string(), runner.as_str().into())).collect();
    let assignments =
        json!({ "modelId": model_id(placement), "runnerToShard": shards, "nodeToRunner": nodes });
    fields.insert("shardAssignments".to_owned(), assignments);
    fields.insert("contextTokenLimit".to_owned(), placement.context_limit().into());
}

/// One rank's tagged shard, with a card or, where that stands elsewhere, without.
pub(super) fn shard(placement: &Placement, rank: usize, stage: &Stage, card: Option<&Value>) -> Value {
    let mut fields = Map::new();
    if let Some(card) = card {
        fields.insert("modelCard".to_owned(), card.clone());
    }
    fields.insert("deviceRank".to_owned(), rank.into());
    fields.insert("worldSize".to_owned(), placement.stages().len().into());
    fields.insert("resolvedBackend".to_owned(), stage.backend.as_deref().into());
    fields.insert("immediateException".to_owned(), false.into());
    fields.insert("shouldTimeout".to_owned(), Value::Null);
    fields.insert("startLayer".to_owned(), stage.layers.start.into());
    fields.insert("endLayer".to_owned(), stage.layers.end.into());
    fields.insert("nLayers".to_owned(), placement.n_layers().into());
    let tag = match stage.part {
        Part::Whole => PIPELINE,
        Part::Tensor => TENSOR,
        Part::Cfg { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size } => {
            fields.insert("cfgRank".to_owned(), cfg_rank.into());
            fields.insert("cfgWorldSize".to_owned(), cfg_world_size.into());
            fields.insert("pipelineRank".to_owned(), pipeline_rank.into());
            fields.insert("pipelineWorldSize".to_owned(), pipeline_world_size.into());
            CFG
        }
    };
    tagged(tag, Value::Object(fields))
}

fn model_id(placement: &Placement) -> Value {
    placement.card().map(|card| card.model_id.as_str()).into()
}

/// The card, without unset fields that Skulk 1.3 does not know and would refuse.
pub(super) fn card(placement: &Placement) -> Value {
    let mut card = placement.card().map_or(Value::Null, crate::ModelCard::to_value);
    if let Some(Value::Object(runtime)) = card.get_mut("runtime") {
        runtime.retain(|key, value| !(key.starts_with("servedSpec") && value.is_null()));
    }
    card
}

/// Experts away from their layers' attention.
pub(super) fn experts(shard: &ExpertShard) -> Value {
    json!({
        "node": shard.node.as_str(),
        "resolvedBackend": shard.backend,
        "startLayer": shard.layers.start,
        "endLayer": shard.layers.end,
        "startExpert": shard.experts.start,
        "endExpert": shard.experts.end,
        "nExperts": shard.n_experts,
        "replica": shard.replica,
    })
}

fn budget(budget: &Budget) -> Value {
    json!({
        "node": budget.node.as_str(),
        "backend": budget.backend,
        "usable": budget.usable,
        "bytes": {
            "attention": budget.bytes.attention,
            "feedForward": budget.bytes.feed_forward,
            "kvCache": budget.bytes.kv_cache,
            "activations": budget.bytes.activations,
            "headroom": budget.bytes.headroom,
        },
    })
}

fn tagged(tag: &str, fields: Value) -> Value {
    Value::Object(Map::from_iter([(tag.to_owned(), fields)]))
}
