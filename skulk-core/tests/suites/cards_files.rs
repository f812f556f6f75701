//! Are the shipped cards and their JSON Schema what the reference, the model and the reader say?

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use skulk::{CardLibrary, ModelCard};

use crate::suites::cases;

/// Facts come on top. Only where this library's own engines run a model does its card say more besides.
#[test]
fn shipped_cards_are_the_references() {
    let library = CardLibrary::builtin();
    let reference: BTreeMap<String, ModelCard> = cases("cards.json")
        .iter()
        .map(|case| ModelCard::from_value(&case["card"]).unwrap())
        .map(|card| (card.model_id.clone(), card))
        .collect();
    let mut extended = Vec::new();
    for (id, expected) in &reference {
        // Suites from elsewhere may have cards of their own.
        let Some(card) = library.get(id) else { continue };
        let mut same = card.clone();
        same.facts = None;
        let differs = same != *expected;
        same.placement = expected.placement.clone();
        assert_eq!(&same, expected);
        if differs {
            let tags = &card.placement.compatible_backends;
            assert!(expected.placement.compatible_backends.is_subset(tags), "{id}");
            assert!(tags.contains("skulk-cpu"), "{id}");
            extended.push(id.as_str());
        }
    }
    assert_eq!(extended.len(), 4, "{extended:?}");
    assert!(reference.keys().filter(|id| library.get(id).is_some()).count() >= 118);
    let own: Vec<&str> =
        library.iter().map(|card| card.model_id.as_str()).filter(|id| !reference.contains_key(*id)).collect();
    assert_eq!(own, ["google/gemma-3-270m", "karpathy/stories260K"]);
}

#[test]
fn the_cards_compiled_in_are_those_of_the_folder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cards");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let cards: Vec<ModelCard> = files
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .map(|path| ModelCard::from_toml(&std::fs::read_to_string(path).unwrap()).unwrap())
        .collect();
    let library = CardLibrary::builtin();
    assert_eq!(library.len(), cards.len());
    assert!(cards.iter().all(|card| library.get(&card.model_id) == Some(card)));
}

/// The facts of the model in the repository are those of its card.
#[test]
fn the_embedded_model_is_as_its_card_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/models/stories260K");
    let checkpoint = skulk::open_checkpoint(&folder).unwrap();
    let library = CardLibrary::builtin();
    let card = library.get("karpathy/stories260K").unwrap();
    let bytes: u64 = checkpoint.tensors().iter().map(|tensor| tensor.len).sum();
    assert_eq!(card.storage_size.in_bytes, bytes);
    let arch = skulk::arch::ArchSpec::from_checkpoint(&*checkpoint).unwrap();
    assert_eq!((card.n_layers, card.hidden_size), (arch.layers.len(), arch.hidden_size));
    assert_eq!(card.context_length, arch.context_length as i64);
    assert_eq!(card.num_key_value_heads, arch.layers[0].attention().map(|own| own.n_kv_heads));
}

/// What the reader accepts and what the schema describes are the same fields.
#[test]
fn the_schema_knows_every_field() {
    let schema: Value = serde_json::from_str(ModelCard::schema()).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let required: Vec<&str> =
        schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let needed = ["model_id", "storage_size", "n_layers", "hidden_size", "supports_tensor", "tasks"];
    assert_eq!(required, needed);

    let text = "model_id = 'm'\nn_layers = 1\nhidden_size = 1\nsupports_tensor = true\ntasks = []\n\
                storage_size.in_bytes = 1\n[vision]\n[reasoning]\n[modalities]\n[tooling]\n[runtime]\n[placement]\n\
                [facts]\n[facts.window]\nsize = 1\n\
                [facts.recurrent]\nheads = 1\nhead_size = 1\nkey_heads = 1\nkey_size = 1\nconvolution = 1\n\
                [facts.experts]\ncount = 1\nper_token = 1\nsize = 1\n\
                [facts.attention]\nheads = 1\nhead_size = 1\n\
                [facts.attention.latent]\nrank = 1\nrope_size = 1\nvalue_size = 1\n\
                [facts.attention.index]\nheads = 1\nhead_size = 1\n\
                [[components]]\ncomponent_name = ''\ncomponent_path = ''\ncan_shard = true\nstorage_size = {}";
    let card = serde_json::to_value(ModelCard::from_toml(text).unwrap()).unwrap();
    let mut sections = 0;
    compare(&card, &schema, &schema, &mut sections);
    assert_eq!(sections, 17);

    let fields = |section: &str| &schema["$defs"][section]["properties"];
    assert_eq!(schema["properties"]["n_layers"]["minimum"], 1);
    assert_eq!(schema["properties"]["trust_remote_code"]["default"], true);
    assert_eq!(fields("StorageSize")["in_bytes"]["minimum"], 0);
    assert_eq!(fields("RuntimeCardConfig")["served_spec_n_max"]["minimum"], 1);
    assert_eq!(fields("PlacementCardConfig")["compatible_backends"]["default"], serde_json::json!(["mlx"]));
    let efforts: Vec<&Value> = schema["$defs"]["ReasoningEffort"]["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["const"])
        .collect();
    assert_eq!(efforts, ["none", "minimal", "low", "medium", "high", "xhigh"]);
    assert!(!ModelCard::schema().contains("null"));
}

/// A section of a card that has every field, against its schema.
fn compare(card: &Value, section: &Value, schema: &Value, sections: &mut usize) {
    *sections += 1;
    assert_eq!(section["type"], "object");
    assert_eq!(section["additionalProperties"], false);
    assert!(section["description"].is_string());
    let fields = card.as_object().unwrap();
    let described = section["properties"].as_object().unwrap();
    assert!(fields.keys().eq(described.keys()), "{:?}\n{:?}", fields.keys(), described.keys());
    for (name, value) in fields {
        let mut field = &described[name];
        assert!(field["description"].is_string(), "{name}");
        let mut value = value;
        if let Some(items) = value.as_array().filter(|items| items.iter().any(Value::is_object)) {
            (field, value) = (&field["items"], &items[0]);
        }
        if value.is_object() {
            let target = field["$ref"].as_str().unwrap().trim_start_matches("#/$defs/");
            compare(value, &schema["$defs"][target], schema, sections);
        }
    }
}
