//! How does Python ask the functions behind cards and plans, one by one? What is behind `skulk.planning`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use skulk::card::{self, ConfigFacts, GgufFacts};
use skulk::plan::{NodeId, backend, memory, split};
use skulk_contract::options::{Rings, RingsOptions};

use crate::convert::{Names, optional, ranges, unsigned};
use crate::error::raise;
use crate::given;
use crate::json::{self, CONTRACT};
use crate::plan::{cluster_of, node_of};

/// Tags of backends, in any order.
type Tags = Names<BTreeSet<String>>;

/// The engine that a backend's tag names; None: one that nobody knows.
#[pyfunction]
pub(crate) fn engine_of(tag: &str) -> Option<&'static str> {
    backend::engine_of(tag)
}

/// Whether an engine can run one model over several nodes.
#[pyfunction]
pub(crate) fn is_multi_node(engine: &str) -> bool {
    backend::is_multi_node(engine)
}

/// Whether a backend that a node has is one that a card lists.
#[pyfunction]
pub(crate) fn serves(node_tag: &str, card_tag: &str) -> bool {
    backend::serves(node_tag, card_tag)
}

/// The backend of a node that runs a model: of those that serve one of the card's `compatible`, the
/// first by `preference`; without any preferred, the first by name. None: the node cannot run it.
#[pyfunction]
#[pyo3(signature = (compatible, preference, node_tags), text_signature = "(compatible, preference, node_tags)")]
pub(crate) fn resolve_backend(compatible: Tags, preference: Names, node_tags: Tags) -> Option<String> {
    backend::resolve_backend(&compatible.0, &preference.0, &node_tags.0).map(str::to_owned)
}

/// Whether one of these backends keeps weights in the memory of a graphics card.
#[pyfunction]
pub(crate) fn has_gpu_offload(tags: Tags) -> bool {
    backend::has_gpu_offload(&tags.0)
}

/// Whether an address belongs to Tailscale. What is no address does not.
#[pyfunction]
pub(crate) fn is_vpn_address(address: &str) -> bool {
    skulk::plan::is_vpn_address(address)
}

/// `bytes` times `factor`, a half rounded to the even neighbour.
#[pyfunction]
pub(crate) fn scale(bytes: i128, factor: f64) -> PyResult<u64> {
    Ok(memory::scale(unsigned("bytes", bytes)?, factor))
}

/// `bytes` by `divisor`, a half rounded to the even neighbour.
#[pyfunction]
pub(crate) fn divide(bytes: i128, divisor: f64) -> PyResult<u64> {
    Ok(memory::divide(unsigned("bytes", bytes)?, divisor))
}

/// Bytes of keys and values of one token, all layers. 0: the card does not say how many heads there are.
#[pyfunction]
pub(crate) fn kv_bytes_per_token(card: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(memory::kv_bytes_per_token(&json::card(card)?))
}

/// Bytes of keys and values of `tokens` tokens, all layers.
#[pyfunction]
pub(crate) fn kv_bytes(card: &Bound<'_, PyAny>, tokens: i128) -> PyResult<u64> {
    Ok(memory::kv_bytes(&json::card(card)?, unsigned("tokens", tokens)?))
}

/// Bytes that a `fraction` of a model takes, with keys and values of `tokens` tokens.
#[pyfunction]
#[pyo3(signature = (card, fraction=1.0, tokens=8192, strictness="safe"))]
pub(crate) fn shard_footprint(
    card: &Bound<'_, PyAny>,
    fraction: f64,
    tokens: i128,
    strictness: &str,
) -> PyResult<u64> {
    let tokens = unsigned("tokens", tokens)?;
    Ok(memory::shard_footprint(&json::card(card)?, fraction, tokens, json::named("strictness", strictness)?))
}

/// Whether a footprint is larger than what may be used, by more than a `tolerance` relative to that.
#[pyfunction]
#[pyo3(signature = (footprint, usable, tolerance=0.1))]
pub(crate) fn footprint_exceeds(footprint: i128, usable: i128, tolerance: f64) -> PyResult<bool> {
    let (footprint, usable) = (unsigned("footprint", footprint)?, unsigned("usable", usable)?);
    Ok(memory::footprint_exceeds(footprint, usable, tolerance))
}

