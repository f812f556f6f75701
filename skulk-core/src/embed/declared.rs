//! What does a folder say about its embeddings? The files of sentence-transformers: how the vectors of tokens become one, how
//! long texts may be, what goes before them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::macros::closed_set;
use crate::weights::safetensors::{leads_out, read_json, read_object};

closed_set! {
    /// How the vectors of a text's tokens become one.
    pub enum Pooling {
        /// The first token's.
        Cls = "cls",
        /// Of each element the largest.
        Max = "max",
        /// Their mean.
        Mean = "mean",
        /// Their sum, divided by the square root of their number.
        MeanSqrtLen = "mean_sqrt_len_tokens",
        /// Their mean, each weighted by its place, from 1 on.
        WeightedMean = "weightedmean",
        /// The last token's.
        LastToken = "lasttoken",
    }
}

/// Fields that say the same one by one, in the order of [`Pooling::ALL`].
const FLAGS: [&str; 6] = [
    "pooling_mode_cls_token",
    "pooling_mode_max_tokens",
    "pooling_mode_mean_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
    "pooling_mode_lasttoken",
];

/// What the files beside the weights say.
pub(super) struct Declared {
    /// Where the model itself lies.
    pub(super) folder: PathBuf,
    /// One behind the other.
    pub(super) poolings: Vec<Pooling>,
    pub(super) normalize: bool,
    pub(super) lower_case: bool,
    /// Goes before every text.
    pub(super) prompt: String,
    /// Whether the prompt's tokens count like those of the text.
    pub(super) pools_prompt: bool,
    /// With the file and the field that say so.
    pub(super) max_tokens: Option<(usize, PathBuf, &'static str)>,
}

impl Declared {
    /// Reads what is there. Folders without `modules.json` are taken for transformers whose tokens' mean counts, as
    /// sentence-transformers takes them.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut declared = Self {
            folder: folder.to_owned(),
            poolings: vec![Pooling::Mean],
            normalize: false,
            lower_case: false,
            prompt: String::new(),
            pools_prompt: true,
            max_tokens: None,
        };
        let file = folder.join("modules.json");
        if let Some(modules) = read_json::<Value>(&file, ErrorKind::ConfigInvalid)? {
            declared.modules(folder, &file, &modules)?;
        }
        let file = declared.folder.join("sentence_bert_config.json");
        if let Some(config) = read_object(&file)? {
            declared.lower_case = flag(&file, &config, "do_lower_case")?.unwrap_or(false);
            declared.max_tokens = match config.get("max_seq_length").filter(|value| !value.is_null()) {
                Some(value) => {
                    let most = value.as_u64().and_then(|n| n.try_into().ok());
                    let most = most.ok_or_else(|| wrong(&file, "max_seq_length", "a whole number", value))?;
                    Some((most, file, "max_seq_length"))
                }
                None => None,
            };
        }
        let file = folder.join("config_sentence_transformers.json");
        if let Some(config) = read_object(&file)? {
            let name = config.get("default_prompt_name").filter(|name| !name.is_null());
            if let Some(name) = name {
                let prompt = name.as_str().and_then(|name| config.get("prompts")?.get(name)?.as_str());
                declared.prompt = prompt
                    .ok_or_else(|| wrong(&file, "default_prompt_name", "the name of a prompt", name))?
                    .to_owned();
            }
            if !(declared.pools_prompt || declared.prompt.is_empty()) {
                let message = "prompts whose tokens do not count are not supported";
                return Err(Error::new(ErrorKind::ArchUnsupported, message)
                    .with("field", "include_prompt")
                    .with("file", file.display())
                    .with_hint("choose a model that pools its prompt, or one without a default prompt"));
            }
        }
        Ok(declared)
    }

    fn modules(&mut self, folder: &Path, file: &Path, modules: &Value) -> Result<()> {
        let list = modules.as_array().ok_or_else(|| wrong(file, "", "a list of modules", modules))?;
        let mut pooled = false;
        for (at, module) in list.iter().enumerate() {
            let text = |key: &'static str| {
                let value = module.get(key).unwrap_or(&Value::Null);
                value.as_str().ok_or_else(|| wrong(file, key, "a string", value))
            };
            let (kind, path) = (text("type")?, text("path")?);
            if !path.is_empty() && leads_out(path) {
                return Err(wrong(file, "path", "a path inside the folder", &path.into()));
            }
            let name = kind.rsplit('.').next().unwrap_or(kind);
            match (name, at, pooled) {
                ("Transformer", 0, _) => self.folder = folder.join(path),
                ("Pooling", 1.., false) => {
                    let file = folder.join(path).join("config.json");
                    (self.poolings, self.pools_prompt) = poolings(&file)?;
                    pooled = true;
                }
                ("Normalize", 2.., true) => self.normalize = true,
                _ => {
                    let message = format!("the module `{kind}` at place {at} is not supported");
                    return Err(Error::new(ErrorKind::ArchUnsupported, message)
                        .with("file", file.display())
                        .with("field", "type")
                        .with_hint("supported: Transformer, then Pooling, then Normalize"));
                }
            }
        }
        if !pooled {
            return Err(wrong(file, "type", "a module that pools", modules));
        }
        Ok(())
    }
}

/// The ways of pooling that a module's configuration names, and whether a prompt's tokens count.
fn poolings(file: &Path) -> Result<(Vec<Pooling>, bool)> {
    let config = read_object(file)?.ok_or_else(|| {
        Error::new(ErrorKind::FileNotFound, "expected the configuration of pooling, found none")
            .with("file", file.display())
            .with_hint("fetch the whole repository, with its folders")
    })?;
    let pools_prompt = flag(file, &config, "include_prompt")?.unwrap_or(true);
    if let Some(mode) = config.get("pooling_mode").filter(|mode| !mode.is_null()) {
        let known = mode.as_str().and_then(|mode| mode.parse().ok());
        return known
            .map(|pooling| (vec![pooling], pools_prompt))
            .ok_or_else(|| wrong(file, "pooling_mode", "a way of pooling", mode));
    }
    let mut found = Vec::new();
    for (pooling, key) in Pooling::ALL.iter().zip(FLAGS) {
        // As in sentence-transformers the mean counts unless it is said that it does not.
        if flag(file, &config, key)?.unwrap_or(*pooling == Pooling::Mean) {
            found.push(*pooling);
        }
    }
    if found.is_empty() {
        return Err(wrong(file, "pooling_mode_mean_tokens", "one way of pooling at least", &Value::Null));
    }
    Ok((found, pools_prompt))
}

fn flag(file: &Path, config: &Value, key: &'static str) -> Result<Option<bool>> {
    let Some(value) = config.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    value.as_bool().map(Some).ok_or_else(|| wrong(file, key, "true or false", value))
}

pub(super) fn wrong(file: &Path, field: &str, expected: &str, found: &Value) -> Error {
    const LONGEST: usize = 100;
    let mut found = found.to_string();
    if let Some((at, _)) = found.char_indices().nth(LONGEST) {
        found.truncate(at);
        found.push('…');
    }
    Error::new(ErrorKind::ConfigInvalid, format!("expected {expected}, found {found}"))
        .with("field", field)
        .with("file", file.display())
        .with_hint("fetch the file again")
}
