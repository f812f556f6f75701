//! What do configurations of Gemma 4 say?

use super::gemma::GEMMA3;
use super::rope::{self, Asked};
use super::{Family, Mixture, only, sliding_layers};
use crate::arch::config::Config;
use crate::arch::names::{HF_GEMMA4, HF_GEMMA4_MOE};
use crate::arch::{ArchSpec, AttentionSpec, ExpertsSpec, LayerInput, LayerSpec, SharedExpert, unsupported};
use crate::error::Result;

pub(super) const GEMMA4: Family = Family {
    label: "gemma4",
    spelling: &HF_GEMMA4,
    norm_offset: 0.0,
    sizes: &[("vocab_size", 262_144), ("num_attention_heads", 8), ("num_key_value_heads", 4)],
    local_theta: None,
    own_ropes: true,
    windows: |config, n_layers| windows(config, n_layers, 512),
    mixture: experts,
    own,
    ..GEMMA3
};

/// The 12B model, whose pictures and sounds go through the decoder itself. Its texts are as those of Gemma 4 without experts and
/// without inputs to layers.
pub(super) const GEMMA4_UNIFIED: Family = Family {
    label: "gemma4_unified",
    context: 262_144,
    windows: |config, n_layers| windows(config, n_layers, 1024),
    mixture: |_, _| Ok(None),
    own: plain,
    ..GEMMA4
};

/// What drafts for these models, with their keys and values, by the name of its whole configuration.
pub(super) const ASSISTANTS: [&str; 2] = ["gemma4_assistant", "gemma4_unified_assistant"];

pub(super) const ASSISTANT: Family = Family {
    label: "gemma4_assistant",
    mixture: |_, _| Ok(None),
    own: |config, spec| {
        only(config, "enable_moe_block", config.bool_or("enable_moe_block", false)?, false)?;
        only(config, "hidden_size_per_layer_input", config.usize_or("hidden_size_per_layer_input", 0)?, 0)?;
        attend(config, spec)
    },
    ..GEMMA4
};

/// Every sixth layer has no window, unless the configuration says otherwise; the last one has none in any case.
fn windows(config: &Config<'_>, n_layers: usize, size: usize) -> Result<Vec<Option<usize>>> {
    // Texts alone are seen causally where only pictures are not.
    if let Some(found) = config.opt_str("use_bidirectional_attention")?.filter(|found| *found != "vision") {
        return Err(unsupported("the variant", found, "causal attention")
            .with("file", config.file.display())
            .with("field", "use_bidirectional_attention"));
    }
    let window = config.usize_or("sliding_window", size)?;
    let sliding = sliding_layers(config, n_layers, 6)?.into_iter().enumerate();
    Ok(sliding.map(|(at, sliding)| (sliding && at + 1 < n_layers).then_some(window)).collect())
}

fn experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    if !config.bool_or("enable_moe_block", false)? {
        return Ok(None);
    }
    let spec = ExpertsSpec {
        n_experts: config.usize("num_experts")?,
        n_used: config.usize("top_k_experts")?,
        normalise: true,
        scales: true,
        apart: true,
        ..ExpertsSpec::PLAIN
    };
    Ok(Some(Mixture {
        spec,
        width: config.usize("moe_intermediate_size")?,
        shared: Some(SharedExpert::new(config.usize("intermediate_size")?)),
        sparse: vec![true; n_layers],
    }))
}

fn own(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    plain(config, spec)?;
    inputs(config, spec)?;
    match spec.inputs() {
        Some(input) => only(config, "vocab_size_per_layer_input", input.rows, spec.vocab_size),
        None => Ok(()),
    }
}

/// What all of them have in all layers.
fn attend(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    spec.final_softcap = config.opt_f32("final_logit_softcapping")?;
    if spec.layers.iter().any(|layer| layer.ffn.experts.is_some()) {
        spec.names.spelling = &HF_GEMMA4_MOE;
    }
    let as_values = config.bool_or("attention_k_eq_v", false)?;
    for layer in &mut spec.layers {
        layer.output_scale = true;
        let Some(attention) = layer.attention_mut() else { continue };
        (attention.scale, attention.value_norm) = (1.0, true);
        attention.keys_as_values = as_values && attention.window.is_none();
        attention.rope = Some(usize::from(attention.window.is_some()));
    }
    heads(config, spec, as_values)
}

