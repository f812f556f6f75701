//! What do configurations of DeepSeek V3 and V3.2 say, and of those that took their attention over: Kimi K2, GLM 4.7 Flash
//! and GLM 5?

use super::glm::{Usual, deepseek_experts};
use super::llama::LLAMA;
use super::rope::{self, Asked};
use super::{Family, Mixture, only};
use crate::arch::config::Config;
use crate::arch::names::{HF_DEEPSEEK, HF_DEEPSEEK_PLAIN, HF_DEEPSEEK_SPARSE};
use crate::arch::{ArchSpec, IndexSpec, LatentSpec, RopeLayout, TensorNames};
use crate::error::Result;

/// Epsilon of the norms of latent vectors, whatever that of the others is.
const EPS: f32 = 1e-6;

pub(super) const DEEPSEEK_V3: Family = Family {
    label: "deepseek_v3",
    spelling: &HF_DEEPSEEK,
    mlp_bias: false,
    partial_rotary: None,
    context: 4096,
    own_ropes: true,
    mixture: |config, n_layers| experts(config, n_layers, &Usual { groups: [8, 4], scale: 2.5, dense: 3 }),
    own: latent,
    ..LLAMA
};

pub(super) const KIMI_K2: Family = Family { label: "kimi_k2", ..DEEPSEEK_V3 };

pub(super) const GLM4_MOE_LITE: Family = Family {
    label: "glm4_moe_lite",
    context: 202_752,
    eps: 1e-5,
    mixture: |config, n_layers| experts(config, n_layers, &Usual { groups: [1, 1], scale: 1.8, dense: 1 }),
    ..DEEPSEEK_V3
};

pub(super) const DEEPSEEK_V32: Family = Family {
    label: "deepseek_v32",
    spelling: &HF_DEEPSEEK_SPARSE,
    context: 163_840,
    own: |config, spec| sparse(config, spec, false),
    ..DEEPSEEK_V3
};

pub(super) const GLM_MOE_DSA: Family = Family {
    label: "glm_moe_dsa",
    context: 202_752,
    eps: 1e-5,
    mixture: |config, n_layers| experts(config, n_layers, &Usual { groups: [1, 1], scale: 2.5, dense: 3 }),
    own: |config, spec| sparse(config, spec, true),
    ..DEEPSEEK_V32
};

/// Lets rows see positions that an indexer chooses, whose heads' rotated pairs are neighbours by default or not.
fn sparse(config: &Config<'_>, spec: &mut ArchSpec, pairs: bool) -> Result<()> {
    latent(config, spec)?;
    let pairs = config.bool_or("indexer_rope_interleave", pairs)?;
    let index = IndexSpec {
        n_heads: config.usize("index_n_heads")?,
        head_dim: config.usize("index_head_dim")?,
        layout: if pairs { RopeLayout::Pairs } else { RopeLayout::Halves },
        most: config.usize("index_topk")?,
        eps: EPS,
        of: None,
    };
    let shared = shared(config, spec.layers.len())?;
    let mut source = None;
    for (at, layer) in spec.layers.iter_mut().enumerate() {
        if !shared[at] {
            source = Some(at);
        } else if source.is_none() {
            let message = format!("expected a layer before {at} whose choice it takes, found none");
            return Err(config.error("indexer_types", message));
        }
        if let Some(latent) = layer.attention_mut().and_then(|attention| attention.latent.as_mut()) {
            latent.index = Some(IndexSpec { of: source.filter(|_| shared[at]), ..index });
        }
    }
    Ok(())
}

/// Which layers take the choice of one before.
fn shared(config: &Config<'_>, n_layers: usize) -> Result<Vec<bool>> {
    for (field, words) in [("indexer_types", ["full", "shared"]), ("index_topk_pattern", ["F", "S"])] {
        let Some(found) = config.opt(field) else { continue };
        let letters = found.as_str().map(|all| all.split("").filter(|letter| !letter.is_empty()).collect());
        let kinds: Vec<&str> = letters.map_or_else(|| config.strs(field), Ok)?;
        let wrong = || config.wrong(field, &format!("one of {} for each layer", words.join(", ")), found);
        let of = |kind: &&str| words.iter().position(|word| word == kind).map(|at| at == 1).ok_or_else(wrong);
        let list = kinds.iter().map(of).collect::<Result<Vec<_>>>()?;
        return if list.len() == n_layers { Ok(list) } else { Err(wrong()) };
    }
    let every = config.usize_or("index_topk_freq", 1)?.max(1);
    let first = config.usize_or("index_skip_topk_offset", 2)?;
    Ok((0..n_layers).map(|layer| !(layer + 1).saturating_sub(first).is_multiple_of(every)).collect())
}

/// Experts behind the first layers.
fn experts(config: &Config<'_>, n_layers: usize, usual: &Usual) -> Result<Option<Mixture>> {
    let Some(mut mixture) = deepseek_experts(config, n_layers, usual)? else { return Ok(None) };
    mixture.sparse = sparse_layers(config, n_layers, usual.dense)?;
    Ok(Some(mixture))
}

/// Whether each layer has experts: of the first ones, `dense` where nothing is said, none has.
pub(super) fn sparse_layers(config: &Config<'_>, n_layers: usize, dense: usize) -> Result<Vec<bool>> {
    if let Some(method) = config.opt_str("topk_method")? {
        only(config, "topk_method", method, "noaux_tc")?;
    }
    only(config, "moe_layer_freq", config.usize_or("moe_layer_freq", 1)?, 1)?;
    if let Some(found) = config.opt("mlp_layer_types") {
        let wrong = || config.wrong("mlp_layer_types", "dense or sparse for each layer", found);
        let kinds = config.strs("mlp_layer_types")?;
        let sparse = |kind: &&str| match *kind {
            "sparse" => Ok(true),
            "dense" => Ok(false),
            _ => Err(wrong()),
        };
        let sparse = kinds.iter().map(sparse).collect::<Result<Vec<_>>>()?;
        return if sparse.len() == n_layers { Ok(sparse) } else { Err(wrong()) };
    }
    let dense = config.usize_or("first_k_dense_replace", dense)?;
    Ok((0..n_layers).map(|layer| layer >= dense).collect())
}

/// Makes all layers' attention one to latent vectors.
pub(super) fn latent(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let [plain, rotated] = [config.usize("qk_nope_head_dim")?, config.usize("qk_rope_head_dim")?];
    let latent = LatentSpec {
        rank: config.usize("kv_lora_rank")?,
        plain,
        rotated,
        value: config.usize("v_head_dim")?,
        query_rank: config.opt_usize("q_lora_rank")?,
        eps: EPS,
        index: None,
    };
    if latent.query_rank.is_none() {
        spec.names = TensorNames::new(spec.names.prefix().to_owned(), &HF_DEEPSEEK_PLAIN);
    }
    let asked = Asked {
        kind: "full_attention",
        base: ("rope_theta", DEEPSEEK_V3.theta),
        scaled: true,
        head_dim: rotated,
        partial: None,
    };
    let mut rope = rope::rope(config, asked)?;
    if config.bool_or("rope_interleave", true)? {
        rope.layout = RopeLayout::Pairs;
    }
    spec.ropes = vec![rope];
    let scale = (plain.saturating_add(rotated) as f32).sqrt().recip() * rope::score_scale(config)?;
    for attention in spec.attentions() {
        attention.n_kv_heads = 1;
        attention.head_dim = latent.rank.saturating_add(rotated);
        attention.scale = scale;
        attention.latent = Some(latent);
    }
    Ok(())
}
