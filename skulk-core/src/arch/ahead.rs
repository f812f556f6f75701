//! What drafts for a model with the model's own help? Heads for multi-token prediction (MTP), as models are trained with,
//! assistants beside them, and EAGLE-3 heads.

use super::{
    ArchSpec, AttentionSpec, LayerSpec, MAX_SIZE, NormSpec, Window, gguf, huggingface, invalid, size,
};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{Checkpoint, Metadata};

/// How a row begins of what drafts for another model: with an embedding of a token, and with the model's hidden state of the row
/// before it, mostly as its last norm gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AheadSpec {
    /// A head for tokens ahead: both are normed, and projected together. It has keys and values of its own, and uses the
    /// model's output head.
    Head {
        /// The hidden state comes before the embedding.
        hidden_first: bool,
        /// It uses the model's last norm.
        model_norm: bool,
    },
    /// An assistant (Gemma 4): both are projected together, and what its last norm gives is projected back. It has an output
    /// head of its own, and attends to keys and values of the model: [`AttentionSpec::kv_of`] is a layer of the model.
    Assistant {
        /// Elements of the model's hidden states.
        hidden_size: usize,
    },
    /// An EAGLE-3 head: hidden states behind three layers of the model are projected together, and attention takes what comes of
    /// it beside the embedding, both normed ([`AttentionSpec::beside_embedding`]). It goes on from what its own layer gives. It
    /// has keys and values of its own, and may have embeddings and an output head.
    Eagle {
        /// Elements of the model's hidden states.
        hidden_size: usize,
        /// The model's layers behind which they are taken, in ascending order.
        layers: [usize; 3],
        /// They are normed before they are projected.
        taken_norm: Option<TakenNorm>,
        /// The residual stream begins as attention takes it: normed.
        normed: bool,
        /// It goes on from what its last norm gives, in place of that norm's input.
        goes_on_normed: bool,
        /// It has embeddings of its own.
        own_embedding: bool,
        /// Rows of its own output head, which may be of some tokens only; `None`: it uses the model's.
        head: Option<usize>,
    },
}

/// An EAGLE-3 head as its file tells of it.
pub(super) struct Eagle {
    pub(super) spec: ArchSpec,
    /// Elements of its model's hidden states.
    pub(super) hidden_size: usize,
    /// Tokens that its own output head is for.
    pub(super) vocab_size: usize,
    /// Hidden states are taken behind so many layers, where that is told.
    pub(super) borders: Option<[usize; 3]>,
    /// The field that tells it.
    pub(super) field: &'static str,
    pub(super) taken_norm: Option<TakenNorm>,
    pub(super) normed: bool,
    pub(super) goes_on_normed: bool,
}

