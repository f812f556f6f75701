//! How is a stored weight matrix multiplied? candle's block dot products on borrowed bytes.
//!
//! candle's own matrix product runs on a process-wide thread pool sized by environment variables,
//! and its tensors copy their bytes. Its dot products need neither: a row of blocks in the map, a
//! row of activations converted once, and this engine's own pool.
//!
//! Every output element is one dot product over the whole row in a fixed order, whatever the number
//! of rows or threads.

use candle_core::quantized::GgmlType;
use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, BlockQ8K,
};
use rayon::prelude::*;

use crate::engine::Precision;
use crate::weights::quant::{Expanded, PlainBlock, SEGMENT, blocks};
use crate::weights::{DType, Region};

/// Activation rows that share one pass over the weights.
const ROW_TILE: usize = 32;
/// Below this many multiplications threads cost more than they save.
const SERIAL: usize = 1 << 16;

/// A weight matrix `[out, in]` where it is stored.
pub(crate) struct Matrix {
    pub(super) weight: Region,
    pub(super) row_bytes: usize,
    pub(super) bias: Option<Vec<f32>>,
    kernel: Kernel,
}

/// Which dot product serves a storage type.
#[derive(Clone, Copy)]
enum Kernel {
    Q4_0,
    Q5_0,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    F32,
    /// No vector code for the stored type (or misaligned): exact expansion to f32.
    Widened,
}

impl Matrix {
    /// `row_bytes`: of one stored row.
    pub(super) fn new(weight: Region, row_bytes: usize, bias: Option<Vec<f32>>) -> Self {
        // Half floats and f32 blocks need an address that some safetensors files do not give them.
        let aligned = match weight.dtype() {
            DType::F32 => weight.bytes().as_ptr().addr().is_multiple_of(4),
            _ => weight.bytes().as_ptr().addr().is_multiple_of(2),
        };
        let kernel = match weight.dtype() {
            DType::Q4_0 if aligned => Kernel::Q4_0,
            DType::Q5_0 => Kernel::Q5_0,
            DType::Q8_0 if aligned => Kernel::Q8_0,
            DType::Q2_K if aligned => Kernel::Q2K,
            DType::Q3_K if aligned => Kernel::Q3K,
            DType::Q4_K if aligned => Kernel::Q4K,
            DType::Q5_K if aligned => Kernel::Q5K,
            DType::Q6_K if aligned => Kernel::Q6K,
            DType::F32 if aligned => Kernel::F32,
            _ => Kernel::Widened,
        };
        Self { weight, row_bytes, bias, kernel }
    }

    /// Elements of an output row.
    pub(super) fn n_out(&self) -> usize {
        self.weight.rows()
    }

    /// Elements of an input row.
    pub(super) fn n_in(&self) -> usize {
        self.weight.row_len()
    }
}

/// Room for converted activations, and for results of a few rows before they are put in place.
pub(super) struct Rooms {
    q8_0: Vec<BlockQ8_0>,
    q8_k: Vec<BlockQ8K>,
    /// What the first rounding left over.
    left: Vec<f32>,
    columns: Vec<f32>,
    /// Blocks in place of one: 1, or 2 when what the first leaves over is kept too.
    parts: usize,
    threads: usize,
}

impl Rooms {
    /// For up to `rows` rows of up to `width` elements.
    pub(super) fn new(rows: usize, width: usize, threads: usize, precision: Precision) -> Self {
        let parts = match precision {
            Precision::Fast | Precision::Bf16 => 1,
            Precision::Exact => 2,
        };
        Self {
            q8_0: vec![BlockQ8_0::zeros(); parts * rows * width.div_ceil(BlockQ8_0::BLCK_SIZE)],
            q8_k: vec![BlockQ8K::zeros(); parts * rows * width.div_ceil(BlockQ8K::BLCK_SIZE)],
            left: vec![0.0; (parts - 1) * rows * width],
            columns: Vec::new(),
            parts,
            threads,
        }
    }
}

