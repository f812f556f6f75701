//! What do configurations of MiniMax M2 say?

use super::llama::LLAMA;
use super::{Family, Mixture, only};
use crate::arch::config::Config;
use crate::arch::names::HF_MINIMAX;
use crate::arch::{ArchSpec, ExpertsSpec, QkNorm, Scoring};
use crate::error::Result;

pub(super) const MINIMAX_M2: Family = Family {
    label: "minimax_m2",
    spelling: &HF_MINIMAX,
    qk_norm: Some(QkNorm::All),
    mlp_bias: false,
    context: 196_608,
    theta: 5_000_000.0,
    mixture: experts,
    own,
    ..LLAMA
};

fn experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    only(config, "scoring_func", config.opt_str("scoring_func")?.unwrap_or("sigmoid"), "sigmoid")?;
    only(config, "shared_intermediate_size", config.usize_or("shared_intermediate_size", 0)?, 0)?;
    let spec = ExpertsSpec {
        n_experts: config.usize("num_local_experts")?,
        n_used: config.usize("num_experts_per_tok")?,
        scoring: Scoring::Sigmoid,
        correction: config.bool_or("use_routing_bias", true)?,
        normalise: true,
        ..ExpertsSpec::PLAIN
    };
    Ok(Some(Mixture {
        spec,
        width: config.usize("intermediate_size")?,
        shared: None,
        sparse: vec![true; n_layers],
    }))
}

fn own(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    only(config, "qk_norm_type", config.opt_str("qk_norm_type")?.unwrap_or("per_layer"), "per_layer")?;
    only(config, "use_qk_norm", config.bool_or("use_qk_norm", true)?, true)?;
    // Hubs count the elements that are rotated.
    if let Some(dim) = config.opt_usize("rotary_dim")? {
        spec.ropes.iter_mut().for_each(|rope| rope.dim = dim);
    }
    Ok(())
}
