//! What do rows begin and end as? Embeddings of tokens and logits of rows, without the layers between.

use std::sync::Arc;

use super::cpu_ffn::{CpuFfn, Held};
use super::load::Loader;
use super::output::Output;
use crate::cancel::CancelToken;
use crate::engine::StepCx;
use crate::engine::backend::{Backend, Head};
use crate::engine::cpu::Cpu;
use crate::error::Result;
use crate::ids::TokenId;
use crate::math;
use crate::weights::{Checkpoint, Memory};

/// Embeddings, the last norm and the head, which the kernels of a [`CpuFfn`] compute with, on its threads, where they are
/// stored.
pub(crate) struct CpuEnds {
    held: Arc<Held>,
    embedding: <Cpu as Backend>::Matrix,
    output: Output<Cpu>,
}

impl CpuEnds {
    /// Those of the checkpoint that has these blocks; `None` where it lacks some, or where rows begin or end as something
    /// else: several residual streams.
    ///
    /// # Errors
    /// Whatever is wrong with the weights.
    pub(crate) fn load(
        checkpoint: &dyn Checkpoint,
        ffn: &CpuFfn,
        cancel: &CancelToken,
    ) -> Result<Option<Self>> {
        let held = Arc::clone(ffn.held());
        let (cpu, arch) = (&held.cpu, &*held.arch);
        let head = (!arch.tied_embeddings).then(|| arch.names.head());
        let names = [arch.names.embedding(), arch.names.output_norm()].into_iter().chain(head.clone());
        if arch.streams().is_some() || !names.into_iter().all(|name| checkpoint.tensor(&name).is_some()) {
            return Ok(None);
        }
        let (backend, memory, on_demand) = (cpu, Memory::Mapped, true);
        let mut loader =
            Loader { backend, checkpoint, arch, memory, on_demand, cancel, bytes: 0, queries: &[] };
        let (vocab, hidden) = (arch.vocab_size, arch.hidden_size);
        let embedding = loader.matrix(&arch.names.embedding(), vocab, hidden, None)?;
        let head = head.map(|name| loader.matrix(&name, vocab, hidden, None).map(Arc::new)).transpose()?;
        let norm = loader.norm(&arch.names.output_norm(), hidden, arch.logit_scale)?;
        Ok(Some(Self { held, embedding, output: Output { norm, head } }))
    }

    /// A row for each token, as the first layer takes them.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
    pub(crate) fn embed(&self, tokens: &[TokenId]) -> Result<Vec<f32>> {
        let Held { cpu, arch, .. } = &*self.held;
        let mut rows = cpu.buffer(tokens.len(), arch.hidden_size)?;
        let mut stream = cpu.stream(1, 1)?;
        let never = CancelToken::new();
        cpu.run(&StepCx::new(&never), || {
            cpu.embed(&mut stream, &self.embedding, tokens, arch.embedding_scale, &mut rows)
        })?;
        Ok(rows.rows(tokens.len()).to_vec())
    }

    /// The `k` likeliest tokens behind a row that the last layer gave, and how likely each is.
    ///
    /// # Errors
    /// As [`StepCx::check`].
    pub(crate) fn likely(
        &self,
        row: &[f32],
        k: usize,
        temperature: f32,
        cancel: &CancelToken,
    ) -> Result<Vec<(TokenId, f32)>> {
        let Held { cpu, arch, .. } = &*self.held;
        let hidden = arch.hidden_size;
        let (mut x, mut normed) = (cpu.buffer(1, hidden)?, cpu.buffer(1, hidden)?);
        let mut logits = cpu.buffer(1, arch.vocab_size)?;
        let mut stream = cpu.stream(1, hidden)?;
        x.rows_mut(1).copy_from_slice(row);
        let matrix = self.output.head.as_deref().unwrap_or(&self.embedding);
        let head = Head { matrix, n_vocab: arch.vocab_size, softcap: arch.final_softcap, shortlist: &[] };
        cpu.run(&StepCx::new(cancel), || {
            cpu.rms_norm(&mut stream, &x, &self.output.norm, arch.norm.eps, 1, &mut normed)?;
            cpu.logits(&mut stream, &head, &normed, 1, &mut logits)
        })?;
        let logits = logits.rows(1);
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let parts = logits.iter().map(|logit| math::exp_f32((logit - most) / temperature));
        let mut parts: Vec<_> = parts.enumerate().collect();
        let sum: f32 = parts.iter().map(|(_, part)| part).sum();
        parts.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        parts.truncate(k);
        Ok(parts.into_iter().map(|(id, part)| (TokenId(id as u32), part / sum)).collect())
    }
}
