//! What happens to a row between embedding and logits? The one decoder.

use std::sync::Arc;

use super::experts::{ExpertCall, ExpertProvider};
use super::load::Loader;
use crate::arch::{AttentionSpec, LayerSpec, LayerTensor};
use crate::bytes::ByteSize;
use crate::engine::backend::{Attend, Backend, CacheSpec, Head, NormRope, TopLogits};
use crate::engine::{Activations, Batch, FfnMemory, Input, LoadCx, Logits, Segment, ShardSpec, StepCx};
use crate::error::{Error, Result};
use crate::ids::LayerIdx;
use crate::weights::{Checkpoint, Memory};

/// Rows of logits computed at a time: bounds their memory, as a row can be a megabyte.
const LOGIT_ROWS: usize = 8;

/// The weights of a range of layers on a backend.
pub(super) struct Decoder<B: Backend> {
    backend: Arc<B>,
    spec: ShardSpec,
    weight_bytes: ByteSize,
    /// Angle per position of each pair, by rotary embedding.
    frequencies: Vec<Vec<f32>>,
    /// The embedding table, on the first shard, and on the last one when the head is tied to it.
    embedding: Option<B::Matrix>,
    layers: Vec<Layer<B>>,
    experts: Box<dyn ExpertProvider<B>>,
    /// Final norm and untied head, on the last shard.
    output: Option<Output<B>>,
}

struct Layer<B: Backend> {
    attention_norm: B::Vector,
    query: B::Matrix,
    key: B::Matrix,
    value: B::Matrix,
    query_norm: Option<B::Vector>,
    key_norm: Option<B::Vector>,
    attention_output: B::Matrix,
    post_attention_norm: Option<B::Vector>,
    ffn_norm: B::Vector,
    /// Where the layer has experts.
    router: Option<B::Matrix>,
    post_ffn_norm: Option<B::Vector>,
}

struct Output<B: Backend> {
    norm: B::Vector,
    head: Option<B::Matrix>,
}

/// One sequence's caches, by layer of the shard.
pub(super) type Caches<B> = Vec<<B as Backend>::Cache>;

