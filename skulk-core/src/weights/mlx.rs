//! Which numbers do MLX's packed words hold? Affine quantisation and small floats as `mlx.core.quantize` writes them.
//!
//! A row is cut into groups, each with a scale and a bias: a value is `scale · q + bias`. The integers `q` of 2 to 8
//! bits follow each other without gaps from the lowest bit of the first word on, across the borders of words
//! (`extract_bits` and `get_bytes_per_pack` of MLX, `mlx/backend/cpu/quantized.cpp`). In other modes they are floats of 4 bits
//! (`mxfp4`, `nvfp4`) or 8 (`mxfp8`) instead, without biases: in groups of 32 with powers of two for scales or, `nvfp4`, of 16
//! with 8-bit floats.
//! `config.json` says how wide they are, for all modules and for some by name; `weight`, `scales` and `biases` of a
//! module are three tensors.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::safetensors::HfMetadata;
use super::unreadable::UnreadableTensor;
use super::{DType, TensorInfo};
use crate::error::{Error, ErrorKind, Result, ShapeDetail};

/// Where `config.json` says how modules are quantised.
const SECTION: &str = "quantization";
/// What safetensors calls the words.
const WORDS: &str = "U32";
const WORD_BITS: usize = 32;
/// What a word's module ends in.
const WEIGHT: &str = ".weight";
/// A number for a whole tensor, beside the scales of its groups.
const GLOBAL: &str = "global_scale";
/// What safetensors calls scales of one byte; newer files may have types of their own.
const BYTES: &str = "U8";

/// What a checkpoint of MLX says about its packed tensors.
#[derive(Debug)]
pub(super) struct Mlx {
    config: PathBuf,
    section: Value,
}

/// How a module is quantised.
#[derive(Clone, Copy)]
struct Scheme {
    bits: usize,
    group: usize,
    /// What words hold, and scales of one byte; integers have scales and biases in floats instead.
    dtype: DType,
    scales: Option<(DType, &'static str)>,
}

/// Modes of small floats, by name.
const SMALL: [(&str, Scheme); 3] = [
    ("mxfp4", Scheme { bits: 4, group: 32, dtype: DType::FP4, scales: Some((DType::E8M0, "F8_E8M0")) }),
    ("nvfp4", Scheme { bits: 4, group: 16, dtype: DType::NVFP4, scales: Some((DType::E4M3, "F8_E4M3")) }),
    ("mxfp8", Scheme { bits: 8, group: 32, dtype: DType::FP8, scales: Some((DType::E8M0, "F8_E8M0")) }),
];

/// The tensors beside packed words: scales and biases.
pub(super) fn beside(name: &str) -> [String; 2] {
    let module = name.strip_suffix(WEIGHT).unwrap_or(name);
    ["scales", "biases"].map(|kind| format!("{module}.{kind}"))
}

impl Mlx {
    /// `None` where the configuration speaks of no such quantisation.
    pub(super) fn read(metadata: &HfMetadata) -> Option<Self> {
        let section = metadata.config.get(SECTION).filter(|section| section.is_object())?;
        Some(Self { config: metadata.folder.join("config.json"), section: section.clone() })
    }

    /// Whether a tensor may hold packed words.
    pub(super) fn is_packed(tensor: &UnreadableTensor) -> bool {
        tensor.dtype == WORDS && tensor.name.ends_with(WEIGHT)
    }

