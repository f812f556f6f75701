//! How many parameters has each part of a model, by its card's facts?

use super::facts::{AttentionFacts, LayerKind, ModelFacts};
use super::findings::Findings;
use super::schema::ModelCard;
use crate::strict::Fault;

/// Bits of a number, with its share of scales.
pub(super) const BITS: std::ops::RangeInclusive<f64> = 1.0..=64.0;
/// Bits of the parts beside the decoder, which conversions leave as they are.
const OTHER_BITS: f64 = 16.0;
/// Bits that scales add to a quantised weight where nothing else is known: 2 numbers of 16 bits for 64 weights.
const SCALE_BITS: f64 = 0.5;
/// The index's part of what is kept of a token begins at a multiple of so many elements.
pub(crate) const INDEX_ALIGNMENT: u64 = 32;
/// States are kept with so many values together.
const STATE_LANES: u64 = 16;

/// The parameters of a model's parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) layers: Vec<LayerParameters>,
    pub(crate) embedding: u64,
    /// 0: it is the embedding table.
    pub(crate) head: u64,
    pub(crate) tied_embeddings: bool,
    /// The table of what layers get of tokens.
    pub(crate) input_table: u64,
    /// Parts beside the decoder.
    pub(crate) other: u64,
    /// Bits of a weight; `None`: not known, all alike.
    pub(super) bits: Option<Bits>,
}

/// Bits of a weight with its scales.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bits {
    /// Of routed experts.
    pub(crate) experts: f64,
    /// Of dense feed-forward blocks and shared experts.
    pub(crate) feed_forward: f64,
    /// Of parts beside the decoder.
    pub(crate) beside: f64,
    /// Of all others.
    pub(crate) others: f64,
}

/// The parameters of a layer's parts, and what it keeps of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerParameters {
    /// Without the router.
    pub(crate) attention: u64,
    pub(crate) router: u64,
    /// A dense block, or what every token takes beside routed experts.
    pub(crate) feed_forward: u64,
    pub(crate) n_experts: usize,
    pub(crate) n_used: usize,
    /// One routed expert.
    pub(crate) expert: u64,
    pub(crate) kept: Kept,
    /// It is in one stage with the layer before.
    pub(crate) joined: bool,
}

/// What a layer keeps of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kept {
    /// Elements of a token's keys and values.
    pub(crate) elements: u64,
    /// Elements of a head.
    pub(crate) head_size: u64,
    /// Elements of a row's queries, all heads', and of what they make of values.
    pub(crate) attended: u64,
    pub(crate) latent: bool,
    pub(crate) window: Option<u64>,
    /// Numbers of a state.
    pub(crate) state: u64,
}

impl ModelCard {
    /// Parameters of the model, by its facts: of the decoder with embedding and head, and of the parts beside it.
    /// `None`: the card has no facts, or they [cannot be right](Self::fact_findings).
    pub fn parameters(&self) -> Option<u64> {
        Some(parameters(self)?.ok()?.total())
    }

    /// Bytes of all weights, by the card's facts and the bits of a weight that they or `quantization` say. `None`: as
    /// [`parameters`](Self::parameters), or nothing says how many bits.
    pub fn size_by_facts(&self) -> Option<u64> {
        let counted = parameters(self)?.ok()?;
        counted.bits.map(|_| (counted.weighted() / 8.0) as u64)
    }

