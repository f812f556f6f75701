//! Which tokenizer files go with the model? Those of its folder, or ones made of a GGUF file's vocabulary.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Source;
use crate::error::Result;
use crate::tokenizer::Tokenizer;
use crate::weights::Metadata;

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
    /// `tokenizer` is the checkpoint's, where it is there already.
    ///
    /// # Errors
    /// [`ErrorKind::TokenizerInvalid`] when a GGUF file's vocabulary is missing, broken or of another kind.
    pub(crate) fn tokenizer_files(&self, tokenizer: Option<Tokenizer>) -> Result<Vec<TokenizerFile>> {
        match self.checkpoint.metadata() {
            Metadata::HuggingFace(metadata) => Ok(in_folder(&metadata.folder)),
            Metadata::Vindex(metadata) => Ok(in_folder(&metadata.configuration().folder)),
            Metadata::Gguf(metadata) => {
                let tokenizer = tokenizer.map_or_else(|| Tokenizer::from_checkpoint(self.checkpoint), Ok)?;
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

fn in_folder(folder: &Path) -> Vec<TokenizerFile> {
    let there = NAMES.map(|name| (name, folder.join(name))).into_iter().filter(|(_, path)| path.exists());
    there.map(|(name, path)| TokenizerFile { name, content: FileContent::Copy(path) }).collect()
}
