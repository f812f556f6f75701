//! Which layer says what comes behind the next token? Heads for multi-token prediction (MTP), as models are trained with.

use super::{ArchSpec, LayerSpec};
use crate::weights::Checkpoint;

/// How a head for tokens ahead begins a row: the embedding of a token and the hidden state of the row before it, as the
/// model's last norm gives it, are normed and projected together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AheadSpec {
    /// The hidden state comes before the embedding.
    pub hidden_first: bool,
}

impl ArchSpec {
    /// The head for tokens ahead that a checkpoint has for this model, as a model of one layer: in the model's own file, or
    /// in one of its own beside it. `None`: it has none that this version knows.
    pub fn head_in(&self, checkpoint: &dyn Checkpoint) -> Option<Self> {
        let layer = self.layers.iter().rev().find(|layer| may_draft(layer))?.clone();
        let names = self.names.heads(self.n_layers()).find(|names| {
            let own = [names.joint_projection(), names.embedding_norm(), names.hidden_norm()];
            own.iter().all(|name| checkpoint.tensor(name).is_some())
        })?;
        let own_norm = checkpoint.tensor(&names.output_norm()).is_some();
        let names = if own_norm { names } else { names.with_norm(&self.names).unwrap_or(names) };
        let (layers, ahead) = (vec![layer], Some(AheadSpec { hidden_first: false }));
        let mut head = Self { layers, ahead, names, ..self.clone() };
        super::huggingface::reword(&mut head, checkpoint);
        Some(head)
    }
}

/// Whether a head's layer may be like this one: it sees all positions, and takes nothing that other layers have.
fn may_draft(layer: &LayerSpec) -> bool {
    let attends = layer.attention().is_some_and(|own| own.window.is_none() && own.kv_of.is_none());
    attends && layer.input.is_none() && layer.streams.is_none() && layer.bypass.is_none()
}