    /// What is wrong with the card's facts: those that contradict each other, the card's other fields or its size, and
    /// those that are missing beside others. Plans then take the card for one without facts.
    ///
    /// ```
    /// use skulk::ModelCard;
    /// let card = ModelCard::from_toml(r#"
    ///     model_id = "acme/small"
    ///     n_layers = 16
    ///     hidden_size = 2048
    ///     num_key_value_heads = 8
    ///     supports_tensor = true
    ///     tasks = ["TextGeneration"]
    ///     quantization = "bf16"
    ///     storage_size.in_bytes = 2_470_000_000
    ///     facts.vocab_size = 128_256
    ///     facts.tied_embeddings = true
    ///     facts.feed_forward_size = 81_920
    ///     facts.attention = { heads = 32, head_size = 64 }
    /// "#)?;
    /// // A digit too many.
    /// let findings = card.fact_findings();
    /// assert_eq!(findings[0].field, "facts");
    /// assert!(findings[0].found.contains("16.97 GB"));
    /// # Ok::<(), skulk::Error>(())
    /// ```
    pub fn fact_findings(&self) -> Vec<Fault> {
        parameters(self).and_then(Result::err).unwrap_or_default()
    }
}

impl Parameters {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        let layers = self.layers.iter().map(LayerParameters::total).fold(0, u64::saturating_add);
        [layers, self.embedding, self.input_table, self.head, self.other]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Bits of a weight; where they are not known, only their ratio counts.
    pub(crate) fn bits(&self) -> Bits {
        let alike =
            Bits { experts: OTHER_BITS, feed_forward: OTHER_BITS, beside: OTHER_BITS, others: OTHER_BITS };
        self.bits.unwrap_or(alike)
    }

    /// Bits of all weights, each of its kind.
    pub(crate) fn weighted(&self) -> f64 {
        let all =
            |part: fn(&LayerParameters) -> u64| self.layers.iter().map(part).fold(0, u64::saturating_add);
        let (routed, blocks) = (all(LayerParameters::routed), all(|layer| layer.feed_forward));
        let rest = [routed, blocks, self.other].into_iter().fold(self.total(), u64::saturating_sub);
        let bits = self.bits();
        routed as f64 * bits.experts
            + blocks as f64 * bits.feed_forward
            + self.other as f64 * bits.beside
            + rest as f64 * bits.others
    }
}

impl LayerParameters {
    fn routed(&self) -> u64 {
        self.expert.saturating_mul(self.n_experts as u64)
    }

    fn total(&self) -> u64 {
        [self.attention, self.router, self.feed_forward, self.routed()]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// The parameters by the card's facts, or what is wrong with these; `None`: it has none.
pub(crate) fn parameters(card: &ModelCard) -> Option<Result<Parameters, Vec<Fault>>> {
    let facts = card.facts.as_ref()?;
    let mut findings = Findings::default();
    findings.of(card, facts);
    if !findings.0.is_empty() {
        return Some(Err(findings.0));
    }
    let counted = Counted { card, facts }.all();
    findings.of_size(card, &counted);
    Some(if findings.0.is_empty() { Ok(counted) } else { Err(findings.0) })
}

/// Bits of a weight, by the card's word for how it is stored: `4bit`, `Q4_K_M`, `bf16`.
pub(crate) fn bits_in(quantization: &str) -> Option<f64> {
    let digits = quantization.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let bits: f64 = digits.get(..end)?.parse().ok()?;
    let bits = if bits < OTHER_BITS { bits + SCALE_BITS } else { bits };
    BITS.contains(&bits).then_some(bits)
}

/// A product that is as large as can be where it does not fit.
fn product<const N: usize>(factors: [usize; N]) -> u64 {
    factors.into_iter().fold(1, |product: u64, factor| product.saturating_mul(factor as u64))
}

fn sum<const N: usize>(terms: [u64; N]) -> u64 {
    terms.into_iter().fold(0, u64::saturating_add)
}

/// A card whose facts agree with each other.
struct Counted<'a> {
    card: &'a ModelCard,
    facts: &'a ModelFacts,
}

impl Counted<'_> {
    fn all(&self) -> Parameters {
        let Self { card, facts } = *self;
        let table = product([facts.vocab_size.unwrap_or(0), card.hidden_size]);
        let given = facts.bits.or_else(|| bits_in(&card.quantization));
        let of_experts = facts.experts.as_ref().and_then(|experts| experts.bits);
        Parameters {
            layers: (0..card.n_layers).map(|at| self.layer(at)).collect(),
            embedding: table,
            head: if facts.tied_embeddings { 0 } else { table },
            tied_embeddings: facts.tied_embeddings,
            input_table: facts
                .layer_input_size
                .map_or(0, |size| product([facts.vocab_size.unwrap_or(0), size, card.n_layers])),
            other: facts.other_parameters,
            bits: given.map(|others| Bits {
                experts: of_experts.unwrap_or(others),
                feed_forward: facts.feed_forward_bits.unwrap_or(others),
                beside: OTHER_BITS,
                others,
            }),
        }
    }

