//! What does mlx-lm make of a Hugging Face checkpoint? Tensors renamed, stacked, split, turned and shifted as `sanitize` of
//! each of its models says (mlx-lm 0.32.2), and quantised as `mlx.nn.quantize` does.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};

use super::safetensors_writer;

/// A tensor in memory.
#[derive(Clone)]
pub struct Tensor {
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// A checkpoint in memory.
#[derive(Clone)]
pub struct Checkpoint {
    pub config: Value,
    pub weights: BTreeMap<String, Tensor>,
}

impl Tensor {
    fn size(&self) -> usize {
        if self.dtype == "F32" { 4 } else { 2 }
    }

    pub fn of_f32(shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: "F32".into(), shape: shape.to_vec(), bytes }
    }

    pub fn values(&self) -> Vec<f32> {
        let number = |bytes: &[u8]| match *bytes {
            [a, b] => f32::from_bits(u32::from_le_bytes([0, 0, a, b])),
            _ => f32::from_le_bytes(bytes.try_into().unwrap()),
        };
        assert!(["BF16", "F32"].contains(&&*self.dtype), "{}", self.dtype);
        self.bytes.chunks_exact(self.size()).map(number).collect()
    }

    /// Some rows of each matrix of a stack, or of a matrix.
    fn rows(&self, rows: Range<usize>) -> Self {
        let at = self.shape.len() - 2;
        let row = self.shape[at + 1] * self.size();
        let matrices = self.bytes.chunks_exact(self.shape[at] * row);
        let bytes = matrices.flat_map(|all| &all[rows.start * row..rows.end * row]).copied().collect();
        let mut shape = self.shape.clone();
        shape[at] = rows.len();
        Self { shape, bytes, ..self.clone() }
    }

    /// The first half of each matrix's rows, and the second.
    fn halves(&self) -> [Self; 2] {
        let all = self.shape[self.shape.len() - 2];
        [self.rows(0..all / 2), self.rows(all / 2..all)]
    }

    /// A stack of the same matrices, rows as columns.
    fn turned(&self) -> Self {
        let &[n, rows, columns] = &*self.shape else { panic!("{:?}", self.shape) };
        let size = self.size();
        let mut bytes = Vec::new();
        for matrix in self.bytes.chunks_exact(rows * columns * size) {
            for column in 0..columns {
                (0..rows).for_each(|row| bytes.extend(&matrix[(row * columns + column) * size..][..size]));
            }
        }
        Self { shape: vec![n, columns, rows], bytes, ..self.clone() }
    }
}

