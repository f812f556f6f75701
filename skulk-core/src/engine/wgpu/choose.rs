//! Which positions do rows see where they may not see all, and how do they attend to them? Chosen on the device, and kept
//! there until the layers that take them are computed.

use super::attention::{self, Table};
use super::device::Block;
use super::kernels::{Heads, Op, attend_threads};
use super::pages::Pages;
use super::stream::{Scratch, Stream};
use super::{Buffer, Gpu, params, stride};
use crate::arch::AttentionSpec;
use crate::engine::backend::{Choose, Chosen, Spans};
use crate::error::Result;

/// Scores that there is memory for, unless one row has more: rows are done with some at a time.
const MAX_SCORES: usize = 1 << 22;

/// Elements of queries that a workgroup has at a time: half of its memory.
const TOGETHER: usize = 2048;

/// Positions of a workgroup that finds scores.
const POSITIONS: usize = 64;

/// What kernels look up, see choosers.wgsl: page numbers, then rows.
struct Choosers {
    words: Vec<u32>,
    /// Where rows begin in it.
    rows: u32,
}

impl Choosers {
    fn new(spans: &Spans, chosen: &Chosen) -> Self {
        let mut words = Vec::with_capacity(spans.pages.len() + 3 * chosen.rows.len());
        words.extend(&spans.pages);
        for (row, span) in &chosen.rows {
            let span = &spans.list[*span];
            let positions = span.start + row - span.rows.start + 1;
            words.extend([*row, positions, span.pages.start].map(|word| word as u32));
        }
        Self { words, rows: spans.pages.len() as u32 }
    }
}

/// See [`Backend::choose`](crate::engine::backend::Backend::choose).
pub(super) fn choose(
    stream: &mut Stream,
    op: &Choose<'_, Gpu>,
    pages: &Pages,
    out: &mut Chosen,
) -> Result<()> {
    let (index, spec) = (op.index, &pages.spec);
    let table = Table::new(op.spans)?;
    let [keys, _] = pages.with(&op.spans.pages)?;
    attention::write_parts(stream, spec, &table, &[op.kv[1], op.kv[0], op.key], keys)?;
    out.most = index.most;
    out.rows.clear();
    out.positions.clear();
    for (at, span) in op.spans.list.iter().enumerate() {
        let first = index.most.saturating_sub(span.start).min(span.rows.len());
        out.rows.extend((span.rows.start + first..span.rows.end).map(|row| (row, at)));
    }
    if out.rows.is_empty() {
        return Ok(());
    }
    let heads = [index.n_heads, table.rows()];
    let mut rotated = None;
    if spec.kv.keys.is_quantised() {
        let width = stride(op.query.width);
        let to = stream.scratch(Scratch::Queries, table.rows() * width)?;
        let part = (0..index.head_dim, index.head_dim);
        attention::rotate(stream, part, heads, op.query.strided(), (&to, width as u32))?;
        rotated = Some((to, width as u32));
    }
    let (q, q_stride) = rotated.as_ref().map_or(op.query.strided(), |(to, stride)| (&**to, *stride));
    let choosers = Choosers::new(op.spans, out);
    let longest = op.spans.list.iter().map(|span| span.start + span.rows.len()).max().unwrap_or(0);
    let width = longest.next_multiple_of(POSITIONS);
    let at_once = (MAX_SCORES / width).clamp(1, out.rows.len());
    let scores = stream.scratch(Scratch::Scores, at_once * width)?;
    let positions = stream.scratch(Scratch::Positions, out.rows.len() * index.most)?;
    let together = (TOGETHER / index.head_dim).clamp(1, 16) as u32;
    let kept = [index.head_dim, spec.head_dim].map(|n| n as u32);
    let first = (spec.head_dim - index.head_dim) as u32;
    for from_row in (0..out.rows.len()).step_by(at_once) {
        let n = at_once.min(out.rows.len() - from_row);
        let params = |at: u32| params::Choose {
            pages: at,
            rows: at + choosers.rows,
            from_row: from_row as u32,
            n_heads: index.n_heads as u32,
            first,
            q_stride,
            weights_stride: op.weights.stride(),
            out_stride: width as u32,
            most: index.most as u32,
        };
        let (words, at) = stream.shared_table(&choosers.words)?;
        let operands = [q, &op.weights.block, keys, &words, &scores];
        let kind = Op::scores(kept, spec.kv.keys, together);
        stream.dispatch(kind, &operands, params(at), [width / POSITIONS, n, 1])?;
        // Those before may have been sent.
        let (words, at) = stream.shared_table(&choosers.words)?;
        stream.dispatch(Op::choose(), &[&*scores, &words, &positions], params(at), [n, 1, 1])?;
        stream.weigh(n * width * index.n_heads * index.head_dim)?;
    }
    Ok(())
}

/// The spans' rows that see all positions before them.
pub(super) fn without(spans: &Spans, chosen: &Chosen) -> Spans {
    let mut whole = spans.clone();
    for span in &mut whole.list {
        span.rows.end = span.rows.start + chosen.most.saturating_sub(span.start).min(span.rows.len());
    }
    whole
}

/// Attends to the positions that were chosen for rows; queries and results come with their strides.
pub(super) fn attend(
    stream: &mut Stream,
    (attention, spans, chosen): (&AttentionSpec, &Spans, &Chosen),
    (pages, heads): (&Pages, Heads),
    (q, q_stride): (&Block, u32),
    (out, out_stride): (&Block, u32),
) -> Result<()> {
    let choosers = Choosers::new(spans, chosen);
    let positions = stream.scratch(Scratch::Positions, chosen.rows.len() * chosen.most)?;
    let (words, at) = stream.shared_table(&choosers.words)?;
    let params = params::AttendChosen {
        pages: at,
        rows: at + choosers.rows,
        n_heads: attention.n_heads as u32,
        q_stride,
        out_stride,
        most: chosen.most as u32,
        scale: attention.scale,
    };
    let [keys, _] = pages.with(&spans.pages)?;
    let kind = Op::attend_chosen(heads, pages.spec.kv.keys, attend_threads(heads.value_dim));
    let operands = [q, keys, &positions, &words, out];
    let groups = [attention.n_heads.div_ceil(4), chosen.rows.len(), 1];
    stream.dispatch(kind, &operands, params, groups)?;
    stream.weigh(2 * chosen.rows.len() * chosen.most * attention.n_heads * attention.head_dim)
}

/// See [`Backend::layer_norm`](crate::engine::backend::Backend::layer_norm).
pub(super) fn layer_norm(
    stream: &mut Stream,
    ([weight, bias], eps): ([&Block; 2], f32),
    rows: usize,
    x: &Buffer,
) -> Result<()> {
    let params = params::RowsAlone { width: x.width as u32, y_stride: 0, x_stride: x.stride(), number: eps };
    stream.dispatch(Op::layer_norm(), &[weight, bias, &x.block], params, [rows, 1, 1])
}
