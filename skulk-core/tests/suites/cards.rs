//! Are cards read, refused and written as the reference does?

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use skulk::ModelCard;
use skulk::{Fault, FaultKind};

use crate::suites::cases::expect;
use crate::suites::{cases, each};

/// Fields of `runtime` that came after the reference.
const LATER: &str = "served_spec_";

#[test]
fn shipped_cards_are_written_as_the_reference_writes_them() {
    each(&cases("cards.json"), |case| {
        let given = &case["card"];
        let card = ModelCard::from_value(given).map_err(|e| e.to_string())?;
        expect("card", given, &without_later(card.to_value()))?;
        let text = card.to_toml().map_err(|e| e.to_string())?;
        for (what, again) in [
            ("TOML", ModelCard::from_toml(&text)),
            ("JSON", ModelCard::from_json(&card.to_json())),
            ("snake_case JSON", ModelCard::from_json(&serde_json::to_string(&card).unwrap())),
        ] {
            let again = again.map_err(|e| format!("{what}: {e}"))?;
            if again != card || again.to_toml().unwrap() != text || again.to_json() != card.to_json() {
                return Err(format!("{what} changed it: {again:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn cards_are_accepted_and_refused_as_by_the_reference() {
    let cases = cases("cards_invalid.json");
    each(&cases, |case| {
        // Some cases cannot be written as TOML.
        let Some(text) = case["toml"].as_str() else { return Ok(()) };
        judge(&case["viaToml"], &case["input"], ModelCard::from_toml(text))
    });
    each(&cases, |case| {
        let read = ModelCard::from_json(&camel_keys(&case["input"]).to_string());
        judge(&case["viaCamelJson"], &case["input"], read)
    });
    assert!(cases.iter().any(|case| case["viaToml"]["accepted"] == true));
    assert!(cases.iter().any(|case| case["viaToml"]["accepted"] == false));
}

/// Compares one reading of a case with the reference's, which is `null` where it was not run.
fn judge(expected: &Value, input: &Value, read: skulk::Result<ModelCard>) -> Result<(), String> {
    if expected.is_null() {
        return Ok(());
    }
    let errors = expected["errors"].as_array().cloned().unwrap_or_default();
    let (later, errors): (Vec<&Value>, Vec<&Value>) = errors.iter().partition(|error| is_later(error));
    let accepted = expected["accepted"].as_bool().ok_or("no verdict")?;

    let faults = match read {
        Ok(card) if accepted => return expect("card", &expected["card"], &without_later(card.to_value())),
        Ok(_) if !later.is_empty() && errors.is_empty() => return Ok(()),
        Ok(_) => return Err(format!("accepted; the reference has {expected}")),
        Err(error) => match error.detail::<Vec<Fault>>() {
            Some(faults) => faults.clone(),
            None => return Err(format!("an error without faults: {error}")),
        },
    };
    // The reference fails without saying where.
    if !accepted && errors.is_empty() && later.is_empty() {
        return Ok(());
    }
    let (own, shared): (Vec<Fault>, Vec<Fault>) =
        faults.into_iter().partition(|fault| is_deliberate(fault, input));
    if accepted && own.is_empty() {
        return Err(format!("refused for {shared:?}; the reference accepts it"));
    }
    let found: BTreeSet<(String, &str)> =
        shared.iter().map(|fault| (snake(&fault.field), class(fault.kind))).collect();
    let expected: BTreeSet<(String, &str)> =
        errors.iter().map(|error| Ok((field(error), class_of(error)?))).collect::<Result<_, String>>()?;
    expect("faults", &expected, &found)
}

fn field(error: &Value) -> String {
    let steps = error["field"].as_array().into_iter().flatten();
    let steps: Vec<String> =
        steps.map(|step| step.as_str().map_or_else(|| step.to_string(), str::to_owned)).collect();
    snake(&steps.join("."))
}

fn is_later(error: &Value) -> bool {
    error["type"] == "extra_forbidden" && field(error).starts_with(&format!("runtime.{LATER}"))
}

/// The reference tells wrong values and values of a wrong type apart only in part: values of closed sets that are
/// no text are a wrong value to it.
fn class(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Unknown => "unknown",
        FaultKind::Missing => "missing",
        FaultKind::Range => "range",
        FaultKind::Type | FaultKind::Value => "value",
        _ => "another",
    }
}

fn class_of(error: &Value) -> Result<&'static str, String> {
    let kind = error["type"].as_str().unwrap_or_default();
    Ok(match kind {
        "extra_forbidden" => "unknown",
        "missing" => "missing",
        "value_error" | "literal_error" => "value",
        _ if kind.starts_with("greater_than") => "range",
        _ if kind.ends_with("_type") => "value",
        _ => return Err(format!("an unknown type of error: {kind}")),
    })
}

/// Whether this library refuses here what the reference accepts, and for a documented reason that holds of the
/// input's own values.
fn is_deliberate(fault: &Fault, input: &Value) -> bool {
    let path = snake(&fault.field);
    let value = path.split('.').try_fold(input, |at, step| match at {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => lookup(at, step),
    });
    let Some(value) = value else { return false };
    let runtime = |name: &str| lookup(lookup(input, "runtime")?, name);
    let named = |name: &str| runtime(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let heads = runtime("mtp_heads") == Some(&Value::Bool(true));
    let below = |least: f64| value.as_f64().is_some_and(|value| value < least);
    match (path.as_str(), fault.kind) {
        ("model_id", FaultKind::Value) => value == "",
        ("placement.min_vram_gib", FaultKind::Range) => below(0.0),
        ("placement.max_context_tokens", FaultKind::Range) => below(1.0),
        ("runtime.mtp_heads", FaultKind::Conflict) => heads && !named("mtp_sidecar_repo"),
        ("runtime.assistant_model_repo", FaultKind::Conflict) => {
            let drafts = ["mtp_sidecar_repo", "mtp_norm_convention", "mtp_concat_order"];
            named("assistant_model_repo") && (heads || drafts.into_iter().any(named))
        }
        ("runtime.served_spec_n_max", FaultKind::Range) => below(1.0),
        ("runtime.served_spec_draft_repo", FaultKind::Conflict) => !named("served_spec_draft_file"),
        ("runtime.served_spec_draft_file", FaultKind::Conflict) => !named("served_spec_draft_repo"),
        (path, FaultKind::Range) if path.ends_with("storage_size.in_bytes") && below(0.0) => true,
        // Beyond 64 bits.
        (_, FaultKind::Range) => value.is_number() && value.as_i64().is_none(),
        // Values of fields that the reference does not know at all.
        (path, FaultKind::Type | FaultKind::Value) => path.starts_with(&format!("runtime.{LATER}")),
        _ => false,
    }
}

/// A field in either spelling.
fn lookup<'a>(table: &'a Value, name: &str) -> Option<&'a Value> {
    table.as_object()?.iter().find(|(key, _)| snake(key) == name).map(|(_, value)| value)
}

/// Without the fields that the reference lacks, which must be empty.
fn without_later(mut card: Value) -> Value {
    if let Some(fields) = card.as_object_mut() {
        fields.retain(|key, value| !(key == "facts" && value.is_null()));
    }
    if let Some(runtime) = card["runtime"].as_object_mut() {
        runtime.retain(|key, value| !(key.starts_with("servedSpec") && value.is_null()));
    }
    card
}

/// The fields of a path as TOML spells them.
fn snake(path: &str) -> String {
    path.chars().fold(String::new(), |mut path, c| {
        if c.is_ascii_uppercase() {
            path.push('_');
        }
        path.push(c.to_ascii_lowercase());
        path
    })
}

fn camel_keys(value: &Value) -> Value {
    let camel = |key: &str| {
        let mut parts = key.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |key, part| {
            let (start, rest) = part.split_at(part.len().min(1));
            key + &start.to_ascii_uppercase() + rest
        })
    };
    match value {
        Value::Object(fields) => {
            let fields: Map<String, Value> =
                fields.iter().map(|(key, value)| (camel(key), camel_keys(value))).collect();
            Value::Object(fields)
        }
        Value::Array(items) => items.iter().map(camel_keys).collect(),
        other => other.clone(),
    }
}
