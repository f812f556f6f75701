//! What would Hugging Face's float checkpoint of this model hold? Any checkpoint, seen with its names, row orders and
//! number conventions.
//!
//! Names have no `model.` before them. What differs between formats and is evened out here:
//! GGUF files of the llama family have the rows of query and key heads in pairs ([`rows`](tensor::Rows)); GGUF files of
//! Gemma have 1 added to norms; GGUF and MLX stack experts.

mod config;
mod files;
mod rope;
mod tensor;
#[cfg(test)]
pub(super) mod tests;

use serde_json::Value;

pub(crate) use files::FileContent;
pub(crate) use tensor::SourceTensor;

use self::tensor::Rows;
use crate::arch::{ArchSpec, LayerSpec, LayerTensor, RopeLayout, TensorRole};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::ExpertIdx;
use crate::weights::{Checkpoint, Metadata, Region};

/// A checkpoint, seen as Hugging Face's. Nothing is mapped but what [`tensor`](Self::tensor) gives, while it is held.
pub(crate) struct Source<'a> {
    checkpoint: &'a dyn Checkpoint,
    /// As the checkpoint has it.
    stored: ArchSpec,
    /// As the configuration tells it.
    arch: ArchSpec,
    config: Value,
}

impl<'a> Source<'a> {
    /// Reads what the checkpoint says about the model; of its weights, nothing but headers and rope factors.
    ///
    /// # Errors
    /// As [`ArchSpec::from_checkpoint`]; [`ErrorKind::ArchUnsupported`] when no configuration in Hugging Face's
    /// spelling says the same, naming what it would say otherwise.
    pub(crate) fn open(checkpoint: &'a dyn Checkpoint) -> Result<Self> {
        let stored = ArchSpec::from_checkpoint(checkpoint)?;
        config::expect_plain(&stored).map_err(|e| e.with("file", checkpoint.path().display()))?;
        let config = config::of_checkpoint(checkpoint, &stored)?;
        let mut arch = ArchSpec::from_config(&config, &checkpoint.path().to_owned())?;
        if let Metadata::Vindex(_) = checkpoint.metadata() {
            // The index says it beside the configuration.
            arch.embedding_scale = stored.embedding_scale;
        }
        config::expect_same(&stored, &arch).map_err(|e| e.with("file", checkpoint.path().display()))?;
        Ok(Self { checkpoint, stored, arch, config })
    }

    /// The model, described as Hugging Face's checkpoint of it would be, but for what stands before names.
    pub(crate) fn arch(&self) -> &ArchSpec {
        &self.arch
    }

    /// The model's `config.json`: its own, of a wrapper with other modalities the text part, without what it says of
    /// quantisation; or made of what the checkpoint says.
    pub(crate) fn config(&self) -> &Value {
        &self.config
    }

    /// Rows and row length of a tensor that the model has; a vector is one row. `None` for others, such as the head of
    /// a model whose head is the embedding table. Whether the checkpoint has it, [`tensor`](Self::tensor) tells.
    pub(crate) fn shape(&self, key: &str) -> Option<[usize; 2]> {
        self.shape_of(self.arch.names.role(key)?)
    }

    /// Maps a tensor. Dropped, it is let go.
    ///
    /// # Errors
    /// [`ErrorKind::TensorMissing`] when the model has no such tensor or the checkpoint lacks it,
    /// [`ErrorKind::TensorShape`] when its shape is not the model's, [`ErrorKind::DTypeUnsupported`],
    /// [`ErrorKind::FileIo`] and [`ErrorKind::CheckpointTruncated`].
    pub(crate) fn tensor(&self, key: &str) -> Result<SourceTensor> {
        self.open_tensor(key).map_err(|e| match e.context().iter().any(|(key, _)| *key == "file") {
            true => e,
            false => e.with("file", self.checkpoint.path().display()),
        })
    }

