//! How does Swift ask the functions behind cards and plans, one by one? What is behind `Planning`.

use std::collections::BTreeSet;

use serde_json::json as object;
use skulk::card::{self, ConfigFacts, GgufFacts, GgufFile};
use skulk::plan::{Cluster, NodeId, Strictness, backend, memory, split};
use skulk_contract::options::{Rings, RingsOptions};

use crate::card::card;
use crate::convert::{json, signed, unsigned};
use crate::error::{Answer, RawError, options, read};

fn strictness(name: &str) -> Answer<Strictness> {
    name.parse().map_err(|e: skulk::Error| RawError::from(e.with("field", "strictness")))
}

fn tags(tags: Vec<String>) -> BTreeSet<String> {
    tags.into_iter().collect()
}

/// The engine that a backend's tag names.
#[uniffi::export]
pub fn raw_engine_of(tag: String) -> Option<String> {
    backend::engine_of(&tag).map(str::to_owned)
}

/// Whether an engine can run one model over several nodes.
#[uniffi::export]
pub fn raw_is_multi_node(engine: String) -> bool {
    backend::is_multi_node(&engine)
}

/// Whether a backend that a node has is one that a card lists.
#[uniffi::export]
pub fn raw_serves(node_tag: String, card_tag: String) -> bool {
    backend::serves(&node_tag, &card_tag)
}

/// The backend of a node that runs a model.
#[uniffi::export]
pub fn raw_resolve_backend(
    compatible: Vec<String>,
    preference: Vec<String>,
    node_tags: Vec<String>,
) -> Option<String> {
    backend::resolve_backend(&tags(compatible), &preference, &tags(node_tags)).map(str::to_owned)
}

/// Whether one of these backends keeps weights in the memory of a graphics card.
#[uniffi::export]
pub fn raw_has_gpu_offload(of: Vec<String>) -> bool {
    backend::has_gpu_offload(&tags(of))
}

/// Whether an address belongs to Tailscale.
#[uniffi::export]
pub fn raw_is_vpn_address(address: String) -> bool {
    skulk::plan::is_vpn_address(&address)
}

/// `bytes` times `factor`.
#[uniffi::export]
pub fn raw_scale(bytes: i64, factor: f64) -> Answer<i64> {
    signed(memory::scale(unsigned("bytes", bytes)?, factor))
}

/// `bytes` by `divisor`.
#[uniffi::export]
pub fn raw_divide(bytes: i64, divisor: f64) -> Answer<i64> {
    signed(memory::divide(unsigned("bytes", bytes)?, divisor))
}

/// Bytes of keys and values of one token.
#[uniffi::export]
pub fn raw_kv_bytes_per_token(by: String) -> Answer<i64> {
    signed(memory::kv_bytes_per_token(&card(&by)?))
}

/// Bytes of keys and values of tokens.
#[uniffi::export]
pub fn raw_kv_bytes(by: String, tokens: i64) -> Answer<i64> {
    signed(memory::kv_bytes(&card(&by)?, unsigned("tokens", tokens)?))
}

/// Bytes that a fraction of a model takes.
#[uniffi::export]
pub fn raw_shard_footprint(by: String, fraction: f64, tokens: i64, how: String) -> Answer<i64> {
    let tokens = unsigned("tokens", tokens)?;
    signed(memory::shard_footprint(&card(&by)?, fraction, tokens, strictness(&how)?))
}

/// Whether a footprint is larger than what may be used.
#[uniffi::export]
pub fn raw_footprint_exceeds(footprint: i64, usable: i64, tolerance: f64) -> Answer<bool> {
    let (footprint, usable) = (unsigned("footprint", footprint)?, unsigned("usable", usable)?);
    Ok(memory::footprint_exceeds(footprint, usable, tolerance))
}

/// The memory of a node that one backend may use, as JSON.
#[uniffi::export]
pub fn raw_usable_memory(node: String, how: String) -> Answer<Option<String>> {
    let usable = memory::usable_memory(&read("node", &node)?, strictness(&how)?);
    usable.map(|usable| json(&usable)).transpose()
}

/// Memory of graphics cards that a model may use.
#[uniffi::export]
pub fn raw_usable_vram(node: String) -> Answer<Option<i64>> {
    memory::usable_vram(&read("node", &node)?).map(signed).transpose()
}

/// All memory of a node's accelerators.
#[uniffi::export]
pub fn raw_accelerator_memory(node: String) -> Answer<Option<i64>> {
    memory::accelerator_memory(&read("node", &node)?).map(signed).transpose()
}

/// Shares layers out by fractions.
#[uniffi::export]
pub fn raw_allocate_layers(total: i64, fractions: Vec<f64>) -> Answer<Vec<i64>> {
    let layers = split::allocate_layers(unsigned("total", total)?, &fractions)?;
    layers.into_iter().map(|n| signed(n as u64)).collect()
}

