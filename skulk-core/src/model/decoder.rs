//! What happens to a row between embedding and logits? The one decoder.

use std::sync::Arc;

use super::experts::{ExpertCall, ExpertProvider};
use super::inputs::{InputRoom, LayerInputs};
use super::kv;
use super::latent::LatentRoom;
use super::layer::{Attention, Layer, Mixer};
use super::load::Loader;
use super::recurrent::{Recurrent, Room};
use super::rotation::{Rotation, Rotations};
use super::streams::{StreamEnds, StreamRoom};
use crate::arch::{self, AttentionSpec, LayerSpec, QkNorm, RecurrentSpec, RopeLayout};
use crate::bytes::ByteSize;
use crate::engine::backend::{
    Attend, Backend, Head, NormRope, PAGE, PageSpec, Recur, Routing, Run, Spans, TopLogits,
};
use crate::engine::{Batch, FfnMemory, LoadCx, Logits, Reply, Segment, ShardSpec, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LayerIdx, TokenId};
use crate::weights::{Checkpoint, Memory};

/// Rows of logits computed at a time: bounds their memory, as a row can be a megabyte.
const LOGIT_ROWS: usize = 8;
/// Rows whose largest logits are found at a time, for which the head is read once.
const TOP_ROWS: usize = 32;
/// Sequences of a step that there is room for from the beginning.
const SEQUENCES: usize = 16;

/// The weights of a range of layers on a backend.
pub(super) struct Decoder<B: Backend> {
    pub(super) backend: Arc<B>,
    pub(super) spec: ShardSpec,
    weight_bytes: ByteSize,
    pub(super) rotations: Rotations,
    /// The embedding table, on the first shard, on the last one when the head is tied to it, and where layers have inputs.
    embedding: Option<B::Matrix>,
    pub(super) inputs: Option<LayerInputs<B>>,
    /// Where there are several residual streams.
    streams: Option<StreamEnds<B>>,
    layers: Vec<Layer<B>>,
    /// The group of each layer's pages.
    pub(super) groups: kv::Groups,
    experts: Box<dyn ExpertProvider<B>>,
    /// Final norm and untied head, on the last shard.
    output: Option<Output<B>>,
}

struct Output<B: Backend> {
    norm: B::Vector,
    head: Option<B::Matrix>,
}

/// Activation buffers of a step; a shard has one.
pub(super) struct Workspace<B: Backend> {
    pub(super) stream: B::Stream,
    /// The rows of each sequence with their pages, by group of layers.
    pub(super) spans: Vec<Spans>,
    /// The residual stream; of several the one that blocks compute.
    pub(super) x: B::Buffer,
    /// The normed stream, and what a block adds to it.
    pub(super) normed: B::Buffer,
    pub(super) added: B::Buffer,
    pub(super) query: B::Buffer,
    pub(super) key: B::Buffer,
    pub(super) value: B::Buffer,
    pub(super) attended: B::Buffer,
    pub(super) streams: Option<StreamRoom<B>>,
    /// What ways around attention take, and what they give, where there are any.
    bypass: Option<[B::Buffer; 2]>,
    pub(super) inner: [B::Buffer; 2],
    /// The router's logits, and what they choose, where a layer has experts.
    routing: Option<(B::Buffer, B::Routes)>,
    /// What shared experts give, where there are any.
    shared: Option<B::Buffer>,
    /// What heads are gated by, where they are.
    gate: Option<B::Buffer>,
    /// What attention to latent vectors has beside, where there is such.
    pub(super) latent: Option<LatentRoom<B>>,
    /// Queries with their gates, where they come together.
    gated: Option<B::Buffer>,
    /// What a shared expert's result is gated by, where it is.
    score: Option<B::Buffer>,
    /// Where layers have states: their products, and the rows of each sequence with its states.
    recurrent: Option<Room<B>>,
    pub(super) runs: Vec<Run>,
    /// What tokens give layers, where they do.
    pub(super) inputs: Option<InputRoom<B>>,
    /// The numbers of all rows.
    pub(super) all: Vec<usize>,
    pub(super) angles: Vec<B::Buffer>,
    positions: Vec<usize>,
    /// What rotated rows are multiplied by.
    amplitudes: Vec<f32>,
    /// Rows whose logits are wanted, and rows that are tapped.
    wanted: Vec<usize>,
    tapped: Vec<usize>,
    logits: Option<B::Buffer>,
    /// Hidden states of the rows tapped, behind each layer that is.
    taps: Vec<B::Buffer>,
    pub(super) host: Vec<f32>,
    ids: Vec<TokenId>,
}

