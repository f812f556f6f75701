//! What remains of a file of which only some layers or experts are taken, and where does it lie?

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;

use super::plan::{Content, Piece};
use super::select::Selection;
use crate::error::Result;
use crate::vindex::down_meta::DownMetaLayout;
use crate::vindex::files::WEIGHT_MANIFEST;
use crate::vindex::folder::{Folder, Listed};
use crate::vindex::layer_file::{FIXED, LayerEntry, LayerHeader};
use crate::vindex::manifest::LEGACY_WEIGHTS;
use crate::vindex::parts::part_of;
use crate::vindex::{VindexIndex, VindexLayer, VindexReader, invalid};
use crate::weights::MappedFile;

/// Where tensors lie in files that were cut.
#[derive(Default)]
pub(super) struct Moved {
    /// New offsets by old ones, of each file.
    files: HashMap<String, HashMap<u64, u64>>,
}

impl Moved {
    /// Puts ranges of a file behind each other.
    pub(super) fn together(&mut self, file: &str, ranges: impl Iterator<Item = Range<u64>>) -> Vec<Piece> {
        let offsets = self.files.entry(file.to_owned()).or_default();
        let mut pieces: Vec<Range<u64>> = Vec::new();
        let mut offset = 0;
        for range in ranges {
            offsets.insert(range.start, offset);
            offset += range.end - range.start;
            match pieces.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => pieces.push(range),
            }
        }
        pieces.into_iter().map(Piece::Range).collect()
    }

    /// Whether a file was cut.
    pub(super) fn has(&self, file: &str) -> bool {
        self.files.contains_key(file)
    }

    /// Where the bytes at an offset of the source's file lie; `None`: nowhere.
    fn offset(&self, file: &str, offset: u64) -> Option<u64> {
        match self.files.get(file) {
            Some(offsets) => offsets.get(&offset).copied(),
            None => Some(offset),
        }
    }
}

/// The text of a manifest, without tensors that the slice lacks and with new offsets. What of an entry is not known
/// stays as it is.
///
/// Readers of LARQL's find the entries of quantised files by their position: those keep it, with no rows.
pub(super) fn manifest(
    reader: &VindexReader,
    folder: &Folder,
    name: &str,
    selection: &Selection,
    moved: &Moved,
) -> Result<Vec<u8>> {
    let Some((text, path)) = folder.text(name)? else {
        return Err(invalid("expected a manifest, but it is gone", &folder.join(name)));
    };
    let broken = || invalid("expected a list of tensors with key, offset and length", &path);
    let list: Vec<Value> = serde_json::from_slice(&text).map_err(|e| broken().with_source(e))?;
    let is_positional = name != WEIGHT_MANIFEST;
    let quantised = name.replace("_manifest.json", ".bin");
    let mut entries = Vec::with_capacity(list.len());
    for mut entry in list {
        let key = entry["key"].as_str().ok_or_else(broken)?.to_owned();
        let file = match (is_positional, entry["file"].as_str()) {
            (true, _) => quantised.as_str(),
            (false, None | Some("")) => LEGACY_WEIGHTS,
            (false, Some(file)) => file,
        };
        let offset = entry["offset"].as_u64().ok_or_else(broken)?;
        let is_empty = entry["length"] == 0;
        if !selection.has(&key, file, || part_of(&key, reader.index())) {
            if is_positional {
                let shape =
                    entry["shape"].as_array_mut().and_then(|shape| shape.first_mut()).ok_or_else(broken)?;
                *shape = 0.into();
                entry["offset"] = 0.into();
                entry["length"] = 0.into();
                entries.push(entry);
            }
            continue;
        }
        if !is_empty {
            entry["offset"] = moved.offset(file, offset).ok_or_else(broken)?.into();
        }
        entries.push(entry);
    }
    serde_json::to_vec_pretty(&entries).map_err(|e| broken().with_source(e))
}

/// A layer's file with only some experts. The table keeps an entry for each of the others, of length 0.
pub(super) fn layer_file(file: &MappedFile, selection: &Selection) -> Result<Content> {
    let header = LayerHeader::read(file)?;
    // A single entry is a dense block, or an expert that is never chosen among others.
    let takes = |(i, entry): (usize, &LayerEntry)| {
        !entry.is_absent() && (header.entries.len() == 1 || selection.has_expert(i))
    };
    let is_whole = header.entries.iter().enumerate().all(|entry| entry.1.is_absent() || takes(entry));
    if is_whole {
        return Ok(Content::Whole);
    }
    let mut table = file.read_start(FIXED as u64)?;
    let mut pieces = Vec::new();
    let mut offset = LayerHeader::bytes_of(header.entries.len());
    for (i, entry) in header.entries.iter().enumerate() {
        let ranges = [(entry.gate_up_offset, entry.gate_up_len), (entry.down_offset, entry.down_len)];
        for (from, len) in ranges {
            if takes((i, entry)) {
                table.extend(offset.to_le_bytes());
                table.extend(len.to_le_bytes());
                pieces.push(Piece::Range(from..from + len));
                offset += len;
            } else {
                table.extend([0; 16]);
            }
        }
    }
    pieces.insert(0, Piece::Bytes(table));
    Ok(Content::Pieces(pieces))
}

/// Which of the `n` blocks of a layer's gate vectors a slice has.
pub(super) fn gate_blocks(
    index: &VindexIndex,
    layer: &VindexLayer,
    n: usize,
    selection: &Selection,
) -> Vec<usize> {
    let held = index.gate_experts(layer);
    let expert = |i: usize| held.as_ref().map_or(Some(i), |held| held.nth(i));
    (0..n).filter(|i| expert(*i).is_some_and(|expert| selection.has_expert(expert))).collect()
}

/// `down_meta.bin` with only some layers and, where gate vectors are cut, experts. Layers that are left out have no
/// features.
pub(super) fn down_meta(reader: &VindexReader, file: &Listed, selection: &Selection) -> Result<Content> {
    let index = reader.index();
    let meta = DownMetaLayout::read(&file.path)?;
    let mut pieces = vec![Piece::Range(0..DownMetaLayout::HEADER)];
    let mut is_whole = true;
    for (number, layer) in meta.layers.iter().enumerate() {
        let all = meta.features(number);
        let entry = index.layers.iter().find(|entry| entry.layer == number);
        let experts =
            entry.and_then(|entry| Some((entry, entry.num_experts?, entry.num_features_per_expert?)));
        let kept: Vec<Range<u64>> = match experts {
            _ if !selection.has_layer(number) => Vec::new(),
            Some((entry, n, each)) if selection.cuts_gates && all == entry.num_features as u64 => {
                let each = each as u64;
                let blocks = gate_blocks(index, entry, n, selection);
                blocks.into_iter().map(|i| i as u64 * each..(i as u64 + 1) * each).collect()
            }
            _ => std::iter::once(0..all).collect(),
        };
        let features: u64 = kept.iter().map(|range| range.end - range.start).sum();
        is_whole &= features == all;
        let count = u32::try_from(features).unwrap_or(u32::MAX);
        pieces.push(Piece::Bytes(count.to_le_bytes().to_vec()));
        let at = |feature: u64| layer.start + feature * meta.record;
        pieces.extend(kept.into_iter().map(|range| Piece::Range(at(range.start)..at(range.end))));
    }
    Ok(if is_whole { Content::Whole } else { Content::Pieces(pieces) })
}
