//! How does a row attend to its sequence's pages on a device? Scores of all positions, those it does not see masked, softmax,
//! and the weighted sum of the values.

use std::ops::Range;

use candle_core::{DType, Device, Result as CandleResult, Tensor};
use candle_nn::ops;

use super::chosen::Chosen;
use super::{Buffer, Tensors, failed, softcap};
use crate::engine::backend::{Attend, Choose, PAGE, PageSpec, Span, blank_behind};
use crate::engine::{KvType, KvTypes};
use crate::error::{Error, ErrorKind, Result};

/// Scores computed at a time: bounds their memory for a long prompt, which is of what plans keep free. Small in tests, so
/// that short prompts pass through in several blocks of rows too.
pub(super) const SCORES: usize = if cfg!(test) { 1 << 12 } else { 1 << 23 };

/// Keys and values of one layer: pages by number, none where a page has no memory.
pub(crate) struct Pages {
    spec: PageSpec,
    pages: Vec<Option<Page>>,
}

/// Keys and values, `[kv head, position, head dim]`; of latent vectors keys alone, which have them in front.
type Page = Vec<Tensor>;

/// The blocks of positions of a sequence, where they are stored.
pub(super) struct Stored<'a> {
    pages: &'a Pages,
    first_block: usize,
    /// Their pages.
    numbers: &'a [u32],
}

/// `Ok` where the device keeps and reads bfloat16, as older ones do not.
pub(super) fn check_bfloat16(device: &Device) -> Result<()> {
    let tried = || {
        let store = Tensor::zeros((1, 2, 2), DType::BF16, device)?;
        let kept = Tensor::ones((1, 1, 2), DType::F32, device)?.to_dtype(DType::BF16)?;
        store.slice_set(&kept, 1, 1)?;
        store.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()
    };
    tried().map(drop).map_err(|error| {
        let message = "expected a device that has bfloat16, for keys and values in bf16";
        Error::argument("kv", message).with_hint("keep them in f16").with_source(error)
    })
}

impl Pages {
    pub(super) fn new(spec: &PageSpec) -> Result<Self> {
        spec.checked_bytes()?;
        Ok(Self { spec: *spec, pages: Vec::new() })
    }

    pub(super) fn add(&mut self, device: &Device, page: u32) -> Result<()> {
        let store = |kv: KvType| {
            let dtype = match kv {
                KvType::F16 => DType::F16,
                KvType::BF16 => DType::BF16,
                KvType::F32 => DType::F32,
                KvType::Q8_0 | KvType::Q4_0 => {
                    let message = format!("keys and values in {kv} came to an engine without them");
                    return Err(Error::new(ErrorKind::Internal, message));
                }
            };
            let shape = (self.spec.n_kv_heads, PAGE, self.spec.head_dim);
            Tensor::zeros(shape, dtype, device).map_err(failed)
        };
        let KvTypes { keys, values } = self.spec.kv;
        let kinds = [keys, values].into_iter().take(if self.spec.latent.is_some() { 1 } else { 2 });
        let (page, stores) = (page as usize, kinds.map(store).collect::<Result<_>>()?);
        self.pages.resize_with(self.pages.len().max(page + 1), || None);
        self.pages[page] = Some(stores);
        Ok(())
    }

    pub(super) fn release(&mut self, page: u32) {
        if let Some(page) = self.pages.get_mut(page as usize) {
            *page = None;
        }
    }

    pub(super) fn copy(&mut self, from: u32, to: u32) -> CandleResult<()> {
        let copy = self.page(from)?.iter().map(Tensor::copy).collect::<CandleResult<_>>()?;
        self.page(to)?;
        self.pages[to as usize] = Some(copy);
        Ok(())
    }

    /// Adds a page's keys and values to `out`; what lies behind the first `rows` positions as zeros.
    pub(super) fn read(&self, page: u32, rows: usize, out: &mut Vec<u8>) -> CandleResult<()> {
        for store in self.page(page)? {
            let (start, all) = (out.len(), store.flatten_all()?);
            match all.dtype() {
                DType::F16 => {
                    out.extend(all.to_vec1::<half::f16>()?.into_iter().flat_map(half::f16::to_le_bytes))
                }
                DType::BF16 => {
                    out.extend(all.to_vec1::<half::bf16>()?.into_iter().flat_map(half::bf16::to_le_bytes))
                }
                _ => out.extend(all.to_vec1::<f32>()?.into_iter().flat_map(f32::to_le_bytes)),
            }
            blank_behind(&mut out[start..], self.spec.head_dim * store.dtype().size_in_bytes(), rows);
        }
        Ok(())
    }

