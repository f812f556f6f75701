//! How does the device blend residual streams, and cut gates off?

use super::device::Block;
use super::kernels::{Elementwise, Op};
use super::stream::Stream;
use super::{Buffer, Gpu, elementwise, params};
use crate::engine::backend::Blend;
use crate::error::Result;

/// Streams that a dispatch takes: as many as a kernel binds beside its other operands.
const FROM: usize = 4;

/// See [`Backend::blend`](crate::engine::backend::Backend::blend).
pub(super) fn blend(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &Blend<'_, Gpu>,
    rows: usize,
    out: &mut [Buffer],
) -> Result<()> {
    let n = op.by.width;
    for (i, out) in out.iter().enumerate() {
        for (part, from) in op.from.chunks(FROM).enumerate() {
            let first = (i * op.from.len() + part * FROM) * n;
            let params = params::Blend {
                width: out.width as u32,
                x_stride: from[0].stride(),
                out_stride: out.stride(),
                first: first as u32,
                n: n as u32,
                by_stride: op.by.stride(),
                plus: op.plus,
            };
            let [a, b, c, d] = std::array::from_fn(|at| from.get(at).map_or(&gpu.unread, |from| &from.block));
            let operands = [a, b, c, d, &op.by.block, op.weights, &out.block];
            let groups = [out.width.div_ceil(64), rows, 1];
            stream.dispatch(Op::blend(from.len() as u32), &operands, params, groups)?;
        }
    }
    Ok(())
}

/// See [`Backend::match_size`](crate::engine::backend::Backend::match_size).
pub(super) fn match_size(
    stream: &mut Stream,
    x: &Buffer,
    like: &Buffer,
    least: f32,
    rows: usize,
) -> Result<()> {
    let (width, y_stride, x_stride) = (x.width as u32, like.stride(), x.stride());
    let params = params::RowsAlone { width, y_stride, x_stride, number: least };
    stream.dispatch(Op::match_size(), &[&like.block, &x.block], params, [rows, 1, 1])
}

/// See [`Backend::scale_elements`](crate::engine::backend::Backend::scale_elements).
pub(super) fn scale_elements(stream: &mut Stream, x: &Buffer, by: &Block, rows: usize) -> Result<()> {
    elementwise(stream, Elementwise::Multiply, (by, 0), x.strided(), [rows, x.width], [0.0; 2])
}

/// See [`Backend::cut_off`](crate::engine::backend::Backend::cut_off).
pub(super) fn cut_off(stream: &mut Stream, x: &Buffer, deviations: f32, rows: usize) -> Result<()> {
    let params =
        params::RowsAlone { width: x.width as u32, y_stride: 0, x_stride: x.stride(), number: deviations };
    stream.dispatch(Op::cut_off(), &[&x.block], params, [rows, 1, 1])
}
