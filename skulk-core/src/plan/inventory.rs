//! How many bytes has each part of a model? From a checkpoint's tensor table, or estimated from a card.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::described;
use super::memory::{HEAD_DIM, KV_VALUE_BYTES};
use super::named;
use crate::arch::{ArchSpec, MAX_LAYERS, RowWidths, STATES_HELD, kept_positions};
use crate::card::{MOST_EXPERTS, ModelCard, parameters};
use crate::error::{Error, ErrorKind, Result};
use crate::kv_type::{KvType, KvTypes};
use crate::weights::{Checkpoint, TensorInfo, open_drafts, stored_bytes};

/// The weight bytes of a model's parts, and what a token costs each layer's cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Inventory {
    /// One entry a layer.
    pub layers: Vec<LayerBytes>,
    /// The embedding table, with the norm of what layers get of tokens: in the first stage, and in the last one too where it is the head as well.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub embedding: u64,
    /// All stages hold the embedding table: their layers have inputs from tokens' embeddings.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub embedding_everywhere: bool,
    /// The head is the embedding table.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub tied_embeddings: bool,
    /// The last stage's: final norm, what makes one residual stream of several, and head unless that is the embedding table.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub head: u64,
    /// Bytes of a row of hidden states, as stages hand it on: of all residual streams, where there are several. 0: of the
    /// card's hidden size.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub row: u64,
    /// Bytes of a row in all buffers that a step's rows pass through, of this library's engines. 0: not known, and taken for
    /// sixteen rows of hidden states.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub step_row: u64,
    /// Tokens of the vocabulary, of which a step computes logits and a tokenizer holds spellings; 0: not known.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub vocabulary: u64,
    /// Tokens of context that the model was trained for; 0: not known.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub context: u64,
    /// Elements of the layers' weights; 0: not known, and taken from the bits of a weight that the card names.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub elements: u64,
    /// They were counted in a checkpoint; else estimated from a card.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub exact: bool,
    /// The table of what layers get of tokens, of which each takes a row: it stays in the file.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub input_table: u64,
    /// What sees and hears, beside the decoder; not loaded.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub vision: u64,
    /// Layers that predict further tokens, behind the last one; loaded where an option asks for that.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub mtp: u64,
    /// The head for tokens ahead (MTP) that loading makes of these: its layer, with its norms, and what joins embeddings and
    /// hidden states. `None`: there is none that this library knows.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub mtp_layer: Option<LayerBytes>,
    /// It drafts for another model, whose embedding table it uses.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub shares_embedding: bool,
    /// It drafts for another model, whose output head it uses.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub shares_head: bool,
    /// What was guessed, in words.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub guessed: Vec<String>,
}

/// The bytes of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(default))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct LayerBytes {
    /// Attention, norms and router: what stays with the layer's keys and values.
    pub attention: u64,
    /// The router's part of these.
    #[serde(default)]
    pub router: u64,
    /// What every token reads of the feed-forward block: all of a dense one, a mixture's shared experts.
    pub ffn: u64,
    /// Routed experts; 0: a dense block.
    pub n_experts: usize,
    /// Experts that a token takes.
    pub n_used: usize,
    /// Bytes of one routed expert.
    pub expert: u64,
    /// Loading copies the experts, which are stored in another order than they are used in: they cannot stay on disk.
    #[serde(default)]
    pub copied: bool,
    /// Keys and values of one token, in half precision.
    pub kv_per_token: u64,
    /// Elements of a row's queries, all heads', and of what they make of values: numbers that are multiplied at each position
    /// that the row sees. 0: it attends to none, or it is not known and taken for twice the hidden size.
    #[cfg_attr(feature = "schema", schemars(default))]
    #[serde(default)]
    pub attended: u64,
    /// Elements of a head of keys, and of values; 0: not known, and taken for a multiple of 32.
    pub kv_head_dim: u64,
    /// Values are the first part of keys and kept once, as latent vectors are: in the more precise of the types of both.
    pub latent: bool,
    /// Tokens that the cache holds at most, where attention looks through a window.
    pub window: Option<u64>,
    /// It is in one stage with the layer before: it, or a later one, uses keys and values of an earlier one.
    pub joined: bool,
    /// What it keeps of a sequence of whatever length: states, where it has such instead of keys and values.
    pub state: u64,
}

impl LayerBytes {
    /// All weights of the layer.
    pub fn total(&self) -> u64 {
        self.attention.saturating_add(self.feed_forward())
    }

