//! Where do a checkpoint's chat templates stand?

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::DEFAULT;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::gguf::GgufMetadata;
use crate::weights::safetensors::{HfMetadata, read_object, read_text};
use crate::weights::{Checkpoint, Metadata};

/// What a checkpoint has.
#[derive(Debug, Clone, Default)]
pub(crate) struct TemplateSources {
    /// Names and sources.
    pub(crate) templates: Vec<(String, String)>,
    /// Variables and texts.
    pub(super) special_tokens: Vec<(String, String)>,
    pub(super) file: Option<PathBuf>,
}

impl TemplateSources {
    /// Those of a checkpoint.
    pub(crate) fn of(checkpoint: &dyn Checkpoint) -> Result<Self> {
        of_checkpoint(checkpoint)
    }

    /// With this template alone.
    pub(crate) fn replaced(self, source: &str) -> Self {
        Self { templates: vec![(DEFAULT.to_owned(), source.to_owned())], file: None, ..self }
    }

    /// All templates, one after the other.
    pub(crate) fn joined(&self) -> Option<String> {
        let sources: Vec<_> = self.templates.iter().map(|(_, source)| source.as_str()).collect();
        (!sources.is_empty()).then(|| sources.join("\n"))
    }
}

pub(super) fn of_checkpoint(checkpoint: &dyn Checkpoint) -> Result<TemplateSources> {
    match checkpoint.metadata() {
        Metadata::Gguf(metadata) => of_gguf(metadata),
        Metadata::HuggingFace(metadata) => of_folder(metadata),
        Metadata::Vindex(metadata) => of_folder(metadata.configuration()),
    }
}

fn of_gguf(metadata: &GgufMetadata) -> Result<TemplateSources> {
    const KEY: &str = "tokenizer.chat_template";
    let mut found = TemplateSources { file: Some(metadata.file().to_owned()), ..TemplateSources::default() };
    if let Some(source) = metadata.opt_str(KEY)? {
        found.templates.push((DEFAULT.to_owned(), source.to_owned()));
    }
    for key in metadata.keys() {
        let name = key.strip_prefix(KEY).and_then(|rest| rest.strip_prefix('.'));
        if let Some(name) = name
            && let Some(source) = metadata.opt_str(key)?
        {
            found.templates.push((name.to_owned(), source.to_owned()));
        }
    }
    let Some(tokens) = metadata.opt_array("tokenizer.ggml.tokens")? else { return Ok(found) };
    let mut wanted = Vec::new();
    for (name, key) in [
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("sep_token", "seperator_token_id"),
        ("pad_token", "padding_token_id"),
    ] {
        let id = metadata.opt_u64(&format!("tokenizer.ggml.{key}"))?;
        wanted.extend(id.and_then(|id| usize::try_from(id).ok()).map(|id| (id, name)));
    }
    for (id, text) in tokens.strings()?.enumerate() {
        let named = wanted.iter().filter(|(wanted, _)| *wanted == id);
        found.special_tokens.extend(named.map(|(_, name)| ((*name).to_owned(), text.to_owned())));
    }
    Ok(found)
}

fn of_folder(metadata: &HfMetadata) -> Result<TemplateSources> {
    let folder = &metadata.folder;
    let mut found = TemplateSources::default();
    // Files have the last word, as in transformers.
    let file = folder.join("chat_template.jinja");
    if let Some(source) = read(&file)? {
        found.templates.push((DEFAULT.to_owned(), source));
        found.file = Some(file);
    }
    let additional = folder.join("additional_chat_templates");
    if additional.is_dir() {
        found.templates.extend(in_folder(&additional)?);
        found.file.get_or_insert(additional);
    }
    let nothing = Value::Null;
    let config = metadata.tokenizer_config.as_ref().unwrap_or(&nothing);
    let file = folder.join("tokenizer_config.json");
    if found.templates.is_empty() {
        found.templates =
            in_config(config.get("chat_template")).map_err(|e| e.with("file", file.display()))?;
        found.file = Some(file);
    }
    let map = read_object(&folder.join("special_tokens_map.json"))?;
    for config in [Some(config), map.as_ref()].into_iter().flatten() {
        for (name, value) in
            config.as_object().into_iter().flatten().filter(|(name, _)| name.ends_with("_token"))
        {
            let text = value.as_str().or_else(|| value.get("content")?.as_str());
            let known = found.special_tokens.iter().any(|(other, _)| other == name);
            found.special_tokens.extend(text.filter(|_| !known).map(|text| (name.clone(), text.to_owned())));
        }
    }
    Ok(found)
}

fn read(file: &Path) -> Result<Option<String>> {
    read_text(file).map_err(|e| unreadable("expected a readable chat template", file).with_source(e))
}

/// The templates of a folder, in order of their names.
fn in_folder(folder: &Path) -> Result<Vec<(String, String)>> {
    let failed = |e| unreadable("expected a readable folder of chat templates", folder).with_source(e);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "jinja") {
            files.push(path);
        }
    }
    files.sort();
    let mut templates = Vec::new();
    for file in files {
        if let (Some(name), Some(source)) = (file.file_stem().and_then(|name| name.to_str()), read(&file)?) {
            templates.push((name.to_owned(), source));
        }
    }
    Ok(templates)
}

/// A template, or a list of templates with their names.
fn in_config(value: Option<&Value>) -> Result<Vec<(String, String)>> {
    let invalid = || {
        Error::new(
            ErrorKind::TemplateInvalid,
            "expected a template, or an array of objects with `name` and `template`",
        )
        .with("field", "chat_template")
        .with_hint("fetch the file again")
    };
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(source)) => Ok(vec![(DEFAULT.to_owned(), source.clone())]),
        Some(Value::Array(templates)) => templates
            .iter()
            .map(|template| {
                let field = |key: &str| Some(template.get(key)?.as_str()?.to_owned());
                Some((field("name")?, field("template")?))
            })
            .collect::<Option<_>>()
            .ok_or_else(invalid),
        Some(_) => Err(invalid()),
    }
}

fn unreadable(message: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::TemplateInvalid, message)
        .with("file", path.display())
        .with_hint("fetch the checkpoint again")
}
