//! How does the device attend? The rows of all sequences of a step, by kernels that look up pages in a table.

#[cfg(test)]
mod tests;

use std::ops::Range;

use super::device::Block;
use super::kernels::{Heads, Op, attend_threads};
use super::matrix::grid;
use super::pages::Pages;
use super::stream::{Scratch, Stream};
use super::{Buffer, Gpu, choose, params, stride};
use crate::arch::{AttentionSpec, RopeLayout, Window};
use crate::engine::KvTypes;
use crate::engine::backend::{Attend, PAGE, PageSpec, Span, Spans, Turn};
use crate::error::{Error, ErrorKind, Result};

/// Elements of a head beyond which the queries of a tile are fewer, for them to fit a workgroup's memory.
const WIDE: usize = 256;

/// Workgroups that keep a large device busy.
const MIN_WORKGROUPS: usize = 256;

/// Partial results that there is memory for: of a row, a head and a split each.
const MAX_PARTIALS: usize = 1 << 15;

/// Spans of up to so many rows share a dispatch; longer ones do with those of like length.
const FEW_ROWS: usize = 8;

/// Buffers of the kernel that norms, rotates and keeps heads.
const TURNED_OPERANDS: usize = 11;

/// Words of a span in the table, see spans.wgsl.
const SPAN_WORDS: usize = 5;

/// What kernels look up: the spans by length, their pages, and the slot of each row. It is the same for all
/// layers that see as far.
pub(super) struct Table<'a> {
    spans: Vec<&'a Span>,
    words: Vec<u32>,
    /// Where pages and slots begin in it.
    pages: u32,
    slots: u32,
    rows: usize,
}

impl<'a> Table<'a> {
    pub(super) fn new(spans: &'a Spans) -> Result<Self> {
        let mut sorted: Vec<_> = spans.list.iter().filter(|span| !span.rows.is_empty()).collect();
        sorted.sort_by_key(|span| like(span));
        let rows: usize = sorted.iter().map(|span| span.rows.len()).sum();
        let mut words = Vec::with_capacity(SPAN_WORDS * sorted.len() + spans.pages.len() + rows);
        for span in &sorted {
            let of = [span.rows.start, span.rows.len(), span.start, span.first_block, span.pages.start];
            words.extend(of.map(|word| word as u32));
        }
        let pages = words.len() as u32;
        words.extend(&spans.pages);
        let slots = words.len() as u32;
        // Rows follow one another in the order in which spans were added.
        for span in &spans.list {
            let pages = spans.pages_of(span);
            for position in (span.start..).take(span.rows.len()) {
                let block = (position / PAGE).checked_sub(span.first_block);
                let page = block.and_then(|block| pages.get(block)).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, "a row has no page for its keys and values")
                })?;
                words.push(page * PAGE as u32 + (position % PAGE) as u32);
            }
        }
        Ok(Self { spans: sorted, words, pages, slots, rows })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }
}

/// What spans of like length have in common.
fn like(span: &Span) -> usize {
    span.rows.len().next_power_of_two().max(FEW_ROWS)
}