/// How an EAGLE-3 head norms the hidden states that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakenNorm {
    /// Those of all layers together (`norm_before_fc`).
    Whole,
    /// Each layer's by themselves (`fc_norm`).
    Each,
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
        if let Some(prefix) = names.alone() {
            // There may be layers that this version does not know.
            let own = checkpoint.tensors().iter().filter(|tensor| tensor.name.starts_with(prefix)).count();
            let layers = (own == 3 + usize::from(own_norm)).then(|| vec![LayerSpec::nothing()])?;
            let ahead = Some(AheadSpec::Head { hidden_first: true, model_norm: !own_norm });
            let norm = NormSpec { eps: 1e-6, weight_offset: 0.0 };
            return Some(Self { layers, ahead, norm, names, ..self.clone() });
        }
        let names = if own_norm { names } else { names.with_norm(&self.names).unwrap_or(names) };
        let (layers, ahead) = (vec![layer], Some(AheadSpec::Head { hidden_first: false, model_norm: false }));
        let mut head = Self { layers, ahead, names, ..self.clone() };
        huggingface::reword(&mut head, checkpoint);
        Some(head)
    }

    /// The assistant of this model that a checkpoint holds. Each of its layers uses keys and values of the model's last layer
    /// that has such and a window likewise, or none either; its windows reach a position further. `None`: the checkpoint holds something else.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] where it is another model's, or broken; [`ErrorKind::ArchUnsupported`] for a variant that
    /// this version does not know.
    pub fn assistant_in(&self, checkpoint: &dyn Checkpoint) -> Result<Option<Self>> {
        let found = match checkpoint.metadata() {
            Metadata::Gguf(metadata) => gguf::assistant(metadata, checkpoint)?,
            Metadata::HuggingFace(metadata) => {
                let file = metadata.folder.join("config.json");
                huggingface::assistant(&metadata.config, &file, huggingface::prefix(checkpoint))?
            }
            Metadata::Vindex(_) => None,
        };
        let Some((mut own, hidden_size)) = found else { return Ok(None) };
        let named = |error: Error| error.with("file", checkpoint.path().display());
        own.ahead = Some(AheadSpec::Assistant { hidden_size });
        (own.ropes, own.embedding_scale) = (self.ropes.clone(), self.embedding_scale);
        self.lend(&mut own).map_err(named)?;
        huggingface::reword(&mut own, checkpoint);
        own.check().map_err(named)?;
        Ok(Some(own))
    }

    /// The EAGLE-3 head of this model that a checkpoint holds. `None`: the checkpoint holds something else.
    ///
    /// # Errors
    /// As [`assistant_in`](Self::assistant_in).
    pub fn eagle_in(&self, checkpoint: &dyn Checkpoint) -> Result<Option<Self>> {
        let found = match checkpoint.metadata() {
            Metadata::Gguf(metadata) => gguf::eagle(metadata, checkpoint)?,
            Metadata::HuggingFace(metadata) => {
                let file = metadata.folder.join("config.json");
                huggingface::eagle(&metadata.config, &file, checkpoint)?
            }
            Metadata::Vindex(_) => None,
        };
        let Some(found) = found else { return Ok(None) };
        let named = |error: Error| error.with("file", checkpoint.path().display());
        let mut own = found.spec;
        let has = |name: String| checkpoint.tensor(&name).is_some();
        let own_embedding = has(own.names.embedding());
        let head = has(own.names.head()).then_some(found.vocab_size);
        let n = self.n_layers();
        let borders = found.borders.unwrap_or([2, n / 2, n.saturating_sub(3)]);
        let ascending = borders[0] > 0 && borders.is_sorted_by(|a, b| a < b) && borders[2] <= n;
        if !ascending {
            let told = if found.borders.is_some() { "found" } else { "by default these are" };
            let message = format!(
                "expected hidden states behind three numbers of the {n} layers, each larger than the one before, {told} {borders:?}"
            );
            return Err(named(invalid(found.field, message)));
        }
        let layers = borders.map(|border| border - 1);
        let Eagle { hidden_size, taken_norm, normed, goes_on_normed, .. } = found;
        own.ahead = Some(AheadSpec::Eagle {
            hidden_size,
            layers,
            taken_norm,
            normed,
            goes_on_normed,
            own_embedding,
            head,
        });
        if !own_embedding {
            own.embedding_scale = self.embedding_scale;
        }
        for layer in &mut own.layers {
            layer.attention_norm = false;
            if let Some(attention) = layer.attention_mut() {
                attention.beside_embedding = true;
            }
        }
        own.check().map_err(named)?;
        let uses_model = !own_embedding || head.is_none();
        // By as many it would be told whether they are the model's or its own.
        if uses_model && own.hidden_size != self.hidden_size || own.hidden_size == 3 * hidden_size {
            let message = format!(
                "expected {} elements as the model has, or embeddings and an output head of its own, and not three times as many, found {}",
                self.hidden_size, own.hidden_size
            );
            return Err(named(invalid("hidden_size", message)));
        }
        Ok(Some(own))
    }

    /// Lets an assistant's layers use keys and values of this model's.
    fn lend(&self, own: &mut Self) -> Result<()> {
        for (at, attention) in own.layers.iter_mut().enumerate() {
            let Some(attention) = attention.attention_mut() else { continue };
            let slides = attention.window.is_some();
            let like = |layer: &LayerSpec| {
                layer.attention().is_some_and(|other| other.has_kv() && other.window.is_some() == slides)
            };
            let source = self.layers.iter().rposition(like);
            let lender = source.and_then(|source| self.layers[source].attention());
            let of = |attention: &AttentionSpec| [attention.n_kv_heads, attention.head_dim];
            let Some((source, lender)) = source.zip(lender).filter(|(_, lender)| of(lender) == of(attention))
            else {
                let [heads, elements] = of(attention);
                let found = lender.map(of).map_or("none".to_owned(), |[heads, elements]| {
                    format!("those of {heads} heads of {elements}")
                });
                let message = format!(
                    "expected keys and values of {heads} heads of {elements} elements, as layer {at} needs, found {found}: the assistant is another model's"
                );
                return Err(Error::new(ErrorKind::ConfigInvalid, message)
                    .with_hint("take the assistant that was published with this model"));
            };
            attention.kv_of = Some(source);
            (attention.window, attention.rope) = (lender.window.map(further), lender.rope);
        }
        Ok(())
    }

    /// Elements of the hidden states of the model that it is, or drafts for.
    pub(crate) fn model_width(&self) -> usize {
        match self.ahead {
            Some(AheadSpec::Assistant { hidden_size } | AheadSpec::Eagle { hidden_size, .. }) => hidden_size,
            _ => self.hidden_size,
        }
    }

    /// Elements of a hidden state that is tapped.
    pub(crate) fn tapped_width(&self) -> usize {
        if self.is_assistant() { self.model_width() } else { self.hidden_size }
    }

    /// Layers of a model with so many that are tapped for it; their number stands for the last norm.
    pub(crate) fn taken(&self, n_layers: usize) -> Vec<usize> {
        match self.ahead {
            Some(AheadSpec::Eagle { layers, .. }) => layers.to_vec(),
            _ => vec![n_layers],
        }
    }

    /// What is tapped of its own where it goes on from that.
    pub(crate) fn own_tap(&self) -> usize {
        match self.ahead {
            Some(AheadSpec::Eagle { goes_on_normed: false, .. }) => 0,
            _ => self.n_layers(),
        }
    }

    /// Rows of its output head.
    pub(crate) fn output_vocab(&self) -> usize {
        match self.ahead {
            Some(AheadSpec::Eagle { head: Some(rows), .. }) => rows,
            _ => self.vocab_size,
        }
    }

    /// Whether it attends to keys and values of the model that it drafts for, and to no others.
    pub(crate) fn is_assistant(&self) -> bool {
        matches!(self.ahead, Some(AheadSpec::Assistant { .. }))
    }

    /// Checks what only something has that drafts.
    pub(super) fn check_ahead(&self) -> Result<()> {
        size("hidden size of the model", self.model_width(), MAX_SIZE)?;
        size("rows of the output head", self.output_vocab(), MAX_SIZE)?;
        let beside = |layer: &LayerSpec| layer.attention().is_some_and(|own| own.beside_embedding);
        let eagle = matches!(self.ahead, Some(AheadSpec::Eagle { .. }));
        if self.layers.iter().any(|layer| beside(layer) != eagle) || eagle && self.layers.len() != 1 {
            let message = format!(
                "expected one in an EAGLE head and none elsewhere, found {} layers",
                self.layers.len()
            );
            return Err(invalid("layers with embeddings beside their input", message));
        }
        if !self.is_assistant() {
            return Ok(());
        }
        let borrows = |layer: &LayerSpec| {
            let attends = layer.attention().is_some_and(|own| !own.has_kv());
            attends && layer.input.is_none() && layer.streams.is_none()
        };
        match self.layers.iter().position(|layer| !borrows(layer)) {
            None => Ok(()),
            Some(at) => {
                let message =
                    format!("expected layers with the model's keys and values, found another in layer {at}");
                Err(invalid("layers of an assistant", message))
            }
        }
    }
}

/// What an assistant sees of a window: a position more.
fn further(window: Window) -> Window {
    match window {
        Window::Sliding(size) => Window::Sliding(size.saturating_add(1)),
        chunk @ Window::Chunk(_) => chunk,
    }
}

/// Whether a head's layer may be like this one: it sees all positions, and takes nothing that other layers have.
fn may_draft(layer: &LayerSpec) -> bool {
    let attends = layer.attention().is_some_and(|own| own.window.is_none() && own.kv_of.is_none());
    attends && layer.input.is_none() && layer.streams.is_none() && layer.bypass.is_none()
}
