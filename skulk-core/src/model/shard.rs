//! How do several sequences share one set of weights? A decoder with the pages of the sequences it serves.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::assistant::{self, AssistantShard};
use super::batch::{check, fits, knows};
use super::decoder::{Decoder, Kept, malformed};
use super::pages::{Pages, Sequence, Store};
use super::split::Split;
use super::workspace::Workspace;
use crate::arch::Mixer;
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::engine::backend::{Backend, PAGE, PageSpec, first_block};
use crate::engine::{
    Batch, FfnMemory, KvMemory, LayerPages, LoadCx, Reply, Segment, Shard, ShardSpec, StepCx,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{SeqId, TokenId};
use crate::weights::{Checkpoint, Memory};

/// A [`Decoder`] as a public shard.
pub(super) struct DecoderShard<B: Backend> {
    decoder: Decoder<B>,
    memory: Memory,
    /// What pages' bytes mean, see [`LayerPages::layout`].
    layout: String,
    /// What an assistant beside it reads, too.
    state: Arc<Mutex<State<B>>>,
    /// What the pages took when they last changed, for who asks during a step.
    kv_memory: Mutex<KvMemory>,
}

/// What steps change.
pub(super) struct State<B: Backend> {
    pages: Pages,
    pub(super) sequences: HashMap<SeqId, Sequence>,
    /// By layer.
    pub(super) stored: Vec<Kept<B>>,
    work: Workspace<B>,
}

/// The layers' pages, as the groups' store.
struct Layers<'a, B: Backend> {
    decoder: &'a Decoder<B>,
    stored: &'a mut [Kept<B>],
    stream: &'a mut B::Stream,
}

impl<B: Backend> Store for Layers<'_, B> {
    fn releases(&self) -> bool {
        B::RELEASES_PAGES
    }

    fn add(&mut self, group: usize, page: u32) -> Result<()> {
        let backend = self.decoder.backend();
        for layer in self.decoder.groups().layers(group) {
            match &mut self.stored[layer] {
                Kept::Pages(pages) => backend.add_page(pages, page)?,
                Kept::States(states) => backend.add_state(states, page)?,
                Kept::Nothing => {}
            }
        }
        Ok(())
    }

    fn release(&mut self, group: usize, page: u32) {
        for layer in self.decoder.groups().layers(group) {
            match &mut self.stored[layer] {
                Kept::Pages(pages) => self.decoder.backend().release_page(pages, page),
                Kept::States(states) => self.decoder.backend().release_state(states, page),
                Kept::Nothing => {}
            }
        }
    }

    fn copy(&mut self, group: usize, from: u32, to: u32) -> Result<()> {
        let backend = self.decoder.backend();
        for layer in self.decoder.groups().layers(group) {
            // States are never written where they are read.
            if let Kept::Pages(pages) = &mut self.stored[layer] {
                backend.copy_page(self.stream, pages, from, to)?;
            }
        }
        backend.submit(self.stream)
    }
}

