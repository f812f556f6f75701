//! How do weights come to lie in memory of their own? An anonymous image of their file, filled
//! tensor by tensor.
//!
//! The image has the file's length in address space and the file's own offsets, so that neighbouring
//! tensors share huge pages and alignment is what it is in the file. Memory stands behind a tensor
//! while somebody holds its [`Piece`].
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind as Io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use memmap2::{MmapOptions, MmapRaw};

use super::mmap::{io_error, truncated};
use super::woven::Weave;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::workers::share_out;

/// The image begins at a multiple of this, a huge page's size on x86-64 and most ARM systems.
const HUGE_PAGE: usize = 2 << 20;
/// Memory is given back in whole multiples of this: of the page size on every system.
pub(super) const GRANULE: usize = 64 << 10;
/// Bytes that a thread reads at a time: no more of the file than this, and what the system reads ahead, exists
/// twice.
const STEP: usize = if cfg!(test) { 16 << 10 } else { 4 << 20 };
/// Bytes of what is woven that are read at a time: they are woven from a cache.
const WOVEN_STEP: usize = if cfg!(test) { 5 << 10 } else { 256 << 10 };
/// Threads that read, at most: as many keep memory busy.
const READERS: usize = 8;
/// Bytes that a thread reads alone, rather than wait for another one to begin.
const ALONE: usize = if cfg!(test) { 16 << 10 } else { 8 << 20 };

/// Address space for a whole file, of which parts are filled.
#[derive(Debug)]
pub(super) struct Image {
    map: MmapRaw,
    /// Where in the map the file's first byte would lie.
    origin: usize,
    len: usize,
    /// Filled ranges by their start. No two overlap, those included whose last holder is just going.
    held: Mutex<BTreeMap<usize, Held>>,
}

#[derive(Debug)]
struct Held {
    end: usize,
    woven: Option<Weave>,
    piece: Weak<Piece>,
}

/// A filled range of an image; its memory is given back on drop.
#[derive(Debug)]
pub(crate) struct Piece {
    image: Arc<Image>,
    range: Range<usize>,
}

impl Image {
    /// An empty image of a file of `len` bytes.
    pub(super) fn new(len: u64) -> Result<Self> {
        let exhausted = || {
            Error::new(ErrorKind::OutOfMemory, format!("cannot reserve {len} bytes of address space"))
                .with_hint("load with `Memory::Mapped`")
        };
        let len = usize::try_from(len).map_err(|_| exhausted())?;
        // Room to begin at a huge page's border, and to end at a granule's: what is given back is whole
        // granules, and must not reach into what lies behind the map.
        let reserved = len.checked_add(HUGE_PAGE + GRANULE).ok_or_else(exhausted)?;
        let map: MmapRaw = MmapOptions::new()
            .len(reserved)
            .no_reserve_swap()
            .map_anon()
            .map_err(|e| exhausted().with_source(e))?
            .into();
        // Advice only: where there are no huge pages, small ones do.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let origin = map.as_ptr().addr().next_multiple_of(HUGE_PAGE) - map.as_ptr().addr();
        Ok(Self { map, origin, len, held: Mutex::default() })
    }

    /// The piece of `len` bytes from `offset`: somebody else's, or read from the file. `None` when
    /// it would overlap another one or end behind the image.
    pub(super) fn read(
        self: &Arc<Self>,
        file: &File,
        path: &Path,
        offset: u64,
        len: usize,
        woven: Option<Weave>,
        cancel: &CancelToken,
    ) -> Result<Option<Arc<Piece>>> {
        let Some(range) = usize::try_from(offset).ok().and_then(|start| Some(start..start.checked_add(len)?))
        else {
            return Ok(None);
        };
        let mut held = self.lock();
        if let Some(same) = held.get(&range.start).filter(|h| h.end == range.end) {
            if let Some(piece) = same.piece.upgrade() {
                return Ok((same.woven == woven).then_some(piece));
            }
            // Its last holder is going, and will leave alone what is not in the table.
            held.remove(&range.start);
        }
        if range.end > self.len || held.contains_key(&range.start) || !between(&held, &range) {
            return Ok(None);
        }
        // SAFETY: the range lies within the map, whose memory is initialised, being zero at first.
        // Nothing else refers to it: no piece overlaps it, and the lock keeps others from filling it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.at(range.start), len) };
        if let Err(error) = fill(file, path, offset, bytes, woven, cancel) {
            self.give_back(&held, &range);
            return Err(error);
        }
        let piece = Arc::new(Piece { image: Arc::clone(self), range: range.clone() });
        held.insert(range.start, Held { end: range.end, woven, piece: Arc::downgrade(&piece) });
        Ok(Some(piece))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the file's byte `offset` lies; `offset` is at most the image's length.
    fn at(&self, offset: usize) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(self.origin + offset)
    }

    /// Frees the memory of a range that is in `held` no more, but for pages that others share.
    fn give_back(&self, held: &BTreeMap<usize, Held>, range: &Range<usize>) {
        let (before, after) = neighbours(held, range);
        let start = (range.start / GRANULE * GRANULE).max(before.next_multiple_of(GRANULE));
        let end = range.end.next_multiple_of(GRANULE).min(after / GRANULE * GRANULE);
        if start >= end {
            return;
        }
        #[cfg(target_os = "linux")]
        let advice = memmap2::UncheckedAdvice::DontNeed;
        #[cfg(target_vendor = "apple")]
        let advice = memmap2::UncheckedAdvice::Free;
        // Elsewhere memory goes with the whole image.
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        {
            // SAFETY: the pages, which the advice clears, are whole ones of the map and hold no byte
            // of any piece; the caller has the lock, so that none of them is being filled.
            let _ = unsafe { self.map.unchecked_advise_range(advice, self.origin + start, end - start) };
        }
    }
}