/// `out[row] = x[row] · weightᵀ` for `rows` rows.
pub(super) fn multiply(rooms: &mut Rooms, matrix: &Matrix, x: &[f32], rows: usize, out: &mut [f32]) {
    let x = &x[..rows * matrix.n_in()];
    let out = &mut out[..rows * matrix.n_out()];
    let Rooms { q8_0, q8_k, left, columns, parts, threads } = rooms;
    let mut run = Run { matrix, rows, left, columns, parts: *parts, threads: *threads, out };
    match matrix.kernel {
        Kernel::Q4_0 => run.direct::<BlockQ4_0>(x, q8_0),
        Kernel::Q8_0 => run.direct::<BlockQ8_0>(x, q8_0),
        Kernel::Q2K => run.direct::<BlockQ2K>(x, q8_k),
        Kernel::Q3K => run.direct::<BlockQ3K>(x, q8_k),
        Kernel::Q4K => run.direct::<BlockQ4K>(x, q8_k),
        Kernel::Q5K => run.direct::<BlockQ5K>(x, q8_k),
        Kernel::Q6K => run.direct::<BlockQ6K>(x, q8_k),
        Kernel::F32 => run.dots::<f32>(x, |_, row, x, sums| {
            let Some(row) = blocks::<f32>(row) else { return };
            for (sum, x) in sums.iter_mut().zip(x.chunks_exact(row.len())) {
                *sum = f32::vec_dot(row.len(), row, x);
            }
        }),
        Kernel::Q5_0 => {
            let x = run.rounded(x, q8_0);
            let parts = run.parts;
            run.dots::<BlockQ8_0>(x, |room, row, x, sums| {
                segments(row, DType::Q5_0, x, parts, sums, |bytes, x, sums, step| {
                    let row = room.q5_0_as_q8_0(bytes);
                    for (sum, x) in sums.iter_mut().zip(x.chunks(step)) {
                        for x in (0..parts).map(|part| &x[part * step / parts..][..row.len()]) {
                            *sum += BlockQ8_0::vec_dot(row.len() * BlockQ8_0::BLCK_SIZE, row, x);
                        }
                    }
                });
            });
        }
        Kernel::Widened => {
            let dtype = matrix.weight.dtype();
            run.dots::<f32>(x, |room, row, x, sums| {
                segments(row, dtype, x, 1, sums, |bytes, x, sums, step| {
                    let row = room.as_f32(dtype, bytes);
                    for (sum, x) in sums.iter_mut().zip(x.chunks(step)) {
                        *sum += f32::vec_dot(row.len(), row, &x[..row.len()]);
                    }
                });
            });
        }
    }
    if let Some(bias) = &matrix.bias {
        for row in run.out.chunks_exact_mut(bias.len()) {
            for (y, b) in row.iter_mut().zip(bias) {
                *y += b;
            }
        }
    }
}

/// Walks one weight row in segments short enough to be expanded.
///
/// `x` holds `sums.len()` rows of `parts` parts; `each` gets them from the segment's first block on, and the
/// distance between rows.
fn segments<A>(
    row: &[u8],
    dtype: DType,
    x: &[A],
    parts: usize,
    sums: &mut [f32],
    mut each: impl FnMut(&[u8], &[A], &mut [f32], usize),
) {
    let step = x.len() / sums.len().max(1);
    let bytes_per_segment = SEGMENT / dtype.block_len() * dtype.block_bytes();
    let n_segments = row.len().div_ceil(bytes_per_segment);
    let elements = row.len() / dtype.block_bytes() * dtype.block_len();
    sums.fill(0.0);
    for (i, bytes) in row.chunks(bytes_per_segment).enumerate() {
        // Activations per segment: SEGMENT elements in units of A.
        let offset = if n_segments == 1 { 0 } else { i * SEGMENT * (step / parts) / elements };
        each(bytes, &x[offset..], sums, step);
    }
}

/// One product under way.
struct Run<'a> {
    matrix: &'a Matrix,
    rows: usize,
    left: &'a mut [f32],
    columns: &'a mut Vec<f32>,
    parts: usize,
    threads: usize,
    out: &'a mut [f32],
}

