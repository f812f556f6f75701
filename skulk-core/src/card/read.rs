//! Is this a model card? Strict reading that finds every fault, not only the first.

use std::io::Read as _;
use std::path::Path;

use super::facts::as_known;
use super::schema::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::strict::{Document, Tree};
use crate::weights::mmap::{io_error, open_regular};

/// The largest file that is read as a card, in bytes; those that exist have some thousand.
const MAX_BYTES: u64 = 1 << 20;
/// What is read here.
const CARD: Document = Document {
    error: ErrorKind::CardInvalid,
    name: "a model card",
    hint: "docs/guide/cards.md lists all fields and their values",
};

impl ModelCard {
    /// Reads a card in TOML. Fields may be spelled in snake_case or camelCase.
    ///
    /// # Errors
    /// [`ErrorKind::CardInvalid`]: for a card that breaks the interface with all its faults as
    /// the [detail](Error::detail), for a text that is no TOML with `line` and `column`.
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::from_tree(&CARD.toml(text)?)
    }

    /// Reads a card in JSON. Fields may be spelled in camelCase or snake_case.
    ///
    /// # Errors
    /// As [`ModelCard::from_toml`].
    pub fn from_json(text: &str) -> Result<Self> {
        Self::from_tree(&CARD.json(text)?)
    }

    /// Reads a card from JSON that was parsed before.
    ///
    /// # Errors
    /// [`ErrorKind::CardInvalid`] with all faults as its [detail](Error::detail).
    pub fn from_value(value: &serde_json::Value) -> Result<Self> {
        let tree = <Tree as serde::Deserialize>::deserialize(value)
            .map_err(|e| Error::new(ErrorKind::Internal, "expected JSON values to be read").with_source(e))?;
        Self::from_tree(&tree)
    }

    /// Reads the card in a `.toml` or `.json` file.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`] and [`ErrorKind::FileIo`] when it cannot be read;
    /// [`ErrorKind::CardInvalid`] as [`ModelCard::from_toml`], and for files that are larger than
    /// 1 MiB, hold no UTF-8 or have another extension. All name the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = read_text(path)?;
        match Format::of(path)? {
            Format::Toml => Self::from_toml(&text),
            Format::Json => Self::from_json(&text),
        }
        .map_err(|e| e.with("file", path.display()))
    }

    pub(super) fn from_tree(tree: &Tree) -> Result<Self> {
        CARD.read(&as_known(tree), None).map(Self::complete)
    }

    /// The card with what follows from other fields.
    pub(crate) fn complete(mut self) -> Self {
        if let Some(vision) = self.vision.as_mut().filter(|vision| vision.weights_repo.is_empty()) {
            vision.weights_repo.clone_from(&self.model_id);
        }
        self
    }
}

/// How a file writes a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Toml,
    Json,
}

impl Format {
    /// Told by the extension: one text may be both.
    pub(super) fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("toml") => Ok(Self::Toml),
            Some("json") => Ok(Self::Json),
            _ => Err(Error::new(ErrorKind::CardInvalid, "expected a .toml or .json file, found another")
                .with("file", path.display())
                .with_hint("name the card's file with the extension of its format")),
        }
    }
}

