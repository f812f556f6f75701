//! How much memory does a part of a model need, and how much may a node give it? The formulas of Skulk 1.3,
//! in bytes.

use serde::Serialize;

use super::backend::has_gpu_offload;
use super::cluster::{Accelerator, Node, NodeMemory, Vendor};
use super::strictness::Strictness;
use crate::card::ModelCard;

/// Bytes taken for each byte of weights: MLX's buffers and its runtime.
pub const OVERHEAD: f64 = 1.30;
/// The same for GGUF models, whose runtime is leaner.
pub const OVERHEAD_GGUF: f64 = 1.10;
/// Bytes that each part of a model takes whatever its size: computing, runtime.
pub const OVERHEAD_FLOOR: u64 = 256 << 20;
/// The share of main memory that a model may use: what Metal lets a process wire.
pub const RAM_SHARE: f64 = 0.75;
/// The share under [`Strictness::Relaxed`].
pub const RAM_SHARE_RELAXED: f64 = 0.90;
/// The share of a graphics card's memory that a model may use.
pub const VRAM_SHARE: f64 = 0.90;
/// Bytes of main memory that stay with the system where a graphics processor uses main memory, too.
pub const UNIFIED_HEADROOM: u64 = 16 << 30;
/// Tokens for which keys and values are reserved unless a request says otherwise.
pub const CONTEXT_TOKENS: u64 = 8192;
/// Values of a key or value head; cards do not say.
pub const HEAD_DIM: u64 = 128;
/// Bytes of each of these values.
pub const KV_VALUE_BYTES: u64 = 2;

/// Bytes of a gibibyte.
pub(super) const GIB: f64 = (1u64 << 30) as f64;

/// `bytes` times `factor`, a half rounded to the even neighbour: the reference's arithmetic, which decides
/// whether a tight model fits.
pub fn scale(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor).round_ties_even() as u64
}

/// `bytes` by `divisor`, rounded likewise.
pub fn divide(bytes: u64, divisor: f64) -> u64 {
    (bytes as f64 / divisor).round_ties_even() as u64
}

/// Bytes taken for each byte of this model's weights.
pub fn overhead(card: &ModelCard, strictness: Strictness) -> f64 {
    match strictness {
        Strictness::Relaxed => 1.0,
        Strictness::Safe | Strictness::Force if is_gguf(card) => OVERHEAD_GGUF,
        Strictness::Safe | Strictness::Force => OVERHEAD,
    }
}

/// Whether llama.cpp runs it where no other engine is said.
pub(super) fn is_gguf(card: &ModelCard) -> bool {
    card.gguf_file.as_deref().is_some_and(|file| !file.is_empty())
}

/// Bytes of keys and values of one token, all layers: 2 · layers · heads · [`HEAD_DIM`] ·
/// [`KV_VALUE_BYTES`]. 0: the card does not say how many heads there are.
pub fn kv_bytes_per_token(card: &ModelCard) -> u64 {
    let heads = card.num_key_value_heads.unwrap_or(0) as u64;
    [card.n_layers as u64, heads, HEAD_DIM, KV_VALUE_BYTES].into_iter().fold(2, u64::saturating_mul)
}

/// Bytes of keys and values of `tokens` tokens, all layers.
pub fn kv_bytes(card: &ModelCard, tokens: u64) -> u64 {
    kv_bytes_per_token(card).saturating_mul(tokens)
}

/// Bytes that a `fraction` of a model takes, with keys and values of `tokens` tokens:
/// weights · fraction · overhead + keys and values · fraction + [`OVERHEAD_FLOOR`]. No fraction, no bytes.
pub fn shard_footprint(card: &ModelCard, fraction: f64, tokens: u64, strictness: Strictness) -> u64 {
    if fraction <= 0.0 {
        return 0;
    }
    scale(scale(card.storage_size.in_bytes, fraction), overhead(card, strictness))
        .saturating_add(scale(kv_bytes(card, tokens), fraction))
        .saturating_add(OVERHEAD_FLOOR)
}

/// Whether a footprint is larger than what may be used, by more than a `tolerance` relative to that. Nodes
/// that look once more before they load allow 0.1, as what is free changes all the time.
pub fn footprint_exceeds(footprint: u64, usable: u64, tolerance: f64) -> bool {
    footprint as f64 > usable as f64 * (1.0 + tolerance)
}

/// Memory of a node that a model may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Usable {
    /// So many bytes.
    pub bytes: u64,
    /// Of a graphics card; else of main memory.
    pub vram: bool,
}

/// The memory of a node that one backend may use: [`usable_vram`] where it has that, else [`usable_ram`].
/// `None`: the node has not reported its main memory.
pub fn usable_memory(node: &Node, strictness: Strictness) -> Option<Usable> {
    let memory = node.memory.as_ref()?;
    let vram = usable_vram(node).map(|bytes| Usable { bytes, vram: true });
    Some(vram.unwrap_or_else(|| Usable { bytes: usable_ram(memory, strictness), vram: false }))
}

/// Main memory that a model may use: min(available, [`RAM_SHARE`] · total); relaxed,
/// [`RAM_SHARE_RELAXED`] · total.
pub fn usable_ram(memory: &NodeMemory, strictness: Strictness) -> u64 {
    let working_set = working_set(memory, strictness);
    match strictness {
        Strictness::Relaxed => working_set,
        Strictness::Safe | Strictness::Force => working_set.min(memory.ram_available),
    }
}

