//! Is a placement that came from elsewhere sound? Coverage, and budgets.

use std::collections::BTreeMap;
use std::ops::Range;

use super::cluster::{Cluster, NodeId};
use super::memory::{shard_footprint, usable_memory};
use super::placement::{ExpertShard, Part, Placement, Stage};
use super::request::Strictness;
use crate::bytes::ByteSize;
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};

/// Of a card's size, the percentage that budgets must account for: files hold more than weights, and cards
/// round.
const ACCOUNTED: u128 = 95;

impl Placement {
    /// Whether every layer and expert of the card's model has its place exactly once, and what each device is
    /// to hold fits there by the placement's own budgets. Placements in the form of MLX instances have none:
    /// see [`check_on`](Self::check_on).
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] naming what is wrong, and on which node or layer.
    pub fn check(&self, card: &ModelCard) -> Result<()> {
        if let Some(own) = self.card.as_deref().filter(|own| own.model_id != card.model_id) {
            return Err(invalid(format!(
                "expected a placement of {}, found one of {}",
                card.model_id, own.model_id
            )));
        }
        if self.n_layers != card.n_layers {
            return Err(invalid(format!("expected {} layers, found {}", card.n_layers, self.n_layers)));
        }
        stages_cover(&self.stages, self.n_layers)?;
        experts_cover(&self.experts, self.n_layers)?;
        if let Some(limit) = self.context_limit
            && card.context_length > 0
            && limit > card.context_length as u64
        {
            return Err(invalid(format!(
                "expected a context of at most {} tokens, found {limit}",
                card.context_length
            )));
        }
        self.budgets_hold(card)
    }

    /// [`check`](Self::check), and whether each node's part fits into what the node has now, as the reference
    /// estimates it: for placements without budgets.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`]; [`ErrorKind::PlanPending`] where a node has not reported its memory.
    pub fn check_on(&self, card: &ModelCard, cluster: &Cluster, context_tokens: u64) -> Result<()> {
        self.check(card)?;
        let mut fractions: BTreeMap<&NodeId, f64> = BTreeMap::new();
        let world = self.stages.len() as f64;
        for stage in &self.stages {
            *fractions.entry(&stage.node).or_default() += match stage.part {
                Part::Tensor => 1.0 / world,
                Part::Whole | Part::Cfg { .. } => stage.layers.len() as f64 / self.n_layers as f64,
            };
        }
        for (id, fraction) in fractions {
            let node = cluster.nodes.iter().find(|node| node.id == *id).ok_or_else(|| {
                invalid("the placement names a node that the cluster lacks".to_owned()).with("node", id)
            })?;
            let usable = usable_memory(node, Strictness::Safe).ok_or_else(|| {
                Error::new(ErrorKind::PlanPending, "the node has not reported its memory yet")
                    .with("node", id)
            })?;
            let needed = shard_footprint(card, fraction, context_tokens, Strictness::Safe);
            if self.budgets.is_empty() && needed > usable.bytes {
                return Err(over(id, needed, usable.bytes));
            }
        }
        Ok(())
    }

    fn budgets_hold(&self, card: &ModelCard) -> Result<()> {
        if self.budgets.is_empty() {
            return Ok(());
        }
        let devices = self.stages.iter().map(|stage| (&stage.node, &stage.backend));
        let devices = devices.chain(self.experts.iter().map(|shard| (&shard.node, &shard.backend)));
        for (node, backend) in devices {
            if !self.budgets.iter().any(|budget| budget.node == *node && budget.backend == *backend) {
                return Err(
                    invalid("expected a budget for each device, found none".to_owned()).with("node", node)
                );
            }
        }
        let mut weights = 0u128;
        for budget in &self.budgets {
            let total = budget.bytes.total();
            if total > budget.usable {
                return Err(over(&budget.node, total, budget.usable));
            }
            weights += u128::from(budget.bytes.attention) + u128::from(budget.bytes.feed_forward);
        }
        let expected = u128::from(card.storage_size.in_bytes);
        if weights * 100 < expected * ACCOUNTED {
            let found = ByteSize(u64::try_from(weights).unwrap_or(u64::MAX));
            return Err(invalid(format!(
                "expected budgets for {} of weights, found {found}",
                ByteSize(card.storage_size.in_bytes)
            )));
        }
        Ok(())
    }
}

