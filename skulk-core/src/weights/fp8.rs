//! Which numbers do folders in FP8 hold? 8-bit floats, times a number for a matrix, for each row or for each block.
//!
//! `X.weight` is of the type F8_E4M3, and its scales are `X.weight_scale_inv` (the `quant_method` `fp8`, which calls them the
//! inverse of what floats were multiplied by) or `X.weight_scale` (others): one, one for each row, or those of blocks of as
//! many rows and columns as `quantization_config` says, of which the last of a row or a column may be smaller.

use std::path::PathBuf;

use serde_json::Value;

use super::safetensors::HfMetadata;
use super::unreadable::UnreadableTensor;
use super::{DType, TensorInfo};
use crate::error::{Error, ErrorKind, Result, ShapeDetail};

/// What safetensors calls the weights' type.
const FLOATS: &str = "F8_E4M3";
/// What it calls scales that are powers of two.
const EXPONENTS: &str = "F8_E8M0";
/// What the weights' names end in.
const WEIGHT: &str = ".weight";
/// What scales' names have behind it.
const SCALES: [&str; 2] = ["_scale_inv", "_scale"];
/// The `quant_method`s whose matrices in FP8 have such scales.
const METHODS: [&str; 4] = [FP8, "fbgemm_fp8", "compressed-tensors", "modelopt"];
/// The one that writes nothing else.
pub(super) const FP8: &str = "fp8";
/// Columns of a block are a multiple of so many.
const LANES: usize = 16;

/// What a folder says about its matrices in FP8.
#[derive(Debug)]
pub(super) struct Fp8 {
    config: PathBuf,
    /// Rows and columns of a block, and which field has them.
    block: Option<(Value, &'static str)>,
}

/// Scales that may be beside a matrix.
pub(super) fn beside(name: &str) -> [String; 2] {
    SCALES.map(|end| format!("{name}{end}"))
}

impl Fp8 {
    /// `None` where the configuration speaks of no such quantisation.
    pub(super) fn read(metadata: &HfMetadata) -> Option<Self> {
        let section = metadata.config.get("quantization_config")?;
        let method = section.get("quant_method")?.as_str()?;
        METHODS.contains(&method).then(|| {
            let groups = section.get("config_groups").and_then(Value::as_object);
            let of_groups = groups.into_iter().flat_map(|groups| groups.values());
            let structure = of_groups.filter_map(|group| group.get("weights")?.get("block_structure"));
            let sizes = section.get("weight_block_size").map(|size| (size, "weight_block_size"));
            let sizes = sizes
                .into_iter()
                .chain(structure.map(|size| (size, "config_groups.*.weights.block_structure")));
            let block = sizes.map(|(size, field)| (size.clone(), field)).find(|(size, _)| !size.is_null());
            Self { config: metadata.folder.join("config.json"), block }
        })
    }

    /// Whether a tensor may be such a matrix.
    pub(super) fn is_weight(tensor: &UnreadableTensor) -> bool {
        tensor.dtype == FLOATS && tensor.name.ends_with(WEIGHT)
    }

    /// Scales that are powers of two.
    pub(super) fn exponents(file: usize, tensor: &UnreadableTensor) -> Option<TensorInfo> {
        let is_scale = SCALES.iter().any(|end| tensor.name.ends_with(&format!("{WEIGHT}{end}")));
        (is_scale && tensor.dtype == EXPONENTS).then(|| tensor.of_type(DType::E8M0, file))
    }

    /// The scales of a matrix, as a matrix, and how many rows and columns share one; `tensor` knows those that can be read.
    ///
    /// # Errors
    /// [`ErrorKind::TensorMissing`] without scales, [`ErrorKind::TensorShape`] for what is no matrix, and for scales of
    /// another shape, [`ErrorKind::ConfigInvalid`] for blocks of no size, [`ErrorKind::DTypeUnsupported`] for sizes that
    /// there are no products for.
    pub(super) fn scales<'a>(
        &self,
        (name, shape): (&str, &[usize]),
        tensor: impl Fn(&str) -> Option<&'a TensorInfo>,
    ) -> Result<(TensorInfo, [usize; 2])> {
        let &[n_out, n_in] = shape else {
            let message = format!("expected a matrix of 8-bit floats, found shape {shape:?}");
            return Err(Error::new(ErrorKind::TensorShape, message)
                .with("tensor", name)
                .with_hint("use the model's bfloat16 checkpoint or a GGUF file of it"));
        };
        let is_scale = |info: &&TensorInfo| info.dtype == DType::E8M0 || !info.dtype.is_quantised();
        let Some(scales) = beside(name).iter().find_map(|name| tensor(name).filter(is_scale)) else {
            let message = "expected scales in floats beside 8-bit floats, found none";
            return Err(Error::new(ErrorKind::TensorMissing, message)
                .with("tensor", format!("{name}{}", SCALES[0]))
                .with_hint("the checkpoint is incomplete: fetch it again"));
        };
        let of_shape = |shape: [usize; 2]| TensorInfo { shape: shape.to_vec(), ..scales.clone() };
        let block = self.block()?;
        if let Some([tall, wide]) = block
            && scales.shape == [n_out.div_ceil(tall), n_in.div_ceil(wide)]
        {
            return Ok((scales.clone(), [tall, wide]));
        }
        if matches!(*scales.shape, [] | [1] | [1, 1]) {
            return Ok((of_shape([1, 1]), [n_out.max(1), n_in.max(1)]));
        }
        if *scales.shape == [n_out] || *scales.shape == [n_out, 1] {
            return Ok((of_shape([n_out, 1]), [1, n_in.max(1)]));
        }
        let expected = match block {
            Some([tall, wide]) => vec![n_out.div_ceil(tall), n_in.div_ceil(wide)],
            None => vec![n_out, 1],
        };
        let what = block.map_or("one or one for each row".to_owned(), |[tall, wide]| {
            format!("blocks of {tall} by {wide}")
        });
        let message = format!(
            "expected shape {expected:?} for scales ({what}) of a matrix {shape:?}, found shape {:?}",
            scales.shape
        );
        Err(Error::new(ErrorKind::TensorShape, message)
            .with("tensor", &scales.name)
            .with_detail(ShapeDetail { expected, found: scales.shape.clone() })
            .with_hint("the weights do not belong to this configuration: fetch both again"))
    }

    /// Rows and columns of a block.
    fn block(&self) -> Result<Option<[usize; 2]>> {
        let Some((value, field)) = &self.block else { return Ok(None) };
        let refused = |kind, message: String, hint| {
            Err(Error::new(kind, message)
                .with("file", self.config.display())
                .with("field", format!("quantization_config.{field}"))
                .with_hint(hint))
        };
        let size =
            |at: usize| value.get(at)?.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let told = || value.to_string().chars().take(80).collect::<String>();
        let (Some(tall), Some(wide), Some(2)) = (size(0), size(1), value.as_array().map(Vec::len)) else {
            let message = format!("expected rows and columns of a block, found {}", told());
            return refused(ErrorKind::ConfigInvalid, message, "fetch the model's config.json again");
        };
        if !wide.is_multiple_of(LANES) {
            let message = format!("expected blocks with a multiple of {LANES} columns, found {}", told());
            let hint = "use the model's bfloat16 checkpoint or a GGUF file of it";
            return refused(ErrorKind::DTypeUnsupported, message, hint);
        }
        Ok(Some([tall, wide]))
    }
}
