//! What is a weight matrix? Its bytes where they are stored, and the kernels for their type.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::affine::LINE;
use super::format::{Beside, Float};
use super::scaled::Scales;
use super::simd::{BLOCK, LANES};
use super::{Floats, Form, Kernels, Quantised, Screen, product};
use crate::cancel::CancelToken;
use crate::engine::Precision;
use crate::engine::cpu::pool::Pool;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, Region, ScaleRows};

/// A weight matrix `[out, in]` where it is stored.
pub(crate) struct Matrix {
    pub(super) source: Source,
    weight: Region,
    bias: Option<Vec<f32>>,
    pub(super) kernel: Kernel,
    pub(super) screen: Option<Box<Screen>>,
    longest: OnceLock<f32>,
}

/// Where its rows lie, in one place: a token may have hundreds of products, whose matrices no cache holds.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) weights: *const u8,
    pub(super) row_bytes: usize,
    /// Elements of a row, and rows.
    n_in: usize,
    n_out: usize,
    /// Blocks of [`BLOCK`] in a row as it is stored.
    pub(super) blocks: usize,
    /// `weights` are tiles of woven rows.
    pub(super) woven: bool,
    pub(super) beside: Beside,
}
// SAFETY: what the addresses lead to is the matrix' own region, which is only read.
unsafe impl Sync for Source {}
// SAFETY: as above.
unsafe impl Send for Source {}

impl Source {
    fn new(weight: &Region) -> Self {
        let (woven, stored) = (weight.woven(), weight.dtype().block_len());
        Self {
            weights: woven.unwrap_or(weight.bytes()).as_ptr(),
            row_bytes: weight.row_bytes(),
            n_in: weight.row_len(),
            n_out: weight.rows(),
            blocks: (weight.row_len().div_ceil(stored) * stored).div_ceil(BLOCK),
            woven: woven.is_some(),
            beside: beside(weight),
        }
    }
}

/// Where the scales and minima of a matrix' groups are, if they are beside the integers.
fn beside(weight: &Region) -> Beside {
    let Some(scales) = weight.scales() else { return Beside::NOTHING };
    let mins = weight.biases();
    let woven = mins.into_iter().chain([scales]).all(|part| part.woven().is_some());
    let start = |part: &Region| part.woven().filter(|_| woven).unwrap_or(part.bytes()).as_ptr();
    Beside {
        scales: start(scales),
        mins: mins.map_or(std::ptr::null(), start),
        woven,
        row_bytes: scales.row_bytes(),
        own_bytes: scales.own_row_bytes(),
        shift: (weight.group_len() / BLOCK).max(1).ilog2(),
        float: float(scales),
    }
}

/// Which kernels serve a storage type.
#[derive(Clone, Copy)]
pub(super) enum Kernel {
    /// Fast and exact.
    Quantised([Quantised; 2]),
    /// With activations in f32, and in bfloat16 where there is such a kernel.
    Dense([Floats; 2]),
}

/// The type of scales; of 4-bit floats it is known.
fn float(scales: &Region) -> Float {
    match scales.dtype() {
        DType::F16 => Float::F16,
        DType::BF16 => Float::BF16,
        DType::E8M0 => Float::E8M0,
        _ => Float::F32,
    }
}

