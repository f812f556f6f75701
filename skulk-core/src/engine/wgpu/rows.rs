//! Where do rows of activations lie, and what does the device do to each by itself? Norms, rotations, gates.

use super::device::Block;
use super::kernels::{Elementwise, Op};
use super::stream::Stream;
use super::sums::{Rows, Sum};
use super::{Gpu, params};
use crate::arch::RopeLayout;
use crate::engine::backend::NormRope;
use crate::error::Result;
use crate::math;

/// `x = what(x, y)`, element by element, with numbers that some take; `x` and `y` come with their strides.
pub(super) fn elementwise(
    stream: &mut Stream,
    what: Elementwise,
    (y, y_stride): (&Block, u32),
    (x, x_stride): (&Block, u32),
    [rows, width]: [usize; 2],
    [number, alpha]: [f32; 2],
) -> Result<()> {
    let params = params::Elementwise { width: width as u32, y_stride, x_stride, number, alpha };
    stream.dispatch(Op::elementwise(what), &[y, x], params, [width.div_ceil(64), rows, 1])
}

/// Floats from one row to the next.
pub(super) fn stride(width: usize) -> usize {
    width.next_multiple_of(4)
}

/// Rows on the device.
pub(crate) struct Buffer {
    pub(super) block: Block,
    pub(super) width: usize,
}

impl Buffer {
    pub(super) fn stride(&self) -> u32 {
        stride(self.width) as u32
    }

    pub(super) fn strided(&self) -> (&Block, u32) {
        (&self.block, self.stride())
    }

    /// Its first rows get `scale` times those of another buffer, or these rows' norm.
    pub(super) fn add(
        &self,
        stream: &mut Stream,
        (y, scale): (&Buffer, f32),
        norm: Option<(&Block, f32)>,
        rows: usize,
    ) -> Result<()> {
        let of = |buffer: &Buffer| Rows { block: (&buffer.block).into(), stride: buffer.stride() };
        let norm = norm.map(|(weight, eps)| (weight.into(), eps));
        stream.add(Sum { x: of(self), y: of(y), scale, norm, rows, width: self.width })
    }
}

/// See [`Backend::read`](crate::engine::backend::Backend::read).
pub(super) fn read(stream: &mut Stream, x: &Buffer, out: &mut [f32]) -> Result<()> {
    let (width, stride) = (x.width, stride(x.width));
    let rows = out.len().checked_div(width).unwrap_or(0);
    stream.read(&[(&x.block, rows * stride)], |_, i, word| {
        if width == stride {
            out[i] = f32::from_bits(word);
        } else if i % stride < width {
            out[i / stride * width + i % stride] = f32::from_bits(word);
        }
    })
}

/// See [`Backend::gather`](crate::engine::backend::Backend::gather).
pub(super) fn gather(stream: &mut Stream, x: &Buffer, from: &[usize], out: &mut Buffer) -> Result<()> {
    out.width = x.width;
    let (table, base) = stream.table(from.iter().map(|&row| row as u32))?;
    let (x_stride, out_stride) = (x.stride(), out.stride());
    let params = params::Gather { width: x.width as u32, x_stride, out_stride, base, behind: 0 };
    let groups = [x.width.div_ceil(64), from.len(), 1];
    stream.dispatch(Op::gather(), &[&x.block, &table, &out.block], params, groups)
}

/// See [`Backend::concat`](crate::engine::backend::Backend::concat).
pub(super) fn concat(stream: &mut Stream, parts: [&Buffer; 2], rows: usize, out: &mut Buffer) -> Result<()> {
    out.width = parts.iter().map(|part| part.width).sum();
    let mut behind = 0;
    for x in parts {
        let (table, base) = stream.table(0..rows as u32)?;
        let (width, x_stride, out_stride) = (x.width as u32, x.stride(), out.stride());
        let params = params::Gather { width, x_stride, out_stride, base, behind };
        let groups = [x.width.div_ceil(64), rows, 1];
        stream.dispatch(Op::gather(), &[&x.block, &table, &out.block], params, groups)?;
        behind += width;
    }
    Ok(())
}

/// See [`Backend::gate_heads`](crate::engine::backend::Backend::gate_heads).
pub(super) fn gate_heads(
    stream: &mut Stream,
    x: &Buffer,
    gate: &Buffer,
    head_dim: usize,
    rows: usize,
) -> Result<()> {
    let params = params::GateHeads {
        width: x.width as u32,
        head_dim: head_dim as u32,
        gates_stride: gate.stride(),
        x_stride: x.stride(),
    };
    let groups = [x.width.div_ceil(64), rows, 1];
    stream.dispatch(Op::gate_heads(), &[&gate.block, &x.block], params, groups)
}

/// See [`Backend::angles`](crate::engine::backend::Backend::angles).
pub(super) fn angles(
    stream: &mut Stream,
    [frequencies, amplitudes]: [&[f32]; 2],
    positions: &[usize],
    out: &mut Buffer,
) -> Result<()> {
    // Made here: devices know sines of small angles only.
    out.width = 2 * frequencies.len();
    let angles = positions.iter().zip(amplitudes).flat_map(|(&position, &amplitude)| {
        let angle = move |frequency: &f32| position as f32 * frequency;
        let cosines = frequencies.iter().map(move |f| amplitude * math::sin_cos(angle(f)).1);
        cosines.chain(frequencies.iter().map(move |f| amplitude * math::sin_cos(angle(f)).0))
    });
    stream.write(&out.block, angles, out.width)
}

/// See [`Backend::norm_rope`](crate::engine::backend::Backend::norm_rope).
pub(super) fn norm_rope(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &NormRope<'_, Gpu>,
    angles: Option<&Buffer>,
    rows: usize,
    x: &Buffer,
) -> Result<()> {
    let kind = Op::norm_rope(op.norm.is_some(), op.layout == RopeLayout::Pairs);
    let (weight, eps) = op.norm.unwrap_or((&gpu.unread, 0.0));
    let params = params::NormRope {
        head_dim: op.head_dim as u32,
        plain: op.plain as u32,
        half: angles.map_or(0, |angles| angles.width as u32 / 2),
        angles_stride: angles.map_or(0, Buffer::stride),
        x_stride: x.stride(),
        eps,
    };
    let groups = [x.width / op.head_dim, rows, 1];
    let angles = angles.map_or(&gpu.unread, |angles| &angles.block);
    stream.dispatch(kind, &[angles, weight, &x.block], params, groups)
}
