//! How does a layer tell a position of those before it?

use super::{Activation, ArchSpec, AttentionSpec, FfnSpec, LayerSpec, RecurrentSpec, RopeSpec};
use crate::error::Result;

/// What a layer mixes positions with.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Mixer {
    /// Attention to keys and values of earlier positions.
    Attention(AttentionSpec),
    /// A state that each position changes and reads.
    Recurrent(RecurrentSpec),
    /// Nothing: the layer has a feed-forward block alone.
    Nothing,
}

impl Mixer {
    pub(super) fn check(&self, ropes: &[RopeSpec]) -> Result<()> {
        match self {
            Self::Attention(attention) => attention.check(ropes),
            Self::Recurrent(recurrent) => recurrent.check(),
            Self::Nothing => Ok(()),
        }
    }
}

impl LayerSpec {
    /// A layer that leaves rows as they are: of what drafts without one.
    pub(super) fn nothing() -> Self {
        Self {
            mixer: Mixer::Nothing,
            ffn: FfnSpec {
                width: 0,
                activation: Activation::Silu,
                bias: false,
                experts: None,
                shared: None,
                cutoff: None,
            },
            attention_norm: false,
            ffn_norm: false,
            post_attention_norm: false,
            post_ffn_norm: false,
            input: None,
            output_scale: false,
            streams: None,
            bypass: None,
        }
    }

    /// Its attention, where that is what it mixes positions with.
    pub fn attention(&self) -> Option<&AttentionSpec> {
        match &self.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::Recurrent(_) | Mixer::Nothing => None,
        }
    }

    /// The same, to be changed.
    pub fn attention_mut(&mut self) -> Option<&mut AttentionSpec> {
        match &mut self.mixer {
            Mixer::Attention(attention) => Some(attention),
            Mixer::Recurrent(_) | Mixer::Nothing => None,
        }
    }

    /// Its state, where it has one.
    pub fn recurrent(&self) -> Option<&RecurrentSpec> {
        match &self.mixer {
            Mixer::Recurrent(recurrent) => Some(recurrent),
            Mixer::Attention(_) | Mixer::Nothing => None,
        }
    }
}

impl ArchSpec {
    /// The attention of all layers that have one.
    pub(super) fn attentions(&mut self) -> impl Iterator<Item = &mut AttentionSpec> {
        self.layers.iter_mut().filter_map(LayerSpec::attention_mut)
    }
}
