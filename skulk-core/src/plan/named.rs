//! Which part of a model is each tensor, by its name alone? For checkpoints of families that this library cannot run, too.
//!
//! Names are those of Hugging Face's checkpoints, of MLX's conversions and of llama.cpp's GGUF files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::inventory::{Inventory, LayerBytes};
use super::memory::KV_VALUE_BYTES;
use crate::arch::MAX_LAYERS;
use crate::card::{INDEX_ALIGNMENT, MOST_EXPERTS};
use crate::weights::{Checkpoint, Metadata, TensorInfo, beside as scales_beside};

/// Tensors that a message names.
const LISTED: usize = 5;

/// Before the number of a layer.
const LAYERS: [&str; 6] = ["layers", "h", "blk", "block", "blocks", "layer"];
/// Parts that see and hear: how the first words of their names begin, and what names they have in GGUF files.
const VISION: [&str; 12] = [
    "visual",
    "vision",
    "audio",
    "image",
    "multi_modal",
    "mm_projector",
    "embed_vision",
    "embed_audio",
    "siglip",
    "conformer",
    "patch_embed",
    "whisper",
];
const VISION_IN_GGUF: [&str; 3] = ["v", "a", "mm"];
/// Layers that predict further tokens.
const MTP: [&str; 2] = ["mtp", "nextn"];
/// Stacks of a mixture's experts, beside what has `expert` in its name.
const EXPERTS: [&str; 2] = ["switch_mlp", "moe"];
const ROUTERS: [&str; 6] =
    ["gate", "router", "router_bias", "e_score_correction_bias", "ffn_gate_inp", "exp_probs_b"];
/// Matrices of feed-forward blocks, and what they are in.
const FEED_FORWARD: [&str; 22] = [
    "gate_proj",
    "up_proj",
    "down_proj",
    "gate_up_proj",
    "input_linear",
    "output_linear",
    "w1",
    "w2",
    "w3",
    "fc1",
    "fc2",
    "c_fc",
    "dense_h_to_4h",
    "dense_4h_to_h",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_up",
    "mlp",
    "feed_forward",
    "ffn",
    "block_sparse_moe",
];
const EMBEDDINGS: [&str; 6] =
    ["embed_tokens", "wte", "tok_embeddings", "token_embd", "word_embeddings", "embeddings"];
const INPUT_TABLES: [&str; 2] = ["embed_tokens_per_layer", "per_layer_token_embd"];
const HEADS: [&str; 3] = ["lm_head", "output", "embed_out"];
/// What vindex folders have beside a layer's own matrices; a key that is there twice has an offset behind an `@`.
const COPIES: [&str; 2] = ["gate_vectors", "down_features"];
const KEYS: [&str; 4] = ["k_proj", "attn_k", "wk", "key"];
const VALUES: [&str; 4] = ["v_proj", "attn_v", "wv", "value"];
const LATENT: [&str; 2] = ["kv_a_proj_with_mqa", "attn_kv_a_mqa"];

/// All three of queries, keys and values.
const FUSED: [&str; 5] = ["qkv_proj", "attn_qkv", "query_key_value", "c_attn", "Wqkv"];
/// What only layers with states have.
const STATES: [&str; 5] = ["A_log", "conv1d", "k_conv1d", "ssm_a", "ssm_conv1d"];
/// What chooses positions, and its part that is kept of a token.
const INDEXER: &str = "indexer";
const INDEX_KEYS: [&str; 2] = ["wk", "attn_k"];

/// What a tensor is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Of a layer: attention, norms, states.
    Attention(usize),
    Router(usize),
    /// What every token reads of a feed-forward block.
    FeedForward(usize),
    /// Routed experts: one of this number, or all.
    Experts(usize, Option<usize>),
    Embedding,
    InputTable,
    Head,
    Mtp,
    Vision,
    /// A second copy, which vindex folders have to be searched.
    Copy,
    Unknown,
}

