//! What does a document hold, in its own order? TOML and JSON as one kind of tree.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use toml::de::{DeTable, DeValue};
use toml_parser::Source;
use toml_parser::lexer::TokenKind;

/// Levels that one statement of TOML may open; those of cards open three at most.
const DEEPEST: usize = 32;
/// Characters of a text that a fault shows.
pub(super) const SHOWN: usize = 60;

/// Why a text is no document at all, and where.
#[derive(Debug)]
pub(crate) struct Syntax {
    pub(crate) message: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A value of a document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Int(i64),
    /// A whole number beyond 64 bits.
    Huge(String),
    Float(f64),
    Text(String),
    Date(String),
    List(Vec<Tree>),
    /// In the document's order. JSON may give a key twice.
    Table(Vec<(String, Tree)>),
}

impl Tree {
    pub(crate) fn from_toml(text: &str) -> Result<Self, Syntax> {
        if let Some(at) = too_deep(text) {
            let (line, column) = position(text, at);
            return Err(Syntax { message: "tables nested too deeply".to_owned(), line, column });
        }
        match DeTable::parse(text) {
            Ok(table) => Ok(of_toml(DeValue::Table(table.into_inner()))),
            Err(error) => {
                let (line, column) = position(text, error.span().map_or(text.len(), |span| span.start));
                Err(Syntax { message: error.message().trim().to_owned(), line, column })
            }
        }
    }

    pub(crate) fn from_json(text: &str) -> Result<Self, Syntax> {
        serde_json::from_str(text).map_err(|e| {
            let message = e.to_string();
            // The position follows in fields of its own.
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(start, _)| start);
            Syntax { message: message.to_owned(), line: e.line(), column: e.column() }
        })
    }

    /// For messages: a value as it stands, or what kind of value it is.
    pub(crate) fn show(&self) -> String {
        match self {
            Tree::Null => "null".to_owned(),
            Tree::Bool(value) => value.to_string(),
            Tree::Int(value) => value.to_string(),
            Tree::Huge(digits) => clip(digits, SHOWN).into_owned(),
            Tree::Float(value) => format!("{value:?}"),
            Tree::Text(text) => format!("{:?}", clip(text, SHOWN)),
            Tree::Date(text) => format!("the date {text}"),
            Tree::List(items) => format!("a list of {}", items.len()),
            Tree::Table(_) => "a table".to_owned(),
        }
    }
}

/// Texts of foreign documents may be of any length; messages are not.
pub(super) fn clip(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Line and column, both from 1, of a byte of the text.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// Where a statement nests too deeply, if one does. The parser bounds brackets and the parts of dotted keys, but not
/// both together: thousands of levels pass it, whose destructors overflow a thread's stack.
fn too_deep(text: &str) -> Option<usize> {
    // Levels by brackets around here with their keys' dots, then by this key's dots alone.
    let (mut open, mut here) = (Vec::new(), 0);
    let mut around = 0;
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::Dot => here += 1,
            TokenKind::Comma | TokenKind::Newline => here = 0,
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => {
                open.push(here + 1);
                around += here + 1;
                here = 0;
            }
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => {
                around -= open.pop().unwrap_or_default();
                here = 0;
            }
            _ => {}
        }
        if around + here > DEEPEST {
            return Some(token.span().start());
        }
    }
    None
}