/// A step's attention in one layer.
struct Job<'a> {
    gpu: &'a Gpu,
    op: &'a Attend<'a, Gpu>,
    table: &'a Table<'a>,
    heads: Heads,
    kv: KvTypes,
    keys: &'a Block,
    values: &'a Block,
    /// Rotated, where keys are quantised, and their stride.
    q: (&'a Block, u32),
    /// Rotated, where values are quantised, and their stride.
    out: (&'a Block, u32),
}

/// See [`Backend::attend`](crate::engine::backend::Backend::attend).
pub(super) fn attend(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &Attend<'_, Gpu>,
    (q, rows, turned): (&Buffer, Option<[&Buffer; 2]>, Option<Turned<'_>>),
    pages: &Pages,
    out: &mut Buffer,
) -> Result<()> {
    let attention = op.attention;
    let table = &Table::new(op.spans)?;
    if table.rows == 0 {
        return Ok(());
    }
    let [keys, values] = pages.with(&op.spans.pages)?;
    let (head_dim, value_dim) = (attention.head_dim, attention.value_dim());
    out.width = attention.n_heads * value_dim;

    let (spec, kv) = (&pages.spec, pages.spec.kv);
    if let Some(rows) = rows {
        match (spec.latent, turned) {
            (Some(_), _) => write_parts(stream, spec, table, &[rows[1], rows[0]], keys)?,
            (None, Some(turned)) => turned.write(stream, spec, table, (q, rows), [keys, values])?,
            (None, None) => write(stream, spec, table, rows, [keys, values])?,
        }
    }
    let heads = [attention.n_heads, table.rows];
    let mut aside = |which, width: usize, quantised: bool| match quantised {
        true => {
            stream.scratch(which, table.rows * stride(width)).map(|room| Some((room, stride(width) as u32)))
        }
        false => Ok(None),
    };
    let queries = aside(Scratch::Queries, attention.query_width(), kv.keys.is_quantised())?;
    let results = aside(Scratch::Results, out.width, kv.values.is_quantised())?;
    if let Some((queries, stride)) = &queries {
        for part in parts(spec).into_iter().filter(|part| part.end <= head_dim) {
            rotate(stream, (part, head_dim), heads, q.strided(), (queries, *stride))?;
        }
    }
    let q = queries.as_ref().map_or(q.strided(), |(queries, stride)| (queries, *stride));
    let to = results.as_ref().map_or(out.strided(), |(results, stride)| (results, *stride));
    let shape = Heads {
        head_dim: head_dim as u32,
        value_dim: value_dim as u32,
        kept_dim: spec.head_dim as u32,
        latent: spec.latent.is_some(),
    };
    let values = if shape.latent { &gpu.unread } else { values };
    let mut whole = None;
    if let Some(chosen) = op.chosen.filter(|chosen| !chosen.rows.is_empty()) {
        if op.sinks.is_some() || attention.softcap.is_some() {
            return Err(Error::new(
                ErrorKind::Internal,
                "rows that see chosen positions have sinks, or a cap",
            ));
        }
        choose::attend(stream, (attention, op.spans, chosen), (pages, shape), q, to)?;
        whole = Some(choose::without(op.spans, chosen));
    }
    let of_whole = whole.as_ref().map(Table::new).transpose()?;
    let table = of_whole.as_ref().unwrap_or(table);
    let job = Job { gpu, op, table, heads: shape, kv, keys, values, q, out: to };
    let mut first = 0;
    for spans in table.spans.chunk_by(|a, b| like(a) == like(b)) {
        job.attend(stream, first, spans)?;
        first += spans.len();
    }
    results.map_or(Ok(()), |(results, stride)| {
        rotate(stream, (0..value_dim, value_dim), heads, (&results, stride), out.strided())
    })
}

/// The parts that a key is rotated in, each by itself: all of it, or the latent vector, what is behind it, and behind that
/// what chooses positions.
fn parts(spec: &PageSpec) -> Vec<Range<usize>> {
    let [end, index] = spec.index.unwrap_or([spec.head_dim; 2]);
    let rank = spec.latent.unwrap_or(end);
    [0..rank, rank..end, index..spec.head_dim].into_iter().filter(|part| !part.is_empty()).collect()
}

/// Writes a step's latent vectors, and what is behind them, into pages of keys.
pub(super) fn write_parts(
    stream: &mut Stream,
    spec: &PageSpec,
    table: &Table<'_>,
    rows: &[&Buffer],
    pages: &Block,
) -> Result<()> {
    let (kept, kind) = (spec.head_dim as u32, spec.kv.keys);
    for (part, x) in parts(spec).into_iter().zip(rows) {
        let (words, at) = stream.shared_table(&table.words)?;
        let (x_stride, slots, first) = (x.stride(), at + table.slots, part.start as u32);
        let operands = [&x.block, &*words, pages];
        if kind.is_quantised() {
            let params =
                params::CacheQuantise { n_kv: 1, x_stride, slots, first, factor: factor(part.len()) };
            let op = Op::cache_quantise(part.len() as u32, kept, kind, false);
            stream.dispatch(op, &operands, params, [1, table.rows, 1])?;
        } else {
            let params = params::CachePart { rows: table.rows as u32, x_stride, slots, first };
            let groups = [part.len().div_ceil(16), table.rows.div_ceil(8), 1];
            stream.dispatch(Op::cache_part(part.len() as u32, kept, kind), &operands, params, groups)?;
        }
    }
    Ok(())
}

/// Writes a step's keys and values into pages.
fn write(
    stream: &mut Stream,
    spec: &PageSpec,
    table: &Table<'_>,
    rows: [&Buffer; 2],
    pages: [&Block; 2],
) -> Result<()> {
    let (head_dim, n_kv, kv) = (spec.head_dim as u32, spec.n_kv_heads, spec.kv);
    let kinds = [kv.keys, kv.values];
    if !kinds.iter().all(|kind| kind.is_quantised()) {
        let [k_stride, v_stride] = rows.map(Buffer::stride);
        let (words, at) = stream.shared_table(&table.words)?;
        let slots = at + table.slots;
        let params =
            params::CacheWrite { rows: table.rows as u32, n_kv: n_kv as u32, k_stride, v_stride, slots };
        let operands = [&rows[0].block, &rows[1].block, &words, pages[0], pages[1]];
        let groups = [(n_kv * spec.head_dim).div_ceil(16), table.rows.div_ceil(8), 1];
        stream.dispatch(Op::cache_write(head_dim, kv), &operands, params, groups)?;
    }
    for (part, kind) in kinds.into_iter().enumerate().filter(|(_, kind)| kind.is_quantised()) {
        let (x_stride, factor) = (rows[part].stride(), factor(spec.head_dim));
        // Each dispatch asks for it: those before may have been sent.
        let (words, at) = stream.shared_table(&table.words)?;
        let slots = at + table.slots;
        let params = params::CacheQuantise { n_kv: n_kv as u32, x_stride, slots, first: 0, factor };
        let operands = [&rows[part].block, &words, pages[part]];
        let op = Op::cache_quantise(head_dim, head_dim, kind, part == 1);
        stream.dispatch(op, &operands, params, [n_kv, table.rows, 1])?;
    }
    Ok(())
}

/// How one kernel norms, rotates and keeps heads.
pub(super) struct Turned<'a> {
    gpu: &'a Gpu,
    /// Weights of queries', keys' and values' norms.
    norms: [Option<&'a Block>; 3],
    eps: f32,
    /// By what queries and keys are rotated, both alike but for the numbers.
    angles: Option<[&'a Buffer; 2]>,
    pairs: bool,
    n_heads: usize,
}

impl<'a> Turned<'a> {
    /// `None` where nothing is to be done to heads, or one kernel is not enough: for many rows, keys and values that are
    /// quantised or of different sizes, queries that are normed or rotated where keys are not, and devices that bind few
    /// buffers.
    pub(super) fn new(
        gpu: &'a Gpu,
        attention: &AttentionSpec,
        (turns, rows): (&[Option<Turn<'a, Gpu>>; 3], usize),
        spec: &PageSpec,
    ) -> Option<Self> {
        let kinds = [spec.kv.keys, spec.kv.values];
        let same_size = spec.head_dim == attention.head_dim && attention.value_dim() == attention.head_dim;
        if gpu.device.binds() < TURNED_OPERANDS || spec.latent.is_some() || !same_size {
            return None;
        }
        let none = turns.iter().all(Option::is_none);
        if none || rows > FEW_ROWS || kinds.iter().any(|kind| kind.is_quantised()) {
            return None;
        }
        let [q, k, v] = turns.each_ref().map(Option::as_ref);
        let angles = |turn: Option<&Turn<'a, Gpu>>| turn.and_then(|turn| turn.angles);
        let way =
            |turn: Option<&Turn<'_, Gpu>>| turn.and_then(|turn| Some((turn.angles?.width, turn.op.layout)));
        let norms = [q, k, v].map(|turn| turn.and_then(|turn| turn.op.norm));
        let whole = |turn: &Turn<'_, Gpu>| turn.op.plain == 0 && turn.op.head_dim == spec.head_dim;
        let alike = way(q) == way(k) && way(v).is_none() && norms[0].is_some() == norms[1].is_some();
        let mut eps = norms.iter().flatten().map(|norm| norm.1);
        let first = eps.next().unwrap_or(0.0);
        if !alike || ![q, k, v].into_iter().flatten().all(whole) || eps.any(|eps| eps != first) {
            return None;
        }
        Some(Self {
            gpu,
            norms: norms.map(|norm| norm.map(|norm| norm.0)),
            eps: first,
            angles: angles(q).zip(angles(k)).map(Into::into),
            pairs: q.is_some_and(|turn| turn.op.layout == RopeLayout::Pairs),
            n_heads: attention.n_heads,
        })
    }

    fn write(
        &self,
        stream: &mut Stream,
        spec: &PageSpec,
        table: &Table<'_>,
        (q, rows): (&Buffer, [&Buffer; 2]),
        pages: [&Block; 2],
    ) -> Result<()> {
        let (n_kv, n_heads) = (spec.n_kv_heads, self.n_heads);
        let (words, at) = stream.shared_table(&table.words)?;
        let params = params::KeepHeads {
            n_heads: n_heads as u32,
            n_kv: n_kv as u32,
            half: self.angles.map_or(0, |[angles, _]| angles.width as u32 / 2),
            angles_stride: self.angles.map_or(0, |[angles, _]| angles.stride()),
            q_stride: q.stride(),
            k_stride: rows[0].stride(),
            v_stride: rows[1].stride(),
            slots: at + table.slots,
            eps: self.eps,
        };
        let [q_angles, k_angles] =
            self.angles.map_or([&self.gpu.unread; 2], |angles| angles.map(|angles| &angles.block));
        let [q_norm, k_norm, v_norm] = self.norms.map(|norm| norm.unwrap_or(&self.gpu.unread));
        let [k, v] = rows.map(|rows| &rows.block);
        let operands: [_; TURNED_OPERANDS] =
            [k, v, q_angles, k_angles, q_norm, k_norm, v_norm, &words, &q.block, pages[0], pages[1]];
        let norms = [self.norms[0].is_some(), self.norms[2].is_some()];
        let op = Op::keep_heads(spec.head_dim as u32, spec.kv, norms, self.pairs);
        stream.dispatch(op, &operands, params, [n_heads + 2 * n_kv, table.rows, 1])
    }
}

/// Rotates a part of heads `[heads, rows]`, which have so many elements, of `x` to `out`, which come with their strides.
pub(super) fn rotate(
    stream: &mut Stream,
    (part, of_head): (Range<usize>, usize),
    [heads, rows]: [usize; 2],
    (x, x_stride): (&Block, u32),
    (out, out_stride): (&Block, u32),
) -> Result<()> {
    let (of_head, first) = (of_head as u32, part.start as u32);
    let params = params::Rotate { of_head, first, x_stride, out_stride, factor: factor(part.len()) };
    stream.dispatch(Op::rotate(part.len() as u32), &[x, out], params, [heads, rows, 1])
}

/// What makes a head's sums and differences a rotation, see hadamard.wgsl.
fn factor(head_dim: usize) -> f32 {
    ((1u32 << head_dim.trailing_zeros()).min(256) as f32).sqrt().recip()
}

impl Job<'_> {
    /// Attends with some spans, the first of which is number `first` of the table.
    fn attend(&self, stream: &mut Stream, first: usize, spans: &[&Span]) -> Result<()> {
        let attention = self.op.attention;
        let (n_heads, n_kv, head_dim) = (attention.n_heads, attention.n_kv_heads, attention.head_dim);
        let value_dim = attention.value_dim();
        let threads = attend_threads(value_dim as u32) as usize;
        let rows = spans.iter().map(|span| span.rows.len()).max().unwrap_or(0);
        let queries = |rows: usize| rows * (n_heads / n_kv);
        let together = if queries(rows) <= 4 || head_dim > WIDE { 4 } else { 8 };
        let tiles = |rows: usize| queries(rows).div_ceil(together);
        // Positions from the block of the oldest one that any row sees.
        let seen = |span: &Span| {
            let oldest = attention.window.map_or(0, |window| window.first(span.start));
            span.start + span.rows.len() - oldest / threads * threads
        };
        let longest = spans.iter().map(|span| seen(span)).max().unwrap_or(0);
        let work: usize = spans.iter().map(|span| seen(span) * tiles(span.rows.len())).sum();
        // Splits of two blocks of keys at least, and no more than keep the device busy.
        let split_len = (work * n_kv).div_ceil(MIN_WORKGROUPS).max(2 * threads);
        let results = spans.len() * rows * n_heads;
        let n_splits = longest.div_ceil(split_len).min(MAX_PARTIALS / results).max(1);
        let split_len = longest.div_ceil(n_splits).next_multiple_of(threads);
        let n_splits = longest.div_ceil(split_len);
        let partials = match n_splits {
            1 => None,
            n => Some(stream.scratch(Scratch::Partials, results * n * (2 + value_dim))?),
        };
        let params = |at: u32| params::Attend {
            spans: at + (SPAN_WORDS * first) as u32,
            n_spans: spans.len() as u32,
            rows: rows as u32,
            pages: at + self.table.pages,
            n_heads: n_heads as u32,
            n_kv: n_kv as u32,
            window: attention.window.map_or(0, Window::size) as u32,
            chunks: matches!(attention.window, Some(Window::Chunk(_))).into(),
            q_stride: self.q.1,
            out_stride: self.out.1,
            scale: attention.scale,
            cap: attention.softcap.unwrap_or(1.0),
            split_len: split_len as u32,
            n_splits: n_splits as u32,
        };
        let (has_sinks, sinks) = (self.op.sinks.is_some(), self.op.sinks.unwrap_or(&self.gpu.unread));
        let capped = attention.softcap.is_some();
        let kind = Op::attend(self.heads, self.kv, together as u32, capped, has_sinks);
        let to = partials.as_deref().unwrap_or(&self.gpu.unwritten);
        let (words, at) = stream.shared_table(&self.table.words)?;
        let operands = [self.q.0, self.keys, self.values, sinks, &words, self.out.0, to];
        let [across, down] = grid(spans.len() * tiles(rows));
        stream.dispatch(kind, &operands, params(at), [n_kv * n_splits, across, down])?;
        if let Some(partials) = partials {
            let (words, at) = stream.shared_table(&self.table.words)?;
            let operands = [&*partials, sinks, &words, self.out.0];
            let groups = [n_heads, spans.len() * rows, 1];
            stream.dispatch(Op::attend_combine(self.heads, has_sinks), &operands, params(at), groups)?;
        }
        let pairs: usize = spans.iter().map(|span| seen(span) * span.rows.len()).sum();
        stream.weigh(2 * pairs * n_heads * head_dim)
    }
}
