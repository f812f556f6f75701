//! What card describes this GGUF file? From its header, and where it lies in a folder, from the files beside it.

use std::path::Path;

use super::config::ConfigFacts;
use super::header::GgufFacts;
use super::quants::{GgufChoice, GgufFile, select_gguf};
use super::{TemplateFacts, backends, folder, labels, name, sections};
use crate::card::{ModelCard, VisionCardConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::gguf::{GgufMetadata, GgufValue};
use crate::weights::safetensors::read_object;
use crate::weights::{Checkpoint, Metadata, io_error, open_checkpoint};

/// Folders in folders that are looked through: repositories with one folder for each quantisation.
const DEPTH: usize = 1;

/// The card of a folder of GGUF files: of the one that the reference would choose.
pub(super) fn from_folder(folder: &Path) -> Result<ModelCard> {
    let all = files(folder, "", DEPTH)?;
    let models: Vec<GgufFile> = all.iter().filter(|file| file.holds_a_model()).cloned().collect();
    let Some(choice) = select_gguf(&models) else {
        return Err(Error::new(
            ErrorKind::FileNotFound,
            "expected a folder with model.safetensors, model.safetensors.index.json, a vindex's index.json or GGUF files, found none of them",
        )
        .with("file", folder.display())
        .with_hint("give the folder that holds the model's weights"));
    };
    let path = folder.join(&choice.file.name);
    let model_id = name::model_id(folder);
    // A configuration that no card could be made from counts for nothing: the header tells as much.
    let config = match read_object(&folder.join("config.json")) {
        Err(e) if e.kind() != ErrorKind::ConfigInvalid => return Err(e),
        config => config.ok().flatten().and_then(|config| ConfigFacts::from_config(&config, &model_id).ok()),
    };
    let projector = all.iter().any(GgufFile::holds_a_projector);
    let source = Source {
        model_id,
        file: choice.file,
        storage: choice.size.bytes(),
        config: config.filter(|config| config.n_layers > 0 && config.hidden_size.is_some_and(|n| n > 0)),
        projector,
        template: folder::template(folder)?,
    };
    match open_checkpoint(&path) {
        Ok(checkpoint) => match checkpoint.metadata() {
            Metadata::Gguf(metadata) => source.card(&path, Some(&*checkpoint), metadata),
            Metadata::HuggingFace(_) | Metadata::Vindex(_) => Err(Error::new(
                ErrorKind::CheckpointInvalid,
                "expected a GGUF file, found a safetensors file",
            )
            .with("file", path.display())
            .with_hint("give the file the name that it was published under")),
        },
        Err(e) if e.kind() == ErrorKind::DTypeUnsupported => {
            source.card(&path, None, &GgufMetadata::open(&path)?)
        }
        Err(e) => Err(e),
    }
}

/// The card of one file, or of the split set that it is of. Only its own header counts.
pub(super) fn from_file(
    path: &Path,
    checkpoint: Option<&dyn Checkpoint>,
    metadata: &GgufMetadata,
) -> Result<ModelCard> {
    let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let size = std::fs::metadata(path).map_err(|e| io_error(e, path, "inspect"))?.len();
    let file = GgufFile::new(file_name, size);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let set = match file.shard_base() {
        Some(base) => {
            let mut beside = files(folder, "", 0)?;
            beside.retain(|other| other.shard_base() == Some(base));
            beside
        }
        None => Vec::new(),
    };
    // Of a set, the first.
    let choice = select_gguf(&set).unwrap_or(GgufChoice { file: &file, size: file.size });
    let id = name::model_id(path);
    let source = Source {
        // The number of a file in its set is no part of the model's name.
        model_id: GgufFile::new(id.as_str(), 0).shard_base().unwrap_or(&id).to_owned(),
        file: choice.file,
        storage: choice.size.bytes(),
        config: None,
        projector: false,
        template: None,
    };
    source.card(path, checkpoint, metadata)
}

/// Likewise, of a file whose tensors this library cannot read.
pub(super) fn from_unreadable_file(path: &Path) -> Result<ModelCard> {
    from_file(path, None, &GgufMetadata::open(path)?)
}

/// What is known beside the header.
struct Source<'a> {
    model_id: String,
    file: &'a GgufFile,
    storage: u64,
    config: Option<ConfigFacts>,
    /// There is a projector for images.
    projector: bool,
    /// What the chat template in its folder tells, should the file have none.
    template: Option<TemplateFacts>,
}

impl Source<'_> {
    fn card(
        self,
        path: &Path,
        checkpoint: Option<&dyn Checkpoint>,
        metadata: &GgufMetadata,
    ) -> Result<ModelCard> {
        let header = GgufFacts::from_metadata(metadata)?;
        let text = |key: &str| match metadata.get(key) {
            Some(GgufValue::Str(text)) => Some(text),
            _ => None,
        };
        let templates = metadata.keys().filter(|key| key.starts_with("tokenizer.chat_template"));
        let templates: Vec<&str> = templates.filter_map(text).collect();
        let (n_layers, hidden_size, heads, context) = match &self.config {
            Some(config) => (
                config.n_layers,
                config.hidden_size.unwrap_or(0),
                config.num_key_value_heads,
                config.max_position_embeddings.unwrap_or(0),
            ),
            None => (
                i64::try_from(header.n_layers).unwrap_or(i64::MAX),
                header.hidden_size as u64,
                header.num_key_value_heads.map(|heads| heads as u64),
                header.context_length,
            ),
        };
        let projector = || {
            let vision =
                VisionCardConfig { weights_repo: self.model_id.clone(), ..VisionCardConfig::default() };
            self.projector.then_some(vision)
        };
        let named = self.file.quant_label();
        let in_config = self.config.as_ref().map(|config| config.model_type.clone());
        let model_type = in_config.filter(|name| !name.is_empty()).unwrap_or(header.architecture);
        let base_model = text("general.base_model.0.name").or(text("general.name")).unwrap_or_default();
        let sized = super::sized(self.model_id.clone(), self.storage, n_layers, hidden_size, heads)
            .map_err(|e| e.with("file", path.display()))?;
        let mut card = ModelCard {
            context_length: context,
            quantization: if named.is_empty() { labels::gguf(metadata) } else { named },
            base_model: base_model.trim().to_owned(),
            gguf_file: Some(self.file.name.clone()),
            trust_remote_code: false,
            placement: backends::placement(checkpoint, backends::LLAMA_CPP),
            vision: self.config.and_then(|config| config.vision).or_else(projector),
            ..sized
        };
        let template = match templates.as_slice() {
            [] => self.template,
            templates => Some(TemplateFacts::read(&templates.join("\n"))),
        };
        sections::fill(&mut card, &model_type, template);
        Ok(card)
    }
}

/// All files of a folder and of the folders in it, by name.
fn files(folder: &Path, prefix: &str, depth: usize) -> Result<Vec<GgufFile>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|e| io_error(e, folder, "list"))?;
    for entry in entries {
        let entry = entry.map_err(|e| io_error(e, folder, "list"))?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // Through links; one that leads nowhere is no file.
        let Ok(meta) = std::fs::metadata(entry.path()) else {
            continue;
        };
        if meta.is_dir() && depth > 0 {
            found.extend(files(&entry.path(), &format!("{name}/"), depth - 1)?);
        } else if meta.is_file() {
            found.push(GgufFile::new(name, meta.len()));
        }
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