    /// The weights of its feed-forward block, all experts included.
    pub fn feed_forward(&self) -> u64 {
        self.ffn.saturating_add(self.expert.saturating_mul(self.n_experts as u64))
    }

    /// The parts of its feed-forward block that can be placed apart, experts or all of a dense one, and bytes of each.
    pub(super) fn blocks(&self) -> (usize, u64) {
        if self.n_experts == 0 { (1, self.ffn) } else { (self.n_experts, self.expert) }
    }

    /// The rest of its feed-forward block, which stays with attention.
    pub(super) fn shared(&self) -> u64 {
        if self.n_experts == 0 { 0 } else { self.ffn }
    }

    /// Keys and values of `tokens` tokens, in half precision, and states.
    pub fn kv(&self, tokens: u64) -> u64 {
        let positions = self.window.map_or(tokens, |window| window.min(tokens));
        self.kv_per_token.saturating_mul(positions).saturating_add(self.state)
    }

    /// What memory for them takes: whole pages, behind a window of what steps of `rows` rows see.
    pub(super) fn kept(&self, tokens: u64, rows: u64) -> u64 {
        let positions = kept_positions(self.window, tokens, rows);
        self.kv_per_token.saturating_mul(positions).saturating_add(self.state)
    }
}

/// Bytes of a layer's keys and values, of as many keys as values or of latent vectors, kept otherwise than in half precision.
fn kept(layer: &LayerBytes, kv: KvTypes) -> u64 {
    let kv = if layer.latent { kv.of_latent() } else { kv };
    let (bytes, head_dim) = (layer.kv_per_token, usize::try_from(layer.kv_head_dim).unwrap_or(usize::MAX));
    let of = |kv: KvType| if head_dim == 0 { kv.block_bytes() } else { kv.bytes(head_dim, 1) } as u128;
    let (half, own) = (2 * of(KvType::F16), of(kv.keys) + of(kv.values));
    u64::try_from((u128::from(bytes) * own).div_ceil(half)).unwrap_or(u64::MAX)
}

/// Of a layer's weights, attention's part where only their sum is known: a third, as with heads that share
/// keys and values and a feed-forward block of three to four times the width.
const ATTENTION_SHARE: u64 = 3;
/// Rows of hidden states that a head for tokens ahead has beside a model's buffers: two joined, and as given and tapped.
const JOINT_ROWS: u64 = 5;

impl Inventory {
    /// What follows from a card. Where it has [facts](crate::card::ModelFacts), its size is shared out by the parameters
    /// that follow from them. Else it is divided by the layers, a third of each for attention, and keys and values have
    /// heads of 128 elements; they cost nothing where the card does not count heads. `guessed` says which.
    ///
    /// ```
    /// # use skulk::ModelCard;
    /// # let card = ModelCard::from_json(r#"{"modelId":"m","storageSize":{"inBytes":1000},"nLayers":3,
    /// #     "hiddenSize":8,"supportsTensor":false,"tasks":["TextGeneration"]}"#)?;
    /// let inventory = skulk::plan::Inventory::from_card(&card);
    /// assert_eq!(inventory.layers.iter().map(|layer| layer.total()).sum::<u64>(), 1000);
    /// assert!(!inventory.guessed.is_empty());
    /// # Ok::<(), skulk::Error>(())
    /// ```
    pub fn from_card(card: &ModelCard) -> Self {
        let why = match parameters(card) {
            Some(Ok(parameters)) => return described::inventory(card, &parameters),
            Some(Err(findings)) => {
                let listed: Vec<String> = findings.iter().map(ToString::to_string).collect();
                format!("the card's facts cannot be right and were left out: {}", listed.join("; "))
            }
            None => "the card has no facts".to_owned(),
        };
        let divided =
            "its size was divided by its layers, a third of each for attention, as of a dense model";
        Self { guessed: vec![format!("{why}; {divided}")], ..Self::from_size(card) }
    }

    /// What follows from a card's size alone, as in Skulk 1.3.
    pub(super) fn from_size(card: &ModelCard) -> Self {
        let n = card.n_layers.clamp(1, MAX_LAYERS) as u64;
        let (each, larger) = (card.storage_size.in_bytes / n, card.storage_size.in_bytes % n);
        let heads = card.num_key_value_heads.unwrap_or(0) as u64;
        let kv_per_token = heads.saturating_mul(2 * HEAD_DIM * KV_VALUE_BYTES);
        let layer = |at: u64| {
            let total = each + u64::from(at < larger);
            let attention = total / ATTENTION_SHARE;
            LayerBytes { attention, ffn: total - attention, kv_per_token, ..LayerBytes::default() }
        };
        let context = u64::try_from(card.context_length).unwrap_or(0);
        Self { layers: (0..n).map(layer).collect(), context, ..Self::default() }
    }