    fn kind(&self, at: usize) -> LayerKind {
        let kinds = &self.facts.layers;
        kinds.get(at % kinds.len().max(1)).copied().unwrap_or(LayerKind::Full)
    }

    fn first_sharing(&self) -> usize {
        let sharing = self.facts.attention.as_ref().map_or(0, |own| own.sharing_layers);
        self.card.n_layers.saturating_sub(sharing)
    }

    fn layer(&self, at: usize) -> LayerParameters {
        let Self { card, facts } = *self;
        let (kind, hidden) = (self.kind(at), card.hidden_size);
        let (mixer, kept) = match kind {
            LayerKind::FeedForward => (0, Kept::default()),
            LayerKind::Recurrent => self.recurrent(),
            LayerKind::Full | LayerKind::Window => self.attention(at, kind),
        };
        let input = facts.layer_input_size.map_or(0, |size| product([3, hidden, size]));
        let one_block = facts.layers.contains(&LayerKind::FeedForward);
        let has_block = !one_block || kind == LayerKind::FeedForward;
        let block = |width: usize| product([facts.feed_forward_matrices, hidden, width]);
        let experts = facts.experts.as_ref().filter(|experts| has_block && at >= experts.dense_layers);
        let feed_forward = match experts {
            Some(experts) => block(experts.shared_size),
            None if has_block => block(self.dense_size(at)),
            None => 0,
        };
        LayerParameters {
            attention: sum([mixer, input, product([2, hidden])]),
            router: experts.map_or(0, |experts| product([hidden, experts.count])),
            feed_forward,
            n_experts: experts.map_or(0, |experts| experts.count),
            n_used: experts.map_or(0, |experts| experts.per_token),
            expert: experts.map_or(0, |experts| block(experts.size)),
            kept,
            joined: self.is_joined(at),
        }
    }

    fn dense_size(&self, at: usize) -> usize {
        let other = self.facts.attention.as_ref().and_then(|own| own.sharing_feed_forward_size);
        let own = self.facts.feed_forward_size.unwrap_or(0);
        if at >= self.first_sharing() { other.unwrap_or(own) } else { own }
    }

    /// Whether this layer or a later one uses keys and values of one before it.
    fn is_joined(&self, at: usize) -> bool {
        let first = self.first_sharing();
        [LayerKind::Full, LayerKind::Window].into_iter().any(|kind| {
            let is_it = |layer: &usize| self.kind(*layer) == kind;
            let used = (first.max(at)..self.card.n_layers).any(|layer| is_it(&layer));
            used && (0..first).rev().find(is_it).is_some_and(|source| source < at)
        })
    }

