//! What is asked of a step, and what does it give? Batches of segments, and their reply.

use std::ops::Range;

use super::backend::TopLogits;
use crate::ids::{SeqId, TokenId};

/// Rows of one or several sequences for one step.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Batch<'a> {
    /// The sequences' parts, in row order; a sequence may occur once.
    pub segments: &'a [Segment],
    /// One token per row, for every shard: the first one embeds them, and all find by them what they still hold.
    pub tokens: &'a [TokenId],
    /// What the shard before gave, `[rows, width]` of the model's [width](crate::arch::ArchSpec::row_width), row-major; the
    /// first shard takes none. What [drafts for a model](crate::arch::ArchSpec::ahead) takes the hidden states that its rows
    /// begin with.
    pub hidden: Option<&'a [f32]>,
    /// Layers behind which the hidden states of rows are wanted that segments [tap](Segment::tap), by index within the
    /// model; the number of its layers stands for what the norm before the head gives. A shard gives those of its own
    /// layers, the last one that norm's, too.
    pub taps: &'a [usize],
    /// Tokens that the last shard looks at, at least, where it gives the [largest logits](Logits::Top): ranges behind one
    /// another. Other tokens may be left out; with no range, none is.
    pub shortlist: &'a [Range<u32>],
}

impl<'a> Batch<'a> {
    /// These rows of these sequences.
    pub fn new(segments: &'a [Segment], tokens: &'a [TokenId]) -> Self {
        Self { segments, tokens, hidden: None, taps: &[], shortlist: &[] }
    }

    /// With what the shard before gave.
    #[must_use]
    pub fn hidden(self, hidden: &'a [f32]) -> Self {
        Self { hidden: Some(hidden), ..self }
    }

    /// With the hidden states behind these layers.
    #[must_use]
    pub fn taps(self, taps: &'a [usize]) -> Self {
        Self { taps, ..self }
    }

    /// With these tokens looked at, at least.
    #[must_use]
    pub fn shortlist(self, shortlist: &'a [Range<u32>]) -> Self {
        Self { shortlist, ..self }
    }

    /// Rows of all segments.
    pub fn rows(&self) -> usize {
        self.segments.iter().fold(0, |rows, segment| rows.saturating_add(segment.rows))
    }
}

/// Consecutive rows of one sequence, and what is wanted of them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// The sequence.
    pub seq: SeqId,
    /// Position of the first row: the sequence's length, or less to go back there.
    pub start: usize,
    /// Number of rows.
    pub rows: usize,
    /// The last so many of them are of tokens that may be wrong: a sequence can go back to before them, whatever its layers
    /// keep, where there is memory for that.
    pub drafted: usize,
    /// The rows whose logits are wanted, counted from the segment's first.
    pub wanted: Range<usize>,
    /// What the last shard shall give of them.
    pub logits: Logits,
    /// The rows whose hidden states behind the batch's [`taps`](Batch::taps) are wanted, likewise.
    pub tapped: Range<usize>,
}

/// What is wanted of a row's logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Logits {
    /// Nothing.
    None,
    /// All of them.
    All,
    /// The largest, this many, with their tokens: what greedy decoding and top-k sampling need. Backends that can do
    /// not write the others anywhere.
    Top(usize),
}

impl Logits {
    /// How many of the largest are wanted; none where it is not the largest.
    pub(crate) fn most(self) -> Option<usize> {
        match self {
            Logits::Top(k) => Some(k),
            _ => None,
        }
    }
}

impl Segment {
    /// `rows` rows of a sequence behind its first `start` positions, of which nothing is wanted: a part of a prompt.
    pub fn new(seq: SeqId, start: usize, rows: usize) -> Self {
        Self { seq, start, rows, drafted: 0, wanted: 0..0, logits: Logits::None, tapped: 0..0 }
    }

    /// With tokens that may be wrong in the last so many rows.
    #[must_use]
    pub fn drafted(self, rows: usize) -> Self {
        Self { drafted: rows, ..self }
    }

    /// Wants this of some rows, counted from the segment's first.
    #[must_use]
    pub fn want(self, rows: Range<usize>, logits: Logits) -> Self {
        Self { wanted: rows, logits, ..self }
    }

    /// Wants this of the last row.
    #[must_use]
    pub fn want_last(self, logits: Logits) -> Self {
        let rows = self.rows.saturating_sub(1)..self.rows;
        self.want(rows, logits)
    }