/// What a tensor of this name is part of, in a model of so many layers.
fn part(name: &str, rank: usize, n_layers: usize) -> Part {
    let words: Vec<&str> = name.split('.').collect();
    let begins = |word: &&str| VISION.iter().any(|start| word.starts_with(start));
    let of_layer = words.windows(2).enumerate().find_map(|(at, pair)| {
        let number = pair[1].parse::<usize>().ok().filter(|_| LAYERS.contains(&pair[0]))?;
        Some((at, number))
    });
    let before = &words[..of_layer.map_or(words.len(), |(at, _)| at)];
    if before.iter().any(begins) || VISION_IN_GGUF.contains(&words[0]) {
        return Part::Vision;
    }
    if words.iter().any(|word| MTP.contains(word)) {
        return Part::Mtp;
    }
    let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
    if has(&COPIES) || name.contains('@') {
        return Part::Copy;
    }
    let Some((at, layer)) = of_layer else {
        return match () {
            () if has(&EMBEDDINGS) => Part::Embedding,
            () if has(&INPUT_TABLES) => Part::InputTable,
            () if has(&HEADS) || words.iter().any(|word| word.contains("norm") || *word == "ln_f") => {
                Part::Head
            }
            () => Part::Unknown,
        };
    };
    if layer >= n_layers {
        return Part::Mtp;
    }
    let inside = &words[at + 2..];
    let any = |test: &dyn Fn(&str) -> bool| inside.iter().any(|word| test(word));
    let is_one_of = |known: &[&str]| any(&|word| known.contains(&word));
    if any(&|word| word.contains("norm")) {
        return Part::Attention(layer);
    }
    if any(&|word| word.starts_with("share") || word.ends_with("_shexp")) {
        return Part::FeedForward(layer);
    }
    let in_mixer = any(&|word| word.contains("attn") || word.contains("attention"));
    let is_stack = rank > 2 && is_one_of(&FEED_FORWARD);
    if any(&|word| word.starts_with("experts") || word.ends_with("_exps") || word == EXPERTS[0]) || is_stack {
        let number =
            inside.windows(2).find(|pair| pair[0] == "experts").and_then(|pair| pair[1].parse().ok());
        return Part::Experts(layer, number);
    }
    if !in_mixer && is_one_of(&ROUTERS) {
        return Part::Router(layer);
    }
    if !in_mixer && (is_one_of(&FEED_FORWARD) || is_one_of(&EXPERTS)) {
        return Part::FeedForward(layer);
    }
    Part::Attention(layer)
}

/// What the metadata say beside tensors.
struct Declared<'a> {
    config: Option<&'a Value>,
    gguf: Option<&'a crate::weights::gguf::GgufMetadata>,
}

impl<'a> Declared<'a> {
    fn of(metadata: Metadata<'a>) -> Self {
        match metadata {
            Metadata::Gguf(metadata) => Self { config: None, gguf: Some(metadata) },
            Metadata::HuggingFace(metadata) => Self { config: Some(&metadata.config), gguf: None },
            Metadata::Vindex(metadata) => Self { config: Some(&metadata.configuration().config), gguf: None },
        }
    }

    fn field(&self, names: &[&str]) -> Option<&'a Value> {
        let config = self.config?;
        let text = config.get("text_config").unwrap_or(config);
        names.iter().find_map(|name| text.get(name).or_else(|| config.get(name)).filter(|it| !it.is_null()))
    }

    /// A number by its names in configurations, or by its key of a GGUF file without the architecture.
    fn number(&self, names: &[&str], key: &str) -> Option<u64> {
        if let Some(metadata) = self.gguf {
            let architecture = metadata.opt_str("general.architecture").ok()??;
            return metadata.opt_u64(&format!("{architecture}.{key}")).ok()?;
        }
        self.field(names)?.as_u64()
    }

    fn size(&self, names: &[&str], key: &str) -> Option<usize> {
        usize::try_from(self.number(names, key)?).ok()
    }

    fn kv_heads(&self) -> Option<u64> {
        let own = self.number(&["num_key_value_heads", "num_kv_heads"], "attention.head_count_kv");
        own.or_else(|| self.heads())
    }

    fn heads(&self) -> Option<u64> {
        self.number(&["num_attention_heads", "n_head"], "attention.head_count")
    }

    /// Elements of a head of keys in layers with a window, or without.
    fn head_dim(&self, windowed: bool) -> Option<u64> {
        let global = self.field(&["global_head_dim"]).filter(|_| !windowed).and_then(Value::as_u64);
        let own = global.or_else(|| self.number(&["head_dim"], "attention.key_length"));
        own.or_else(|| {
            self.number(&["hidden_size", "n_embd"], "embedding_length")?.checked_div(self.heads()?)
        })
    }

    /// Positions that a layer sees; `None`: all, or not known.
    fn window(&self, layer: usize) -> Option<u64> {
        let size = self.field(&["sliding_window"])?.as_u64()?;
        let kind = self.field(&["layer_types"])?.get(layer)?.as_str()?;
        kind.contains("sliding").then_some(size)
    }
}

