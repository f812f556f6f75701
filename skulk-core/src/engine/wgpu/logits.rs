//! How does the device find the largest logits of rows?

use super::kernels::{Elementwise, Op, SLICE};
use super::stream::{Scratch, Stream};
use super::{Buffer, Gpu, elementwise, params, stride};
use crate::engine::backend::{Head, TopLogits};
use crate::error::Result;
use crate::ids::TokenId;

/// The largest list of logits that the device makes; longer ones are made on the host.
const MAX_TOP: usize = 64;

/// See [`Backend::top`](crate::engine::backend::Backend::top).
pub(super) fn top(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &Head<'_, Gpu>,
    x: &Buffer,
    rows: usize,
    out: TopLogits<'_>,
) -> Result<()> {
    let (n, k, stride) = (op.n_vocab, out.k, stride(op.n_vocab));
    let all = stream.scratch(Scratch::Logits, rows * stride)?;
    op.matrix.multiply(gpu, stream, x, rows, (&all, stride as u32))?;
    if let Some(cap) = op.softcap {
        let y = (&gpu.unread, 0);
        elementwise(stream, Elementwise::Softcap, y, (&all, stride as u32), [rows, n], [cap, 0.0])?;
    }
    if k > MAX_TOP {
        let mut host = vec![0.0; rows * stride];
        stream.read(&[(&all, rows * stride)], |_, i, word| host[i] = f32::from_bits(word))?;
        out.list(host.chunks_exact(stride).map(|row| &row[..n]));
        return Ok(());
    }
    let slices = n.div_ceil(SLICE as usize);
    let mut scratch = |which, lists| stream.scratch(which, rows * lists * k);
    let (slice_values, slice_ids) =
        (scratch(Scratch::SliceValues, slices)?, scratch(Scratch::SliceIds, slices)?);
    let (values, found) = (scratch(Scratch::TopValues, 1)?, scratch(Scratch::TopIds, 1)?);
    let params = params::Top { n: n as u32, stride: stride as u32, k: k as u32, n_slices: slices as u32 };
    let operands = [&*all, &gpu.unread, &slice_values, &slice_ids];
    stream.dispatch(Op::top(0), &operands, params, [slices, rows, 1])?;
    let operands = [&*slice_values, &slice_ids, &values, &found];
    stream.dispatch(Op::top(1), &operands, params, [1, rows, 1])?;
    stream.read(&[(&values, rows * k), (&found, rows * k)], |part, i, word| match part {
        0 => out.logits[i] = f32::from_bits(word),
        _ => out.ids[i] = TokenId(word),
    })
}
