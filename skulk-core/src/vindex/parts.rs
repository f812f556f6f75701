//! Which part of a vindex would hold this tensor, and which parts does a folder lack? For slices of slices, and for
//! messages.

use std::collections::BTreeSet;

use super::files::{DOWN_META, EMBEDDINGS, GATES, ROUTERS, WEIGHT_MANIFEST, layer_file};
use super::manifest::LEGACY_WEIGHTS;
use super::place::Place;
use super::slice::SlicePreset;
use super::{VindexIndex, VindexLevel, VindexPart, VindexQuant};

/// Parts that are of no use without the weight manifest.
pub(super) const LISTED_IN_MANIFEST: [VindexPart; 5] = [
    VindexPart::Norms,
    VindexPart::Attention,
    VindexPart::Ffn,
    VindexPart::Head,
    VindexPart::PerLayerEmbeddings,
];

/// The part that keeps the tensor of that name, in a vindex of this kind.
pub(super) fn part_of(name: &str, index: &VindexIndex) -> VindexPart {
    let q4k = index.quant() == VindexQuant::Q4K;
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if name.starts_with("embed_tokens.") {
        VindexPart::Embeddings
    } else if name.starts_with("lm_head.") {
        VindexPart::Head
    } else if has(&["per_layer"]) {
        VindexPart::PerLayerEmbeddings
    } else if has(&["router", "block_sparse_moe.gate.", "mlp.gate."]) {
        VindexPart::Router
    } else if has(&["down_features"]) {
        VindexPart::DownFeatures
    } else if has(&["gate_vectors"]) {
        VindexPart::Gate
    } else if is_in_layer_file(name, index) {
        VindexPart::ExpertLayers
    } else if has(&["gate_proj", ".w1."]) && !q4k {
        VindexPart::Gate
    } else if has(&["gate_proj", "up_proj", "down_proj", ".w1.", ".w2.", ".w3."]) {
        VindexPart::Ffn
    } else if has(&["_proj"]) || (!q4k && has(&["q_norm", "k_norm"])) {
        VindexPart::Attention
    } else {
        VindexPart::Norms
    }
}

/// Whether models have tensors of such names.
pub(super) fn is_known(name: &str) -> bool {
    let ends = ["embed_tokens", "lm_head.", "norm.", "per_layer_"];
    ends.iter().any(|start| name.starts_with(start)) || Place::of(name).layer.is_some()
}

/// What lists tensors of the part that have such names, in a vindex of this kind.
pub(super) fn listed_in(name: &str, part: VindexPart, index: &VindexIndex) -> String {
    let is_quantised = index.quant() == VindexQuant::Q4K;
    match (part, Place::of(name).layer) {
        (VindexPart::Attention, _) if is_quantised => "attn_weights_q4k_manifest.json".to_owned(),
        (VindexPart::Ffn, _) if is_quantised => "interleaved_q4k_manifest.json".to_owned(),
        (VindexPart::DownFeatures, _) if is_quantised => "down_features_q4k_manifest.json".to_owned(),
        (VindexPart::ExpertLayers, Some(layer)) => layer_file(layer),
        (VindexPart::Gate, _) => super::INDEX.to_owned(),
        (VindexPart::Router, _) => ROUTERS.to_owned(),
        (VindexPart::Embeddings, _) => EMBEDDINGS.to_owned(),
        _ => WEIGHT_MANIFEST.to_owned(),
    }
}

/// Whether a file in `layers/` would have it: experts, where they are quantised, and dense blocks beside no others.
fn is_in_layer_file(name: &str, index: &VindexIndex) -> bool {
    let is_hybrid = index.moe().is_some_and(|moe| moe.hybrid);
    let is_dense =
        ["mlp.gate_proj.", "mlp.up_proj.", "mlp.down_proj."].iter().any(|word| name.contains(word));
    match index.quant() {
        VindexQuant::Q4K => name.contains("experts.") || index.is_per_layer() && !is_hybrid && is_dense,
        VindexQuant::None => false,
    }
}

/// Files of which a folder with that part has one or the other. Floats first, then quantised weights, then what
/// version 1 had.
pub(super) fn usual_files(part: VindexPart) -> &'static [&'static str] {
    match part {
        VindexPart::Index => &[super::INDEX],
        VindexPart::Embeddings => &[EMBEDDINGS],
        VindexPart::Norms => &["norms.bin", LEGACY_WEIGHTS],
        VindexPart::Attention => &["attn_weights.bin", "attn_weights_q4k.bin", LEGACY_WEIGHTS],
        VindexPart::Gate => &[GATES, "gate_vectors_fp4.bin"],
        VindexPart::DownMeta => &[DOWN_META, "down_meta.jsonl"],
        VindexPart::Ffn => &["up_weights.bin", "interleaved_q4k.bin", "up_features_fp4.bin", LEGACY_WEIGHTS],
        VindexPart::DownFeatures => &["down_features_q4k.bin", "down_features.bin"],
        VindexPart::ExpertLayers => &["layers/"],
        VindexPart::Head => &["lm_head.bin", "lm_head_q4.bin", LEGACY_WEIGHTS],
        VindexPart::Router => &[ROUTERS],
        VindexPart::PerLayerEmbeddings => &["ple_weights.bin"],
        VindexPart::Tokenizer => &["tokenizer.json"],
        VindexPart::Manifest => &[WEIGHT_MANIFEST],
        VindexPart::Labels => &["feature_labels.json", "feature_clusters.jsonl", "relation_clusters.json"],
        VindexPart::Knn => &["knn_store.bin"],
        VindexPart::Readme => &["README.md"],
    }
}

