//! What do configurations of OLMo 3 say?

use super::llama::LLAMA;
use super::{Family, some_windows};
use crate::arch::names::HF_GEMMA3;
use crate::arch::{QkNorm, RopeScaling};

/// Names are Gemma's, whose norms before blocks are not there.
pub(super) const OLMO3: Family = Family {
    label: "olmo3",
    spelling: &HF_GEMMA3,
    qk_norm: Some(QkNorm::All),
    pre_norms: false,
    post_norms: true,
    mlp_bias: false,
    partial_rotary: None,
    context: 65_536,
    eps: 1e-5,
    theta: 500_000.0,
    local_theta: Some(500_000.0),
    windows: |config, n_layers| some_windows(config, n_layers, 4),
    own: |config, spec| {
        // The hubs' spelling has one base for both, and stretches that of layers without a window.
        if let ([global, local], None) = (&mut spec.ropes[..], config.opt("rope_parameters")) {
            (local.theta, local.scaling) = (global.theta, RopeScaling::None);
        }
        Ok(())
    },
    ..LLAMA
};
