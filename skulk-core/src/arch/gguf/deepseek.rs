//! What do files of DeepSeek V3 and V3.2 say, and of those that took their attention over: Kimi K2, GLM 4.7 Flash and GLM 5?

use super::super::names::{GGUF_DEEPSEEK, GGUF_DEEPSEEK_PLAIN, GGUF_DEEPSEEK_SPARSE, TensorNames};
use super::super::{
    ArchSpec, AttentionSpec, IndexSpec, LatentSpec, RopeLayout, RopeScaling, RopeSpec, unsupported,
};
use super::glm::Mixture;
use super::keys::Keys;
use super::{Sizes, plain};
use crate::error::Result;
use crate::math;
use crate::weights::Checkpoint;

/// Epsilon of the norms of latent vectors and of the indexer's keys, whatever that of the others is.
const EPS: f32 = 1e-6;

/// A context as long as GLM 5.2's.
const LONG: usize = 1 << 20;

pub(super) fn deepseek2(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    if keys.opt_usize("expert_gating_func")? != Some(2) {
        return Err(unsupported("the router", "that of DeepSeek V2", "a sigmoid (expert_gating_func 2)")
            .with("file", keys.metadata.file().display())
            .with("field", "deepseek2.expert_gating_func"));
    }
    latent(keys, checkpoint)
}

/// Rows see positions that an indexer chooses.
pub(super) fn sparse(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let mut spec = latent(keys, checkpoint)?;
    let is_glm = keys.arch == "glm-dsa";
    let index = IndexSpec {
        n_heads: keys.usize("attention.indexer.head_count")?,
        head_dim: keys.usize("attention.indexer.key_length")?,
        layout: if is_glm { RopeLayout::Pairs } else { RopeLayout::Halves },
        most: keys.usize("attention.indexer.top_k")?,
        eps: EPS,
        of: None,
    };
    let n_layers = spec.layers.len();
    let key = "attention.indexer.types";
    let chooses = keys.flags(key, n_layers)?.unwrap_or_else(|| {
        // Files of GLM 5.2 that do not say it: the first three layers and each fourth behind the third.
        let shares = is_glm && spec.context_length >= LONG;
        (0..n_layers).map(|at| !shares || at < 2 || (at - 2).is_multiple_of(4)).collect()
    });
    let mut source = None;
    for (at, (attention, chooses)) in spec.attentions().zip(chooses).enumerate() {
        if chooses {
            source = Some(at);
        } else if source.is_none() {
            let message = format!("expected a layer before {at} whose choice it takes, found none");
            return Err(keys.error(key, message));
        }
        if let Some(latent) = attention.latent.as_mut() {
            latent.index = Some(IndexSpec { of: source.filter(|_| !chooses), ..index });
        }
    }
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_DEEPSEEK_SPARSE), ..spec })
}

fn latent(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::of_any_values(keys)?;
    let heads = Heads::read(keys)?;
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(10_000.0);
    let (scaling, _) = keys.rope_scaling(true)?;
    // A tenth of `mscale_all_dim`, by which scores grow instead of what is rotated.
    let grown = match (&scaling, keys.opt_f64("rope.scaling.yarn_log_multiplier")?) {
        (RopeScaling::Yarn { factor, .. }, Some(by)) if *factor > 1.0 => 1.0 + by * math::ln(*factor),
        _ => 1.0,
    };
    let dim = heads.latent.rotated;
    let rope = RopeSpec { theta, dim, layout: RopeLayout::Pairs, scaling, amplitude: 1.0 };
    let mixture = Mixture::read(keys, checkpoint, sizes.n_layers)?;
    let spec = plain(keys, checkpoint, &sizes, vec![rope], |at, layer| {
        if let Some(attention) = layer.attention_mut() {
            heads.put(attention);
            attention.scale *= (grown * grown) as f32;
        }
        mixture.put(at, layer);
    })?;
    let spelling = if heads.latent.query_rank.is_some() { &GGUF_DEEPSEEK } else { &GGUF_DEEPSEEK_PLAIN };
    Ok(ArchSpec { names: TensorNames::new(String::new(), spelling), ..spec })
}

/// Heads that attend to latent vectors.
pub(super) struct Heads {
    pub(super) latent: LatentSpec,
    /// Elements of a head's query.
    dim: usize,
}

impl Heads {
    pub(super) fn read(keys: &Keys<'_>) -> Result<Self> {
        let rotated = keys.usize("rope.dimension_count")?;
        // Older files name a head's own lengths, newer ones those of what is kept beside.
        let dim = keys.usize_of("attention.key_length_mla", "attention.key_length")?;
        let latent = LatentSpec {
            rank: keys.usize("attention.kv_lora_rank")?,
            plain: dim.saturating_sub(rotated),
            rotated,
            value: keys.usize_of("attention.value_length_mla", "attention.value_length")?,
            query_rank: keys.opt_usize("attention.q_lora_rank")?.filter(|rank| *rank > 0),
            eps: EPS,
            index: None,
        };
        Ok(Self { latent, dim })
    }

    /// Makes a layer's attention one to latent vectors.
    pub(super) fn put(&self, attention: &mut AttentionSpec) {
        attention.n_kv_heads = 1;
        attention.head_dim = self.latent.rank.saturating_add(self.latent.rotated);
        attention.scale = (self.dim as f32).sqrt().recip();
        attention.latent = Some(self.latent);
    }
}
