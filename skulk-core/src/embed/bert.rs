//! Which network makes vectors of tokens? BERT, as candle-transformers has it, with what was checked before.

use std::collections::HashMap;

use candle_core::{DType as CandleDType, Device, Result as CandleResult, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config, HiddenAct, PositionEmbeddingType};
use serde_json::Value;

use super::declared::wrong;
use crate::bytes::ByteSize;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::safetensors::HfMetadata;
use crate::weights::{Checkpoint, Region, available_memory};

/// No size of a configuration is larger.
const MAX_SIZE: usize = 1 << 24;
const MAX_LAYERS: usize = 1024;
/// Texts of so many tokens need little memory beside the weights.
const FEW_TOKENS: usize = 512;

/// The network and its sizes.
pub(super) struct Bert {
    network: BertModel,
    pub(super) width: usize,
    pub(super) positions: usize,
    pub(super) vocabulary: usize,
    heads: usize,
}

impl Bert {
    /// # Errors
    /// [`ErrorKind::ArchUnsupported`] for another network, [`ErrorKind::ConfigInvalid`] for sizes that cannot be,
    /// [`ErrorKind::TensorMissing`] and [`ErrorKind::TensorShape`].
    pub(super) fn load(checkpoint: &dyn Checkpoint, metadata: &HfMetadata) -> Result<Self> {
        let config = config(metadata)?;
        // Some files name tensors behind the name of the network.
        let prefix =
            if checkpoint.tensor("bert.embeddings.word_embeddings.weight").is_some() { "bert." } else { "" };
        let mut tensors = HashMap::new();
        for (name, shape) in shapes(&config) {
            let stored = [
                name.clone(),
                name.replace("LayerNorm.weight", "LayerNorm.gamma"),
                name.replace("LayerNorm.bias", "LayerNorm.beta"),
            ]
            .map(|name| format!("{prefix}{name}"));
            let there = stored.iter().find(|name| checkpoint.tensor(name).is_some()).unwrap_or(&stored[0]);
            let region = checkpoint.region(there)?;
            region.expect_shape(&shape)?;
            tensors.insert(name, tensor(&region, &shape)?);
        }
        let weights = VarBuilder::from_tensors(tensors, CandleDType::F32, &Device::Cpu);
        Ok(Self {
            network: BertModel::load(weights, &config).map_err(failed)?,
            width: config.hidden_size,
            positions: config.max_position_embeddings,
            vocabulary: config.vocab_size,
            heads: config.num_attention_heads,
        })
    }

    /// The vector of each token, one behind the other.
    pub(super) fn run(&self, tokens: &[TokenId]) -> Result<Vec<f32>> {
        self.expect_room(tokens.len())?;
        let run = || -> CandleResult<Vec<f32>> {
            let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
            let ids = Tensor::from_vec(ids, (1, tokens.len()), &Device::Cpu)?;
            let types = ids.zeros_like()?;
            self.network.forward(&ids, &types, None)?.flatten_all()?.to_vec1()
        };
        run().map_err(failed)
    }
}

impl Bert {
    /// `Ok` where there is memory for a layer's scores. Candle, which has all of them at a time, would end the process.
    fn expect_room(&self, tokens: usize) -> Result<()> {
        /// Scores are there before and behind what makes weights of them, which needs as many again.
        const COPIES: usize = 4;
        if tokens <= FEW_TOKENS {
            return Ok(());
        }
        let numbers = tokens.saturating_mul(tokens).saturating_mul(self.heads).saturating_mul(COPIES);
        let bytes = ByteSize((numbers as u64).saturating_mul(size_of::<f32>() as u64));
        let free = available_memory().is_none_or(|(available, _)| bytes <= available);
        if free && Vec::<f32>::new().try_reserve_exact(numbers).is_ok() {
            return Ok(());
        }
        let message = format!("no memory for the attention of {tokens} tokens, {bytes}");
        Err(Error::new(ErrorKind::OutOfMemory, message).with_hint("split the text, or free memory"))
    }
}

fn failed(error: candle_core::Error) -> Error {
    Error::new(ErrorKind::EngineFailed, "the embedding network failed to compute").with_source(error)
}

/// Values in f32, in memory of their own.
fn tensor(region: &Region, shape: &[usize]) -> Result<Tensor> {
    let mut values = Vec::new();
    let n = region.rows().saturating_mul(region.row_len());
    values.try_reserve_exact(n).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("no memory for {n} weights"))
            .with("tensor", region.name())
            .with_hint("free memory, or use a smaller model")
    })?;
    values.resize(n, 0.0);
    region.read_rows(0..region.rows(), &mut values)?;
    Tensor::from_vec(values, shape, &Device::Cpu).map_err(failed)
}

