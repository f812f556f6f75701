//! When is a block's result added to the residual stream? With the norm behind it, where one comes next.

use super::device::Block;
use super::kernels::Op;
use super::params;
use super::stream::{Operand, Stream};
use crate::error::Result;

/// `x += scale · y`, or the norm of `y`, of so many rows.
pub(super) struct Sum {
    pub(super) x: Rows,
    pub(super) y: Rows,
    pub(super) scale: f32,
    /// Weights and epsilon; the scale is 1 then.
    pub(super) norm: Option<(Operand, f32)>,
    pub(super) rows: usize,
    pub(super) width: usize,
}

/// Rows of a block, and floats from one to the next.
pub(super) struct Rows {
    pub(super) block: Operand,
    pub(super) stride: u32,
}

impl Stream {
    /// Adds to rows. It is recorded with what comes next: with a norm of the sum in one dispatch.
    pub(super) fn add(&mut self, sum: Sum) -> Result<()> {
        self.settle()?;
        self.sum = Some(sum);
        Ok(())
    }

    /// `out = norm(x)` of the first rows; blocks come with their strides.
    pub(super) fn norm(
        &mut self,
        (x, x_stride): (&Block, u32),
        (weight, eps): (&Block, f32),
        [rows, width]: [usize; 2],
        (out, out_stride): (&Block, u32),
    ) -> Result<()> {
        let is_sum = |sum: &mut Sum| {
            (sum.x.block.id, sum.rows, sum.width) == (x.id, rows, width)
                && ![x.id, sum.y.block.id].contains(&out.id)
        };
        let sum = match self.sum.take_if(is_sum) {
            Some(sum) => sum,
            None => {
                self.settle()?;
                // Nothing is added.
                let [x, y] =
                    [(x, x_stride), (weight, 0)].map(|(of, stride)| Rows { block: of.into(), stride });
                Sum { x, y, scale: 0.0, norm: None, rows, width }
            }
        };
        self.add_norm(sum, Some((weight.into(), eps)), Some((out.into(), out_stride)))
    }

    /// Records the sum that waits, if one does.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.sum.take().map_or(Ok(()), |sum| self.add_norm(sum, None, None))
    }

    fn add_norm(
        &mut self,
        sum: Sum,
        norm: Option<(Operand, f32)>,
        out: Option<(Operand, u32)>,
    ) -> Result<()> {
        let Sum { x, y, scale, norm: y_norm, rows, width } = sum;
        let kind = match (&y_norm, scale) {
            (Some(_), _) => 2,
            (None, 0.0) => 0,
            (None, _) => 1,
        };
        let params = params::AddNorm {
            width: width as u32,
            y_stride: y.stride,
            x_stride: x.stride,
            out_stride: out.as_ref().map_or(0, |out| out.1),
            scale,
            y_eps: y_norm.as_ref().map_or(0.0, |norm| norm.1),
            eps: norm.as_ref().map_or(0.0, |norm| norm.1),
        };
        let op = Op::add_norm(kind, out.is_some());
        let unwritten = Operand::from(&self.unwritten);
        // Weights that there are not are not read.
        let of =
            |norm: &'_ Option<(Operand, f32)>| norm.as_ref().map_or(y.block.clone(), |norm| norm.0.clone());
        let (y_weight, weight) = (of(&y_norm), of(&norm));
        let out = out.map_or(unwritten, |out| out.0);
        let operands = [&y.block, &y_weight, &weight, &x.block, &out].map(Operand::bound);
        self.record(op, &operands, params, [rows, 1, 1])
    }
}
