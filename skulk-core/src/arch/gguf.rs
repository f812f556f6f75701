//! What do this GGUF file's key-values describe?

use super::names::{GGUF, TensorNames};
use super::{
    Activation, ArchSpec, AttentionSpec, ExpertsSpec, FfnSpec, LayerSpec, MAX_LAYERS, Mixer, NormSpec,
    QkNorm, RopeLayout, RopeScaling, RopeSpec, SUPPORTED, Window, unsupported,
};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::gguf::{GgufMetadata, GgufValue};
use crate::weights::{Checkpoint, quant};

pub(super) fn spec(metadata: &GgufMetadata, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let arch = metadata.str("general.architecture")?;
    let keys = Keys { metadata, arch };
    match arch {
        "llama" | "qwen2" | "qwen3" | "qwen3moe" => llama(&keys, checkpoint),
        "gemma2" => gemma2(&keys, checkpoint),
        "gemma3" => gemma3(&keys, checkpoint),
        other => Err(unsupported("the architecture", other, SUPPORTED)
            .with("file", metadata.file().display())
            .with("field", "general.architecture")),
    }
}

/// llama (mistral and mixtral included, which converters store as llama), and qwen2 and qwen3, which pair a head's
/// halves; qwen3 norms queries and keys.
fn llama(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let qwen3 = keys.arch.starts_with("qwen3");
    let layout = if keys.arch == "llama" { RopeLayout::Pairs } else { RopeLayout::Halves };
    let sizes = Sizes::read(keys)?;
    let experts = experts(keys)?;
    let expert_width = keys.opt_usize("expert_feed_forward_length")?.filter(|_| experts.is_some());
    let dim = keys.opt_usize("rope.dimension_count")?.unwrap_or(sizes.head_dim);
    // The converter stores Llama 3's scaling as divisors in a tensor, other scalings as key-values.
    let scaling = match checkpoint.tensor("rope_freqs.weight") {
        Some(_) => RopeScaling::Factors(quant::to_f32(&checkpoint.region("rope_freqs.weight")?)?),
        None => keys.rope_scaling()?,
    };
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(10_000.0);
    let ropes = vec![RopeSpec { theta, dim, layout, scaling, amplitude: 1.0 }];
    plain(keys, checkpoint, &sizes, ropes, |at, layer| {
        let has_bias = |tensor: &str| checkpoint.tensor(&format!("blk.{at}.{tensor}.bias")).is_some();
        if let Some(attention) = layer.attention_mut() {
            attention.qk_norm = qwen3.then_some(QkNorm::Heads);
            attention.qkv_bias = has_bias("attn_q");
            attention.output_bias = has_bias("attn_output");
        }
        layer.ffn.width = expert_width.unwrap_or(layer.ffn.width);
        layer.ffn.bias = experts.is_none() && has_bias("ffn_gate");
        layer.ffn.experts = experts;
    })
}

/// The mixture of experts of every layer. Files do not say that weights are normalised;
/// llama.cpp does so for these families.
fn experts(keys: &Keys<'_>) -> Result<Option<ExpertsSpec>> {
    let n_experts = match keys.arch {
        "qwen3moe" => keys.usize("expert_count")?,
        _ => match keys.opt_usize("expert_count")? {
            None | Some(0) => return Ok(None),
            Some(n) => n,
        },
    };
    Ok(Some(ExpertsSpec {
        n_experts,
        n_used: keys.usize("expert_used_count")?,
        normalise: true,
        ..ExpertsSpec::PLAIN
    }))
}

fn gemma3(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let family = Gemma {
        window: keys.opt_usize("attention.sliding_window")?,
        pattern: 6,
        theta: 1_000_000.0,
        local_theta: Some(keys.opt_f64("rope.freq_base_swa")?.unwrap_or(10_000.0)),
        caps: [None; 2],
        largest: 62,
        qk_norm: Some(QkNorm::Heads),
    };
    gemma(keys, checkpoint, &family)
}

fn gemma2(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let family = Gemma {
        window: Some(keys.opt_usize("attention.sliding_window")?.unwrap_or(4096)),
        pattern: 2,
        theta: 10_000.0,
        local_theta: None,
        caps: [Some(50.0), Some(30.0)],
        largest: 46,
        qk_norm: None,
    };
    gemma(keys, checkpoint, &family)
}

