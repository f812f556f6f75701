//! Where do keys and values lie? In pages, in the order in which products read them.
//!
//! A page has 64 positions of all key/value heads. A head's keys are `[element][position]`, so that scores of
//! neighbouring positions are computed side by side; its values `[group of 64 elements][position][element]`, the last
//! group being as narrow as what is left over. Every group is read from beginning to end.
//!
//! In bfloat16, products take pairs: neighbouring elements of keys lie side by side, and values of neighbouring positions.
//!
//! Where they are quantised, a head's scales follow, `[block of 32 elements][position]`. Of 4 bits, positions i and i + 32
//! share a byte, the first one having its lower half: keys are `[element][32]`, values `[group][32][element]`.
//!
//! Of latent vectors there are keys alone, whose first elements are the values: products turn them round.

use std::collections::TryReserveError;
use std::sync::{Mutex, PoisonError};

use super::super::kernels::{BLOCK, BYTES_BEHIND, Kernels, Stored, WIDTH};
use super::super::lines::Lines;
use super::super::pool::Pool;
use crate::engine::KvType;
use crate::engine::backend::{PAGE, PageSpec};
use crate::error::{Error, ErrorKind, Result};

/// Keys and values of one layer.
pub(crate) struct Pages {
    spec: PageSpec,
    /// By number; none where a page has no memory.
    pages: Vec<Option<Page>>,
    /// Each thread's room for a rotated head.
    rotated: Vec<Mutex<Vec<f32>>>,
    /// Room for a latent vector and what keys have behind it.
    latent: Vec<f32>,
}

/// All heads' keys, then all heads' values, then what products may read behind them.
struct Page(Lines<u8>);

fn absent() -> Error {
    Error::new(ErrorKind::Internal, "a page of keys and values has no memory")
}

fn too_large(e: TryReserveError) -> Error {
    Error::new(ErrorKind::OutOfMemory, "cannot reserve a page of keys and values")
        .with_hint("close sessions, or use a smaller context")
        .with_source(e)
}

/// Elements of keys and values that are worth a thread of their own.
const LEAST: usize = 512;

/// How a head's keys or values lie in their part of a page: elements, then scales.
#[derive(Clone, Copy)]
struct Place {
    kind: KvType,
    head_dim: usize,
    /// Where scales begin.
    scales: usize,
    /// They are values.
    values: bool,
    /// Borders of elements that are rotated apart.
    parts: [usize; 3],
}

impl Place {
    fn of(spec: &PageSpec, values: bool) -> Self {
        let kind = if values { spec.kv.values } else { spec.kv.keys };
        // Saved sessions have scales right behind the elements, also where these are no whole words.
        let scales = spec.head_dim * PAGE * kind.bits() / 8;
        Self { kind, head_dim: spec.head_dim, scales, values, parts: parts(spec) }
    }

    /// Bytes of a head's part of a page.
    fn bytes(&self) -> usize {
        self.kind.bytes(self.head_dim, PAGE)
    }

    /// Where the element `first` of a slot lies, and how many elements behind it the next one that is not side by side with it.
    fn at(&self, first: usize, slot: usize) -> (usize, usize) {
        let (slot, slots) = if self.kind == KvType::Q4_0 { (slot % HALF, HALF) } else { (slot, PAGE) };
        let (size, group) = (self.kind.bits().div_ceil(8), first / WIDTH * WIDTH);
        let n = self.kind.side_by_side();
        let (at, stride) = if self.values {
            let width = WIDTH.min(self.head_dim - group);
            (group * slots + slot / n * n * width + n * (first - group) + slot % n, n)
        } else {
            (first / n * n * slots + n * slot + first % n, n * slots)
        };
        (at * size, stride)
    }
}

/// Rotates a head; latent vectors apart from what is behind them, so that they can be rotated back alone.
pub(super) fn rotate(kernels: &Kernels, head: &mut [f32], parts: [usize; 3]) {
    let mut rest = head;
    for border in parts.into_iter().rev() {
        let (before, part) = rest.split_at_mut(border.min(rest.len()));
        kernels.rotate(part);
        rest = before;
    }
    kernels.rotate(rest);
}

/// Where a head's parts begin that are rotated apart: what keys have behind a latent vector, what is left free behind keys, and
/// keys that choose positions. Behind the head where there are none.
pub(super) fn parts(spec: &PageSpec) -> [usize; 3] {
    let [end, index] = spec.index.unwrap_or([spec.head_dim; 2]);
    [spec.latent.unwrap_or(spec.head_dim), end, index]
}

/// Queries are rotated as keys are, or rounded to pairs.
pub(super) fn are_prepared(spec: &PageSpec) -> bool {
    spec.kv.keys.is_quantised() || spec.kv.keys.side_by_side() > 1
}

