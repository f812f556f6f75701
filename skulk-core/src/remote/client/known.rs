//! What is known of a server? What it says of itself, held against the model that it is to compute for.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use crate::arch::ArchSpec;
use crate::engine::ffn::experts_of;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::LayerIdx;
use crate::remote::Address;
use crate::remote::facts::{self, Facts};
use crate::weights::Checkpoint;

/// The members of `/v1/stats` that matter here. LARQL's servers have no `skulk`; of its gRPC servers none is known.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct Stats {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    layers: Option<usize>,
    #[serde(default)]
    hidden_size: Option<usize>,
    #[serde(default)]
    dtype: Option<String>,
    #[serde(default)]
    skulk: Option<Facts>,
}

impl Stats {
    pub(super) fn read(address: &Address, body: &[u8]) -> Result<Self> {
        let unread = || {
            failed(address, "expected an answer of JSON with the member hidden_size, found another".into())
                .with("path", "/v1/stats")
        };
        let stats: Self = serde_json::from_slice(body).map_err(|e| unread().with_source(e))?;
        if stats.hidden_size.is_some() { Ok(stats) } else { Err(unread()) }
    }

    /// Of each layer which experts it computes.
    pub(super) fn serves(&self, arch: &ArchSpec) -> BTreeMap<usize, Range<usize>> {
        match &self.skulk {
            Some(facts) => facts.blocks.iter().map(|block| (block.layer, block.experts.clone())).collect(),
            // It does not say: it refuses what it does not have when it is asked.
            None => (0..arch.n_layers())
                .map(|layer| (layer, 0..experts_of(&arch.layers[layer])))
                .filter(|(_, experts)| !experts.is_empty())
                .collect(),
        }
    }

    /// Whether it is one of LARQL's.
    pub(super) fn is_larql(&self) -> bool {
        self.skulk.is_none()
    }

    /// How it computes, in words.
    pub(super) fn computes(&self) -> String {
        match (&self.skulk, &self.dtype) {
            (Some(facts), _) => told(&facts.computes),
            (None, Some(dtype)) => format!("LARQL, {}", told(dtype)),
            (None, None) => "LARQL".to_owned(),
        }
    }

    /// `Ok` where it computes for this model.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`] that says what differs.
    pub(super) fn check(
        &self,
        address: &Address,
        arch: &ArchSpec,
        checkpoint: &dyn Checkpoint,
    ) -> Result<()> {
        let layers = arch.n_layers();
        let Some(hidden) = self.hidden_size else { return Ok(()) };
        if hidden != arch.hidden_size || self.layers.is_some_and(|found| found != layers) {
            let found = self.layers.map_or_else(String::new, |found| format!("{found} layers and "));
            return Err(failed(
                address,
                format!(
                    "expected a model of {layers} layers and rows of {}, found {found}rows of {} (`{}`)",
                    arch.hidden_size,
                    hidden,
                    self.model.as_deref().map_or_else(|| "a model without a name".to_owned(), told)
                ),
            ));
        }
        let Some(facts) = &self.skulk else { return Ok(()) };
        for block in &facts.blocks {
            let n = arch.layers.get(block.layer).map_or(0, experts_of);
            if block.experts.is_empty() || block.experts.end > n {
                let message = format!(
                    "expected some of the layer's {n} experts, found {} to {}",
                    block.experts.start, block.experts.end
                );
                return Err(failed(address, message).with("layer", block.layer));
            }
            // Where one side has only some of the block, there is nothing to hold them against.
            if block.weights.is_empty() {
                continue;
            }
            if let Some(own) =
                facts::weights(checkpoint, arch, block.layer)?.filter(|own| *own != block.weights)
            {
                let message =
                    format!("expected weights {}, found {}", short(&own), told(short(&block.weights)));
                return Err(failed(address, message).with("layer", block.layer).with_hint(
                    "serve the same checkpoint, in the same quantisation, as the one that is loaded",
                ));
            }
        }
        Ok(())
    }

    /// By layer the hash of its block's weights, where it says so.
    pub(super) fn weights(&self) -> impl Iterator<Item = (LayerIdx, &str)> {
        let blocks =
            self.skulk.iter().flat_map(|facts| &facts.blocks).filter(|block| !block.weights.is_empty());
        blocks.map(|block| (LayerIdx(block.layer), block.weights.as_str()))
    }
}

/// As much of a hash as people compare.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// What a server says, as an error has it: as much as people read, in one line.
pub(super) fn told(words: &str) -> String {
    const MOST: usize = 400;
    let mut told = String::new();
    for letter in words.chars() {
        if told.len() >= MOST {
            told.push('…');
            break;
        }
        // A terminal would heed these.
        match letter.is_control() {
            true => told.extend(letter.escape_default()),
            false => told.push(letter),
        }
    }
    told
}

/// An error about a server that was reached.
pub(super) fn failed(address: &Address, message: String) -> Error {
    Error::new(ErrorKind::PeerFailed, message).with("peer", address)
}