    /// Lets a page hold what was read of another one.
    pub(super) fn write(&mut self, device: &Device, page: u32, from: &[u8]) -> CandleResult<()> {
        let mut rest = from;
        let mut of = |like: &Tensor| {
            let (own, behind) = rest.split_at(like.elem_count() * like.dtype().size_in_bytes());
            rest = behind;
            Tensor::from_raw_buffer(own, like.dtype(), like.dims(), device)
        };
        let read = self.page(page)?.iter().map(&mut of).collect::<CandleResult<_>>()?;
        self.pages[page as usize] = Some(read);
        Ok(())
    }

    fn page(&self, page: u32) -> CandleResult<&Page> {
        match self.pages.get(page as usize) {
            Some(Some(page)) => Ok(page),
            _ => candle_core::bail!("expected page {page} of keys and values to have memory"),
        }
    }
}

impl Stored<'_> {
    fn page(&self, position: usize) -> CandleResult<&Page> {
        let block = (position / PAGE).checked_sub(self.first_block);
        match block.and_then(|block| self.numbers.get(block)) {
            Some(page) => self.pages.page(*page),
            None => candle_core::bail!("expected a page for position {position}"),
        }
    }

    /// Stores rows `[row, kv heads · head dim]` from position `start` on, with the keys that choose positions where there are
    /// some.
    fn append(&self, start: usize, [k, v]: [&Tensor; 2], index: Option<&Tensor>) -> CandleResult<()> {
        let n = k.dim(0)?;
        let latent = match self.pages.spec.latent {
            Some(_) => Some(Tensor::cat(&[v, k], 1)?),
            None => None,
        };
        let latent = match (latent, index, self.pages.spec.index) {
            (Some(latent), Some(index), Some([end, at])) => {
                let between = latent.pad_with_zeros(1, 0, at - end)?;
                Some(Tensor::cat(&[&between, index], 1)?)
            }
            (latent, ..) => latent,
        };
        let k = latent.as_ref().unwrap_or(k);
        let mut row = 0;
        while row < n {
            let (page, slot) = (self.page(start + row)?, (start + row) % PAGE);
            let rows = (PAGE - slot).min(n - row);
            for (store, from) in page.iter().zip([k, v]) {
                let (kv_heads, _, dim) = store.dims3()?;
                let from = from.narrow(0, row, rows)?.reshape((rows, kv_heads, dim))?.transpose(0, 1)?;
                store.slice_set(&from.to_dtype(store.dtype())?.contiguous()?, 1, slot)?;
            }
            row += rows;
        }
        Ok(())
    }

    /// Keys and values of these positions, `[kv head, position, head dim]` in f32.
    fn read(&self, positions: Range<usize>) -> CandleResult<[Tensor; 2]> {
        let of = |part: usize, elements: usize| {
            self.part(part, &positions)?.narrow(2, 0, elements)?.contiguous()?.to_dtype(DType::F32)
        };
        let dim = self.pages.spec.head_dim;
        let keys = of(0, self.pages.spec.index.map_or(dim, |[end, _]| end))?;
        let values = match self.pages.spec.latent {
            Some(rank) => keys.narrow(2, 0, rank)?.contiguous()?,
            None => of(1, dim)?,
        };
        Ok([keys, values])
    }

    /// Keys or values of these positions, as they are kept.
    fn part(&self, part: usize, positions: &Range<usize>) -> CandleResult<Tensor> {
        let first = positions.start / PAGE * PAGE;
        let pages = (first..positions.end).step_by(PAGE).map(|at| Ok(&self.page(at)?[part]));
        let pages = pages.collect::<CandleResult<Vec<_>>>()?;
        Tensor::cat(&pages, 1)?.narrow(1, positions.start - first, positions.len())
    }

    /// The keys of one head, which latent vectors are in front of, `[position, head dim]` as they are kept.
    pub(super) fn keys(&self, positions: Range<usize>) -> CandleResult<Tensor> {
        let spec = &self.pages.spec;
        let dim = spec.index.map_or(spec.head_dim, |[end, _]| end);
        self.part(0, &positions)?.squeeze(0)?.narrow(1, 0, dim)?.contiguous()
    }

    /// The keys that choose positions, `[position, element]` in f32.
    pub(super) fn index(&self, positions: Range<usize>) -> CandleResult<Tensor> {
        let Some([_, at]) = self.pages.spec.index else {
            candle_core::bail!("expected keys that choose positions, found none");
        };
        let keys = self.part(0, &positions)?.squeeze(0)?;
        keys.narrow(1, at, self.pages.spec.head_dim - at)?.contiguous()?.to_dtype(DType::F32)
    }
}

