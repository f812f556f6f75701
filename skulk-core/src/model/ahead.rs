//! How does a head for tokens ahead begin and end? With a projection of embeddings and hidden states, and with the output
//! head of the model that it drafts for.

use std::sync::Arc;

use super::decoder::{Decoder, wrong_input};
use super::load::Loader;
use super::workspace::Workspace;
use crate::arch::AheadSpec;
use crate::engine::backend::Backend;
use crate::engine::{Batch, LoadCx, ShardSpec};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, Memory};

/// What a head begins rows with.
pub(super) struct Joint<B: Backend> {
    spec: AheadSpec,
    embedding_norm: B::Vector,
    hidden_norm: B::Vector,
    projection: B::Matrix,
}

/// What a head has of its model.
pub(super) struct Ends<B: Backend> {
    pub(super) embedding: Arc<B::Matrix>,
    pub(super) head: Arc<B::Matrix>,
    /// Of what was loaded for it.
    pub(super) bytes: u64,
}

impl<B: Backend> Joint<B> {
    /// That of a description that has one.
    pub(super) fn load(loader: &mut Loader<'_, B>, spec: &ShardSpec) -> Result<Option<Self>> {
        let (names, hidden) = (&spec.arch.names, spec.arch.hidden_size);
        let Some(ahead) = spec.arch.ahead else { return Ok(None) };
        Ok(Some(Self {
            spec: ahead,
            embedding_norm: loader.norm(&names.embedding_norm(), hidden, 1.0)?,
            hidden_norm: loader.norm(&names.hidden_norm(), hidden, 1.0)?,
            projection: loader.matrix(&names.joint_projection(), hidden, 2 * hidden, None)?,
        }))
    }
}

impl<B: Backend> Decoder<B> {
    /// Embeddings and output head of the last shard. Where it has no embeddings, they are loaded.
    pub(super) fn ends(
        &self,
        checkpoint: &dyn Checkpoint,
        memory: Memory,
        cx: &LoadCx<'_>,
    ) -> Result<Ends<B>> {
        let (arch, backend) = (&*self.spec.arch, &*self.backend);
        let last = || {
            Error::argument(
                "layers",
                "expected the last shard of a model, which has its output head, found another one",
            )
            .with_hint("load the head beside the last shard")
        };
        let output = self.output.as_ref().ok_or_else(last)?;
        let mut bytes = 0;
        let embedding = match &self.embedding {
            Some(embedding) => Arc::clone(embedding),
            None => {
                let cancel = cx.cancel;
                let mut loader =
                    Loader { backend, checkpoint, arch, memory, on_demand: true, cancel, bytes: 0 };
                let name = arch.names.embedding();
                let table = loader.matrix(&name, arch.vocab_size, arch.hidden_size, None)?;
                bytes = loader.bytes;
                Arc::new(table)
            }
        };
        let head = output.head.as_ref().unwrap_or(&embedding);
        Ok(Ends { head: Arc::clone(head), embedding, bytes })
    }

    /// Begins a head's rows.
    pub(super) fn join_ends(
        &self,
        joint: &Joint<B>,
        work: &mut Workspace<B>,
        batch: &Batch<'_>,
        hidden: &[f32],
    ) -> Result<()> {
        let (b, arch, rows) = (&*self.backend, &*self.spec.arch, batch.rows());
        let (Some(table), Some(joined)) = (&self.embedding, &mut work.joined) else {
            return Err(wrong_input());
        };
        let Workspace { stream, x, normed, added, .. } = work;
        let eps = arch.norm.eps;
        b.write(stream, hidden, x)?;
        b.rms_norm(stream, x, &joint.hidden_norm, eps, rows, added)?;
        b.embed(stream, table, batch.tokens, arch.embedding_scale, x)?;
        b.rms_norm(stream, x, &joint.embedding_norm, eps, rows, normed)?;
        let parts = if joint.spec.hidden_first { [&*added, &*normed] } else { [&*normed, &*added] };
        b.concat(stream, parts, rows, joined)?;
        b.linear(stream, joined, rows, &mut [(&joint.projection, x)])
    }
}
