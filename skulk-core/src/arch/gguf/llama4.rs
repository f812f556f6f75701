//! What do files of Llama 4's text half say? Most layers attend within chunks, some to all positions, unrotated.

use super::super::{
    ArchSpec, ExpertsSpec, QkNorm, QueryGrowth, RopeLayout, RopeScaling, RopeSpec, Scoring, SharedExpert,
    Window, unsupported,
};
use super::keys::Keys;
use super::{Sizes, plain};
use crate::error::Result;
use crate::weights::{Checkpoint, quant};

/// Positions of a chunk, and those over which queries stay as they are. Files do not name them: these are llama.cpp's, and the
/// published models'.
const CHUNK: usize = 8192;
/// How fast queries grow behind, likewise.
const GROWTH: f64 = 0.1;
/// Each so many layers one neither rotates nor has chunks, likewise.
const PATTERN: usize = 4;
/// Maverick's experts: its queries and keys are not normed, unlike Scout's.
const MAVERICK: usize = 128;

pub(super) fn llama4(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let whole = match keys.opt_usize("attention.sliding_window")? {
        None | Some(CHUNK) => false,
        // Written where all layers see all positions, which are then rotated into all.
        Some(0) => true,
        Some(other) => {
            let known = format!("0, {CHUNK}");
            return Err(unsupported("the attention.sliding_window", &other.to_string(), &known)
                .with("file", keys.metadata.file().display())
                .with("field", format!("{}.attention.sliding_window", keys.arch)));
        }
    };
    let chunked = match whole {
        true => vec![false; sizes.n_layers],
        false => keys.slides(sizes.n_layers, Some(PATTERN))?,
    };
    let scaling = match checkpoint.tensor("rope_freqs.weight") {
        Some(_) => RopeScaling::Factors(quant::to_f32(&checkpoint.region("rope_freqs.weight")?)?),
        None => match keys.rope_scaling(true)? {
            (scaling, 1.0) => scaling,
            // Heads are normed behind, which takes it away again.
            _ => {
                return Err(unsupported("the rope scaling", "yarn", "none, linear, and rope_freqs.weight")
                    .with("file", keys.metadata.file().display())
                    .with("field", format!("{}.rope.scaling.type", keys.arch)));
            }
        },
    };
    let rope = RopeSpec {
        theta: keys.f64("rope.freq_base")?,
        dim: keys.opt_usize("rope.dimension_count")?.unwrap_or(sizes.head_dim),
        layout: RopeLayout::Pairs,
        scaling,
        amplitude: 1.0,
    };
    let experts = ExpertsSpec {
        n_experts: keys.usize("expert_count")?,
        n_used: keys.usize("expert_used_count")?,
        scoring: Scoring::Sigmoid,
        scale: keys.opt_f32("expert_weights_scale")?.filter(|scale| *scale != 0.0).unwrap_or(1.0),
        on_input: true,
        ..ExpertsSpec::PLAIN
    };
    let width = keys.usize("expert_feed_forward_length")?;
    let step = keys.usize("interleave_moe_layer_step")?;
    plain(keys, checkpoint, &sizes, vec![rope], |at, layer| {
        if let Some(attention) = layer.attention_mut() {
            let rotates = whole || !(at + 1).is_multiple_of(PATTERN);
            let growth = QueryGrowth { rate: GROWTH, every: CHUNK as f64, ahead: 1 };
            attention.window = (chunked.get(at) == Some(&true)).then_some(Window::Chunk(CHUNK));
            attention.rope = rotates.then_some(0);
            attention.qk_norm = (rotates && experts.n_experts != MAVERICK).then_some(QkNorm::Plain);
            attention.query_growth = (!rotates).then_some(growth);
        }
        // No layer is a multiple of 0.
        if (at + 1).is_multiple_of(step) {
            (layer.ffn.width, layer.ffn.experts) = (width, Some(experts));
            layer.ffn.shared = Some(SharedExpert::new(width));
        }
    })
}