/// Whether stages have every layer exactly once: one behind the other, or all of them for each rank of tensors,
/// or for each half of classifier-free guidance.
pub(super) fn stages_cover(stages: &[Stage], n_layers: usize) -> Result<()> {
    let Some(first) = stages.first() else {
        return Err(invalid("expected at least one stage, found none".to_owned()));
    };
    match first.part {
        Part::Whole => in_order(stages.iter(), n_layers),
        Part::Tensor => {
            let whole = |stage: &Stage| stage.part == Part::Tensor && stage.layers == (0..n_layers);
            match stages.iter().position(|stage| !whole(stage)) {
                None => Ok(()),
                Some(at) => Err(invalid(format!(
                    "expected rank {at} to have a part of each of {n_layers} layers, found {}..{}",
                    stages[at].layers.start, stages[at].layers.end
                ))),
            }
        }
        Part::Cfg { cfg_world_size, pipeline_world_size, .. } => {
            let expected = cfg_world_size.checked_mul(pipeline_world_size);
            if expected != Some(stages.len()) {
                return Err(invalid(format!(
                    "expected {cfg_world_size} times {pipeline_world_size} stages, found {}",
                    stages.len()
                )));
            }
            for half in 0..cfg_world_size {
                let mut of_half = Vec::new();
                for stage in stages {
                    match stage.part {
                        Part::Cfg { cfg_rank, pipeline_rank, .. } if cfg_rank == half => {
                            of_half.push((pipeline_rank, stage));
                        }
                        Part::Cfg { .. } => {}
                        _ => {
                            return Err(invalid("expected all stages to be of guidance, or none".to_owned()));
                        }
                    }
                }
                of_half.sort_by_key(|(rank, _)| *rank);
                if of_half.iter().map(|(rank, _)| *rank).ne(0..pipeline_world_size) {
                    return Err(invalid(format!("expected each pipeline rank once in half {half}")));
                }
                in_order(of_half.into_iter().map(|(_, stage)| stage), n_layers)?;
            }
            Ok(())
        }
    }
}

fn in_order<'a>(stages: impl Iterator<Item = &'a Stage>, n_layers: usize) -> Result<()> {
    let mut next = 0;
    for (at, stage) in stages.enumerate() {
        let Range { start, end } = stage.layers;
        if start != next || end <= start || stage.part == Part::Tensor {
            return Err(invalid(format!(
                "expected stage {at} to start at layer {next} and hold at least one, found {start}..{end}"
            )));
        }
        next = end;
    }
    if next != n_layers {
        return Err(invalid(format!("expected the stages to cover {n_layers} layers, found {next}")));
    }
    Ok(())
}

/// Whether each layer of which experts are placed has every one of them exactly once, replicas aside.
pub(super) fn experts_cover(shards: &[ExpertShard], n_layers: usize) -> Result<()> {
    let mut by_layer: BTreeMap<usize, Vec<&ExpertShard>> = BTreeMap::new();
    for shard in shards {
        let inside = shard.layers.end <= n_layers && shard.experts.end <= shard.n_experts;
        if !inside || shard.layers.is_empty() || shard.experts.is_empty() {
            return Err(invalid(format!(
                "expected layers within 0..{n_layers} and experts within 0..{}, found layers {}..{} and experts {}..{}",
                shard.n_experts, shard.layers.start, shard.layers.end, shard.experts.start, shard.experts.end
            ))
            .with("node", &shard.node));
        }
        for layer in shard.layers.clone() {
            by_layer.entry(layer).or_default().push(shard);
        }
    }
    for (layer, mut shards) in by_layer {
        let n_experts = shards[0].n_experts;
        shards.retain(|shard| !shard.replica);
        shards.sort_by_key(|shard| shard.experts.start);
        let mut next = 0;
        for shard in shards {
            if shard.experts.start != next || shard.n_experts != n_experts {
                return Err(invalid(format!(
                    "expected expert {next} of {n_experts} next, found {}..{} of {}",
                    shard.experts.start, shard.experts.end, shard.n_experts
                ))
                .with("layer", layer)
                .with("node", &shard.node));
            }
            next = shard.experts.end;
        }
        if next != n_experts {
            return Err(
                invalid(format!("expected owners of {n_experts} experts, found {next}")).with("layer", layer)
            );
        }
    }
    Ok(())
}

fn over(node: &NodeId, needed: u64, usable: u64) -> Error {
    invalid(format!("expected at most {} on the node, found {}", ByteSize(usable), ByteSize(needed)))
        .with("node", node)
}

pub(super) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::PlacementInvalid, message)
        .with_hint("plan again; by hand, give contiguous stages from layer 0 to the last, each on an engine the model is loaded with, and every expert one owner")
}
