//! How does a matrix lie on the device, and how is it multiplied? Chunks of whole rows, as stored.

use super::device::{Block, Device};
use super::kernels::{Elementwise, MATRICES, OPERANDS, OUTPUTS, Op, TILE};
use super::stream::{Stream, storage};
use super::{Buffer, Gpu, params, stride};
use crate::arch::Activation;
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

    fn bytes(&self) -> u64 {
        u64::from(self.params.n_rows) * u64::from(self.params.row_bytes)
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

    /// Of this one and those behind it, how many a kernel has together.
    fn together<'a>(&self, gpu: &Gpu, mut behind: impl Iterator<Item = &'a Self>) -> usize {
        let has_bias = self.bias.is_some();
        // x, and of each its weights, results and biases.
        let most = MATRICES.min((gpu.device.binds() - 1) / (2 + usize::from(has_bias)));
        let goes = |other: &Self| {
            other.chunks.len() == 1 && other.bias.is_some() == has_bias && other.n_in == self.n_in
        };
        if !goes(self) {
            return 1;
        }
        1 + behind.by_ref().take(most.saturating_sub(1)).take_while(|other| goes(other)).count()
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
                gpu.device.count_weights(chunk.bytes());
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

/// One input's products of a few rows, as many in a dispatch as the device binds; others one by one.
pub(super) fn multiply_all(
    gpu: &Gpu,
    stream: &mut Stream,
    x: &Buffer,
    rows: usize,
    products: &mut [(&Matrix, &mut Buffer)],
) -> Result<()> {
    for (matrix, out) in &mut *products {
        out.width = matrix.n_out();
    }
    let mut rest = &*products;
    while let [(first, out), behind @ ..] = rest {
        let n = match rows <= MATVEC_ROWS {
            true => first.together(gpu, behind.iter().map(|(matrix, _)| *matrix)),
            false => 1,
        };
        let (these, others) = rest.split_at(n);
        match these {
            [_] => first.multiply(gpu, stream, x, rows, out.strided())?,
            _ => multiply_together(gpu, stream, x, rows, these)?,
        }
        rest = others;
    }
    Ok(())
}

/// Builds the kernels of one input's products of one row.
pub(super) fn expect_products(gpu: &Gpu, matrices: &[&Matrix]) -> Result<()> {
    let mut rest = matrices;
    while let [first, behind @ ..] = rest {
        let (these, others) = rest.split_at(first.together(gpu, behind.iter().copied()));
        if these.len() > 1 {
            gpu.kernels
                .get(&gpu.device, &products_of(&several(these, 1, [0.0; 2]).1[..these.len()], first, 1))?;
        }
        rest = others;
    }
    Ok(())
}

/// Builds the kernel of a gate's and another projection of one row.
pub(super) fn expect_gated(gpu: &Gpu, activation: Activation, matrices: [&Matrix; 2]) -> Result<()> {
    if !are_gated(matrices) {
        return expect_products(gpu, &matrices);
    }
    let what = Elementwise::activation(activation).0;
    let op = Op::gated(&matrices.map(|matrix| matrix.dtype), 1, what);
    gpu.kernels.get(&gpu.device, &op).map(drop)
}

/// Products of so many rows with matrices of these types that [go together](Matrix::together).
fn products_of(dtypes: &[DType], like: &Matrix, rows: usize) -> Op<params::Several> {
    let make = if like.bias.is_some() { Op::biased_products } else { Op::products };
    make(dtypes, rows as u32)
}

/// Products of matrices that [go together](Matrix::together), in one dispatch.
fn multiply_together(
    gpu: &Gpu,
    stream: &mut Stream,
    x: &Buffer,
    rows: usize,
    products: &[(&Matrix, &mut Buffer)],
) -> Result<()> {
    let mut matrices = [products[0].0; MATRICES];
    matrices.iter_mut().zip(products).for_each(|(to, (matrix, _))| *to = matrix);
    let matrices = &matrices[..products.len()];
    matrices.iter().for_each(|matrix| gpu.device.count_weights(matrix.chunks[0].bytes()));
    let (params, dtypes) = several(matrices, rows, [0.0; 2]);
    let biases = matrices.iter().filter_map(|matrix| matrix.bias.as_ref());
    let weights = matrices.iter().map(|matrix| &matrix.chunks[0].block);
    let results = products.iter().map(|(_, out)| &out.block);
    let (mut operands, mut n) = ([&x.block; OPERANDS], 1);
    for (to, block) in operands[1..].iter_mut().zip(weights.chain(biases).chain(results)) {
        (*to, n) = (block, n + 1);
    }
    let together = rows.next_power_of_two();
    let groups = matrices.iter().map(|matrix| matrix.n_out().div_ceil(OUTPUTS as usize)).sum();
    let [across, down] = grid(groups);
    let groups = [across, down, rows.div_ceil(together)];
    let op = products_of(&dtypes[..matrices.len()], matrices[0], together);
    stream.dispatch(op, &operands[..n], params, groups)
}

/// What `what` makes of a gate's and another projection of a few rows, in one dispatch; `None` where that takes several.
pub(super) fn gated(
    gpu: &Gpu,
    stream: &mut Stream,
    (what, numbers): (Elementwise, [f32; 2]),
    x: &Buffer,
    [gate, up]: [&Matrix; 2],
    rows: usize,
    out: &mut Buffer,
) -> Result<Option<()>> {
    if rows > MATVEC_ROWS || !are_gated([gate, up]) {
        return Ok(None);
    }
    [gate, up].iter().for_each(|matrix| gpu.device.count_weights(matrix.chunks[0].bytes()));
    out.width = gate.n_out();
    let (params, [gates, ups, ..]) = several(&[gate, up], rows, numbers);
    let together = rows.next_power_of_two();
    let [across, down] = grid(gate.n_out().div_ceil(OUTPUTS as usize));
    let operands = [&x.block, &gate.chunks[0].block, &up.chunks[0].block, &out.block];
    let op = Op::gated(&[gates, ups], together as u32, what);
    stream.dispatch(op, &operands, params, [across, down, rows.div_ceil(together)]).map(Some)
}

/// Whether a kernel has both, a gate's and another projection.
fn are_gated(matrices: [&Matrix; 2]) -> bool {
    let plain = |matrix: &Matrix| matrix.chunks.len() == 1 && matrix.bias.is_none();
    matrices.into_iter().all(plain) && matrices[0].n_out() == matrices[1].n_out()
}

/// What kernels are told of several matrices of one input, and how these are stored.
fn several(
    matrices: &[&Matrix],
    rows: usize,
    [number, alpha]: [f32; 2],
) -> (params::Several, [DType; MATRICES]) {
    let like = &matrices[0].chunks[0].params;
    let (mut n_rows, mut row_bytes, mut dtypes) =
        ([0; MATRICES], [0; MATRICES], [matrices[0].dtype; MATRICES]);
    for (i, matrix) in matrices.iter().enumerate() {
        let params = &matrix.chunks[0].params;
        (n_rows[i], row_bytes[i], dtypes[i]) = (params.n_rows, params.row_bytes, matrix.dtype);
    }
    let [n_rows_0, n_rows_1, n_rows_2, n_rows_3] = n_rows;
    let [row_bytes_0, row_bytes_1, row_bytes_2, row_bytes_3] = row_bytes;
    let params = params::Several {
        n_in: like.n_in,
        x_stride: like.x_stride,
        rows: rows as u32,
        n_rows_0,
        n_rows_1,
        n_rows_2,
        n_rows_3,
        row_bytes_0,
        row_bytes_1,
        row_bytes_2,
        row_bytes_3,
        number,
        alpha,
    };
    (params, dtypes)
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