/// What a layer's tensors came to.
#[derive(Default)]
struct Layer {
    bytes: LayerBytes,
    /// All routed experts.
    routed: u64,
    numbers: BTreeSet<usize>,
    stacked: usize,
    keys: u64,
    values: u64,
    latent: u64,
    index: u64,
    is_fused: bool,
    has_states: bool,
}

impl Layer {
    fn add(&mut self, tensor: &TensorInfo, part: Part) {
        let rows = tensor.shape.first().copied().unwrap_or(0);
        match part {
            Part::Router(_) => {
                self.bytes.router = self.bytes.router.saturating_add(tensor.len);
                self.bytes.attention = self.bytes.attention.saturating_add(tensor.len);
            }
            Part::FeedForward(_) => self.bytes.ffn = self.bytes.ffn.saturating_add(tensor.len),
            Part::Experts(_, number) => {
                self.routed = self.routed.saturating_add(tensor.len);
                match number {
                    Some(number) => _ = self.numbers.insert(number),
                    None => self.stacked = self.stacked.max(rows),
                }
            }
            _ => {
                self.bytes.attention = self.bytes.attention.saturating_add(tensor.len);
                self.note(&tensor.name, rows as u64);
            }
        }
    }

    /// What a tensor of attention says of what is kept of a token.
    fn note(&mut self, name: &str, rows: u64) {
        let words: Vec<&str> = name.split('.').collect();
        let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
        self.has_states |= has(&STATES);
        if words.last() != Some(&"weight") {
            return;
        }
        if words.contains(&INDEXER) {
            self.index = if has(&INDEX_KEYS) { rows } else { self.index };
            return;
        }
        self.is_fused |= has(&FUSED);
        for (kept, known) in
            [(&mut self.keys, &KEYS[..]), (&mut self.values, &VALUES), (&mut self.latent, &LATENT)]
        {
            if has(known) {
                *kept = rows;
            }
        }
    }
}

/// Bytes of the parts beside the decoder: what sees and hears, and layers that predict further tokens.
pub(super) fn beside(checkpoint: &dyn Checkpoint, n_layers: usize) -> (u64, u64) {
    checkpoint.tensors().iter().fold((0, 0), |(vision, mtp): (u64, u64), tensor| {
        match part(&tensor.name, tensor.shape.len(), n_layers) {
            Part::Vision => (vision.saturating_add(tensor.len), mtp),
            Part::Mtp => (vision, mtp.saturating_add(tensor.len)),
            _ => (vision, mtp),
        }
    })
}