impl<B: Backend> State<B> {
    /// The pages, the sequences, and where the pages lie.
    fn parts<'a>(
        &'a mut self,
        decoder: &'a Decoder<B>,
    ) -> (&'a mut Pages, &'a mut HashMap<SeqId, Sequence>, Layers<'a, B>) {
        let layers = Layers { decoder, stored: &mut self.stored, stream: &mut self.work.stream };
        (&mut self.pages, &mut self.sequences, layers)
    }

    /// Looks whether the segments' sequences can go on from where they begin; nothing is changed.
    fn admit(&self, segments: &[Segment]) -> Result<()> {
        for (at, segment) in segments.iter().enumerate() {
            let sequence = self.sequences.get(&segment.seq).ok_or_else(|| not_open(segment.seq))?;
            if segments[..at].iter().any(|other| other.seq == segment.seq) {
                return Err(malformed(format!("sequence {} occurs twice in the batch", segment.seq)));
            }
            let (start, len) = (segment.start, sequence.len());
            if start > len {
                return Err(malformed(format!(
                    "sequence {} has {len} positions, but its segment starts at {start}",
                    segment.seq
                )));
            }
            if start < len && self.pages.longest(sequence, start) < start {
                return Err(malformed(format!(
                    "sequence {} has {len} positions and cannot go back to {start}: what its sliding windows saw is gone, or its states are",
                    segment.seq
                ))
                .with_hint("shorten the sequence, which says how much is left, and compute from there"));
            }
        }
        Ok(())
    }

    /// Brings sequences to where their segments begin, and makes room for their rows.
    fn prepare(&mut self, decoder: &Decoder<B>, segments: &[Segment]) -> Result<()> {
        let (pages, sequences, mut layers) = self.parts(decoder);
        for segment in segments {
            let sequence = sequences.get_mut(&segment.seq).ok_or_else(|| not_open(segment.seq))?;
            if segment.start < sequence.len() {
                pages.truncate(sequence, segment.start, &mut layers);
            }
            let end = segment.start + segment.rows;
            pages.reserve(sequence, end, &mut layers).map_err(|e| e.with("sequence", segment.seq))?;
        }
        for (group, spec) in decoder.groups().list().iter().enumerate() {
            if spec.state {
                self.begin(decoder, group, segments)?;
                continue;
            }
            let spans = &mut self.work.spans[group];
            spans.clear();
            for segment in segments {
                if let Some(sequence) = self.sequences.get(&segment.seq) {
                    sequence.span(group, spec.window, segment.rows, spans);
                }
            }
        }
        Ok(())
    }

    /// Says which states the segments' rows read and write.
    fn begin(&mut self, decoder: &Decoder<B>, group: usize, segments: &[Segment]) -> Result<()> {
        let mut runs = std::mem::take(&mut self.work.runs);
        runs.clear();
        let (pages, sequences, mut layers) = self.parts(decoder);
        let mut row = 0;
        let begun = segments.iter().try_for_each(|segment| {
            let sequence = sequences.get_mut(&segment.seq).ok_or_else(|| not_open(segment.seq))?;
            runs.push(pages.begin(sequence, group, row, segment, &mut layers)?);
            row += segment.rows;
            Ok(())
        });
        self.work.runs = runs;
        begun
    }

    /// Notes what a step has computed.
    fn commit(&mut self, decoder: &Decoder<B>, batch: &Batch<'_>) {
        let (pages, sequences, mut layers) = self.parts(decoder);
        let mut tokens = batch.tokens;
        for segment in batch.segments {
            let (own, rest) = tokens.split_at(segment.rows);
            tokens = rest;
            if let Some(sequence) = sequences.get_mut(&segment.seq) {
                pages.commit(sequence, own, &mut layers);
            }
        }
    }
}

pub(super) fn not_open(seq: SeqId) -> Error {
    malformed(format!("sequence {seq} is not open"))
}

fn no_copy(error: std::collections::TryReserveError) -> Error {
    Error::new(ErrorKind::OutOfMemory, "cannot reserve a copy of what a layer keeps")
        .with_source(error)
        .with_hint("close sessions, or save shorter ones")
}

fn already_open(seq: SeqId) -> Error {
    malformed(format!("sequence {seq} is already open"))
}

impl<B: Backend> DecoderShard<B> {
    /// A shard whose weights lie there and whose pages' bytes mean this.
    pub(super) fn new(decoder: Decoder<B>, memory: Memory, layout: String) -> Result<Self> {
        let (spec, groups) = (decoder.spec(), decoder.groups());
        let spare = groups.full_length();
        let pages = Pages::new(groups.list(), spec.kv_memory, spare);
        let kv_memory = Mutex::new(pages.memory());
        let (stored, work) = (decoder.pages()?, decoder.workspace()?);
        let state = Arc::new(Mutex::new(State { pages, sequences: HashMap::new(), stored, work }));
        Ok(Self { decoder, memory, layout, state, kv_memory })
    }

