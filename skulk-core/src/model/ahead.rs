//! How does a row begin and end of what drafts for a model? With a projection of the model's embeddings and hidden states, and
//! with an output head: the model's, or its own and a projection back.

use std::sync::Arc;

use super::decoder::{Decoder, wrong_input};
use super::load::Loader;
use super::workspace::Workspace;
use crate::arch::{AheadSpec, ArchSpec};
use crate::engine::backend::Backend;
use crate::engine::{Batch, LoadCx, ShardSpec};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, Memory};

/// What projects rows.
pub(super) enum Joint<B: Backend> {
    Head {
        hidden_first: bool,
        /// Of embeddings, and of hidden states.
        norms: [B::Vector; 2],
        projection: B::Matrix,
    },
    Assistant {
        projection: B::Matrix,
        back: B::Matrix,
    },
}

/// Where embeddings and hidden states come together.
pub(super) struct Joined<B: Backend> {
    both: B::Buffer,
    /// An assistant's, which are of other widths than its rows.
    parts: Option<[B::Buffer; 2]>,
}

/// What something that drafts has of its model.
pub(super) struct Ends<B: Backend> {
    pub(super) embedding: Arc<B::Matrix>,
    /// None for an assistant, which has its own.
    pub(super) head: Option<Arc<B::Matrix>>,
    /// Of what was loaded for it.
    pub(super) bytes: u64,
    /// What the norms of an assistant's queries are divided by, by layer and element.
    pub(super) queries: Vec<Vec<f32>>,
}

impl<B: Backend> Joint<B> {
    /// That of a description that has one.
    pub(super) fn load(loader: &mut Loader<'_, B>, arch: &ArchSpec) -> Result<Option<Self>> {
        let (names, hidden) = (&arch.names, arch.hidden_size);
        let mut projection = |width| loader.matrix(&names.joint_projection(), hidden, 2 * width, None);
        Ok(match arch.ahead {
            None => None,
            Some(AheadSpec::Head { hidden_first }) => Some(Self::Head {
                hidden_first,
                projection: projection(hidden)?,
                norms: [
                    loader.norm(&names.embedding_norm(), hidden, 1.0)?,
                    loader.norm(&names.hidden_norm(), hidden, 1.0)?,
                ],
            }),
            Some(AheadSpec::Assistant { hidden_size }) => Some(Self::Assistant {
                projection: projection(hidden_size)?,
                back: loader.matrix(&names.back_projection(), hidden_size, hidden, None)?,
            }),
        })
    }
}

impl<B: Backend> Joined<B> {
    /// Room for a step's rows, where they begin so.
    pub(super) fn new(backend: &B, spec: &ShardSpec) -> Result<Option<Self>> {
        let (arch, rows) = (&spec.arch, spec.max_rows);
        let width = arch.tapped_width();
        let parts = || Ok::<_, Error>([backend.buffer(rows, width)?, backend.buffer(rows, width)?]);
        let room = || {
            let parts = arch.is_assistant().then(parts).transpose()?;
            Ok(Self { both: backend.buffer(rows, 2 * width)?, parts })
        };
        arch.ahead.map(|_| room()).transpose()
    }
}

impl<B: Backend> Decoder<B> {
    /// Embeddings and output head of the last shard, for what drafts beside it. Where it has no embeddings, they are loaded.
    pub(super) fn ends(
        &self,
        drafts: &ArchSpec,
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
            .with_hint("load what drafts beside the last shard")
        };
        let output = self.output.as_ref().ok_or_else(last)?;
        let mut loader = Loader {
            backend,
            checkpoint,
            arch,
            memory,
            on_demand: true,
            cancel: cx.cancel,
            bytes: 0,
            queries: &[],
        };
        let embedding = match &self.embedding {
            Some(embedding) => Arc::clone(embedding),
            None => {
                let name = arch.names.embedding();
                Arc::new(loader.matrix(&name, arch.vocab_size, arch.hidden_size, None)?)
            }
        };
        let bytes = loader.bytes;
        let sources = drafts.layers.iter().filter_map(|layer| layer.attention()?.kv_of);
        let queries =
            sources.map(|source| loader.query_factors(source, self.spec.kv.keys)).collect::<Result<_>>()?;
        let head = output.head.as_ref().unwrap_or(&embedding);
        let head = (!drafts.is_assistant()).then(|| Arc::clone(head));
        Ok(Ends { head, embedding, bytes, queries })
    }

    /// Begins rows with embeddings and hidden states.
    pub(super) fn join_ends(
        &self,
        joint: &Joint<B>,
        work: &mut Workspace<B>,
        batch: &Batch<'_>,
        hidden: &[f32],
    ) -> Result<()> {
        let (b, arch, rows) = (&*self.backend, &*self.spec.arch, batch.rows());
        let Workspace { stream, x, normed, added, joined, .. } = work;
        let (Some(table), Some(Joined { both, parts })) = (&self.embedding, joined) else {
            return Err(wrong_input());
        };
        let projection = match (joint, parts) {
            (Joint::Head { hidden_first, norms: [embedding_norm, hidden_norm], projection }, _) => {
                let eps = arch.norm.eps;
                b.write(stream, hidden, x)?;
                b.rms_norm(stream, x, hidden_norm, eps, rows, added)?;
                b.embed(stream, table, batch.tokens, arch.embedding_scale, x)?;
                b.rms_norm(stream, x, embedding_norm, eps, rows, normed)?;
                let parts = if *hidden_first { [&*added, &*normed] } else { [&*normed, &*added] };
                b.concat(stream, parts, rows, both)?;
                projection
            }
            (Joint::Assistant { projection, .. }, Some([embedded, given])) => {
                b.write(stream, hidden, given)?;
                b.embed(stream, table, batch.tokens, arch.embedding_scale, embedded)?;
                b.concat(stream, [&*embedded, &*given], rows, both)?;
                projection
            }
            (Joint::Assistant { .. }, None) => return Err(wrong_input()),
        };
        b.linear(stream, both, rows, &mut [(projection, x)])
    }

    /// The tapped rows behind the last norm, an assistant's projected back.
    pub(super) fn give_back(&self, work: &mut Workspace<B>, to: &mut [f32]) -> Result<()> {
        let b = &*self.backend;
        let Workspace { stream, normed, tapped, joined, .. } = work;
        match (&self.joint, joined) {
            (Some(Joint::Assistant { back, .. }), Some(Joined { parts: Some([_, given]), .. })) => {
                b.linear(stream, normed, tapped.len(), &mut [(back, &mut *given)])?;
                b.read(stream, given, to)
            }
            _ => b.read(stream, normed, to),
        }
    }
}
