//! How does a stored weight matrix live on a device? In its stored type, copied once.
//!
//! Quantised products run in the device's integer kernels, which round activations to 8 bits as
//! every GGML kernel does; where that is not precise enough, they become f32 for the product, a part at a time.
//! Half-float weights are widened to f32 a part at a time, because the device's half-float products
//! would round activations and results to 11 or 8 bits.

use std::borrow::Cow;

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType as CandleDType, Device, Result as CandleResult, Tensor};

use super::failed;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, Region};

/// Elements of a matrix that become f32 at a time: bounds their memory, which is of what plans keep free. Small in tests,
/// so that small matrices pass through in parts too.
const WIDENED: usize = if cfg!(test) { 1 << 12 } else { 1 << 24 };

/// What addresses of blocks are multiples of, whatever their type.
const ALIGNMENT: usize = 8;

/// A weight matrix `[out, in]` on the device.
pub(crate) struct Matrix {
    weight: Weight,
    bias: Option<Tensor>,
    n_in: usize,
}

enum Weight {
    /// Multiplied as blocks.
    Blocks(QTensor),
    /// Multiplied in f32: each product expands a part after the other, of so many rows.
    Precise(Vec<QTensor>, usize),
    Dense(Tensor),
}

impl Matrix {
    /// `precise`: products do not round activations.
    pub(super) fn new(
        device: &Device,
        region: &Region,
        bias: Option<Vec<f32>>,
        precise: bool,
    ) -> Result<Self> {
        if region.dtype().is_for_cpus() && !precise {
            return Err(Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected weights that candle has products of, found {}", region.dtype()),
            )
            .with_hint("use the engine cpu, or a GGUF file of the model"));
        }
        region.will_need();
        let shape = (region.rows(), region.row_len());
        let dense = |dtype| {
            region.expect_plain()?;
            let tensor = Tensor::from_raw_buffer(region.bytes(), dtype, &[shape.0, shape.1], device);
            tensor.map(Weight::Dense).map_err(failed)
        };
        let blocks = |dtype| {
            region.expect_plain()?;
            let mut room = Vec::new();
            let bytes = aligned(region, &mut room)?;
            let of = |rows: usize, bytes| {
                let storage = QStorage::from_data(Cow::Borrowed(bytes), device, dtype)?;
                QTensor::new(storage, (rows, shape.1))
            };
            if !precise {
                return of(shape.0, bytes).map(Weight::Blocks).map_err(failed);
            }
            // So that each part's address suits every block type, too.
            let step = (WIDENED / shape.1.max(1)).max(1).next_multiple_of(ALIGNMENT);
            let parts = bytes
                .chunks((step * region.row_bytes()).max(1))
                .map(|part| of(part.len() / region.row_bytes().max(1), part));
            let parts = parts.collect::<CandleResult<_>>();
            parts.map(|parts| Weight::Precise(parts, step)).map_err(failed)
        };
        let weight = match region.dtype() {
            DType::F32 => dense(CandleDType::F32)?,
            DType::F16 => dense(CandleDType::F16)?,
            DType::BF16 => dense(CandleDType::BF16)?,
            DType::Q4_0 => blocks(GgmlDType::Q4_0)?,
            DType::Q4_1 => blocks(GgmlDType::Q4_1)?,
            DType::Q5_0 => blocks(GgmlDType::Q5_0)?,
            DType::Q5_1 => blocks(GgmlDType::Q5_1)?,
            DType::Q8_0 => blocks(GgmlDType::Q8_0)?,
            DType::Q2_K => blocks(GgmlDType::Q2K)?,
            DType::Q3_K => blocks(GgmlDType::Q3K)?,
            DType::Q4_K => blocks(GgmlDType::Q4K)?,
            DType::Q5_K => blocks(GgmlDType::Q5K)?,
            DType::Q6_K => blocks(GgmlDType::Q6K)?,
            // LARQL's and MLX's blocks candle does not know; an activation format has no product as a weight on GPUs.
            DType::Q6_K_Linear
            | DType::Q8_K
            | DType::Affine2
            | DType::Affine3
            | DType::Affine4
            | DType::Affine5
            | DType::Affine6
            | DType::Affine8
            | DType::FP4
            | DType::NVFP4
            | DType::FP8
            | DType::MXFP4
            | DType::IQ4_NL
            | DType::IQ4_XS
            | DType::TQ2_0
            | DType::IQ1_S
            | DType::IQ1_M
            | DType::IQ2_XXS
            | DType::IQ2_XS
            | DType::IQ2_S
            | DType::IQ3_XXS
            | DType::IQ3_S
            | DType::TQ1_0
            | DType::E8M0
            | DType::E4M3 => {
                let mut values = reserved(region, shape.0.saturating_mul(shape.1))?;
                values.resize(shape.0 * shape.1, 0.0);
                region.read_rows(0..shape.0, &mut values)?;
                Weight::Dense(Tensor::from_vec(values, shape, device).map_err(failed)?)
            }
        };
        let bias = bias.map(|values| {
            let len = values.len();
            Tensor::from_vec(values, len, device).map_err(failed)
        });
        Ok(Self { weight, bias: bias.transpose()?, n_in: shape.1 })
    }

    /// Elements that it takes.
    pub(super) fn n_in(&self) -> usize {
        self.n_in
    }

    /// `x · weightᵀ + bias` for `x` of shape `[rows, in]`.
    pub(super) fn multiply(&self, x: &Tensor) -> CandleResult<Tensor> {
        let product = match &self.weight {
            // candle's `QMatMul` would ask the environment which product to use.
            Weight::Blocks(weight) => x.apply_op1_no_bwd(weight)?,
            Weight::Precise(parts, _) => {
                let product = |part: &QTensor| x.matmul(&part.dequantize(x.device())?.t()?);
                Tensor::cat(&parts.iter().map(product).collect::<CandleResult<Vec<_>>>()?, 1)?
            }
            Weight::Dense(weight) => dense_product(x, weight)?,
        };
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }

    /// Rows by index, in f32.
    pub(super) fn rows(&self, indices: &Tensor) -> CandleResult<Tensor> {
        match &self.weight {
            Weight::Blocks(weight) => weight.embedding(indices),
            Weight::Precise(parts, step) => {
                let row = |index: u32| match parts.get(index as usize / step) {
                    Some(part) => part.embedding(&Tensor::new(&[index % *step as u32], indices.device())?),
                    None => candle_core::bail!("expected a row that there is, found {index}"),
                };
                let rows = indices.to_vec1()?.into_iter().map(row).collect::<CandleResult<Vec<_>>>()?;
                Tensor::cat(&rows, 0)
            }
            Weight::Dense(weight) => weight.index_select(indices, 0)?.to_dtype(CandleDType::F32),
        }
    }
}

