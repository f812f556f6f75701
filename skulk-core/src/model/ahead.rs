//! How does a row begin and end of what drafts for a model? With a projection of embeddings and hidden states, and with an output
//! head: the model's, or its own.

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
    Eagle {
        /// Of hidden states of several layers: of all of a row together, or of each layer's.
        taken_norms: Vec<Vec<f32>>,
        projection: B::Matrix,
        /// Of embeddings, and of what is projected.
        norms: [B::Vector; 2],
        normed: bool,
    },
}

/// Where embeddings and hidden states come together.
pub(super) struct Joined<B: Backend> {
    pub(super) both: B::Buffer,
    /// Hidden states as they are given, where they are of another width than rows, and embeddings likewise.
    given: Option<B::Buffer>,
    embedded: Option<B::Buffer>,
}

/// What something that drafts has of its model.
pub(super) struct Ends<B: Backend> {
    /// Of these, what it has not itself.
    pub(super) embedding: Option<Arc<B::Matrix>>,
    pub(super) head: Option<Arc<B::Matrix>>,
    pub(super) norm: Option<B::Vector>,
    /// Of what was loaded for it.
    pub(super) bytes: u64,
    /// What the norms of an assistant's queries are divided by, by layer and element.
    pub(super) queries: Vec<Vec<f32>>,
}

impl<B: Backend> Joint<B> {
    /// That of a description that has one.
    pub(super) fn load(loader: &mut Loader<'_, B>, arch: &ArchSpec) -> Result<Option<Self>> {
        let (names, hidden) = (&arch.names, arch.hidden_size);
        let Some(ahead) = arch.ahead else { return Ok(None) };
        let parts = if let AheadSpec::Eagle { layers, .. } = ahead { layers.len() } else { 2 };
        let projection =
            loader.matrix(&names.joint_projection(), hidden, parts * arch.model_width(), None)?;
        let taken_norms = match ahead {
            AheadSpec::Eagle { taken_norm: Some(norm), .. } => {
                let names = names.taken_norms(norm);
                let width = arch.row_width() / names.len().max(1);
                names.iter().map(|name| loader.norm_values(name, width, 1.0)).collect::<Result<_>>()?
            }
            _ => Vec::new(),
        };
        let mut norms = || {
            let norms =
                [names.embedding_norm(), names.hidden_norm()].map(|name| loader.norm(&name, hidden, 1.0));
            let [embedding, hidden] = norms;
            Ok::<_, Error>([embedding?, hidden?])
        };
        Ok(Some(match ahead {
            AheadSpec::Head { hidden_first, .. } => Self::Head { hidden_first, norms: norms()?, projection },
            AheadSpec::Eagle { normed, .. } => {
                Self::Eagle { taken_norms, projection, norms: norms()?, normed }
            }
            AheadSpec::Assistant { hidden_size } => Self::Assistant {
                projection,
                back: loader.matrix(&names.back_projection(), hidden_size, hidden, None)?,
            },
        }))
    }
}

