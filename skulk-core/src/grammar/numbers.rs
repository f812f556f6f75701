//! Which numbers of a schema can be enforced? `llguidance` reads bounds and constants as floats, and makes integers of 64 bits
//! of them.

use serde_json::{Map, Number, Value};

use super::{Constraint, readings};
use crate::error::{Error, Result};

/// From here on not every whole number is a float.
const GAP: f64 = 9_007_199_254_740_992.0;
/// Integers of 64 bits end before it.
const END: f64 = 9_223_372_036_854_775_808.0;

/// `Ok` where texts have the numbers that the constraint's schemas say, and no others.
pub(super) fn check(constraint: &Constraint) -> Result<()> {
    let field = constraint.field();
    match constraint {
        Constraint::JsonSchema(schema) => of_schema(schema, field),
        Constraint::Lark(text) => {
            let mut rest = text.as_str();
            while let Some((_, behind)) = rest.split_once("%json") {
                let mut schemas = serde_json::Deserializer::from_str(behind).into_iter::<Value>();
                if let Some(Ok(schema)) = schemas.next() {
                    of_schema(&schema, field)?;
                }
                rest = behind.get(schemas.byte_offset()..).unwrap_or_default();
            }
            Ok(())
        }
        Constraint::JsonObject | Constraint::Regex(_) => Ok(()),
    }
}

fn of_schema(schema: &Value, field: &'static str) -> Result<()> {
    match schema {
        Value::Array(items) => items.iter().try_for_each(|item| of_schema(item, field)),
        Value::Object(keywords) => {
            is_open(keywords, field)?;
            readings::properties(keywords, field)?;
            let is_integer = keywords.get("type").is_some_and(|kind| kind == "integer");
            let counts = |(keyword, value): &(&String, &Value)| !(is_integer && is_loose(keyword, value));
            keywords.iter().filter(counts).try_for_each(|(keyword, value)| of_keyword(keyword, value, field))
        }
        _ => Ok(()),
    }
}

/// Whether an upper bound is beyond all integers of 64 bits, of which texts have no others where there is a bound.
fn is_loose(keyword: &str, value: &Value) -> bool {
    matches!(keyword, "maximum" | "exclusiveMaximum") && value.as_f64().is_some_and(|bound| bound >= END)
}

fn of_keyword(keyword: &str, value: &Value, field: &'static str) -> Result<()> {
    match (keyword, value) {
        // They bind nobody.
        ("default" | "examples", _) => Ok(()),
        // By names, which may be those of keywords.
        (
            "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
            Value::Object(named),
        ) => {
            if keyword == "patternProperties" {
                named.keys().try_for_each(|pattern| readings::pattern(pattern, field))?;
            }
            named.values().try_for_each(|schema| of_schema(schema, field))
        }
        ("pattern", Value::String(pattern)) => readings::pattern(pattern, field),
        ("const" | "enum", _) => constants(value, field),
        ("minimum" | "maximum", Value::Number(bound)) => kept(bound, is_kept(bound), field),
        // The next number before or behind it counts.
        ("exclusiveMinimum" | "exclusiveMaximum", Value::Number(bound)) => {
            kept(bound, bound.as_f64().is_some_and(|bound| bound.abs() <= GAP), field)
        }
        _ => of_schema(value, field),
    }
}

/// `Ok` where a constant's numbers are kept.
fn constants(value: &Value, field: &'static str) -> Result<()> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| constants(item, field)),
        Value::Object(fields) => fields.values().try_for_each(|value| constants(value, field)),
        Value::Number(number) => kept(number, is_kept(number), field),
        _ => Ok(()),
    }
}

/// Whether a number is the same as a float, and as an integer where it is one. Of the least integer, ranges have no end.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "whether they matter is asked"
)]
fn is_kept(number: &Number) -> bool {
    match number.as_i64() {
        Some(whole) => whole != i64::MIN && (whole as f64) as i64 == whole,
        None => number.as_f64().is_some_and(|number| number.abs() < END),
    }
}

fn kept(number: &Number, is_kept: bool, field: &'static str) -> Result<()> {
    if is_kept {
        return Ok(());
    }
    let message = format!("expected numbers that floats and integers of 64 bits hold alike, found {number}");
    Err(Error::argument(field, message).with_hint("give it as a text, or use a number from -2^53 to 2^53"))
}

/// `Ok` unless a whole number is excluded and the other bound lies before the next one: `llguidance` would let the whole
/// number through.
fn is_open(keywords: &Map<String, Value>, field: &'static str) -> Result<()> {
    let number = |keyword: &str| keywords.get(keyword).and_then(Value::as_f64);
    let bounds = |inclusive: &str, exclusive: &str| match keywords.get(exclusive) {
        // As drafts before the sixth have it.
        Some(Value::Bool(true)) => (None, number(inclusive)),
        _ => (number(inclusive), number(exclusive)),
    };
    let (least, above) = bounds("minimum", "exclusiveMinimum");
    let (most, below) = bounds("maximum", "exclusiveMaximum");
    // The one that is nearer to zero, and the other one.
    let closed = |near: Option<f64>, far: [Option<f64>; 2]| {
        near.is_some_and(|near| {
            near.fract() == 0.0 && far.into_iter().flatten().any(|far| near < far && far < near + 1.0)
        })
    };
    let negative = |bound: Option<f64>| bound.map(|bound| -bound);
    let positive = above.is_some_and(|above| above >= 0.0) && closed(above, [most, below]);
    if positive
        || below.is_some_and(|below| below <= 0.0) && closed(negative(below), [least, above].map(negative))
    {
        let message = "expected bounds that a whole number lies between, or that both count, found others";
        return Err(Error::argument(field, message)
            .with_hint("use minimum and maximum instead of exclusiveMinimum and exclusiveMaximum"));
    }
    Ok(())
}