fn of_toml(value: DeValue<'_>) -> Tree {
    match value {
        DeValue::String(text) => Tree::Text(text.into_owned()),
        DeValue::Integer(number) => {
            let value = i64::from_str_radix(number.as_str(), number.radix());
            value.map_or_else(|_| Tree::Huge(number.to_string()), Tree::Int)
        }
        DeValue::Float(number) => number.as_str().parse().map_or(Tree::Float(f64::NAN), Tree::Float),
        DeValue::Boolean(value) => Tree::Bool(value),
        DeValue::Datetime(date) => Tree::Date(date.to_string()),
        DeValue::Array(items) => {
            Tree::List(items.into_iter().map(|item| of_toml(item.into_inner())).collect())
        }
        DeValue::Table(table) => {
            let mut entries: Vec<_> = table.into_iter().collect();
            entries.sort_by_key(|(key, _)| key.span().start);
            let entries = entries.into_iter();
            Tree::Table(
                entries
                    .map(|(key, value)| (key.into_inner().into_owned(), of_toml(value.into_inner())))
                    .collect(),
            )
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values)
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Null => serializer.serialize_unit(),
            Tree::Bool(value) => serializer.serialize_bool(*value),
            Tree::Int(value) => serializer.serialize_i64(*value),
            Tree::Huge(digits) => match digits.parse() {
                Ok(number) => serializer.serialize_u64(number),
                Err(_) => serializer.serialize_str(digits),
            },
            Tree::Float(value) => serializer.serialize_f64(*value),
            Tree::Text(text) | Tree::Date(text) => serializer.serialize_str(text),
            Tree::List(items) => serializer.collect_seq(items),
            Tree::Table(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(i64::try_from(value).map_or_else(|_| Tree::Huge(value.to_string()), Tree::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Tree, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(Tree::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut table = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            table.push(entry);
        }
        Ok(Tree::Table(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_order() {
        let toml = Tree::from_toml("z = 1\na = [true, 2.5]\n[t]\nb = 'x'\na = 2024-01-01\n").unwrap();
        let table = |entries: Vec<(&str, Tree)>| {
            Tree::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        let t = table(vec![("b", Tree::Text("x".into())), ("a", Tree::Date("2024-01-01".into()))]);
        let a = Tree::List(vec![Tree::Bool(true), Tree::Float(2.5)]);
        assert_eq!(toml, table(vec![("z", Tree::Int(1)), ("a", a), ("t", t)]));

        let json = Tree::from_json(r#"{"z": null, "a": -1, "z": 9223372036854775808}"#).unwrap();
        let huge = Tree::Huge("9223372036854775808".into());
        assert_eq!(json, table(vec![("z", Tree::Null), ("a", Tree::Int(-1)), ("z", huge)]));
    }

    #[test]
    fn numbers_of_all_spellings() {
        let text = "a = 0xff\nb = 1_000\nd = 99999999999999999999\ne = -inf";
        let Tree::Table(entries) = Tree::from_toml(text).unwrap() else { panic!() };
        let values: Vec<Tree> = entries.into_iter().map(|(_, value)| value).collect();
        let huge = Tree::Huge("99999999999999999999".into());
        assert_eq!(values, [Tree::Int(255), Tree::Int(1000), huge, Tree::Float(f64::NEG_INFINITY)]);
    }

    #[test]
    fn syntax_errors_say_where() {
        let toml = Tree::from_toml("a = 1\nb = = 2\n").unwrap_err();
        assert_eq!((toml.line, toml.column), (2, 5), "{toml:?}");
        let json = Tree::from_json("{\"a\": 1,\n  b}").unwrap_err();
        assert_eq!((json.line, json.column), (2, 3), "{json:?}");
        assert!(!json.message.contains("at line"), "{json:?}");
    }

    #[test]
    fn nothing_nests_too_deeply() {
        let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        for json in [deep("[", "]"), deep("{\"a\":", "}"), "[".repeat(100_000)] {
            Tree::from_json(&json).unwrap_err();
        }
        for toml in [deep("[", "]"), deep("{a=", "}")] {
            Tree::from_toml(&format!("a = {toml}")).unwrap_err();
        }
        Tree::from_toml(&format!("{}b = 1", "a.".repeat(100_000))).unwrap_err();
        // Within the parser's own limits, 6,000 levels.
        let key = format!("{}a", "a.".repeat(77));
        let nested = format!("{}1{}", format!("{{{key} = ").repeat(76), "}".repeat(76));
        Tree::from_toml(&format!("{key} = {nested}")).unwrap_err();

        let key = format!("{}a", "a.".repeat(DEEPEST));
        Tree::from_toml(&format!("{key} = 1\n[{}a]\n{key} = 1", "b.".repeat(DEEPEST - 1))).unwrap();
        Tree::from_toml(&format!("a.{key} = 1")).unwrap_err();
        Tree::from_toml(&format!("b = {{ c = 1.5, {key} = 1}}")).unwrap_err();
        // What is no key nests nothing.
        Tree::from_toml(&format!("a = '{0}' # {0}\nb = [1.5{1}]", ".".repeat(99), ", 2.5".repeat(99)))
            .unwrap();
        Tree::from_toml(&format!("a = ']{0}'\nb = \"\"\"]{0}\n]\"\"\"", "}".repeat(99))).unwrap();
    }
}
