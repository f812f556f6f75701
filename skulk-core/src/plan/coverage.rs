//! Does a placement run everything exactly once? Layers by stage, and experts by owner.

use std::collections::BTreeMap;

use super::stage::{ExpertShard, Part, Stage, invalid};
use crate::error::{Error, Result};

/// Stages in order of rank must together be the model: layers one behind the other, or every tensor in all its
/// shares, or both halves of classifier-free guidance.
pub(super) fn check_stages(stages: &[Stage], n_layers: usize) -> Result<()> {
    let Some(first) = stages.first() else {
        return Err(wrong_stages("expected at least one stage, found none".to_owned()));
    };
    let kind = std::mem::discriminant(&first.part);
    if let Some(i) = stages.iter().position(|stage| std::mem::discriminant(&stage.part) != kind) {
        return Err(wrong_stages(format!(
            "expected stages of one kind, found {:?} at rank 0 and {:?} at rank {i}",
            first.part,
            stages.get(i).map(|stage| stage.part).unwrap_or_default()
        )));
    }
    match first.part {
        Part::Whole => check_pipeline(stages.iter().enumerate(), n_layers),
        Part::Tensor => check_shares(stages, n_layers),
        Part::Cfg { cfg_world_size, pipeline_world_size, .. } => {
            check_halves(stages, n_layers, cfg_world_size, pipeline_world_size)
        }
    }
}

fn check_pipeline<'a>(stages: impl Iterator<Item = (usize, &'a Stage)>, n_layers: usize) -> Result<()> {
    let mut next = 0;
    for (i, Stage { layers, .. }) in stages {
        if layers.start != next || layers.is_empty() {
            return Err(wrong_stages(format!(
                "expected stage {i} to start at layer {next} and hold at least one, found {}..{}",
                layers.start, layers.end
            )));
        }
        next = layers.end;
    }
    if next != n_layers {
        return Err(wrong_stages(format!("expected the stages to cover {n_layers} layers, found {next}")));
    }
    Ok(())
}

fn check_shares(stages: &[Stage], n_layers: usize) -> Result<()> {
    for (i, Stage { layers, .. }) in stages.iter().enumerate() {
        if *layers != (0..n_layers) || layers.is_empty() {
            return Err(wrong_stages(format!(
                "expected rank {i} to have its share of layers 0..{n_layers}, found {}..{}",
                layers.start, layers.end
            )));
        }
    }
    Ok(())
}

fn check_halves(stages: &[Stage], n_layers: usize, halves: usize, length: usize) -> Result<()> {
    if halves != 2 || length.checked_mul(2) != Some(stages.len()) {
        return Err(wrong_stages(format!(
            "expected two halves of {} stages, found cfg_world_size {halves} and pipeline_world_size {length}",
            stages.len() as f64 / 2.0
        )));
    }
    let mut places = BTreeMap::new();
    for (i, stage) in stages.iter().enumerate() {
        let Part::Cfg { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size } = stage.part else {
            continue;
        };
        let alike = cfg_world_size == halves && pipeline_world_size == length;
        let inside = cfg_rank < halves && pipeline_rank < length;
        if !alike || !inside || places.insert((cfg_rank, pipeline_rank), (i, stage)).is_some() {
            return Err(wrong_stages(format!(
                "expected rank {i} at a place of its own in two halves of {length} stages, found half {cfg_rank} of \
                 {cfg_world_size}, stage {pipeline_rank} of {pipeline_world_size}"
            )));
        }
    }
    for half in 0..halves {
        check_pipeline(places.range((half, 0)..(half + 1, 0)).map(|(_, place)| *place), n_layers)?;
    }
    Ok(())
}

/// Of each layer of which experts are placed, every one must have exactly one owner. Replicas own nothing.
pub(super) fn check_experts(shards: &[ExpertShard], n_layers: usize) -> Result<()> {
    for shard in shards {
        let ExpertShard { node, layers, experts, n_experts, .. } = shard;
        let inside = layers.end <= n_layers && experts.end <= *n_experts;
        if !inside || layers.is_empty() || experts.is_empty() {
            return Err(wrong_experts(format!(
                "expected experts within 0..{n_experts} of layers within 0..{n_layers}, found experts {}..{} of \
                 layers {}..{}",
                experts.start, experts.end, layers.start, layers.end
            ))
            .with("node", node));
        }
    }
    let mut starting: Vec<&ExpertShard> = shards.iter().filter(|shard| !shard.replica).collect();
    let mut ending = starting.clone();
    starting.sort_by_key(|shard| std::cmp::Reverse(shard.layers.start));
    ending.sort_by_key(|shard| std::cmp::Reverse(shard.layers.end));
    let mut borders: Vec<usize> =
        starting.iter().flat_map(|shard| [shard.layers.start, shard.layers.end]).collect();
    borders.sort_unstable();
    borders.dedup();
    // What is owned from this border to the next: ranges by their starts, which never overlap.
    let mut owned: BTreeMap<usize, &ExpertShard> = BTreeMap::new();
    let mut count = 0;
    for layer in borders {
        while let Some(shard) = ending.pop_if(|shard| shard.layers.end == layer) {
            owned.remove(&shard.experts.start);
            count -= shard.experts.len();
        }
        while let Some(shard) = starting.pop_if(|shard| shard.layers.start == layer) {
            let before = owned.range(..shard.experts.end).next_back();
            if before.is_some_and(|(_, before)| before.experts.end > shard.experts.start) {
                return Err(wrong_experts(format!(
                    "expected one owner for each expert, found a second for some of experts {}..{}",
                    shard.experts.start, shard.experts.end
                ))
                .with("layer", layer)
                .with("node", &shard.node));
            }
            owned.insert(shard.experts.start, shard);
            count += shard.experts.len();
        }
        let n_experts = owned.values().next().map_or(0, |shard| shard.n_experts);
        if let Some(other) = owned.values().find(|shard| shard.n_experts != n_experts) {
            return Err(wrong_experts(format!(
                "expected {n_experts} experts in all, found {}",
                other.n_experts
            ))
            .with("layer", layer)
            .with("node", &other.node));
        }
        if count != n_experts {
            return Err(wrong_experts(format!(
                "expected owners of {n_experts} experts, found those of {count}"
            ))
            .with("layer", layer));
        }
    }
    Ok(())
}