fn read_text(path: &Path) -> Result<String> {
    let invalid = |message: String, hint: &'static str| {
        Error::new(ErrorKind::CardInvalid, message).with("file", path.display()).with_hint(hint)
    };
    let mut bytes = Vec::new();
    let file = open_regular(path)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| io_error(e, path, "read"))?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("expected a model card of at most {MAX_BYTES} bytes, found a larger file");
        return Err(invalid(message, "give the card, not the model"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        invalid(format!("expected UTF-8, found another byte at offset {at}"), "save the file as UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::{Fault, FaultKind};

    const SMALL: &str = "model_id = 'acme/small'\nn_layers = 2\nhidden_size = 8\nsupports_tensor = true\n\
                         tasks = ['TextGeneration']\nstorage_size = { in_bytes = 100 }\n";

    fn faults(error: &Error) -> Vec<(&str, FaultKind)> {
        let Some(faults) = error.detail::<Vec<Fault>>() else { panic!("{error}") };
        faults.iter().map(|fault| (fault.field.as_str(), fault.kind)).collect()
    }

    #[test]
    fn defaults() {
        let card = ModelCard::from_toml(SMALL).unwrap();
        assert!(card.trust_remote_code && !card.uses_cfg && !card.is_custom);
        assert_eq!((card.context_length, card.family.as_str(), card.num_key_value_heads), (0, "", None));
        assert_eq!(card.placement, crate::card::PlacementCardConfig::default());
        let sections =
            format!("{SMALL}[vision]\n[reasoning]\n[modalities]\n[tooling]\n[runtime]\n[placement]");
        let card = ModelCard::from_toml(&sections).unwrap();
        assert_eq!(card.vision.as_ref().unwrap().weights_repo, "acme/small");
        assert_eq!(card.reasoning, Some(Default::default()));
        assert_eq!(card.modalities, Some(Default::default()));
        assert_eq!(card.tooling, Some(Default::default()));
        assert_eq!(card.runtime, Some(Default::default()));
        assert_eq!(card.placement, Default::default());
    }

    #[test]
    fn every_fault_is_listed_in_the_order_of_the_document() {
        let text = "colour = 'red'\nnLayers = 0\ntasks = ['Text', 'TextGeneration', 3]\nhidden_size = true\n\
                    capabilities = ['a', 1, 2]\n\
                    [runtime]\nassistant_model_repo = 'a/b'\nmtp_heads = true\noutput_parser = 'xml'\n\
                    [reasoning]\nformat = 1\n\
                    [[components]]\ncan_shard = 1\nstorage_size = 7\n";
        let error = ModelCard::from_toml(text).unwrap_err();
        use FaultKind::{Conflict, Missing, Range, Type, Unknown, Value};
        let expected = [
            ("colour", Unknown),
            ("nLayers", Range),
            ("tasks", Value),
            ("tasks", Type),
            ("hidden_size", Type),
            ("capabilities.1", Type),
            ("capabilities.2", Type),
            ("runtime.assistant_model_repo", Conflict),
            ("runtime.mtp_heads", Conflict),
            ("runtime.output_parser", Value),
            ("reasoning.format", Type),
            ("components.0.can_shard", Type),
            ("components.0.storage_size", Type),
            ("components.0.component_name", Missing),
            ("components.0.component_path", Missing),
            ("model_id", Missing),
            ("storage_size", Missing),
            ("supports_tensor", Missing),
        ];
        assert_eq!(faults(&error), expected);
        assert_eq!(error.kind(), ErrorKind::CardInvalid);
        let message = error.message();
        assert!(
            message.contains("18 faults: `colour`: unknown, expected one of model_id, storage_size,"),
            "{message}"
        );
        let second = "; `nLayers`: expected a whole number of 1 or more, found 0; `tasks`: expected one of \
                      \"TextGeneration\", \"TextEmbedding\", \"TextToImage\", \"ImageToImage\", found \"Text\"; ";
        assert!(message.contains(second), "{message}");
        assert!(message.ends_with("; and 13 more"), "{message}");
    }

    #[test]
    fn both_spellings_of_a_field_are_one_too_many() {
        for text in ["n_layers = 2\nnLayers = 3\n", "nLayers = 3\nn_layers = 2\n"] {
            let error = ModelCard::from_toml(&SMALL.replace("n_layers = 2\n", text)).unwrap_err();
            assert_eq!(faults(&error), [("n_layers", FaultKind::Unknown)]);
            assert!(error.message().contains("nLayers"), "{error}");
        }
        for odd in ["NLayers", "n_Layers", "nlayers", "N_LAYERS", "n_layers_", ""] {
            let error = ModelCard::from_toml(&SMALL.replace("n_layers", &format!("\"{odd}\""))).unwrap_err();
            assert_eq!(faults(&error), [(odd, FaultKind::Unknown), ("n_layers", FaultKind::Missing)]);
        }
        let twice = r#"{"modelId": "a", "modelId": "b", "storage_size": {}, "n_layers": 1, "hidden_size": 1,
            "supports_tensor": true, "tasks": []}"#;
        let error = ModelCard::from_json(twice).unwrap_err();
        assert_eq!(faults(&error), [("modelId", FaultKind::Unknown)]);
    }

    #[test]
    fn numbers_keep_their_kind() {
        let with = |line: &str| ModelCard::from_toml(&format!("{line}\n{SMALL}"));
        assert_eq!(with("placement.min_vram_gib = 24").unwrap().placement.min_vram_gib, Some(24.0));
        for line in ["context_length = 1.0", "context_length = true", "context_length = '1'", "uses_cfg = 1"]
        {
            let error = with(line).unwrap_err();
            assert_eq!(faults(&error)[0].1, FaultKind::Type, "{line}");
        }
        for huge in ["9223372036854775808", "-9223372036854775809"] {
            let error = with(&format!("context_length = {huge}")).unwrap_err();
            assert_eq!(faults(&error), [("context_length", FaultKind::Range)]);
        }
        assert_eq!(with(&format!("context_length = {}", i64::MIN)).unwrap().context_length, i64::MIN);
    }

    #[test]
    fn what_is_no_card_at_all() {
        for json in ["[]", "null", "3", "\"card\""] {
            let error = ModelCard::from_json(json).unwrap_err();
            assert_eq!(faults(&error), [("", FaultKind::Type)]);
            assert!(error.message().starts_with("expected a model card, found one fault: expected a table"));
        }
        assert!(ModelCard::from_json("").unwrap_err().detail::<Vec<Fault>>().is_none());
        assert_eq!(faults(&ModelCard::from_toml("").unwrap_err()).len(), 6);
    }

    #[test]
    fn messages_stay_short() {
        let text = format!("\"{}\" = '{}'\n{SMALL}\n\"new\\nline\" = 1", "k".repeat(9999), "v".repeat(9999));
        let error = ModelCard::from_toml(&text).unwrap_err();
        assert!(error.message().len() < 3000, "{}", error.message().len());
        assert!(!error.message().contains('\n'));
    }

    #[test]
    fn files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let card = ModelCard::open(write("a.toml", SMALL.as_bytes())).unwrap();
        assert_eq!(card, ModelCard::open(write("a.json", card.to_json().as_bytes())).unwrap());
        let large = format!("# {}\n{SMALL}", "x".repeat(MAX_BYTES as usize));
        for (name, bytes) in [
            ("b.json", SMALL.as_bytes()),
            ("b.toml", b"model_id = '\xff'"),
            ("large.toml", large.as_bytes()),
            ("b.yaml", SMALL.as_bytes()),
            ("faulty.toml", b"n_layers = 0"),
        ] {
            let error = ModelCard::open(write(name, bytes)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CardInvalid, "{error}");
            assert!(
                error.context().iter().any(|(key, file)| *key == "file" && file.ends_with(name)),
                "{error}"
            );
            assert!(error.hint().is_some(), "{error}");
        }
        let error = ModelCard::open(folder.path().join("none.toml")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileNotFound);
        std::fs::create_dir(folder.path().join("folder.toml")).unwrap();
        let error = ModelCard::open(folder.path().join("folder.toml")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileIo);
    }
}