    fn open_tensor(&self, key: &str) -> Result<SourceTensor> {
        let found = self.arch.names.role(key).and_then(|role| Some((role, self.shape_of(role)?)));
        let (role, shape) = found.ok_or_else(|| {
            Error::new(
                ErrorKind::TensorMissing,
                "expected a tensor of the model, found one that it does not have",
            )
            .with("tensor", key)
            .with_hint("take names from the model's description")
        })?;
        let is_vector = is_vector(role);
        let name = self.stored.names.name(role);
        let stored = match self.stack(role) {
            Some((n, ExpertIdx(expert))) => self.stored(&name, &[n, shape[0], shape[1]], expert)?,
            None if is_vector => self.stored(&name, &shape[1..], 0)?,
            None => self.stored(&name, &shape, 0)?,
        };
        Ok(SourceTensor { shape, is_vector, stored, rows: self.order(role), added: self.added(role) })
    }

    /// The tensor of this name and shape in the checkpoint; of a stack, one of its parts.
    fn stored(&self, name: &str, shape: &[usize], part: usize) -> Result<Region> {
        let region = self.checkpoint.region(name)?;
        region.expect_shape(shape)?;
        if shape.len() < 3 {
            return Ok(region);
        }
        region.parts().nth(part).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a stack has fewer experts than its shape says")
                .with("tensor", name)
        })
    }

    /// Of an expert's tensor that is stacked, how many there are and whose it is.
    fn stack(&self, role: TensorRole) -> Option<(usize, ExpertIdx)> {
        let TensorRole::Layer { layer, expert: Some(expert), .. } = role else { return None };
        let n = self.arch.layers.get(layer)?.ffn.experts?.n_experts;
        self.stored.names.stacks_experts().then_some((n, expert))
    }

    /// Where Hugging Face's rows lie.
    fn order(&self, role: TensorRole) -> Rows {
        let TensorRole::Layer { layer, tensor: LayerTensor::Query | LayerTensor::Key, .. } = role else {
            return Rows::Same;
        };
        let attention = self.stored.layers.get(layer).and_then(LayerSpec::attention);
        match attention.and_then(|a| Some((a, self.stored.ropes.get(a.rope?)?))) {
            Some((a, rope)) if rope.layout == RopeLayout::Pairs => {
                Rows::Pairs { head: a.head_dim, rotary: rope.dim }
            }
            _ => Rows::Same,
        }
    }

    /// What is added to stored norms.
    fn added(&self, role: TensorRole) -> f32 {
        let is_norm = match role {
            TensorRole::OutputNorm => true,
            TensorRole::Layer { tensor, .. } => tensor.is_norm(),
            _ => false,
        };
        // Exact for stored values of at least 0.5. Below, where Gemma has hardly any, the last bit is rounded away;
        // what the addition rounded when the file was made stays lost.
        if is_norm { self.stored.norm.weight_offset - self.arch.norm.weight_offset } else { 0.0 }
    }

    fn shape_of(&self, role: TensorRole) -> Option<[usize; 2]> {
        let (hidden, vocab) = (self.arch.hidden_size, self.arch.vocab_size);
        match role {
            TensorRole::Embedding => Some([vocab, hidden]),
            TensorRole::OutputNorm => Some([1, hidden]),
            TensorRole::Head => (!self.arch.tied_embeddings).then_some([vocab, hidden]),
            TensorRole::Layer { layer, tensor, expert, is_bias } => {
                let layer = self.arch.layers.get(layer)?;
                let n_experts = layer.ffn.experts.map_or(0, |experts| experts.n_experts);
                let exists = LayerTensor::of(layer).any(|it| it == tensor)
                    && expert.is_none_or(|ExpertIdx(expert)| expert < n_experts);
                let shape = exists.then(|| tensor.shape(layer, hidden))?;
                match is_bias {
                    false => Some(shape),
                    true => tensor.has_bias(layer).then_some([1, shape[0]]),
                }
            }
        }
    }
}

/// Whether checkpoints have it as a vector.
fn is_vector(role: TensorRole) -> bool {
    match role {
        TensorRole::OutputNorm => true,
        TensorRole::Embedding | TensorRole::Head => false,
        TensorRole::Layer { tensor, is_bias, .. } => is_bias || tensor.is_norm(),
    }
}