/// See [`Backend::linear_heads`](crate::engine::backend::Backend::linear_heads).
pub(super) fn by_head(weights: &[Matrix], x: &Tensor) -> CandleResult<Tensor> {
    let of_head = x.dim(1)? / weights.len().max(1);
    let mut heads = Vec::new();
    for (head, weight) in weights.iter().enumerate() {
        let (x, n_in) = (x.narrow(1, head * of_head, of_head)?, weight.n_in());
        heads.push(weight.multiply(&x.narrow(1, 0, n_in)?.contiguous()?)?);
        if n_in < of_head {
            heads.push(x.narrow(1, n_in, of_head - n_in)?);
        }
    }
    Tensor::cat(&heads, 1)
}

fn dense_product(x: &Tensor, weight: &Tensor) -> CandleResult<Tensor> {
    let (n_out, n_in) = weight.dims2()?;
    let step = (WIDENED / n_in.max(1)).max(1);
    if weight.dtype() == CandleDType::F32 || n_out <= step {
        return x.matmul(&weight.to_dtype(CandleDType::F32)?.t()?);
    }
    let columns = (0..n_out)
        .step_by(step)
        .map(|from| {
            let part = weight.narrow(0, from, step.min(n_out - from))?;
            x.matmul(&part.to_dtype(CandleDType::F32)?.t()?)
        })
        .collect::<CandleResult<Vec<_>>>()?;
    Tensor::cat(&columns, 1)
}

/// The region's bytes at an address that suits every block type, through `room` when the file lays
/// them elsewhere.
fn aligned<'a>(region: &'a Region, room: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    let bytes = region.bytes();
    if bytes.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        return Ok(bytes);
    }
    *room = reserved(region, bytes.len().saturating_add(ALIGNMENT))?;
    let address = room.as_ptr().addr();
    let offset = address.next_multiple_of(ALIGNMENT) - address;
    room.resize(offset, 0);
    room.extend_from_slice(bytes);
    Ok(&room[offset..])
}

fn reserved<T>(region: &Region, len: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|e| {
        Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for a weight's conversion")
            .with("tensor", region.name())
            .with_source(e)
    })?;
    Ok(values)
}
