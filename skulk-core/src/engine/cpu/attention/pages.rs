//! Where do keys and values lie? In pages, in the order in which products read them.
//!
//! A page has 64 positions of all key/value heads. A head's keys are `[element][position]`, so that scores of
//! neighbouring positions are computed side by side; its values `[group of 64 elements][position][element]`, the last
//! group being as narrow as what is left over. Every group is read from beginning to end.

use super::super::kernels::{BEHIND, Kernels, Stored, WIDTH};
use crate::engine::KvType;
use crate::engine::backend::{PAGE, PageSpec};
use crate::error::{Error, ErrorKind, Result};

/// Keys and values of one layer.
pub(crate) struct Pages {
    spec: PageSpec,
    /// By number; none where a page has no memory.
    pages: Vec<Option<Page>>,
}

/// All heads' keys, then all heads' values, then what products may read behind them.
struct Page(Box<[u8]>);

/// Where a head's keys or values lie within a page.
fn of_head(spec: &PageSpec, head: usize, values: bool) -> usize {
    let head = if values { spec.n_kv_heads + head } else { head };
    head * PAGE * spec.head_dim * spec.kv.bytes()
}

impl Pages {
    pub(crate) fn new(spec: &PageSpec) -> Result<Self> {
        spec.checked_bytes()?;
        Ok(Self { spec: *spec, pages: Vec::new() })
    }

    /// Reserves memory for a page.
    pub(crate) fn add(&mut self, page: u32) -> Result<()> {
        let bytes = self.spec.checked_bytes()? + BEHIND * self.spec.kv.bytes();
        let (page, mut memory) = (page as usize, Vec::new());
        let missing = (page + 1).saturating_sub(self.pages.len());
        memory.try_reserve_exact(bytes).and_then(|()| self.pages.try_reserve(missing)).map_err(|e| {
            Error::new(ErrorKind::OutOfMemory, "cannot reserve a page of keys and values")
                .with_hint("close sessions, or use a smaller context")
                .with_source(e)
        })?;
        memory.resize(bytes, 0);
        self.pages.resize_with(self.pages.len() + missing, || None);
        self.pages[page] = Some(Page(memory.into_boxed_slice()));
        Ok(())
    }

    /// Gives a page's memory back.
    pub(crate) fn release(&mut self, page: u32) {
        if let Some(page) = self.pages.get_mut(page as usize) {
            *page = None;
        }
    }

    fn page(&self, page: u32) -> &[u8] {
        self.pages.get(page as usize).and_then(Option::as_ref).map_or(&[], |page| &page.0)
    }

    /// Copies what page `from` holds to page `to`.
    pub(crate) fn copy(&mut self, from: u32, to: u32) -> Result<()> {
        let absent = || Error::new(ErrorKind::Internal, "a page of keys and values has no memory");
        let at = |page: u32| page as usize;
        let [from, to] = self.pages.get_disjoint_mut([at(from), at(to)]).map_err(|_| absent())?;
        let (Some(from), Some(to)) = (from, to) else { return Err(absent()) };
        to.0.copy_from_slice(&from.0);
        Ok(())
    }

    /// Stores consecutive rows `[rows, kv heads · head dim]` from position `start` on; `pages` are those of the blocks
    /// from the first row's on.
    pub(crate) fn append(
        &mut self,
        kernels: &Kernels,
        start: usize,
        pages: &[u32],
        k: &[f32],
        v: &[f32],
    ) -> Result<()> {
        let (spec, width) = (self.spec, self.spec.n_kv_heads * self.spec.head_dim);
        let rows = k.chunks_exact(width).zip(v.chunks_exact(width));
        for (position, (k, v)) in (start..).zip(rows) {
            let page =
                pages.get(position / PAGE - start / PAGE).and_then(|page| self.pages.get_mut(*page as usize));
            let Some(Some(page)) = page else {
                return Err(Error::new(ErrorKind::Internal, "a row has no page for its keys and values"));
            };
            let heads = k.chunks_exact(spec.head_dim).zip(v.chunks_exact(spec.head_dim));
            for (head, (k, v)) in heads.enumerate() {
                page.put(kernels, &spec, head, position % PAGE, k, v);
            }
        }
        Ok(())
    }

    /// A head's keys and values in a page.
    pub(crate) fn of(&self, page: u32, head: usize) -> (Stored<'_>, Stored<'_>) {
        let (spec, page) = (&self.spec, self.page(page));
        let len = (PAGE * spec.head_dim + BEHIND) * spec.kv.bytes();
        let part = |values| {
            let at = of_head(spec, head, values);
            Stored { bytes: page.get(at..at + len).unwrap_or_default(), kind: spec.kv }
        };
        (part(false), part(true))
    }
}

impl Page {
    /// Stores a head's key and value in a slot.
    fn put(&mut self, kernels: &Kernels, spec: &PageSpec, head: usize, slot: usize, k: &[f32], v: &[f32]) {
        let size = spec.kv.bytes();
        let [keys, values] = [false, true].map(|values| of_head(spec, head, values));
        for (group, (k, v)) in k.chunks(WIDTH).zip(v.chunks(WIDTH)).enumerate() {
            let first = group * WIDTH;
            put(kernels, spec.kv, &mut self.0[keys + (first * PAGE + slot) * size..], PAGE, k);
            put(kernels, spec.kv, &mut self.0[values + (first * PAGE + slot * v.len()) * size..], 1, v);
        }
    }
}

/// Stores up to [`WIDTH`] elements, `stride` apart.
fn put(kernels: &Kernels, kind: KvType, to: &mut [u8], stride: usize, x: &[f32]) {
    match kind {
        KvType::F16 => {
            let mut halves = [0; WIDTH];
            kernels.halve(x, &mut halves);
            spread(halves[..x.len()].iter().map(|half| half.to_le_bytes()), to, stride);
        }
        KvType::F32 => spread(x.iter().map(|x| x.to_le_bytes()), to, stride),
    }
}

fn spread<const N: usize>(from: impl Iterator<Item = [u8; N]>, to: &mut [u8], stride: usize) {
    for (to, from) in to.as_chunks_mut().0.iter_mut().step_by(stride).zip(from) {
        *to = from;
    }
}
