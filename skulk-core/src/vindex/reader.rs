//! How does a vindex serve as a checkpoint? Opened from its JSON files, each tensor mapped when asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::files::{HEADS, WEIGHT_MANIFEST};
use super::folder::Folder;
use super::parts::{
    LISTED_IN_MANIFEST, found_in, is_known, lacking, least_level, listed_in, part_of, usual_file, usual_files,
};
use super::place::Place;
use super::ranges::Ranges;
use super::tensors::Tensors;
use super::{INDEX, VindexIndex, VindexPart, VindexQuant, config, no_index};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::safetensors::{HfMetadata, read_object};
use crate::weights::{Checkpoint, MappedFile, Region, TensorInfo, checkpoint_fields, map_region};

/// What a vindex says about its model.
#[derive(Debug, Clone)]
pub struct VindexMetadata {
    index: VindexIndex,
    configuration: HfMetadata,
}

impl VindexMetadata {
    /// `index.json`.
    pub fn index(&self) -> &VindexIndex {
        &self.index
    }

    /// The same as a Hugging Face folder would say it: `config.json` as the index holds it, or made of what LARQL
    /// keeps; the guide to the format says what is lost. `generation_config.json` and `tokenizer_config.json` are the
    /// folder's own.
    pub fn configuration(&self) -> &HfMetadata {
        &self.configuration
    }
}

/// An opened vindex folder, whole or a slice. Every tensor that its files hold can be mapped; asking for one that a
/// slice lacks is an error that says where it would be.
///
/// Tensors have the names of Hugging Face checkpoints without `model.` before them. Where a matrix is stored twice,
/// the one that LARQL computes with has that name: gate vectors beside quantised gates are `layers.N.gate_vectors`,
/// routers beside those in a manifest `layers.N.router_weights`, transposed down projections
/// `layers.N.mlp.down_features.weight`, and of a key that a manifest has twice the first is `KEY@OFFSET`.
///
/// ```no_run
/// use skulk::{Checkpoint, VindexReader};
/// let vindex = VindexReader::open("gemma-3-270m.vindex")?;
/// println!("{} layers, {:?}", vindex.index().num_layers, vindex.index().extract_level);
/// let down = vindex.region("layers.0.mlp.down_proj.weight")?;
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug)]
pub struct VindexReader {
    path: PathBuf,
    metadata: VindexMetadata,
    files: Vec<MappedFile>,
    tensors: Vec<TensorInfo>,
    /// Files that are missing, by the tensors that they would hold.
    absent: BTreeMap<String, String>,
    /// What of `gate_vectors.bin` belongs to each layer.
    gates: BTreeMap<usize, TensorInfo>,
}

