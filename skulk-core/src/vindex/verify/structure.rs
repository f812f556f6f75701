//! Is every byte of a file somebody's, and does `down_meta.bin` fit the index?

use super::{VerifyKind, VerifyProblem, named};
use crate::vindex::down_meta::DownMetaLayout;
use crate::vindex::files::{DOWN_META, HEADS, WEIGHT_MANIFEST};
use crate::vindex::folder::Listed;
use crate::vindex::layer_file::{FIXED, LayerHeader};
use crate::vindex::manifest::LEGACY_WEIGHTS;
use crate::vindex::{INDEX, VindexIndex, VindexPart, VindexReader};
use crate::weights::Checkpoint;

/// Bytes of weight files that no tensor covers. That none lie over another was seen when the folder was opened.
pub(super) fn gaps(reader: &VindexReader) -> Vec<VerifyProblem> {
    let mut gaps = Vec::new();
    for (at, file) in reader.files().iter().enumerate() {
        let name = file
            .path()
            .strip_prefix(reader.path())
            .unwrap_or(file.path())
            .to_string_lossy()
            .replace('\\', "/");
        let mut ranges: Vec<_> =
            reader.tensors().iter().filter(|t| t.file == at).map(|t| (t.offset, t.offset + t.len)).collect();
        ranges.sort_unstable();
        let mut covered = match VindexPart::of(&name) {
            Some(VindexPart::ExpertLayers) => {
                file.read_start(FIXED as u64).map_or(0, |fixed| LayerHeader::size(&fixed))
            }
            _ => 0,
        };
        let mut gap = |from: u64, to: u64| {
            if from < to {
                let message = format!("expected tensors only, found {} bytes of none", to - from);
                gaps.push(VerifyProblem::new(&name, VerifyKind::Gap, message).at(from..to));
            }
        };
        for (start, end) in ranges {
            gap(covered, start);
            covered = covered.max(end);
        }
        gap(covered, file.len());
    }
    gaps
}

/// Files of weights that no manifest mentions, though there is one: nobody knows what lies where in them.
pub(super) fn unmentioned(files: &[Listed], reader: &VindexReader) -> Vec<VerifyProblem> {
    const BY_MANIFEST: [&str; 6] = [
        "attn_weights.bin",
        "norms.bin",
        "up_weights.bin",
        "down_weights.bin",
        "ple_weights.bin",
        LEGACY_WEIGHTS,
    ];
    let is_listed = |name: &str| BY_MANIFEST.iter().chain(&HEADS).any(|listed| *listed == name);
    let is_open = |file: &Listed| reader.files().iter().any(|open| open.path() == file.path);
    if named(files, WEIGHT_MANIFEST).is_none() {
        return Vec::new();
    }
    let unknown = files.iter().filter(|file| file.len > 0 && is_listed(&file.name) && !is_open(file));
    unknown
        .map(|file| {
            let message = format!("expected tensors of it in {WEIGHT_MANIFEST}, found none");
            VerifyProblem::new(&file.name, VerifyKind::Gap, message).at(0..file.len)
        })
        .collect()
}

/// Bands of layers that the model does not have, or that end before they begin.
pub(super) fn bands(index: &VindexIndex) -> Vec<VerifyProblem> {
    let Some(bands) = index.layer_bands else { return Vec::new() };
    let named = [("syntax", bands.syntax), ("knowledge", bands.knowledge), ("output", bands.output)];
    let wrong = named.iter().filter(|(_, [first, last])| first > last || *last >= index.num_layers);
    wrong
        .map(|(name, [first, last])| {
            let message = format!(
                "expected layer_bands.{name} to be a first and a last layer below {}, found {first} and {last}",
                index.num_layers
            );
            VerifyProblem::new(INDEX, VerifyKind::Format, message)
        })
        .collect()
}

/// What is wrong with the structure of `down_meta.bin`.
pub(super) fn down_meta(files: &[Listed], index: &VindexIndex) -> Vec<VerifyProblem> {
    let Some(file) = named(files, DOWN_META) else { return Vec::new() };
    let layout = match DownMetaLayout::read(&file.path) {
        Ok(layout) => layout,
        Err(e) => {
            let folder = file.path.parent().unwrap_or(&file.path);
            return vec![VerifyProblem::of(&e, folder)];
        }
    };
    let wrong = |message: String, offset: u64| {
        VerifyProblem::new(&file.name, VerifyKind::Format, message).at(offset..offset + 4)
    };
    let mut problems = Vec::new();
    if layout.layers.len() != index.num_layers {
        problems
            .push(wrong(format!("expected {} layers, found {}", index.num_layers, layout.layers.len()), 8));
    }
    for entry in &index.layers {
        let Some(layer) = layout.layers.get(entry.layer) else { continue };
        // Layers may have been left out.
        let features = layout.features(entry.layer);
        if features != 0 && features != entry.num_features as u64 {
            let message = format!(
                "expected the {} features of layer {}, found {features}",
                entry.num_features, entry.layer
            );
            problems.push(wrong(message, layer.start - 4));
        }
    }
    problems
}
