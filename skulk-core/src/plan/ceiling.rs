//! How many tokens may a placement's context have? What the model was trained for, what its card allows, and
//! what memory leaves for keys and values.

use super::cluster::NodeId;
use super::memory::{CONTEXT_TOKENS, OVERHEAD_FLOOR, is_gguf};
use super::report::{ContextCeiling, ContextLimit};
use crate::arch::MAX_CONTEXT;
use crate::card::ModelCard;

/// Tokens whose keys and values fit beside a node's weights:
/// (working set − weights − [`OVERHEAD_FLOOR`]) / bytes of one token there. `None`: a token costs nothing
/// that is known.
///
/// `working_set` is what the node has once no other program needs memory, and so the same whenever it is
/// asked: nodes that decide for themselves whether to take a request must agree. `weights` includes their
/// overhead.
pub fn tokens_that_fit(working_set: u64, weights: u64, kv_per_token: f64) -> Option<u64> {
    let free = i128::from(working_set) - i128::from(weights) - i128::from(OVERHEAD_FLOOR);
    // Negative numbers become 0.
    (kv_per_token > 0.0).then(|| (free as f64 / kv_per_token) as u64)
}

/// The lowest of what limits a context: the tokens that fit in memory, with the node that has the fewest;
/// the card's `context_length` and `max_context_tokens`; and [`CONTEXT_TOKENS`] of GGUF models that llama.cpp
/// runs, as it reserves all of its context when it starts. GGUF models whose `engine` is not known count as such.
pub fn context_ceiling(
    card: &ModelCard,
    engine: Option<&str>,
    memory: Option<(u64, &NodeId)>,
) -> ContextCeiling {
    ceiling(card, 0, engine, memory)
}

/// The same of a model of which `counted` tokens were found in its checkpoint; 0: none.
pub(super) fn ceiling(
    card: &ModelCard,
    counted: u64,
    engine: Option<&str>,
    memory: Option<(u64, &NodeId)>,
) -> ContextCeiling {
    let limits = [
        trained(card, counted).map(|tokens| (tokens, ContextLimit::Model)),
        card.placement.max_context_tokens.map(|tokens| (tokens, ContextLimit::Card)),
        (is_gguf(card) && engine.is_none_or(|engine| engine == "llama_cpp"))
            .then_some((CONTEXT_TOKENS, ContextLimit::LlamaCpp)),
        memory.map(|(tokens, node)| (tokens, ContextLimit::Memory(node.clone()))),
    ];
    match limits.into_iter().flatten().min_by_key(|(tokens, _)| *tokens) {
        Some((tokens, limited_by)) => ContextCeiling { tokens: Some(tokens), limited_by },
        None => ContextCeiling { tokens: None, limited_by: ContextLimit::Nothing },
    }
}

/// Tokens that a model was trained for, by its card and its checkpoint; `None`: neither says.
fn trained(card: &ModelCard, counted: u64) -> Option<u64> {
    let said = u64::try_from(card.context_length).unwrap_or(0);
    [said, counted].into_iter().filter(|&tokens| tokens > 0).min()
}

/// Tokens of context that this library gives a session at most, whatever is asked for.
pub(super) fn longest(card: &ModelCard, counted: u64) -> u64 {
    let limits = [trained(card, counted), card.placement.max_context_tokens];
    limits.into_iter().flatten().fold(MAX_CONTEXT as u64, u64::min).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_leaves_no_tokens() {
        assert_eq!(tokens_that_fit(OVERHEAD_FLOOR + 1000, 0, 10.0), Some(100));
        assert_eq!(tokens_that_fit(OVERHEAD_FLOOR + 1000, 2000, 10.0), Some(0));
        assert_eq!(tokens_that_fit(0, u64::MAX, 10.0), Some(0));
        assert_eq!(tokens_that_fit(u64::MAX, 0, 0.0), None);
    }
}
