//! Which part of a vindex would hold this tensor? For messages about slices that lack it.

use super::{VindexIndex, VindexQuant};

/// A part: its files, and which levels and slices have it.
pub(super) struct Part {
    pub(super) files: &'static str,
    pub(super) found_in: &'static str,
}

/// Whether a file in `layers/` would have it: experts, where they are quantised, and dense blocks beside no others.
fn is_in_layer_file(name: &str, index: &VindexIndex) -> bool {
    let is_hybrid = index.moe().is_some_and(|moe| moe.hybrid);
    let is_dense = ["mlp.gate_proj.", "mlp.up_proj.", "mlp.down_proj."].iter().any(|word| name.contains(word));
    match index.quant() {
        VindexQuant::Q4K => name.contains("experts.") || index.is_per_layer() && !is_hybrid && is_dense,
        VindexQuant::None => false,
    }
}

/// Where a vindex of this kind keeps the tensor of that name.
pub(super) fn part_of(name: &str, index: &VindexIndex) -> Part {
    let q4k = index.quant() == VindexQuant::Q4K;
    let either = |float: &'static str, quantised: &'static str| if q4k { quantised } else { float };
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let (files, found_in) = if name.starts_with("embed_tokens.") {
        ("embeddings.bin", "every level; the slices client, embed, server, browse, expert-server and all")
    } else if name.starts_with("lm_head.") {
        (either("lm_head.bin", "lm_head_q4.bin"), "levels inference and all; the slice all")
    } else if has(&["per_layer"]) {
        ("ple_weights.bin", "the whole folder; no slice that LARQL makes")
    } else if has(&["router", "block_sparse_moe.gate.", "mlp.gate."]) {
        ("router_weights.bin", "every level; the slices router and all")
    } else if is_in_layer_file(name, index) {
        ("layers/layer_NN.weights", "the slices expert-server and all")
    } else if has(&["gate_proj", ".w1."]) {
        (either("gate_vectors.bin", "interleaved_q4k.bin"), "every level; the slices server, browse and all")
    } else if has(&["up_proj", ".w3."]) {
        (
            either("up_weights.bin", "interleaved_q4k.bin"),
            "levels inference and all; the slices server, expert-server and all",
        )
    } else if has(&["down_proj", ".w2."]) {
        (
            either("down_weights.bin", "interleaved_q4k.bin"),
            "levels inference and all; the slices server, expert-server and all",
        )
    } else if has(&["_proj"]) || (!q4k && has(&["q_norm", "k_norm"])) {
        (
            either("attn_weights.bin", "attn_weights_q4k.bin"),
            "levels attention, inference and all; the slices client, attn and all",
        )
    } else {
        (
            "norms.bin",
            "levels attention, inference and all; the slices client, attn, server, expert-server and all",
        )
    };
    Part { files, found_in }
}
