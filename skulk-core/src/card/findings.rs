//! Do a card's facts agree with each other, with its other fields and with its size?

use super::facts::{LayerKind, ModelFacts, VERSION};
use super::parameters::{BITS, Parameters};
use super::schema::ModelCard;
use crate::arch::MAX_LAYERS;
use crate::strict::{Fault, FaultKind};

/// The largest number of elements, heads or experts that a fact may say.
const MOST: usize = 1 << 20;
/// The largest vocabulary.
const MOST_TOKENS: usize = 1 << 28;
/// Experts of all layers together that a plan may have.
pub(crate) const MOST_EXPERTS: usize = 1 << 22;
/// How far the size that follows from facts may be from the card's, in percent of it.
const TOLERANCE: f64 = 25.0;

/// What is wrong with a card's facts.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Fault>);

impl Findings {
    fn add(&mut self, field: &str, kind: FaultKind, found: impl ToString, allowed: impl Into<String>) {
        let field = if field.is_empty() { "facts".to_owned() } else { format!("facts.{field}") };
        self.0.push(Fault { field, kind, found: found.to_string(), allowed: allowed.into() });
    }

    fn missing(&mut self, field: &str, why: &str) {
        self.add(field, FaultKind::Missing, "", format!("it, as {why}; or leave all facts out"));
    }

    fn at_most(&mut self, field: &str, found: usize, most: usize) {
        if found > most {
            self.add(field, FaultKind::Range, found, format!("at most {most}"));
        }
    }

    /// Facts beside each other.
    pub(super) fn of(&mut self, card: &ModelCard, facts: &ModelFacts) {
        if facts.version != VERSION {
            let allowed = format!("version {VERSION}: what is in later ones is not read");
            return self.add("version", FaultKind::Value, facts.version, allowed);
        }
        if card.n_layers > MAX_LAYERS {
            self.add("layers", FaultKind::Range, card.n_layers, "a card of fewer layers");
        }
        match facts.vocab_size {
            Some(size) => self.at_most("vocab_size", size, MOST_TOKENS),
            None => self.missing("vocab_size", "embedding and head depend on it"),
        }
        if card.hidden_size > MOST {
            self.add("", FaultKind::Conflict, card.hidden_size, format!("a hidden_size of at most {MOST}"));
        }
        self.at_most("feed_forward_matrices", facts.feed_forward_matrices, 3);
        self.at_most("layer_input_size", facts.layer_input_size.unwrap_or(0), MOST);
        self.of_layers(card, facts);
        self.of_attention(card, facts);
        self.of_experts(card, facts);
        if let Some(own) = facts.recurrent {
            for (field, found) in [
                ("heads", own.heads),
                ("head_size", own.head_size),
                ("key_heads", own.key_heads),
                ("key_size", own.key_size),
                ("convolution", own.convolution),
            ] {
                self.at_most(&format!("recurrent.{field}"), found, MOST);
            }
        }
        let of_experts = facts.experts.as_ref().and_then(|experts| experts.bits);
        for (field, bits) in [
            ("bits", facts.bits),
            ("feed_forward_bits", facts.feed_forward_bits),
            ("experts.bits", of_experts),
        ] {
            if let Some(bits) = bits.filter(|bits| !BITS.contains(bits)) {
                let allowed = format!("{} to {} bits", BITS.start(), BITS.end());
                self.add(field, FaultKind::Range, bits, allowed);
            }
        }
    }

    fn of_layers(&mut self, card: &ModelCard, facts: &ModelFacts) {
        let kinds = &facts.layers;
        if kinds.is_empty() {
            self.add("layers", FaultKind::Value, "an empty list", "at least one kind of layer");
        }
        if kinds.len() > card.n_layers {
            let allowed = format!("at most {} kinds, as many as the card has layers", card.n_layers);
            self.add("layers", FaultKind::Conflict, kinds.len(), allowed);
        }
        let sections = [
            (LayerKind::Full, "attention", facts.attention.is_some()),
            (LayerKind::Window, "attention", facts.attention.is_some()),
            (LayerKind::Window, "window", facts.window.is_some()),
            (LayerKind::Recurrent, "recurrent", facts.recurrent.is_some()),
        ];
        for (kind, section, given) in sections {
            if kinds.contains(&kind) && !given {
                self.missing(section, &format!("`facts.layers` has `{kind}`"));
            }
        }
        let dense = match &facts.experts {
            Some(experts) => experts.dense_layers > 0,
            None => true,
        };
        match facts.feed_forward_size {
            Some(size) => self.at_most("feed_forward_size", size, MOST),
            None if dense => self.missing("feed_forward_size", "there are dense feed-forward blocks"),
            None => {}
        }
    }

