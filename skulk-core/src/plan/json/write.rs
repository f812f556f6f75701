//! Which JSON is this placement?

use serde::Serialize;

use super::wire::{
    Assignments, BudgetOf, Card, CfgRank, Direct, Experts, Given, Jaccl, PlacedShard, Rank, Ring, Shard,
    ShardFields,
};
use crate::plan::instance::Instance;
use crate::plan::placement::Placement;
use crate::plan::stage::{Part, Stage};

/// An instance with its tag.
#[derive(Serialize)]
enum Tagged {
    #[serde(rename = "MlxRingInstance")]
    Ring(Ring),
    #[serde(rename = "MlxJacclInstance")]
    Jaccl(Jaccl),
    #[serde(rename = "SkulkInstance")]
    Direct(Direct),
}

pub(super) fn instance(placement: &Placement) -> String {
    let instance_id = placement.instance_id();
    let context_token_limit = placement.context_limit();
    text(&match placement.instance().clone() {
        Instance::Direct { coordinator } => {
            let stages = placement.stages().iter().enumerate();
            let stages = stages.map(|(rank, stage)| PlacedShard {
                node: stage.node.clone(),
                shard: shard(placement, rank, stage, None),
            });
            Tagged::Direct(Direct {
                instance_id,
                model_id: model_id(placement),
                model_card: card(placement),
                n_layers: placement.n_layers(),
                coordinator,
                stages: stages.collect(),
                experts: placement.experts().iter().map(Experts::from).collect(),
                context_tokens: placement.context_tokens(),
                sessions: placement.sessions(),
                keys: placement.kept().map(|kv| kv.keys),
                values: placement.kept().map(|kv| kv.values),
                context_token_limit,
                budgets: placement.budgets().iter().map(BudgetOf::from).collect(),
                ffn_budget: placement.ffn_budget(),
                weights: placement.weights,
                addresses: Some(placement.addresses().clone()).filter(|known| !known.is_empty()),
            })
        }
        Instance::MlxRing { hosts_by_node, ephemeral_port } => Tagged::Ring(Ring {
            instance_id,
            shard_assignments: assignments(placement),
            context_token_limit,
            hosts_by_node,
            ephemeral_port,
        }),
        Instance::MlxJaccl { jaccl_devices, jaccl_coordinators } => Tagged::Jaccl(Jaccl {
            instance_id,
            shard_assignments: assignments(placement),
            context_token_limit,
            jaccl_devices,
            jaccl_coordinators,
        }),
    })
}

/// Cannot fail: all keys are texts.
pub(super) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn assignments(placement: &Placement) -> Assignments {
    let runners: Vec<_> = (0..placement.stages().len()).map(|rank| placement.runner_id(rank)).collect();
    let ranks = || placement.stages().iter().enumerate().zip(&runners);
    let card = card(placement).0;
    Assignments {
        model_id: model_id(placement),
        runner_to_shard: ranks()
            .map(|((rank, stage), runner)| {
                (runner.clone(), shard(placement, rank, stage, Some(Given(card.clone()))))
            })
            .collect(),
        node_to_runner: ranks().map(|((_, stage), runner)| (stage.node.clone(), runner.clone())).collect(),
    }
}

/// One rank's shard, with a card or, where that stands elsewhere, without.
pub(super) fn shard<const WITH_CARD: bool>(
    placement: &Placement,
    rank: usize,
    stage: &Stage,
    model_card: Option<Given<Card>>,
) -> Shard<WITH_CARD> {
    let rank = Rank {
        device_rank: rank,
        world_size: placement.stages().len(),
        resolved_backend: stage.backend.clone(),
        immediate_exception: Some(false),
        should_timeout: None,
        start_layer: stage.layers.start,
        end_layer: stage.layers.end,
        n_layers: placement.n_layers(),
    };
    match stage.part {
        Part::Whole => Shard::Pipeline(ShardFields { model_card, rank, cfg: None }),
        Part::Tensor => Shard::Tensor(ShardFields { model_card, rank, cfg: None }),
        Part::Cfg { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size } => {
            let cfg_world_size = Some(cfg_world_size);
            let cfg = Some(CfgRank { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size });
            Shard::Cfg(ShardFields { model_card, rank, cfg })
        }
    }
}

fn model_id(placement: &Placement) -> Given<String> {
    Given(placement.card().map(|card| card.model_id.clone()))
}

pub(super) fn card(placement: &Placement) -> Given<Card> {
    Given(placement.card.clone().map(Card))
}