/// Slots whose elements are lower halves of bytes.
const HALF: usize = PAGE / 2;

impl Pages {
    pub(crate) fn new(spec: &PageSpec) -> Result<Self> {
        spec.checked_bytes()?;
        Ok(Self { spec: *spec, pages: Vec::new(), rotated: Vec::new(), latent: Vec::new() })
    }

    /// What a page keeps of a position.
    pub(crate) fn spec(&self) -> &PageSpec {
        &self.spec
    }

    /// Reserves memory for a page.
    pub(crate) fn add(&mut self, page: u32) -> Result<()> {
        let bytes = self.spec.checked_bytes()? + BYTES_BEHIND;
        let page = page as usize;
        let missing = (page + 1).saturating_sub(self.pages.len());
        let memory = self.pages.try_reserve(missing).and_then(|()| Lines::new(bytes)).map_err(too_large)?;
        self.pages.resize_with(self.pages.len() + missing, || None);
        self.pages[page] = Some(Page(memory));
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
        let at = |page: u32| page as usize;
        let [from, to] = self.pages.get_disjoint_mut([at(from), at(to)]).map_err(|_| absent())?;
        let (Some(from), Some(to)) = (from, to) else { return Err(absent()) };
        to.0.copy_from_slice(&from.0);
        Ok(())
    }

    /// Adds a page's keys and values to `out`; what lies behind the first `rows` positions as zeros.
    pub(crate) fn read(&self, kernels: &Kernels, page: u32, rows: usize, out: &mut Vec<u8>) -> Result<()> {
        let (spec, bytes) = (&self.spec, self.spec.checked_bytes()?);
        let page = Some(self.page(page)).filter(|page| page.len() >= bytes).ok_or_else(absent)?;
        let mut copy = Page(Lines::new(page.len()).map_err(too_large)?);
        copy.0.copy_from_slice(page);
        let (zeros, mut rotated) = (vec![0.0; spec.head_dim], vec![0.0; spec.head_dim]);
        let mut rest = &mut copy.0[..bytes];
        for values in [false, true].into_iter().filter(|values| !values || spec.latent.is_none()) {
            let (place, own);
            place = Place::of(spec, values);
            (own, rest) = rest.split_at_mut(spec.n_kv_heads * place.bytes());
            for head in own.chunks_exact_mut(place.bytes()) {
                (rows..PAGE).for_each(|slot| place.put(kernels, head, slot, &zeros, &mut rotated));
            }
        }
        out.extend_from_slice(&copy.0[..bytes]);
        Ok(())
    }

    /// Lets a page hold what was read of another one.
    pub(crate) fn write(&mut self, page: u32, from: &[u8]) -> Result<()> {
        let page = self.pages.get_mut(page as usize).and_then(Option::as_mut);
        let to = page.and_then(|page| page.0.get_mut(..from.len())).ok_or_else(absent)?;
        to.copy_from_slice(from);
        Ok(())
    }

