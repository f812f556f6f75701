//! What does a folder have that MLX converted, of a family's widths? Its configuration and random weights.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use half::bf16;
use serde_json::{Map, Value, json};
use skulk::internals::{StoredTensor, tensors};

use crate::AnyError;

/// Numbers of a group that have a scale and a bias.
const GROUP: usize = 64;
/// The same of MXFP4, of which there are scales alone.
const SMALL_GROUP: usize = 32;
/// Bytes of noise, which repeats.
const NOISE: usize = 1 << 24;

/// How a matrix is stored.
#[derive(Clone, Copy)]
enum Scheme {
    Floats,
    Affine { bits: usize },
    SmallFloats,
}

/// A tensor of the file, and what fills it.
struct Part {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    fill: Fill,
}

enum Fill {
    Noise,
    /// Noise where these bits are set, and the others as given.
    Floats(u16),
    Word(u16),
    Byte(u8),
}

impl Part {
    fn len(&self) -> usize {
        let size = match self.dtype {
            "U32" => 4,
            "BF16" => 2,
            _ => 1,
        };
        self.shape.iter().product::<usize>() * size
    }
}

/// Writes `config.json` and `model.safetensors`, and tells how many bytes of the weights a token reads.
pub(crate) fn write(folder: &Path, config: &Value) -> Result<u64, AnyError> {
    let section = config.get("quantization").and_then(Value::as_object);
    let bits = section.and_then(|section| section.get("bits")?.as_u64()).unwrap_or(4) as usize;
    let small = section.is_some_and(|section| section.contains_key("experts"));
    let mut modules = json!({ "group_size": GROUP, "bits": bits });
    let (mut parts, mut read) = (Vec::new(), 0);
    for tensor in tensors(config)? {
        let whole_groups = tensor.shape.last().is_some_and(|width| width.is_multiple_of(GROUP));
        let scheme = match tensor.is_quantised && whole_groups {
            true if small && tensor.is_experts => Scheme::SmallFloats,
            true => Scheme::Affine { bits },
            false => Scheme::Floats,
        };
        if let (Scheme::SmallFloats, Some(modules)) = (scheme, modules.as_object_mut()) {
            let own = json!({ "group_size": SMALL_GROUP, "bits": 4, "mode": "mxfp4" });
            modules.insert(module(&tensor.name).to_owned(), own);
        }
        let own = stored(&tensor, scheme);
        let [numerator, denominator] = tensor.read;
        read += (own.iter().map(Part::len).sum::<usize>() / denominator * numerator) as u64;
        parts.extend(own);
    }
    let mut config = config.clone();
    config["quantization"] = modules;
    fs::write(folder.join("config.json"), config.to_string())?;
    write_parts(&folder.join("model.safetensors"), &parts)?;
    Ok(read)
}

fn module(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

/// A tensor with what is beside it: norms are ones, all else is noise of unit gain.
fn stored(tensor: &StoredTensor, scheme: Scheme) -> Vec<Part> {
    let width = tensor.shape.last().copied().unwrap_or(1);
    let columns = |n: usize| [&tensor.shape[..tensor.shape.len() - 1], &[n]].concat();
    let part = |kind: &str, dtype, shape, fill| {
        let name = match kind {
            "" => tensor.name.clone(),
            kind => format!("{}.{kind}", module(&tensor.name)),
        };
        Part { name, dtype, shape, fill }
    };
    let number = |x: f32| Fill::Word(bf16::from_f32(x).to_bits());
    let gain = (width as f32).sqrt().recip();
    match scheme {
        Scheme::Floats if tensor.shape.len() == 1 => vec![part("", "BF16", columns(width), number(1.0))],
        // Signs and mantissas are noise, exponents those of this gain.
        Scheme::Floats => {
            let exponent = bf16::from_f32(gain).to_bits() & 0x7f80;
            vec![part("", "BF16", columns(width), Fill::Floats(exponent))]
        }
        Scheme::Affine { bits } => {
            let most = ((1 << bits) - 1) as f32;
            let scale = gain * 12.0f32.sqrt() / most;
            let groups = columns(width / GROUP);
            vec![
                part("", "U32", columns(width * bits / 32), Fill::Noise),
                part("scales", "BF16", groups.clone(), number(scale)),
                part("biases", "BF16", groups, number(-scale * most / 2.0)),
            ]
        }
        Scheme::SmallFloats => {
            // Of all sixteen numbers the mean square is 8.6. A float's exponent is at its top.
            let exponent = (gain / 8.6f32.sqrt()).to_bits() >> 23;
            let scales = Fill::Byte(exponent as u8);
            vec![
                part("", "U32", columns(width / 8), Fill::Noise),
                part("scales", "U8", columns(width / SMALL_GROUP), scales),
            ]
        }
    }
}

fn write_parts(path: &Path, parts: &[Part]) -> Result<(), AnyError> {
    let (mut header, mut end) = (Map::new(), 0);
    header.insert("__metadata__".into(), json!(BTreeMap::from([("format", "mlx")])));
    for part in parts {
        let start = end;
        end += part.len();
        let entry = json!({ "dtype": part.dtype, "shape": part.shape, "data_offsets": [start, end] });
        header.insert(part.name.clone(), entry);
    }
    let mut header = Value::from(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let noise = noise();
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for part in parts {
        let mut left = part.len();
        let block: Vec<u8> = match part.fill {
            Fill::Noise => Vec::new(),
            Fill::Floats(exponent) => {
                let own = noise[..left.min(NOISE)].as_chunks::<2>().0.iter();
                own.flat_map(|bytes| (u16::from_le_bytes(*bytes) & 0x807f | exponent).to_le_bytes()).collect()
            }
            Fill::Word(word) => word.to_le_bytes().repeat(left.min(NOISE) / 2),
            Fill::Byte(byte) => vec![byte; left.min(NOISE)],
        };
        let block = if block.is_empty() { &noise[..] } else { &block };
        while left > 0 {
            let n = left.min(block.len());
            file.write_all(&block[..n])?;
            left -= n;
        }
    }
    Ok(file.into_inner()?.sync_data()?)
}

/// Bytes without pattern, the same in each run.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    std::iter::repeat_with(next).take(NOISE / 8).flat_map(u64::to_le_bytes).collect()
}