/// Positions that a row of the span sees.
fn seen(op: &Attend<'_, Tensors>, span: &Span, row: usize) -> Range<usize> {
    let end = span.start + row + 1;
    op.attention.window.map_or(0, |window| window.first(end - 1))..end
}

/// Stores a span's keys and values, where some are given, then attends to everything its rows see. `out` takes the result in the
/// span's rows.
pub(super) fn attend(
    op: &Attend<'_, Tensors>,
    at: usize,
    (q, kv): (Tensor, Option<[Tensor; 2]>),
    pages: &Pages,
    out: &Tensor,
) -> CandleResult<()> {
    let span = &op.spans.list[at];
    let stored = Stored { pages, first_block: span.first_block, numbers: op.spans.pages_of(span) };
    if let Some([k, v]) = &kv {
        stored.append(span.start, [k, v], None)?;
    }
    let mut rows = span.rows.len();
    if let Some(chosen) = op.chosen {
        chosen.attend(op, at, &stored, &q, out)?;
        rows = chosen.whole(span);
    }
    if rows == 0 {
        return Ok(());
    }
    let spec = op.attention;
    let (kv_heads, group, dim) = (spec.n_kv_heads, spec.n_heads / spec.n_kv_heads, spec.head_dim);
    let q = (q.narrow(0, 0, rows)? * f64::from(spec.scale))?;
    let q = q.reshape((rows, kv_heads, group, dim))?.permute((1, 2, 0, 3))?;
    // Of all rows, as reading copies.
    let positions = seen(op, span, 0).start..seen(op, span, rows - 1).end;
    let kv = stored.read(positions.clone())?;
    let step = (SCORES / (spec.n_heads * positions.len())).max(1);
    for first in (0..rows).step_by(step) {
        let block = first..rows.min(first + step);
        let q = q.narrow(2, first, block.len())?.contiguous()?;
        let attended = attend_block(op, span, block, &q, (positions.clone(), &kv))?;
        out.slice_set(&attended, 0, span.rows.start + first)?;
    }
    Ok(())
}

/// Stores all spans' keys and values, then chooses the positions of rows that do not see all.
pub(super) fn choose(op: &Choose<'_, Tensors>, pages: &Pages, out: &mut Chosen) -> CandleResult<()> {
    out.clear(op.index.most);
    for (at, span) in op.spans.list.iter().enumerate() {
        let rows = |x: &Buffer| x.rows(span.rows.start, span.rows.len());
        let stored = Stored { pages, first_block: span.first_block, numbers: op.spans.pages_of(span) };
        let [k, v] = op.kv;
        stored.append(span.start, [&rows(k)?, &rows(v)?], Some(&rows(op.key)?))?;
        out.choose(op, at, &stored, [&rows(op.query)?, &rows(op.weights)?])?;
    }
    Ok(())
}

/// `q` is `[kv head, query head of it, row of the block, head dim]`, scaled; the result `[row, heads · head dim]`. What rows do
/// not see of the positions is masked.
fn attend_block(
    op: &Attend<'_, Tensors>,
    span: &Span,
    block: Range<usize>,
    q: &Tensor,
    (positions, [keys, values]): (Range<usize>, &[Tensor; 2]),
) -> CandleResult<Tensor> {
    let (kv_heads, group, rows, dim) = q.dims4()?;
    let n = positions.len();
    let mut scores = q.reshape((kv_heads, group * rows, dim))?.matmul(&keys.t()?)?;
    if let Some(cap) = op.attention.softcap {
        scores = softcap(&scores, cap)?;
    }
    let mask = block.flat_map(|row| {
        let seen = seen(op, span, row);
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
    let attended = weights.reshape((kv_heads, group * rows, n))?.matmul(values)?;
    let dim = op.attention.value_dim();
    let attended = attended.reshape((kv_heads, group, rows, dim))?.permute((2, 0, 1, 3))?;
    attended.contiguous()?.reshape((rows, kv_heads * group * dim))
}
