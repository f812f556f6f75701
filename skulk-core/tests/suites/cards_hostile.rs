//! Can any text make the reader of cards panic, hang, or accept what it cannot write?

use std::cell::Cell;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use skulk::{CardLibrary, ModelCard};

use crate::support::exercise;

#[test]
fn every_regression_file_is_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/regressions/card");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(exercise::card(&std::fs::read(&path).unwrap()).is_err());
        assert!(ModelCard::open(&path).is_err(), "{} was accepted", path.display());
        count += 1;
    }
    assert!(count > 5);
}

/// One card with most sections, in both formats.
fn seeds() -> [String; 2] {
    let library = CardLibrary::builtin();
    let card = library.get("mlx-community/gemma-4-e2b-it-8bit").unwrap();
    assert!(card.vision.is_some() && card.runtime.is_some() && card.reasoning.is_some());
    [card.to_toml().unwrap(), card.to_json()]
}

#[test]
fn every_truncation_is_an_error_or_harmless() {
    for seed in seeds() {
        for len in 0..seed.len() {
            let _ = exercise::card(&seed.as_bytes()[..len]);
        }
    }
}

#[test]
fn every_changed_byte_is_an_error_or_harmless() {
    for seed in seeds() {
        for at in 0..seed.len() {
            let mut bytes = seed.clone().into_bytes();
            bytes[at] = b"\"'[]{}=.,-9e\n\\#\xff"[at % 16];
            let _ = exercise::card(&bytes);
        }
    }
}

/// Where fields stand in cards, those of sections with their section, and one that there is not.
fn places() -> Vec<(Option<String>, String)> {
    let schema: Value = serde_json::from_str(ModelCard::schema()).unwrap();
    let mut places = vec![(None, "mystery".to_owned()), (Some("vision".to_owned()), "mystery".to_owned())];
    for (name, field) in schema["properties"].as_object().unwrap() {
        places.push((None, name.clone()));
        let section = field["$ref"].as_str().unwrap_or_default().trim_start_matches("#/$defs/");
        let fields = schema["$defs"][section]["properties"].as_object();
        places.extend(fields.into_iter().flat_map(|f| f.keys()).map(|f| (Some(name.clone()), f.clone())));
    }
    places
}

/// Values of all kinds, those that some field takes most often.
fn value() -> impl Strategy<Value = Value> {
    let names: Vec<String> = places().into_iter().map(|(_, name)| name).collect();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![-2i64..3, any::<i64>()].prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof!["", "none", "gemma4", "generic", "TextGeneration", "\\PC{0,5}"].prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, move |inner| {
        let fields = prop::collection::vec((prop::sample::select(names.clone()), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

#[test]
fn fields_at_random_are_refused_or_read_back() {
    let change = (prop::sample::select(places()), value());
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(Config { cases: 1000, failure_persistence: None, ..Config::default() });
    let run = runner.run(&prop::collection::vec(change, 0..4), |changes| {
        let mut card = json!({
            "model_id": "m", "storage_size": {}, "n_layers": 1, "hidden_size": 1, "supports_tensor": true,
            "tasks": []
        });
        for ((section, name), value) in changes {
            match section {
                None => card[name] = value,
                Some(section) => match &mut card[section] {
                    Value::Object(fields) => drop(fields.insert(name, value)),
                    other => *other = json!({name: value}),
                },
            }
        }
        let count = if exercise::card(card.to_string().as_bytes()).is_ok() { &accepted } else { &refused };
        count.set(count.get() + 1);
        Ok(())
    });
    run.unwrap();
    assert!(accepted.get() > 100 && refused.get() > 100, "{accepted:?} accepted, {refused:?} refused");
}
