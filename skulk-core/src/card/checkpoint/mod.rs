//! What card would describe this checkpoint? For weights that nobody wrote one for.

mod backends;
mod config;
mod folder;
mod gguf;
mod header;
mod labels;
mod name;
mod quants;
mod sections;
mod template;
mod vindex;

use std::path::Path;

pub use config::ConfigFacts;
pub use header::GgufFacts;
pub use quants::{GgufChoice, GgufFile, select_gguf};

use self::template::TemplateFacts;
use super::profile::{Profile, ProfileHints};
use super::schema::ModelCard;
use crate::arch::ArchSpec;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::safetensors::{INDEX, SINGLE};
use crate::weights::{Checkpoint, Metadata, io_error, open_checkpoint};

impl ModelCard {
    /// The card of a local checkpoint: a Hugging Face folder with safetensors, quantised by MLX or not; a GGUF file
    /// or a folder of such files; or a vindex folder. Reads headers and configurations only.
    ///
    /// Everything that these tell is filled in; the guide to profiles says from where. The card is
    /// [custom](ModelCard::is_custom).
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// let card = skulk::ModelCard::from_checkpoint(path)?;
    /// assert_eq!((card.family.as_str(), card.n_layers, card.quantization.as_str()), ("llama", 5, "fp32"));
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`] when there is nothing at the path, no model in the folder, or a part of one
    /// missing; [`ErrorKind::ConfigInvalid`] when configuration or metadata do not tell layers and width;
    /// [`ErrorKind::CheckpointInvalid`] and [`ErrorKind::CheckpointTruncated`] for damaged files;
    /// [`ErrorKind::FileIo`].
    pub fn from_checkpoint(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let meta = std::fs::metadata(path).map_err(|e| io_error(e, path, "find"))?;
        if !meta.is_dir() {
            return from_file(path);
        }
        if [SINGLE, INDEX].iter().any(|name| path.join(name).exists()) {
            return folder::card(path, &*open_checkpoint(path)?);
        }
        if path.join(vindex::INDEX).exists() {
            return vindex::card(path);
        }
        gguf::from_folder(path)
    }
}

impl Profile {
    /// The profile of an opened checkpoint with these chat templates: as that of its [card](ModelCard::from_checkpoint),
    /// as far as text is concerned, or of the card that is given.
    pub(crate) fn of_checkpoint(
        checkpoint: &dyn Checkpoint,
        templates: Option<&str>,
        card: Option<&ModelCard>,
    ) -> Self {
        let facts = templates.map(TemplateFacts::read);
        if let Some(card) = card {
            let facts = facts.unwrap_or_default();
            let hints =
                ProfileHints::default().tokenizer_tools(facts.tools).tokenizer_thinking(facts.delimited);
            return Self::resolve(&card.model_id, Some(card), &hints);
        }
        let id = name::model_id(checkpoint.path());
        let of_config = |config| ConfigFacts::from_config(config, &id).map(|facts| facts.model_type);
        let model_type = match checkpoint.metadata() {
            Metadata::Gguf(metadata) => {
                metadata.opt_str("general.architecture").ok().flatten().map(str::to_owned)
            }
            Metadata::HuggingFace(metadata) => of_config(&metadata.config).ok(),
            Metadata::Vindex(metadata) => of_config(&metadata.configuration().config).ok(),
        };
        let mut card = ModelCard::new(id, 0, 1, 1);
        sections::fill(&mut card, &model_type.unwrap_or_default(), facts);
        card.profile()
    }
}

fn from_file(path: &Path) -> Result<ModelCard> {
    match open_checkpoint(path) {
        Ok(checkpoint) => match checkpoint.metadata() {
            Metadata::Gguf(metadata) => gguf::from_file(path, Some(&*checkpoint), metadata),
            Metadata::HuggingFace(_) | Metadata::Vindex(_) => folder::card(path, &*checkpoint),
        },
        // This library cannot run it; other software may.
        Err(e) if e.kind() == ErrorKind::DTypeUnsupported => gguf::from_unreadable_file(path),
        Err(e) => Err(e),
    }
}

/// Tokens that loading gives a model that does not say for how many it was trained; 0: it cannot be loaded.
fn trained(checkpoint: &dyn Checkpoint) -> i64 {
    ArchSpec::from_checkpoint(checkpoint)
        .map_or(0, |arch| i64::try_from(arch.context_length).unwrap_or(i64::MAX))
}

/// The card of a model of these sizes, of which nothing else is known yet.
fn sized(
    model_id: String,
    bytes: u64,
    n_layers: i64,
    hidden_size: u64,
    num_key_value_heads: Option<u64>,
) -> Result<ModelCard> {
    let at_least_1 = |field: &'static str, value: i128| match usize::try_from(value) {
        Ok(size @ 1..) => Ok(size),
        _ => Err(Error::new(ErrorKind::ConfigInvalid, format!("expected at least 1, found {value}"))
            .with("field", field)
            .with_hint("the model's configuration is broken: fetch it again")),
    };
    let n_layers = at_least_1("n_layers", n_layers.into())?;
    let hidden_size = at_least_1("hidden_size", hidden_size.into())?;
    let heads = num_key_value_heads.map(|heads| at_least_1("num_key_value_heads", heads.into()));
    Ok(ModelCard {
        num_key_value_heads: heads.transpose()?,
        is_custom: true,
        ..ModelCard::new(model_id, bytes, n_layers, hidden_size)
    })
}
