//! Which words does this checkpoint use for its tensors? Prefixes, and what conversions call otherwise.

use serde_json::Value;

use crate::arch::ArchSpec;
use crate::arch::names::{LayerTensor, TensorNames};
use crate::ids::ExpertIdx;
use crate::weights::{Checkpoint, Metadata};

/// Before the text model's tensor names; multi-modal checkpoints nest them deeper, a vindex not at all.
pub(in crate::arch) fn prefix(checkpoint: &dyn Checkpoint) -> String {
    if matches!(checkpoint.metadata(), Metadata::Vindex(_)) {
        return String::new();
    }
    let known =
        ["model.", "language_model.model.", "model.language_model."].map(|prefix| (prefix, "embed_tokens"));
    // Decoders that were saved by themselves have none.
    let mut known = known.into_iter().chain([("backbone.", "embeddings"), ("", "embed_tokens")]);
    let found = known.find(|(prefix, table)| {
        // Scales are floats, whatever is wrong with a quantised table.
        ["weight", "scales"]
            .iter()
            .any(|kind| checkpoint.tensor(&format!("{prefix}{table}.{kind}")).is_some())
    });
    found.map_or("model.", |(prefix, _)| prefix).to_owned()
}

/// Lets tensors be called as conversions call them, where the checkpoint has the words.
pub(in crate::arch) fn reword(spec: &mut ArchSpec, checkpoint: &dyn Checkpoint) {
    let mut at = 0;
    while let Some((sign, names)) = spec.names.variant(at) {
        let layer = spec.layers.iter().position(|layer| LayerTensor::of(layer).any(|tensor| tensor == sign));
        if layer.is_some_and(|layer| is_called(&names, layer, sign, checkpoint)) {
            spec.names = names;
        }
        at += 1;
    }
}

/// Whether a checkpoint has a tensor by these names.
fn is_called(names: &TensorNames, layer: usize, tensor: LayerTensor, checkpoint: &dyn Checkpoint) -> bool {
    // A vindex has each expert by itself, and a slice of it any of them.
    if !names.stacks_experts() && matches!(checkpoint.metadata(), Metadata::Vindex(_)) {
        return true;
    }
    let weight = names.expert_weight(layer, tensor, ExpertIdx(0));
    // Scales and biases are floats, whatever is wrong with the words.
    let scales = weight.strip_suffix("weight").map(|module| format!("{module}scales"));
    let bias = names.bias(layer, tensor);
    [Some(weight), scales, Some(bias)].iter().flatten().any(|name| checkpoint.tensor(name).is_some())
}

/// Rows that are compared of a head and of the table: training changes all, as every token has a part in each loss.
const COMPARED: usize = 512;

/// Whether the output head is a matrix of its own where the family or the configuration ties it to the embedding table.
/// transformers 5 goes by the weights, too; most such heads are copies. Quantised ones are not compared: they count
/// where no configuration says that they are tied.
pub(in crate::arch) fn own_head(spec: &ArchSpec, config: &Value, checkpoint: &dyn Checkpoint) -> bool {
    let names = [spec.names.embedding(), spec.names.head()];
    let [Some(table), Some(head)] = names.each_ref().map(|name| checkpoint.tensor(name)) else {
        return false;
    };
    let says = |config: &Value| config.get("tie_word_embeddings").is_some_and(|tied| !tied.is_null());
    let is_said = says(config) || config.get("text_config").is_some_and(says);
    if (table.dtype, &table.shape) != (head.dtype, &head.shape) || table.dtype.is_quantised() {
        return !is_said;
    }
    let (Some(&rows), [Ok(table), Ok(head)]) =
        (head.shape.first(), names.each_ref().map(|name| checkpoint.region(name)))
    else {
        return !is_said;
    };
    let len = head.bytes().len() / rows.max(1);
    let row = |row: usize| row * len..row.saturating_add(1) * len;
    let differs = |at: usize| table.bytes().get(row(at)) != head.bytes().get(row(at));
    (0..rows).step_by(rows.div_ceil(COMPARED).max(1)).any(differs)
}

/// Of some families, MLX stores norms with what is added to them: its words tell, or convolutions with their channels last.
pub(in crate::arch) fn converted(spec: &mut ArchSpec, checkpoint: &dyn Checkpoint) {
    let mut states = spec.layers.iter().enumerate().filter_map(|(at, layer)| Some((at, layer.recurrent()?)));
    let turned = states.next().is_some_and(|(at, state)| {
        let convolution = checkpoint.tensor(&spec.names.weight(at, LayerTensor::QueryConvolution));
        convolution.is_some_and(|tensor| tensor.shape.get(1..) == Some(&[state.convolution, 1]))
    });
    if turned || spec.names.whole_norms() {
        spec.norm.weight_offset = 0.0;
    }
}