/// Main memory that a model may use once nothing else does: a share of all there is.
pub fn working_set(memory: &NodeMemory, strictness: Strictness) -> u64 {
    let share = match strictness {
        Strictness::Relaxed => RAM_SHARE_RELAXED,
        Strictness::Safe | Strictness::Force => RAM_SHARE,
    };
    scale(memory.ram_total, share)
}

/// Memory of graphics cards by AMD and NVIDIA that a model may use, of a node with a backend that uses it:
/// min(total − used, [`VRAM_SHARE`] · total) of each. `None`: there is none.
///
/// Where the graphics processor reaches all of main memory, it may use that, too, but for
/// [`UNIFIED_HEADROOM`].
pub fn usable_vram(node: &Node) -> Option<u64> {
    if !node.backends.as_ref().is_some_and(has_gpu_offload) {
        return None;
    }
    let mut cards = node.accelerators.iter().filter(|card| own_memory(card).is_some()).peekable();
    cards.peek()?;
    let (mut usable, mut unified) = (0u64, 0u64);
    for card in cards {
        let total = own_memory(card).unwrap_or(0);
        let free = total.saturating_sub(card.vram_used_bytes.unwrap_or(0));
        usable = usable.saturating_add(free.min((total as f64 * VRAM_SHARE) as u64));
        if let Some((memory, reach)) = reached_memory(node, card) {
            // Main memory is there once, however many cards reach it.
            unified = unified.max(memory.ram_available.saturating_sub(UNIFIED_HEADROOM).min(reach));
        }
    }
    Some(usable.saturating_add(unified))
}

/// A graphics card's own memory, of the makers that report it.
fn own_memory(card: &Accelerator) -> Option<u64> {
    let reports = matches!(card.vendor, Vendor::Amd | Vendor::Nvidia);
    card.vram_total_bytes.filter(|&total| reports && total > 0)
}

/// Main memory, and how much of it the graphics processor reaches, where that is all of it. Graphics cards
/// reach some, too, but not more than they have themselves.
fn reached_memory<'a>(node: &'a Node, card: &Accelerator) -> Option<(&'a NodeMemory, u64)> {
    let (memory, reach) = (node.memory.as_ref()?, card.gtt_total_bytes?);
    (reach > own_memory(card)? && reach >= memory.ram_total).then_some((memory, reach))
}

/// All memory of a node's accelerators, in use or not, for `min_vram_gib` of cards: that of graphics cards,
/// main memory where they reach all of it, and main memory of Apple's machines, which is the same for
/// all. `None`: nothing is known.
pub fn accelerator_memory(node: &Node) -> Option<u64> {
    let apple = node.accelerators.iter().any(|card| card.vendor == Vendor::Apple)
        || node.backends.iter().flatten().any(|tag| tag == "mlx" || tag == "mlx-metal");
    let ram = node.memory.as_ref().map(|memory| memory.ram_total);
    let own = node.accelerators.iter().filter_map(|card| {
        let reached = reached_memory(node, card).map_or(0, |(memory, _)| memory.ram_total);
        Some(card.vram_total_bytes.filter(|&total| total > 0)?.saturating_add(reached))
    });
    let own = own.reduce(u64::saturating_add);
    if apple { ram.max(own) } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    fn gpu(total: u64, used: u64, gtt: Option<u64>) -> Accelerator {
        Accelerator {
            vendor: Vendor::Amd,
            vram_total_bytes: Some(total),
            vram_used_bytes: Some(used),
            gtt_total_bytes: gtt,
            ..Accelerator::default()
        }
    }

    #[test]
    fn memory_of_several_cards_adds_up_and_main_memory_counts_once() {
        let node = Node::new("n").backends(["skulk-wgpu"]).memory(50 * GB, 64 * GB);
        assert_eq!(usable_vram(&node), None);
        let two = node.clone().accelerator(gpu(8 * GB, 2 * GB, None)).accelerator(gpu(8 * GB, 2 * GB, None));
        assert_eq!(usable_vram(&two), Some(12 * GB));
        let reach = Some(64 * GB);
        let two = node.accelerator(gpu(8 * GB, 2 * GB, reach)).accelerator(gpu(8 * GB, 2 * GB, reach));
        assert_eq!(usable_vram(&two), Some((12 + 34) * GB));
        assert_eq!(usable_vram(&two.backends(["skulk-cpu"])), None);
    }

    #[test]
    fn a_relaxed_plan_takes_memory_that_others_hold() {
        let memory = NodeMemory::new(20, 100);
        let usable = |strictness| usable_ram(&memory, strictness);
        assert_eq!([Strictness::Safe, Strictness::Relaxed, Strictness::Force].map(usable), [20, 90, 20]);
    }

    #[test]
    fn accelerator_memory_is_not_guessed() {
        let node = Node::new("n").memory(GB, 64 * GB);
        assert_eq!(accelerator_memory(&node), None);
        assert_eq!(accelerator_memory(&node.clone().backends(["mlx-metal"])), Some(64 * GB));
        assert_eq!(accelerator_memory(&node.clone().accelerator(gpu(4 * GB, GB, None))), Some(4 * GB));
        assert_eq!(accelerator_memory(&node.accelerator(gpu(4 * GB, GB, Some(64 * GB)))), Some(68 * GB));
    }
}
