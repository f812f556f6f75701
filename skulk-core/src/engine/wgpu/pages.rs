//! Where do keys and values lie on the device? A layer's in two buffers, which grow, page behind page.
//!
//! Of a page, keys lie as `[kv head][word][slot]`, so that threads with a key each read neighbouring words;
//! values as `[kv head][slot][word]`, so that threads with an element each do. A word is two f16 or one f32.

use super::device::{Block, Device};
use super::stream::{Stream, storage};
use crate::engine::backend::{PAGE, PageSpec, blank_behind};
use crate::error::{Error, ErrorKind, Result};

/// Elements of a head, at most: wider ones' queries and scores may not fit a workgroup's memory.
const MAX_HEAD_DIM: usize = 256;

/// Pages that buffers grow by, at least.
const FEWEST: usize = 4;

/// Bytes of keys that are read at once, unless one page has more.
const AT_ONCE: u64 = 8 << 20;

/// Keys and values of one layer.
pub(crate) struct Pages {
    pub(super) spec: PageSpec,
    /// Keys, and values; none before the first page.
    blocks: Option<[Block; 2]>,
    /// Pages that each of them holds.
    room: usize,
}

impl Pages {
    pub(super) fn new(spec: &PageSpec) -> Result<Self> {
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
        spec.checked_bytes()?;
        Ok(Self { spec: *spec, blocks: None, room: 0 })
    }

    /// Bytes of a page's keys, or of its values.
    fn page_bytes(&self) -> u64 {
        self.spec.bytes() / 2
    }

    /// Makes room for a page. Nothing that is recorded and not sent may use the buffers.
    pub(super) fn add(&mut self, device: &Device, page: u32) -> Result<()> {
        let needed = (page as usize).saturating_add(1);
        if needed <= self.room {
            return Ok(());
        }
        // By half, as everything is copied each time; where that is too much, by no more than is needed.
        let most = (device.largest / self.page_bytes().max(1)) as usize;
        let ample = needed.max(self.room + (self.room / 2).max(FEWEST)).min(most).max(needed);
        let (room, blocks) = match self.reserve(device, ample) {
            Ok(blocks) => (ample, blocks),
            Err(_) if ample > needed => (needed, self.reserve(device, needed)?),
            Err(error) => return Err(error),
        };
        if let Some(old) = &self.blocks {
            let mut encoder = device.device.create_command_encoder(&Default::default());
            for (from, to) in old.iter().zip(&blocks) {
                encoder.copy_buffer_to_buffer(&from.buffer, 0, &to.buffer, 0, from.buffer.size());
            }
            // The old ones' memory is free before another layer asks for more.
            device.wait(device.submit(Some(encoder.finish())))?;
        }
        (self.room, self.blocks) = (room, Some(blocks));
        Ok(())
    }

    /// Buffers of so many pages.
    fn reserve(&self, device: &Device, pages: usize) -> Result<[Block; 2]> {
        let bytes = self.page_bytes().saturating_mul(pages as u64);
        let block = |what| device.block(what, bytes, storage());
        Ok([block("the keys of a layer")?, block("the values of a layer")?])
    }

    /// Copies what page `from` holds to page `to`.
    pub(super) fn copy(&self, stream: &mut Stream, from: u32, to: u32) -> Result<()> {
        let [keys, values] = self.with(&[from, to])?;
        let len = self.page_bytes();
        stream.copy_within(&[keys, values], u64::from(from) * len, u64::from(to) * len, len)
    }

    /// Adds what pages hold to `out`: of each its keys, then its values; of the last one what lies behind the first `rows`
    /// positions as zeros.
    pub(super) fn read(
        &self,
        stream: &mut Stream,
        numbers: &[u32],
        rows: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (blocks, len) = (self.with(numbers)?, self.page_bytes());
        let of = |page: &u32| {
            let at = u64::from(*page) * len;
            blocks.iter().map(move |block| (block, at, len))
        };
        for some in numbers.chunks((AT_ONCE / len.max(1)).max(1) as usize) {
            stream.read_bytes(&some.iter().flat_map(of).collect::<Vec<_>>(), |all| out.extend(all))?;
        }
        let (word, head) = (4, len as usize / (self.spec.n_kv_heads * PAGE));
        let Some(values) = out.len().checked_sub(len as usize) else { return Ok(()) };
        if !numbers.is_empty() {
            blank_behind(&mut out[values - len as usize..values], word, rows);
            blank_behind(&mut out[values..], head, rows);
        }
        Ok(())
    }

    /// Lets a page hold what was read of another one.
    pub(super) fn write(&self, stream: &mut Stream, page: u32, from: &[u8]) -> Result<()> {
        let at = u64::from(page) * self.page_bytes();
        let parts = from.split_at(from.len() / 2);
        let [keys, values] = self.with(&[page])?;
        stream.write_bytes(keys, at, parts.0)?;
        stream.write_bytes(values, at, parts.1)
    }

    /// The keys and the values, if these pages have memory.
    pub(super) fn with(&self, pages: &[u32]) -> Result<&[Block; 2]> {
        match &self.blocks {
            Some(blocks) if pages.iter().all(|page| (*page as usize) < self.room) => Ok(blocks),
            _ => Err(Error::new(ErrorKind::Internal, "a page of keys and values has no memory")),
        }
    }
}