    /// A mixture of experts, every layer alike: for models whose checkpoint is not at hand. `attention`,
    /// `shared` and `expert` are bytes of one layer, `experts` how many it has and how many a token takes. What no model can be,
    /// [`check`](Self::check), plans and placements by hand refuse.
    pub fn of_experts(
        n_layers: usize,
        attention: u64,
        shared: u64,
        (n_experts, n_used): (usize, usize),
        expert: u64,
        kv_per_token: u64,
    ) -> Self {
        let layer = LayerBytes {
            attention,
            ffn: shared,
            n_experts,
            n_used,
            expert,
            kv_per_token,
            ..LayerBytes::default()
        };
        Self { layers: vec![layer; n_layers.min(MAX_LAYERS + 1)], ..Self::default() }
    }

    /// Whether there can be a model of these parts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] naming `n_layers`, `n_experts` or `n_used`.
    pub fn check(&self) -> Result<()> {
        match self.wrong() {
            Some((field, message)) => Err(Error::argument(field, message)
                .with_hint("describe a model that there is, or count the tensors of its checkpoint")),
            None => Ok(()),
        }
    }

    /// What no model is, and in which field.
    pub(super) fn wrong(&self) -> Option<(&'static str, String)> {
        let n_layers = self.layers.len();
        if !(1..=MAX_LAYERS).contains(&n_layers) {
            // Those of a description are not all made.
            let found = if n_layers > MAX_LAYERS { "more".to_owned() } else { n_layers.to_string() };
            return Some(("n_layers", format!("expected 1 to {MAX_LAYERS} layers, found {found}")));
        }
        let experts = self.layers.iter().map(|layer| layer.n_experts.max(1));
        let experts = experts.fold(0, usize::saturating_add);
        if experts > MOST_EXPERTS {
            return Some(("n_experts", format!("expected at most {MOST_EXPERTS} experts, found {experts}")));
        }
        let is_odd =
            |layer: &&LayerBytes| layer.n_used > layer.n_experts || layer.n_used == 0 && layer.n_experts > 0;
        let LayerBytes { n_used, n_experts, .. } = self.layers.iter().find(is_odd)?;
        let least = usize::from(*n_experts > 0);
        Some(("n_used", format!("expected {least} to {n_experts} experts for a token, found {n_used}")))
    }

    /// Counts a checkpoint's tensors; only its headers are read. Of families that this library cannot run, it counts them
    /// by their names: `guessed` says so, and what could not be known.
    ///
    /// # Errors
    /// As [`ArchSpec::from_checkpoint`], but for families that cannot be run only where no tensor is of a layer;
    /// [`ErrorKind::TensorMissing`](crate::ErrorKind::TensorMissing) for tensors that the checkpoint lacks.
    pub fn from_checkpoint(checkpoint: &dyn Checkpoint) -> Result<Self> {
        let arch = match ArchSpec::from_checkpoint(checkpoint) {
            Err(error) if error.kind() == ErrorKind::ArchUnsupported => {
                let Some(mut counted) = named::inventory(checkpoint) else { return Err(error) };
                let why = format!("{}: tensors were counted by their names", error.message());
                counted.guessed.insert(0, why);
                return Ok(counted);
            }
            arch => arch?,
        };
        let mut counted = Self::of(&arch, checkpoint)?;
        (counted.vision, counted.mtp) = named::beside(checkpoint, arch.n_layers());
        // A head that lacks something is not loaded either.
        let head = arch.head_in(checkpoint).and_then(|head| Self::of(&head, checkpoint).ok());
        counted.mtp_layer = head.and_then(|head| {
            let layer = *head.layers.first()?;
            Some(LayerBytes { attention: layer.attention.saturating_add(head.head), ..layer })
        });
        Ok(counted)
    }