/// The memory of a node that one backend may use. None: the node has not reported its main memory.
#[pyfunction]
#[pyo3(signature = (node, strictness="safe"))]
pub(crate) fn usable_memory<'py>(
    node: &Bound<'py, PyAny>,
    strictness: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let usable = memory::usable_memory(&node_of(node)?, json::named("strictness", strictness)?);
    usable.map(|usable| CONTRACT.one(node.py(), "Usable", &usable)).transpose()
}

/// Memory of graphics cards by AMD and NVIDIA that a model may use, of a node with a backend that uses
/// it. None: there is none.
#[pyfunction]
pub(crate) fn usable_vram(node: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    Ok(memory::usable_vram(&node_of(node)?))
}

/// All memory of a node's accelerators, in use or not. None: nothing is known.
#[pyfunction]
pub(crate) fn accelerator_memory(node: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    Ok(memory::accelerator_memory(&node_of(node)?))
}

/// Shares `total` layers out by `fractions`, which add up to 1.
#[pyfunction]
#[pyo3(signature = (total, fractions), text_signature = "(total, fractions)")]
pub(crate) fn allocate_layers(total: i128, fractions: Vec<f64>) -> PyResult<Vec<usize>> {
    split::allocate_layers(unsigned("total", total)?, &fractions).map_err(raise)
}

/// Tokens that an answer may have: what was `requested`, which must fit behind the prompt; else
/// `default`, or less where the context ends sooner. `limit` is the context's, prompt included; None:
/// there is none.
#[pyfunction]
#[pyo3(signature = (prompt, requested=None, default=4096, limit=None))]
pub(crate) fn admit_max_tokens(
    prompt: i128,
    requested: Option<i128>,
    default: i128,
    limit: Option<i128>,
) -> PyResult<usize> {
    let (requested, limit) = (optional("requested", requested)?, optional("limit", limit)?);
    let (prompt, default) = (unsigned("prompt", prompt)?, unsigned("default", default)?);
    skulk::plan::admit_max_tokens(prompt, requested, default, limit).map_err(raise)
}

/// The pieces in which a prompt is computed. Made by `skulk.planning.prefill_chunks`.
#[pyclass(frozen, module = "skulk.planning")]
pub(crate) struct PrefillChunks(Mutex<Box<dyn Iterator<Item = usize> + Send>>);

#[pymethods]
impl PrefillChunks {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self) -> Option<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

/// The pieces in which a prompt of `tokens` tokens is computed: of `max` each, but never ending inside
/// a medium. The last token is left to the step that generates the first new one. `max` of 0: one piece.
///
/// `media` are ranges of positions in the whole conversation, of which `offset` are already computed.
#[pyfunction]
#[pyo3(signature = (tokens, max, media=vec![], offset=0), text_signature = "(tokens, max, media=(), offset=0)")]
pub(crate) fn prefill_chunks(
    tokens: i128,
    max: i128,
    media: Vec<(i128, i128)>,
    offset: i128,
) -> PyResult<PrefillChunks> {
    let media = ranges("media", media)?;
    let (tokens, max) = (unsigned("tokens", tokens)?, unsigned("max", max)?);
    let chunks = skulk::plan::prefill_chunks(tokens, max, &media, unsigned("offset", offset)?);
    Ok(PrefillChunks(Mutex::new(Box::new(chunks))))
}