    /// Wants this of every row.
    #[must_use]
    pub fn want_every(self, logits: Logits) -> Self {
        let rows = 0..self.rows;
        self.want(rows, logits)
    }

    /// Wants the hidden states of some rows behind the batch's [`taps`](Batch::taps), counted from the segment's first.
    #[must_use]
    pub fn tap(self, rows: Range<usize>) -> Self {
        Self { tapped: rows, ..self }
    }

    /// Rows whose logits are wanted.
    pub fn logit_rows(&self) -> usize {
        if self.logits == Logits::None { 0 } else { self.wanted.len() }
    }
}

/// A plain host buffer of hidden states, `[rows, width]`, row-major. Reused over steps.
#[derive(Debug, Clone, Default)]
pub struct Activations {
    rows: usize,
    width: usize,
    data: Vec<f32>,
}

impl Activations {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All rows, one behind the other.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// All rows, for writing.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// One row.
    pub fn row(&self, row: usize) -> Option<&[f32]> {
        self.data.chunks_exact(self.width.max(1)).nth(row)
    }

    /// Gives the buffer a shape and returns its memory for writing. Grows, never shrinks, its
    /// allocation.
    pub fn reshape(&mut self, rows: usize, width: usize) -> &mut [f32] {
        self.rows = rows;
        self.width = width;
        self.data.resize(rows.saturating_mul(width), 0.0);
        &mut self.data
    }
}

/// What a step gives, of each segment what it wants. Reused over steps: it grows to what they need.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    hidden: Activations,
    parts: Vec<Part>,
    logits: Vec<f32>,
    ids: Vec<TokenId>,
    /// By tap: the layer, and the rows of all segments that tap.
    taps: Vec<(usize, Activations)>,
    n_taps: usize,
}

/// Where a segment's results lie.
#[derive(Debug, Clone, Default)]
struct Part {
    /// Within the logits, and within their tokens where there are such.
    logits: Range<usize>,
    ids: Range<usize>,
    width: usize,
    /// Rows within the taps.
    tapped: Range<usize>,
}

/// A segment's logits, `[rows, width]`, row-major.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ReplyLogits<'a> {
    /// Logits in a row: the vocabulary, or as many of the largest as were wanted.
    pub width: usize,
    /// The logits.
    pub data: &'a [f32],
    /// Their tokens, of the same shape, where [`Logits::Top`] is wanted: each row by falling logit, of equal ones the
    /// lower id first. Fewer numbers than wanted are followed by -∞ for tokens that do not exist. Otherwise empty: a
    /// logit's column is its token.
    pub ids: &'a [TokenId],
}

impl<'a> ReplyLogits<'a> {
    /// The logits of one of the rows that were wanted.
    pub fn row(&self, row: usize) -> Option<&'a [f32]> {
        self.data.chunks_exact(self.width.max(1)).nth(row)
    }

    /// Their tokens, where the largest are wanted.
    pub fn row_ids(&self, row: usize) -> Option<&'a [TokenId]> {
        self.ids.chunks_exact(self.width.max(1)).nth(row)
    }
}

impl Reply {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the next shard takes: hidden states of all rows, of all residual streams. The last shard gives none.
    pub fn hidden(&self) -> &Activations {
        &self.hidden
    }