/// Counts a checkpoint's tensors by their names; `None` where none of them is of a layer.
pub(super) fn inventory(checkpoint: &dyn Checkpoint) -> Option<Inventory> {
    let declared = Declared::of(checkpoint.metadata());
    let mut guessed = Vec::new();
    let of_layers = declared.size(
        &["num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers"],
        "block_count",
    );
    let most = of_layers.filter(|n| (1..=MAX_LAYERS).contains(n)).unwrap_or(MAX_LAYERS);
    let mut layers: BTreeMap<usize, Layer> = BTreeMap::new();
    let context = declared.number(&["max_position_embeddings"], "context_length").unwrap_or(0);
    let mut inventory = Inventory { exact: true, tied_embeddings: true, context, ..Inventory::default() };
    let mut unknown = Vec::new();
    let scales: BTreeSet<String> = checkpoint.tensors().iter().flat_map(scales_beside).collect();
    for tensor in checkpoint.tensors() {
        let part = part(&tensor.name, tensor.shape.len(), most);
        let sum = match part {
            Part::Attention(at) | Part::Router(at) | Part::FeedForward(at) | Part::Experts(at, _) => {
                layers.entry(at).or_default().add(tensor, part);
                if !scales.contains(&tensor.name) {
                    inventory.elements = inventory.elements.saturating_add(tensor.elements());
                }
                continue;
            }
            Part::Embedding => &mut inventory.embedding,
            Part::InputTable => &mut inventory.input_table,
            Part::Head => {
                let is_head = tensor.name.split('.').any(|word| HEADS.contains(&word));
                inventory.tied_embeddings &= !is_head;
                &mut inventory.head
            }
            Part::Copy => continue,
            Part::Mtp => &mut inventory.mtp,
            Part::Vision => &mut inventory.vision,
            Part::Unknown => {
                unknown.push(tensor.name.as_str());
                &mut inventory.head
            }
        };
        *sum = sum.saturating_add(tensor.len);
    }
    let last = *layers.keys().next_back()?;
    let n_layers = of_layers.filter(|n| *n <= MAX_LAYERS).unwrap_or(0).max(last + 1);
    let experts = Experts::of(&declared);
    let mut stateful = 0;
    for at in 0..n_layers {
        let layer = layers.remove(&at).unwrap_or_default();
        stateful += usize::from(layer.has_states);
        inventory.layers.push(layer.counted(at, &declared, &experts));
    }
    if inventory.layers.iter().any(|layer| layer.n_experts > 0) && experts.used.is_none() {
        guessed.push("it is not said how many experts a token takes, which was taken for all".to_owned());
    }
    if stateful > 0 {
        guessed.push(format!("{stateful} of {n_layers} layers have states, which were not counted"));
    }
    if declared.window(0).is_none() && declared.field(&["sliding_window"]).is_some() {
        guessed.push(
            "windows of attention are named, and counted only where layers are listed by kind".to_owned(),
        );
    }
    if !unknown.is_empty() {
        let listed = unknown.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
        let more = unknown.len().saturating_sub(LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        guessed.push(format!(
            "tensors of no known part were counted with the head: {listed}{more}; describe the model with an inventory where that is wrong"
        ));
    }
    inventory.guessed = guessed;
    Some(inventory)
}

/// What is said of experts.
struct Experts {
    count: Option<usize>,
    used: Option<usize>,
}

impl Experts {
    fn of(declared: &Declared<'_>) -> Self {
        let count = ["n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "n_experts"];
        let used = [
            "num_experts_per_tok",
            "num_experts_per_token",
            "top_k_experts",
            "moe_top_k",
            "moe_topk",
            "experts_per_token",
            "num_selected_experts",
        ];
        Self {
            count: declared.size(&count, "expert_count").filter(|n| *n > 0),
            used: declared.size(&used, "expert_used_count").filter(|n| *n > 0),
        }
    }
}

impl Layer {
    fn counted(self, at: usize, declared: &Declared<'_>, experts: &Experts) -> LayerBytes {
        let found = if self.numbers.is_empty() { self.stacked } else { self.numbers.len() };
        let n_experts = match self.routed {
            0 => 0,
            _ => experts.count.unwrap_or(found).clamp(1, MOST_EXPERTS / MAX_LAYERS),
        };
        let expert = self.routed.checked_div(n_experts as u64).unwrap_or(0);
        let rest = self.routed.saturating_sub(expert.saturating_mul(n_experts as u64));
        let window = declared.window(at);
        let [elements, head_dim] = self.kept(declared, window.is_some());
        // Of latent vectors values are a part, whose length is not known.
        let of_a_head = if self.latent > 0 { self.latent } else { head_dim };
        let attended = declared.heads().unwrap_or(0).saturating_mul(2).saturating_mul(of_a_head);
        LayerBytes {
            ffn: self.bytes.ffn.saturating_add(rest),
            n_experts,
            n_used: if n_experts == 0 { 0 } else { experts.used.unwrap_or(n_experts).min(n_experts) },
            expert,
            kv_per_token: elements.saturating_mul(KV_VALUE_BYTES),
            attended: if self.has_states { 0 } else { attended },
            kv_head_dim: head_dim,
            latent: self.latent > 0,
            window: window.filter(|_| elements > 0),
            ..self.bytes
        }
    }

    /// Elements that are kept of a token, and of a head.
    fn kept(&self, declared: &Declared<'_>, windowed: bool) -> [u64; 2] {
        if self.has_states {
            return [0, 0];
        }
        if self.latent > 0 {
            let elements = match self.index {
                0 => self.latent,
                index => self.latent.next_multiple_of(INDEX_ALIGNMENT).saturating_add(index),
            };
            return [elements, elements];
        }
        let head_dim = declared.head_dim(windowed).unwrap_or(0);
        let of_heads = declared.kv_heads().unwrap_or(0).saturating_mul(head_dim);
        let elements = match (self.keys, self.values) {
            (0, _) if self.is_fused => of_heads.saturating_mul(2),
            // Without a projection of their own, values are made of keys.
            (keys, 0) => keys.saturating_mul(2),
            (keys, values) => keys.saturating_add(values),
        };
        [elements, if elements > 0 { head_dim } else { 0 }]
    }
}