    /// Works on the sequences, then notes what they take.
    fn with<R>(&self, work: impl FnOnce(&mut State<B>) -> R) -> R {
        let mut state = lock(&self.state);
        let result = work(&mut state);
        *lock(&self.kv_memory) = state.pages.memory();
        result
    }

    /// Bytes of a layer's page, or state.
    fn page_bytes(&self, layer: usize) -> Result<usize> {
        let spec = self.decoder.spec();
        match &spec.arch.layers[layer].mixer {
            Mixer::Attention(own) => PageSpec::new(own, spec.kv).checked_bytes(),
            Mixer::Recurrent(own) => Ok(usize::try_from(own.state_bytes()).unwrap_or(usize::MAX)),
            Mixer::Nothing => Ok(0),
        }
    }

    /// What of `layers` is this shard's, by layer, where it is what a sequence of `len` positions has.
    fn own<'a>(&self, len: usize, layers: &[LayerPages<'a>]) -> Result<Vec<LayerPages<'a>>> {
        let (spec, groups) = (self.decoder.spec(), self.decoder.groups());
        let own = spec.layers.clone().map(|layer| {
            let found = layers.iter().find(|pages| pages.layer == layer).ok_or_else(|| {
                Error::new(
                    ErrorKind::SessionInvalid,
                    "expected keys and values of every layer, found none of one",
                )
                .with("layer", layer)
                .with_hint("save the session again: all stages of its model hand theirs over")
            })?;
            let at = layer - spec.layers.start;
            let window = groups.list()[groups.of_layer(at)].window;
            let (first, n) = match groups.list()[groups.of_layer(at)].state {
                true => (len.div_ceil(PAGE), usize::from(len > 0)),
                false => (first_block(window, len), len.div_ceil(PAGE) - first_block(window, len)),
            };
            // Who uses another layer's has none.
            let page = if groups.has_own(at) { self.page_bytes(layer)? as u64 } else { 0 };
            let bytes = page.saturating_mul(n as u64);
            let mismatch = |what: &str, expected: &dyn Display, found: &dyn Display| {
                let message = format!("expected {what} {expected}, found {found}");
                Error::new(ErrorKind::SessionMismatch, message).with("layer", layer)
            };
            if found.layout != self.layout {
                return Err(mismatch("keys and values of", &self.layout, &found.layout));
            }
            if found.first_block != first {
                return Err(mismatch("pages from block", &first, &found.first_block));
            }
            if found.bytes.len() as u64 != bytes {
                return Err(mismatch("pages of bytes", &bytes, &found.bytes.len()));
            }
            Ok(*found)
        });
        own.collect()
    }

    /// Copies a layer's keys and values to its pages.
    fn fill(&self, sequence: &Sequence, from: &LayerPages<'_>) -> Result<()> {
        let (spec, backend) = (self.decoder.spec(), self.decoder.backend());
        let own = from.layer - spec.layers.start;
        let group = self.decoder.groups().of_layer(own);
        if !self.decoder.groups().has_own(own) {
            return Ok(());
        }
        let bytes = self.page_bytes(from.layer)?;
        self.at_work(|state| {
            let State { stored, work, .. } = state;
            match &mut stored[own] {
                Kept::Pages(stored) => {
                    let mut pages = sequence.pages_of(group).zip(from.bytes.chunks_exact(bytes.max(1)));
                    pages.try_for_each(|(page, from)| {
                        backend.write_page(&mut work.stream, stored, page, from)
                    })?;
                }
                Kept::Nothing => {}
                Kept::States(stored) => {
                    if let Some(state) = sequence.placed_state() {
                        backend.write_state(&mut work.stream, stored, state, from.bytes)?;
                    }
                }
            }
            backend.submit(&mut work.stream)
        })
    }

    /// Works on the sequences where and when the device wants it.
    fn at_work<R: Send>(&self, work: impl FnOnce(&mut State<B>) -> Result<R> + Send) -> Result<R> {
        let never = CancelToken::new();
        self.decoder.backend().run(&StepCx::new(&never), || self.with(work))
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

    fn device_memory(&self) -> Option<ByteSize> {
        self.decoder.backend().reserved()
    }

    fn load_ahead(
        &self,
        spec: &ShardSpec,
        drafts: &dyn Checkpoint,
        model: &dyn Checkpoint,
        cx: &LoadCx<'_>,
    ) -> Result<Box<dyn Shard>> {
        spec.check()?;
        let (own, decoder) = (&self.decoder.spec().arch, &self.decoder);
        let kept = [spec.kv.keys, spec.kv.values].iter().all(|kv| B::KV_TYPES.contains(kv));
        if spec.arch.ahead.is_none()
            || !(spec.is_first() && spec.is_last() && kept)
            || [spec.arch.model_width(), spec.arch.vocab_size] != [own.hidden_size, own.vocab_size]
        {
            let message = format!(
                "expected all of what drafts for a model of {} elements and {} tokens, with keys and values as the engine has them",
                own.hidden_size, own.vocab_size
            );
            return Err(Error::argument("spec", message).with_hint("describe what drafts by its model"));
        }
        let own = match spec.arch.is_assistant() {
            true => assistant::within(spec, decoder.spec())?,
            false => spec.clone(),
        };
        // The model's layers are counted from its first one.
        let (ends, spec) = (decoder.ends(&spec.arch, model, self.memory, cx)?, own);
        let blocks = Split::new(&spec, Arc::clone(decoder.experts.work()));
        let (backend, assists) = (Arc::clone(&decoder.backend), spec.arch.is_assistant());
        let loaded = Decoder::load(backend, blocks, spec, drafts, self.memory, (Some(ends), cx))?;
        match assists {
            true => {
                let state = Arc::clone(&self.state);
                Ok(Box::new(AssistantShard::new(loaded, self.memory, decoder.groups(), state)?))
            }
            false => Ok(Box::new(Self::new(loaded, self.memory, self.layout.clone())?)),
        }
    }

    fn open(&self, seq: SeqId, tokens: &[TokenId]) -> Result<usize> {
        self.with(|state| {
            if state.sequences.contains_key(&seq) {
                return Err(already_open(seq));
            }
            let sequence = state.pages.open(tokens);
            let len = sequence.len();
            state.sequences.insert(seq, sequence);
            Ok(len)
        })
    }

    fn reserve(&self, seq: SeqId, len: usize) -> Result<()> {
        fits(self.decoder.spec(), len)?;
        self.with(|state| {
            let (pages, sequences, mut layers) = state.parts(&self.decoder);
            let sequence = sequences.get_mut(&seq).ok_or_else(|| not_open(seq))?;
            pages.reserve(sequence, len, &mut layers).map_err(|e| e.with("sequence", seq))
        })
    }

    fn fork(&self, from: SeqId, at: usize, to: SeqId) -> Result<usize> {
        self.with(|state| {
            let sequence = state.sequences.get(&from).ok_or_else(|| not_open(from))?;
            if state.sequences.contains_key(&to) {
                return Err(already_open(to));
            }
            if at > sequence.len() {
                return Err(malformed(format!(
                    "cannot fork sequence {from} of {} positions at {at}",
                    sequence.len()
                )));
            }
            let sequence = state.pages.fork(sequence, at);
            let len = sequence.len();
            state.sequences.insert(to, sequence);
            Ok(len)
        })
    }

    fn save(&self, seq: SeqId, each: &mut dyn FnMut(LayerPages<'_>) -> Result<()>) -> Result<()> {
        let (spec, groups) = (self.decoder.spec(), self.decoder.groups());
        let mut bytes = Vec::new();
        for layer in spec.layers.clone() {
            let own = layer - spec.layers.start;
            let group = groups.of_layer(own);
            bytes.clear();
            // Between layers others may go on.
            let first_block = self.at_work(|state| {
                let sequence = state.sequences.get(&seq).ok_or_else(|| not_open(seq))?;
                if let Kept::States(stored) = &state.stored[own] {
                    if let Some(number) = sequence.state() {
                        bytes.try_reserve(self.page_bytes(layer)?).map_err(no_copy)?;
                        let stream = &mut state.work.stream;
                        self.decoder.backend().read_state(stream, stored, number, &mut bytes)?;
                    }
                    return Ok(sequence.len().div_ceil(PAGE));
                }
                let (first, pages) = sequence.seen(group, groups.list()[group].window);
                if !groups.has_own(own) {
                    return Ok(first);
                }
                let page = self.page_bytes(layer)?;
                let (numbers, rows) = (pages.collect::<Vec<_>>(), (sequence.len() + PAGE - 1) % PAGE + 1);
                bytes.try_reserve(numbers.len().saturating_mul(page)).map_err(no_copy)?;
                let stream = &mut state.work.stream;
                if let Kept::Pages(stored) = &state.stored[own] {
                    self.decoder.backend().read_pages(stream, stored, &numbers, rows, &mut bytes)?;
                }
                Ok(first)
            })?;
            each(LayerPages::new(layer, &self.layout, first_block, &bytes))?;
        }
        Ok(())
    }

    fn restore(&self, seq: SeqId, tokens: &[TokenId], layers: &[LayerPages<'_>]) -> Result<()> {
        fits(self.decoder.spec(), tokens.len())?;
        knows(self.decoder.spec(), tokens)?;
        let own = self.own(tokens.len(), layers)?;
        let placed = self.at_work(|state| {
            let (pages, sequences, mut layers) = state.parts(&self.decoder);
            if sequences.contains_key(&seq) {
                return Err(already_open(seq));
            }
            pages.place(tokens.len(), &mut layers)
        })?;
        // Between layers others may go on.
        let filled = own.iter().try_for_each(|from| self.fill(&placed, from));
        self.with(|state| {
            let (pages, sequences, mut layers) = state.parts(&self.decoder);
            let mut sequence = placed;
            let filled = filled
                .and_then(|()| if sequences.contains_key(&seq) { Err(already_open(seq)) } else { Ok(()) });
            if let Err(error) = filled {
                pages.close(sequence, &mut layers);
                return Err(error);
            }
            pages.commit(&mut sequence, tokens, &mut layers);
            sequences.insert(seq, sequence);
            Ok(())
        })
    }

    fn forward(&self, batch: &Batch<'_>, reply: &mut Reply, cx: &StepCx<'_>) -> Result<()> {
        let decoder = &self.decoder;
        check(decoder.spec(), batch)?;
        decoder.backend().run(cx, || {
            self.with(|state| {
                state.admit(batch.segments)?;
                state.prepare(decoder, batch.segments)?;
                decoder.forward(&mut state.work, &mut state.stored, batch, reply, cx)?;
                state.commit(decoder, batch);
                Ok(())
            })
        })
    }

    fn truncate(&self, seq: SeqId, len: usize) -> Result<usize> {
        self.with(|state| {
            let (pages, sequences, mut layers) = state.parts(&self.decoder);
            let sequence = sequences.get_mut(&seq).ok_or_else(|| not_open(seq))?;
            if len > sequence.len() {
                return Err(malformed(format!(
                    "cannot shorten sequence {seq} of {} positions to {len}",
                    sequence.len()
                )));
            }
            Ok(pages.truncate(sequence, len, &mut layers))
        })
    }

    fn kv_memory(&self) -> KvMemory {
        *lock(&self.kv_memory)
    }

    fn close(&self, seq: SeqId) {
        self.with(|state| {
            let (pages, sequences, mut layers) = state.parts(&self.decoder);
            if let Some(sequence) = sequences.remove(&seq) {
                pages.close(sequence, &mut layers);
            }
        });
    }
}

/// A step that panicked left the sequences at their former length: they are still sound.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
