//! How does the device attend? A sequence's keys and values, written and read by kernels.
//!
//! Keys lie as `[kv head][word][slot]`, so that threads with a key each read neighbouring words; values as
//! `[kv head][slot][word]`, so that threads with an element each do. A word is two f16 or one f32.

use super::device::{Block, Device};
use super::kernels::{Op, attend_threads};
use super::stream::{Room, Stream, storage};
use super::{Buffer, Gpu};
use crate::engine::KvType;
use crate::engine::backend::{Attend, CacheSpec};
use crate::error::{Error, ErrorKind, Result};

/// Workgroups that keep a large device busy.
const BUSY: usize = 256;

/// Elements of a head, at most: wider ones' queries and scores may not fit a workgroup's memory.
const WIDEST: usize = 256;

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
        if !spec.head_dim.is_multiple_of(2) || spec.head_dim > WIDEST {
            return Err(Error::new(
                ErrorKind::ArchUnsupported,
                format!(
                    "expected heads of an even number of up to {WIDEST} elements, found {}",
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
        let (rows, first_row) = (op.rows.len(), op.rows.start as u32);
        out.width = n_heads * attention.head_dim;

        let params = [
            rows as u32,
            first_row,
            op.start as u32,
            n_kv as u32,
            self.capacity as u32,
            k.stride(),
            v.stride(),
        ];
        let operands = [&k.block, &v.block, &self.keys, &self.values];
        let groups = [(n_kv * attention.head_dim).div_ceil(16), rows.div_ceil(8), 1];
        stream.dispatch(Op::CacheWrite { head_dim, half }, &operands, &params, groups)?;

        let threads = attend_threads(head_dim) as usize;
        let queries = rows * (n_heads / n_kv);
        let together = if queries <= 4 { 4 } else { 8 };
        let tiles = queries.div_ceil(together);
        let window = attention.window.unwrap_or(0);
        let oldest = if window == 0 { 0 } else { (op.start + 1).saturating_sub(window) };
        let span = op.start + rows - oldest / threads * threads;
        // As many as keep the device busy, of two blocks of keys at least.
        let wanted = (BUSY / (n_kv * tiles)).clamp(1, span.div_ceil(2 * threads));
        let split_len = span.div_ceil(wanted).next_multiple_of(threads);
        let n_splits = span.div_ceil(split_len);
        let partials = match n_splits {
            1 => None,
            n => Some(stream.room(Room::Partials, rows * n_heads * n * (2 + attention.head_dim))?),
        };
        let params = [
            rows as u32,
            first_row,
            op.start as u32,
            n_heads as u32,
            n_kv as u32,
            self.capacity as u32,
            window as u32,
            q.stride(),
            out.stride(),
            attention.scale.to_bits(),
            attention.softcap.unwrap_or(1.0).to_bits(),
            split_len as u32,
            n_splits as u32,
        ];
        let kind = Op::Attend {
            head_dim,
            half,
            queries: together as u32,
            softcap: attention.softcap.is_some(),
            sinks: op.sinks.is_some(),
        };
        let sinks = op.sinks.unwrap_or(&gpu.nothing);
        let to = partials.as_deref().unwrap_or(&gpu.spare);
        let operands = [&q.block, &self.keys, &self.values, sinks, &out.block, to];
        let groups = [n_kv * n_splits, tiles.min(32768), tiles.div_ceil(32768)];
        stream.dispatch(kind, &operands, &params, groups)?;
        if let Some(partials) = partials {
            let params = [rows as u32, first_row, n_heads as u32, n_splits as u32, out.stride()];
            let operands = [&*partials, sinks, &out.block];
            let kind = Op::AttendCombine { head_dim, sinks: op.sinks.is_some() };
            stream.dispatch(kind, &operands, &params, [n_heads, rows, 1])?;
        }
        stream.weigh(2 * queries * n_kv * span * attention.head_dim)
    }
}