impl Matrix {
    /// A matrix whose shape has been checked; a bias has as many elements as the matrix has rows.
    pub(crate) fn new(kernels: &Kernels, weight: Region, bias: Option<Vec<f32>>) -> Result<Self> {
        let dense = |bf16| kernels.floats(weight.dtype(), bf16);
        let dense = || Some(Kernel::Dense([dense(false)?, dense(true)?]));
        // Woven rows need not be read in lines: see `affine`.
        let lines = weight.row_len().is_multiple_of(LINE) && weight.woven().is_none();
        let of = |exact| (kernels.quantised)(weight.dtype(), exact, lines);
        let quantised = || Some(Kernel::Quantised([of(false)?, of(true)?]));
        let kernel = dense().or_else(quantised).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "no kernel for a type").with("dtype", weight.dtype())
        })?;
        // Those of floats walk along rows by their length.
        if matches!(kernel, Kernel::Dense(_)) {
            weight.expect_plain()?;
        }
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == weight.rows()));
        for part in weight.arrays() {
            // Of rows that are apart, the last one ends with its elements.
            let behind = part.row_bytes() - part.own_row_bytes();
            let all = (part.row_bytes() * part.rows()).saturating_sub(behind);
            assert_eq!(part.bytes().len(), all);
        }
        // Checked where it was read: kernels go by it.
        let (wide, rows) = (weight.group_len(), weight.scale_rows());
        let enough = |scales: &Region| {
            scales.rows() > rows.of(weight.rows().saturating_sub(1))
                && scales.row_len().saturating_mul(wide) >= weight.row_len()
        };
        assert!(weight.rows() == 0 || weight.arrays().skip(1).all(enough));
        assert!(match weight.dtype() {
            DType::FP4 => wide == BLOCK && rows == ScaleRows::OWN,
            DType::NVFP4 => wide == BLOCK / 2 && rows == ScaleRows::OWN,
            DType::FP8 => wide > 0 && (wide.is_multiple_of(LANES) || wide >= weight.row_len()),
            dtype => dtype.is_affine() == matches!(wide, 32 | 64 | 128) && rows == ScaleRows::OWN,
        });
        let source = Source::new(&weight);
        assert!(!source.woven || matches!(kernel, Kernel::Quantised([kernel, _]) if kernel.woven));
        Ok(Self { source, weight, bias, kernel, screen: None, longest: OnceLock::new() })
    }

    /// Makes a [`Screen`] where one would save time; returns its bytes.
    pub(crate) fn screen(&mut self, kernels: &Kernels, pool: &Pool, cancel: &CancelToken) -> Result<u64> {
        if self.bias.is_none() && self.weight.expect_plain().is_ok() && Screen::pays(&self.weight) {
            self.screen = Screen::new(kernels, pool, self, cancel)?.map(Box::new);
        }
        Ok(self.screen.as_ref().map_or(0, |screen| screen.bytes()))
    }

    /// What no row is longer than, from the first time that it is asked for; `None` where a weight is no number.
    pub(super) fn longest(&self, pool: &Pool) -> Option<f32> {
        let longest = *self.longest.get_or_init(|| {
            let scratch: Vec<_> =
                (0..pool.threads()).map(|_| Mutex::new((vec![0.0f32; self.n_in()], 0.0f64))).collect();
            pool.run(self.n_out(), LANES, &|rows, thread| {
                let mut own = scratch[thread].lock().unwrap_or_else(PoisonError::into_inner);
                let (values, most) = &mut *own;
                for row in rows {
                    self.weight.decode(row, values);
                    let square = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
                    // Keeps what is no number.
                    *most = if square > *most || square.is_nan() { square } else { *most };
                }
            });
            let squares =
                scratch.into_iter().map(|own| own.into_inner().unwrap_or_else(PoisonError::into_inner).1);
            let square = squares.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a });
            // Rounded up, by more than the sums lost to rounding.
            (square.sqrt() * (1.0 + 1e-3)) as f32
        });
        longest.is_finite().then_some(longest)
    }

    /// In which form its products take so many rows, if they are of rounded activations.
    pub(crate) fn form(&self, precision: Precision, rows: usize) -> Option<Form> {
        let Kernel::Quantised(kernels) = &self.kernel else { return None };
        Some(kernels[usize::from(precision == Precision::Exact)].form(rows))
    }

    /// Elements of an output row.
    pub(crate) fn n_out(&self) -> usize {
        self.source.n_out
    }

    /// Elements of an input row.
    pub(crate) fn n_in(&self) -> usize {
        self.source.n_in
    }

    /// The stored matrix.
    pub(crate) fn weight(&self) -> &Region {
        &self.weight
    }

    /// The scales of 8-bit floats.
    pub(super) fn scales(&self) -> Scales {
        let Some(scales) = self.weight.scales() else { return Scales::NOTHING };
        Scales {
            from: scales.bytes().as_ptr(),
            row_bytes: scales.row_bytes(),
            float: float(scales),
            wide: self.weight.group_len(),
            rows: self.weight.scale_rows(),
        }
    }

    /// The outputs of some tiles.
    pub(super) fn columns(&self, tiles: &Range<usize>) -> Range<usize> {
        let lanes = self.lanes();
        tiles.start * lanes..(tiles.end * lanes).min(self.n_out())
    }

    /// The tiles with these outputs.
    pub(super) fn tiles_of(&self, columns: &Range<u32>) -> Range<usize> {
        let lanes = self.lanes();
        columns.start as usize / lanes..(columns.end as usize).div_ceil(lanes).min(self.tiles())
    }

    /// Outputs of a tile.
    fn lanes(&self) -> usize {
        if self.tiles() == self.n_out() { 1 } else { LANES }
    }

    /// Whether something is added to its products.
    pub(crate) fn has_bias(&self) -> bool {
        self.bias.is_some()
    }

    pub(super) fn bias(&self) -> *const f32 {
        self.bias.as_ref().map_or(std::ptr::null(), |bias| bias.as_ptr())
    }

    pub(super) fn tiles(&self) -> usize {
        match self.kernel {
            Kernel::Quantised(_) => product::tiles(self.n_out()),
            Kernel::Dense(_) => self.n_out().div_ceil(LANES),
        }
    }
}
