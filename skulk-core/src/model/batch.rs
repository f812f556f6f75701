//! Is this batch one that a shard can compute? All that the decoder's arithmetic relies on, looked at before.

use std::ops::Range;

use super::decoder::{malformed, wrong_input};
use crate::arch::AheadSpec;
use crate::engine::{Batch, Logits, ShardSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;

/// Whether a sequence can have so many positions.
pub(super) fn fits(spec: &ShardSpec, positions: usize) -> Result<()> {
    let most = spec.context;
    if positions <= most {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ContextOverflow,
        format!("expected at most {most} positions, found {positions}"),
    )
    .with_tokens(positions, most)
    .with_hint("load the model with a larger context"))
}

/// Whether all tokens are the model's.
pub(super) fn knows(spec: &ShardSpec, tokens: &[TokenId]) -> Result<()> {
    let vocab = spec.arch.vocab_size;
    match tokens.iter().find(|t| t.0 as usize >= vocab) {
        None => Ok(()),
        Some(token) => {
            Err(malformed(format!("expected token ids below the vocabulary size {vocab}, found {token}")))
        }
    }
}

/// Checks a batch, whatever sequences there are.
pub(super) fn check(spec: &ShardSpec, batch: &Batch<'_>) -> Result<()> {
    let (arch, assistant) = (&spec.arch, spec.arch.is_assistant());
    if batch.segments.is_empty() {
        return Err(malformed("the batch has no segments".into()));
    }
    for segment in batch.segments {
        if let Logits::Top(k) = segment.logits
            && !(1..=arch.output_vocab()).contains(&k)
        {
            let most = arch.output_vocab();
            return Err(malformed(format!("expected 1 to {most} of the largest logits, found {k}")));
        }
        if segment.rows == 0 {
            return Err(malformed("a segment has no rows".into()));
        }
        for Range { start, end } in [&segment.wanted, &segment.tapped] {
            if start > end || *end > segment.rows {
                return Err(malformed(format!(
                    "expected rows within a segment's 0..{} to be wanted or tapped, found {start}..{end}",
                    segment.rows
                )));
            }
        }
        if assistant && (segment.rows > 1 || segment.start == 0) {
            return Err(malformed(format!(
                "expected one row of an assistant behind a sequence's positions, found {} behind {}",
                segment.rows, segment.start
            )));
        }
        fits(spec, segment.start.saturating_add(segment.rows))?;
    }
    let rows = batch.rows();
    if rows > spec.max_rows {
        return Err(malformed(format!("expected 1 to {} rows, found {rows}", spec.max_rows)));
    }
    for (at, layer) in batch.taps.iter().enumerate() {
        let known = *layer == arch.n_layers() || *layer < arch.n_layers() && !assistant;
        if !known || batch.taps[..at].contains(layer) {
            let layers = if assistant { "" } else { "another layer, or " };
            return Err(malformed(format!(
                "expected each tap to be {layers}the number of layers {}, found {layer}",
                arch.n_layers()
            )));
        }
    }
    let mut end = 0;
    for Range { start, end: next } in batch.shortlist {
        if *start < end || next <= start || *next as usize > arch.output_vocab() {
            return Err(malformed(format!(
                "expected a shortlist of ranges of tokens below {}, each behind the one before, found {start}..{next} behind {end}",
                arch.output_vocab()
            )));
        }
        end = *next;
    }
    if batch.tokens.len() != rows {
        return Err(malformed(format!("expected {rows} tokens, found {}", batch.tokens.len())));
    }
    knows(spec, batch.tokens)?;
    let expected = rows.saturating_mul(arch.row_width());
    let takes = !spec.is_first() || arch.ahead.is_some();
    // An EAGLE head goes on from its own.
    let own =
        matches!(arch.ahead, Some(AheadSpec::Eagle { .. })).then(|| rows.saturating_mul(arch.hidden_size));
    match batch.hidden {
        Some(x) if takes && x.len() != expected && Some(x.len()) != own => {
            Err(malformed(format!("expected {expected} hidden values, found {}", x.len())))
        }
        found if found.is_some() != takes => Err(wrong_input()),
        _ => Ok(()),
    }
}
