//! How does a matrix lie on the device, and how is it multiplied? Chunks of whole rows, as stored.

use super::device::{Block, Device};
use super::kernels::{OUTPUTS, Op, TILE};
use super::stream::{Stream, storage};
use super::{Buffer, Gpu, params, stride};
use crate::bytes::ByteSize;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::{DType, Region};

/// Kernels may read that far beyond a chunk.
const PADDING: u64 = 16;

/// Bytes that are on their way to the device at a time, at most.
const STAGED_BYTES: usize = 16 << 20;

/// Rows up to which each is multiplied for itself.
pub(super) const MATVEC_ROWS: usize = 8;

/// A weight matrix `[out, in]`.
pub(crate) struct Matrix {
    dtype: DType,
    n_in: usize,
    chunks: Vec<Chunk>,
    bias: Option<Block>,
}

/// Rows that one binding holds.
pub(super) struct Chunk {
    pub(super) block: Block,
    /// What kernels are told of the weights.
    pub(super) params: params::Weights,
}

impl Chunk {
    /// Rows from `first_row` on, in one or several parts, stored as those of `like` are.
    pub(super) fn upload(device: &Device, like: &Region, parts: &[&[u8]], first_row: usize) -> Result<Self> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let params = params::Weights {
            n_in: like.row_len() as u32,
            row_bytes: like.row_bytes() as u32,
            first_row: first_row as u32,
            n_rows: (bytes / like.row_bytes()) as u32,
            x_stride: stride(like.row_len()) as u32 / 4,
            ..Default::default()
        };
        Ok(Self { block: upload(device, parts)?, params })
    }

    pub(super) fn rows(&self) -> usize {
        self.params.n_rows as usize
    }
}

impl Matrix {
    pub(super) fn new(gpu: &Gpu, weight: &Region, bias: Option<Vec<f32>>) -> Result<Self> {
        use crate::engine::backend::Backend;
        expect_readable(weight)?;
        let row_bytes = weight.row_bytes();
        let most = rows_in_a_chunk(&gpu.device, row_bytes)?;
        // Built while the model loads, not in its first step.
        for op in [Op::matvec(weight.dtype(), 1), Op::matmul(weight.dtype())] {
            gpu.kernels.get(&gpu.device, &op)?;
        }
        weight.will_need();
        let chunks = weight
            .bytes()
            .chunks(most * row_bytes)
            .enumerate()
            .map(|(i, bytes)| Chunk::upload(&gpu.device, weight, &[bytes], i * most))
            .collect::<Result<_>>()?;
        let bias = bias.map(|bias| gpu.vector(bias)).transpose()?;
        Ok(Self { dtype: weight.dtype(), n_in: weight.row_len(), chunks, bias })
    }

    /// Elements of an output row.
    pub(super) fn n_out(&self) -> usize {
        self.chunks.iter().map(Chunk::rows).sum()
    }

    pub(super) fn embed(
        &self,
        stream: &mut Stream,
        tokens: &[TokenId],
        scale: f32,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = self.n_in;
        for chunk in &self.chunks {
            let (table, base) = stream.table(tokens.iter().map(|token| token.0))?;
            let rows = tokens.len() as u32;
            let params =
                params::Weights { rows, token_base: base, out_stride: out.stride(), scale, ..chunk.params };
            let groups = [self.n_in.div_ceil(1024), tokens.len(), 1];
            stream.dispatch(Op::embed(self.dtype), &[&chunk.block, &table, &out.block], params, groups)?;
        }
        Ok(())
    }

    /// `out = x · selfᵀ + bias` of the first rows; `out` comes with its stride.
    pub(super) fn multiply(
        &self,
        gpu: &Gpu,
        stream: &mut Stream,
        x: &Buffer,
        rows: usize,
        (out, out_stride): (&Block, u32),
    ) -> Result<()> {
        let bias = self.bias.as_ref().unwrap_or(&gpu.unread);
        for chunk in &self.chunks {
            let has_bias = self.bias.is_some().into();
            let params = params::Weights { out_stride, rows: rows as u32, has_bias, ..chunk.params };
            let operands = [&chunk.block, &x.block, bias, out];
            if rows <= MATVEC_ROWS {
                let together = rows.next_power_of_two();
                let op = Op::matvec(self.dtype, together as u32);
                let [across, down] = grid(chunk.rows().div_ceil(OUTPUTS as usize));
                stream.dispatch(op, &operands, params, [across, down, rows.div_ceil(together)])?;
            } else {
                let tiles = |n: usize| n.div_ceil(TILE as usize);
                let groups = [tiles(rows), tiles(chunk.rows()), 1];
                stream.dispatch(Op::matmul(self.dtype), &operands, params, groups)?;
                stream.weigh(rows * chunk.rows() * self.n_in)?;
            }
        }
        Ok(())
    }
}

/// Kernels take 16 elements at a time; only those of floats look where a row ends within them. None knows tables, or
/// looks for scales beside weights.
pub(super) fn expect_readable(weight: &Region) -> Result<()> {
    if weight.dtype().is_for_cpus() {
        return Err(Error::new(
            ErrorKind::DTypeUnsupported,
            format!("expected weights that engine wgpu computes with, found {}", weight.dtype()),
        )
        .with_hint("use the engine cpu, or a GGUF file of the model"));
    }
    if weight.row_len().is_multiple_of(16) { Ok(()) } else { weight.expect_plain() }
}

/// A grid of at least `n` workgroups, as one direction has a limit.
pub(super) fn grid(n: usize) -> [usize; 2] {
    const WIDEST: usize = 32768;
    [n.min(WIDEST), n.div_ceil(WIDEST)]
}

/// Rows that fit one binding.
pub(super) fn rows_in_a_chunk(device: &Device, row_bytes: usize) -> Result<usize> {
    let rows = (device.chunk.saturating_sub(PADDING) as usize).checked_div(row_bytes).unwrap_or(0);
    if rows > 0 {
        return Ok(rows);
    }
    Err(Error::new(
        ErrorKind::EngineUnavailable,
        format!(
            "a row of weights has {}, but this device binds at most {}",
            ByteSize(row_bytes as u64),
            ByteSize(device.largest)
        ),
    )
    .with_hint("use another device"))
}

/// Bytes on the device, one part behind the other. They stream: no more than a piece is held twice.
fn upload(device: &Device, parts: &[&[u8]]) -> Result<Block> {
    let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let block = device.block("weights", len + PADDING, storage())?;
    let mut at = 0u64;
    let mut held: Vec<u8> = Vec::new();
    for piece in parts.iter().flat_map(|part| part.chunks(STAGED_BYTES)) {
        // What is written begins and ends at multiples of four.
        let mut piece = piece;
        if !held.is_empty() {
            let (first, rest) = piece.split_at((4 - held.len()).min(piece.len()));
            held.extend_from_slice(first);
            piece = rest;
            if held.len() == 4 {
                device.queue.write_buffer(&block.buffer, at, &held);
                at += 4;
                held.clear();
            }
        }
        let (whole, rest) = piece.split_at(piece.len() / 4 * 4);
        device.queue.write_buffer(&block.buffer, at, whole);
        at += whole.len() as u64;
        held.extend_from_slice(rest);
        device.wait(device.submit(None))?;
    }
    if !held.is_empty() {
        held.resize(4, 0);
        device.queue.write_buffer(&block.buffer, at, &held);
        device.wait(device.submit(None))?;
    }
    Ok(block)
}