    /// Adds the heads of queries to `to` as keys are kept: in pairs, or by `rotate`, or as they are.
    pub(super) fn queries<'q>(
        &self,
        kernels: &Kernels,
        heads: impl Iterator<Item = &'q [f32]>,
        to: &mut Vec<f32>,
        rotate: impl Fn(&mut [f32]),
    ) {
        for head in heads {
            let first = to.len();
            if self.spec.kv.keys.side_by_side() > 1 {
                to.resize(first + kernels.places(head.len()), 0.0);
                kernels.pair_up(head, &mut to[first..]);
                continue;
            }
            to.extend_from_slice(head);
            if self.spec.kv.keys.is_quantised() {
                rotate(&mut to[first..]);
            }
        }
    }

    /// What rows of keys and of values have.
    pub(crate) fn widths(&self) -> [usize; 2] {
        let PageSpec { n_kv_heads, head_dim, latent, index, .. } = self.spec;
        let key = index.map_or(head_dim, |[end, _]| end);
        latent.map_or([n_kv_heads * head_dim; 2], |rank| [key - rank, rank])
    }

    /// Writes the first elements of a position's key as numbers, each `stride` bytes behind the one before; rotated where
    /// they are kept so.
    pub(crate) fn spread_key(&self, page: u32, slot: usize, n: usize, to: &mut [u8], stride: usize) {
        let (page, place) = (self.page(page), Place::of(&self.spec, false));
        let byte = |at: usize| page.get(at).copied().unwrap_or_default();
        let two = |at: usize| half::f16::from_le_bytes([byte(at), byte(at + 1)]).to_f32();
        let mut scale = 0.0;
        for (element, to) in to.chunks_mut(stride).take(n).enumerate() {
            if place.kind.is_quantised() && element % BLOCK == 0 {
                scale = two(place.scales + 2 * (element / BLOCK * PAGE + slot));
            }
            let (at, _) = place.at(element, slot);
            let x = match place.kind {
                KvType::F16 => two(at),
                KvType::BF16 => half::bf16::from_le_bytes([byte(at), byte(at + 1)]).to_f32(),
                KvType::F32 => f32::from_le_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]),
                KvType::Q8_0 => scale * f32::from(byte(at) as i8),
                KvType::Q4_0 if slot < HALF => scale * f32::from((byte(at) << 4) as i8 >> 4),
                KvType::Q4_0 => scale * f32::from(byte(at) as i8 >> 4),
            };
            if let Some(to) = to.first_chunk_mut() {
                *to = x.to_le_bytes();
            }
        }
    }

    /// The keys of a page that choose positions.
    pub(crate) fn index_of(&self, page: u32) -> Stored<'_> {
        let (keys, _) = self.of(page, 0);
        let [_, at] = self.spec.index.unwrap_or_default();
        let bytes = keys.kind.element_bytes(at, PAGE);
        let scales = 2 * PAGE * keys.kind.scales(at);
        Stored {
            bytes: keys.bytes.get(bytes..).unwrap_or_default(),
            scales: keys.scales.get(scales..).unwrap_or_default(),
            kind: keys.kind,
        }
    }

    /// Stores consecutive rows `[rows, kv heads · head dim]` from position `start` on; `pages` are those of the blocks
    /// from the first row's on. A latent vector comes as the value, what keys have behind it as the key. `index` are the keys
    /// that choose positions.
    pub(crate) fn append(
        &mut self,
        (kernels, pool): (&Kernels, &Pool),
        start: usize,
        pages: &[u32],
        [all_k, all_v]: [&[f32]; 2],
        index: Option<&[f32]>,
    ) -> Result<()> {
        let (spec, [k_width, v_width]) = (self.spec, self.widths());
        let index_width = spec.index.map_or(0, |[_, at]| spec.head_dim - at);
        if spec.kv.are_quantised() && self.rotated.len() < pool.threads() {
            self.rotated.resize_with(pool.threads(), || Mutex::new(vec![0.0; spec.head_dim]));
        }
        let rows = all_k.chunks_exact(k_width).len().min(all_v.chunks_exact(v_width).len());
        let mut row = 0;
        while row < rows {
            let position = start + row;
            let slot = position % PAGE;
            let n = (PAGE - slot).min(rows - row);
            let page = pages.get(position / PAGE - start / PAGE);
            let page = page.and_then(|page| self.pages.get_mut(*page as usize));
            let Some(Some(Page(page))) = page else {
                return Err(Error::new(ErrorKind::Internal, "a row has no page for its keys and values"));
            };
            let (k, v) = (&all_k[row * k_width..][..n * k_width], &all_v[row * v_width..][..n * v_width]);
            let kv = if spec.latent.is_some() {
                let index = index.map(|keys| &keys[row * index_width..][..n * index_width]);
                join(&spec, [v, k, index.unwrap_or_default()], n, &mut self.latent);
                [&self.latent, &[][..]]
            } else {
                [k, v]
            };
            put((kernels, pool), &spec, page, slot, kv, &self.rotated);
            row += n;
        }
        Ok(())
    }

    /// A head's keys and values in a page.
    pub(crate) fn of(&self, page: u32, head: usize) -> (Stored<'_>, Stored<'_>) {
        let page = self.page(page);
        let keys = Place::of(&self.spec, false);
        let part = |values| {
            let place = Place::of(&self.spec, values);
            let before = if values { self.spec.n_kv_heads * keys.bytes() } else { 0 };
            let first = before + head * place.bytes();
            let (kind, n) = (place.kind, self.spec.head_dim);
            let scales = first + place.scales;
            let end = first + kind.element_bytes(n, PAGE) + BYTES_BEHIND;
            let (bytes, scales) =
                (page.get(first..end), page.get(scales..scales + 2 * PAGE * kind.scales(n)));
            Stored { bytes: bytes.unwrap_or_default(), scales: scales.unwrap_or_default(), kind }
        };
        (part(false), part(self.spec.latent.is_none()))
    }
}

/// Puts the parts of `n` rows' latent keys together: latent vectors, what keys have behind them, and keys that choose positions.
fn join(spec: &PageSpec, [latent, key, index]: [&[f32]; 3], n: usize, rows: &mut Vec<f32>) {
    let (dim, index_at) = (spec.head_dim, spec.index.map_or(spec.head_dim, |[_, at]| at));
    rows.clear();
    rows.resize(n * dim, 0.0);
    for (part, at) in [(latent, 0), (key, latent.len() / n), (index, index_at)] {
        let width = part.len() / n;
        for (row, part) in rows.chunks_exact_mut(dim).zip(part.chunks_exact(width.max(1))) {
            row[at..at + width].copy_from_slice(part);
        }
    }
}

