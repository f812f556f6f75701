//! How do several sequences share one set of weights? A decoder with the sequences it serves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::decoder::{Caches, Decoder, Workspace, malformed, wrong_input};
use crate::bytes::ByteSize;
use crate::engine::backend::Backend;
use crate::engine::{Activations, Batch, FfnMemory, Input, Logits, Segment, Shard, ShardSpec, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::SeqId;
use crate::weights::Memory;

/// A [`Decoder`] as a public shard.
pub(super) struct DecoderShard<B: Backend> {
    decoder: Decoder<B>,
    memory: Memory,
    sequences: RwLock<HashMap<SeqId, Arc<Mutex<Sequence<B>>>>>,
}

/// One sequence: its tokens' keys and values, and buffers for its steps.
struct Sequence<B: Backend> {
    /// Committed positions.
    len: usize,
    /// Positions ever written, a cancelled step's included: rings have lost what lies a capacity
    /// before.
    written: usize,
    caches: Caches<B>,
    work: Workspace<B>,
}

impl<B: Backend> Sequence<B> {
    /// Checks that a segment continues the sequence, and notes what its step will write.
    fn admit(&mut self, segment: &Segment) -> Result<()> {
        if segment.start != self.len {
            return Err(malformed(format!(
                "sequence {} has {} positions, but its segment starts at {}",
                segment.seq, self.len, segment.start
            )));
        }
        self.written = self.written.max(segment.start + segment.rows);
        Ok(())
    }
}

/// A step that panicked left the sequence at its former length: it is still sound.
fn lock<B: Backend>(sequence: &Mutex<Sequence<B>>) -> MutexGuard<'_, Sequence<B>> {
    sequence.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Backend> DecoderShard<B> {
    /// A shard whose weights lie there.
    pub(super) fn new(decoder: Decoder<B>, memory: Memory) -> Self {
        Self { decoder, memory, sequences: RwLock::default() }
    }

    fn sequence(&self, seq: SeqId) -> Result<Arc<Mutex<Sequence<B>>>> {
        let sequences = self.sequences.read().unwrap_or_else(PoisonError::into_inner);
        sequences.get(&seq).cloned().ok_or_else(|| malformed(format!("sequence {seq} is not open")))
    }

    /// The shortest window of the shard's layers with its ring's capacity, where one is lossy.
    fn kept_after(&self, len: usize, written: usize) -> usize {
        let spec = self.decoder.spec();
        let intact = spec.arch.layers[spec.layers.clone()].iter().all(|layer| {
            let Some(window) = layer.attention.window else { return true };
            let capacity = self.decoder.cache_spec(&layer.attention).positions;
            // The next row sees from here on; the ring still holds the last `capacity` written.
            (len + 1).saturating_sub(window) + capacity >= written
        });
        if intact { len } else { 0 }
    }
}

impl<B: Backend> Shard for DecoderShard<B> {
    fn spec(&self) -> &ShardSpec {
        self.decoder.spec()
    }

    fn weight_bytes(&self) -> ByteSize {
        self.decoder.weight_bytes()
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn ffn_memory(&self) -> Option<FfnMemory> {
        self.decoder.ffn_memory()
    }

    fn open(&self, seq: SeqId) -> Result<()> {
        let sequence =
            Sequence { len: 0, written: 0, caches: self.decoder.caches()?, work: self.decoder.workspace()? };
        let mut sequences = self.sequences.write().unwrap_or_else(PoisonError::into_inner);
        if sequences.contains_key(&seq) {
            return Err(malformed(format!("sequence {seq} is already open")));
        }
        sequences.insert(seq, Arc::new(Mutex::new(sequence)));
        Ok(())
    }

    fn forward(&self, batch: &Batch<'_>, out: &mut Activations, cx: &StepCx<'_>) -> Result<()> {
        self.check(batch)?;
        // One sequence is the step of every decoded token: it allocates nothing.
        let [segment] = batch.segments else { return self.forward_many(batch, out, cx) };
        let handle = self.sequence(segment.seq)?;
        let mut sequence = lock(&handle);
        sequence.admit(segment)?;
        let Sequence { caches, work, len, .. } = &mut *sequence;
        let decoder = &self.decoder;
        decoder.backend().run(cx, || decoder.forward(work, &mut [caches], batch, out, cx))?;
        *len += segment.rows;
        Ok(())
    }

    fn truncate(&self, seq: SeqId, len: usize) -> Result<usize> {
        let handle = self.sequence(seq)?;
        let mut sequence = lock(&handle);
        if len > sequence.len {
            return Err(malformed(format!(
                "cannot shorten sequence {seq} of {} positions to {len}",
                sequence.len
            )));
        }
        sequence.len = self.kept_after(len, sequence.written);
        if sequence.len == 0 {
            sequence.written = 0;
        }
        Ok(sequence.len)
    }

    fn close(&self, seq: SeqId) {
        self.sequences.write().unwrap_or_else(PoisonError::into_inner).remove(&seq);
    }
}

impl<B: Backend> DecoderShard<B> {
    /// A batch of several sequences; the first one lends its workspace.
    fn forward_many(&self, batch: &Batch<'_>, out: &mut Activations, cx: &StepCx<'_>) -> Result<()> {
        let handles = batch.segments.iter().map(|s| self.sequence(s.seq)).collect::<Result<Vec<_>>>()?;
        // Everybody locks in the order of ids, so that two batches cannot wait for each other.
        let mut order: Vec<usize> = (0..handles.len()).collect();
        order.sort_unstable_by_key(|&i| batch.segments[i].seq);
        if order.windows(2).any(|pair| batch.segments[pair[0]].seq == batch.segments[pair[1]].seq) {
            return Err(malformed("a sequence occurs twice in the batch".into()));
        }
        let mut guards: Vec<Option<MutexGuard<'_, Sequence<B>>>> = handles.iter().map(|_| None).collect();
        for i in order {
            guards[i] = Some(lock(&handles[i]));
        }
        let mut work = None;
        let mut caches = Vec::with_capacity(guards.len());
        let mut lengths = Vec::with_capacity(guards.len());
        for (segment, sequence) in batch.segments.iter().zip(guards.iter_mut().flatten()) {
            sequence.admit(segment)?;
            let Sequence { caches: own, work: room, len, .. } = &mut **sequence;
            caches.push(own);
            lengths.push((len, segment.rows));
            work.get_or_insert(room);
        }
        let Some(work) = work else { return Err(malformed("the batch has no segments".into())) };
        let decoder = &self.decoder;
        decoder.backend().run(cx, || decoder.forward(work, &mut caches, batch, out, cx))?;
        for (len, rows) in lengths {
            *len += rows;
        }
        Ok(())
    }

    /// Checks everything about a batch that the decoder's arithmetic relies on.
    fn check(&self, batch: &Batch<'_>) -> Result<()> {
        let spec = self.decoder.spec();
        let (mut rows, mut asked) = (0usize, None);
        for segment in batch.segments {
            if let Logits::Top(k) = segment.logits
                && !(1..=spec.arch.vocab_size).contains(&k)
            {
                let most = spec.arch.vocab_size;
                return Err(malformed(format!("expected 1 to {most} of the largest logits, found {k}")));
            }
            let kind = match segment.logits {
                Logits::None => None,
                Logits::Last | Logits::All => Some(None),
                Logits::Top(k) => Some(Some(k)),
            };
            if kind.is_some_and(|kind| *asked.get_or_insert(kind) != kind) {
                return Err(malformed("segments ask for different numbers of logits".into()));
            }
            let end = segment.start.saturating_add(segment.rows);
            if end > spec.context {
                return Err(Error::new(
                    ErrorKind::ContextOverflow,
                    format!("expected at most {} positions, found {end}", spec.context),
                )
                .with_tokens(end, spec.context)
                .with_hint("load the model with a larger context"));
            }
            if segment.rows == 0 {
                return Err(malformed("a segment has no rows".into()));
            }
            rows = rows.saturating_add(segment.rows);
        }
        if !(1..=spec.max_rows).contains(&rows) {
            return Err(malformed(format!("expected 1 to {} rows, found {rows}", spec.max_rows)));
        }
        match batch.input {
            Input::Tokens(tokens) => {
                if !spec.is_first() {
                    return Err(wrong_input());
                }
                if tokens.len() != rows {
                    return Err(malformed(format!("expected {rows} tokens, found {}", tokens.len())));
                }
                let vocab = spec.arch.vocab_size;
                match tokens.iter().find(|t| t.0 as usize >= vocab) {
                    Some(token) => Err(malformed(format!(
                        "expected token ids below the vocabulary size {vocab}, found {token}"
                    ))),
                    None => Ok(()),
                }
            }
            Input::Hidden(x) => {
                let expected = rows.saturating_mul(spec.arch.hidden_size);
                if x.len() == expected {
                    return Ok(());
                }
                Err(malformed(format!("expected {expected} hidden values, found {}", x.len())))
            }
        }
    }
}
