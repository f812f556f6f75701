//! Where do keys and values lie on the device? A layer's in two buffers, which grow, page behind page.
//!
//! Of a page, keys lie as `[kv head][word][slot]`, values as `[kv head][slot][word]`; behind a head's words lie its
//! scales, where it is quantised, see kept.wgsl.

use super::device::{Block, Device};
use super::stream::{Stream, storage};
use crate::engine::KvType;
use crate::engine::backend::{PAGE, PageSpec, blank_behind};
use crate::error::{Error, ErrorKind, Result};

/// Elements of a head's values, at most: a thread of at most 256 has a pair of them.
const MAX_HEAD_DIM: usize = 512;

/// Elements of a latent vector and what is behind it, at most: four queries fit a workgroup's memory with their scores.
const MAX_WITH_LATENT: usize = 688;

/// Elements of keys or values that share a scale, where they have one.
const BLOCK: usize = 32;

/// Pages that buffers grow by, at least.
const FEWEST: usize = 4;

/// Bytes of a word.
const WORD: usize = 4;

/// Bytes that are read at once, unless one page has more.
const AT_ONCE: u64 = 8 << 20;

/// The most elements of an indexer's heads: a workgroup keeps one in its 16 KiB.
const MAX_OF_INDEX: usize = 4096;

/// Keys and values of one layer.
pub(crate) struct Pages {
    pub(super) spec: PageSpec,
    /// Keys, and values; none before the first page.
    blocks: Option<[Block; 2]>,
    /// Pages that each of them holds.
    room: usize,
    /// Pages beyond which nothing is reserved ahead.
    pub(super) expected: usize,
}

impl Pages {
    pub(super) fn new(spec: &PageSpec) -> Result<Self> {
        // A pair of elements is rotated together and, in half precision, is a word.
        let expect = |what: &str, n: usize, most: usize| {
            if n.is_multiple_of(2) && n <= most {
                return Ok(());
            }
            let message = format!("expected {what} of an even number of up to {most} elements, found {n}");
            Err(Error::new(ErrorKind::ArchUnsupported, message).with_hint("use engine `cpu`"))
        };
        match spec.latent {
            None => expect("heads", spec.head_dim, MAX_HEAD_DIM)?,
            Some(rank) => {
                expect("latent vectors", rank, MAX_HEAD_DIM)?;
                let [end, index] = spec.index.unwrap_or([spec.head_dim; 2]);
                expect("latent vectors with what is behind them", end, MAX_WITH_LATENT)?;
                let of_index = spec.head_dim.saturating_sub(index);
                expect("an indexer's heads", of_index, MAX_OF_INDEX)?;
                if !of_index.is_multiple_of(4) {
                    let message =
                        format!("expected an indexer's heads of a multiple of 4 elements, found {of_index}");
                    return Err(Error::new(ErrorKind::ArchUnsupported, message).with_hint("use engine `cpu`"));
                }
                // Blocks share scales, and belong to one part.
                if spec.kv.are_quantised() && !rank.is_multiple_of(BLOCK) {
                    let message = format!(
                        "expected latent vectors of a multiple of {BLOCK} elements, found {rank}, to keep them in {}",
                        spec.kv.keys
                    );
                    return Err(Error::new(ErrorKind::ArchUnsupported, message)
                        .with_hint("keep them in `f16`, or use engine `cpu`"));
                }
            }
        }
        spec.checked_bytes()?;
        Ok(Self { spec: *spec, blocks: None, room: 0, expected: usize::MAX })
    }

    /// Bytes of a head's keys in a page, and of its values, where those are not in the keys.
    fn head_bytes(&self) -> [usize; 2] {
        let [keys, values] = self.kinds().map(|kind| kind.bytes(self.spec.head_dim, PAGE));
        [keys, if self.spec.latent.is_some() { 0 } else { values }]
    }

    /// Bytes of a page's keys, and of its values.
    fn page_bytes(&self) -> [u64; 2] {
        self.head_bytes().map(|bytes| (bytes * self.spec.n_kv_heads) as u64)
    }

    fn kinds(&self) -> [KvType; 2] {
        [self.spec.kv.keys, self.spec.kv.values]
    }

