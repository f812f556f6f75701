//! Which backend runs a model on a node? Tags `<engine>-<compute>`: what a card lists, and what a node has.

use std::collections::BTreeSet;

use crate::ids::EngineId;
use crate::kv_type::KvTypes;

/// Engines that tags can begin with: Skulk 1.3's two, and this library.
const ENGINES: [&str; 3] = ["mlx", "llama_cpp", SKULK];
const SKULK: &str = "skulk";

/// The engine that a tag names: all of it, or what stands before the first `-`. `None`: one that nobody
/// knows.
///
/// ```
/// use skulk::plan::backend::engine_of;
/// assert_eq!(engine_of("mlx-metal"), Some("mlx"));
/// assert_eq!(engine_of("vllm-cuda"), None);
/// ```
pub fn engine_of(tag: &str) -> Option<&'static str> {
    ENGINES
        .into_iter()
        .find(|engine| tag.strip_prefix(engine).is_some_and(|t| t.is_empty() || t.starts_with('-')))
}

/// The tag of one of this library's engines: `skulk-cpu`.
pub fn tag_of(engine: &EngineId) -> String {
    format!("{SKULK}-{engine}")
}

/// This library's engine that a tag names, as `cpu` for `skulk-cpu`; `None` for other software's.
pub fn own_engine(tag: &str) -> Option<EngineId> {
    tag.strip_prefix(SKULK)?.strip_prefix('-').map(EngineId::new)
}

/// Whether a backend keeps keys and values so. Of this library's, candle's have no quantised ones; of other software's
/// it is not known, and they are taken to.
pub fn keeps(tag: &str, kv: KvTypes) -> bool {
    !(is_candles(tag) && kv.are_quantised())
}

/// Whether it is one of this library's engines that compute with candle's tensors.
pub(super) fn is_candles(tag: &str) -> bool {
    own_engine(tag).is_some_and(|engine| engine.as_str().starts_with("candle-"))
}

/// Whether an engine can run one model over several nodes.
pub fn is_multi_node(engine: &str) -> bool {
    matches!(engine, "mlx" | SKULK)
}

/// Whether a backend that a node has is one that a card lists. Tags are compared as they stand; but of this
/// library's own, one that says more serves, too: `skulk-wgpu-vulkan:0` is a `skulk-wgpu`.
pub fn serves(node_tag: &str, card_tag: &str) -> bool {
    node_tag.strip_prefix(card_tag).is_some_and(|more| {
        more.is_empty() || (engine_of(card_tag) == Some(SKULK) && more.starts_with(['-', ':']))
    })
}

/// The backend of a node that runs a model: of those that serve one of the card's `compatible`, the first
/// by `preference`; without any preferred, the first by name. `None`: the node cannot run it.
pub fn resolve_backend<'a>(
    compatible: &BTreeSet<String>,
    preference: &[String],
    node_tags: &'a BTreeSet<String>,
) -> Option<&'a str> {
    let usable = || node_tags.iter().filter(|tag| compatible.iter().any(|card| serves(tag, card)));
    let preferred = preference.iter().find_map(|card| usable().find(|tag| serves(tag, card)));
    preferred.or_else(|| usable().next()).map(String::as_str)
}

/// Whether one of these backends keeps weights in the memory of a graphics card.
pub fn has_gpu_offload(tags: &BTreeSet<String>) -> bool {
    tags.iter().any(|tag| match engine_of(tag) {
        Some("llama_cpp") => tag.contains('-') && !tag.ends_with("-cpu"),
        Some(SKULK) => tag.contains('-') && !matches!(tag.as_str(), "skulk-cpu" | "skulk-candle-cpu"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags<'a>(tags: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
        tags.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn only_this_librarys_tags_are_served_by_finer_ones() {
        for (node, card, expected) in [
            ("mlx", "mlx", true),
            ("mlx-metal", "mlx", false),
            ("llama_cpp-cuda", "llama_cpp", false),
            ("skulk-wgpu", "skulk-wgpu", true),
            ("skulk-wgpu-vulkan:0", "skulk-wgpu", true),
            ("skulk-wgpu:1", "skulk-wgpu", true),
            ("skulk-wgpux", "skulk-wgpu", false),
            ("skulk-wgpu", "skulk-wgpu-vulkan", false),
            ("skulk-cpu", "skulk", true),
            ("x-y", "x", false),
        ] {
            assert_eq!(serves(node, card), expected, "{node} for {card}");
        }
    }

    #[test]
    fn a_finer_tag_is_what_is_resolved() {
        let compatible = tags(["skulk-wgpu", "skulk-cpu", "mlx"]);
        let node = tags(["skulk-cpu", "skulk-wgpu-vulkan:0", "skulk-wgpu-vulkan:1"]);
        let prefers = |tag: &str| resolve_backend(&compatible, &[tag.to_owned()], &node);
        assert_eq!(prefers("skulk-wgpu"), Some("skulk-wgpu-vulkan:0"));
        assert_eq!(prefers("skulk-wgpu-vulkan:1"), Some("skulk-wgpu-vulkan:1"));
        assert_eq!(prefers("mlx"), Some("skulk-cpu"));
    }

    #[test]
    fn offload_is_by_tag() {
        assert!(has_gpu_offload(&tags(["skulk-cpu", "skulk-candle-cuda"])));
        assert!(has_gpu_offload(&tags(["skulk-wgpu-vulkan:0"])));
        assert!(!has_gpu_offload(&tags(["skulk-cpu", "skulk-candle-cpu", "skulk", "mlx-metal"])));
    }
}
