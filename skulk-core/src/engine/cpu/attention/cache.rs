//! Where do keys and values lie? In the order in which products read them.
//!
//! Slots are positions modulo the capacity. A key/value head's slots are cut into partitions, within
//! which keys are `[block of 64 positions][element][position]`, so that scores of neighbouring
//! positions are computed side by side, and values `[group of 64 elements][position][element]`, the
//! last group being as narrow as what is left over. Every block and group is read from beginning to
//! end.

use std::ops::Range;

use super::super::kernels::{BEHIND, Kernels, PARTITION, Stored, WIDTH};
use crate::engine::KvType;
use crate::engine::backend::CacheSpec;
use crate::error::{Error, ErrorKind, Result};

/// Keys and values of one layer: `[kv head][partition]`, see the module.
pub(crate) struct Cache {
    keys: Store,
    values: Store,
    spec: CacheSpec,
}

/// Zeroed memory that the system backs with pages as they are first written.
enum Store {
    F16(Vec<u16>),
    F32(Vec<f32>),
}

impl Store {
    fn new(spec: &CacheSpec) -> Result<Self> {
        let too_large = || {
            Error::new(
                ErrorKind::OutOfMemory,
                format!("cannot reserve a KV cache of {} positions", spec.positions),
            )
            .with_hint("use a smaller context")
        };
        let n = spec.elements().and_then(|n| n.checked_add(BEHIND)).ok_or_else(too_large)?;
        // Ask first: the zeroing allocation below would end the process instead of failing.
        Vec::<u8>::new()
            .try_reserve_exact(n.checked_mul(spec.kv.bytes()).ok_or_else(too_large)?)
            .map_err(|e| too_large().with_source(e))?;
        Ok(match spec.kv {
            KvType::F16 => Store::F16(vec![0; n]),
            KvType::F32 => Store::F32(vec![0.0; n]),
        })
    }

    /// Puts up to [`WIDTH`] elements, `stride` apart.
    fn put(&mut self, kernels: &Kernels, at: usize, stride: usize, x: &[f32]) {
        match self {
            Store::F16(bits) => {
                let mut halves = [0; WIDTH];
                kernels.halve(x, &mut halves);
                spread(&halves[..x.len()], &mut bits[at..], stride);
            }
            Store::F32(values) => spread(x, &mut values[at..], stride),
        }
    }

    fn get(&self, range: Range<usize>) -> Stored<'_> {
        match self {
            Store::F16(bits) => Stored::F16(&bits[range]),
            Store::F32(values) => Stored::F32(&values[range]),
        }
    }
}

fn spread<T: Copy>(from: &[T], to: &mut [T], stride: usize) {
    if stride == 1 {
        to[..from.len()].copy_from_slice(from);
    } else {
        for (to, from) in to.iter_mut().step_by(stride).zip(from) {
            *to = *from;
        }
    }
}

impl Cache {
    pub(crate) fn new(spec: &CacheSpec) -> Result<Self> {
        Ok(Self { keys: Store::new(spec)?, values: Store::new(spec)?, spec: *spec })
    }

    /// Partitions that a row can see something of, at most.
    pub(crate) fn partitions(&self) -> usize {
        self.spec.positions / PARTITION + 1
    }

    /// Stores consecutive rows `[rows, kv heads · head dim]` from position `start` on.
    pub(crate) fn append(&mut self, kernels: &Kernels, start: usize, k: &[f32], v: &[f32]) {
        let CacheSpec { n_kv_heads, head_dim, positions, .. } = self.spec;
        let width = n_kv_heads * head_dim;
        for head in 0..n_kv_heads {
            let rows = k.chunks_exact(width).zip(v.chunks_exact(width));
            for (row, (k, v)) in rows.enumerate() {
                let of_head = head * head_dim..(head + 1) * head_dim;
                self.put(kernels, head, (start + row) % positions, &k[of_head.clone()], &v[of_head]);
            }
        }
    }

    /// Stores a head's keys and values in a slot.
    fn put(&mut self, kernels: &Kernels, head: usize, slot: usize, k: &[f32], v: &[f32]) {
        let dim = self.spec.head_dim;
        let partition = self.of(head, slot / PARTITION).start;
        let slot = slot % PARTITION;
        let key = partition + slot / WIDTH * WIDTH * dim + slot % WIDTH;
        for (group, (k, v)) in k.chunks(WIDTH).zip(v.chunks(WIDTH)).enumerate() {
            let first = group * WIDTH;
            self.keys.put(kernels, key + first * WIDTH, WIDTH, k);
            self.values.put(kernels, partition + first * PARTITION + slot * v.len(), 1, v);
        }
    }

    /// Where a partition of the slots lies.
    fn of(&self, head: usize, partition: usize) -> Range<usize> {
        let len = PARTITION * self.spec.head_dim;
        let at = (head * (self.spec.positions / PARTITION) + partition) * len;
        at..at + len
    }

    /// A head's keys and values in the partition that begins at position `partition · PARTITION`.
    pub(crate) fn partition(&self, head: usize, partition: usize) -> (Stored<'_>, Stored<'_>) {
        let Range { start, end } = self.of(head, partition % (self.spec.positions / PARTITION));
        (self.keys.get(start..end + BEHIND), self.values.get(start..end + BEHIND))
    }
}
