//! What of this folder shall the slice hold? The options, checked against what the folder has.

use std::collections::BTreeSet;
use std::ops::Range;

use super::SliceOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::files::GATES;
use crate::vindex::folder::Listed;
use crate::vindex::manifest::LEGACY_WEIGHTS;
use crate::vindex::parts::{LISTED_IN_MANIFEST, found_in, listed, part_of, usual_file};
use crate::vindex::place::Place;
use crate::vindex::ranges::Ranges;
use crate::vindex::{SliceExtra, VindexPart, VindexQuant, VindexReader};
use crate::weights::Checkpoint;

/// What an index calls a slice of parts that were chosen one by one.
const CUSTOM: &str = "custom";

/// What a slice holds.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    preset: String,
    pub(super) parts: BTreeSet<VindexPart>,
    /// `None`: all of the model's.
    pub(super) layers: Option<Ranges>,
    /// Likewise.
    pub(super) experts: Option<Ranges>,
    /// Gate vectors of other experts are left out.
    pub(super) cuts_gates: bool,
    /// Weights are left out of files that are taken.
    pub(super) is_cut: bool,
    /// Parts that the whole vindex has and the slice lacks.
    pub(super) lacks: Vec<VindexPart>,
    /// What the folder itself is a slice of.
    source: Option<SliceExtra>,
    /// Everything that the folder has is in the slice.
    is_all: bool,
}

impl Selection {
    pub(super) fn new(reader: &VindexReader, files: &[Listed], options: &SliceOptions) -> Result<Self> {
        let index = reader.index();
        let source = index.slice().cloned();
        let are_floats = index.quant() == VindexQuant::None;
        let held = held(reader, files);
        let (preset, mut parts): (_, BTreeSet<VindexPart>) = match &options.parts {
            Some(parts) => (CUSTOM, parts.clone()),
            None => (options.preset.as_str(), options.preset.parts(are_floats).collect()),
        };
        parts.insert(VindexPart::Index);
        if LISTED_IN_MANIFEST.iter().any(|part| parts.contains(part)) {
            parts.insert(VindexPart::Manifest);
        }
        let needs = |part: VindexPart| match &options.parts {
            Some(parts) => parts.contains(&part),
            None => options.preset.needs(part, are_floats),
        };
        let lacks = reader.lacks();
        if let Some(part) = lacks.iter().copied().find(|part| needs(*part)) {
            return Err(lacking(reader, part, preset));
        }

        let held_layers = source.as_ref().and_then(SliceExtra::layers);
        let held_experts = source.as_ref().and_then(SliceExtra::experts);
        let layers =
            narrowed("layers", options.layers.as_deref(), held_layers.as_ref(), index.num_layers, reader)?;
        let experts = match (&options.experts, index.moe()) {
            (None, _) => held_experts.clone(),
            (Some(asked), Some(moe)) => {
                narrowed("experts", Some(asked), held_experts.as_ref(), moe.num_experts, reader)?
            }
            (Some(_), None) => {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "expected experts of a mixture of experts only, found a model without",
                )
                .with("file", reader.path().display())
                .with("field", "experts")
                .with_hint("choose layers instead"));
            }
        };
        let serves = options.parts.is_none() && options.preset.serves_experts();
        let were_cut = index.layers.iter().any(|layer| index.gate_experts(layer).is_some());
        let are_projections = !index.layers.iter().any(|layer| index.is_summary(layer));
        let cuts_gates = experts.is_some() && (were_cut || serves && are_floats && are_projections);
        if cuts_gates {
            // They number features as they were.
            parts.remove(&VindexPart::Labels);
        }
        let left: BTreeSet<VindexPart> = held.difference(&parts).copied().collect();
        let is_cut = layers != held_layers || experts != held_experts;
        Ok(Self {
            preset: preset.to_owned(),
            is_all: left.is_empty() && !is_cut,
            lacks: VindexPart::ALL
                .iter()
                .copied()
                .filter(|p| left.contains(p) || lacks.contains(p))
                .collect(),
            parts,
            layers,
            experts,
            cuts_gates,
            is_cut,
            source,
        })
    }

    /// Whether it has weights of a layer.
    pub(super) fn has_layer(&self, layer: usize) -> bool {
        self.layers.as_ref().is_none_or(|layers| layers.contains(layer))
    }

    /// Whether it has weights of an expert.
    pub(super) fn has_expert(&self, expert: usize) -> bool {
        self.experts.as_ref().is_none_or(|experts| experts.contains(expert))
    }

    /// Whether it has a tensor of a file that it takes.
    pub(super) fn has(&self, name: &str, file: &str, part: impl FnOnce() -> VindexPart) -> bool {
        let place = Place::of(name);
        let counts_experts = file != GATES || self.cuts_gates;
        place.layer.is_none_or(|layer| self.has_layer(layer))
            && place.expert.is_none_or(|expert| !counts_experts || self.has_expert(expert))
            // Version 1 has all weights in one file.
            && (file != LEGACY_WEIGHTS || self.parts.contains(&part()))
    }

    /// What its index says of it.
    pub(super) fn extra(&self) -> Option<SliceExtra> {
        if self.is_all {
            return self.source.clone();
        }
        let names = self.lacks.iter().map(|part| part.as_str().to_owned());
        Some(SliceExtra {
            preset: self.preset.clone(),
            layers: self.layers.as_ref().map(Ranges::to_pairs),
            experts: self.experts.as_ref().map(Ranges::to_pairs),
            lacks: names.collect(),
        })
    }
}