impl Run<'_> {
    /// Activation rows in 8-bit blocks; with two parts, a row's leftovers lie behind it.
    fn rounded<'r, A: GgmlType>(&mut self, x: &[f32], room: &'r mut [A]) -> &'r [A] {
        let (width, parts) = (self.matrix.n_in(), self.parts);
        let per_row = parts * width / A::BLCK_SIZE;
        let room = &mut room[..self.rows * per_row];
        let serial = self.threads == 1 || x.len() < SERIAL;
        if parts == 1 {
            let each = |(to, from): (&mut [A], &[f32])| A::from_float(from, to);
            if serial {
                room.chunks_exact_mut(per_row).zip(x.chunks_exact(width)).for_each(each);
            } else {
                room.par_chunks_exact_mut(per_row).zip(x.par_chunks_exact(width)).for_each(each);
            }
            return room;
        }
        let left = &mut self.left[..x.len()];
        let each = |((to, from), left): ((&mut [A], &[f32]), &mut [f32])| {
            let (first, second) = to.split_at_mut(per_row / 2);
            A::from_float(from, first);
            A::to_float(first, left);
            left.iter_mut().zip(from).for_each(|(left, x)| *left = x - *left);
            A::from_float(left, second);
        };
        if serial {
            let rows = room.chunks_exact_mut(per_row).zip(x.chunks_exact(width));
            rows.zip(left.chunks_exact_mut(width)).for_each(each);
        } else {
            let rows = room.par_chunks_exact_mut(per_row).zip(x.par_chunks_exact(width));
            rows.zip(left.par_chunks_exact_mut(width)).for_each(each);
        }
        room
    }

    /// Stored blocks that candle multiplies as they are.
    fn direct<T: PlainBlock>(&mut self, x: &[f32], room: &mut [T::VecDotType]) {
        let (width, parts) = (self.matrix.n_in(), self.parts);
        let x = self.rounded(x, room);
        self.dots::<T::VecDotType>(x, |_, row, x, sums| {
            let Some(row) = blocks::<T>(row) else { return };
            for (sum, x) in sums.iter_mut().zip(x.chunks_exact(parts * row.len())) {
                *sum = x.chunks_exact(row.len()).map(|x| T::vec_dot(width, row, x)).sum();
            }
        });
    }

    /// Runs `dot(room, weight row, activation rows, their results)` for every weight row, over threads.
    fn dots<A: Sync>(&mut self, x: &[A], dot: impl Fn(&mut Expanded, &[u8], &[A], &mut [f32]) + Sync) {
        let n = self.matrix.n_out();
        let (bytes, row_bytes) = (self.matrix.weight.bytes(), self.matrix.row_bytes);
        let serial = self.threads == 1 || self.rows * n * self.matrix.n_in() < SERIAL;
        if self.rows >= ROW_TILE * self.threads && !serial {
            // Many rows: each task takes a tile of them through all weights.
            let step = x.len() / self.rows;
            self.out.par_chunks_mut(ROW_TILE * n).zip(x.par_chunks(ROW_TILE * step)).for_each(|(out, x)| {
                tile(bytes, row_bytes, x, out, n, &dot);
            });
        } else if serial {
            let step = x.len() / self.rows.max(1);
            for (out, x) in self.out.chunks_mut(ROW_TILE * n).zip(x.chunks(ROW_TILE * step)) {
                tile(bytes, row_bytes, x, out, n, &dot);
            }
        } else {
            // Few rows: each task takes some of the weights; results lie by column at first.
            let per_task = n.div_ceil(self.threads * 4).max(1);
            let task = |(weights, sums): (&[u8], &mut [f32])| {
                let mut room = Expanded::new();
                for (weight, sums) in weights.chunks_exact(row_bytes).zip(sums.chunks_exact_mut(self.rows)) {
                    dot(&mut room, weight, x, sums);
                }
            };
            if self.rows == 1 {
                bytes.par_chunks(per_task * row_bytes).zip(self.out.par_chunks_mut(per_task)).for_each(task);
                return;
            }
            self.columns.resize(n * self.rows, 0.0);
            bytes
                .par_chunks(per_task * row_bytes)
                .zip(self.columns.par_chunks_mut(per_task * self.rows))
                .for_each(task);
            for (column, sums) in self.columns.chunks_exact(self.rows).enumerate() {
                for (row, sum) in sums.iter().enumerate() {
                    self.out[row * n + column] = *sum;
                }
            }
        }
    }
}

/// A tile of activation rows through all weight rows.
fn tile<A>(
    bytes: &[u8],
    row_bytes: usize,
    x: &[A],
    out: &mut [f32],
    n: usize,
    dot: impl Fn(&mut Expanded, &[u8], &[A], &mut [f32]),
) {
    let rows = out.len() / n;
    let mut room = Expanded::new();
    let mut sums = [0.0; ROW_TILE];
    let sums = &mut sums[..rows];
    for (column, weight) in bytes.chunks_exact(row_bytes).enumerate() {
        dot(&mut room, weight, x, sums);
        for (row, sum) in sums.iter().enumerate() {
            out[row * n + column] = *sum;
        }
    }
}
