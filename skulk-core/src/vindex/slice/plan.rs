//! Which bytes of which file go into a slice? Decided before anything is written.

use std::path::PathBuf;

use super::cut::{self, Moved};
use super::select::Selection;
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::files::{DOWN_META, HASHES, WEIGHT_MANIFEST};
use crate::vindex::folder::{Folder, Listed};
use crate::vindex::manifest::LEGACY_WEIGHTS;
use crate::vindex::parts::part_of;
use crate::vindex::tensors::QUANTISED;
use crate::vindex::{INDEX, VindexIndex, VindexLayer, VindexLevel, VindexPart, VindexReader};
use crate::weights::Checkpoint;

/// A slice that is to be made.
pub(super) struct Plan {
    pub(super) files: Vec<Planned>,
    /// Of the slice, but for its checksums.
    pub(super) index: VindexIndex,
    /// Files of the source that it does not take, by name.
    pub(super) left_out: Vec<String>,
}

/// A file that a slice takes.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) path: PathBuf,
    source_len: u64,
    /// `None`: the whole file.
    pub(super) pieces: Option<Vec<Piece>>,
}

/// What a rewritten file consists of.
pub(super) enum Piece {
    /// Bytes of the source.
    Range(std::ops::Range<u64>),
    /// New ones.
    Bytes(Vec<u8>),
}

impl Piece {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.end - range.start,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

impl Planned {
    /// Its length in the slice.
    pub(super) fn len(&self) -> u64 {
        self.pieces.as_ref().map_or(self.source_len, |pieces| pieces.iter().map(Piece::len).sum())
    }
}

/// Plans a slice of the folder, which has these files.
pub(super) fn plan(
    reader: &VindexReader,
    folder: &Folder,
    listed: Vec<Listed>,
    selection: &Selection,
) -> Result<Plan> {
    let mut plan = Plan { files: Vec::new(), index: index(reader, selection), left_out: Vec::new() };
    let mut moved = Moved::default();
    let mut manifests = Vec::new();
    for file in listed {
        let takes = match file.part {
            _ if [INDEX, HASHES].contains(&file.name.as_str()) => continue,
            _ if file.name == LEGACY_WEIGHTS => true,
            Some(part) => selection.parts.contains(&part),
            None => false,
        };
        if !takes {
            plan.left_out.push(file.name);
        } else if is_manifest(&file.name) {
            manifests.push(file);
        } else {
            match content(reader, &file, selection, &mut moved)? {
                Content::None => plan.left_out.push(file.name),
                Content::Whole => plan.files.push(planned(file, None)),
                Content::Pieces(pieces) => plan.files.push(planned(file, Some(pieces))),
            }
        }
    }
    // Their offsets follow from what became of the files.
    for file in manifests {
        let is_cut = selection.is_cut || moved.has(LEGACY_WEIGHTS);
        let pieces = match is_cut {
            true => Some(vec![Piece::Bytes(cut::manifest(reader, folder, &file.name, selection, &moved)?)]),
            false => None,
        };
        plan.files.push(planned(file, pieces));
    }
    plan.left_out.sort_unstable();
    Ok(plan)
}

fn planned(file: Listed, pieces: Option<Vec<Piece>>) -> Planned {
    Planned { name: file.name, path: file.path, source_len: file.len, pieces }
}

/// Whether offsets of tensors are in it.
fn is_manifest(name: &str) -> bool {
    let of_quantised = |(file, _): &(&str, bool)| name.strip_prefix(file) == Some("_manifest.json");
    name == WEIGHT_MANIFEST || QUANTISED.iter().any(of_quantised)
}

/// What of a file a slice takes.
pub(super) enum Content {
    None,
    Whole,
    Pieces(Vec<Piece>),
}

fn content(
    reader: &VindexReader,
    file: &Listed,
    selection: &Selection,
    moved: &mut Moved,
) -> Result<Content> {
    let index = reader.index();
    let opened =
        reader.files().iter().position(|f| f.path().strip_prefix(reader.path()) == Ok(file.name.as_ref()));
    if !selection.is_cut && file.name != LEGACY_WEIGHTS {
        return Ok(Content::Whole);
    }
    if file.name == DOWN_META {
        return cut::down_meta(reader, file, selection);
    }
    if file.name == "down_meta.jsonl" && selection.cuts_gates {
        return Ok(Content::None);
    }
    if file.part == Some(VindexPart::ExpertLayers) {
        let number = file.name.strip_prefix("layers/layer_").and_then(|name| name.strip_suffix(".weights"));
        return match (
            number.and_then(|number| number.parse().ok()),
            opened.and_then(|i| reader.files().get(i)),
        ) {
            (Some(layer), _) if !selection.has_layer(layer) => Ok(Content::None),
            (Some(_), Some(opened)) => cut::layer_file(opened, selection),
            _ => Ok(Content::Whole),
        };
    }
    let Some(opened) = opened else { return uncut(file).map(|()| Content::Whole) };
    let mut tensors: Vec<_> = reader.tensors().iter().filter(|t| t.file == opened && t.len > 0).collect();
    tensors.sort_unstable_by_key(|tensor| tensor.offset);
    let has = |name: &str| selection.has(name, &file.name, || part_of(name, index));
    let kept: Vec<_> = tensors.iter().filter(|tensor| has(&tensor.name)).collect();
    if kept.len() == tensors.len() {
        return Ok(Content::Whole);
    }
    if kept.is_empty() && file.name == LEGACY_WEIGHTS {
        return Ok(Content::None);
    }
    let ranges = kept.iter().map(|tensor| tensor.offset..tensor.offset + tensor.len);
    Ok(Content::Pieces(moved.together(&file.name, ranges)))
}

/// `Ok` for a file that is nothing of single layers or experts.
fn uncut(file: &Listed) -> Result<()> {
    let by_layer =
        [VindexPart::Attention, VindexPart::Gate, VindexPart::Ffn, VindexPart::DownFeatures].map(Some);
    if file.len == 0 || !by_layer.contains(&file.part) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        "expected files that can be cut into layers and experts, found one whose layout is not known",
    )
    .with("file", file.path.display())
    .with_hint("slice without layers and experts, or leave its part out"))
}