impl Piece {
    /// Memory of its own, as what is read gets it, full of a byte.
    #[cfg(feature = "generate")]
    pub(super) fn filled(len: usize, byte: u8) -> Result<Arc<Self>> {
        let image = Arc::new(Image::new(len as u64)?);
        // SAFETY: the range lies within the map, whose memory is initialised, being zero at first; nothing else refers to it.
        unsafe { std::slice::from_raw_parts_mut(image.at(0), len) }.fill(byte);
        Ok(Arc::new(Self { image, range: 0..len }))
    }
}

/// Where the pieces before and behind a range end and begin.
fn neighbours(held: &BTreeMap<usize, Held>, range: &Range<usize>) -> (usize, usize) {
    let before = held.range(..range.start).next_back().map_or(0, |(_, held)| held.end);
    let after = held.range(range.start + 1..).next().map_or(usize::MAX, |(&start, _)| start);
    (before, after)
}

/// Whether a range lies between its neighbours.
fn between(held: &BTreeMap<usize, Held>, range: &Range<usize>) -> bool {
    let (before, after) = neighbours(held, range);
    before <= range.start && range.end <= after
}

impl Deref for Piece {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the map, which the piece holds, was filled before the piece
        // was made, and is not written again while there is a piece.
        unsafe { std::slice::from_raw_parts(self.image.at(self.range.start), self.range.len()) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut held = self.image.lock();
        // Somebody may have read the same range again since the last holder let go.
        if held.get(&self.range.start).is_some_and(|h| std::ptr::eq(h.piece.as_ptr(), self)) {
            held.remove(&self.range.start);
            self.image.give_back(&held, &self.range);
        }
    }
}

/// Reads `bytes` from `offset` of the file, and weaves them if they shall be. Several threads take their turns at many, and the
/// file's own pages are let go on the way.
fn fill(
    file: &File,
    path: &Path,
    offset: u64,
    bytes: &mut [u8],
    woven: Option<Weave>,
    cancel: &CancelToken,
) -> Result<()> {
    let len = bytes.len();
    // Whole tiles, where there are tiles.
    let whole =
        |step: usize| woven.map_or(step, |weave| (step / weave.tile_bytes()).max(1) * weave.tile_bytes());
    let step = whole(STEP);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(READERS).min(1 + len / ALONE);
    let starts = (offset..).step_by(step);
    let parts: Vec<_> = starts.zip(bytes.chunks_mut(step).map(Mutex::new)).collect();
    share_out(threads, &parts, |own: &mut Vec<u8>, (start, part)| {
        cancel.check()?;
        let part = &mut **part.lock().unwrap_or_else(PoisonError::into_inner);
        let truncated = |at| truncated(path, offset, len as u64, at);
        match &woven {
            Some(weave) => {
                own.resize(whole(WOVEN_STEP).min(len), 0);
                for (at, to) in (*start..).step_by(own.len()).zip(part.chunks_mut(own.len())) {
                    let own = &mut own[..to.len()];
                    read_all(file, path, at, own, truncated)?;
                    weave.weave(own, to);
                }
            }
            None => read_all(file, path, *start, part, truncated)?,
        }
        // With the page that the part before ends in: the system lets go of whole ones.
        let from = start / GRANULE as u64 * GRANULE as u64;
        let_go(file, from, start - from + part.len() as u64);
        Ok(())
    })?;
    // Pages that are larger than a granule may cross parts.
    let_go(file, offset, len as u64);
    Ok(())
}

/// Fills `bytes` from `offset` on; `truncated` makes an error of where the file ends before.
pub(super) fn read_all(
    file: &File,
    path: &Path,
    mut offset: u64,
    mut bytes: &mut [u8],
    truncated: impl Fn(u64) -> Error,
) -> Result<()> {
    while !bytes.is_empty() {
        match read_at(file, bytes, offset) {
            Ok(0) => return Err(truncated(offset)),
            Ok(n) => {
                offset += n as u64;
                bytes = &mut bytes[n..];
            }
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) => return Err(io_error(error, path, "read")),
        }
    }
    Ok(())
}

/// Tells the system that the file's own pages of a range are not needed. It keeps those that somebody
/// maps, in any process.
fn let_go(file: &File, offset: u64, len: u64) {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::fs::fadvise(file, offset, std::num::NonZero::new(len), rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole granules up to the end of any tensor are the map's own, wherever the system puts the map.
    #[test]
    fn what_is_given_back_lies_within_the_map() {
        // Of different sizes, so that they begin at all distances from a huge page's border.
        let images: Vec<_> = (0..600).map(|i| Image::new(5000 + i * 4096).unwrap()).collect();
        let distances: std::collections::BTreeSet<_> = images.iter().map(|image| image.origin).collect();
        assert!(distances.len() > 100, "{distances:?}");
        for image in &images {
            assert!(image.origin + image.len.next_multiple_of(GRANULE) <= image.map.len());
        }
    }
}
