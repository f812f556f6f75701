//! How does the device attend? A sequence's keys and values, written and read by kernels.
//!
//! Keys lie as `[kv head][word][slot]`, so that threads with a key each read neighbouring words; values as
//! `[kv head][slot][word]`, so that threads with an element each do. A word is two f16 or one f32.

use super::device::{Block, Device};
use super::kernels::{Op, attend_threads};
use super::stream::{Scratch, Stream, storage};
use super::{Buffer, Gpu, params};
use crate::engine::KvType;
use crate::engine::backend::{Attend, CacheSpec};
use crate::error::{Error, ErrorKind, Result};

/// Workgroups that keep a large device busy.
const MIN_WORKGROUPS: usize = 256;

/// Elements of a head, at most: wider ones' queries and scores may not fit a workgroup's memory.
const MAX_HEAD_DIM: usize = 256;

/// One layer's keys and values of one sequence; a position lies in slot `position % capacity`.
pub(crate) struct Cache {
    keys: Block,
    values: Block,
    capacity: usize,
    half: bool,
}

impl Cache {
    pub(super) fn new(device: &Device, spec: &CacheSpec) -> Result<Self> {
        // A pair of elements is rotated together and, in half precision, is a word.
        if !spec.head_dim.is_multiple_of(2) || spec.head_dim > MAX_HEAD_DIM {
            return Err(Error::new(
                ErrorKind::ArchUnsupported,
                format!(
                    "expected heads of an even number of up to {MAX_HEAD_DIM} elements, found {}",
                    spec.head_dim
                ),
            )
            .with_hint("use engine `cpu`"));
        }
        let bytes = spec.bytes().map_or(u64::MAX, |bytes| bytes as u64 / 2);
        let block = || device.block("the KV cache of a layer", bytes, storage());
        Ok(Self { keys: block()?, values: block()?, capacity: spec.positions, half: spec.kv == KvType::F16 })
    }

    /// See [`Backend::attend`](crate::engine::backend::Backend::attend).
    pub(super) fn attend(
        &mut self,
        gpu: &Gpu,
        stream: &mut Stream,
        op: &Attend<'_, Gpu>,
        [q, k, v]: [&Buffer; 3],
        out: &mut Buffer,
    ) -> Result<()> {
        let attention = op.attention;
        let (n_heads, n_kv) = (attention.n_heads, attention.n_kv_heads);
        let (head_dim, half) = (attention.head_dim as u32, self.half);
        let rows = op.rows.len();
        out.width = n_heads * attention.head_dim;

        let threads = attend_threads(head_dim) as usize;
        let queries = rows * (n_heads / n_kv);
        let together = if queries <= 4 { 4 } else { 8 };
        let tiles = queries.div_ceil(together);
        let window = attention.window.unwrap_or(0);
        let oldest = if window == 0 { 0 } else { (op.start + 1).saturating_sub(window) };
        let span = op.start + rows - oldest / threads * threads;
        // As many as keep the device busy, of two blocks of keys at least.
        let wanted = (MIN_WORKGROUPS / (n_kv * tiles)).clamp(1, span.div_ceil(2 * threads));
        let split_len = span.div_ceil(wanted).next_multiple_of(threads);
        let n_splits = span.div_ceil(split_len);
        let partials = match n_splits {
            1 => None,
            n => Some(stream.scratch(Scratch::Partials, rows * n_heads * n * (2 + attention.head_dim))?),
        };
        let params = params::Attend {
            rows: rows as u32,
            first_row: op.rows.start as u32,
            start: op.start as u32,
            n_heads: n_heads as u32,
            n_kv: n_kv as u32,
            capacity: self.capacity as u32,
            window: window as u32,
            q_stride: q.stride(),
            k_stride: k.stride(),
            v_stride: v.stride(),
            out_stride: out.stride(),
            scale: attention.scale,
            cap: attention.softcap.unwrap_or(1.0),
            split_len: split_len as u32,
            n_splits: n_splits as u32,
        };
        let operands = [&k.block, &v.block, &self.keys, &self.values];
        let groups = [(n_kv * attention.head_dim).div_ceil(16), rows.div_ceil(8), 1];
        stream.dispatch(Op::cache_write(head_dim, half), &operands, params, groups)?;
        let has_sinks = op.sinks.is_some();
        let kind = Op::attend(head_dim, half, together as u32, attention.softcap.is_some(), has_sinks);
        let sinks = op.sinks.unwrap_or(&gpu.unread);
        let to = partials.as_deref().unwrap_or(&gpu.unwritten);
        let operands = [&q.block, &self.keys, &self.values, sinks, &out.block, to];
        let groups = [n_kv * n_splits, tiles.min(32768), tiles.div_ceil(32768)];
        stream.dispatch(kind, &operands, params, groups)?;
        if let Some(partials) = partials {
            let kind = Op::attend_combine(head_dim, has_sinks);
            stream.dispatch(kind, &[&*partials, sinks, &out.block], params, [n_heads, rows, 1])?;
        }
        stream.weigh(2 * queries * n_kv * span * attention.head_dim)
    }
}