    /// A segment's logits; none where none are wanted, as before the last shard.
    pub fn logits(&self, segment: usize) -> ReplyLogits<'_> {
        let Part { logits, ids, width, .. } = self.parts.get(segment).cloned().unwrap_or_default();
        ReplyLogits { width, data: &self.logits[logits], ids: &self.ids[ids] }
    }

    /// A segment's logits, for writing.
    pub fn logits_mut(&mut self, segment: usize) -> &mut [f32] {
        let range = self.parts.get(segment).map_or(0..0, |part| part.logits.clone());
        &mut self.logits[range]
    }

    /// The tokens of a segment's logits, for writing.
    pub fn ids_mut(&mut self, segment: usize) -> &mut [TokenId] {
        let range = self.parts.get(segment).map_or(0..0, |part| part.ids.clone());
        &mut self.ids[range]
    }

    /// The hidden states behind a layer of the rows that a segment taps, `[rows, hidden]`, where it taps some and the shard
    /// has the layer. Of several residual streams it is the first one.
    pub fn tap(&self, segment: usize, layer: usize) -> Option<&[f32]> {
        let part = self.parts.get(segment).filter(|part| !part.tapped.is_empty())?;
        let (_, rows) = self.taps[..self.n_taps].iter().find(|(of, _)| *of == layer)?;
        rows.data().get(part.tapped.start * rows.width()..part.tapped.end * rows.width())
    }

    /// Makes room for what a batch's segments want. `vocab`: the width of all logits, on the last shard; `layers`: those of
    /// whose taps there is something to give.
    pub(crate) fn prepare(
        &mut self,
        batch: &Batch<'_>,
        vocab: Option<usize>,
        hidden: usize,
        layers: &Range<usize>,
    ) {
        self.hidden.reshape(0, 0);
        self.parts.clear();
        let (mut logits, mut ids, mut tapped) = (0, 0, 0);
        for segment in batch.segments {
            let width = match (segment.logits, vocab) {
                (Logits::All, Some(vocab)) => vocab,
                (Logits::Top(k), Some(_)) => k,
                _ => 0,
            };
            let mut part = Part { logits: logits..logits, ids: ids..ids, width, tapped: tapped..tapped };
            part.logits.end += width * segment.logit_rows();
            if matches!(segment.logits, Logits::Top(_)) {
                part.ids.end += part.logits.len();
            }
            part.tapped.end += segment.tapped.len();
            (logits, ids, tapped) = (part.logits.end, part.ids.end, part.tapped.end);
            self.parts.push(part);
        }
        self.logits.resize(logits, 0.0);
        self.ids.resize(ids, TokenId(0));
        self.n_taps = 0;
        for layer in batch.taps.iter().filter(|layer| layers.contains(layer)) {
            if self.n_taps == self.taps.len() {
                self.taps.push(Default::default());
            }
            let (of, rows) = &mut self.taps[self.n_taps];
            *of = *layer;
            rows.reshape(tapped, hidden);
            self.n_taps += 1;
        }
    }

    /// The rows of hidden states that the next shard takes, for writing.
    pub(crate) fn hidden_mut(&mut self) -> &mut Activations {
        &mut self.hidden
    }

    /// The rows tapped behind a layer, for writing.
    pub(crate) fn tapped_mut(&mut self, layer: usize) -> Option<&mut [f32]> {
        let tap = self.taps[..self.n_taps].iter_mut().find(|(of, _)| *of == layer);
        tap.map(|(_, rows)| rows.data_mut())
    }

    /// The logits of all rows that want some, for writing one behind the other.
    pub(crate) fn all_mut(&mut self) -> LogitRows<'_> {
        LogitRows { logits: &mut self.logits, ids: &mut self.ids }
    }

    /// Takes over what a shard before gave of hidden states that are tapped.
    pub(crate) fn add_taps(&mut self, other: &mut Reply) {
        for at in 0..other.n_taps {
            if self.n_taps == self.taps.len() {
                self.taps.push(Default::default());
            }
            std::mem::swap(&mut self.taps[self.n_taps], &mut other.taps[at]);
            self.n_taps += 1;
        }
        other.n_taps = 0;
    }
}

/// What is left of a reply's logits to be written.
pub(crate) struct LogitRows<'a> {
    logits: &'a mut [f32],
    ids: &'a mut [TokenId],
}

impl<'a> LogitRows<'a> {
    /// Room for the next `n` logits.
    pub(crate) fn next(&mut self, n: usize) -> &'a mut [f32] {
        let (next, rest) = std::mem::take(&mut self.logits).split_at_mut(n);
        self.logits = rest;
        next
    }

    fn next_ids(&mut self, n: usize) -> &'a mut [TokenId] {
        let (next, rest) = std::mem::take(&mut self.ids).split_at_mut(n);
        self.ids = rest;
        next
    }

    /// A row's `k` largest logits, of a longer list.
    pub(crate) fn top(&mut self, k: usize, logits: &[f32], ids: &[TokenId]) {
        self.next(k).copy_from_slice(&logits[..k]);
        self.next_ids(k).copy_from_slice(&ids[..k]);
    }

    /// A row's `k` largest logits, of all.
    pub(crate) fn list(&mut self, k: usize, row: &[f32]) {
        let (logits, ids) = (self.next(k), self.next_ids(k));
        TopLogits { k, ids, logits }.list(std::iter::once(row));
    }
}
