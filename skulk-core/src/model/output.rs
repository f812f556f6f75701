//! What turns the last layer's rows into logits?

use std::sync::Arc;

use super::decoder::{Decoder, wrong_input};
use super::workspace::Workspace;
use crate::engine::backend::{Backend, Head, TopLogits};
use crate::engine::{Batch, Logits, Reply};
use crate::error::Result;
use crate::ids::TokenId;

/// Rows of logits computed at a time: bounds their memory, as a row can be a megabyte.
const LOGIT_ROWS: usize = 8;
/// Rows whose largest logits are found at a time, for which the head is read once.
const TOP_ROWS: usize = 32;

/// Final norm and untied head, on the last shard.
pub(super) struct Output<B: Backend> {
    pub(super) norm: B::Vector,
    pub(super) head: Option<Arc<B::Matrix>>,
}

impl<B: Backend> Decoder<B> {
    pub(super) fn logits(
        &self,
        output: &Output<B>,
        work: &mut Workspace<B>,
        batch: &Batch<'_>,
        reply: &mut Reply,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let Some(head) = output.head.as_deref().or(self.embedding.as_deref()) else {
            return Err(wrong_input());
        };
        let Batch { segments, shortlist, .. } = *batch;
        let (n_vocab, softcap) = (arch.output_vocab(), arch.final_softcap);
        let head = Head { matrix: head, n_vocab, softcap, shortlist };
        let taps = reply.tapped_mut(arch.n_layers()).is_some();
        if let Some(ends) = self.streams.as_ref().filter(|_| taps || !work.wanted.is_empty()) {
            let rows = segments.iter().map(|segment| segment.rows).sum();
            self.end_streams(ends, work, rows)?;
        }
        self.tap_norm(output, work, reply)?;
        let Workspace { stream, x, normed, added, wanted, logits, host, ids, .. } = work;
        if wanted.is_empty() {
            return b.submit(stream);
        }
        // Rows in the order of segments, and how many of the largest each wants.
        let mut rows = segments.iter().flat_map(|s| std::iter::repeat_n(s.logits, s.logit_rows()));
        let mut to = reply.all_mut();
        let most = segments.iter().filter(|s| s.logit_rows() > 0).map(|s| s.logits.most());
        if let Some(k) = most.reduce(|a, b| Some(a?.max(b?))).flatten() {
            for wanted in wanted.chunks(TOP_ROWS) {
                let n = wanted.len();
                host.resize(n * k, 0.0);
                ids.resize(n * k, TokenId(0));
                b.gather(stream, x, wanted, added)?;
                b.rms_norm(stream, added, &output.norm, arch.norm.eps, n, normed)?;
                b.top(stream, &head, normed, n, TopLogits { k, ids, logits: host })?;
                for ((host, ids), wants) in host.chunks(k).zip(ids.chunks(k)).zip(&mut rows) {
                    to.top(wants.most().unwrap_or(k), host, ids);
                }
            }
            return Ok(());
        }
        let logits = match logits {
            Some(logits) => logits,
            None => logits.insert(b.buffer(LOGIT_ROWS.min(self.spec.max_rows), arch.output_vocab())?),
        };
        for wanted in wanted.chunks(LOGIT_ROWS) {
            b.gather(stream, x, wanted, added)?;
            b.rms_norm(stream, added, &output.norm, arch.norm.eps, wanted.len(), normed)?;
            b.logits(stream, &head, normed, wanted.len(), logits)?;
            let n = wanted.len() * arch.output_vocab();
            // Where some rows want the largest only, all are computed all the same: the head is read once.
            if rows.clone().take(wanted.len()).all(|wants| wants == Logits::All) {
                rows.by_ref().take(wanted.len()).for_each(drop);
                b.read(stream, logits, to.next(n))?;
                continue;
            }
            host.resize(n, 0.0);
            b.read(stream, logits, host)?;
            for (row, wants) in host.chunks(arch.output_vocab()).zip(&mut rows) {
                match wants.most() {
                    None => to.next(arch.output_vocab()).copy_from_slice(row),
                    Some(k) => to.list(k, row),
                }
            }
        }
        Ok(())
    }
}
