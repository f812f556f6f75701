//! Which numbers do MLX's packed words hold? Affine quantisation as `mlx.core.quantize` writes it.
//!
//! A row is cut into groups, each with a scale and a bias: a value is `scale · q + bias`. The integers `q` of 2 to 8
//! bits follow each other without gaps from the lowest bit of the first word on, across the borders of words
//! (`extract_bits` and `get_bytes_per_pack` of MLX, `mlx/backend/cpu/quantized.cpp`).
//! `config.json` says how wide they are, for all modules and for some by name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::tensor::bytes;
use crate::arch::LayerTensor;
use crate::error::{Error, ErrorKind, Result, ShapeDetail};
use crate::weights::mmap::Mapping;
use crate::weights::quant::dequantise;
use crate::weights::safetensors::{HfMetadata, SafetensorsHeader, UnreadableTensor};
use crate::weights::{Checkpoint, MappedFile, Region};

/// Where `config.json` says how modules are quantised.
const SECTION: &str = "quantization";
/// What safetensors calls the words.
const WORDS: &str = "U32";
const WORD_BITS: usize = 32;

/// The packed tensors of a checkpoint of MLX; of others there are none.
#[derive(Default)]
pub(super) struct Mlx {
    config: PathBuf,
    section: Value,
    /// Each with the index of its file.
    packed: HashMap<String, (usize, UnreadableTensor)>,
}

/// How a module is quantised.
#[derive(Clone, Copy)]
struct Scheme {
    bits: usize,
    group: usize,
}

/// One packed matrix, mapped.
pub(super) struct Packed {
    words: Arc<Mapping>,
    scales: Region,
    biases: Region,
    scheme: Scheme,
    /// Of a row of words.
    row_bytes: usize,
    /// The matrix' first row among those of its stack.
    first: usize,
}

impl Mlx {
    /// Looks for packed tensors in the headers of the files, if the configuration speaks of such.
    pub(super) fn read(metadata: &HfMetadata, files: &[MappedFile]) -> Result<Self> {
        let Some(section) = metadata.config.get(SECTION).filter(|section| section.is_object()) else {
            return Ok(Self::default());
        };
        let mut packed = HashMap::new();
        for (at, file) in files.iter().enumerate() {
            let tensors = SafetensorsHeader::map(file)?.into_unreadable();
            let words = tensors.into_iter().filter(|tensor| tensor.dtype == WORDS);
            packed.extend(words.map(|tensor| (tensor.name.clone(), (at, tensor))));
        }
        Ok(Self { config: metadata.folder.join("config.json"), section: section.clone(), packed })
    }