/// Activation buffers of a step; allocated once per sequence.
pub(super) struct Workspace<B: Backend> {
    stream: B::Stream,
    /// The residual stream.
    x: B::Buffer,
    /// The normed stream, and what a block adds to it.
    normed: B::Buffer,
    added: B::Buffer,
    query: B::Buffer,
    key: B::Buffer,
    value: B::Buffer,
    attended: B::Buffer,
    inner: [B::Buffer; 2],
    /// The router's logits, and what they choose, where a layer has experts.
    routing: Option<(B::Buffer, B::Routes)>,
    angles: Vec<B::Buffer>,
    positions: Vec<usize>,
    /// Rows whose logits are asked for.
    asked: Vec<usize>,
    logits: Option<B::Buffer>,
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
        let mut embedding = (spec.is_first() || spec.is_last() && arch.tied_embeddings)
            .then(|| loader.matrix(&arch.names.embedding(), arch.vocab_size, hidden, None))
            .transpose()?;
        let mut layers = Vec::with_capacity(spec.layers.len());
        for layer in spec.layers.clone() {
            cx.cancel.check()?;
            layers.push(Layer::load(&mut loader, layer)?);
            experts.load_layer(&mut loader)?;
            (cx.on_layer)();
        }
        let mut output = spec
            .is_last()
            .then(|| {
                Ok(Output {
                    norm: loader.norm(&arch.names.output_norm(), hidden)?,
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
        let frequencies = arch.ropes.iter().map(|rope| rope.inverse_frequencies()).collect();
        Ok(Self { backend, weight_bytes, frequencies, embedding, layers, experts, output, spec })
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

    pub(super) fn ffn_memory(&self) -> Option<FfnMemory> {
        self.experts.memory()
    }

    /// Empty caches for one sequence.
    pub(super) fn caches(&self) -> Result<Caches<B>> {
        self.spec.arch.layers[self.spec.layers.clone()]
            .iter()
            .map(|layer| self.backend.cache(&self.cache_spec(&layer.attention)))
            .collect()
    }

    pub(super) fn cache_spec(&self, attention: &AttentionSpec) -> CacheSpec {
        CacheSpec::new(attention, self.spec.context, self.spec.max_rows, self.spec.kv)
    }

    /// Buffers for one sequence's steps.
    pub(super) fn workspace(&self) -> Result<Workspace<B>> {
        let (arch, rows) = (&self.spec.arch, self.spec.max_rows);
        let own = &arch.layers[self.spec.layers.clone()];
        let widest = |of: fn(&LayerSpec) -> usize| own.iter().map(of).max().unwrap_or(0);
        let q_width = widest(|l| l.attention.n_heads * l.attention.head_dim);
        let kv_width = widest(|l| l.attention.n_kv_heads * l.attention.head_dim);
        let ffn_width = widest(|l| l.ffn.width);
        let n_experts = widest(|l| l.ffn.experts.map_or(0, |experts| experts.n_experts));
        let n_used = widest(|l| l.ffn.experts.map_or(0, |experts| experts.n_used));
        let buffer = |width| self.backend.buffer(rows, width);
        Ok(Workspace {
            stream: self.backend.stream(rows, arch.hidden_size.max(q_width).max(ffn_width))?,
            x: buffer(arch.hidden_size)?,
            normed: buffer(arch.hidden_size)?,
            added: buffer(arch.hidden_size)?,
            query: buffer(q_width)?,
            key: buffer(kv_width)?,
            value: buffer(kv_width)?,
            attended: buffer(q_width)?,
            inner: [buffer(ffn_width)?, buffer(ffn_width)?],
            routing: (n_experts > 0)
                .then(|| Ok((buffer(n_experts)?, self.backend.routes(rows, n_used)?)))
                .transpose()?,
            angles: arch.ropes.iter().map(|rope| buffer(rope.dim)).collect::<Result<_>>()?,
            positions: Vec::with_capacity(rows),
            asked: Vec::with_capacity(rows),
            logits: None,
        })
    }

    /// Runs a checked batch; `caches` are those of its segments, in their order.
    pub(super) fn forward(
        &self,
        work: &mut Workspace<B>,
        caches: &mut [&mut Caches<B>],
        batch: &Batch<'_>,
        out: &mut Activations,
        cx: &StepCx<'_>,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let InUse { work, .. } = &mut InUse { backend: b, work };
        let rows: usize = batch.segments.iter().map(|s| s.rows).sum();
        // What comes from the host is written first, before anything is recorded.
        work.positions.clear();
        work.positions.extend(batch.segments.iter().flat_map(|s| s.start..s.start + s.rows));
        for (angles, frequencies) in work.angles.iter_mut().zip(&self.frequencies) {
            b.angles(&mut work.stream, frequencies, &work.positions, angles)?;
        }
        match (batch.input, &self.embedding) {
            (Input::Tokens(tokens), Some(table)) => {
                b.embed(&mut work.stream, table, tokens, arch.embedding_scale, &mut work.x)?
            }
            (Input::Hidden(x), _) => b.write(&mut work.stream, x, &mut work.x)?,
            (Input::Tokens(_), None) => return Err(wrong_input()),
        }
        for (at, (layer, index)) in self.layers.iter().zip(self.spec.layers.clone()).enumerate() {
            cx.check()?;
            self.layer(layer, LayerIdx(index), at, work, caches, batch.segments, rows, cx)?;
        }
        cx.check()?;
        match &self.output {
            Some(output) => self.logits(output, work, batch.segments, out),
            None => b.read(&mut work.stream, &work.x, out.reshape(rows, arch.hidden_size)),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one call site; a struct of them would only rename them")]
    fn layer(
        &self,
        layer: &Layer<B>,
        index: LayerIdx,
        at: usize,
        work: &mut Workspace<B>,
        caches: &mut [&mut Caches<B>],
        segments: &[Segment],
        rows: usize,
        cx: &StepCx<'_>,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let (spec, eps) = (&arch.layers[index.0], arch.norm.eps);
        let attention = &spec.attention;
        let Workspace {
            stream, x, normed, added, query, key, value, attended, inner, routing, angles, ..
        } = work;

        let products =
            &mut [(&layer.query, &mut *query), (&layer.key, &mut *key), (&layer.value, &mut *value)];
        b.norm_linear(stream, x, (&layer.attention_norm, eps), normed, rows, products)?;
        let angles = &angles[attention.rope];
        let head_dim = attention.head_dim;
        let layout = arch.ropes[attention.rope].layout;
        let norm = layer.query_norm.as_ref().map(|w| (w, eps));
        b.norm_rope(stream, &NormRope { head_dim, norm, layout }, angles, rows, query)?;
        let norm = layer.key_norm.as_ref().map(|w| (w, eps));
        b.norm_rope(stream, &NormRope { head_dim, norm, layout }, angles, rows, key)?;
        let mut first = 0;
        for (segment, caches) in segments.iter().zip(caches.iter_mut()) {
            let (rows, start) = (first..first + segment.rows, segment.start);
            let op = Attend { attention, sinks: None, rows, start };
            b.attend(stream, &op, [query, key, value], &mut caches[at], attended)?;
            first += segment.rows;
        }
        b.linear(stream, attended, rows, &mut [(&layer.attention_output, &mut *added)])?;
        self.join(stream, layer.post_attention_norm.as_ref(), x, added, normed, rows)?;

        b.rms_norm(stream, x, &layer.ffn_norm, eps, rows, normed)?;
        let routes = match (&layer.router, &spec.ffn.experts, routing) {
            (Some(router), Some(experts), Some((logits, routes))) => {
                b.linear(stream, normed, rows, &mut [(router, &mut *logits)])?;
                b.route(stream, experts, logits, rows, routes)?;
                Some(&*routes)
            }
            _ => None,
        };
        let call = ExpertCall {
            backend: b,
            layer: index,
            routes,
            rows,
            input: normed,
            stream,
            inner,
            output: added,
        };
        self.experts.forward(call, cx)?;
        self.join(stream, layer.post_ffn_norm.as_ref(), x, added, normed, rows)
    }

    /// Adds a block's result to the residual stream, normed where the family norms it.
    fn join(
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
            None => self.backend.add(stream, x, added, rows),
        }
    }

    fn logits(
        &self,
        output: &Output<B>,
        work: &mut Workspace<B>,
        segments: &[Segment],
        out: &mut Activations,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let Some(head) = output.head.as_ref().or(self.embedding.as_ref()) else {
            return Err(wrong_input());
        };
        let head = Head { matrix: head, n_vocab: arch.vocab_size, softcap: arch.final_softcap };
        let Workspace { stream, x, normed, added, asked, logits, .. } = work;
        asked.clear();
        let mut end = 0;
        for segment in segments {
            end += segment.rows;
            asked.extend(end - segment.logit_rows()..end);
        }
        let top = segments.iter().find_map(|segment| match segment.logits {
            Logits::Top(k) => Some(k),
            _ => None,
        });
        if let Some(k) = top {
            let (ids, host) = out.reshape_top(asked.len(), k);
            let parts = ids.chunks_mut(LOGIT_ROWS * k).zip(host.chunks_mut(LOGIT_ROWS * k));
            for (asked, (ids, host)) in asked.chunks(LOGIT_ROWS).zip(parts) {
                b.gather(stream, x, asked, added)?;
                b.rms_norm(stream, added, &output.norm, arch.norm.eps, asked.len(), normed)?;
                b.top(stream, &head, normed, asked.len(), TopLogits { k, ids, logits: host })?;
            }
            return Ok(());
        }
        let host = out.reshape(asked.len(), arch.vocab_size);
        if asked.is_empty() {
            return b.submit(stream);
        }
        let logits = match logits {
            Some(logits) => logits,
            None => logits.insert(b.buffer(LOGIT_ROWS.min(self.spec.max_rows), arch.vocab_size)?),
        };
        for (asked, host) in asked.chunks(LOGIT_ROWS).zip(host.chunks_mut(LOGIT_ROWS * arch.vocab_size)) {
            b.gather(stream, x, asked, added)?;
            b.rms_norm(stream, added, &output.norm, arch.norm.eps, asked.len(), normed)?;
            b.logits(stream, &head, normed, asked.len(), logits)?;
            b.read(stream, logits, host)?;
        }
        Ok(())
    }
}

impl<B: Backend> Layer<B> {
    fn load(loader: &mut Loader<'_, B>, layer: usize) -> Result<Self> {
        use LayerTensor as T;
        let arch = loader.arch;
        let spec = &arch.layers[layer];
        let (a, hidden) = (&spec.attention, arch.hidden_size);
        let (q_width, kv_width) = (a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim);
        let mut norm_if =
            |wanted: bool, tensor, width| wanted.then(|| loader.layer_norm(layer, tensor, width)).transpose();
        let query_norm = norm_if(a.qk_norm, T::QueryNorm, a.head_dim)?;
        let key_norm = norm_if(a.qk_norm, T::KeyNorm, a.head_dim)?;
        let post_attention_norm = norm_if(spec.post_attention_norm, T::PostAttentionNorm, hidden)?;
        let post_ffn_norm = norm_if(spec.post_ffn_norm, T::PostFfnNorm, hidden)?;
        Ok(Self {
            attention_norm: loader.layer_norm(layer, T::AttentionNorm, hidden)?,
            query: loader.layer_matrix(layer, T::Query, q_width, hidden, a.qkv_bias)?,
            key: loader.layer_matrix(layer, T::Key, kv_width, hidden, a.qkv_bias)?,
            value: loader.layer_matrix(layer, T::Value, kv_width, hidden, a.qkv_bias)?,
            query_norm,
            key_norm,
            attention_output: loader.layer_matrix(
                layer,
                T::AttentionOutput,
                hidden,
                q_width,
                a.output_bias,
            )?,
            post_attention_norm,
            ffn_norm: loader.layer_norm(layer, T::FfnNorm, hidden)?,
            router: match spec.ffn.experts {
                Some(e) => Some(loader.layer_matrix(layer, T::Router, e.n_experts, hidden, false)?),
                None => None,
            },
            post_ffn_norm,
        })
    }
}

/// An error of the caller's about a batch.
pub(super) fn malformed(message: String) -> Error {
    Error::argument("batch", message)
}

/// Tokens reached a shard that has no embedding table.
pub(super) fn wrong_input() -> Error {
    malformed("tokens enter at the first shard, hidden states at the others".into())
}