impl<B: Backend> Joined<B> {
    /// Room for a step's rows, where they begin so.
    pub(super) fn new(backend: &B, spec: &ShardSpec) -> Result<Option<Self>> {
        let (arch, buffer) = (&spec.arch, |width| backend.buffer(spec.max_rows, width));
        let width = arch.tapped_width();
        let (given, embedded) = match arch.ahead {
            None => return Ok(None),
            Some(AheadSpec::Head { .. }) => (None, None),
            Some(AheadSpec::Assistant { .. }) => (Some(buffer(width)?), Some(buffer(width)?)),
            Some(AheadSpec::Eagle { .. }) => (Some(buffer(arch.row_width())?), None),
        };
        Ok(Some(Self { both: buffer(2 * width)?, given, embedded }))
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
        let (own_embedding, own_head) = match drafts.ahead {
            Some(AheadSpec::Eagle { own_embedding, head, .. }) => (own_embedding, head.is_some()),
            _ => (false, drafts.is_assistant()),
        };
        let embedding = match &self.embedding {
            Some(embedding) => Some(Arc::clone(embedding)),
            None if own_embedding => None,
            None => {
                let name = arch.names.embedding();
                Some(Arc::new(loader.matrix(&name, arch.vocab_size, arch.hidden_size, None)?))
            }
        };
        let model_norm = matches!(drafts.ahead, Some(AheadSpec::Head { model_norm: true, .. }));
        let norm = model_norm
            .then(|| loader.norm(&arch.names.output_norm(), arch.hidden_size, arch.logit_scale))
            .transpose()?;
        let bytes = loader.bytes;
        let sources = drafts.layers.iter().filter_map(|layer| layer.attention()?.kv_of);
        let queries =
            sources.map(|source| loader.query_factors(source, self.spec.kv.keys)).collect::<Result<_>>()?;
        let head = output.head.as_ref().or(embedding.as_ref()).filter(|_| !own_head).cloned();
        Ok(Ends { head, embedding: embedding.filter(|_| !own_embedding), norm, bytes, queries })
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
        let (eps, scale) = (arch.norm.eps, arch.embedding_scale);
        let Workspace { stream, x, normed, added, joined, all, host, .. } = work;
        let (Some(table), Some(Joined { both, given, embedded })) = (&self.embedding, joined) else {
            return Err(wrong_input());
        };
        match (joint, given, embedded) {
            (Joint::Head { hidden_first, norms: [embedding_norm, hidden_norm], projection }, ..) => {
                b.write(stream, hidden, x)?;
                b.rms_norm(stream, x, hidden_norm, eps, rows, added)?;
                b.embed(stream, table, batch.tokens, scale, x)?;
                b.rms_norm(stream, x, embedding_norm, eps, rows, normed)?;
                let parts = if *hidden_first { [&*added, &*normed] } else { [&*normed, &*added] };
                b.concat(stream, parts, rows, both)?;
                b.linear(stream, both, rows, &mut [(projection, x)])
            }
            (Joint::Assistant { projection, .. }, Some(given), Some(embedded)) => {
                b.write(stream, hidden, given)?;
                b.embed(stream, table, batch.tokens, scale, embedded)?;
                b.concat(stream, [&*embedded, &*given], rows, both)?;
                b.linear(stream, both, rows, &mut [(projection, x)])
            }
            (
                Joint::Eagle {
                    taken_norms,
                    projection,
                    norms: [embedding_norm, hidden_norm],
                    normed: begins_normed,
                },
                Some(given),
                _,
            ) => {
                // What it gave itself is no more projected.
                if hidden.len() == rows * arch.hidden_size {
                    b.write(stream, hidden, x)?;
                } else {
                    b.write(stream, norm_parts(hidden, taken_norms, eps, host), given)?;
                    b.linear(stream, given, rows, &mut [(projection, &mut *x)])?;
                }
                b.embed(stream, table, batch.tokens, scale, added)?;
                b.rms_norm(stream, added, embedding_norm, eps, rows, normed)?;
                b.rms_norm(stream, x, hidden_norm, eps, rows, added)?;
                b.concat(stream, [&*normed, &*added], rows, both)?;
                if *begins_normed { b.gather(stream, added, &all[..rows], x) } else { Ok(()) }
            }
            _ => Err(wrong_input()),
        }
    }

    /// The tapped rows behind the last norm, an assistant's projected back.
    pub(super) fn give_back(&self, work: &mut Workspace<B>, to: &mut [f32]) -> Result<()> {
        let b = &*self.backend;
        let Workspace { stream, normed, tapped, joined, .. } = work;
        match (&self.joint, joined) {
            (Some(Joint::Assistant { back, .. }), Some(Joined { given: Some(given), .. })) => {
                b.linear(stream, normed, tapped.len(), &mut [(back, &mut *given)])?;
                b.read(stream, given, to)
            }
            _ => b.read(stream, normed, to),
        }
    }
}

/// Rows from the host, each part of them normed that there is a norm for; without any, as they are.
fn norm_parts<'a>(rows: &'a [f32], norms: &[Vec<f32>], eps: f32, host: &'a mut Vec<f32>) -> &'a [f32] {
    let Some(width) = norms.first().map(Vec::len) else { return rows };
    host.clear();
    for (part, norm) in rows.chunks_exact(width.max(1)).zip(norms.iter().cycle()) {
        let squares: f64 = part.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let scale = (squares / width as f64 + f64::from(eps)).sqrt().recip() as f32;
        host.extend(part.iter().zip(norm).map(|(x, weight)| x * scale * weight));
    }
    host
}
