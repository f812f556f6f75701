//! What drafts for a model from a checkpoint of its own, and what has it beside its layers?

use super::{AheadSpec, ArchSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Checkpoint;

impl ArchSpec {
    /// What a checkpoint holds that drafts beside this model: its assistant, an EAGLE-3 head of it, or its head for tokens
    /// ahead in a file of its own, with a description or without. `None`: a whole model, or nothing that drafts.
    ///
    /// # Errors
    /// As [`assistant_in`](Self::assistant_in), and [`ErrorKind::ConfigInvalid`] where it drafts for a model of other sizes.
    pub fn drafts_in(&self, checkpoint: &dyn Checkpoint) -> Result<Option<Self>> {
        let beside = match self.assistant_in(checkpoint)? {
            None => self.eagle_in(checkpoint)?,
            found => found,
        };
        let found = beside.or_else(|| {
            // A head's own file has no layers but its own, and it may have no description.
            let described = Self::from_checkpoint(checkpoint);
            let own = described.as_ref().unwrap_or(self);
            let mut names = own.names.weights(0, &own.layers[0]);
            if names.any(|name| checkpoint.tensor(&name).is_some()) { None } else { own.head_in(checkpoint) }
        });
        let sizes = |arch: &Self| [arch.model_width(), arch.vocab_size];
        match found {
            Some(drafts) if sizes(&drafts) != sizes(self) => {
                let message = format!(
                    "expected what drafts for a model with {:?} elements and tokens, found {:?}",
                    sizes(self),
                    sizes(&drafts)
                );
                Err(Error::new(ErrorKind::ConfigInvalid, message)
                    .with("file", checkpoint.path().display())
                    .with_hint("it belongs to another model"))
            }
            found => Ok(found),
        }
    }

    /// Whether it has an embedding table, and an output head that is another one.
    pub(crate) fn has_tables(&self) -> [bool; 2] {
        match self.ahead {
            None => [true, !self.tied_embeddings],
            Some(AheadSpec::Head { .. }) => [false, false],
            // The table is its output head.
            Some(AheadSpec::Assistant { .. }) => [true, false],
            Some(AheadSpec::Eagle { own_embedding, head, .. }) => [own_embedding, head.is_some()],
        }
    }

    /// Whether it uses the embedding table, and the output head, of the model that it drafts for.
    pub(crate) fn shares_tables(&self) -> [bool; 2] {
        match self.ahead {
            None => [false, false],
            Some(AheadSpec::Head { .. }) => [true, true],
            Some(AheadSpec::Assistant { .. }) => [true, false],
            Some(AheadSpec::Eagle { own_embedding, head, .. }) => [!own_embedding, head.is_none()],
        }
    }

    /// Names of what joins embeddings and hidden states, where something drafts from both.
    pub(crate) fn joint_ends(&self) -> Vec<String> {
        let names = &self.names;
        match self.ahead {
            None => Vec::new(),
            Some(AheadSpec::Assistant { .. }) => vec![names.joint_projection(), names.back_projection()],
            Some(ahead) => {
                let mut ends = vec![names.joint_projection(), names.embedding_norm(), names.hidden_norm()];
                if let AheadSpec::Eagle { taken_norm: Some(norm), .. } = ahead {
                    ends.extend(names.taken_norms(norm));
                }
                ends
            }
        }
    }

    /// Whether its last norm is its own.
    pub(crate) fn has_last_norm(&self) -> bool {
        !matches!(self.ahead, Some(AheadSpec::Head { model_norm: true, .. }))
    }

    /// Numbers of a row that begins with an embedding and hidden states: both as they are given, apart where they are of
    /// another width than rows, and joined; and hidden states as they are tapped and handed over.
    pub(super) fn joint_width(&self) -> usize {
        let (tapped, given) = (self.tapped_width(), self.row_width());
        let apart = match self.ahead {
            None => return 0,
            Some(AheadSpec::Head { .. }) => 0,
            Some(AheadSpec::Assistant { .. }) => tapped.saturating_mul(2),
            Some(AheadSpec::Eagle { .. }) => given,
        };
        tapped.saturating_mul(2).saturating_add(apart).saturating_add(given.saturating_mul(3))
    }
}
