//! How does the device multiply each head with a matrix of its own? Head by head, all in one dispatch.
//!
//! Heads are taken apart first, so that each one's rows follow one another: they are multiplied as rows with one matrix are.

use super::experts::Stack;
use super::kernels::{OUTPUTS, Op, TILE};
use super::matrix::{Chunk, MATVEC_ROWS, grid};
use super::stream::{Scratch, Stream};
use super::{Buffer, params, stride};
use crate::error::{Error, ErrorKind, Result};

impl Stack {
    /// See [`Backend::linear_heads`](crate::engine::backend::Backend::linear_heads).
    pub(super) fn multiply_heads(
        &self,
        stream: &mut Stream,
        x: &Buffer,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        let (n_in, n_out) = (self.n_in, self.n_out);
        let heads = self.chunks.iter().map(Chunk::rows).sum::<usize>() / n_out.max(1);
        let of_head = x.width.checked_div(heads).unwrap_or(0);
        let Some(behind) = of_head.checked_sub(n_in) else {
            return Err(Error::new(ErrorKind::Internal, "matrices that take more than their heads have"));
        };
        let to_head = n_out + behind;
        out.width = heads * to_head;
        let in_stride = stride(n_in);
        let apart = stream.scratch(Scratch::Heads, heads * rows * in_stride)?;
        let params = params::HeadsGather {
            n_in: n_in as u32,
            n_out: n_out as u32,
            behind: behind as u32,
            x_stride: x.stride(),
            in_stride: in_stride as u32,
            out_stride: out.stride(),
        };
        let groups = [of_head.max(in_stride).div_ceil(64), rows, heads];
        stream.dispatch(Op::heads_gather(), &[&x.block, &*apart, &out.block], params, groups)?;
        for chunk in &self.chunks {
            let (own, out_stride) = (chunk.rows() / n_out, out.stride());
            let (n_rows, width, to_head) = (rows as u32, n_out as u32, to_head as u32);
            let params = params::Weights { rows: n_rows, n_out: width, out_stride, to_head, ..chunk.params };
            let operands = [&chunk.block, &*apart, &out.block];
            if rows <= MATVEC_ROWS {
                let together = rows.next_power_of_two();
                let [across, down] = grid(n_out.div_ceil(OUTPUTS as usize));
                let groups = [across, down, own * rows.div_ceil(together)];
                stream.dispatch(Op::heads_matvec(self.dtype, together as u32), &operands, params, groups)?;
            } else {
                let tiles = |n: usize| n.div_ceil(TILE as usize);
                let groups = [tiles(n_out), own, tiles(rows)];
                stream.dispatch(Op::heads_matmul(self.dtype), &operands, params, groups)?;
            }
        }
        stream.weigh(rows * heads * n_in * n_out)
    }
}