fn plain(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    attend(config, spec)?;
    ropes(config, spec)?;
    shared(config, spec, 0)?;
    let wide = config.bool_or("use_double_wide_mlp", false)?;
    let sharing = |layer: &&mut LayerSpec| layer.attention().is_some_and(|own| own.kv_of.is_some());
    for layer in spec.layers.iter_mut().filter(|_| wide).filter(sharing) {
        if layer.ffn.experts.is_none() {
            layer.ffn.width = layer.ffn.width.saturating_mul(2);
        } else if let Some(shared) = layer.ffn.shared.as_mut() {
            shared.width = shared.width.saturating_mul(2);
        }
    }
    Ok(())
}

/// Layers without a window have heads of their own: hubs name them once, transformers 5 by layer.
fn heads(config: &Config<'_>, spec: &mut ArchSpec, as_values: bool) -> Result<()> {
    if config.opt("per_layer_config").is_some() {
        let all = config.section("per_layer_config")?;
        for (at, layer) in spec.layers.iter_mut().enumerate() {
            let key = at.to_string();
            if all.opt(&key).is_none() {
                continue;
            }
            let own = Config { file: all.file, at: "per_layer_config", value: all.section(&key)?.value };
            let known = ["head_dim", "num_key_value_heads"];
            let unknown = |key: &&String| !known.contains(&key.as_str());
            if let Some(found) = own.value.as_object().and_then(|fields| fields.keys().find(unknown)) {
                return Err(unsupported("the variant", found, &known.join(", "))
                    .with("file", config.file.display())
                    .with("field", "per_layer_config"));
            }
            let Some(attention) = layer.attention_mut() else { continue };
            attention.head_dim = own.usize_or("head_dim", attention.head_dim)?;
            attention.n_kv_heads = own.usize_or("num_key_value_heads", attention.n_kv_heads)?;
        }
        return Ok(());
    }
    let head_dim = config.usize_or("global_head_dim", 512)?;
    let n_kv_heads = config.opt_usize("num_global_key_value_heads")?.filter(|_| as_values);
    for attention in spec.layers.iter_mut().filter_map(LayerSpec::attention_mut) {
        if attention.window.is_none() {
            attention.head_dim = head_dim;
            attention.n_kv_heads = n_kv_heads.unwrap_or(attention.n_kv_heads);
        }
    }
    Ok(())
}

/// One for layers without a window, one for the others.
fn ropes(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let kinds = [(false, "full_attention", 1e6), (true, "sliding_attention", 1e4)];
    for (slides, kind, theta) in kinds {
        let like = |attention: &&AttentionSpec| attention.window.is_some() == slides;
        let mut own = spec.layers.iter().filter_map(LayerSpec::attention).filter(like);
        let first = own.next().or(spec.layers.first().and_then(LayerSpec::attention));
        let head_dim = first.map_or(0, |attention| attention.head_dim);
        if own.any(|attention| attention.head_dim != head_dim) {
            let message = format!("expected heads of one size in all layers with {kind}");
            return Err(config.error("per_layer_config", message));
        }
        let asked = Asked { kind, base: ("rope_theta", theta), scaled: false, head_dim, partial: None };
        let mut rope = rope::rope(config, asked)?;
        if config.opt("rope_parameters").is_none() && !slides {
            rope.scaling = crate::arch::RopeScaling::Proportional { rotated: head_dim / 8, factor: 1.0 };
        }
        spec.ropes.push(rope);
    }
    Ok(())
}

/// The last layers use keys and values of the last one before them that has the same window, or none either.
pub(super) fn shared(config: &Config<'_>, spec: &mut ArchSpec, default: usize) -> Result<()> {
    let field = "num_kv_shared_layers";
    spec.share_kv(config.usize_or(field, default)?).map_err(|message| config.error(field, message))
}

/// A row of each token's own for each layer.
pub(super) fn inputs(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let Some(width) =
        config.usize_unless_null("hidden_size_per_layer_input", 256)?.filter(|width| *width > 0)
    else {
        return Ok(());
    };
    let rows = config.usize_or("vocab_size_per_layer_input", 262_144)?;
    for layer in &mut spec.layers {
        let activation = layer.ffn.activation;
        layer.input = Some(LayerInput { width, rows, activation });
    }
    Ok(())
}