/// What Gemma's generations differ in; where files leave something out, the values are llama.cpp's.
struct Gemma {
    /// Of every layer but each `pattern`-th.
    window: Option<usize>,
    pattern: usize,
    theta: f64,
    /// Of layers with a window, where it is another one.
    local_theta: Option<f64>,
    /// What scores and logits are capped to where the file says nothing.
    caps: [Option<f32>; 2],
    /// Layers of the 27B model, which alone scales by hidden size per head rather than by the head dimension: files do
    /// not carry the scalar.
    largest: usize,
    qk_norm: Option<QkNorm>,
}

fn gemma(keys: &Keys<'_>, checkpoint: &dyn Checkpoint, family: &Gemma) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let pattern = keys.opt_usize("attention.sliding_window_pattern")?.unwrap_or(family.pattern).max(1);
    let is_largest = sizes.n_layers == family.largest;
    let scalar = if is_largest { sizes.hidden_size / sizes.n_heads.max(1) } else { sizes.head_dim };
    let cap = |key, default: Option<f32>| {
        keys.opt_f64(key).map(|found| found.map_or(default, |cap| Some(cap as f32)))
    };
    let softcap = cap("attn_logit_softcapping", family.caps[0])?;
    let rope = |theta, scaling| {
        let layout = RopeLayout::Halves;
        RopeSpec { theta, dim: sizes.head_dim, layout, scaling, amplitude: 1.0 }
    };
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(family.theta);
    let local = family.local_theta.map(|theta| rope(theta, RopeScaling::None));
    let ropes = [rope(theta, keys.rope_scaling()?)].into_iter().chain(local).collect();
    let spec = plain(keys, checkpoint, &sizes, ropes, |at, layer| {
        let window = family.window.filter(|_| !(at + 1).is_multiple_of(pattern));
        if let Some(attention) = layer.attention_mut() {
            attention.window = window.map(Window::Sliding);
            attention.rope = Some(usize::from(window.is_some() && family.local_theta.is_some()));
            attention.scale = (scalar as f32).sqrt().recip();
            attention.softcap = softcap;
            attention.qk_norm = family.qk_norm;
        }
        layer.ffn.activation = Activation::GeluTanh;
        layer.post_attention_norm = true;
        layer.post_ffn_norm = true;
    })?;
    Ok(ArchSpec {
        embedding_scale: (sizes.hidden_size as f32).sqrt(),
        final_softcap: cap("final_logit_softcapping", family.caps[1])?,
        ..spec
    })
}

/// What families have in common; `own` adds to each layer what its family has beside.
fn plain(
    keys: &Keys<'_>,
    checkpoint: &dyn Checkpoint,
    sizes: &Sizes,
    ropes: Vec<RopeSpec>,
    own: impl Fn(usize, &mut LayerSpec),
) -> Result<ArchSpec> {
    let attention = AttentionSpec {
        n_heads: sizes.n_heads,
        n_kv_heads: 0,
        head_dim: sizes.head_dim,
        window: None,
        scale: (sizes.head_dim as f32).sqrt().recip(),
        softcap: None,
        qk_norm: None,
        value_norm: false,
        keys_as_values: false,
        latent: None,
        kv_of: None,
        query_growth: None,
        qkv_bias: false,
        output_bias: false,
        sinks: false,
        head_gate: false,
        output_gate: false,
        rope: Some(0),
    };
    let layer = |(at, (&n_kv_heads, &width))| {
        let mut layer = LayerSpec {
            mixer: Mixer::Attention(AttentionSpec { n_kv_heads, ..attention.clone() }),
            ffn: FfnSpec {
                width,
                activation: Activation::Silu,
                bias: false,
                experts: None,
                shared: None,
                cutoff: None,
            },
            attention_norm: true,
            ffn_norm: true,
            post_attention_norm: false,
            post_ffn_norm: false,
            input: None,
            output_scale: false,
            streams: None,
            bypass: None,
        };
        own(at, &mut layer);
        layer
    };
    Ok(ArchSpec {
        family: keys.arch.into(),
        hidden_size: sizes.hidden_size,
        vocab_size: keys.vocab_size(checkpoint)?,
        context_length: sizes.context_length,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_scale: 1.0,
        norm: NormSpec { eps: keys.f64("attention.layer_norm_rms_epsilon")? as f32, weight_offset: 0.0 },
        tied_embeddings: checkpoint.tensor("output.weight").is_none(),
        final_softcap: None,
        ropes,
        layers: sizes.n_kv_heads.iter().zip(&sizes.ffn_width).enumerate().map(layer).collect(),
        names: TensorNames::new(String::new(), &GGUF),
    })
}