/// Every tensor that the network reads, with its shape.
fn shapes(config: &Config) -> Vec<(String, Vec<usize>)> {
    let (width, inner) = (config.hidden_size, config.intermediate_size);
    let mut all = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![config.vocab_size, width]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![config.max_position_embeddings, width]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![config.type_vocab_size, width]),
        ("embeddings.LayerNorm.weight".to_owned(), vec![width]),
        ("embeddings.LayerNorm.bias".to_owned(), vec![width]),
    ];
    for layer in 0..config.num_hidden_layers {
        let mut add = |name: &str, shape: &[usize]| {
            all.push((format!("encoder.layer.{layer}.{name}.weight"), shape.to_vec()));
            all.push((format!("encoder.layer.{layer}.{name}.bias"), shape[..1].to_vec()));
        };
        for name in ["query", "key", "value"] {
            add(&format!("attention.self.{name}"), &[width, width]);
        }
        add("attention.output.dense", &[width, width]);
        add("attention.output.LayerNorm", &[width]);
        add("intermediate.dense", &[inner, width]);
        add("output.dense", &[width, inner]);
        add("output.LayerNorm", &[width]);
    }
    all
}

/// What the configuration says, with transformers' defaults.
fn config(metadata: &HfMetadata) -> Result<Config> {
    let (config, file) = (&metadata.config, metadata.folder.join("config.json"));
    let field = |key: &str| config.get(key).filter(|value| !value.is_null());
    let unsupported = |key: &'static str, found: &Value, supported: &str| {
        Error::new(ErrorKind::ArchUnsupported, format!("embeddings of `{key}` {found} are not supported"))
            .with("field", key)
            .with("file", file.display())
            .with_hint(format!("supported: {supported}"))
    };
    match field("model_type") {
        Some(Value::String(name)) if name == "bert" => {}
        found => return Err(unsupported("model_type", found.unwrap_or(&Value::Null), "bert")),
    }
    if let Some(found) = field("position_embedding_type").filter(|kind| kind.as_str() != Some("absolute")) {
        return Err(unsupported("position_embedding_type", found, "absolute"));
    }
    if let Some(found) = field("is_decoder").filter(|flag| flag.as_bool() != Some(false)) {
        return Err(unsupported("is_decoder", found, "false"));
    }
    let at_most = |key: &str, default: usize, most: usize| match field(key) {
        None => Ok(default),
        Some(value) => value
            .as_u64()
            .and_then(|n| n.try_into().ok())
            .filter(|n| (1..=most).contains(n))
            .ok_or_else(|| wrong(&file, key, &format!("a whole number of 1 to {most}"), value)),
    };
    let size = |key, default| at_most(key, default, MAX_SIZE);
    let (hidden_size, num_attention_heads) = (size("hidden_size", 768)?, size("num_attention_heads", 12)?);
    if !hidden_size.is_multiple_of(num_attention_heads) {
        let expected = format!("a divisor of hidden_size {hidden_size}");
        return Err(wrong(&file, "num_attention_heads", &expected, &num_attention_heads.into()));
    }
    let layer_norm_eps = match field("layer_norm_eps") {
        None => 1e-12,
        Some(value) => value
            .as_f64()
            .filter(|eps| eps.is_finite() && *eps >= 0.0)
            .ok_or_else(|| wrong(&file, "layer_norm_eps", "a number of at least 0", value))?,
    };
    let hidden_act = match field("hidden_act").map(|name| name.as_str().unwrap_or_default()) {
        None | Some("gelu") => HiddenAct::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh") => HiddenAct::GeluApproximate,
        Some("relu") => HiddenAct::Relu,
        Some(_) => {
            let found = field("hidden_act").unwrap_or(&Value::Null);
            return Err(unsupported("hidden_act", found, "gelu, gelu_new, gelu_pytorch_tanh, relu"));
        }
    };
    Ok(Config {
        vocab_size: size("vocab_size", 30_522)?,
        hidden_size,
        num_hidden_layers: at_most("num_hidden_layers", 12, MAX_LAYERS)?,
        num_attention_heads,
        intermediate_size: size("intermediate_size", 3072)?,
        hidden_act,
        max_position_embeddings: size("max_position_embeddings", 512)?,
        type_vocab_size: size("type_vocab_size", 2)?,
        layer_norm_eps,
        position_embedding_type: PositionEmbeddingType::Absolute,
        model_type: None,
        ..Config::default()
    })
}