    /// Counts the tensors of what drafts for a model, at the path that [`draft_model`](crate::LoadOptions::draft_model) of
    /// loading takes: a smaller model, the model's head for tokens ahead in a file of its own, its assistant, or an EAGLE-3
    /// head of it. Only headers are read.
    ///
    /// # Errors
    /// As [`open_checkpoint`](crate::open_checkpoint), [`from_checkpoint`](Self::from_checkpoint) of either, and
    /// [`ArchSpec::drafts_in`].
    pub fn from_draft_model(model: &dyn Checkpoint, path: impl AsRef<Path>) -> Result<Self> {
        let checkpoint = open_drafts(path.as_ref())?;
        match ArchSpec::from_checkpoint(model)?.drafts_in(&*checkpoint)? {
            Some(drafts) => Self::of(&drafts, &*checkpoint),
            None => Self::from_checkpoint(&*checkpoint),
        }
    }

    /// Counts the tensors of a model in a checkpoint, or of what drafts for one.
    fn of(arch: &ArchSpec, checkpoint: &dyn Checkpoint) -> Result<Self> {
        let len = |name: &str| stored_bytes(checkpoint, name);
        let missing = |name: String| {
            Error::new(ErrorKind::TensorMissing, "the model needs a tensor that the checkpoint lacks")
                .with("file", checkpoint.path().display())
                .with("tensor", name)
        };
        let sum = |names: &mut dyn Iterator<Item = String>| -> Result<u64> {
            let mut sum = 0u64;
            for name in names {
                let bias = match name.strip_suffix("weight") {
                    Some(stem) => len(&format!("{stem}bias")),
                    None => len(&format!("{name}_bias")),
                };
                let weight = len(&name).ok_or_else(|| missing(name))?;
                sum = sum.saturating_add(weight).saturating_add(bias.unwrap_or(0));
            }
            Ok(sum)
        };
        let names = &arch.names;
        let inputs = arch.input_width().is_some();
        let projection = match inputs {
            true => sum(&mut [names.input_projections()].into_iter())? / arch.n_layers() as u64,
            false => 0,
        };
        let layers = arch.layers.iter().enumerate().map(|(at, spec)| {
            let total = sum(&mut names.weights(at, spec))?.saturating_add(projection);
            let total = total.saturating_add(arch.copied_bytes(at, checkpoint));
            let block = sum(&mut names.feed_forward(at, spec))?;
            let attention = spec.attention();
            let kv_elements = attention.filter(|own| own.has_kv()).map_or(0, |own| {
                let parts = if own.latent.is_some() { 1 } else { 2 };
                (own.n_kv_heads as u64).saturating_mul(own.kept_dim() as u64).saturating_mul(parts)
            });
            let (n_experts, n_used) =
                spec.ffn.experts.map_or((0, 0), |experts| (experts.n_experts, experts.n_used));
            let expert = if n_experts == 0 { 0 } else { block / n_experts as u64 };
            let shared = sum(&mut names.shared_expert(at, spec))?;
            Ok(LayerBytes {
                attention: total.saturating_sub(block).saturating_sub(shared),
                router: sum(&mut names.router(at, spec))?,
                ffn: block.saturating_sub(expert.saturating_mul(n_experts as u64)).saturating_add(shared),
                n_experts,
                n_used,
                expert,
                copied: arch.copies_experts(at, checkpoint),
                kv_per_token: kv_elements.saturating_mul(KV_VALUE_BYTES),
                attended: attention.map_or(0, |own| {
                    (own.n_heads as u64)
                        .saturating_mul((own.head_dim as u64).saturating_add(own.value_dim() as u64))
                }),
                kv_head_dim: attention.map_or(0, |own| own.kept_dim() as u64),
                latent: attention.is_some_and(|own| own.latent.is_some()),
                window: attention.and_then(|own| own.window).map(|window| window.size() as u64),
                joined: !arch.can_cut(at),
                state: spec.recurrent().map_or(0, |own| own.state_bytes().saturating_mul(STATES_HELD)),
            })
        });
        let mut layers = layers.collect::<Result<Vec<_>>>()?;
        let stored = arch.layers.iter().enumerate().flat_map(|(at, spec)| names.weights(at, spec));
        let stored = stored.filter_map(|name| checkpoint.tensor(&name)).map(TensorInfo::elements);
        let [begin, end] = arch.stream_ends();
        if let Some(first) = layers.first_mut() {
            let joint = arch.joint_ends().into_iter();
            first.attention = first.attention.saturating_add(sum(&mut begin.into_iter().chain(joint))?);
        }
        let [embedding, head] = arch.has_tables();
        let [shares_embedding, shares_head] = arch.shares_tables();
        let table = embedding.then(|| names.embedding()).into_iter();
        let last_norm = arch.has_last_norm().then(|| names.output_norm());
        Ok(Self {
            layers,
            embedding: sum(&mut table.chain(inputs.then(|| names.input_norm())))?,
            embedding_everywhere: inputs,
            tied_embeddings: embedding && !head && !shares_head,
            head: sum(&mut last_norm.into_iter().chain(head.then(|| names.head())).chain(end))?,
            row: (arch.row_width() as u64).saturating_mul(size_of::<f32>() as u64),
            step_row: RowWidths::of(arch, &arch.layers).bytes(),
            vocabulary: arch.output_vocab() as u64,
            context: arch.context_length as u64,
            elements: stored.fold(0, u64::saturating_add),
            exact: true,
            input_table: if inputs { len(&names.layer_inputs()).unwrap_or(0) } else { 0 },
            shares_embedding,
            shares_head,
            ..Self::default()
        })
    }

