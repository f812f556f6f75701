//! Which numbers do gpt-oss's blocks hold? 4-bit floats with a power of two for every 32, the MXFP4 of the OCP's
//! microscaling formats.
//!
//! A weight `W` is two tensors of bytes: `W_blocks` `[.., row / 32, 16]`, two numbers a byte, the lower half first, and
//! `W_scales` `[.., row / 32]`.

use super::unreadable::UnreadableTensor;
use super::{DType, TensorInfo};
use crate::error::{Error, ErrorKind, Result, ShapeDetail};

/// What the tensors' names end in.
const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";
/// What safetensors calls their types; newer files may have one of its own for scales.
const BYTES: &str = "U8";
const EXPONENTS: &str = "F8_E8M0";

/// The blocks of a weight.
pub(super) fn blocks(name: &str) -> String {
    format!("{name}{BLOCKS}")
}

/// The scales of a weight.
pub(super) fn scales(name: &str) -> String {
    format!("{name}{SCALES}")
}

/// The weight whose blocks a tensor may be.
pub(super) fn weight(tensor: &UnreadableTensor) -> Option<&str> {
    tensor.name.strip_suffix(BLOCKS).filter(|_| tensor.dtype == BYTES)
}

/// Whether a tensor's bytes may be powers of two.
fn are_exponents(tensor: &UnreadableTensor) -> bool {
    tensor.dtype == BYTES || tensor.dtype == EXPONENTS
}

/// Describes the weight of some blocks, and its scales, which are a tensor with the number of its file.
///
/// # Errors
/// [`ErrorKind::TensorMissing`] without scales, [`ErrorKind::TensorShape`] when they are not of the same rows.
pub(super) fn describe(
    name: &str,
    (file, blocks): (usize, &UnreadableTensor),
    scales: Option<(usize, &UnreadableTensor)>,
) -> Result<[TensorInfo; 2]> {
    let wrong = |tensor: &str, what: &str, found: &[usize]| {
        Error::new(ErrorKind::TensorShape, format!("expected {what}, found shape {found:?}"))
            .with("tensor", tensor)
            .with_hint("the weights do not belong together: fetch them all again")
    };
    let bytes = DType::FP4.block_bytes();
    let [outer @ .., n, block] = blocks.shape.as_slice() else {
        return Err(wrong(&blocks.name, "rows of blocks", &blocks.shape));
    };
    let Some(width) = n.checked_mul(DType::FP4.block_len()).filter(|_| *block == bytes && !outer.is_empty())
    else {
        return Err(wrong(&blocks.name, &format!("rows of blocks of {bytes} bytes"), &blocks.shape));
    };
    let Some((scales_file, scales)) = scales.filter(|(_, scales)| are_exponents(scales)) else {
        return Err(Error::new(
            ErrorKind::TensorMissing,
            "expected scales of one byte beside blocks of 4-bit floats, found none",
        )
        .with("tensor", self::scales(name))
        .with_hint("the checkpoint is incomplete: fetch it again"));
    };
    let expected = [outer, &[*n]].concat();
    if scales.shape != expected {
        let what = format!("shape {expected:?} for blocks of shape {:?}", blocks.shape);
        let detail = ShapeDetail { expected, found: scales.shape.clone() };
        return Err(wrong(&scales.name, &what, &scales.shape).with_detail(detail));
    }
    let shape = [outer, &[width]].concat();
    let weight = TensorInfo::new(name, DType::FP4, shape, file, blocks.offset, blocks.len);
    Ok([weight, scales.of_type(DType::E8M0, scales_file)])
}
