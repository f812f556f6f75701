//! What do configurations of DeepSeek V3 say, and of those that took its attention over: Kimi K2 and GLM 4.7 Flash?

use super::glm::deepseek_experts;
use super::llama::LLAMA;
use super::rope::{self, Asked};
use super::{Family, Mixture, only};
use crate::arch::config::Config;
use crate::arch::names::{HF_DEEPSEEK, HF_DEEPSEEK_PLAIN};
use crate::arch::{ArchSpec, LatentSpec, RopeLayout, TensorNames};
use crate::error::Result;

/// Epsilon of the norms of latent vectors, whatever that of the others is.
const EPS: f32 = 1e-6;

pub(super) const DEEPSEEK_V3: Family = Family {
    label: "deepseek_v3",
    spelling: &HF_DEEPSEEK,
    mlp_bias: false,
    partial_rotary: false,
    context: 4096,
    own_ropes: true,
    mixture: |config, n_layers| experts(config, n_layers, 3),
    own: latent,
    ..LLAMA
};

pub(super) const KIMI_K2: Family = Family { label: "kimi_k2", ..DEEPSEEK_V3 };

pub(super) const GLM4_MOE_LITE: Family = Family {
    label: "glm4_moe_lite",
    context: 202_752,
    eps: 1e-5,
    mixture: |config, n_layers| experts(config, n_layers, 1),
    ..DEEPSEEK_V3
};

/// Experts behind the first layers, of which `dense` have none where nothing is said.
fn experts(config: &Config<'_>, n_layers: usize, dense: usize) -> Result<Option<Mixture>> {
    if let Some(method) = config.opt_str("topk_method")? {
        only(config, "topk_method", method, "noaux_tc")?;
    }
    only(config, "moe_layer_freq", config.usize_or("moe_layer_freq", 1)?, 1)?;
    let Some(mut mixture) = deepseek_experts(config, n_layers)? else { return Ok(None) };
    let dense = config.usize_or("first_k_dense_replace", dense)?;
    mixture.sparse = (0..n_layers).map(|layer| layer >= dense).collect();
    if let Some(found) = config.opt("mlp_layer_types") {
        let wrong = || config.wrong("mlp_layer_types", "dense or sparse for each layer", found);
        let kinds = config.strs("mlp_layer_types")?;
        let sparse = |kind: &&str| match *kind {
            "sparse" => Ok(true),
            "dense" => Ok(false),
            _ => Err(wrong()),
        };
        mixture.sparse = kinds.iter().map(sparse).collect::<Result<_>>()?;
        if mixture.sparse.len() != n_layers {
            return Err(wrong());
        }
    }
    Ok(Some(mixture))
}

/// Makes all layers' attention one to latent vectors.
fn latent(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let [plain, rotated] = [config.usize("qk_nope_head_dim")?, config.usize("qk_rope_head_dim")?];
    let latent = LatentSpec {
        rank: config.usize("kv_lora_rank")?,
        plain,
        rotated,
        value: config.usize("v_head_dim")?,
        query_rank: config.opt_usize("q_lora_rank")?,
        eps: EPS,
    };
    if latent.query_rank.is_none() {
        spec.names = TensorNames::new(spec.names.prefix().to_owned(), &HF_DEEPSEEK_PLAIN);
    }
    let asked = Asked {
        kind: "full_attention",
        base: ("rope_theta", DEEPSEEK_V3.theta),
        scaled: true,
        head_dim: rotated,
        partial: false,
    };
    let mut rope = rope::rope(config, asked)?;
    if config.bool_or("rope_interleave", true)? {
        rope.layout = RopeLayout::Pairs;
    }
    spec.ropes = vec![rope];
    let scale = (plain.saturating_add(rotated) as f32).sqrt().recip() * rope::score_scale(config)?;
    for layer in &mut spec.layers {
        let attention = &mut layer.attention;
        attention.n_kv_heads = 1;
        attention.head_dim = latent.rank.saturating_add(rotated);
        attention.scale = scale;
        attention.latent = Some(latent);
    }
    Ok(())
}