    fn of_attention(&mut self, card: &ModelCard, facts: &ModelFacts) {
        let Some(own) = &facts.attention else { return };
        let of_card = card.num_key_value_heads;
        match (own.kv_heads, of_card) {
            (None, None) => self.missing("attention.kv_heads", "the card has no num_key_value_heads"),
            (Some(kv_heads), Some(of_card)) if kv_heads != of_card && facts.window.is_none() => {
                self.add(
                    "attention.kv_heads",
                    FaultKind::Conflict,
                    kv_heads,
                    format!("{of_card}, as in the card"),
                );
            }
            _ => {}
        }
        let kv_heads = own.kv_heads.or(of_card).unwrap_or(1);
        let window = facts.window.unwrap_or_default();
        let [window_heads, window_kv] =
            [window.heads.unwrap_or(own.heads), window.kv_heads.unwrap_or(kv_heads)];
        for (field, heads, kv) in
            [("attention.heads", own.heads, kv_heads), ("window.heads", window_heads, window_kv)]
        {
            self.at_most(field, heads, MOST);
            if own.latent.is_none() && heads.checked_rem(kv) != Some(0) {
                self.add(
                    field,
                    FaultKind::Conflict,
                    heads,
                    format!("a multiple of {kv} heads of keys and values"),
                );
            }
        }
        self.at_most("attention.head_size", own.head_size, MOST);
        self.at_most("window.head_size", window.head_size.unwrap_or(1), MOST);
        self.at_most("attention.sharing_feed_forward_size", own.sharing_feed_forward_size.unwrap_or(1), MOST);
        if own.sharing_layers >= card.n_layers {
            let allowed = format!("fewer than the {} layers", card.n_layers);
            self.add("attention.sharing_layers", FaultKind::Conflict, own.sharing_layers, allowed);
        }
        if let Some(latent) = own.latent {
            self.at_most("attention.latent.rank", latent.rank, MOST);
            self.at_most("attention.latent.query_rank", latent.query_rank.unwrap_or(1), MOST);
            self.at_most("attention.latent.rope_size", latent.rope_size, MOST);
            self.at_most("attention.latent.value_size", latent.value_size, MOST);
        }
        if let Some(index) = own.index {
            self.at_most("attention.index.heads", index.heads, MOST);
            self.at_most("attention.index.head_size", index.head_size, MOST);
            if own.latent.is_none() {
                self.missing("attention.latent", "an index chooses among latent vectors");
            }
        }
    }

    fn of_experts(&mut self, card: &ModelCard, facts: &ModelFacts) {
        let Some(own) = &facts.experts else { return };
        self.at_most("experts.count", own.count, MOST_EXPERTS / card.n_layers.clamp(1, MOST_EXPERTS));
        self.at_most("experts.size", own.size, MOST);
        self.at_most("experts.shared_size", own.shared_size, MOST);
        if own.per_token > own.count {
            let allowed = format!("at most the {} experts that there are", own.count);
            self.add("experts.per_token", FaultKind::Conflict, own.per_token, allowed);
        }
        if own.dense_layers >= card.n_layers {
            let allowed = format!("fewer than the {} layers; or no `facts.experts`", card.n_layers);
            self.add("experts.dense_layers", FaultKind::Conflict, own.dense_layers, allowed);
        }
    }

    /// Facts beside the card's size.
    pub(super) fn of_size(&mut self, card: &ModelCard, counted: &Parameters) {
        let (size, total) = (card.storage_size.in_bytes as f64, counted.total());
        let say = |bytes: f64| format!("{:.2} GB", bytes / 1e9);
        match counted.bits {
            Some(_) => {
                let bytes = counted.weighted() / 8.0;
                if (bytes - size).abs() > size * TOLERANCE / 100.0 {
                    let found = format!("{} for {:.2} billion parameters", say(bytes), total as f64 / 1e9);
                    let allowed = format!(
                        "facts whose size is within {TOLERANCE} % of the card's, which is {}; correct a fact, `storage_size` or `bits`",
                        say(size)
                    );
                    self.add("", FaultKind::Conflict, found, allowed);
                }
            }
            None => {
                let bits = size * 8.0 / total.max(1) as f64;
                if !BITS.contains(&bits) {
                    let found = format!("{:.2} billion parameters, {bits:.2} bits each", total as f64 / 1e9);
                    let allowed =
                        format!("as many as {} can hold; correct a fact, or `storage_size`", say(size));
                    self.add("", FaultKind::Conflict, found, allowed);
                }
            }
        }
    }
}