    fn attention(&self, at: usize, kind: LayerKind) -> (u64, Kept) {
        let Some(own) = &self.facts.attention else { return (0, Kept::default()) };
        if let Some(latent) = own.latent {
            return (self.latent(own), self.kept_latent(own, latent.rank, latent.rope_size));
        }
        let window = self.facts.window.filter(|_| kind == LayerKind::Window);
        let of_card = own.kv_heads.or(self.card.num_key_value_heads);
        let heads = window.and_then(|it| it.heads).unwrap_or(own.heads);
        let kv_heads = window.and_then(|it| it.kv_heads).or(of_card).unwrap_or(0);
        let size = window.and_then(|it| it.head_size).unwrap_or(own.head_size);
        let hidden = self.card.hidden_size;
        let sharing = at >= self.first_sharing();
        // Queries, perhaps with gates, and what comes out.
        let of_queries = product([hidden, heads, size, if own.output_gate { 3 } else { 2 }]);
        let of_keys = match (sharing, own.values_from_keys && window.is_none()) {
            (true, _) => 0,
            (_, true) => product([hidden, kv_heads, size]),
            _ => product([hidden, kv_heads, size, 2]),
        };
        let kept = Kept {
            elements: if sharing { 0 } else { product([2, kv_heads, size]) },
            head_size: size as u64,
            attended: product([2, heads, size]),
            window: window.map(|window| window.size),
            ..Kept::default()
        };
        (sum([of_queries, of_keys]), kept)
    }

    fn latent(&self, own: &AttentionFacts) -> u64 {
        let Some(latent) = own.latent else { return 0 };
        let hidden = self.card.hidden_size;
        let rotated = own.head_size.saturating_add(latent.rope_size);
        let queries = match latent.query_rank {
            Some(rank) => sum([product([hidden, rank]), product([rank, own.heads, rotated])]),
            None => product([hidden, own.heads, rotated]),
        };
        let index = own.index.map_or(0, |index| {
            let queries = product([latent.query_rank.unwrap_or(hidden), index.heads, index.head_size]);
            sum([queries, product([hidden, index.head_size]), product([hidden, index.heads])])
        });
        sum([
            queries,
            product([hidden, latent.rank.saturating_add(latent.rope_size)]),
            product([latent.rank, own.heads, own.head_size.saturating_add(latent.value_size)]),
            product([own.heads, latent.value_size, hidden]),
            index,
        ])
    }

    fn kept_latent(&self, own: &AttentionFacts, rank: usize, rope: usize) -> Kept {
        let vector = (rank as u64).saturating_add(rope as u64);
        let elements = own.index.map_or(vector, |index| {
            vector.next_multiple_of(INDEX_ALIGNMENT).saturating_add(index.head_size as u64)
        });
        let attended = (own.heads as u64).saturating_mul(vector.saturating_add(rank as u64));
        Kept { elements, head_size: elements, attended, latent: true, ..Kept::default() }
    }

    fn recurrent(&self) -> (u64, Kept) {
        let Some(own) = self.facts.recurrent else { return (0, Kept::default()) };
        let hidden = self.card.hidden_size;
        let keys = product([2, own.key_heads, own.key_size]);
        let values = product([own.heads, own.head_size]);
        let channels = keys.saturating_add(values);
        // Queries, keys, values, a gate, and two numbers for each head; then what comes out.
        let rows = sum([channels, values, product([2, own.heads])]);
        let weights = sum([rows, values]).saturating_mul(hidden as u64);
        let convolved = channels.saturating_mul(own.convolution as u64);
        let of_head =
            (own.head_size as u64).next_multiple_of(STATE_LANES).saturating_mul(own.key_size as u64);
        let before = channels.saturating_mul(own.convolution.saturating_sub(1) as u64);
        let state = of_head.saturating_mul(own.heads as u64).saturating_add(before);
        (sum([weights, convolved]), Kept { state, ..Kept::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::bits_in;

    #[test]
    fn names_of_quantizations_say_bits() {
        for (name, bits) in [
            ("Q4_K_M", Some(4.5)),
            ("IQ3_XXS", Some(3.5)),
            ("4bit", Some(4.5)),
            ("MXFP4-Q8", Some(4.5)),
            ("fp8", Some(8.5)),
            ("Q8_0", Some(8.5)),
            ("bf16", Some(16.0)),
            ("fp32", Some(32.0)),
            ("", None),
            ("999bit", None),
        ] {
            assert_eq!(bits_in(name), bits, "{name}");
        }
    }
}
