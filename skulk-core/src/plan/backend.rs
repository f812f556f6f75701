//! Which backend runs a model on a node? Tags `<engine>-<compute>`: what a card lists, and what a node has.

use std::collections::BTreeSet;

use crate::ids::EngineId;
use crate::kv_type::KvTypes;

/// Engines that tags can begin with: Skulk 1.3's two, and this library.
const SOFTWARE: [&str; 3] = ["mlx", "llama_cpp", SKULK];
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
    SOFTWARE
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

/// Engines that this library makes by name, and whether one of several devices is told by a number behind a colon.
const NAMED: [(&str, bool); 9] = [
    ("cpu", false),
    ("candle-cpu", false),
    ("candle-cuda", true),
    ("candle-metal", true),
    ("wgpu", false),
    ("wgpu-vulkan", true),
    ("wgpu-metal", true),
    ("wgpu-dx12", true),
    ("wgpu-gl", true),
];

/// What to do about a name that no engine of this library has.
pub const ENGINES: &str = "engines: cpu, candle-cpu, candle-cuda, candle-metal, wgpu, wgpu-vulkan, wgpu-metal, wgpu-dx12, wgpu-gl; of several devices: candle-cuda:1";

/// Whether this library makes an engine of this name, where a build and a machine have what it takes.
///
/// ```
/// use skulk::plan::backend::is_engine;
/// assert!(is_engine("cpu") && is_engine("candle-cuda:1"));
/// assert!(!is_engine("skulk-cpu") && !is_engine("cpu:1"));
/// ```
pub fn is_engine(name: &str) -> bool {
    let (kind, ordinal) = name.split_once(':').map_or((name, None), |(kind, at)| (kind, Some(at)));
    let has = |at: &str| at.parse::<usize>().is_ok();
    NAMED.iter().any(|(known, several)| *known == kind && ordinal.is_none_or(|at| *several && has(at)))
}

/// Whether it can be the name of an engine, of this library or of a host.
pub(super) fn can_name_an_engine(name: &str) -> bool {
    engine_of(name) != Some(SKULK) && !name.is_empty() && !name.contains(['@', '=', ','])
}

/// Whether a card says that a backend runs its model. Cards that list none of this library's backends say nothing of these.
pub(super) fn may_run(tag: &str, compatible: &BTreeSet<String>) -> bool {
    let is_own = |tag: &str| own_engine(tag).is_some_and(|engine| is_engine(engine.as_str()));
    // By hand a device may be named by less than its tag.
    let alike = |card: &String| serves(tag, card) || serves(card, tag);
    let mut own = compatible.iter().filter(|card| engine_of(card) == Some(SKULK)).peekable();
    !is_own(tag) || own.peek().is_none() || own.any(alike)
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