/// The file that would hold a tensor of the part that has such a name, in a vindex of this kind.
pub(super) fn usual_file(name: &str, part: VindexPart, index: &VindexIndex) -> &'static str {
    let is_down = ["down_proj", ".w2."].iter().any(|word| name.contains(word));
    if part == VindexPart::Ffn && is_down && index.quant() == VindexQuant::None {
        return "down_weights.bin";
    }
    let files = usual_files(part);
    let at = match index.quant() {
        VindexQuant::Q4K => files.get(1).filter(|file| file.contains("q4")),
        VindexQuant::None => None,
    };
    at.or(files.first()).copied().unwrap_or_default()
}

/// The smallest level of extraction that has the part; `None` for what extraction does not make.
pub(super) fn least_level(part: VindexPart) -> Option<VindexLevel> {
    match part {
        VindexPart::Index
        | VindexPart::Embeddings
        | VindexPart::Gate
        | VindexPart::DownMeta
        | VindexPart::Router
        | VindexPart::Tokenizer => Some(VindexLevel::Browse),
        VindexPart::Norms | VindexPart::Attention | VindexPart::PerLayerEmbeddings | VindexPart::Manifest => {
            Some(VindexLevel::Attention)
        }
        VindexPart::Ffn | VindexPart::ExpertLayers | VindexPart::Head => Some(VindexLevel::Inference),
        VindexPart::DownFeatures | VindexPart::Labels | VindexPart::Knn | VindexPart::Readme => None,
    }
}

/// Which levels and slices have a part, in words.
pub(crate) fn found_in(part: VindexPart, index: &VindexIndex) -> String {
    let levels = match least_level(part) {
        Some(VindexLevel::Browse) => "every level".to_owned(),
        Some(least) => {
            let names = VindexLevel::ALL.iter().filter(|level| **level >= least).map(|level| level.as_str());
            format!("levels {}", listed(names))
        }
        None => "folders that were made with it".to_owned(),
    };
    let are_floats = index.quant() == VindexQuant::None;
    let has = |preset: &SlicePreset| preset.parts(are_floats).any(|other| other == part);
    let slices = SlicePreset::ALL.into_iter().filter(has).map(SlicePreset::as_str);
    format!("{levels}; the slices {}", listed(slices))
}

/// `a, b and c`.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        last => last.unwrap_or_default().to_owned(),
    }
}

/// Parts that a whole vindex of this kind has at the highest level, whatever its files say.
pub(super) fn usual_parts(index: &VindexIndex) -> BTreeSet<VindexPart> {
    let moe = index.moe();
    let is_hybrid = moe.is_some_and(|moe| moe.hybrid);
    let has_ple = index.model_config.as_ref().is_some_and(|model| model.per_layer_embed_dim > Some(0));
    let is_there = |part: VindexPart| match part {
        VindexPart::Embeddings
        | VindexPart::Norms
        | VindexPart::Attention
        | VindexPart::Gate
        | VindexPart::Tokenizer
        | VindexPart::Manifest => true,
        VindexPart::DownMeta => index.down_top_k > 0,
        VindexPart::Ffn => !index.is_per_layer() || is_hybrid,
        VindexPart::ExpertLayers => index.is_per_layer(),
        VindexPart::Router => moe.is_some(),
        VindexPart::Head => index.ties_embeddings() == Some(false),
        VindexPart::PerLayerEmbeddings => has_ple,
        _ => false,
    };
    VindexPart::ALL.iter().copied().filter(|part| is_there(*part)).collect()
}

/// Parts that the whole vindex has and this folder lacks. A slice of this library's says so itself; of other folders,
/// it is what their kind has, what their manifests list in other files, and what their index has checksums of.
/// `is_there` tells of names in the folder whether there is such a file or folder; `absent` are files that manifests
/// name.
pub(super) fn lacking<'a>(
    index: &'a VindexIndex,
    is_there: impl Fn(&str) -> bool,
    absent: impl Iterator<Item = &'a str>,
) -> BTreeSet<VindexPart> {
    if let Some(slice) = index.slice() {
        let is_lacking = |part: &VindexPart| slice.lacks.iter().any(|name| name == part.as_str());
        return VindexPart::ALL.iter().copied().filter(is_lacking).collect();
    }
    let mut parts: BTreeSet<VindexPart> = usual_parts(index)
        .into_iter()
        .filter(|part| !usual_files(*part).iter().any(|file| is_there(file)))
        .collect();
    let summed = index.checksums.iter().flatten().map(|(name, _)| name.as_str());
    let named = summed.filter(|name| !is_there(name)).chain(absent);
    parts.extend(named.filter_map(VindexPart::of));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_files_are_of_their_part() {
        for part in VindexPart::ALL {
            for file in usual_files(*part) {
                let of = match *file {
                    LEGACY_WEIGHTS => *part,
                    "layers/" => VindexPart::ExpertLayers,
                    file => VindexPart::of(file).unwrap(),
                };
                assert_eq!(of, *part, "{file}");
            }
        }
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(listed([].into_iter()), "");
        assert_eq!(listed(["a"].into_iter()), "a");
        assert_eq!(listed(["a", "b", "c"].into_iter()), "a, b and c");
    }
}
