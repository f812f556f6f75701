//! How is a card written? One canonical text for each format.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::read::Format;
use super::schema::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::strict::Tree;
use crate::weights::may_be_replaced;

/// Bytes of a file's name that every common file system takes.
const LONGEST_NAME: usize = 255;

impl ModelCard {
    /// The card as TOML, in snake_case: defaults are written out, what is not known is left out, and so is
    /// `is_custom`. The same card is always the same text.
    ///
    /// # Errors
    /// [`ErrorKind::CardInvalid`] for a number that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String> {
        let mut tree = self.to_tree();
        if let Tree::Table(fields) = &mut tree {
            fields.retain(|(name, _)| name != "is_custom");
        }
        change_tables(&mut tree, |fields| fields.retain(|(_, value)| *value != Tree::Null));
        toml::to_string(&tree).map_err(|e| {
            Error::new(ErrorKind::CardInvalid, "expected numbers of at most 63 bits, found a larger one")
                .with_source(e)
                .with_hint("check the card's sizes")
        })
    }

    /// The card as indented JSON, in camelCase, with every field: what is not known is `null`.
    pub fn to_json(&self) -> String {
        // Cannot fail: all keys are texts.
        serde_json::to_string_pretty(&self.to_camel_tree()).unwrap_or_default()
    }

    /// The card as a JSON value, in camelCase, with every field: what is not known is `null`.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self.to_camel_tree()).unwrap_or_default()
    }

    /// The card in camelCase, in the order of its fields.
    pub(crate) fn to_camel_tree(&self) -> Tree {
        let mut tree = self.to_tree();
        change_tables(&mut tree, |fields| fields.iter_mut().for_each(|(key, _)| *key = camel_case(key)));
        tree
    }

    /// The card in snake_case.
    fn to_tree(&self) -> Tree {
        // Cannot fail: all keys are names of fields, and no field's value writes itself.
        let text = serde_json::to_string(self).unwrap_or_default();
        Tree::from_json(&text).unwrap_or(Tree::Null)
    }

    /// Checks a card that a program made, as reading does for a file.
    ///
    /// # Errors
    /// [`ErrorKind::CardInvalid`] with all faults as its [detail](Error::detail).
    pub fn check(&self) -> Result<()> {
        let read = Self::from_tree(&self.to_tree())?;
        // JSON has no number for what is not finite, and so would lose it.
        match self.placement.min_vram_gib {
            Some(_) if read.placement.min_vram_gib.is_none() => {
                let allowed = "expected a finite number in `placement.min_vram_gib`, found another";
                Err(Error::new(ErrorKind::CardInvalid, allowed)
                    .with_hint("leave it out when it is not known"))
            }
            _ => Ok(()),
        }
    }

    /// The name of a card's file: the id with `/` as `--`, and `.toml`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when that is no file name on every system, or could lead out of a folder.
    pub fn file_name(&self) -> Result<String> {
        let id = &self.model_id;
        let name = format!("{}.toml", id.replace('/', "--"));
        let odd = |c: char| c.is_control() || matches!(c, '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
        let refused = if id.is_empty() {
            "nothing"
        } else if id.starts_with('/') || id.split('/').any(|part| part == "." || part == "..") {
            "a path"
        } else if id.starts_with('.') {
            "the name of a hidden file"
        } else if id.contains(odd) {
            "characters that file names cannot have"
        } else if is_device(&name) {
            "the name of a device on Windows"
        } else if name.len() > LONGEST_NAME {
            "a longer name"
        } else {
            return Ok(name);
        };
        let expected = format!("expected a model_id that can name a file of up to {LONGEST_NAME} bytes");
        Err(Error::new(ErrorKind::InvalidArgument, format!("{expected}, found {refused}"))
            .with("field", "model_id")
            .with("model_id", id.escape_debug())
            .with_hint("give the model a name as in `org/name`"))
    }

    /// Writes the card to a file: as JSON where its extension is `.json`, as TOML where it is `.toml`. A file that
    /// is there is replaced as a whole or not at all.
    ///
    /// # Errors
    /// [`ErrorKind::CardInvalid`] as [`ModelCard::check`], and for another extension;
    /// [`ErrorKind::FileIo`] when the file cannot be written. Both name the file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let named = |e: Error| e.with("file", path.display());
        self.check().map_err(named)?;
        let text = match Format::of(path)? {
            Format::Toml => self.to_toml().map_err(named)?,
            Format::Json => self.to_json() + "\n",
        };
        replace(path, text.as_bytes()).map_err(|e| {
            Error::new(ErrorKind::FileIo, "cannot write the file")
                .with("file", path.display())
                .with_source(e)
                .with_hint("check that its folder exists and can be written")
        })
    }

    /// Writes the card into a folder as [`ModelCard::file_name`], and tells where it lies.
    ///
    /// # Errors
    /// As [`ModelCard::file_name`] and [`ModelCard::save`].
    pub fn save_into(&self, folder: impl AsRef<Path>) -> Result<PathBuf> {
        let path = folder.as_ref().join(self.file_name()?);
        self.save(&path)?;
        Ok(path)
    }
}

