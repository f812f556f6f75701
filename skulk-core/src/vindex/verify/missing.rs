//! Which files should be there and are not, and which are there that nobody vouches for?

use std::collections::{BTreeMap, BTreeSet};

use super::{VerifyKind, VerifyProblem};
use crate::vindex::folder::Listed;
use crate::vindex::hashes::Hashes;
use crate::vindex::parts::{least_level, usual_file, usual_files, usual_parts};
use crate::vindex::{VindexIndex, VindexPart, VindexQuant, VindexReader};

/// Files that are missing, one problem each. `names` are those that are there.
pub(super) fn missing(
    index: &VindexIndex,
    reader: Option<&VindexReader>,
    hashes: Option<&Hashes>,
    names: &BTreeSet<&str>,
) -> Vec<VerifyProblem> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (name, file) in hashes.into_iter().flat_map(|hashes| &hashes.files) {
        if !names.contains(name.as_str()) {
            found.insert(
                name.clone(),
                format!("expected {} bytes that have a hash, found no file", file.bytes),
            );
        }
    }
    let is_missing = |name: &str, found: &BTreeMap<String, String>| {
        !names.contains(name)
            && !found.contains_key(name)
            && VindexPart::of(name).is_none_or(|part| is_expected(part, index))
    };
    for name in index.checksums.iter().flat_map(BTreeMap::keys) {
        if is_missing(name, &found) {
            let message = "expected a file that the index has a checksum of, found none; of a slice that LARQL made, \
                           this is no damage";
            found.insert(name.clone(), message.to_owned());
        }
    }
    for (tensor, file) in reader.into_iter().flat_map(VindexReader::absent) {
        if is_missing(file, &found) {
            found.insert(file.to_owned(), format!("expected a file with `{tensor}` and others, found none"));
        }
    }
    // It has checksums of weights, but never had any of these.
    let is_compact = index.checksums.as_ref().is_some_and(|sums| {
        let has = |part: VindexPart| sums.keys().any(|name| VindexPart::of(name) == Some(part));
        has(VindexPart::Attention) && !has(VindexPart::Ffn)
    });
    let found_parts: BTreeSet<VindexPart> = found.keys().filter_map(|name| VindexPart::of(name)).collect();
    for part in usual_parts(index) {
        let is_there = |file: &&str| {
            names.contains(file) || *file == "layers/" && names.iter().any(|n| n.starts_with("layers/"))
        };
        let by_quant = match index.quant() {
            // LARQL can do without, since the gates are stored quantised too.
            VindexQuant::Q4K => part != VindexPart::Gate,
            // LARQL stores none beside floats, and on request no up and down projections.
            VindexQuant::None => {
                part != VindexPart::PerLayerEmbeddings && !(part == VindexPart::Ffn && is_compact)
            }
        };
        if by_quant
            && is_expected(part, index)
            && !found_parts.contains(&part)
            && !usual_files(part).iter().any(is_there)
        {
            let name = usual_file("", part, index);
            found
                .insert(name.to_owned(), format!("expected the part {}, found no file of it", part.as_str()));
        }
    }
    found.into_iter().map(|(name, message)| VerifyProblem::new(&name, VerifyKind::Missing, message)).collect()
}

/// Whether the folder should have a part: unless it is a slice without, or of a level without.
fn is_expected(part: VindexPart, index: &VindexIndex) -> bool {
    match index.slice() {
        Some(slice) => !slice.lacks.iter().any(|name| name == part.as_str()),
        None => least_level(part).is_none_or(|least| least <= index.extract_level),
    }
}

/// Files of weights without a hash, where others have one.
pub(super) fn unlisted(files: &[Listed], hashes: &Hashes) -> Vec<VerifyProblem> {
    let is_weights = |file: &&Listed| {
        let is_binary = file.name.ends_with(".bin") || file.name.ends_with(".weights");
        // Facts are inserted later.
        is_binary && !matches!(file.part, None | Some(VindexPart::Knn))
    };
    let unknown = files.iter().filter(is_weights).filter(|file| !hashes.files.contains_key(&file.name));
    unknown
        .map(|file| {
            VerifyProblem::new(
                &file.name,
                VerifyKind::Unlisted,
                "expected a file that has a hash, found none of it",
            )
        })
        .collect()
}
