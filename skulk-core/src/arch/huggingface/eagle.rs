//! What do configurations of EAGLE-3 heads say? Those of the method's own kind, and those of the library speculators.

use std::path::PathBuf;

use serde_json::Value;

use super::llama::LLAMA;
use super::{describe, only};
use crate::arch::ahead::Eagle;
use crate::arch::config::Config;
use crate::arch::{TakenNorm, unsupported};
use crate::error::Result;
use crate::weights::Checkpoint;

/// Whether a configuration describes such a head.
pub(super) fn is_eagle(root: &Config<'_>) -> Result<bool> {
    let is_eagle = |name: &Value| name.as_str().is_some_and(|name| name.contains("Eagle3"));
    let mut named = root.opt("architectures").and_then(Value::as_array).into_iter().flatten();
    Ok(named.any(is_eagle) || is_speculators(root)?)
}

fn is_speculators(root: &Config<'_>) -> Result<bool> {
    Ok(root.opt_str("speculators_model_type")? == Some("eagle3"))
}

/// The head in a `config`; `None`: it describes something else.
pub(in crate::arch) fn eagle(
    config: &Value,
    file: &PathBuf,
    checkpoint: &dyn Checkpoint,
) -> Result<Option<Eagle>> {
    let root = Config { file, at: "", value: config };
    if !is_eagle(&root)? {
        return Ok(None);
    }
    let own = match root.opt("transformer_layer_config") {
        Some(_) => root.section("transformer_layer_config")?,
        None => root,
    };
    let kind = own.str("model_type")?;
    if kind != "llama" {
        return Err(unsupported("the layer of an EAGLE head", kind, "llama")
            .with("file", file.display())
            .with("field", "model_type"));
    }
    only(&own, "num_hidden_layers", own.usize("num_hidden_layers")?, 1)?;
    let [whole, each] = ["norm_before_fc", "fc_norm"].map(|field| root.bool_or(field, false));
    let taken_norm = match (whole?, each?) {
        (false, false) => None,
        (true, false) => Some(TakenNorm::Whole),
        (false, true) => Some(TakenNorm::Each),
        (true, true) => {
            return Err(root.error("fc_norm", "expected it without norm_before_fc, found both".into()));
        }
    };
    let mut spec = describe(&own, String::new(), &LLAMA)?;
    // It says whose table is used, and of that there is one here.
    spec.tied_embeddings = false;
    spec.names = spec.names.of_eagle(|name| checkpoint.tensor(name).is_some());
    Ok(Some(Eagle {
        hidden_size: root.opt_usize("target_hidden_size")?.unwrap_or(spec.hidden_size),
        vocab_size: root.opt_usize("draft_vocab_size")?.unwrap_or(spec.vocab_size),
        borders: borders(&root)?,
        field: BORDERS,
        taken_norm,
        goes_on_normed: root.bool_or("norm_output", false)?,
        // Heads by speculators are trained so unless they say otherwise.
        normed: root.bool_or("norm_before_residual", is_speculators(&root)?)?,
        spec,
    }))
}

/// The field that says behind how many layers hidden states are taken.
const BORDERS: &str = "eagle_aux_hidden_state_layer_ids";

/// Behind how many layers hidden states are taken: told so, or, within `eagle_config`, by the layers that they are taken behind.
fn borders(root: &Config<'_>) -> Result<Option<[usize; 3]>> {
    let field = BORDERS;
    let (section, further) = match root.opt("eagle_config") {
        Some(_) if root.opt(field).is_none() => (root.section("eagle_config")?, 1),
        _ => (*root, 0),
    };
    if section.opt(field).is_none() {
        return Ok(None);
    }
    let layers = section.usize_list(field)?;
    let three: [usize; 3] = layers.try_into().map_err(|layers: Vec<_>| {
        section.error(field, format!("expected three layers, found {}", layers.len()))
    })?;
    Ok(Some(three.map(|layer| layer.saturating_add(further))))
}
