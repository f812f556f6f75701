//! What do other tools make of a checkpoint in floats? The same in FP8, as published on Hugging Face, and in the modes of
//! small floats that MLX has: with the numbers that those are.

use serde_json::json;

use super::mlx_layout::{Checkpoint, Tensor};

/// Rows and columns of a block: not all matrices have whole ones.
const BLOCK: [usize; 2] = [24, 32];

/// An 8-bit float: four bits of exponent, three of mantissa.
pub fn number(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7) / 8.0);
    let size = if exponent == 0 { mantissa / 64.0 } else { (1.0 + mantissa) * 2f32.powi(exponent - 7) };
    match bits {
        0x7f | 0xff => f32::NAN,
        0x80.. => -size,
        _ => size,
    }
}

/// The code whose number is nearest.
fn nearest(value: f32, numbers: &[f32]) -> u8 {
    let off = |at: &usize| (numbers[*at] - value).abs();
    let codes = (0..numbers.len()).filter(|at| !numbers[*at].is_nan());
    codes.min_by(|a, b| off(a).total_cmp(&off(b))).unwrap() as u8
}

fn all() -> Vec<f32> {
    (0..=255).map(number).collect()
}

fn largest(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(1e-6, |a, b| a.max(b.abs()))
}

impl Checkpoint {
    /// Matrices of modules in FP8, with a scale for each block, for each row or for all; and their numbers in floats.
    pub fn in_fp8(self, scales: &str) -> [Self; 2] {
        let [mut packed, mut floats] = [self.clone(), self.clone()];
        packed.config["quantization_config"] = match scales {
            "blocks" => json!({ "quant_method": "fp8", "weight_block_size": BLOCK }),
            "rows" => json!({ "quant_method": "compressed-tensors" }),
            _ => json!({ "quant_method": "modelopt" }),
        };
        let numbers = all();
        for (name, tensor) in &self.weights {
            // What is converted: linear layers, but for the head.
            let &[n_out, n_in] = &*tensor.shape else { continue };
            if !name.ends_with("_proj.weight") && !name.contains("_proj_") {
                continue;
            }
            let [tall, wide] = match scales {
                "blocks" => BLOCK,
                "rows" => [1, n_in],
                _ => [n_out, n_in],
            };
            let values = tensor.values();
            let of = |i: usize| i / n_in / tall * n_in.div_ceil(wide) + i % n_in / wide;
            let mut most = vec![1e-6f32; n_out.div_ceil(tall) * n_in.div_ceil(wide)];
            values.iter().enumerate().for_each(|(i, x)| most[of(i)] = most[of(i)].max(x.abs()));
            let scale: Vec<f32> = most.iter().map(|most| most / 448.0).collect();
            let codes = values.iter().enumerate().map(|(i, x)| nearest(x / scale[of(i)], &numbers));
            let bytes: Vec<u8> = codes.collect();
            let stored = bytes.iter().enumerate().map(|(i, x)| numbers[usize::from(*x)] * scale[of(i)]);
            floats.weights.insert(name.clone(), Tensor::of_f32(&tensor.shape, &stored.collect::<Vec<_>>()));
            packed
                .weights
                .insert(name.clone(), Tensor { dtype: "F8_E4M3".into(), shape: tensor.shape.clone(), bytes });
            let (end, shape) = match scales {
                "blocks" => ("_scale_inv", vec![n_out.div_ceil(tall), n_in.div_ceil(wide)]),
                "rows" => ("_scale", vec![n_out, 1]),
                _ => ("_scale", vec![]),
            };
            packed.weights.insert(format!("{name}{end}"), Tensor::of_f32(&shape, &scale));
        }
        [packed, floats]
    }

    /// What `mlx.nn.quantize` quantises in one of its modes of small floats, and the numbers in floats.
    pub fn in_mode(self, mode: &str) -> [Self; 2] {
        let (bits, group) = match mode {
            "mxfp8" => (8, 32),
            "nvfp4" => (4, 16),
            _ => (4, 32),
        };
        let fours = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        let fours: Vec<f32> = fours.into_iter().chain(fours.map(|x: f32| -x)).collect();
        let numbers = if bits == 8 { all() } else { fours };
        let [mut packed, mut floats] = [self.clone(), self.clone()];
        packed.config["quantization"] = json!({ "group_size": group, "bits": bits, "mode": mode });
        for (name, tensor) in &self.weights {
            let Some(module) = name.strip_suffix(".weight") else { continue };
            let raw = self.weights.contains_key(&format!("{module}.e_score_correction_bias"));
            let len = *tensor.shape.last().unwrap();
            if raw || tensor.shape.len() < 2 || !len.is_multiple_of(32) {
                continue;
            }
            let (mut codes, mut scales, mut stored) = (Vec::new(), Vec::new(), Vec::new());
            for group in tensor.values().chunks_exact(group) {
                let wanted = largest(group.iter().copied()) / numbers.iter().copied().fold(0.0, f32::max);
                let (code, scale) = if mode == "nvfp4" {
                    let code = nearest(wanted.max(number(1)), &all());
                    (code, number(code))
                } else {
                    let exponent = (-126..127).find(|exponent| 2f32.powi(*exponent) >= wanted).unwrap();
                    ((exponent + 127) as u8, 2f32.powi(exponent))
                };
                scales.push(code);
                for value in group {
                    let code = nearest(value / scale, &numbers);
                    codes.push(code);
                    stored.push(numbers[usize::from(code)] * scale);
                }
            }
            if bits == 4 {
                codes = codes.chunks_exact(2).map(|two| two[0] | two[1] << 4).collect();
            }
            let shape = |len: usize| [&tensor.shape[..tensor.shape.len() - 1], &[len]].concat();
            let words = Tensor { dtype: "U32".into(), shape: shape(len * bits / 32), bytes: codes };
            packed.weights.insert(name.clone(), words);
            let scales = Tensor { dtype: "U8".into(), shape: shape(len / group), bytes: scales };
            packed.weights.insert(format!("{module}.scales"), scales);
            floats.weights.insert(name.clone(), Tensor::of_f32(&tensor.shape, &stored));
        }
        [packed, floats]
    }
}
