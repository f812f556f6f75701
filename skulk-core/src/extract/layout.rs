//! What does a vindex of a model consist of? Files and tensors in LARQL's order, at each level and storage.

mod browse;
mod float;
mod q4k;

use super::keys::Keys;
use super::options::ExtractOptions;
use super::plan::{Plan, PlanFile, Stored};
use super::source::Source;
use crate::arch::LayerSpec;
use crate::error::{Error, ErrorKind, Result};
use crate::tokenizer::Tokenizer;
use crate::vindex::files::WEIGHT_MANIFEST;
use crate::vindex::{QuantEntry, VindexLevel, WeightEntry};
use crate::weights::DType;

/// What the layout is made from, and how far it is.
struct Layout<'a> {
    source: &'a Source<'a>,
    options: &'a ExtractOptions,
    keys: Keys,
    /// Of what is stored as floats.
    floats: DType,
    /// The source's, where tokens of features are written.
    tokenizer: Option<Tokenizer>,
    plan: Plan,
    /// `weight_manifest.json`.
    weights: Vec<WeightEntry>,
}

/// All files but the index and the hashes.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for options that the model rules out; [`ErrorKind::TensorMissing`],
/// [`ErrorKind::TensorShape`] and [`ErrorKind::DTypeUnsupported`] for tensors that the source lacks, or has otherwise.
pub(super) fn plan(
    source: &Source<'_>,
    keys: Keys,
    options: &ExtractOptions,
    tokenizer: Option<Tokenizer>,
) -> Result<Plan> {
    let floats = options.storage.floats();
    let feature_tokens = if tokenizer.is_some() { options.feature_tokens } else { 0 };
    let plan = Plan { feature_tokens, ..Plan::default() };
    let mut layout = Layout { source, options, keys, floats, tokenizer, plan, weights: Vec::new() };
    layout.check()?;
    layout.browse()?;
    let level = options.written_level();
    match options.storage.is_quantised() {
        true => layout.q4k()?,
        false => layout.float(level)?,
    }
    if level >= VindexLevel::Attention {
        let manifest = json(&layout.weights);
        layout.plan.files.push(PlanFile::of_bytes(WEIGHT_MANIFEST, manifest)?);
    }
    layout.warn();
    Ok(layout.plan)
}

impl<'a> Layout<'a> {
    fn layers(&self) -> &'a [LayerSpec] {
        &self.source.arch().layers
    }

    /// Whether options and model fit.
    fn check(&self) -> Result<()> {
        let is_mixture = self.layers().iter().any(|layer| layer.ffn.experts.is_some());
        let refused = |field: &'static str, message: &'static str, hint: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, message).with("field", field).with_hint(hint))
        };
        if is_mixture && !self.options.gate_vectors {
            return refused(
                "gate_vectors",
                "expected gate vectors of a model with experts, whose quantised ones are not one matrix",
                "keep them, or slice the folder afterwards",
            );
        }
        if self.options.feature_major_down && self.layers().iter().all(|layer| layer.ffn.experts.is_some()) {
            return refused(
                "feature_major_down",
                "expected a model with dense layers, found experts only",
                "leave transposed down projections out",
            );
        }
        Ok(())
    }

    /// A tensor as the source has it, to be stored as `dtype`.
    fn stored(&self, key: &str, dtype: DType) -> Result<Stored> {
        Stored::new(self.source, key.to_owned(), dtype)
    }

    /// Puts a tensor into a float file and the manifest.
    fn put(&mut self, file: &mut PlanFile, key: &str, dtype: DType, layer: Option<usize>) -> Result<()> {
        let tensor = self.stored(key, dtype)?;
        let (shape, is_vector) = (tensor.shape, tensor.is_vector);
        let place = file.rows(tensor, layer)?;
        let name = file.name.clone();
        self.weights.push(WeightEntry::float(key, shape, is_vector, place.offset, place.len, name));
        Ok(())
    }

    /// Puts those of some tensors that the model has.
    fn put_those_there(
        &mut self,
        file: &mut PlanFile,
        keys: &[String],
        dtype: DType,
        layer: usize,
    ) -> Result<()> {
        for key in keys.iter().filter(|key| self.source.shape(key).is_some()) {
            self.put(file, key, dtype, Some(layer))?;
        }
        Ok(())
    }

    /// Puts a quantised tensor into a file and its manifest.
    fn put_quantised(
        &mut self,
        file: &mut PlanFile,
        entries: &mut Vec<QuantEntry>,
        key: &str,
        dtype: DType,
        layer: usize,
    ) -> Result<()> {
        let tensor = self.stored(key, dtype)?;
        let shape = [tensor.shape[0], tensor.padded()];
        let place = file.rows(tensor, Some(layer))?;
        entries.push(QuantEntry::new(key, shape, dtype, place.offset, place.len));
        Ok(())
    }

    /// Puts a quantised file and its manifest into the plan.
    fn close_quantised(&mut self, name: &str, file: PlanFile, entries: &[QuantEntry]) -> Result<()> {
        self.plan.files.push(file);
        self.plan.files.push(PlanFile::of_bytes(format!("{name}_manifest.json"), json(entries))?);
        Ok(())
    }

    /// Tells what a reader of the folder may miss.
    fn warn(&mut self) {
        let arch = self.source.arch();
        let warnings = [
            (self.options.feature_tokens == 0, "no tokens of features, as was asked: browsing tells none"),
            (
                arch.layers
                    .iter()
                    .any(|l| l.ffn.bias || l.attention().is_some_and(|own| own.qkv_bias || own.output_bias)),
                "LARQL 0.1 computes without the biases that are in this folder",
            ),
            (
                arch.norm.eps != 1e-6,
                "LARQL 0.1 computes with a norm epsilon of 1e-6, which is not the model's",
            ),
            (
                arch.ropes.iter().any(|rope| rope.scaling != crate::arch::RopeScaling::None),
                "LARQL 0.1 computes without the rope scaling of this model",
            ),
            (self.plan.is_per_layer, "LARQL 0.1 browses this folder, but does not generate from it"),
            (
                self.plan.is_per_layer && !self.options.down_q4k,
                "down projections are Q4_K: files in layers/ have one type each",
            ),
        ];
        let told = warnings.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text.to_owned());
        self.plan.warnings.extend(told);
    }
}

/// As LARQL prints it.
fn json<T: serde::Serialize + ?Sized>(value: &T) -> Vec<u8> {
    // Entries of strings and numbers always serialise.
    serde_json::to_vec_pretty(value).unwrap_or_default()
}
