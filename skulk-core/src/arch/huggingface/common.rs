//! Which sizes has every family?

use serde_json::Value;

use super::Family;
use crate::arch::MAX_LAYERS;
use crate::arch::config::Config;
use crate::error::Result;

/// Sizes every family has.
pub(super) struct Common {
    pub(super) hidden_size: usize,
    pub(super) vocab_size: usize,
    pub(super) n_layers: usize,
    pub(super) n_heads: usize,
    pub(super) n_kv_heads: usize,
    pub(super) head_dim: usize,
    /// Of each layer's dense block.
    pub(super) ffn_widths: Vec<usize>,
}

impl Common {
    pub(super) fn read(config: &Config<'_>, family: &Family) -> Result<Self> {
        let usual = |field| family.sizes.iter().find(|(name, _)| *name == field).map(|(_, size)| *size);
        let size = |field| match config.opt_usize(field)?.or(usual(field)) {
            Some(size) => Ok(size),
            None => config.usize(field),
        };
        let hidden_size = config.usize("hidden_size")?;
        let n_heads = size("num_attention_heads")?;
        // Where blocks are listed, there may be no number beside.
        let listed = config.opt("layers_block_type").and_then(Value::as_array).map(Vec::len);
        let n_layers = match config.opt_usize("num_hidden_layers")?.or(listed) {
            Some(n) => n,
            None => config.usize("num_hidden_layers")?,
        };
        if n_layers > MAX_LAYERS {
            return Err(
                config.error("num_hidden_layers", format!("expected at most {MAX_LAYERS}, found {n_layers}"))
            );
        }
        Ok(Self {
            hidden_size,
            vocab_size: size("vocab_size")?,
            n_layers,
            n_heads,
            n_kv_heads: config.usize_or(family.kv_heads, usual(family.kv_heads).unwrap_or(n_heads))?,
            head_dim: config.usize_or("head_dim", (family.head_dim)(hidden_size, n_heads))?,
            ffn_widths: widths(config, family, n_layers)?,
        })
    }
}

/// How wide each layer's dense block is.
fn widths(config: &Config<'_>, family: &Family, n_layers: usize) -> Result<Vec<usize>> {
    let field = family.ffn_width;
    if !family.widths_by_layer || !config.opt(field).is_some_and(Value::is_array) {
        return Ok(vec![config.usize(field)?; n_layers]);
    }
    let widths = config.usize_list(field)?;
    if widths.len() != n_layers {
        let message = format!("expected {n_layers} widths, one for each layer, found {}", widths.len());
        return Err(config.error(field, message));
    }
    Ok(widths)
}