/// Whether Windows takes a file of that name for a device, whatever its extension.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = |device| {
        stem.strip_prefix(device)
            .is_some_and(|n| matches!(n.chars().collect::<Vec<_>>()[..], ['1'..='9' | '¹' | '²' | '³']))
    };
    matches!(&stem[..], "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || numbered("COM")
        || numbered("LPT")
}

/// Readers see the old file or the new one, never a part.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    may_be_replaced(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut named = tempfile::Builder::new();
    named.prefix(".card-");
    // Temporary files are for their owner only unless told otherwise.
    #[cfg(unix)]
    named.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = named.tempfile_in(folder)?;
    if let Ok(old) = std::fs::metadata(path) {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Changes every table, those within others after these.
fn change_tables(tree: &mut Tree, change: fn(&mut Vec<(String, Tree)>)) {
    match tree {
        Tree::Table(fields) => {
            change(fields);
            fields.iter_mut().for_each(|(_, value)| change_tables(value, change));
        }
        Tree::List(items) => items.iter_mut().for_each(|item| change_tables(item, change)),
        _ => {}
    }
}

/// `n_layers` as `nLayers`.
fn camel_case(snake: &str) -> String {
    let mut parts = snake.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut chars = part.chars();
        camel.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        camel.push_str(chars.as_str());
    }
    camel
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::card::{
        AttentionFacts, BuiltinTool, ComponentInfo, LayerKind, ModelFacts, ModelTask, PlacementCardConfig,
        ReasoningCardConfig, ReasoningFormat, RuntimeCardConfig, ServedSpecType, StorageSize,
        ToolingCardConfig, VisionCardConfig,
    };

    fn named(model_id: &str) -> ModelCard {
        ModelCard { supports_tensor: true, ..ModelCard::new(model_id, 100, 2, 8) }
    }

    #[test]
    fn toml_is_snake_case_with_defaults_and_without_what_is_not_known() {
        let mut card = named("acme/small");
        card.is_custom = true;
        card.reasoning = Some(ReasoningCardConfig::default());
        card.tooling = Some(ToolingCardConfig {
            builtin_tools: Some(vec![BuiltinTool::WebSearch]),
            ..Default::default()
        });
        card.components = Some(vec![ComponentInfo::new("t", "t/", 1)]);
        let expected = r#"model_id = "acme/small"
n_layers = 2
hidden_size = 8
supports_tensor = true
tasks = ["TextGeneration"]
family = ""
quantization = ""
base_model = ""
capabilities = []
context_length = 0
uses_cfg = false
trust_remote_code = true

[storage_size]
in_bytes = 100

[[components]]
component_name = "t"
component_path = "t/"
can_shard = false

[components.storage_size]
in_bytes = 1

[reasoning]

[tooling]
builtin_tools = ["web_search"]

[placement]
compatible_backends = ["mlx"]
backend_preference = []
"#;
        assert_eq!(card.to_toml().unwrap(), expected);
    }

    #[test]
    fn json_is_camel_case_with_every_field() {
        let mut card = named("acme/small");
        card.is_custom = true;
        card.runtime = Some(RuntimeCardConfig {
            served_spec_n_max: Some(3),
            served_spec_type: Some(ServedSpecType::Ngram),
            ..Default::default()
        });
        let value = card.to_value();
        assert_eq!(value["isCustom"], true);
        assert_eq!(value["numKeyValueHeads"], Value::Null);
        assert_eq!(value["runtime"]["servedSpecNMax"], 3);
        assert_eq!(value["runtime"]["servedSpecType"], "ngram");
        assert_eq!(value["placement"]["minVramGib"], Value::Null);
        assert_eq!(value.as_object().unwrap().len(), 24);
        assert_eq!(value["runtime"].as_object().unwrap().len(), 14);
        assert_eq!(ModelCard::from_json(&card.to_json()).unwrap(), card);
    }

    #[test]
    fn file_names() {
        for (id, name) in [("acme/small", "acme--small.toml"), ("a", "a.toml"), ("Ω/ü.1", "Ω--ü.1.toml")]
        {
            assert_eq!(named(id).file_name().unwrap(), name);
        }
        let long = "x".repeat(251);
        for id in [
            "",
            "..",
            "../../etc",
            "a/../b",
            "a/.",
            "/etc/passwd",
            ".hidden",
            "a\0b",
            "a\nb",
            "a\\b",
            "C:a",
            "CON",
            "aux",
            "NUL.x",
            "com1",
            "Lpt9.tar",
            "CONIN$",
            &long,
        ] {
            let error = named(id).file_name().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{id}");
            assert!(!error.to_string().contains(['\0', '\n']));
        }
        assert_eq!(named(&"x".repeat(250)).file_name().unwrap().len(), LONGEST_NAME);
    }

    #[test]
    fn saves_replace_whole_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut card = named("acme/small");
        let path = card.save_into(folder.path()).unwrap();
        assert_eq!(path, folder.path().join("acme--small.toml"));
        card.n_layers = 3;
        card.save(&path).unwrap();
        assert_eq!(ModelCard::open(&path).unwrap(), card);
        let json = folder.path().join("a.json");
        card.save(&json).unwrap();
        assert_eq!(ModelCard::open(&json).unwrap(), card);

        let error = card.save(folder.path().join("none/a.toml")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileIo);
        assert!(error.to_string().contains("a.toml"), "{error}");
        let error = card.save(folder.path().join("a.yaml")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CardInvalid);
        for spoil in [
            |card: &mut ModelCard| card.n_layers = 0,
            |card: &mut ModelCard| card.model_id.clear(),
            |card: &mut ModelCard| card.storage_size.in_bytes = u64::MAX,
            |card: &mut ModelCard| card.placement.min_vram_gib = Some(f64::NAN),
            |card: &mut ModelCard| card.placement.min_vram_gib = Some(-1.0),
        ] {
            let mut card = card.clone();
            spoil(&mut card);
            assert_eq!(card.check().unwrap_err().kind(), ErrorKind::CardInvalid);
            assert_eq!(card.save(&path).unwrap_err().kind(), ErrorKind::CardInvalid);
        }
        assert_eq!(ModelCard::open(&path).unwrap(), card);
        // Nothing is left of what was not saved.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z/.-]{0,12}", any::<String>()]
    }

    fn maybe<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
        prop::option::of(value)
    }

    fn texts() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(text(), 0..4)
    }

    prop_compose! {
        fn runtime()(
            renderer in 0usize..3, heads in any::<Option<bool>>(), depth in any::<Option<i64>>(),
            repo in "[a-z]{1,8}", assistant in maybe(text()), count in maybe(1usize..9),
        ) -> RuntimeCardConfig {
            let heads = heads.filter(|heads| !heads || assistant.is_none());
            RuntimeCardConfig {
                prompt_renderer: Some(crate::card::PromptRenderer::ALL[renderer]),
                mtp_sidecar_repo: (heads == Some(true)).then(|| repo.clone()),
                mtp_heads: heads,
                mtp_max_depth: depth,
                assistant_model_repo: assistant,
                served_spec_n_max: count,
                served_spec_draft_repo: count.map(|_| repo.clone()),
                served_spec_draft_file: count.map(|_| repo),
                ..Default::default()
            }
        }
    }

    prop_compose! {
        fn placement()(
            compatible in prop::collection::btree_set(text(), 0..4), preference in texts(),
            vram in maybe(0.0..1e12f64), tokens in maybe(1u64..1 << 62),
        ) -> PlacementCardConfig {
            PlacementCardConfig {
                compatible_backends: compatible,
                min_vram_gib: vram,
                max_context_tokens: tokens,
                backend_preference: preference,
            }
        }
    }

    prop_compose! {
        fn cards()(
            words in [text(), text(), text(), text()], gguf_file in maybe(text()), sizes in any::<[u32; 3]>(),
            flags in any::<[bool; 4]>(), capabilities in texts(), context_length in any::<i64>(),
            runtime in maybe(runtime()), placement in placement(), components in maybe(0usize..3),
            image_token in maybe(text()), format in maybe(0usize..3),
        ) -> ModelCard {
            let [id, family, quantization, base_model] = words;
            let component = ComponentInfo {
                component_name: family.clone(),
                component_path: String::new(),
                storage_size: StorageSize::default(),
                n_layers: Some(sizes[0] as usize + 1),
                can_shard: flags[0],
                safetensors_index_filename: gguf_file.clone(),
            };
            let model_id = format!("m{id}");
            let source = family.clone();
            ModelCard {
                vision: format.map(|_| VisionCardConfig {
                    image_token_id: Some(context_length),
                    weights_repo: model_id.clone(),
                    image_token,
                    ..Default::default()
                }),
                model_id, family, quantization, base_model, gguf_file, capabilities, context_length, runtime,
                placement,
                storage_size: StorageSize { in_bytes: u64::from(sizes[0]) << 31 },
                n_layers: sizes[1] as usize + 1,
                hidden_size: sizes[2] as usize + 1,
                supports_tensor: flags[0],
                num_key_value_heads: flags[1].then_some(1),
                tasks: ModelTask::ALL[..components.unwrap_or(0)].to_vec(),
                components: components.map(|count| vec![component; count]),
                uses_cfg: flags[2],
                trust_remote_code: flags[3],
                is_custom: false,
                reasoning: format.map(|format| ReasoningCardConfig {
                    format: ReasoningFormat::ALL.get(format).copied(),
                    supports_toggle: flags.first().copied(),
                    ..Default::default()
                }),
                facts: components.map(|count| ModelFacts {
                    source,
                    layers: vec![LayerKind::Full; count],
                    vocab_size: Some(sizes[0] as usize + 1),
                    bits: flags[0].then_some(4.5),
                    attention: flags[1].then(|| AttentionFacts { heads: 1, head_size: count + 1, ..Default::default() }),
                    ..ModelFacts::default()
                }),
                modalities: components.map(|_| Default::default()),
                tooling: format.map(|format| ToolingCardConfig {
                    builtin_tools: Some(BuiltinTool::ALL[..format].to_vec()),
                    ..Default::default()
                }),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(card in cards()) {
            card.check().unwrap();
            let toml = card.to_toml().unwrap();
            let again = ModelCard::from_toml(&toml).unwrap();
            prop_assert_eq!(&again, &card);
            prop_assert_eq!(again.to_toml().unwrap(), toml);
            let json = card.to_json();
            let again = ModelCard::from_json(&json).unwrap();
            prop_assert_eq!(&again, &card);
            prop_assert_eq!(again.to_json(), json);
        }
    }

    #[test]
    fn sets_are_written_in_order() {
        let mut card = named("a");
        card.placement.compatible_backends = BTreeSet::from(["mlx".to_owned(), "a".to_owned()]);
        assert_eq!(card.to_value()["placement"]["compatibleBackends"], serde_json::json!(["a", "mlx"]));
    }
}