/// Parts of which the folder has files.
fn held(reader: &VindexReader, files: &[Listed]) -> BTreeSet<VindexPart> {
    let legacy = files.iter().any(|file| file.name == LEGACY_WEIGHTS);
    let in_legacy =
        reader.tensors().iter().filter(|_| legacy).map(|tensor| part_of(&tensor.name, reader.index()));
    let named = files.iter().filter(|file| file.name != LEGACY_WEIGHTS);
    named.filter_map(|file| file.part).chain(in_legacy).collect()
}

/// The ranges that are asked for, of those that the folder holds; `None`: all of the model's.
fn narrowed(
    what: &'static str,
    asked: Option<&[Range<usize>]>,
    held: Option<&Ranges>,
    n: usize,
    reader: &VindexReader,
) -> Result<Option<Ranges>> {
    let Some(asked) = asked else { return Ok(held.cloned()) };
    let Some(ranges) = Ranges::new(asked).filter(|ranges| ranges.end() <= n) else {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("expected {what} as ranges of 0..{n}, found {asked:?}"),
        )
        .with("file", reader.path().display())
        .with("field", what)
        .with_hint("ranges end before their last number, and none may be empty"));
    };
    if let Some(held) = held
        && let Some(missing) = ranges.first_not_in(held)
    {
        return Err(Error::new(
            ErrorKind::TensorMissing,
            format!("expected {what} {ranges}, but this slice holds {what} {held}"),
        )
        .with("file", reader.path().display())
        .with("field", what)
        .with("missing", missing)
        .with_hint("slice the folder that this one was made of"));
    }
    Ok((ranges.count() < n).then_some(ranges))
}

fn lacking(reader: &VindexReader, part: VindexPart, preset: &str) -> Error {
    let index = reader.index();
    let lacks = reader.lacks();
    Error::new(
        ErrorKind::TensorMissing,
        format!(
            "expected the part {} ({}) for the slice {preset}, but this folder lacks it",
            part.as_str(),
            usual_file("", part, index)
        ),
    )
    .with("file", reader.path().display())
    .with("part", part.as_str())
    .with("lacks", listed(lacks.iter().map(|part| part.as_str())))
    .with_hint(format!("it is part of {}", found_in(part, index)))
}