    /// Makes room for a page. Nothing that is recorded and not sent may use the buffers.
    pub(super) fn add(&mut self, device: &Device, page: u32) -> Result<()> {
        let needed = (page as usize).saturating_add(1);
        if needed <= self.room {
            return Ok(());
        }
        // By half, as everything is copied each time; where that is too much, by no more than is needed.
        let [keys, values] = self.page_bytes();
        let most = ((device.largest / keys.max(values).max(1)) as usize).min(self.expected);
        let ample = needed.max(self.room + (self.room / 2).max(FEWEST)).min(most).max(needed);
        let (room, blocks) = match self.reserve(device, ample) {
            Ok(blocks) => (ample, blocks),
            Err(_) if ample > needed => (needed, self.reserve(device, needed)?),
            Err(error) => return Err(error),
        };
        if let Some(old) = &self.blocks {
            device.copy(&old.iter().zip(&blocks).collect::<Vec<_>>())?;
        }
        (self.room, self.blocks) = (room, Some(blocks));
        Ok(())
    }

    /// Buffers of so many pages.
    fn reserve(&self, device: &Device, pages: usize) -> Result<[Block; 2]> {
        let [keys, values] = self.page_bytes().map(|bytes| bytes.saturating_mul(pages as u64));
        let block = |what, bytes| device.block(what, bytes, storage());
        Ok([block("the keys of a layer", keys)?, block("the values of a layer", values)?])
    }

    /// Copies what page `from` holds to page `to`.
    pub(super) fn copy(&self, stream: &mut Stream, from: u32, to: u32) -> Result<()> {
        let blocks = self.with(&[from, to])?.iter().zip(self.page_bytes()).filter(|(_, len)| *len > 0);
        let copies: Vec<_> =
            blocks.map(|(block, len)| (block, u64::from(from) * len, u64::from(to) * len, len)).collect();
        stream.copy_within(&copies)
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
        let (blocks, lens) = (self.with(numbers)?, self.page_bytes());
        let of = |page: &u32| {
            let page = u64::from(*page);
            let parts = blocks.iter().zip(lens).filter(|(_, len)| *len > 0);
            parts.map(move |(block, len)| (block, page * len, len))
        };
        let len = lens.iter().sum::<u64>();
        for some in numbers.chunks((AT_ONCE / len.max(1)).max(1) as usize) {
            stream.read_bytes(&some.iter().flat_map(of).collect::<Vec<_>>(), |all| out.extend(all))?;
        }
        if let Some(last) = out.len().checked_sub(len as usize).filter(|_| !numbers.is_empty()) {
            self.blank(&mut out[last..], rows);
        }
        Ok(())
    }

    /// Blanks what a page's bytes have of the positions from `rows` on.
    fn blank(&self, page: &mut [u8], rows: usize) {
        let (keys, values) = page.split_at_mut(self.page_bytes()[0] as usize);
        let parts = [keys, values].into_iter().zip(self.kinds()).zip(self.head_bytes());
        for (part, ((bytes, kind), head)) in parts.enumerate().filter(|(_, (_, head))| *head > 0) {
            let of_scales = kind.scales(self.spec.head_dim) * size_of::<u16>();
            let of_elements = head / PAGE - of_scales;
            for head in bytes.chunks_exact_mut(head) {
                let (elements, scales) = head.split_at_mut(of_elements * PAGE);
                blank_behind(elements, if part == 0 { WORD } else { of_elements }, rows);
                blank_behind(scales, size_of::<u16>(), rows);
            }
        }
    }

    /// Lets a page hold what was read of another one.
    pub(super) fn write(&self, stream: &mut Stream, page: u32, from: &[u8]) -> Result<()> {
        let ([keys, values], lens) = (self.with(&[page])?, self.page_bytes());
        let (of_keys, of_values) = from.split_at(lens[0] as usize);
        stream.write_bytes(keys, u64::from(page) * lens[0], of_keys)?;
        match of_values {
            [] => Ok(()),
            _ => stream.write_bytes(values, u64::from(page) * lens[1], of_values),
        }
    }

    /// The keys and the values, if these pages have memory.
    pub(super) fn with(&self, pages: &[u32]) -> Result<&[Block; 2]> {
        match &self.blocks {
            Some(blocks) if pages.iter().all(|page| (*page as usize) < self.room) => Ok(blocks),
            _ => Err(Error::new(ErrorKind::Internal, "a page of keys and values has no memory")),
        }
    }
}