impl Checkpoint {
    pub fn read(folder: &Path) -> Self {
        let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let mut weights = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "safetensors") {
                continue;
            }
            let file = std::fs::read(path).unwrap();
            let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
            let entries: BTreeMap<String, Value> = serde_json::from_slice(&file[8..header]).unwrap();
            for (name, entry) in entries.into_iter().filter(|(name, _)| name != "__metadata__") {
                let [first, last]: [usize; 2] =
                    serde_json::from_value(entry["data_offsets"].clone()).unwrap();
                let shape = serde_json::from_value(entry["shape"].clone()).unwrap();
                let dtype = entry["dtype"].as_str().unwrap().to_owned();
                let bytes = file[header + first..header + last].to_vec();
                weights.insert(name, Tensor { dtype, shape, bytes });
            }
        }
        Self { config, weights }
    }

    pub fn written(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let tensors = self.weights.iter().map(|(name, t)| (&**name, &*t.dtype, &*t.shape, &*t.bytes));
        let file = safetensors_writer::file(&tensors.collect::<Vec<_>>());
        safetensors_writer::write(folder.path(), "model.safetensors", &file);
        safetensors_writer::write(folder.path(), "config.json", self.config.to_string().as_bytes());
        folder
    }

    /// What mlx-lm converts this to. What heads project latent vectors with stays in one tensor, as it did in older
    /// versions, unless `by_head`.
    pub fn converted(mut self, by_head: bool) -> Self {
        let config = self.config.clone();
        let kind = config["model_type"].as_str().unwrap().trim_end_matches("_text");
        let text = config.get("text_config").unwrap_or(&config);
        let number = |key: &str| text[key].as_u64().unwrap() as usize;
        self.weights.retain(|name, _| !name.contains("mtp.") && !name.starts_with("model.visual"));
        if text["tie_word_embeddings"] == true {
            self.weights.remove("lm_head.weight");
        }
        let experts: &[_] = match kind {
            "mixtral" | "minimax_m2" | "kimi_linear" => {
                &[("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")]
            }
            "nemotron_h" => &[("up_proj", "fc1"), ("down_proj", "fc2")],
            _ => &[("gate_proj", "gate_proj"), ("down_proj", "down_proj"), ("up_proj", "up_proj")],
        };
        self.stack(experts);
        if by_head {
            self.split_heads(text);
        }
        match kind {
            "qwen3_5" | "qwen3_5_moe" | "qwen3_vl" => {
                self.split("experts", "gate_up_proj", "down_proj", "switch_mlp", "");
                self.rename(|name| match name.strip_prefix("model.language_model.") {
                    Some(rest) => format!("language_model.model.{rest}"),
                    None => format!("language_model.{name}"),
                });
            }
            "gemma4" => {
                self.split("experts", "gate_up_proj", "down_proj", "experts.switch_glu", "");
                let first = number("num_hidden_layers") - number("num_kv_shared_layers");
                self.weights.retain(|name, _| {
                    let layer = name.split("layers.").nth(1).and_then(|rest| rest.split('.').next());
                    let shared = layer.is_some_and(|layer| layer.parse::<usize>().unwrap() >= first);
                    let own = ["k_proj", "v_proj", "k_norm"].map(|word| format!(".self_attn.{word}"));
                    !(shared && own.iter().any(|word| name.contains(word)))
                });
            }
            "granitemoehybrid" if number("num_local_experts") > 0 => {
                self.split(
                    "block_sparse_moe",
                    "input_linear",
                    "output_linear",
                    "block_sparse_moe.switch_mlp",
                    ".weight",
                );
            }
            "granitemoehybrid" => self.split("shared_mlp", "input_linear", "output_linear", "mlp", ".weight"),
            "llama4" => {
                for layer in self.modules(".experts.gate_up_proj") {
                    let [gate, up] = self.take(&format!("{layer}.experts.gate_up_proj")).turned().halves();
                    let down = self.take(&format!("{layer}.experts.down_proj")).turned();
                    for (word, tensor) in [("gate_proj", gate), ("up_proj", up), ("down_proj", down)] {
                        self.put(format!("{layer}.experts.{word}.weight"), tensor);
                    }
                }
            }
            "kimi_linear" => self.rename(|name| {
                let name = name.replace(".block_sparse_moe.", ".mlp.");
                let name = name.replace(".gate.e_score_correction_bias", ".e_score_correction_bias");
                name.replace("_conv1d.weight", "_conv.conv.weight")
            }),
            "step3p5" => self.rename(|name| {
                let words = [
                    (".moe.gate_proj.", ".mlp.switch_mlp.gate_proj."),
                    (".moe.up_proj.", ".mlp.switch_mlp.up_proj."),
                    (".moe.down_proj.", ".mlp.switch_mlp.down_proj."),
                    (".moe.gate.", ".mlp.gate.gate."),
                    (".moe.router_bias", ".mlp.gate.router_bias"),
                    (".share_expert.", ".mlp.share_expert."),
                ];
                let found = words.iter().find(|(from, _)| name.contains(from));
                found.map_or_else(|| name.to_owned(), |(from, to)| name.replace(from, to))
            }),
            _ => {}
        }
        self.turn_convolutions();
        let shifted = |name: &str| match kind {
            "qwen3_next" | "qwen3_5" | "qwen3_5_moe" => [
                ".input_layernorm.weight",
                ".post_attention_layernorm.weight",
                "model.norm.weight",
                ".q_norm.weight",
                ".k_norm.weight",
            ]
            .iter()
            .any(|end| name.ends_with(end)),
            "step3p5" => name.ends_with(".weight") && name.contains("norm"),
            _ => false,
        };
        for (_, norm) in self.weights.iter_mut().filter(|(name, _)| shifted(name)) {
            // mlx-lm rounds them to the checkpoint's type. References have not.
            let values: Vec<f32> = norm.values().iter().map(|value| value + 1.0).collect();
            *norm = Tensor::of_f32(&norm.shape, &values);
        }
        self
    }

    /// The same as the text part of a model with other modalities.
    pub fn wrapped(mut self, kind: &str) -> Self {
        let tied = self.config["tie_word_embeddings"].clone();
        self.config = json!({ "model_type": kind, "text_config": self.config, "tie_word_embeddings": tied });
        self.rename(|name| format!("language_model.{name}"));
        self
    }

    fn rename(&mut self, to: impl Fn(&str) -> String) {
        self.weights =
            std::mem::take(&mut self.weights).into_iter().map(|(name, t)| (to(&name), t)).collect();
    }

    /// What names end in this, without it.
    fn modules(&self, end: &str) -> Vec<String> {
        self.weights.keys().filter_map(|name| name.strip_suffix(end).map(str::to_owned)).collect()
    }

    fn put(&mut self, name: String, tensor: Tensor) {
        assert!(self.weights.insert(name, tensor).is_none());
    }

    fn take(&mut self, name: &str) -> Tensor {
        self.weights.remove(name).unwrap()
    }

    /// Experts' matrices become one tensor.
    fn stack(&mut self, words: &[(&str, &str)]) {
        for (from, to) in words {
            for module in self.modules(&format!(".experts.0.{from}.weight")) {
                let part = |at: usize| format!("{module}.experts.{at}.{from}.weight");
                let parts: Vec<_> = (0..).map_while(|at| self.weights.remove(&part(at))).collect();
                let shape = [&[parts.len()], &*parts[0].shape].concat();
                let bytes = parts.iter().flat_map(|part| part.bytes.clone()).collect();
                let stack = Tensor { dtype: parts[0].dtype.clone(), shape, bytes };
                self.put(format!("{module}.switch_mlp.{to}.weight"), stack);
            }
        }
    }

    /// Gates and ups that lie in one tensor become two.
    fn split(&mut self, module: &str, both: &str, down: &str, to: &str, end: &str) {
        for layer in self.modules(&format!(".{module}.{both}{end}")) {
            let [gate, up] = self.take(&format!("{layer}.{module}.{both}{end}")).halves();
            let down = self.take(&format!("{layer}.{module}.{down}{end}"));
            for (word, tensor) in [("gate_proj", gate), ("up_proj", up), ("down_proj", down)] {
                self.put(format!("{layer}.{to}.{word}.weight"), tensor);
            }
        }
    }

    /// What latent vectors are projected to heads' keys and values with becomes a stack each, the first turned.
    fn split_heads(&mut self, text: &Value) {
        for module in self.modules(".kv_b_proj.weight") {
            let number = |key: &str| text[key].as_u64().unwrap() as usize;
            let (plain, n_heads) = (number("qk_nope_head_dim"), number("num_attention_heads"));
            let mut all = self.take(&format!("{module}.kv_b_proj.weight"));
            all.shape = vec![n_heads, all.shape[0] / n_heads, all.shape[1]];
            let rows = all.shape[1];
            self.put(format!("{module}.embed_q.weight"), all.rows(0..plain).turned());
            self.put(format!("{module}.unembed_out.weight"), all.rows(plain..rows));
        }
    }

    /// Channels come last.
    fn turn_convolutions(&mut self) {
        let is_convolution =
            |name: &str| name.contains("conv1d.weight") || name.contains("_conv.conv.weight");
        for (_, weight) in self.weights.iter_mut().filter(|(name, _)| is_convolution(name)) {
            assert_eq!(weight.shape[1], 1);
            weight.shape.swap(1, 2);
        }
    }

    /// Every matrix in groups of 32 integers of 4 bits, routers' of 8, and the same numbers as floats.
    pub fn quantised(self) -> [Self; 2] {
        const GROUP: usize = 32;
        let [mut packed, mut floats] = [self.clone(), self.clone()];
        packed.config["quantization"] = json!({ "group_size": GROUP, "bits": 4, "mode": "affine" });
        for (name, tensor) in &self.weights {
            let Some(module) = name.strip_suffix(".weight") else { continue };
            // What is no module of its own is not quantised.
            let raw = self.weights.contains_key(&format!("{module}.e_score_correction_bias"));
            let groups = tensor.shape.last().is_some_and(|len| len.is_multiple_of(GROUP));
            if raw || tensor.shape.len() < 2 || !groups {
                continue;
            }
            let is_router = ["gate", "router.layer", "router.proj"].iter().any(|end| module.ends_with(end));
            let bits = if is_router { 8 } else { 4 };
            if is_router {
                packed.config["quantization"][module] = json!({ "group_size": GROUP, "bits": bits });
            }
            let (words, scales, biases, numbers) = quantise(&tensor.values(), bits, GROUP);
            let shape = |len: usize| [&tensor.shape[..tensor.shape.len() - 1], &[len]].concat();
            let len = tensor.shape[tensor.shape.len() - 1];
            let words = Tensor { dtype: "U32".into(), shape: shape(len * bits / 32), bytes: words };
            packed.weights.insert(name.clone(), words);
            for (kind, values) in [("scales", scales), ("biases", biases)] {
                packed.put(format!("{module}.{kind}"), Tensor::of_f32(&shape(len / GROUP), &values));
            }
            floats.weights.insert(name.clone(), Tensor::of_f32(&tensor.shape, &numbers));
        }
        [packed, floats]
    }
}

/// Bytes of packed integers, scales, biases and the numbers that they stand for.
fn quantise(values: &[f32], bits: usize, group: usize) -> (Vec<u8>, Vec<f32>, Vec<f32>, Vec<f32>) {
    let (mut integers, mut scales, mut biases, mut numbers) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for group in values.chunks_exact(group) {
        let bias = group.iter().copied().fold(f32::INFINITY, f32::min);
        let most = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scale = ((most - bias) / ((1 << bits) - 1) as f32).max(1e-7);
        for value in group {
            let integer = ((value - bias) / scale).round().min(((1 << bits) - 1) as f32);
            integers.push(integer as u8);
            numbers.push(scale * integer + bias);
        }
        scales.push(scale);
        biases.push(bias);
    }
    let words = match bits {
        8 => integers,
        _ => integers.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4).collect(),
    };
    (words, scales, biases, numbers)
}
