//! How does a row attend to its cache on a device? Scores of all positions, those it does not see masked, softmax,
//! and the weighted sum of the values.

use std::ops::Range;

use candle_core::{DType, Device, Result as CandleResult, Tensor};
use candle_nn::ops;

use super::{Tensors, failed, softcap};
use crate::engine::KvType;
use crate::engine::backend::{Attend, CacheSpec};
use crate::error::{Error, ErrorKind, Result};

/// Scores computed at a time: bounds their memory for a long prompt. Small in tests, so that short
/// prompts pass through in several blocks of rows too.
const SCORES: usize = if cfg!(test) { 1 << 12 } else { 1 << 26 };

/// Keys and values of one layer, a ring: `[kv head, position modulo capacity, head dim]`.
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

    /// Stores rows `[row, kv heads · head dim]` from position `start` on.
    fn append(&mut self, start: usize, k: &Tensor, v: &Tensor) -> CandleResult<()> {
        let n = k.dim(0)?;
        let at = self.places(start..start + n)?.reshape((1, n, 1))?;
        for (store, rows) in [(&self.keys, k), (&self.values, v)] {
            let (kv_heads, _, dim) = store.dims3()?;
            let rows = rows.reshape((n, kv_heads, dim))?.transpose(0, 1)?.to_dtype(store.dtype())?;
            store.scatter_set(&at.broadcast_as(rows.shape())?.contiguous()?, &rows.contiguous()?, 1)?;
        }
        Ok(())
    }

    /// Keys and values of these positions, `[kv head, position, head dim]` in f32.
    fn read(&self, positions: Range<usize>) -> CandleResult<[Tensor; 2]> {
        let at = self.places(positions)?;
        let of = |store: &Tensor| store.index_select(&at, 1)?.to_dtype(DType::F32);
        Ok([of(&self.keys)?, of(&self.values)?])
    }

    /// Where positions lie in the ring.
    fn places(&self, positions: Range<usize>) -> CandleResult<Tensor> {
        let capacity = self.keys.dim(1)?;
        if positions.len() > capacity {
            candle_core::bail!("expected at most {capacity} positions, found {}", positions.len());
        }
        Tensor::from_iter(positions.map(|position| (position % capacity) as u32), self.keys.device())
    }
}

/// Positions that a row of the segment sees.
fn seen(op: &Attend<'_, Tensors>, row: usize) -> Range<usize> {
    let end = op.start + row + 1;
    op.attention.window.map_or(0, |window| end.saturating_sub(window))..end
}

/// Appends the segment's keys and values, then attends to everything its rows see. `out` takes the result in the
/// segment's rows.
pub(super) fn attend(
    op: &Attend<'_, Tensors>,
    [q, k, v]: [Tensor; 3],
    cache: &mut Cache,
    out: &Tensor,
) -> CandleResult<()> {
    cache.append(op.start, &k, &v)?;
    let (spec, rows) = (op.attention, op.rows.len());
    let (kv_heads, group, dim) = (spec.n_kv_heads, spec.n_heads / spec.n_kv_heads, spec.head_dim);
    let q = (q * f64::from(spec.scale))?.reshape((rows, kv_heads, group, dim))?.permute((1, 2, 0, 3))?;
    let most = seen(op, 0).start..seen(op, rows - 1).end;
    let step = (SCORES / (spec.n_heads * most.len())).max(1);
    for first in (0..rows).step_by(step) {
        let block = first..rows.min(first + step);
        let q = q.narrow(2, first, block.len())?.contiguous()?;
        out.slice_set(&attend_block(op, block, &q, cache)?, 0, op.rows.start + first)?;
    }
    Ok(())
}

/// `q` is `[kv head, query head of it, row of the block, head dim]`, scaled; the result `[row, heads · head dim]`.
fn attend_block(
    op: &Attend<'_, Tensors>,
    block: Range<usize>,
    q: &Tensor,
    cache: &Cache,
) -> CandleResult<Tensor> {
    let (kv_heads, group, rows, dim) = q.dims4()?;
    let positions = seen(op, block.start).start..seen(op, block.end - 1).end;
    let n = positions.len();
    let [keys, values] = cache.read(positions.clone())?;
    let mut scores = q.reshape((kv_heads, group * rows, dim))?.matmul(&keys.t()?)?;
    if let Some(cap) = op.attention.softcap {
        scores = softcap(&scores, cap)?;
    }
    let mask = block.flat_map(|row| {
        let seen = seen(op, row);
        positions.clone().map(move |position| if seen.contains(&position) { 0.0 } else { f32::NEG_INFINITY })
    });
    let mask = Tensor::from_iter(mask, q.device())?.reshape((rows, n))?;
    scores = scores.reshape((kv_heads, group, rows, n))?.broadcast_add(&mask)?;
    if let Some(sinks) = op.sinks {
        // One more score, which no value belongs to.
        let sinks = sinks.reshape((kv_heads, group, 1, 1))?.repeat((1, 1, rows, 1))?;
        scores = Tensor::cat(&[&scores, &sinks], 3)?;
    }
    let weights = ops::softmax_last_dim(&scores)?.narrow(3, 0, n)?.contiguous()?;
    let attended = weights.reshape((kv_heads, group * rows, n))?.matmul(&values)?;
    let attended = attended.reshape((kv_heads, group, rows, dim))?.permute((2, 0, 1, 3))?;
    attended.contiguous()?.reshape((rows, kv_heads * group * dim))
}
