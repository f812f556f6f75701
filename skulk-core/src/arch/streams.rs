//! How many residual streams have layers? One, or several of which a layer computes one.

use super::{LayerSpec, Mixer, invalid, positive, size};
use crate::error::Result;

/// Upper bound for the number of streams.
const MOST: usize = 16;

/// Several residual streams (alternating updates, Baykal et al. 2023; Gemma 3n). A layer predicts all of them from all, by
/// numbers that the active one gives, lets its blocks compute the active one, and corrects all by what that changed. Behind
/// the last layer they become one.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct StreamsSpec {
    /// How many.
    pub n: usize,
    /// The one that blocks compute.
    pub active: usize,
    /// Bounds the weights of predictions and corrections to ±this.
    pub clip: Option<f32>,
    /// What gates a token's input to the layer is the active stream, each element times a number of its own.
    pub scaled: bool,
}

impl LayerSpec {
    /// Whether it has several streams, or what layers with such have beside: ways around attention, gates of which most are cut
    /// off.
    pub(crate) fn has_streams(&self) -> bool {
        self.streams.is_some() || self.bypass.is_some() || self.ffn.cutoff.is_some()
    }

    /// Checks what it has of these.
    pub(super) fn check_streams(&self) -> Result<()> {
        if let Some(streams) = self.streams {
            if !(2..=MOST).contains(&streams.n) {
                return Err(invalid(
                    "residual streams",
                    format!("expected 2 to {MOST}, found {}", streams.n),
                ));
            }
            if streams.active >= streams.n {
                let message = format!("expected an index below {}, found {}", streams.n, streams.active);
                return Err(invalid("active residual stream", message));
            }
            streams.clip.map_or(Ok(()), |clip| positive("bound of streams' coefficients", clip))?;
            if self.output_scale {
                let message = "expected one residual stream, found several";
                return Err(invalid("scale of a layer's output", message.into()));
            }
        }
        let Some(rank) = self.bypass else { return Ok(()) };
        size("rank of the way around attention", rank, 1 << 16)?;
        let plain = matches!(&self.mixer, Mixer::Attention(own) if own.latent.is_none());
        if !(plain && self.attention_norm) {
            let message = "expected attention to keys and values with a norm before it, found none";
            return Err(invalid("way around attention", message.into()));
        }
        Ok(())
    }
}
