//! How many bytes has each part of a model that a card's facts describe? Its size, shared out by parameters.

use super::inventory::{Inventory, LayerBytes};
use super::memory::KV_VALUE_BYTES;
use crate::arch::STATES_HELD;
use crate::card::{LayerParameters, ModelCard, Parameters};

/// The bytes of a card's parts.
pub(super) fn inventory(card: &ModelCard, parameters: &Parameters) -> Inventory {
    let bits = parameters.bits();
    let size = card.storage_size.in_bytes;
    let of_a_bit = size as f64 / parameters.weighted().max(1.0);
    let share = |parameters: u64, bits: f64| (parameters as f64 * bits * of_a_bit) as u64;
    let layer = |of: &LayerParameters| {
        let router = share(of.router, bits.others);
        LayerBytes {
            attention: share(of.attention, bits.others).saturating_add(router),
            router,
            ffn: share(of.feed_forward, bits.feed_forward),
            n_experts: of.n_experts,
            n_used: of.n_used,
            expert: share(of.expert, bits.experts),
            copied: false,
            kv_per_token: of.kept.elements.saturating_mul(KV_VALUE_BYTES),
            attended: of.kept.attended,
            kv_head_dim: of.kept.head_size,
            latent: of.kept.latent,
            window: of.kept.window,
            joined: of.joined,
            state: of.kept.state.saturating_mul(size_of::<f32>() as u64 * STATES_HELD),
        }
    };
    let mut inventory = Inventory {
        layers: parameters.layers.iter().map(layer).collect(),
        embedding: share(parameters.embedding, bits.others),
        embedding_everywhere: parameters.input_table > 0,
        input_table: share(parameters.input_table, bits.others),
        tied_embeddings: parameters.tied_embeddings,
        context: u64::try_from(card.context_length).unwrap_or(0),
        head: share(parameters.head, bits.others),
        vision: share(parameters.other, bits.beside),
        guessed: vec![
            "the card's size was shared out by its facts, as if all weights of a kind were stored alike"
                .to_owned(),
        ],
        ..Inventory::default()
    };
    // What rounding leaves.
    let shared = inventory.weights().saturating_add(inventory.beside());
    inventory.embedding = inventory.embedding.saturating_add(size.saturating_sub(shared));
    inventory
}