/// The rings that a plan for MLX's transports considers unless it is given some: nodes by rank, narrow
/// ones first.
#[pyfunction]
#[pyo3(signature = (card, cluster, **options), text_signature = "(card, cluster, *, sharding='pipeline', transport='mlx_ring', min_nodes=1)")]
pub(crate) fn rings(
    py: Python<'_>,
    card: &Bound<'_, PyAny>,
    cluster: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<Vec<String>>> {
    let (card, cluster) = (json::card(card)?, cluster_of(cluster)?);
    let Rings(request) = given::options(options, RingsOptions::read)?;
    let rings = py.detach(|| skulk::plan::rings(&card, &cluster, &request)).map_err(raise)?;
    Ok(rings.into_iter().map(names).collect())
}

/// Nodes that connect to one other at most.
#[pyfunction]
pub(crate) fn leaves(cluster: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    Ok(names(skulk::plan::leaves(&cluster_of(cluster)?)))
}

fn names(nodes: Vec<NodeId>) -> Vec<String> {
    nodes.into_iter().map(|node| node.as_str().to_owned()).collect()
}

/// One GGUF file of a folder or repository: its name, with folders before it, and its size in bytes.
#[pyclass(frozen, eq, from_py_object, module = "skulk.planning")]
#[derive(Clone, PartialEq)]
pub(crate) struct GgufFile(card::GgufFile);

#[pymethods]
impl GgufFile {
    #[new]
    #[pyo3(signature = (name, bytes=0))]
    fn new(name: String, bytes: i128) -> PyResult<Self> {
        Ok(Self(card::GgufFile::new(name, unsigned("bytes", bytes)?)))
    }

    /// Its path in the repository, with `/` between folders.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Its size in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.size.bytes()
    }

    /// It is called a GGUF file, and not a multi-modal projector's.
    #[getter]
    fn holds_a_model(&self) -> bool {
        self.0.holds_a_model()
    }

    /// It is called the GGUF file of a multi-modal projector.
    #[getter]
    fn holds_a_projector(&self) -> bool {
        self.0.holds_a_projector()
    }

    /// How much its quantisation is wanted: the lower, the more.
    #[getter]
    fn quant_rank(&self) -> u32 {
        self.0.quant_rank()
    }

    /// Its quantisation as people write it, as in `Q4_K_M`; empty where the name does not tell.
    #[getter]
    fn quant_label(&self) -> String {
        self.0.quant_label()
    }

    /// What all files of its split set share; None for a file of its own.
    #[getter]
    fn shard_base(&self) -> Option<&str> {
        self.0.shard_base()
    }

    /// What to download for it: the file or its set, and projectors.
    #[getter]
    fn download_patterns(&self) -> Vec<String> {
        self.0.download_patterns()
    }

    fn __repr__(&self) -> String {
        format!("GgufFile({:?}, {})", self.0.name, self.0.size.bytes())
    }
}

/// Chooses a file by quantisation, then by name; the file, and the bytes of it or of all files of its
/// set. None when there are no files.
#[pyfunction]
#[pyo3(signature = (files), text_signature = "(files)")]
pub(crate) fn select_gguf(files: Vec<GgufFile>) -> Option<(GgufFile, u64)> {
    let files: Vec<card::GgufFile> = files.into_iter().map(|file| file.0).collect();
    let choice = card::select_gguf(&files)?;
    Some((GgufFile(choice.file.clone()), choice.size.bytes()))
}

/// Reads a parsed `config.json` of a model, whose own repository holds its vision weights.
#[pyfunction]
pub(crate) fn config_facts<'py>(config: &Bound<'py, PyAny>, model_id: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = config.py();
    let config = json::read("config", &json::dumps(config)?)?;
    let facts = ConfigFacts::from_config(&config, model_id).map_err(raise)?;
    CONTRACT.one(py, "ConfigFacts", &skulk_contract::ConfigFacts::from(&facts))
}

/// What the start of a GGUF file says that a card needs.
#[pyfunction]
pub(crate) fn gguf_facts<'py>(py: Python<'py>, start: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    CONTRACT.one(py, "GgufFacts", &GgufFacts::read(start).map_err(raise)?)
}

/// Adds the constants of the memory model.
pub(crate) fn add_constants(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("OVERHEAD", memory::OVERHEAD)?;
    module.add("OVERHEAD_GGUF", memory::OVERHEAD_GGUF)?;
    module.add("OVERHEAD_FLOOR", memory::OVERHEAD_FLOOR)?;
    module.add("RAM_SHARE", memory::RAM_SHARE)?;
    module.add("RAM_SHARE_RELAXED", memory::RAM_SHARE_RELAXED)?;
    module.add("VRAM_SHARE", memory::VRAM_SHARE)?;
    module.add("UNIFIED_HEADROOM", memory::UNIFIED_HEADROOM)?;
    module.add("CONTEXT_TOKENS", memory::CONTEXT_TOKENS)?;
    module.add("HEAD_DIM", memory::HEAD_DIM)?;
    module.add("KV_VALUE_BYTES", memory::KV_VALUE_BYTES)?;
    module.add("DEFAULT_MAX_TOKENS", skulk::plan::DEFAULT_MAX_TOKENS)
}