/// The slice's index.
fn index(reader: &VindexReader, selection: &Selection) -> VindexIndex {
    let mut index = reader.index().clone();
    let has = |part: VindexPart| selection.parts.contains(&part) && !selection.lacks.contains(&part);
    // As LARQL tells levels.
    let parts = &selection.parts;
    let attends = parts.contains(&VindexPart::Attention) && parts.contains(&VindexPart::Norms);
    let level = match (attends, parts.contains(&VindexPart::Ffn), parts.contains(&VindexPart::Head)) {
        (true, true, true) => VindexLevel::All,
        (true, true, false) => VindexLevel::Inference,
        (true, false, _) => VindexLevel::Attention,
        (false, ..) => VindexLevel::Browse,
    };
    index.extract_level = level.min(index.extract_level);
    let weights = [VindexPart::Ffn, VindexPart::ExpertLayers, VindexPart::Attention];
    index.has_model_weights &= weights.into_iter().any(has);
    if selection.is_cut {
        let mut offset = 0;
        let kept = index.layers.iter().filter(|layer| selection.has_layer(layer.layer));
        index.layers = kept.map(|layer| entry(&index, layer, selection, &mut offset)).collect();
    }
    if let Some(slice) = selection.extra() {
        index.skulk.get_or_insert_default().slice = Some(slice);
    }
    index
}

/// A layer's entry in the slice's index. `offset` is where its gate vectors begin, and moves behind them.
fn entry(index: &VindexIndex, layer: &VindexLayer, selection: &Selection, offset: &mut u64) -> VindexLayer {
    let mut entry = VindexLayer { offset: *offset, ..layer.clone() };
    if let (Some(n), Some(each), true) =
        (layer.num_experts, layer.num_features_per_expert, selection.cuts_gates)
    {
        let kept = cut::gate_blocks(index, layer, n, selection).len();
        entry.num_experts = Some(kept);
        entry.num_features = kept * each;
        entry.length = layer.length / n as u64 * kept as u64;
    }
    *offset = offset.saturating_add(entry.length);
    entry
}