/// Tokens that an answer may have.
#[uniffi::export]
pub fn raw_admit_max_tokens(
    prompt: i64,
    requested: Option<i64>,
    by_default: i64,
    limit: Option<i64>,
) -> Answer<i64> {
    let requested = requested.map(|n| unsigned("requested", n)).transpose()?;
    let limit = limit.map(|n| unsigned("limit", n)).transpose()?;
    let (prompt, default) = (unsigned("prompt", prompt)?, unsigned("default", by_default)?);
    signed(skulk::plan::admit_max_tokens(prompt, requested, default, limit)? as u64)
}

/// The pieces in which a prompt is computed; media are starts and ends, one behind the other.
#[uniffi::export]
pub fn raw_prefill_chunks(tokens: i64, max: i64, media: Vec<i64>, offset: i64) -> Answer<Vec<i64>> {
    let ends = |pair: &[i64; 2]| Ok(unsigned("media", pair[0])?..unsigned("media", pair[1])?);
    let media = media.as_chunks().0.iter().map(ends).collect::<Answer<Vec<_>>>()?;
    let (tokens, max) = (unsigned("tokens", tokens)?, unsigned("max", max)?);
    let chunks = skulk::plan::prefill_chunks(tokens, max, &media, unsigned("offset", offset)?);
    chunks.map(|n| signed(n as u64)).collect()
}

/// The rings that a plan for MLX's transports considers.
#[uniffi::export]
pub fn raw_rings(by: String, cluster: String, given: String) -> Answer<Vec<Vec<String>>> {
    let Rings(request) = options(&given, RingsOptions::read)?;
    let rings = skulk::plan::rings(&card(&by)?, &read::<Cluster>("cluster", &cluster)?, &request)?;
    Ok(rings.into_iter().map(names).collect())
}

/// Nodes that connect to one other at most.
#[uniffi::export]
pub fn raw_leaves(cluster: String) -> Answer<Vec<String>> {
    Ok(names(skulk::plan::leaves(&read("cluster", &cluster)?)))
}

fn names(nodes: Vec<NodeId>) -> Vec<String> {
    nodes.into_iter().map(|node| node.as_str().to_owned()).collect()
}

/// What a GGUF file's name says, as JSON.
#[uniffi::export]
pub fn raw_gguf_file(name: String, bytes: i64) -> Answer<String> {
    let file = GgufFile::new(name, unsigned("bytes", bytes)?);
    json(&object!({
        "holdsAModel": file.holds_a_model(),
        "holdsAProjector": file.holds_a_projector(),
        "quantRank": file.quant_rank(),
        "quantLabel": file.quant_label(),
        "shardBase": file.shard_base(),
        "downloadPatterns": file.download_patterns(),
    }))
}

/// A file that was chosen.
#[derive(uniffi::Record)]
pub struct RawChoice {
    /// Which of the files it is.
    pub index: u64,
    /// Bytes of it, or of all files of its set.
    pub bytes: i64,
}

/// Chooses a file by quantisation, then by name.
#[uniffi::export]
pub fn raw_select_gguf(names: Vec<String>, bytes: Vec<i64>) -> Answer<Option<RawChoice>> {
    let file = |(name, bytes)| Ok(GgufFile::new(name, unsigned("bytes", bytes)?));
    let files = names.into_iter().zip(bytes).map(file).collect::<Answer<Vec<_>>>()?;
    let Some(choice) = card::select_gguf(&files) else { return Ok(None) };
    let index = files.iter().position(|file| std::ptr::eq(file, choice.file)).unwrap_or_default();
    Ok(Some(RawChoice { index: index as u64, bytes: signed(choice.size.bytes())? }))
}

/// Reads a configuration, as JSON.
#[uniffi::export]
pub fn raw_config_facts(config: String, model_id: String) -> Answer<String> {
    let facts = ConfigFacts::from_config(&read("config", &config)?, &model_id)?;
    json(&skulk_contract::ConfigFacts::from(&facts))
}

/// What the start of a GGUF file says, as JSON.
#[uniffi::export]
pub fn raw_gguf_facts(start: Vec<u8>) -> Answer<String> {
    json(&GgufFacts::read(&start)?)
}

/// The constants of the memory model, as JSON.
#[uniffi::export]
pub fn raw_planning_constants() -> Answer<String> {
    json(&object!({
        "overhead": memory::OVERHEAD,
        "overheadGguf": memory::OVERHEAD_GGUF,
        "overheadFloor": memory::OVERHEAD_FLOOR,
        "ramShare": memory::RAM_SHARE,
        "ramShareRelaxed": memory::RAM_SHARE_RELAXED,
        "vramShare": memory::VRAM_SHARE,
        "unifiedHeadroom": memory::UNIFIED_HEADROOM,
        "contextTokens": memory::CONTEXT_TOKENS,
        "headDim": memory::HEAD_DIM,
        "kvValueBytes": memory::KV_VALUE_BYTES,
        "defaultMaxTokens": skulk::plan::DEFAULT_MAX_TOKENS,
    }))
}