/// Sizes every family has; two of them may differ between layers.
struct Sizes {
    hidden_size: usize,
    context_length: usize,
    n_layers: usize,
    n_heads: usize,
    head_dim: usize,
    n_kv_heads: Vec<usize>,
    ffn_width: Vec<usize>,
}

impl Sizes {
    fn read(keys: &Keys<'_>) -> Result<Self> {
        let hidden_size = keys.usize("embedding_length")?;
        let n_layers = keys.usize("block_count")?;
        if n_layers > MAX_LAYERS {
            return Err(keys.error("block_count", format!("expected at most {MAX_LAYERS}, found {n_layers}")));
        }
        let n_heads = keys.usize("attention.head_count")?;
        let head_dim = keys.opt_usize("attention.key_length")?.unwrap_or(hidden_size / n_heads.max(1));
        let value_dim = keys.opt_usize("attention.value_length")?.unwrap_or(head_dim);
        if value_dim != head_dim {
            return Err(keys.error(
                "attention.value_length",
                format!("expected the key length {head_dim}, found {value_dim}"),
            ));
        }
        Ok(Self {
            hidden_size,
            context_length: keys.usize("context_length")?,
            n_layers,
            n_heads,
            head_dim,
            n_kv_heads: keys
                .per_layer("attention.head_count_kv", n_layers)?
                .unwrap_or_else(|| vec![n_heads; n_layers]),
            ffn_width: keys
                .per_layer("feed_forward_length", n_layers)?
                .ok_or_else(|| keys.error("feed_forward_length", "expected the field, found none".into()))?,
        })
    }
}

/// The family's key-values: `key` stands for `{arch}.{key}`.
struct Keys<'a> {
    metadata: &'a GgufMetadata,
    arch: &'a str,
}

impl Keys<'_> {
    fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        let value = self.metadata.opt_u64(&format!("{}.{key}", self.arch))?;
        value.map(|v| v.try_into().map_err(|_| self.error(key, format!("{v} is too large")))).transpose()
    }

    fn usize(&self, key: &str) -> Result<usize> {
        self.opt_usize(key)?.ok_or_else(|| self.error(key, "expected the field, found none".into()))
    }

    fn opt_f64(&self, key: &str) -> Result<Option<f64>> {
        self.metadata.opt_f64(&format!("{}.{key}", self.arch))
    }

    fn f64(&self, key: &str) -> Result<f64> {
        self.metadata.f64(&format!("{}.{key}", self.arch))
    }

    /// A number for all layers, or an array with one per layer.
    fn per_layer(&self, key: &str, n_layers: usize) -> Result<Option<Vec<usize>>> {
        let full = format!("{}.{key}", self.arch);
        let Some(GgufValue::Array(array)) = self.metadata.get(&full) else {
            return Ok(self.opt_usize(key)?.map(|n| vec![n; n_layers]));
        };
        if array.len() != n_layers {
            return Err(self.error(key, format!("expected {n_layers} values, found {}", array.len())));
        }
        array
            .i64s()?
            .map(|v| {
                usize::try_from(v)
                    .map_err(|_| self.error(key, format!("expected no negative number, found {v}")))
            })
            .collect::<Result<_>>()
            .map(Some)
    }

    fn rope_scaling(&self) -> Result<RopeScaling> {
        let kind = self.metadata.opt_str(&format!("{}.rope.scaling.type", self.arch))?;
        match kind {
            None | Some("none") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear(self.f64("rope.scaling.factor")?)),
            Some(other) => Err(unsupported("the rope scaling", other, "none, linear")
                .with("file", self.metadata.file().display())
                .with("field", format!("{}.rope.scaling.type", self.arch))),
        }
    }

    /// Rows of the embedding table: the tensor itself is the most reliable source.
    fn vocab_size(&self, checkpoint: &dyn Checkpoint) -> Result<usize> {
        match checkpoint.tensor("token_embd.weight").map(|t| t.shape.as_slice()) {
            Some([rows, _]) => Ok(*rows),
            _ => self.usize("vocab_size"),
        }
    }

    fn error(&self, key: &str, message: String) -> Error {
        Error::new(ErrorKind::ConfigInvalid, message)
            .with("file", self.metadata.file().display())
            .with("field", format!("{}.{key}", self.arch))
            .with_hint("the file's metadata is broken: fetch or convert it again")
    }
}
