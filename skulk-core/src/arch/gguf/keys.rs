//! What does a key of the family's own say?

use super::super::{RopeScaling, unsupported};
use crate::error::{Error, ErrorKind, Result};
use crate::math;
use crate::weights::Checkpoint;
use crate::weights::gguf::{GgufArray, GgufMetadata, GgufValue};

/// The family's key-values: `key` stands for `{arch}.{key}`.
pub(super) struct Keys<'a> {
    pub(super) metadata: &'a GgufMetadata,
    pub(super) arch: &'a str,
}

impl Keys<'_> {
    pub(super) fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        let value = self.metadata.opt_u64(&format!("{}.{key}", self.arch))?;
        value.map(|v| v.try_into().map_err(|_| self.error(key, format!("{v} is too large")))).transpose()
    }

    pub(super) fn usize(&self, key: &str) -> Result<usize> {
        self.opt_usize(key)?.ok_or_else(|| self.error(key, "expected the field, found none".into()))
    }

    pub(super) fn opt_f64(&self, key: &str) -> Result<Option<f64>> {
        self.metadata.opt_f64(&format!("{}.{key}", self.arch))
    }

    pub(super) fn f64(&self, key: &str) -> Result<f64> {
        self.metadata.f64(&format!("{}.{key}", self.arch))
    }

    /// The first of two fields that is there; the second stands for it.
    pub(super) fn usize_of(&self, key: &str, other: &str) -> Result<usize> {
        match (self.opt_usize(key)?, self.opt_usize(other)?) {
            (Some(found), _) | (None, Some(found)) => Ok(found),
            (None, None) => self.usize(key),
        }
    }

    /// Added to the mean square where rows are normed.
    pub(super) fn eps(&self) -> Result<f32> {
        match self.opt_f32("attention.layer_norm_rms_epsilon")? {
            Some(eps) => Ok(eps),
            None => Ok(self.f64("attention.layer_norm_epsilon")? as f32),
        }
    }

    pub(super) fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        Ok(self.opt_f64(key)?.map(|found| found as f32))
    }

    pub(super) fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.metadata.opt_bool(&format!("{}.{key}", self.arch))?.unwrap_or(default))
    }

    /// A number for all layers, or an array with one per layer.
    pub(super) fn per_layer(&self, key: &str, n_layers: usize) -> Result<Option<Vec<usize>>> {
        let Some(array) = self.array(key, n_layers)? else {
            return Ok(self.opt_usize(key)?.map(|n| vec![n; n_layers]));
        };
        array
            .i64s()?
            .take(n_layers)
            .map(|v| {
                usize::try_from(v)
                    .map_err(|_| self.error(key, format!("expected no negative number, found {v}")))
            })
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Numbers with fractions, likewise.
    pub(super) fn numbers(&self, key: &str, n_layers: usize) -> Result<Option<Vec<f64>>> {
        match self.array(key, n_layers)? {
            Some(array) => Ok(Some(array.f64s()?.take(n_layers).collect())),
            None => Ok(self.opt_f64(key)?.map(|number| vec![number; n_layers])),
        }
    }

    /// Which layers slide: an array says it of each, or a number that each layer of so many does not. `pattern` is that
    /// number where the file has none.
    pub(super) fn slides(&self, n_layers: usize, pattern: Option<usize>) -> Result<Vec<bool>> {
        let key = "attention.sliding_window_pattern";
        if let Some(flags) = self.array(key, n_layers)? {
            return Ok(flags.bools()?.take(n_layers).collect());
        }
        let pattern = match (self.opt_usize(key)?, pattern) {
            (Some(pattern), _) | (None, Some(pattern)) => pattern.max(1),
            (None, None) => self.usize(key)?,
        };
        Ok((1..=n_layers).map(|layer| !layer.is_multiple_of(pattern)).collect())
    }

    /// Whether something is so of each layer, where an array says it.
    pub(super) fn flags(&self, key: &str, n_layers: usize) -> Result<Option<Vec<bool>>> {
        match self.array(key, n_layers)? {
            Some(array) => Ok(Some(array.bools()?.take(n_layers).collect())),
            None if self.metadata.get(&format!("{}.{key}", self.arch)).is_none() => Ok(None),
            None => Err(self.error(key, "expected an array with a value for each layer, found none".into())),
        }
    }

    /// An array with a value for each layer, at its end perhaps of layers that predict tokens ahead.
    fn array(&self, key: &str, n_layers: usize) -> Result<Option<GgufArray<'_>>> {
        let full = format!("{}.{key}", self.arch);
        let Some(GgufValue::Array(array)) = self.metadata.get(&full) else { return Ok(None) };
        let stated = self.usize("block_count")?;
        if array.len() != n_layers && array.len() != stated {
            return Err(self.error(key, format!("expected {stated} values, found {}", array.len())));
        }
        Ok(Some(array))
    }

    /// How frequencies are scaled, and by what that multiplies rotated elements. The range in which YaRN's change may be
    /// rounded to whole pairs (`truncate`), which files do not say.
    pub(super) fn rope_scaling(&self, truncate: bool) -> Result<(RopeScaling, f32)> {
        let kind = self.metadata.opt_str(&format!("{}.rope.scaling.type", self.arch))?;
        match kind {
            None | Some("none") => Ok((RopeScaling::None, 1.0)),
            Some("linear") => Ok((RopeScaling::Linear(self.f64("rope.scaling.factor")?), 1.0)),
            Some("yarn") => {
                let factor = self.f64("rope.scaling.factor")?;
                let turns = |key, default| {
                    Ok::<_, Error>(self.opt_f64(key)?.filter(|turns| *turns != 0.0).unwrap_or(default))
                };
                let scaling = RopeScaling::Yarn {
                    factor,
                    beta_fast: turns("rope.scaling.yarn_beta_fast", 32.0)?,
                    beta_slow: turns("rope.scaling.yarn_beta_slow", 1.0)?,
                    original_context: self.usize("rope.scaling.original_context_length")? as f64,
                    truncate,
                };
                let grown = |by: f64| if factor > 1.0 { 0.1 * by * math::ln(factor) + 1.0 } else { 1.0 };
                let of_scores = self.opt_f64("rope.scaling.yarn_log_multiplier")?.filter(|by| *by != 0.0);
                let stated = match self.opt_f64("rope.scaling.yarn_attn_factor")? {
                    Some(stated) => Some(stated),
                    None => self.opt_f64("rope.scaling.attn_factor")?,
                };
                let amplitude = match (stated, of_scores) {
                    (Some(stated), _) => stated,
                    (None, Some(by)) => grown(1.0) / grown(by),
                    (None, None) => grown(1.0),
                };
                Ok((scaling, amplitude as f32))
            }
            Some(other) => Err(unsupported("the rope scaling", other, "none, linear, yarn")
                .with("file", self.metadata.file().display())
                .with("field", format!("{}.rope.scaling.type", self.arch))),
        }
    }

    /// Rows of the embedding table: the tensor itself is the most reliable source.
    pub(super) fn vocab_size(&self, checkpoint: &dyn Checkpoint) -> Result<usize> {
        match checkpoint.tensor("token_embd.weight").map(|t| t.shape.as_slice()) {
            Some([rows, _]) => Ok(*rows),
            _ => self.usize("vocab_size"),
        }
    }

    pub(super) fn error(&self, key: &str, message: String) -> Error {
        Error::new(ErrorKind::ConfigInvalid, message)
            .with("file", self.metadata.file().display())
            .with("field", format!("{}.{key}", self.arch))
            .with_hint("the file's metadata is broken: fetch or convert it again")
    }
}
