//! Which constant matrices do chunks of rows need? Triangles of ones, and what divides them into blocks.

use std::sync::OnceLock;

use candle_core::{Device, Result as CandleResult, Tensor};

/// The most rows of a chunk; a power of two.
pub(super) const CHUNK: usize = 64;
const LENGTHS: usize = CHUNK.ilog2() as usize + 1;

/// Constants of chunks by their length, made when they are first needed.
#[derive(Default)]
pub(super) struct TrianglesOf([OnceLock<Triangles>; LENGTHS]);

/// Constants of chunks of one length. A matrix `[a, b]` has ones where rows `a` and `b` are as is said, else zeros.
pub(super) struct Triangles {
    /// `a ≤ b`.
    pub(super) up_to: Tensor,
    /// `a > b`.
    pub(super) behind: Tensor,
    /// `a < b`.
    pub(super) after: Tensor,
    /// `a = b`.
    pub(super) diagonal: Tensor,
    /// From blocks of two rows to one of all.
    pub(super) levels: Vec<Level>,
}

/// A chunk in blocks of some length.
pub(super) struct Level {
    /// `a` is in the first half of a block, `b` in its second.
    pub(super) halves: Tensor,
    /// `a` lies between the border of `b`'s block's halves and `b`: behind the border and up to `b`, or behind `b` and up to
    /// the border.
    pub(super) to_border: Tensor,
}

impl TrianglesOf {
    /// Those of chunks of `len` rows, a power of two up to [`CHUNK`].
    pub(super) fn of(&self, len: usize, device: &Device) -> CandleResult<&Triangles> {
        let own = &self.0[len.ilog2() as usize];
        if let Some(made) = own.get() {
            return Ok(made);
        }
        let made = Triangles::new(len, device)?;
        Ok(own.get_or_init(|| made))
    }
}

impl Triangles {
    fn new(len: usize, device: &Device) -> CandleResult<Self> {
        let matrix = |is: &dyn Fn(usize, usize) -> bool| {
            let ones = (0..len * len).map(|at| if is(at / len, at % len) { 1f32 } else { 0.0 });
            Tensor::from_iter(ones, device)?.reshape((len, len))
        };
        let level = |half: usize| {
            let block = |row: usize| row / (2 * half);
            let is_second = |row: usize| row / half % 2 == 1;
            let to_border = |a: usize, b: usize| {
                let border = block(b) * 2 * half + half - 1;
                if is_second(b) { border < a && a <= b } else { b < a && a <= border }
            };
            Ok(Level {
                halves: matrix(&|a, b| block(a) == block(b) && !is_second(a) && is_second(b))?,
                to_border: matrix(&to_border)?,
            })
        };
        let halves = (0..len.ilog2()).map(|power| 1 << power);
        Ok(Self {
            up_to: matrix(&|a, b| a <= b)?,
            behind: matrix(&|a, b| a > b)?,
            after: matrix(&|a, b| a < b)?,
            diagonal: matrix(&|a, b| a == b)?,
            levels: halves.map(level).collect::<CandleResult<_>>()?,
        })
    }

    /// The inverses of `1 - x`, for matrices `[.., row, row]` that are zeros up to their diagonals. Of blocks of two rows at
    /// first, then of twice as many: no powers of `x` occur, which could exceed the inverses by far.
    pub(super) fn inverse(&self, x: &Tensor) -> CandleResult<Tensor> {
        let mut inverse: Option<Tensor> = None;
        for level in &self.levels {
            let between = x.broadcast_mul(&level.halves)?;
            inverse = Some(match inverse {
                None => between.broadcast_add(&self.diagonal)?,
                Some(inverse) => {
                    let joined = inverse.matmul(&between)?.matmul(&inverse)?;
                    (inverse + joined)?
                }
            });
        }
        inverse.map_or_else(|| x.zeros_like()?.broadcast_add(&self.diagonal), Ok)
    }
}