impl VindexReader {
    /// Opens the folder at `path`. Reads its JSON files and the headers of files in `layers/`; of the others only
    /// sizes are looked at.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`] without an `index.json`; [`ErrorKind::ConfigInvalid`] when it breaks the format;
    /// [`ErrorKind::CheckpointInvalid`] for versions other than 1 and 2, for manifests, headers and file sizes that
    /// break the format or disagree, and for names that lead out of the folder;
    /// [`ErrorKind::CheckpointTruncated`] when a file ends before what it is to hold;
    /// [`ErrorKind::DTypeUnsupported`] for unknown quantisations; [`ErrorKind::FileIo`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let folder = Folder::new(path);
        let Some((text, file)) = folder.text(INDEX)? else {
            return Err(no_index(path));
        };
        let index = VindexIndex::parse(&text, &file)?;
        let mut tensors = Tensors::collect(&index, folder)?;
        let absent = std::mem::take(&mut tensors.absent);
        let gates = std::mem::take(&mut tensors.gates);
        let list = tensors.sorted();
        let files = std::mem::take(&mut tensors.folder.files);
        let named = index.checksums.iter().flatten().map(|(name, _)| name.as_str());
        let is_head = |name: &str| name.starts_with("lm_head");
        let has_head =
            list.iter().map(|t| t.name.as_str()).chain(absent.keys().map(String::as_str)).any(is_head)
                || named.into_iter().any(is_head)
                || index.slice().is_some_and(|slice| slice.lacks.iter().any(|part| is_head(part)))
                || HEADS.iter().any(|name| path.join(name).exists());
        let configuration = HfMetadata {
            folder: path.to_owned(),
            config: config::configuration(&index, !has_head, &list),
            generation_config: read_object(&path.join("generation_config.json"))?,
            tokenizer_config: read_object(&path.join("tokenizer_config.json"))?,
        };
        if !configuration.config.is_object() {
            return Err(Error::new(
                ErrorKind::ConfigInvalid,
                "expected a JSON object, found another JSON value",
            )
            .with("file", file.display())
            .with("field", "skulk.config")
            .with_hint("extract the model again"));
        }
        let metadata = VindexMetadata { index, configuration };
        Ok(Self { path: path.to_owned(), metadata, files, tensors: list, absent, gates })
    }

    /// `index.json`.
    pub fn index(&self) -> &VindexIndex {
        &self.metadata.index
    }

    /// Tensors that the folder's manifests list in files that it lacks, as slices do, with the names of these files.
    pub fn absent(&self) -> impl Iterator<Item = (&str, &str)> {
        self.absent.iter().map(|(tensor, file)| (tensor.as_str(), file.as_str()))
    }

    /// Parts that the whole vindex has and this folder lacks. A slice that this library made says so itself; of other
    /// folders, it is what a vindex of their kind has, what their manifests list, and what their index has checksums
    /// of.
    pub fn lacks(&self) -> Vec<VindexPart> {
        let is_there = |name: &str| self.path.join(name).exists();
        lacking(self.index(), is_there, self.absent.values().map(String::as_str)).into_iter().collect()
    }

    /// A layer's gate vectors as one matrix `[num_features, hidden_size]`: all experts' rows behind each other, where
    /// the layer has experts. Of a folder without `gate_vectors.bin`, a dense layer's quantised gate projection.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a layer that the model does not have, [`ErrorKind::TensorMissing`] where the
    /// folder has no gate vectors of it, [`ErrorKind::TensorShape`] when there are others than the index says,
    /// [`ErrorKind::FileIo`] and [`ErrorKind::CheckpointTruncated`] when the file cannot be mapped.
    pub fn gates(&self, layer: usize) -> Result<Region> {
        let index = self.index();
        let entry = index.layers.iter().find(|e| e.layer == layer && e.num_features > 0);
        match (self.gates.get(&layer), entry) {
            (Some(info), _) => {
                let file = self.files.get(info.file).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, "gate vectors are in a file that is not open")
                })?;
                Region::map(file, info)
            }
            (None, Some(entry)) if entry.num_experts.is_some() => {
                Err(self.missing(&format!("layers.{layer}.gate_vectors")))
            }
            (None, Some(entry)) => {
                let region = self.region(&format!("layers.{layer}.mlp.gate_proj.weight"))?;
                region.expect_shape(&[entry.num_features, index.hidden_size])?;
                Ok(region)
            }
            (None, None) => Err(self.no_layer(layer)),
        }
    }

    /// Why a layer has no gate vectors.
    pub(crate) fn no_layer(&self, layer: usize) -> Error {
        let index = self.index();
        let there: Vec<_> =
            index.layers.iter().filter(|e| e.num_features > 0).map(|e| e.layer..e.layer + 1).collect();
        let there = Ranges::new(&there).map_or_else(|| "none".to_owned(), |layers| layers.to_string());
        let (kind, hint) = match layer < index.num_layers {
            true => (ErrorKind::TensorMissing, "open the whole folder, or the slice that holds this layer"),
            false => (ErrorKind::InvalidArgument, "layers are counted from 0"),
        };
        Error::new(kind, format!("expected a layer with gate vectors ({there}), found {layer}"))
            .with("file", self.path.display())
            .with("layer", layer)
            .with_hint(hint)
    }

    /// Why there is no such tensor.
    fn missing(&self, name: &str) -> Error {
        let index = self.index();
        let file = self.path.display();
        let is_ffn = ["gate_proj", "up_proj", "down_proj"].iter().any(|word| name.contains(word));
        if is_ffn && index.fp4.is_some() {
            return Error::new(
                ErrorKind::DTypeUnsupported,
                "expected feed-forward weights as floats or Q4_K, found FP4 or FP8",
            )
            .with("file", file)
            .with("tensor", name)
            .with_hint("use the folder that this one was converted from");
        }
        if !is_known(name) {
            return Error::new(
                ErrorKind::TensorMissing,
                "expected the name of a tensor, found one that no vindex has",
            )
            .with("file", file)
            .with("tensor", name)
            .with_hint("names have no `model.` before them: list the tensors");
        }
        let part = part_of(name, index);
        let is_there = |file: &&str| self.path.join(file).exists();
        let is_unlisted = LISTED_IN_MANIFEST.contains(&part) && !is_there(&WEIGHT_MANIFEST);
        let is_unknown = !self.absent.contains_key(name) && usual_files(part).iter().any(is_there);
        let in_file = self.absent.get(name).map_or(usual_file(name, part, index), String::as_str);
        let (message, hint) = match why_not(index, name, part, in_file) {
            Some(reason) => reason,
            None if is_unlisted && is_unknown => {
                let message =
                    format!("expected a tensor of {in_file}, but this folder lacks the {WEIGHT_MANIFEST}");
                (message, "the folder is incomplete: fetch it again".to_owned())
            }
            // LARQL does not say.
            None if part == VindexPart::Head && index.ties_embeddings() == Some(true) => {
                let message = "expected a tensor of this vindex, but it has no head of its own";
                (message.to_owned(), "the head is the embedding table, `embed_tokens.weight`".to_owned())
            }
            None if is_never_stored(index, name) => {
                let message = match index.quant() {
                    VindexQuant::Q4K => {
                        "expected a mixture's experts, which LARQL does not store at q4k, found none"
                    }
                    VindexQuant::None => {
                        "expected up and down projections of experts, which LARQL does not store as floats, found none"
                    }
                };
                (
                    message.to_owned(),
                    "extract the model with this library, or run its own checkpoint".to_owned(),
                )
            }
            None if is_unknown => {
                let manifest = listed_in(name, part, index);
                let message = format!("expected the tensor in {manifest}, found no entry of that name");
                let hint =
                    "the folder is damaged, unless the model has no such tensor: extract or fetch it again";
                (message, hint.to_owned())
            }
            None if least_level(part).is_some_and(|least| least <= index.extract_level) => {
                let message = format!("expected a tensor of {in_file}, but this folder lacks that file");
                (
                    message,
                    format!("the folder is incomplete, or a slice: it is part of {}", found_in(part, index)),
                )
            }
            None => {
                let level = index.extract_level.as_str();
                let message =
                    format!("expected a tensor of {in_file}, but this vindex of level {level} lacks it");
                (message, format!("it is part of {}", found_in(part, index)))
            }
        };
        Error::new(ErrorKind::TensorMissing, message)
            .with("file", file)
            .with("tensor", name)
            .with("part", part.as_str())
            .with_hint(hint)
    }
}