    /// Whether there is a packed tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.packed.contains_key(name)
    }

    /// Maps the packed tensor of this name, which holds numbers of this shape; of a stack, one of its parts. `None`
    /// when it is not packed.
    pub(super) fn tensor(
        &self,
        checkpoint: &dyn Checkpoint,
        name: &str,
        shape: &[usize],
        part: usize,
    ) -> Result<Option<Packed>> {
        let Some((file, info)) = self.packed.get(name) else { return Ok(None) };
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let scheme = self.scheme(module)?;
        let (width, outer) = shape.split_last().map_or((0, &[][..]), |(&width, outer)| (width, outer));
        let of_rows = |len: usize| [outer, &[len]].concat();
        let bits = width.saturating_mul(scheme.bits);
        let words = of_rows(bits / WORD_BITS);
        let whole = width.is_multiple_of(scheme.group) && bits.is_multiple_of(WORD_BITS);
        if !whole || info.shape != words {
            return Err(Error::new(
                ErrorKind::TensorShape,
                format!(
                    "expected shape {words:?} of words with {} bits for each of {shape:?} numbers, found {:?}",
                    scheme.bits, info.shape
                ),
            )
            .with("tensor", name)
            .with_detail(ShapeDetail { expected: words, found: info.shape.clone() })
            .with_hint("the weights do not belong to this configuration"));
        }
        let beside = |kind: &str| {
            let region = checkpoint.region(&format!("{module}.{kind}"))?;
            region.expect_shape(&of_rows(width / scheme.group))?;
            Ok(region)
        };
        let file = checkpoint.files().get(*file).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a tensor names a file that is not open").with("tensor", name)
        })?;
        let rows = outer.last().copied().unwrap_or(1);
        Ok(Some(Packed {
            words: file.share(info.offset, info.len)?,
            scales: beside("scales")?,
            biases: beside("biases")?,
            scheme,
            row_bytes: bits / 8,
            first: if outer.len() > 1 { part.saturating_mul(rows) } else { 0 },
        }))
    }

    #[cfg(test)]
    pub(super) fn scheme_bits(&self, module: &str) -> usize {
        self.scheme(module).unwrap().bits
    }

    /// How a module is quantised: as its own entry says, or as all are.
    fn scheme(&self, module: &str) -> Result<Scheme> {
        let own = self.section.get(module).filter(|entry| entry.is_object());
        let field = |key: &str| own.and_then(|entry| entry.get(key)).or_else(|| self.section.get(key));
        let number = |key: &str, allowed: &[usize]| {
            let found = field(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
            found.filter(|n| allowed.contains(n)).ok_or_else(|| {
                invalid(
                    &self.config,
                    module,
                    key,
                    format!("expected one of {allowed:?}, found {}", told(field(key))),
                )
            })
        };
        match field("mode").map(Value::as_str) {
            None | Some(Some("affine")) => {}
            Some(_) => {
                return Err(Error::new(
                    ErrorKind::DTypeUnsupported,
                    format!("expected the mode affine, found {}", told(field("mode"))),
                )
                .with("field", format!("{SECTION}.{module}.mode"))
                .with_hint("use the model's bfloat16 checkpoint, or one with affine quantisation"));
            }
        }
        Ok(Scheme {
            bits: number("bits", &[2, 3, 4, 5, 6, 8])?,
            group: number("group_size", &[16, 32, 64, 128])?,
        })
    }
}

impl Packed {
    /// The numbers of one row.
    pub(super) fn decode(&self, row: usize, out: &mut [f32]) {
        let Scheme { bits, group } = self.scheme;
        let row = self.first.saturating_add(row);
        let start = row.saturating_mul(self.row_bytes);
        let end = start.saturating_add(self.row_bytes);
        let mut words = self.words.get(start..end).unwrap_or_default().iter();
        let (scales, biases) = (bytes(&self.scales, row), bytes(&self.biases, row));
        let (mut held, mut n_held) = (0u32, 0);
        for (at, out) in out.chunks_mut(group).enumerate() {
            let (scale, bias) = (number(&self.scales, scales, at), number(&self.biases, biases, at));
            for value in out {
                if n_held < bits {
                    held |= u32::from(words.next().copied().unwrap_or_default()) << n_held;
                    n_held += 8;
                }
                let q = held & ((1 << bits) - 1);
                (held, n_held) = (held >> bits, n_held - bits);
                *value = scale * q as f32 + bias;
            }
        }
    }
}

/// One of the floats in a stored row.
fn number(region: &Region, row: &[u8], at: usize) -> f32 {
    let size = region.dtype().block_bytes();
    let mut value = [0.0];
    dequantise(region.dtype(), row.get(at * size..).unwrap_or_default(), &mut value);
    value[0]
}

/// What MLX calls the stacked weights of a layer's experts, whose router has this name.
pub(super) fn stack(router: &str, tensor: LayerTensor) -> Option<String> {
    let word = match tensor {
        LayerTensor::ExpertGate => "gate_proj",
        LayerTensor::ExpertUp => "up_proj",
        LayerTensor::ExpertDown => "down_proj",
        _ => return None,
    };
    Some(format!("{}.switch_mlp.{word}.weight", router.strip_suffix(".gate.weight")?))
}

fn told(value: Option<&Value>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string().chars().take(80).collect())
}

fn invalid(config: &Path, module: &str, key: &str, message: String) -> Error {
    Error::new(ErrorKind::ConfigInvalid, message)
        .with("file", config.display())
        .with("field", format!("{SECTION}.{module}.{key}"))
        .with_hint("fetch the model's config.json again")
}