fn wrong_stages(message: String) -> Error {
    invalid(
        message,
        "give contiguous stages from layer 0 to the last, or all ranks of a split by tensors or of guidance",
    )
}

fn wrong_experts(message: String) -> Error {
    invalid(
        message,
        "of each layer that is named, give every expert one owner; a dense block is expert 0 of 1",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::EngineId;
    use crate::plan::NodeId;
    use proptest::prelude::*;

    fn stage(layers: std::ops::Range<usize>, part: Part) -> Stage {
        Stage { part, ..Stage::new(&EngineId::new("e"), layers) }
    }

    fn half(cfg_rank: usize, pipeline_rank: usize, layers: std::ops::Range<usize>) -> Stage {
        stage(layers, Part::Cfg { cfg_rank, cfg_world_size: 2, pipeline_rank, pipeline_world_size: 2 })
    }

    #[test]
    fn every_rank_of_a_tensor_split_has_all_layers() {
        let all = |ranges: &[std::ops::Range<usize>]| {
            let stages: Vec<_> = ranges.iter().map(|range| stage(range.clone(), Part::Tensor)).collect();
            check_stages(&stages, 4)
        };
        assert!(all(&[0..4, 0..4, 0..4]).is_ok());
        assert!(all(&[0..4, 0..3]).is_err());
        assert!(all(&[0..4, 1..4]).is_err());
        assert!(check_stages(&[stage(0..0, Part::Tensor)], 0).is_err());
        assert!(check_stages(&[stage(0..4, Part::Tensor), stage(0..4, Part::Whole)], 4).is_err());
    }

    #[test]
    fn both_halves_of_guidance_have_all_layers() {
        let good = [half(0, 0, 0..3), half(0, 1, 3..4), half(1, 1, 2..4), half(1, 0, 0..2)];
        assert!(check_stages(&good, 4).is_ok());
        for (i, bad) in [
            half(0, 1, 0..3),
            half(2, 0, 0..3),
            half(0, 0, 0..2),
            half(0, 0, 1..3),
            half(0, 0, 0..0),
            half(0, 9, 0..3),
            stage(
                0..3,
                Part::Cfg { cfg_rank: 0, cfg_world_size: 2, pipeline_rank: 0, pipeline_world_size: 4 },
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let mut stages = good.clone();
            stages[0] = bad;
            assert!(check_stages(&stages, 4).is_err(), "{i}");
        }
        assert!(check_stages(&good[..3], 4).is_err());
        let huge = Part::Cfg {
            cfg_rank: 0,
            cfg_world_size: usize::MAX,
            pipeline_rank: 0,
            pipeline_world_size: usize::MAX,
        };
        assert!(check_stages(&[stage(0..4, huge)], 4).is_err());
    }

    fn experts() -> impl Strategy<Value = Vec<ExpertShard>> {
        let shard =
            (0usize..6, 0usize..7, 0usize..6, 0usize..7, any::<bool>()).prop_map(|(a, b, c, d, replica)| {
                let (layers, experts) = (a..b, c..d);
                ExpertShard { node: NodeId::new("n"), backend: None, layers, experts, n_experts: 6, replica }
            });
        proptest::collection::vec(shard, 0..5)
    }

    proptest! {
        #[test]
        fn experts_with_two_owners_or_none_are_found(shards in experts()) {
            let mut owned = BTreeMap::<_, Vec<_>>::new();
            let mut good = true;
            for shard in &shards {
                good &= !shard.layers.is_empty() && !shard.experts.is_empty() && shard.layers.end <= 5;
                for layer in shard.layers.clone().filter(|_| !shard.replica) {
                    owned.entry(layer).or_default().extend(shard.experts.clone());
                }
            }
            for owners in owned.values_mut() {
                owners.sort_unstable();
                good &= owners.iter().copied().eq(0..6);
            }
            prop_assert_eq!(check_experts(&shards, 5).is_ok(), good);
        }
    }
}
