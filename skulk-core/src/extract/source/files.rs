//! Which tokenizer files go with the model? Those of its folder, or ones made of a GGUF file's vocabulary.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::tokenizer::Tokenizer;
use crate::weights::Metadata;
use crate::weights::safetensors::leads_out;

/// What a folder may have; none of them is about weights.
const NAMES: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// One file, to lie in the folder.
pub(crate) struct TokenizerFile {
    pub(crate) name: &'static str,
    pub(crate) content: FileContent,
}

/// What is in it.
pub(crate) enum FileContent {
    /// The same as in this file.
    Copy(PathBuf),
    /// This text.
    Text(String),
}

impl Source<'_> {
    /// The files from which [`Tokenizer::from_checkpoint`] makes the checkpoint's tokenizer again, with its chat
    /// template and the tokens that end a generation. The tokens named in [`config`](Self::config) count too.
    ///
    /// # Errors
    /// [`ErrorKind::TokenizerInvalid`] when a GGUF file's vocabulary is missing, broken or of another kind;
    /// [`ErrorKind::CheckpointInvalid`] when a file of the folder is a link out of it; [`ErrorKind::FileIo`].
    pub(crate) fn tokenizer_files(&self) -> Result<Vec<TokenizerFile>> {
        match self.checkpoint.metadata() {
            Metadata::HuggingFace(metadata) => in_folder(&metadata.folder),
            Metadata::Vindex(metadata) => in_folder(&metadata.configuration().folder),
            Metadata::Gguf(metadata) => {
                let tokenizer = Tokenizer::from_checkpoint(self.checkpoint)?;
                let template = metadata.opt_str("tokenizer.chat_template")?;
                let text = |value: Value| format!("{value:#}\n");
                let contents = [
                    ("tokenizer.json", tokenizer.to_json()?),
                    ("tokenizer_config.json", text(tokenizer.configuration(template))),
                    ("generation_config.json", text(tokenizer.generation_configuration())),
                ];
                let file = |(name, content)| TokenizerFile { name, content: FileContent::Text(content) };
                Ok(contents.map(file).into())
            }
        }
    }
}

fn in_folder(folder: &Path) -> Result<Vec<TokenizerFile>> {
    let mut files = Vec::new();
    for name in NAMES {
        let path = folder.join(name);
        if !path.exists() {
            continue;
        }
        if let Some(target) = leads_out(folder, &path)? {
            return Err(Error::new(
                ErrorKind::CheckpointInvalid,
                format!("expected a file inside the model's folder, found a link to {}", target.display()),
            )
            .with("file", path.display())
            .with_hint("put the file itself into the folder"));
        }
        files.push(TokenizerFile { name, content: FileContent::Copy(path) });
    }
    Ok(files)
}
