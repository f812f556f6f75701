//! Which positions does a row see where it may not see all, and how does it attend to them on a device?
//!
//! The largest scores are found by sorting, in blocks that fit into a GPU's shared memory: what is not among the largest of
//! its block is not among the largest of all. Positions stay on the device; keys are gathered by them.

use std::ops::Range;

use candle_core::{D, DType, Result as CandleResult, Tensor};
use candle_nn::ops;

use super::attention::{SCORES, Stored};
use super::{Tensors, softcap};
use crate::engine::backend::{Attend, Choose, Span};

/// Scores that are sorted together.
const SORTED: usize = if cfg!(test) { 64 } else { 1 << 13 };

/// The positions that rows see, where they do not see all.
#[derive(Default)]
pub(crate) struct Chosen {
    /// Positions of each such row.
    most: usize,
    blocks: Vec<Block>,
}

/// Some rows of a span.
struct Block {
    span: usize,
    /// Counted from the span's first.
    rows: Range<usize>,
    /// `[row, most]`.
    positions: Tensor,
}

impl Chosen {
    pub(super) fn clear(&mut self, most: usize) {
        self.most = most;
        self.blocks.clear();
    }

    /// How many of a span's rows see all positions before them: its first.
    pub(super) fn whole(&self, span: &Span) -> usize {
        self.most.saturating_sub(span.start).min(span.rows.len())
    }

    /// Chooses the positions of a span's rows, whose queries and weights these are.
    pub(super) fn choose(
        &mut self,
        op: &Choose<'_, Tensors>,
        at: usize,
        stored: &Stored<'_>,
        [query, weights]: [&Tensor; 2],
    ) -> CandleResult<()> {
        let (span, index) = (&op.spans.list[at], op.index);
        let n_rows = span.rows.len();
        let mut first = self.whole(span);
        if first == n_rows {
            return Ok(());
        }
        let all = stored.index(0..span.start + n_rows)?;
        while first < n_rows {
            let step = (SCORES / (index.n_heads * (span.start + n_rows))).max(1);
            let rows = first..n_rows.min(first + step);
            let (n, end) = (rows.len(), span.start + rows.end);
            let keys = all.narrow(0, 0, end)?;
            let query = query.narrow(0, first, n)?.reshape((n * index.n_heads, index.head_dim))?;
            let products = query.matmul(&keys.t()?)?.relu()?.reshape((n, index.n_heads, end))?;
            let weights = weights.narrow(0, first, n)?.reshape((n, 1, index.n_heads))?;
            let mut scores = weights.matmul(&products)?.reshape((n, end))?;
            if n > 1 {
                let unseen = |row: usize| (0..end).map(move |at| at > span.start + row);
                let mask =
                    rows.clone().flat_map(unseen).map(|hidden| if hidden { f32::NEG_INFINITY } else { 0.0 });
                scores = (scores + Tensor::from_iter(mask, all.device())?.reshape((n, end))?)?;
            }
            let positions = largest(&scores, self.most)?;
            self.blocks.push(Block { span: at, rows, positions });
            first += n;
        }
        Ok(())
    }

    /// Attends to the positions of a span's rows, whose queries these are. `out` takes the results in these rows.
    pub(super) fn attend(
        &self,
        op: &Attend<'_, Tensors>,
        at: usize,
        stored: &Stored<'_>,
        query: &Tensor,
        out: &Tensor,
    ) -> CandleResult<()> {
        let (spec, span) = (op.attention, &op.spans.list[at]);
        let (heads, dim, value_dim) = (spec.n_heads, spec.head_dim, spec.value_dim());
        let mut own = self.blocks.iter().filter(|block| block.span == at).peekable();
        if own.peek().is_none() {
            return Ok(());
        }
        let all = stored.keys(0..span.start + span.rows.len())?;
        let step = (SCORES / (self.most * (dim + heads))).max(1);
        for (block, first) in
            own.flat_map(|block| block.rows.clone().step_by(step).map(move |row| (block, row)))
        {
            let n = step.min(block.rows.end - first);
            let positions = block.positions.narrow(0, first - block.rows.start, n)?.flatten_all()?;
            let keys = all.index_select(&positions, 0)?.to_dtype(DType::F32)?;
            let keys = keys.reshape((n, self.most, dim))?;
            let query = (query.narrow(0, first, n)? * f64::from(spec.scale))?.reshape((n, heads, dim))?;
            let mut scores = query.matmul(&keys.t()?)?;
            if let Some(cap) = spec.softcap {
                scores = softcap(&scores, cap)?;
            }
            if let Some(sinks) = op.sinks {
                let sinks = sinks.reshape((1, heads, 1))?.repeat((n, 1, 1))?;
                scores = Tensor::cat(&[&scores, &sinks], 2)?;
            }
            let weights = ops::softmax_last_dim(&scores)?.narrow(2, 0, self.most)?.contiguous()?;
            // Values are the first elements of keys.
            let attended = weights.matmul(&keys)?.narrow(2, 0, value_dim)?.reshape((n, heads * value_dim))?;
            out.slice_set(&attended, 0, span.rows.start + first)?;
        }
        Ok(())
    }
}

/// Where the `k` largest of each row are, in any order.
fn largest(scores: &Tensor, k: usize) -> CandleResult<Tensor> {
    let (rows, n) = scores.dims2()?;
    let (device, block) = (scores.device(), SORTED.max(2 * k).next_power_of_two());
    // What is not a number is not large, and must not disturb the order of what is.
    let lowest = Tensor::full(f32::NEG_INFINITY, (1, 1), device)?;
    let mut scores = lowest.broadcast_maximum(scores)?;
    if n <= block {
        return scores.arg_sort_last_dim(false)?.narrow(1, 0, k)?.contiguous();
    }
    let mut places = Tensor::arange(0u32, n as u32, device)?.reshape((1, n))?.repeat((rows, 1))?;
    loop {
        let n = scores.dim(1)?;
        let (blocks, width) = if n <= block { (1, n) } else { (n.div_ceil(block), block) };
        if blocks * width > n {
            let more = blocks * width - n;
            scores = Tensor::cat(&[&scores, &lowest.repeat((rows, more))?], 1)?;
            places = places.pad_with_zeros(1, 0, more)?;
        }
        let of_block = |x: &Tensor| x.reshape((rows * blocks, width));
        let order = of_block(&scores)?.arg_sort_last_dim(false)?.narrow(1, 0, k)?.contiguous()?;
        places = of_block(&places)?.gather(&order, D::Minus1)?.reshape((rows, blocks * k))?;
        if blocks == 1 {
            return Ok(places);
        }
        scores = of_block(&scores)?.gather(&order, D::Minus1)?.reshape((rows, blocks * k))?;
    }
}
