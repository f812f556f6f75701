//! What do files of GLM 4, 4.5 and 4.7 and of MiniMax M2 say?

use super::super::names::{GGUF_FUSED, GGUF_TWO_NORMS, TensorNames};
use super::super::{
    ArchSpec, ExpertGroups, ExpertsSpec, LayerSpec, QkNorm, RopeLayout, RopeSpec, Scoring, SharedExpert,
    unsupported,
};
use super::keys::Keys;
use super::{QK_NORM, QKV_BIAS, Sizes, has_any, plain};
use crate::error::Result;
use crate::weights::Checkpoint;

/// GLM 4: gate and up projection lie in one tensor, and blocks have norms behind them, too.
pub(super) fn glm4(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let spec = plain(keys, checkpoint, &sizes, ropes(keys, &sizes, RopeLayout::Pairs)?, |at, layer| {
        if let Some(attention) = layer.attention_mut() {
            attention.qkv_bias = has_any(checkpoint, at, &QKV_BIAS);
        }
        (layer.post_attention_norm, layer.post_ffn_norm) = (true, true);
    })?;
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_FUSED), ..spec })
}

pub(super) fn glm4_moe(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let mixture = Mixture::read(keys, checkpoint, sizes.n_layers)?;
    let spec = plain(keys, checkpoint, &sizes, ropes(keys, &sizes, RopeLayout::Halves)?, |at, layer| {
        if let Some(attention) = layer.attention_mut() {
            attention.qkv_bias = has_any(checkpoint, at, &QKV_BIAS);
            attention.qk_norm = has_any(checkpoint, at, &QK_NORM).then_some(QkNorm::Heads);
        }
        mixture.put(at, layer);
    })?;
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_TWO_NORMS), ..spec })
}

pub(super) fn minimax_m2(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let experts = ExpertsSpec { normalise: true, ..experts(keys, checkpoint, sizes.n_layers)? };
    let width = keys.usize("expert_feed_forward_length")?;
    plain(keys, checkpoint, &sizes, ropes(keys, &sizes, RopeLayout::Halves)?, |_, layer| {
        if let Some(attention) = layer.attention_mut() {
            attention.qk_norm = Some(QkNorm::All);
        }
        (layer.ffn.width, layer.ffn.experts) = (width, Some(experts));
    })
}

fn ropes(keys: &Keys<'_>, sizes: &Sizes, layout: RopeLayout) -> Result<Vec<RopeSpec>> {
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(10_000.0);
    let dim = keys.opt_usize("rope.dimension_count")?.unwrap_or(sizes.head_dim);
    let (scaling, amplitude) = keys.rope_scaling(true)?;
    Ok(vec![RopeSpec { theta, dim, layout, scaling, amplitude }])
}

/// Experts of all layers but the first ones, and beside them one that all rows take.
pub(super) struct Mixture {
    experts: ExpertsSpec,
    width: usize,
    /// 0: there is none.
    shared: usize,
    /// Layers without experts.
    dense: usize,
}

impl Mixture {
    pub(super) fn read(keys: &Keys<'_>, checkpoint: &dyn Checkpoint, n_layers: usize) -> Result<Self> {
        let width = keys.usize("expert_feed_forward_length")?;
        Ok(Self {
            experts: experts(keys, checkpoint, n_layers)?,
            width,
            shared: keys.opt_usize("expert_shared_count")?.unwrap_or(0).saturating_mul(width),
            dense: keys.opt_usize("leading_dense_block_count")?.unwrap_or(0),
        })
    }

    /// Gives a layer its experts, where it has some.
    pub(super) fn put(&self, at: usize, layer: &mut LayerSpec) {
        if at >= self.dense {
            (layer.ffn.width, layer.ffn.experts) = (self.width, Some(self.experts));
            layer.ffn.shared = (self.shared > 0).then(|| SharedExpert::new(self.shared));
        }
    }
}

/// Experts in DeepSeek-V3's words. Files of these families that do not name the scoring mean a sigmoid.
pub(super) fn experts(keys: &Keys<'_>, checkpoint: &dyn Checkpoint, n_layers: usize) -> Result<ExpertsSpec> {
    match keys.opt_usize("expert_gating_func")? {
        None | Some(0 | 2) => {}
        Some(other) => {
            return Err(unsupported("the expert_gating_func", &other.to_string(), "2, a sigmoid")
                .with("file", keys.metadata.file().display())
                .with("field", format!("{}.expert_gating_func", keys.arch)));
        }
    }
    let groups = ExpertGroups {
        n_groups: keys.opt_usize("expert_group_count")?.unwrap_or(1).max(1),
        n_used: keys.opt_usize("expert_group_used_count")?.unwrap_or(1).max(1),
    };
    let has_correction = |at| has_any(checkpoint, at, &["exp_probs_b.bias"]);
    Ok(ExpertsSpec {
        n_experts: keys.usize("expert_count")?,
        n_used: keys.usize("expert_used_count")?,
        scoring: Scoring::Sigmoid,
        correction: (0..n_layers).any(has_correction),
        groups: (groups.n_used != groups.n_groups).then_some(groups),
        normalise: keys.bool_or("expert_weights_norm", true)?,
        scale: keys.opt_f32("expert_weights_scale")?.filter(|scale| *scale != 0.0).unwrap_or(1.0),
        ..ExpertsSpec::PLAIN
    })
}
