//! What numbers do stored bytes hold, and how are numbers stored?

mod codebook;
mod decode;
mod encode;
mod grids;
mod linear;

pub(crate) use codebook::{Codebook, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Tq10};
pub(crate) use decode::{IQ4, TWICE_FP4, dequantise};
pub(crate) use encode::{encode_row, encoded_row_bytes};
pub(crate) use linear::from_interleaved;

use super::{DType, Region};
use crate::error::{Error, ErrorKind, Result};

/// A small tensor (a norm, a bias, rope factors) as numbers.
///
/// # Errors
/// [`ErrorKind::TensorShape`] when it is too large to be small, [`ErrorKind::DTypeUnsupported`] when its rows are
/// padded.
pub(crate) fn to_f32(region: &Region) -> Result<Vec<f32>> {
    const LARGEST: usize = 1 << 24;
    let len = region.rows().saturating_mul(region.row_len());
    if len > LARGEST {
        return Err(Error::new(ErrorKind::TensorShape, format!("expected a vector, found {len} elements"))
            .with("tensor", region.name()));
    }
    region.expect_plain()?;
    let mut values = vec![0.0; len];
    region.read_rows(0..region.rows(), &mut values)?;
    Ok(values)
}