    /// The head for tokens ahead as something that drafts. Where parts were not counted, it is taken for as large as the last
    /// layer that sees all positions; `None`: there is none.
    pub(super) fn mtp_head(&self) -> Option<Self> {
        let sees_all = |layer: &&LayerBytes| layer.kv_per_token > 0 && layer.window.is_none();
        let alike = || self.layers.iter().rfind(sees_all).or(self.layers.last()).copied();
        let (layer, guessed) = match self.mtp_layer {
            Some(layer) => (layer, None),
            None if self.exact => return None,
            None => {
                (alike()?, Some("the head for tokens ahead was taken for as large as a layer".to_owned()))
            }
        };
        let joint = self.row.saturating_mul(JOINT_ROWS);
        Some(Self {
            layers: vec![layer],
            row: self.row,
            step_row: if self.step_row > 0 { self.step_row.saturating_add(joint) } else { 0 },
            vocabulary: self.vocabulary,
            context: self.context,
            exact: self.mtp_layer.is_some(),
            shares_embedding: true,
            shares_head: true,
            guessed: guessed.into_iter().collect(),
            ..Self::default()
        })
    }

    /// Bytes of weights that a token reads, whichever experts it takes.
    pub(super) fn read_by_a_token(&self) -> u64 {
        let of = |layer: &LayerBytes| {
            let experts = layer.expert.saturating_mul(layer.n_used as u64);
            layer.attention.saturating_add(layer.ffn).saturating_add(experts)
        };
        self.layers.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Bytes of the output head.
    pub(super) fn output_head(&self) -> u64 {
        let table = if self.tied_embeddings { self.embedding } else { 0 };
        self.head.saturating_add(table)
    }

    /// The same with keys and values kept otherwise than in half precision.
    pub(super) fn keeping(mut self, kv: KvTypes) -> Self {
        for layer in self.layers.iter_mut().chain(&mut self.mtp_layer) {
            layer.kv_per_token = kept(layer, kv);
        }
        self
    }

    /// Bytes of a row between stages of this card's model.
    pub(super) fn row_of(&self, card: &ModelCard) -> u64 {
        if self.row > 0 {
            self.row
        } else {
            (card.hidden_size as u64).saturating_mul(size_of::<f32>() as u64)
        }
    }

    /// Whether a stage of these layers holds the embedding table.
    pub(super) fn embeds(&self, layers: &Range<usize>) -> bool {
        let is_last = layers.end == self.layers.len();
        let held = layers.start == 0 || self.embedding_everywhere || is_last && self.tied_embeddings;
        held && !layers.is_empty()
    }

    /// Weights in a byte of layers, on average; `None` where they were not counted.
    pub(super) fn weights_per_byte(&self) -> Option<f64> {
        let bytes = self.layers.iter().map(LayerBytes::total).fold(0, u64::saturating_add);
        (self.elements > 0 && bytes > 0).then(|| self.elements as f64 / bytes as f64)
    }

    /// Whether it keeps nothing of a sequence: an assistant attends to its model's keys and values.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.layers.iter().all(|layer| layer.kv_per_token == 0 && layer.state == 0)
    }

    /// What is in no budget.
    pub(super) fn beside(&self) -> u64 {
        [self.input_table, self.vision, self.mtp].into_iter().fold(0, u64::saturating_add)
    }

    /// All weights that are loaded, each once.
    pub fn weights(&self) -> u64 {
        let layers = self.layers.iter().map(LayerBytes::total).fold(0, u64::saturating_add);
        layers.saturating_add(self.embedding).saturating_add(self.head)
    }
}