/// Whether it is an expert's tensor that LARQL leaves out, in a whole folder of its own.
fn is_never_stored(index: &VindexIndex, name: &str) -> bool {
    let Some(moe) = index.moe() else { return false };
    let is_lost = match index.quant() {
        VindexQuant::Q4K => !index.is_per_layer(),
        VindexQuant::None => moe.hybrid && !name.contains("gate_proj"),
    };
    is_lost && name.contains("experts.") && index.own_configuration().is_none() && index.slice().is_none()
}

/// Why a slice has no tensor of that name, and where there is one.
fn why_not(index: &VindexIndex, name: &str, part: VindexPart, file: &str) -> Option<(String, String)> {
    let (slice, place) = (index.slice()?, Place::of(name));
    let elsewhere = |what: &str, n: usize| format!("use the slice that has {what} {n}, or the whole folder");
    if let (Some(layer), Some(held)) = (place.layer, slice.layers())
        && !held.contains(layer)
    {
        let message = format!("expected a tensor of layer {layer}, but this slice holds layers {held}");
        return Some((message, elsewhere("layer", layer)));
    }
    if slice.lacks.iter().any(|lacking| lacking == part.as_str()) {
        let message = format!("expected a tensor of {file}, but this {} slice lacks that part", slice.preset);
        return Some((message, format!("it is part of {}", found_in(part, index))));
    }
    if let (Some(expert), Some(held)) = (place.expert, slice.experts())
        && !held.contains(expert)
    {
        let message = format!("expected a tensor of expert {expert}, but this slice holds experts {held}");
        return Some((message, elsewhere("expert", expert)));
    }
    None
}

impl Checkpoint for VindexReader {
    checkpoint_fields!(Vindex);

    fn region(&self, name: &str) -> Result<Region> {
        match self.tensor(name) {
            Some(_) => map_region(self, name),
            None => Err(self.missing(name)),
        }
    }
}
