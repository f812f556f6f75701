//! Where does a step compute? A shard's buffers, made once.

use super::ahead::Joined;
use super::decoder::Decoder;
use super::inputs::InputRoom;
use super::latent::LatentRoom;
use super::layer::Layer;
use super::recurrent::Room;
use super::streams::StreamRoom;
use crate::arch::RowWidths;
use crate::engine::backend::{Backend, PAGE, Run, Spans};
use crate::engine::{Logits, Segment, ShardSpec};
use crate::error::{Error, Result};
use crate::ids::TokenId;

/// Sequences of a step that there is room for from the beginning.
const SEQUENCES: usize = 16;

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
    /// Embeddings with hidden states, in what drafts for another model.
    pub(super) joined: Option<Joined<B>>,
    /// What ways around attention take, and what they give, where there are any.
    pub(super) bypass: Option<[B::Buffer; 2]>,
    pub(super) inner: [B::Buffer; 2],
    /// The router's logits, and what they choose, where a layer has experts.
    pub(super) routing: Option<(B::Buffer, B::Routes)>,
    /// What shared experts give, where there are any.
    pub(super) shared: Option<B::Buffer>,
    /// What heads are gated by, where they are.
    pub(super) gate: Option<B::Buffer>,
    /// What attention to latent vectors has beside, where there is such.
    pub(super) latent: Option<LatentRoom<B>>,
    /// Queries with their gates, where they come together.
    pub(super) gated: Option<B::Buffer>,
    /// What a shared expert's result is gated by, where it is.
    pub(super) score: Option<B::Buffer>,
    /// Where layers have states: their products, and the rows of each sequence with its states.
    pub(super) recurrent: Option<Room<B>>,
    pub(super) runs: Vec<Run>,
    /// What tokens give layers, where they do.
    pub(super) inputs: Option<InputRoom<B>>,
    /// The numbers of all rows.
    pub(super) all: Vec<usize>,
    pub(super) angles: Vec<B::Buffer>,
    pub(super) positions: Vec<usize>,
    /// What rotated rows are multiplied by.
    pub(super) amplitudes: Vec<f32>,
    /// Rows whose logits are wanted, and rows that are tapped.
    pub(super) wanted: Vec<usize>,
    pub(super) tapped: Vec<usize>,
    pub(super) logits: Option<B::Buffer>,
    /// Hidden states of the rows tapped, behind each layer that is.
    pub(super) taps: Vec<B::Buffer>,
    pub(super) host: Vec<f32>,
    pub(super) ids: Vec<TokenId>,
}

impl<B: Backend> Workspace<B> {
    /// Lists the rows whose logits are wanted, where the shard has such, and those that are tapped.
    pub(super) fn list(&mut self, segments: &[Segment], logits: bool) {
        self.wanted.clear();
        self.tapped.clear();
        let mut first = 0;
        for segment in segments {
            let rows = first + segment.wanted.start..first + segment.wanted.end;
            if logits && segment.logits != Logits::None {
                self.wanted.extend(rows);
            }
            self.tapped.extend(first + segment.tapped.start..first + segment.tapped.end);
            first += segment.rows;
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// Buffers for the shard's steps.
    pub(super) fn workspace(&self) -> Result<Workspace<B>> {
        let (arch, rows) = (&self.spec.arch, self.spec.max_rows);
        let own = &arch.layers[self.spec.layers.clone()];
        let widths = RowWidths::of(arch, own);
        let recurrent: Vec<_> = self.layers.iter().filter_map(Layer::recurrent).collect();
        let rank = own.iter().filter_map(|l| l.recurrent()?.rank).max();
        let buffer = |width| self.backend.buffer(rows, width);
        Ok(Workspace {
            stream: self.backend.stream(rows, widths.widest())?,
            x: buffer(arch.hidden_size)?,
            normed: buffer(arch.hidden_size)?,
            added: buffer(arch.hidden_size)?,
            query: buffer(widths.query)?,
            key: buffer(widths.kv)?,
            value: buffer(widths.kv)?,
            attended: buffer(widths.mixed)?,
            streams: self.streams.as_ref().map(|ends| ends.room(&self.backend, &self.spec)).transpose()?,
            joined: Joined::new(&*self.backend, &self.spec)?,
            bypass: (widths.bypass > 0)
                .then(|| Ok::<_, Error>([buffer(widths.bypass)?, buffer(arch.hidden_size)?]))
                .transpose()?,
            inner: [buffer(widths.inner)?, buffer(widths.inner)?],
            routing: (widths.n_experts > 0)
                .then(|| Ok((buffer(widths.n_experts)?, self.backend.routes(rows, widths.n_used)?)))
                .transpose()?,
            shared: widths.shared.then(|| buffer(arch.hidden_size)).transpose()?,
            gate: (widths.gates > 0).then(|| buffer(widths.gates)).transpose()?,
            latent: LatentRoom::new(&widths, buffer)?,
            gated: (widths.gated > 0).then(|| buffer(widths.gated)).transpose()?,
            score: widths.scored.then(|| buffer(1)).transpose()?,
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
}

/// A workspace during a step. However the step ends, it leaves nothing in the stream.
pub(super) struct InUse<'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) work: &'a mut Workspace<B>,
}

impl<B: Backend> Drop for InUse<'_, B> {
    fn drop(&mut self) {
        self.backend.discard(&mut self.work.stream);
    }
}
