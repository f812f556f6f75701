//! What happens to a row between embedding and logits? The one decoder.

use std::sync::Arc;

use super::ahead::{Ends, Joint};
use super::inputs::LayerInputs;
use super::kv;
use super::layer::{Layer, Mixer};
use super::load::Loader;
use super::output::Output;
use super::rotation::Rotations;
use super::split::Split;
use super::streams::StreamEnds;
use super::workspace::{InUse, Workspace};
use crate::arch::{self, LayerSpec};
use crate::bytes::ByteSize;
use crate::engine::backend::{Backend, PageSpec};
use crate::engine::{Batch, FfnMemory, LoadCx, Reply, ShardSpec, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::LayerIdx;
use crate::weights::{Checkpoint, Memory};

/// The weights of a range of layers on a backend.
pub(super) struct Decoder<B: Backend> {
    pub(super) backend: Arc<B>,
    pub(super) spec: ShardSpec,
    weight_bytes: ByteSize,
    pub(super) rotations: Rotations,
    /// The embedding table, on the first shard, on the last one when the head is tied to it, and where layers have inputs.
    pub(super) embedding: Option<Arc<B::Matrix>>,
    /// Of what drafts for another model.
    pub(super) joint: Option<Joint<B>>,
    pub(super) inputs: Option<LayerInputs<B>>,
    /// Where there are several residual streams.
    pub(super) streams: Option<StreamEnds<B>>,
    pub(super) layers: Vec<Layer<B>>,
    /// The group of each layer's pages.
    pub(super) groups: kv::Groups,
    pub(super) experts: Split<B>,
    /// Final norm and untied head, on the last shard.
    pub(super) output: Option<Output<B>>,
}

/// What a layer keeps of sequences.
pub(super) enum Kept<B: Backend> {
    Pages(B::Pages),
    States(B::States),
    Nothing,
}

impl<B: Backend> Decoder<B> {
    /// Loads what the device holds, its weights mapped or resident. What drafts for a model has its ends.
    pub(super) fn load(
        backend: Arc<B>,
        mut experts: Split<B>,
        spec: ShardSpec,
        checkpoint: &dyn Checkpoint,
        memory: Memory,
        (mut ends, cx): (Option<Ends<B>>, &LoadCx<'_>),
    ) -> Result<Self> {
        let arch = Arc::clone(&spec.arch);
        let model_norm = ends.as_mut().and_then(|ends| ends.norm.take());
        let mut loader = Loader {
            backend: &*backend,
            checkpoint,
            arch: &arch,
            memory,
            on_demand: false,
            cancel: cx.cancel,
            bytes: 0,
            queries: ends.as_ref().map_or(&[], |ends| &*ends.queries),
        };
        let hidden = arch.hidden_size;
        let inputs = LayerInputs::load(&mut loader, &spec)?;
        let joint = Joint::load(&mut loader, &arch)?;
        let has_embedding = spec.is_first() || spec.is_last() && arch.tied_embeddings || inputs.is_some();
        let own_embedding = ends.as_ref().is_none_or(|ends| ends.embedding.is_none());
        let mut embedding = (has_embedding && own_embedding)
            .then(|| loader.matrix(&arch.names.embedding(), arch.vocab_size, hidden, None))
            .transpose()?;
        let streams = StreamEnds::load(&mut loader, &spec)?;
        let mut layers = Vec::with_capacity(spec.layers.len());
        for layer in spec.layers.clone() {
            cx.cancel.check()?;
            layers.push(Layer::load(&mut loader, layer, spec.kv.keys)?);
            experts.load_layer(&mut loader)?;
            (cx.on_layer)();
        }
        let mut output = spec
            .is_last()
            .then(|| {
                let own = || loader.norm(&arch.names.output_norm(), hidden, arch.logit_scale);
                Ok(Output { norm: model_norm.map_or_else(own, Ok)?, head: None })
            })
            .transpose()?;
        let own_head = ends.as_ref().map_or(!arch.tied_embeddings, |ends| ends.head.is_none());
        // An assistant's own table is its output head.
        let name = if arch.is_assistant() { arch.names.embedding() } else { arch.names.head() };
        let mut head = (output.is_some() && own_head)
            .then(|| loader.matrix(&name, arch.output_vocab(), hidden, None))
            .transpose()?;
        if output.is_some()
            && let Some(head) = head.as_mut().or(embedding.as_mut())
        {
            cx.cancel.check()?;
            loader.bytes += loader.backend.screen(head, cx.cancel)?;
        }
        let weight_bytes = ByteSize(loader.bytes + ends.as_ref().map_or(0, |ends| ends.bytes));
        let (mut embedding, mut head) = (embedding.map(Arc::new), head.map(Arc::new));
        if let Some(ends) = ends {
            (embedding, head) = (ends.embedding.or(embedding), ends.head.or(head));
        }
        if let Some(output) = &mut output {
            output.head = head;
        }
        let rotations = Rotations::of(&spec);
        let groups = kv::Groups::of(&spec);
        Ok(Self {
            backend,
            weight_bytes,
            rotations,
            embedding,
            joint,
            inputs,
            streams,
            layers,
            groups,
            experts,
            output,
            spec,
        })
    }

    pub(super) fn backend(&self) -> &B {
        &self.backend
    }

    pub(super) fn spec(&self) -> &ShardSpec {
        &self.spec
    }

    pub(super) fn weight_bytes(&self) -> ByteSize {
        self.weight_bytes
    }

    pub(super) fn groups(&self) -> &kv::Groups {
        &self.groups
    }

    pub(super) fn ffn_memory(&self) -> Option<FfnMemory> {
        self.experts.memory()
    }

    /// What each layer keeps, of no pages yet.
    pub(super) fn pages(&self) -> Result<Vec<Kept<B>>> {
        let own = &self.spec.arch.layers[self.spec.layers.clone()];
        let pages = |(at, layer): (usize, &LayerSpec)| match &layer.mixer {
            arch::Mixer::Attention(attention) => {
                let mut pages = self.backend.pages(&PageSpec::new(attention, self.spec.kv))?;
                if let Some(most) = self.spec.kv_memory {
                    self.backend.expect_pages(&mut pages, self.groups.pages_within(at, most.bytes()));
                }
                Ok(Kept::Pages(pages))
            }
            arch::Mixer::Recurrent(recurrent) => self.backend.states(recurrent).map(Kept::States),
            arch::Mixer::Nothing => Ok(Kept::Nothing),
        };
        own.iter().enumerate().map(pages).collect()
    }

    /// Runs a checked batch, whose spans lie in the workspace.
    pub(super) fn forward(
        &self,
        work: &mut Workspace<B>,
        pages: &mut [Kept<B>],
        batch: &Batch<'_>,
        reply: &mut Reply,
        cx: &StepCx<'_>,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let InUse { work, .. } = &mut InUse { backend: b, work };
        let rows = batch.rows();
        let vocab = self.output.is_some().then_some(arch.output_vocab());
        // The last norm is tapped like a layer.
        let tapped = self.spec.layers.start..self.spec.layers.end + usize::from(vocab.is_some());
        reply.prepare(batch, vocab, arch.tapped_width(), &tapped);
        work.list(batch.segments, vocab.is_some());
        // What comes from the host is written first, before anything is recorded.
        work.positions.clear();
        work.positions.extend(batch.segments.iter().flat_map(|s| s.start..s.start + s.rows));
        for (angles, rotation) in work.angles.iter_mut().zip(self.rotations.list()) {
            rotation.amplitudes(&work.positions, &mut work.amplitudes);
            b.angles(&mut work.stream, &rotation.frequencies, &work.positions, &work.amplitudes, angles)?;
        }
        match (batch.hidden, &self.streams) {
            (Some(_), None) if self.joint.is_some() => {}
            (Some(x), None) => b.write(&mut work.stream, x, &mut work.x)?,
            (Some(x), Some(_)) => self.take_streams(work, x, rows)?,
            (None, _) => {}
        }
        if let (Some(inputs), Some(room), Some(table)) = (&self.inputs, &mut work.inputs, &self.embedding) {
            inputs.begin(b, &mut work.stream, room, (table, arch.embedding_scale), batch.tokens)?;
        }
        match (batch.hidden, &self.embedding) {
            (Some(hidden), _) => {
                if let Some(joint) = &self.joint {
                    self.join_ends(joint, work, batch, hidden)?;
                }
            }
            (None, Some(table)) => {
                b.embed(&mut work.stream, table, batch.tokens, arch.embedding_scale, &mut work.x)?
            }
            (None, None) => return Err(wrong_input()),
        }
        if let Some(ends) = self.streams.as_ref().filter(|_| batch.hidden.is_none()) {
            self.begin_streams(ends, work, rows)?;
        }
        let mut tap = 0;
        for (at, (layer, index)) in self.layers.iter().zip(self.spec.layers.clone()).enumerate() {
            cx.check()?;
            if let Some(ends) = &self.streams {
                self.predict(ends, layer, work, rows)?;
            }
            self.mix(layer, LayerIdx(index), at, work, &mut pages[self.groups.source(at)], rows)?;
            self.feed_forward(layer, LayerIdx(index), work, rows, cx)?;
            match &self.streams {
                Some(ends) => self.correct(ends, (layer, at), work, rows)?,
                None => self.leave(layer, LayerIdx(index), at, work, rows)?,
            }
            if batch.taps.contains(&index) && !work.tapped.is_empty() {
                self.tap(work, tap)?;
                tap += 1;
            }
        }
        cx.check()?;
        let own = self.spec.layers.clone().filter(|layer| batch.taps.contains(layer));
        for (buffer, layer) in work.taps.iter().take(tap).zip(own) {
            if let Some(to) = reply.tapped_mut(layer) {
                b.read(&mut work.stream, buffer, to)?;
            }
        }
        match &self.output {
            Some(output) => self.logits(output, work, batch, reply),
            None => {
                let hidden = reply.hidden_mut().reshape(rows, arch.row_width());
                match &self.streams {
                    Some(_) => self.give_streams(work, hidden, rows),
                    None => b.read(&mut work.stream, &work.x, hidden),
                }
            }
        }
    }

    /// Hands over the rows that are tapped behind the last norm.
    pub(super) fn tap_norm(
        &self,
        output: &Output<B>,
        work: &mut Workspace<B>,
        reply: &mut Reply,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let Workspace { stream, x, normed, added, tapped, .. } = &mut *work;
        match reply.tapped_mut(arch.n_layers()) {
            Some(to) if !tapped.is_empty() => {
                b.gather(stream, x, tapped, added)?;
                b.rms_norm(stream, added, &output.norm, arch.norm.eps, tapped.len(), normed)?;
                self.give_back(work, to)
            }
            _ => Ok(()),
        }
    }

    /// Keeps the rows that are tapped behind a layer; of several streams the first one's.
    fn tap(&self, work: &mut Workspace<B>, tap: usize) -> Result<()> {
        let Workspace { stream, x, streams, taps, tapped, .. } = work;
        let x = streams.as_ref().and_then(|room| room.own.first()).unwrap_or(x);
        if tap == taps.len() {
            taps.push(self.backend.buffer(self.spec.max_rows, self.spec.arch.hidden_size)?);
        }
        self.backend.gather(stream, x, tapped, &mut taps[tap])
    }

    /// What a layer takes from earlier positions, with its own pages or those of the layer whose keys and values it uses.
    fn mix(
        &self,
        layer: &Layer<B>,
        index: LayerIdx,
        at: usize,
        work: &mut Workspace<B>,
        kept: &mut Kept<B>,
        rows: usize,
    ) -> Result<()> {
        let norm = layer.attention_norm.as_ref();
        match (&layer.mixer, &self.spec.arch.layers[index.0].mixer, kept) {
            (Mixer::Attention(weights), arch::Mixer::Attention(spec), Kept::Pages(pages)) => {
                match &weights.latent {
                    Some(latent) => {
                        self.latent_attention((weights, latent), (spec, norm), at, work, pages, rows)?;
                    }
                    None => self.attention((weights, spec, norm), at, work, pages, rows)?,
                }
            }
            (Mixer::Recurrent(weights), arch::Mixer::Recurrent(spec), Kept::States(states)) => {
                self.recur((weights, spec, norm), work, states, rows)?;
            }
            (Mixer::Nothing, arch::Mixer::Nothing, _) => return Ok(()),
            _ => return Err(Error::new(ErrorKind::Internal, "a layer keeps what it does not use")),
        }
        let (b, eps) = (&*self.backend, self.spec.arch.norm.eps);
        let Workspace { stream, x, normed, added, bypass, .. } = work;
        let norm = layer.post_attention_norm.as_ref();
        let (Some(weights), Some([low, around])) = (&layer.bypass, bypass) else {
            return self.join(stream, norm, x, added, normed, rows);
        };
        // What attention took is still there.
        b.linear(stream, normed, rows, &mut [(&weights.down, &mut *low)])?;
        b.linear(stream, low, rows, &mut [(&weights.up, &mut *around)])?;
        b.add(stream, x, normed, 1.0, rows)?;
        self.join(stream, norm, x, added, normed, rows)?;
        b.add_norm(stream, x, around, (&weights.norm, eps), rows, normed)?;
        b.scale(stream, x, std::f32::consts::FRAC_1_SQRT_2, rows)
    }

    /// What comes behind a layer's blocks: the token's input to it, and its scale.
    fn leave(
        &self,
        layer: &Layer<B>,
        index: LayerIdx,
        at: usize,
        work: &mut Workspace<B>,
        rows: usize,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let Workspace { stream, x, normed, added, inner, inputs, .. } = work;
        if let (Some(weights), Some(own), Some(room), Some(spec)) =
            (&layer.input, &self.inputs, inputs, &arch.layers[index.0].input)
        {
            let [gate, given] = inner;
            own.of_layer(b, stream, (room, at), weights, rows, given)?;
            b.linear(stream, x, rows, &mut [(&weights.gate, &mut *gate)])?;
            b.gated(stream, spec.activation, gate, given, rows)?;
            b.linear(stream, gate, rows, &mut [(&weights.down, &mut *added)])?;
            self.join(stream, Some(&weights.norm), x, added, normed, rows)?;
        }
        if layer.output_scale == 1.0 { Ok(()) } else { b.scale(stream, x, layer.output_scale, rows) }
    }

    /// Adds a block's result to the residual stream, normed where the family norms it.
    pub(super) fn join(
        &self,
        stream: &mut B::Stream,
        norm: Option<&B::Vector>,
        x: &mut B::Buffer,
        added: &B::Buffer,
        normed: &mut B::Buffer,
        rows: usize,
    ) -> Result<()> {
        match norm {
            Some(norm) => {
                self.backend.add_norm(stream, x, added, (norm, self.spec.arch.norm.eps), rows, normed)
            }
            None => self.backend.add(stream, x, added, self.spec.arch.residual_scale, rows),
        }
    }
}

/// Products that [`linear`] has computed at a time.
pub(super) const TOGETHER: usize = 4;

/// The same input's products, up to four of them at a time.
pub(super) fn linear<'a, B: Backend>(
    b: &B,
    stream: &mut B::Stream,
    x: &B::Buffer,
    rows: usize,
    mut products: impl Iterator<Item = (&'a B::Matrix, &'a mut B::Buffer)>,
) -> Result<()> {
    loop {
        match [(); TOGETHER].map(|()| products.next()) {
            [Some(first), Some(second), Some(third), Some(fourth)] => {
                b.linear(stream, x, rows, &mut [first, second, third, fourth])?;
            }
            [Some(first), Some(second), Some(third), None] => {
                return b.linear(stream, x, rows, &mut [first, second, third]);
            }
            [Some(first), Some(second), ..] => return b.linear(stream, x, rows, &mut [first, second]),
            [Some(first), ..] => return b.linear(stream, x, rows, &mut [first]),
            _ => return Ok(()),
        }
    }
}

/// An error of the caller's about a batch.
pub(super) fn malformed(message: String) -> Error {
    Error::argument("batch", message)
}

/// A shard without an embedding table got no hidden states, or the first one did.
pub(super) fn wrong_input() -> Error {
    malformed("the first shard takes tokens alone, the others hidden states beside them".into())
}
