//! How does a row attend to its cache on a device? Plain matrix products over the visible slots.

use std::ops::Range;

use candle_core::{DType, Device, Result as CandleResult, Tensor};
use candle_nn::ops;

use super::{Tensors, failed, softcap};
use crate::engine::KvType;
use crate::engine::backend::{Attend, CacheSpec};
use crate::error::{Error, ErrorKind, Result};

/// Scores computed at a time; bounds the score matrix of a long prompt. Small in tests, so that
/// short prompts pass through in parts too.
const SCORES: usize = if cfg!(test) { 1 << 12 } else { 1 << 26 };

/// Keys and values of one layer: `[kv head, slot, head dim]`, slot = position modulo capacity.
pub(crate) struct Cache {
    keys: Tensor,
    values: Tensor,
}

impl Cache {
    pub(super) fn new(device: &Device, spec: &CacheSpec) -> Result<Self> {
        if spec.bytes().is_none() {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!("cannot reserve a KV cache of {} positions", spec.positions),
            )
            .with_hint("use a smaller context"));
        }
        let dtype = match spec.kv {
            KvType::F16 => DType::F16,
            KvType::F32 => DType::F32,
        };
        let store = || Tensor::zeros((spec.n_kv_heads, spec.positions, spec.head_dim), dtype, device);
        Ok(Self { keys: store().map_err(failed)?, values: store().map_err(failed)? })
    }

    /// Stores rows `[rows, kv heads · head dim]` from position `start` on.
    fn append(&mut self, start: usize, k: &Tensor, v: &Tensor) -> CandleResult<()> {
        for (store, rows) in [(&self.keys, k), (&self.values, v)] {
            let (kv_heads, _, dim) = store.dims3()?;
            let n = rows.dim(0)?;
            let rows = rows.reshape((n, kv_heads, dim))?.transpose(0, 1)?.to_dtype(store.dtype())?;
            let mut from = 0;
            for slots in slots(store, start..start + n)?.into_iter().filter(|slots| !slots.is_empty()) {
                store.slice_set(&rows.narrow(1, from, slots.len())?.contiguous()?, 1, slots.start)?;
                from += slots.len();
            }
        }
        Ok(())
    }

    /// Keys and values of consecutive positions, `[kv head, position, head dim]` in f32.
    fn read(&self, positions: Range<usize>) -> CandleResult<[Tensor; 2]> {
        let of = |store: &Tensor| {
            let parts = slots(store, positions.clone())?
                .into_iter()
                .filter(|slots| !slots.is_empty())
                .map(|slots| store.narrow(1, slots.start, slots.len()))
                .collect::<CandleResult<Vec<_>>>()?;
            Tensor::cat(&parts, 1)?.to_dtype(DType::F32)
        };
        Ok([of(&self.keys)?, of(&self.values)?])
    }
}

/// The ring's slots of consecutive positions, in order: those up to its end, and those that wrap
/// around.
fn slots(store: &Tensor, positions: Range<usize>) -> CandleResult<[Range<usize>; 2]> {
    let capacity = store.dim(1)?;
    if positions.len() > capacity {
        candle_core::bail!("expected at most {capacity} positions, found {}", positions.len());
    }
    let start = positions.start % capacity;
    let end = start + positions.len();
    Ok([start..end.min(capacity), 0..end.saturating_sub(capacity)])
}

/// Appends the segment's keys and values, then attends to everything its rows see.
///
/// `out` takes the result in the segment's rows.
pub(super) fn attend(
    op: &Attend<'_, Tensors>,
    [q, k, v]: [Tensor; 3],
    cache: &mut Cache,
    out: &Tensor,
) -> CandleResult<()> {
    cache.append(op.start, &k, &v)?;
    let spec = op.attention;
    let (rows, dim) = (op.rows.len(), spec.head_dim);
    let shape = (rows, spec.n_kv_heads, spec.n_heads / spec.n_kv_heads, dim);
    let q = (q * f64::from(spec.scale))?.reshape(shape)?.permute((1, 2, 0, 3))?;
    let seen = visible(op, &(0..rows)).len();
    let step = (SCORES / (spec.n_heads * seen)).max(1);
    for first in (0..rows).step_by(step) {
        let block = first..rows.min(first + step);
        let q = q.narrow(2, first, block.len())?;
        let attended = attend_block(op, &block, &q, cache)?;
        out.slice_set(&attended, 0, op.rows.start + first)?;
    }
    Ok(())
}

/// Positions that some row of the block sees.
fn visible(op: &Attend<'_, Tensors>, block: &Range<usize>) -> Range<usize> {
    let first = op.start + block.start;
    let from = op.attention.window.map_or(0, |window| (first + 1).saturating_sub(window));
    from..op.start + block.end
}

/// `q` is `[kv head, query head of it, row, head dim]`, scaled; the result `[row, heads · head dim]`.
fn attend_block(
    op: &Attend<'_, Tensors>,
    block: &Range<usize>,
    q: &Tensor,
    cache: &Cache,
) -> CandleResult<Tensor> {
    let (kv_heads, group, rows, dim) = q.dims4()?;
    let positions = visible(op, block);
    let [keys, values] = cache.read(positions.clone())?;
    let q = q.contiguous()?.reshape((kv_heads, group * rows, dim))?;
    let mut scores = q.matmul(&keys.t()?)?;
    if let Some(cap) = op.attention.softcap {
        scores = softcap(&scores, cap)?;
    }
    // A single row sees every position it was given.
    if rows > 1 {
        let mask = mask(op, block, &positions, q.device())?;
        scores = scores.reshape((kv_heads * group, rows, positions.len()))?.broadcast_add(&mask)?;
    }
    scores = scores.reshape((kv_heads, group * rows, positions.len()))?;
    let weights = match op.sinks {
        // One more position, which no value belongs to.
        Some(sinks) => {
            let sinks = sinks.reshape((kv_heads, group, 1))?.repeat((1, 1, rows))?;
            let all = Tensor::cat(&[&scores, &sinks.reshape((kv_heads, group * rows, 1))?], 2)?;
            ops::softmax_last_dim(&all)?.narrow(2, 0, positions.len())?.contiguous()?
        }
        None => ops::softmax_last_dim(&scores)?,
    };
    let attended = weights.matmul(&values)?.reshape((kv_heads, group, rows, dim))?;
    attended.permute((2, 0, 1, 3))?.contiguous()?.reshape((rows, kv_heads * group * dim))
}

/// `[row, position]`: zero where the row sees the position, else minus infinity.
fn mask(
    op: &Attend<'_, Tensors>,
    block: &Range<usize>,
    positions: &Range<usize>,
    device: &Device,
) -> CandleResult<Tensor> {
    // Relative to the first position, so that they fit u32 whatever the context.
    let first = op.start + block.start - positions.start;
    let row = Tensor::arange(first as u32, (first + block.len()) as u32, device)?.unsqueeze(1)?;
    let column = Tensor::arange(0, positions.len() as u32, device)?.unsqueeze(0)?;
    let shape = (block.len(), positions.len());
    let hidden = Tensor::new(f32::NEG_INFINITY, device)?.broadcast_as(shape)?;
    let shown = Tensor::zeros((), DType::F32, device)?.broadcast_as(shape)?;
    let mask = column.broadcast_le(&row)?.where_cond(&shown, &hidden)?;
    match op.attention.window {
        Some(window) if window < positions.len() => {
            let reach = Tensor::new(window as u32, device)?;
            column.broadcast_add(&reach)?.broadcast_gt(&row)?.where_cond(&mask, &hidden)
        }
        _ => Ok(mask),
    }
}
