//! Which layers does each node of a ring get? The split, and whether it can be held.

use std::ops::Range;

use super::facts::Facts;
use crate::card::ModelCard;
use crate::error::Result;
use crate::plan::memory::{GIB, RAM_SHARE, RAM_SHARE_RELAXED, shard_footprint};
use crate::plan::request::{Request, Sharding};
use crate::plan::split::allocate_layers;
use crate::plan::stage::Part;
use crate::plan::strictness::Strictness;

/// Whose rules decide whether a split is good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// The reference's: weights must fit, without overhead, keys and values, and with CFG on the first half
    /// of the nodes only.
    Weights,
    /// What the memory rule asks, of each node; layers move where the reference's split is over it.
    Footprint,
}

/// The layers and part of each rank; an error says in words why there are none.
pub(super) fn assign(
    card: &ModelCard,
    request: &Request,
    sharding: Sharding,
    names: &[&str],
    facts: &[&Facts],
    check: Check,
) -> Result<Vec<(Range<usize>, Part)>, String> {
    let world = facts.len();
    if sharding == Sharding::Tensor {
        return Ok(vec![(0..card.n_layers, Part::Tensor); world]);
    }
    let stages = if is_cfg(card, world) { world / 2 } else { world };
    let usable: Vec<u64> = facts[..stages].iter().map(|facts| facts.bytes()).collect();
    let all = usable.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let force = request.strictness == Strictness::Force;
    if all == 0 && !force {
        return Err("Cannot create shard assignments: total usable memory is 0".to_owned());
    }
    let fraction = |bytes: u64| if all == 0 { 1.0 / stages as f64 } else { bytes as f64 / all as f64 };
    let fractions: Vec<f64> = usable.iter().map(|&bytes| fraction(bytes)).collect();
    let mut layers = allocate_layers(card.n_layers, &fractions).map_err(|_| {
        let total = card.n_layers;
        format!("Cannot distribute {total} layers across {stages} nodes (need at least 1 layer per node)")
    })?;
    match check {
        _ if force => {}
        Check::Weights => weights_fit(card, request, names, facts, &layers)?,
        Check::Footprint => {
            // Of a pipeline that is there twice, the smaller of the two nodes of a stage decides.
            let mirrored = |i: usize| facts[i].bytes().min(facts[world - 1 - i].bytes());
            let room = |i: usize| if stages < world { mirrored(i) } else { usable[i] };
            let most: Vec<usize> = (0..stages).map(|i| most_layers(card, request, room(i))).collect();
            move_layers(&mut layers, &most).ok_or_else(|| {
                let held: Vec<String> =
                    most.iter().zip(names).map(|(most, name)| format!("{name} {most}")).collect();
                format!("of {} layers, nodes can hold at most: {}", card.n_layers, held.join(", "))
            })?;
        }
    }
    let mut start = 0usize;
    let ranges = layers.iter().map(|n| {
        let range = start..start.saturating_add(*n);
        start = range.end;
        range
    });
    let ranges: Vec<Range<usize>> = ranges.collect();
    if stages == world {
        return Ok(ranges.into_iter().map(|range| (range, Part::Whole)).collect());
    }
    // The second half runs the other way, so that both last stages are neighbours.
    let places = (0..stages).map(|stage| (0, stage)).chain((0..stages).rev().map(|stage| (1, stage)));
    let part = |(cfg_rank, pipeline_rank): (usize, usize)| {
        let part = Part::Cfg { cfg_rank, cfg_world_size: 2, pipeline_rank, pipeline_world_size: stages };
        (ranges[pipeline_rank].clone(), part)
    };
    Ok(places.map(part).collect())
}

/// Whether two halves of a ring run the model, for classifier-free guidance.
fn is_cfg(card: &ModelCard, world: usize) -> bool {
    card.uses_cfg && world >= 2 && world.is_multiple_of(2)
}

/// The reference's own check: each node's weights, without anything else.
fn weights_fit(
    card: &ModelCard,
    request: &Request,
    names: &[&str],
    facts: &[&Facts],
    layers: &[usize],
) -> Result<(), String> {
    for (i, (&n, facts)) in layers.iter().zip(facts).enumerate() {
        let bytes = u128::from(card.storage_size.in_bytes) * n as u128 / card.n_layers.max(1) as u128;
        let usable = facts.bytes();
        if bytes > u128::from(usable) {
            let share = match request.strictness {
                Strictness::Relaxed => RAM_SHARE_RELAXED,
                Strictness::Safe | Strictness::Force => RAM_SHARE,
            };
            let pool = match facts.usable {
                Some(usable) if usable.vram => "GPU VRAM".to_owned(),
                _ => format!("{:.0}% of RAM cap", share * 100.0),
            };
            return Err(format!(
                "Node {i} ({}) has insufficient memory: requires {:.2} GiB for {n} layers, but can only use \
                 {:.2} GiB ({pool})",
                names[i],
                bytes as f64 / GIB,
                usable as f64 / GIB,
            ));
        }
    }
    Ok(())
}

/// The most layers whose footprint is within `usable` bytes.
fn most_layers(card: &ModelCard, request: &Request, usable: u64) -> usize {
    let fits = |n: usize| {
        let fraction = n as f64 / card.n_layers as f64;
        shard_footprint(card, fraction, request.context_tokens, request.strictness) <= usable
    };
    let (mut low, mut high) = (0, card.n_layers);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Takes layers beyond what a node can hold to those that can hold more. `None`: nobody can, or somebody
/// cannot hold even one.
fn move_layers(layers: &mut [usize], most: &[usize]) -> Option<()> {
    if most.contains(&0) {
        return None;
    }
    let mut over = 0usize;
    for (n, most) in layers.iter_mut().zip(most) {
        over = over.saturating_add(n.saturating_sub(*most));
        *n = (*n).min(*most);
    }
    while over > 0 {
        let spare = |i: usize| most[i] - layers[i];
        // The first of several that can hold most.
        let roomiest = (0..layers.len()).rev().max_by_key(|&i| spare(i)).filter(|&i| spare(i) > 0)?;
        let moved = over.div_ceil(layers.len()).min(spare(roomiest));
        layers[roomiest] += moved;
        over -= moved;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_move_to_where_there_is_room() {
        let mut layers = [5, 5, 2];
        assert_eq!(move_layers(&mut layers, &[4, 9, 2]), Some(()));
        assert_eq!(layers, [4, 6, 2]);
        assert_eq!(move_layers(&mut [5, 5], &[4, 5]), None);
        assert_eq!(move_layers(&mut [5, 5], &[0, 50]), None);
        let mut many = [usize::MAX - 1, 1];
        assert_eq!(move_layers(&mut many, &[1, usize::MAX]), Some(()));
        assert_eq!(many, [1, usize::MAX - 1]);
    }
}