/// What a layer keeps of sequences.
pub(super) enum Kept<B: Backend> {
    Pages(B::Pages),
    States(B::States),
    Nothing,
}

/// A workspace during a step. However the step ends, it leaves nothing in the stream.
struct InUse<'a, B: Backend> {
    backend: &'a B,
    work: &'a mut Workspace<B>,
}

impl<B: Backend> Drop for InUse<'_, B> {
    fn drop(&mut self) {
        self.backend.discard(&mut self.work.stream);
    }
}

impl<B: Backend> Decoder<B> {
    /// Loads what the device holds, its weights mapped or resident; `experts` load the rest.
    pub(super) fn load(
        backend: Arc<B>,
        mut experts: Box<dyn ExpertProvider<B>>,
        spec: ShardSpec,
        checkpoint: &dyn Checkpoint,
        memory: Memory,
        cx: &LoadCx<'_>,
    ) -> Result<Self> {
        let arch = Arc::clone(&spec.arch);
        let mut loader = Loader {
            backend: &*backend,
            checkpoint,
            arch: &arch,
            memory,
            on_demand: false,
            cancel: cx.cancel,
            bytes: 0,
        };
        let hidden = arch.hidden_size;
        let inputs = LayerInputs::load(&mut loader, &spec)?;
        let mut embedding = (spec.is_first() || spec.is_last() && arch.tied_embeddings || inputs.is_some())
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
                Ok(Output {
                    norm: loader.norm(&arch.names.output_norm(), hidden, arch.logit_scale)?,
                    head: (!arch.tied_embeddings)
                        .then(|| loader.matrix(&arch.names.head(), arch.vocab_size, hidden, None))
                        .transpose()?,
                })
            })
            .transpose()?;
        if let Some(output) = &mut output
            && let Some(head) = output.head.as_mut().or(embedding.as_mut())
        {
            cx.cancel.check()?;
            loader.bytes += loader.backend.screen(head, cx.cancel)?;
        }
        let weight_bytes = ByteSize(loader.bytes);
        let rotations = Rotations::of(&spec);
        let groups = kv::Groups::of(&spec);
        Ok(Self {
            backend,
            weight_bytes,
            rotations,
            embedding,
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
        let pages = |layer: &LayerSpec| match &layer.mixer {
            arch::Mixer::Attention(attention) => {
                self.backend.pages(&PageSpec::new(attention, self.spec.kv)).map(Kept::Pages)
            }
            arch::Mixer::Recurrent(recurrent) => self.backend.states(recurrent).map(Kept::States),
            arch::Mixer::Nothing => Ok(Kept::Nothing),
        };
        own.iter().map(pages).collect()
    }

    /// Buffers for the shard's steps.
    pub(super) fn workspace(&self) -> Result<Workspace<B>> {
        let (arch, rows) = (&self.spec.arch, self.spec.max_rows);
        let own = &arch.layers[self.spec.layers.clone()];
        let widest = |of: fn(&LayerSpec) -> usize| own.iter().map(of).max().unwrap_or(0);
        let attends = |of: fn(&AttentionSpec) -> usize| {
            own.iter().filter_map(LayerSpec::attention).map(of).max().unwrap_or(0)
        };
        let q_width =
            attends(
                |a| if a.output_gate { a.query_width() } else { a.projected_width().max(a.output_width()) },
            );
        let kv_width = attends(AttentionSpec::kv_width);
        let heads = attends(AttentionSpec::query_width);
        let ffn_width = widest(|l| {
            let shared = l.ffn.shared.map_or(0, |shared| shared.width);
            l.ffn.width.max(shared).max(l.input.map_or(0, |input| input.width))
        });
        let gates = widest(|l| match l.attention() {
            Some(own) if own.output_gate => own.query_width(),
            Some(own) if own.head_gate => own.n_heads,
            _ => 0,
        });
        let gated =
            widest(|l| l.attention().filter(|own| own.output_gate).map_or(0, AttentionSpec::projected_width));
        let attended = attends(|a| a.n_heads.saturating_mul(a.value_dim()));
        let mixed = attended.max(widest(|l| l.recurrent().map_or(0, RecurrentSpec::value_width)));
        let scored = own.iter().any(|l| l.ffn.shared.is_some_and(|shared| shared.gated));
        let recurrent: Vec<_> = self.layers.iter().filter_map(Layer::recurrent).collect();
        let rank = own.iter().filter_map(|l| l.recurrent()?.rank).max();
        let n_experts = widest(|l| l.ffn.experts.map_or(0, |experts| experts.n_experts));
        let bypass = widest(|l| l.bypass.unwrap_or(0));
        let n_used = widest(|l| l.ffn.experts.map_or(0, |experts| experts.n_used));
        let buffer = |width| self.backend.buffer(rows, width);
        Ok(Workspace {
            stream: self
                .backend
                .stream(rows, arch.hidden_size.max(heads).max(mixed).max(ffn_width).max(bypass))?,
            x: buffer(arch.hidden_size)?,
            normed: buffer(arch.hidden_size)?,
            added: buffer(arch.hidden_size)?,
            query: buffer(q_width)?,
            key: buffer(kv_width)?,
            value: buffer(kv_width)?,
            attended: buffer(mixed)?,
            streams: self.streams.as_ref().map(|ends| ends.room(&self.backend, &self.spec)).transpose()?,
            bypass: (bypass > 0)
                .then(|| Ok::<_, Error>([buffer(bypass)?, buffer(arch.hidden_size)?]))
                .transpose()?,
            inner: [buffer(ffn_width)?, buffer(ffn_width)?],
            routing: (n_experts > 0)
                .then(|| Ok((buffer(n_experts)?, self.backend.routes(rows, n_used)?)))
                .transpose()?,
            shared: own
                .iter()
                .any(|l| l.ffn.shared.is_some())
                .then(|| buffer(arch.hidden_size))
                .transpose()?,
            gate: (gates > 0).then(|| buffer(gates)).transpose()?,
            latent: LatentRoom::new(own, buffer)?,
            gated: (gated > 0).then(|| buffer(gated)).transpose()?,
            score: scored.then(|| buffer(1)).transpose()?,
            recurrent: Room::new(&*self.backend, rows, &recurrent, rank)?,
            runs: Vec::with_capacity(rows.min(SEQUENCES)),
            inputs: self.inputs.as_ref().map(|inputs| inputs.room(&self.backend, &self.spec)).transpose()?,
            all: (0..rows).collect(),
            angles: self
                .rotations
                .list()
                .iter()
                .map(|rotation| buffer(2 * rotation.frequencies.len()))
                .collect::<Result<_>>()?,
            amplitudes: Vec::with_capacity(rows),
            positions: Vec::with_capacity(rows),
            wanted: Vec::with_capacity(rows),
            tapped: Vec::with_capacity(rows),
            logits: None,
            taps: Vec::new(),
            host: Vec::new(),
            ids: Vec::new(),
            spans: self.groups.list().iter().map(|_| self.spans()).collect(),
        })
    }

    /// Room for the pages of some sequences of full length.
    fn spans(&self) -> Spans {
        let ShardSpec { context, max_rows, .. } = self.spec;
        let pages = (context / PAGE + 1).min(1 << 12) * max_rows.min(SEQUENCES);
        Spans { list: Vec::with_capacity(max_rows.min(SEQUENCES)), pages: Vec::with_capacity(pages) }
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
        let vocab = self.output.is_some().then_some(arch.vocab_size);
        reply.prepare(batch, vocab, arch.hidden_size, &self.spec.layers);
        work.list(batch.segments, vocab.is_some());
        // What comes from the host is written first, before anything is recorded.
        work.positions.clear();
        work.positions.extend(batch.segments.iter().flat_map(|s| s.start..s.start + s.rows));
        for (angles, rotation) in work.angles.iter_mut().zip(self.rotations.list()) {
            rotation.amplitudes(&work.positions, &mut work.amplitudes);
            b.angles(&mut work.stream, &rotation.frequencies, &work.positions, &work.amplitudes, angles)?;
        }
        match (batch.hidden, &self.streams) {
            (Some(x), None) => b.write(&mut work.stream, x, &mut work.x)?,
            (Some(x), Some(_)) => self.take_streams(work, x, rows)?,
            (None, _) => {}
        }
        if let (Some(inputs), Some(room), Some(table)) = (&self.inputs, &mut work.inputs, &self.embedding) {
            inputs.begin(b, &mut work.stream, room, (table, arch.embedding_scale), batch.tokens)?;
        }
        match (batch.hidden, &self.embedding) {
            (Some(_), _) => {}
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
            Some(output) => self.logits(output, work, batch.segments, reply),
            None => {
                let hidden = reply.hidden_mut().reshape(rows, arch.row_width());
                match &self.streams {
                    Some(_) => self.give_streams(work, hidden, rows),
                    None => b.read(&mut work.stream, &work.x, hidden),
                }
            }
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

    /// A layer's states.
    fn recur(
        &self,
        (layer, spec, norm): (&Recurrent<B>, &RecurrentSpec, Option<&B::Vector>),
        work: &mut Workspace<B>,
        states: &mut B::States,
        rows: usize,
    ) -> Result<()> {
        let (b, eps) = (&*self.backend, self.spec.arch.norm.eps);
        let Workspace { stream, x, normed, added, attended, recurrent, runs, .. } = work;
        let Some(room) = recurrent else {
            return Err(Error::new(ErrorKind::Internal, "a layer with states has no room for its rows"));
        };
        let input = match norm {
            Some(norm) => {
                b.rms_norm(stream, x, norm, eps, rows, normed)?;
                &*normed
            }
            None => &*x,
        };
        // What the input is multiplied with, together; behind that, what latent vectors are.
        let mut latents = room.latents.iter_mut();
        let first =
            layer.projections.iter().zip(&mut room.products).filter_map(|(own, product)| match &own.latent {
                Some(to_latent) => latents.next().map(|latent| (to_latent, latent)),
                None => Some((&own.matrix, product)),
            });
        linear(b, stream, input, rows, first)?;
        let projected = layer.projections.iter().zip(&mut room.products);
        let behind = projected.filter(|(own, _)| own.latent.is_some());
        for ((own, product), latent) in behind.zip(&room.latents) {
            b.linear(stream, latent, rows, &mut [(&own.matrix, product)])?;
        }
        let Recurrent { parts, vectors, .. } = layer;
        let op = Recur { spec, eps, products: &room.products, parts, vectors, runs };
        b.recur(stream, &op, states, attended)?;
        b.linear(stream, attended, rows, &mut [(&layer.output, &mut *added)])
    }

    /// A layer's attention.
    fn attention(
        &self,
        (layer, attention, norm): (&Attention<B>, &AttentionSpec, Option<&B::Vector>),
        at: usize,
        work: &mut Workspace<B>,
        pages: &mut B::Pages,
        rows: usize,
    ) -> Result<()> {
        let (b, eps) = (&*self.backend, self.spec.arch.norm.eps);
        let Workspace {
            stream,
            spans,
            x,
            normed,
            added,
            query,
            key,
            value,
            attended,
            gate,
            gated,
            angles,
            all,
            ..
        } = work;

        // Those that the layer does not have come last, and are left out.
        let [to_key, to_value] =
            [&layer.key, &layer.value].map(|matrix| matrix.as_ref().unwrap_or(&layer.query));
        let n_products = 1 + usize::from(layer.key.is_some()) + usize::from(layer.value.is_some());
        let projected = match (attention.output_gate, &mut *gated) {
            (true, Some(both)) => both,
            _ => &mut *query,
        };
        let mut products = [(&layer.query, projected), (to_key, &mut *key), (to_value, &mut *value)];
        let products = &mut products[..n_products];
        let input = match norm {
            Some(norm) => {
                b.norm_linear(stream, x, (norm, eps), normed, rows, products)?;
                &*normed
            }
            None => {
                b.linear(stream, x, rows, products)?;
                &*x
            }
        };
        if let (Some(matrix), Some(gate)) = (&layer.head_gate, gate.as_mut()) {
            b.linear(stream, input, rows, &mut [(matrix, gate)])?;
        }
        if attention.output_gate
            && let (Some(both), Some(gate)) = (&*gated, gate.as_mut())
        {
            b.split_heads(stream, both, attention.head_dim, rows, [query, gate])?;
        }
        let own_kv = layer.key.is_some();
        if own_kv && layer.value.is_none() {
            b.gather(stream, key, &all[..rows], value)?;
        }
        if let Some(ones) = &layer.value_norm {
            let op = NormRope {
                head_dim: attention.head_dim,
                plain: 0,
                norm: Some((ones, eps)),
                layout: RopeLayout::Halves,
            };
            b.norm_rope(stream, &op, None, rows, value)?;
        }
        let norms = layer.qk_norms.each_ref().map(|norm| norm.as_ref().map(|norm| (norm, eps)));
        let rotations = self.rotations.of_layer(at);
        let widths = [attention.query_width(), attention.kv_width()];
        let both = [&mut *query, &mut *key].into_iter().zip(widths).zip(norms).zip(rotations);
        for (((x, width), norm), rotation) in both.take(if own_kv { 2 } else { 1 }) {
            let rotation = rotation.map(|at| (&self.rotations.list()[at], &angles[at]));
            self.norm_rope(stream, attention, norm, rotation, [rows, width], x)?;
        }
        let op = Attend {
            attention,
            sinks: layer.sinks.as_ref(),
            spans: &spans[self.groups.of_layer(at)],
            chosen: None,
        };
        b.attend(stream, &op, query, own_kv.then_some([&*key, &*value]), pages, attended)?;
        if let Some(gate) = gate.as_ref().filter(|_| attention.output_gate) {
            b.gate_heads(stream, attended, gate, 1, rows)?;
        } else if let (Some(_), Some(gate)) = (&layer.head_gate, gate) {
            b.gate_heads(stream, attended, gate, attention.head_dim, rows)?;
        }
        b.linear(stream, attended, rows, &mut [(&layer.output, &mut *added)])
    }

    /// A layer's feed-forward block.
    fn feed_forward(
        &self,
        layer: &Layer<B>,
        index: LayerIdx,
        work: &mut Workspace<B>,
        rows: usize,
        cx: &StepCx<'_>,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let (spec, eps) = (&arch.layers[index.0], arch.norm.eps);
        if spec.ffn.is_absent() {
            return Ok(());
        }
        let Workspace { stream, x, normed, added, inner, routing, shared, score, .. } = work;
        let apart = layer.router.as_ref().and_then(|router| router.apart.as_ref());
        let mut input = match &layer.ffn_norm {
            Some(norm) => {
                b.rms_norm(stream, x, norm, eps, rows, normed)?;
                &*normed
            }
            None => &*x,
        };
        // What the block's input is multiplied with, together: the router's, and the shared expert's.
        let [gate, up] = &mut *inner;
        let mut products = [None, None, None, None];
        if let Some(expert) = &layer.shared {
            (products[0], products[1]) = match &expert.gate {
                Some(to_gate) => (Some((to_gate, gate)), Some((&expert.up, up))),
                // What is without a gate is in its place.
                None => (Some((&expert.up, gate)), None),
            };
            products[2] = expert.score.as_ref().zip(score.as_mut());
        }
        if let (Some(router), Some((logits, _)), None) = (&layer.router, routing.as_mut(), apart) {
            products[3] = Some((&router.matrix, logits));
        }
        linear(b, stream, input, rows, products.into_iter().flatten())?;
        if let (Some(expert), Some(result)) = (&layer.shared, shared.as_mut()) {
            let down = &mut [(&expert.down, &mut *result)];
            b.gated_linear(stream, expert.spec.activation, inner, rows, down)?;
            if let (Some(_), Some(score)) = (&expert.score, score) {
                b.gate_heads(stream, result, score, arch.hidden_size, rows)?;
            }
        }
        let routes = match (&layer.router, &spec.ffn.experts, routing) {
            (Some(router), Some(experts), Some((logits, routes))) => {
                if let Some(apart) = apart {
                    b.rms_norm(stream, x, &apart.router, eps, rows, added)?;
                    b.linear(stream, added, rows, &mut [(&router.matrix, &mut *logits)])?;
                }
                let (correction, scales) = (router.correction.as_ref(), router.scales.as_ref());
                b.route(stream, &Routing { spec: experts, correction, scales }, logits, rows, routes)?;
                Some(&*routes)
            }
            _ => None,
        };
        if let Some(apart) = apart {
            b.rms_norm(stream, x, &apart.experts, eps, rows, normed)?;
            input = &*normed;
        }
        let call = ExpertCall { backend: b, layer: index, routes, rows, input, stream, inner, output: added };
        self.experts.forward(call, cx)?;
        match (apart, shared.as_ref().filter(|_| layer.shared.is_some())) {
            (Some(apart), Some(shared)) => {
                b.rms_norm(stream, added, &apart.behind_experts, eps, rows, normed)?;
                b.add_norm(stream, normed, shared, (&apart.behind_shared, eps), rows, added)?;
                return self.join(stream, layer.post_ffn_norm.as_ref(), x, normed, added, rows);
            }
            (_, Some(shared)) => b.add(stream, added, shared, 1.0, rows)?,
            (_, None) => {}
        }
        self.join(stream, layer.post_ffn_norm.as_ref(), x, added, normed, rows)
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

    /// Norms queries or keys and rotates them, as their layer does.
    fn norm_rope(
        &self,
        stream: &mut B::Stream,
        attention: &AttentionSpec,
        norm: Option<(&B::Vector, f32)>,
        rotation: Option<(&Rotation, &B::Buffer)>,
        [rows, width]: [usize; 2],
        x: &mut B::Buffer,
    ) -> Result<()> {
        let b = &*self.backend;
        let layout = rotation.map_or(RopeLayout::Halves, |(rotation, _)| rotation.layout);
        let (mut norm, angles) = (norm, rotation.map(|(_, angles)| angles));
        if attention.qk_norm == Some(QkNorm::All) {
            let op = NormRope { head_dim: width, plain: 0, norm: norm.take(), layout };
            b.norm_rope(stream, &op, None, rows, x)?;
        }
        if norm.is_none() && angles.is_none() {
            return Ok(());
        }
        let op = NormRope { head_dim: attention.head_dim, plain: 0, norm, layout };
        b.norm_rope(stream, &op, angles, rows, x)
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

    fn logits(
        &self,
        output: &Output<B>,
        work: &mut Workspace<B>,
        segments: &[Segment],
        reply: &mut Reply,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let Some(head) = output.head.as_ref().or(self.embedding.as_ref()) else {
            return Err(wrong_input());
        };
        let head = Head { matrix: head, n_vocab: arch.vocab_size, softcap: arch.final_softcap };
        if let Some(ends) = self.streams.as_ref().filter(|_| !work.wanted.is_empty()) {
            let rows = segments.iter().map(|segment| segment.rows).sum();
            self.end_streams(ends, work, rows)?;
        }
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
            None => logits.insert(b.buffer(LOGIT_ROWS.min(self.spec.max_rows), arch.vocab_size)?),
        };
        for wanted in wanted.chunks(LOGIT_ROWS) {
            b.gather(stream, x, wanted, added)?;
            b.rms_norm(stream, added, &output.norm, arch.norm.eps, wanted.len(), normed)?;
            b.logits(stream, &head, normed, wanted.len(), logits)?;
            let n = wanted.len() * arch.vocab_size;
            // Where some rows want the largest only, all are computed all the same: the head is read once.
            if rows.clone().take(wanted.len()).all(|wants| wants == Logits::All) {
                rows.by_ref().take(wanted.len()).for_each(drop);
                b.read(stream, logits, to.next(n))?;
                continue;
            }
            host.resize(n, 0.0);
            b.read(stream, logits, host)?;
            for (row, wants) in host.chunks(arch.vocab_size).zip(&mut rows) {
                match wants.most() {
                    None => to.next(arch.vocab_size).copy_from_slice(row),
                    Some(k) => to.list(k, row),
                }
            }
        }
        Ok(())
    }
}

impl<B: Backend> Workspace<B> {
    /// Lists the rows whose logits are wanted, where the shard has such, and those that are tapped.
    fn list(&mut self, segments: &[Segment], logits: bool) {
        self.wanted.clear();
        self.tapped.clear();
        let mut first = 0;
        for segment in segments {
            let rows = first + segment.wanted.start..first + segment.wanted.end;
            if logits && segment.logits != Logits::None {
                self.wanted.extend(rows.clone());
            }
            if segment.tap {
                self.tapped.extend(rows);
            }
            first += segment.rows;
        }
    }
}

/// The same input's products, up to four of them at a time.
fn linear<'a, B: Backend>(
    b: &B,
    stream: &mut B::Stream,
    x: &B::Buffer,
    rows: usize,
    mut products: impl Iterator<Item = (&'a B::Matrix, &'a mut B::Buffer)>,
) -> Result<()> {
    loop {
        match [(); 4].map(|()| products.next()) {
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
