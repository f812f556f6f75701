//! What are the shipped models made of? Facts by base model, from published configurations.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use skulk::ModelCard;

/// The file of facts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    models: Vec<Base>,
}

/// One base model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Base {
    /// Ids of its cards.
    cards: Vec<String>,
    /// Bits of a weight in these, as the section `facts` has them.
    bits: Option<f64>,
    feed_forward_bits: Option<f64>,
    expert_bits: Option<f64>,
    /// Its layers in Nemotron-H's letters.
    pattern: Option<String>,
    facts: Map<String, Value>,
}

/// Gives cards the facts of their models.
pub(crate) fn fill(cards: &mut [ModelCard]) {
    let file: File = toml::from_str(include_str!("facts.toml")).unwrap();
    for base in file.models {
        let mut facts = base.facts;
        if let Some(pattern) = &base.pattern {
            facts.insert("layers".to_owned(), pattern.chars().map(kind).collect());
        }
        for (name, bits) in [("bits", base.bits), ("feed_forward_bits", base.feed_forward_bits)] {
            bits.map(|bits| facts.insert(name.to_owned(), bits.into()));
        }
        if let Some(bits) = base.expert_bits {
            facts["experts"]["bits"] = bits.into();
        }
        for id in base.cards {
            let card = cards.iter_mut().find(|card| card.model_id == id).unwrap();
            assert!(card.facts.is_none(), "facts of {id} twice");
            let mut value = card.to_value();
            value["facts"] = json!(facts);
            *card = ModelCard::from_value(&value).unwrap();
        }
    }
}

/// Letters of `hybrid_override_pattern`.
const KINDS: [(char, &str); 4] =
    [('M', "recurrent"), ('*', "full"), ('E', "feed_forward"), ('-', "feed_forward")];

fn kind(letter: char) -> Value {
    json!(KINDS.iter().find(|(of, _)| *of == letter).unwrap().1)
}