/// Stores rows of all heads in a page, from a slot on; values where there are some apart from keys.
fn put(
    (kernels, pool): (&Kernels, &Pool),
    spec: &PageSpec,
    page: &mut [u8],
    slot: usize,
    [k, v]: [&[f32]; 2],
    rotated: &[Mutex<Vec<f32>>],
) {
    let (dim, heads) = (spec.head_dim, spec.n_kv_heads);
    let all = if v.is_empty() { heads } else { 2 * heads };
    let [keys, values] = [false, true].map(|values| Place::of(spec, values));
    let put = |own: usize, part: &mut [u8], thread: usize| {
        let mut rotated = rotated.get(thread).map(|own| own.lock().unwrap_or_else(PoisonError::into_inner));
        let rotated = rotated.as_deref_mut().map_or(&mut [][..], |own| own);
        let (place, rows, head) = if own < heads { (keys, k, own) } else { (values, v, own - heads) };
        for (slot, row) in (slot..).zip(rows.chunks_exact(heads * dim)) {
            place.put(kernels, part, slot, &row[head * dim..][..dim], rotated);
        }
    };
    let least = LEAST.div_ceil(k.len() / heads);
    // Keys' heads, then values', shared out at once where their parts are as long.
    let first = if keys.bytes() == values.bytes() { all } else { heads };
    let (parts, rest) = page.split_at_mut(first * keys.bytes());
    pool.rows(parts, keys.bytes(), least, put);
    if first < all {
        let parts = &mut rest[..(all - first) * values.bytes()];
        pool.rows(parts, values.bytes(), least, |own, part, thread| put(first + own, part, thread));
    }
}

impl Place {
    /// Stores a head's key or value in a slot of its part of a page.
    fn put(&self, kernels: &Kernels, part: &mut [u8], slot: usize, x: &[f32], rotated: &mut [f32]) {
        if self.kind.is_quantised() {
            rotated.copy_from_slice(x);
            rotate(kernels, rotated, self.parts);
            return self.put_blocks(kernels, part, slot, rotated);
        }
        for (group, x) in x.chunks(WIDTH).enumerate() {
            let (at, stride) = self.at(group * WIDTH, slot);
            let to = &mut part[at..];
            if self.kind == KvType::F32 {
                spread(x.iter().map(|x| x.to_le_bytes()), to, stride);
                continue;
            }
            let mut halves = [0u16; WIDTH];
            if self.kind == KvType::F16 {
                kernels.halve(x, &mut halves);
            } else {
                kernels.round_pairs(x, &mut halves);
            }
            if self.values || self.kind.side_by_side() == 1 {
                spread(halves[..x.len()].iter().map(|half| half.to_le_bytes()), to, stride);
            } else {
                let pairs = halves[..x.len().next_multiple_of(2)].as_chunks().0.iter();
                let bytes = |[a, b]: &[u16; 2]| (u32::from(*a) | u32::from(*b) << 16).to_le_bytes();
                spread(pairs.map(bytes), to, stride / 2);
            }
        }
    }

    /// Stores a rotated head's blocks.
    fn put_blocks(&self, kernels: &Kernels, part: &mut [u8], slot: usize, x: &[f32]) {
        for (block, x) in x.chunks(BLOCK).enumerate() {
            let (mut whole, mut integers) = ([0.0; BLOCK], [0; BLOCK]);
            whole[..x.len()].copy_from_slice(x);
            let scale = kernels.quantise(self.kind, &whole, &mut integers);
            let to = self.scales + 2 * (block * PAGE + slot);
            part[to..to + 2].copy_from_slice(&scale.to_le_bytes());
            let (at, stride) = self.at(block * BLOCK, slot);
            let to = part[at..].iter_mut().step_by(stride).zip(&integers[..x.len()]);
            match self.kind {
                KvType::Q4_0 if slot < HALF => to.for_each(|(to, x)| *to = *to & 0xf0 | *x as u8 & 0x0f),
                KvType::Q4_0 => to.for_each(|(to, x)| *to = *to & 0x0f | (*x as u8) << 4),
                _ => to.for_each(|(to, x)| *to = *x as u8),
            }
        }
    }
}

/// Stores elements so many elements apart.
fn spread<const N: usize>(from: impl Iterator<Item = [u8; N]>, to: &mut [u8], stride: usize) {
    let (to, mut at) = (to.as_chunks_mut().0, 0);
    for from in from {
        if let Some(to) = to.get_mut(at) {
            *to = from;
        }
        at += stride;
    }
}