    /// Describes packed words, with the shape of the numbers that they hold, and then scales of one byte.
    /// `tensor` knows those of floats beside them, `bytes` others, with the number of their file.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] for numbers that no quantisation has, [`ErrorKind::DTypeUnsupported`] for other
    /// modes and for scales of whole tensors, [`ErrorKind::TensorMissing`] without scales or biases, [`ErrorKind::TensorShape`] when words, scales and
    /// biases are not of one matrix.
    pub(super) fn describe<'a>(
        &self,
        file: usize,
        words: &UnreadableTensor,
        tensor: impl Fn(&str) -> Option<&'a TensorInfo>,
        bytes: impl Fn(&str) -> Option<(usize, &'a UnreadableTensor)>,
    ) -> Result<(TensorInfo, Option<TensorInfo>)> {
        let name = &words.name;
        let module = name.strip_suffix(WEIGHT).unwrap_or(name);
        let Scheme { bits, group, dtype, scales: of_bytes } = self.scheme(module)?;
        let wrong = |tensor: &str, what: &str, found: &[usize]| {
            Error::new(ErrorKind::TensorShape, format!("expected {what}, found shape {found:?}"))
                .with("tensor", tensor)
                .with_hint("the weights do not belong to this configuration: fetch both again")
        };
        let (outer, len) = match words.shape.as_slice() {
            [outer @ .., len] if matches!(outer.len(), 1 | 2) => (outer, len.saturating_mul(WORD_BITS)),
            found => return Err(wrong(name, "words in rows or stacks of rows", found)),
        };
        let width = len / bits;
        if width == 0 || !len.is_multiple_of(bits) || !width.is_multiple_of(group) {
            let what = format!("words for whole groups of {group} numbers with {bits} bits");
            return Err(wrong(name, &what, &words.shape));
        }
        if !width.is_multiple_of(dtype.block_len()) {
            let what = format!("words for rows of a multiple of {} numbers", dtype.block_len());
            return Err(wrong(name, &what, &words.shape));
        }
        let of_groups = [outer, &[width / group]].concat();
        let missing = |name: &str, what: &'static str| {
            Error::new(ErrorKind::TensorMissing, what)
                .with("tensor", name)
                .with_hint("the file is incomplete or was not written by mlx: fetch or convert it again")
        };
        let expect_groups = |name: &str, shape: &[usize]| {
            if shape == of_groups {
                return Ok(());
            }
            let what = format!(
                "shape {of_groups:?} for groups of {group} numbers with {bits} bits in words of shape {:?}",
                words.shape
            );
            let detail = ShapeDetail { expected: of_groups.clone(), found: shape.to_vec() };
            Err(wrong(name, &what, shape).with_detail(detail))
        };
        let packed = TensorInfo::new(name, dtype, [outer, &[width]].concat(), file, words.offset, words.len);
        if let Some((dtype, label)) = of_bytes {
            let global = format!("{module}.{GLOBAL}");
            if tensor(&global).is_some() || bytes(&global).is_some() {
                return Err(self.has_global_scale(module));
            }
            let [name, _] = beside(name);
            let is_byte = |scales: &UnreadableTensor| scales.dtype == BYTES || scales.dtype == label;
            let (file, scales) = bytes(&name).filter(|(_, scales)| is_byte(scales)).ok_or_else(|| {
                missing(&name, "expected scales of one byte beside packed words, found none")
            })?;
            expect_groups(&name, &scales.shape)?;
            return Ok((packed, Some(scales.of_type(dtype, file))));
        }
        let mut dtypes = Vec::new();
        for name in beside(name) {
            let what =
                "expected scales and biases beside packed words, found a tensor missing or not of floats";
            let info =
                tensor(&name).filter(|info| info.dtype.is_weight()).ok_or_else(|| missing(&name, what))?;
            expect_groups(&name, &info.shape)?;
            dtypes.push(info.dtype);
        }
        if let [scales, biases] = dtypes[..]
            && (scales != biases || scales.is_quantised())
        {
            return Err(Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected scales and biases of one type of floats, found {scales} and {biases}"),
            )
            .with("tensor", name)
            .with_hint("convert the model again with a current mlx-lm"));
        }
        Ok((packed, None))
    }

    /// Refuses what is multiplied with another number for the whole tensor.
    fn has_global_scale(&self, module: &str) -> Error {
        let message = "expected scales for groups alone, found one for the whole tensor too";
        Error::new(ErrorKind::DTypeUnsupported, message)
            .with("file", self.config.display())
            .with("field", format!("{SECTION}.{module}.{GLOBAL}"))
            .with_hint("use the model's bfloat16 checkpoint, or one with affine quantisation")
    }

    /// How a module is quantised: as its own entry says, or as all are.
    fn scheme(&self, module: &str) -> Result<Scheme> {
        let own = match self.section.get(module) {
            // As all are.
            None | Some(Value::Bool(true)) => None,
            Some(entry) if entry.is_object() => Some(entry),
            Some(other) => {
                let message =
                    format!("expected an object or true for packed weights, found {}", told(Some(other)));
                return Err(invalid(&self.config, module, message));
            }
        };
        let field = |key: &str| own.and_then(|entry| entry.get(key)).or_else(|| self.section.get(key));
        let number = |key: &str, allowed: &[usize]| {
            let found = field(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
            found.filter(|n| allowed.contains(n)).ok_or_else(|| {
                let message = format!("expected one of {allowed:?}, found {}", told(field(key)));
                invalid(&self.config, &format!("{module}.{key}"), message)
            })
        };
        // An entry without a mode is affine, whatever all are.
        let mode = own.map_or_else(|| self.section.get("mode"), |entry| entry.get("mode"));
        let word = mode.map(Value::as_str);
        if let None | Some(Some("affine")) = word {
            let (bits, group) = (number("bits", &[2, 3, 4, 5, 6, 8])?, number("group_size", &[32, 64, 128])?);
            let dtype = DType::affine(bits).ok_or_else(|| {
                Error::new(ErrorKind::Internal, "no type for packed words").with("module", module)
            })?;
            return Ok(Scheme { bits, group, dtype, scales: None });
        }
        let small = SMALL.into_iter().find(|(name, _)| word == Some(Some(*name)));
        let Some((_, scheme)) = small else {
            return Err(Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected the mode affine, mxfp4, mxfp8 or nvfp4, found {}", told(mode)),
            )
            .with("file", self.config.display())
            .with("field", format!("{SECTION}.{module}.mode"))
            .with_hint("use the model's bfloat16 checkpoint, or one with affine quantisation"));
        };
        // As with the mode, an entry of its own says it or it is not so.
        let global = own.unwrap_or(&self.section).get(GLOBAL);
        if global.is_some_and(|global| global != &Value::Bool(false)) {
            return Err(self.has_global_scale(module));
        }
        number("bits", &[scheme.bits])?;
        number("group_size", &[scheme.group])?;
        Ok(scheme)
    }
}

fn told(value: Option<&Value>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string().chars().take(80).collect())
}

fn invalid(config: &Path, field: &str, message: String) -> Error {
    Error::new(ErrorKind::ConfigInvalid, message)
        .with("file", config.display())
        .with("field", format!("{SECTION}.{field}"))
        .with_hint("fetch the model's config.json again")
}
