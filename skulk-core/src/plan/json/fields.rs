//! Is this JSON what was asked for? Values with the path at which they stand, taken one by one.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};

/// Characters of a name or value that a message shows.
const SHOWN: usize = 64;

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Place<'a> {
    value: &'a Value,
    path: String,
}

/// An object all of whose fields are known, in camelCase or snake_case.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Place<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { value, path: String::new() }
    }

    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// What is wrong here, and with what.
    pub(super) fn wrong(&self, expected: &str) -> Error {
        self.fault(format!("expected {expected}, found {}", show(self.value)))
    }

    /// What is wrong here, in full.
    pub(super) fn fault(&self, message: String) -> Error {
        fault(&self.path, message)
    }

    /// `None` for `null`.
    pub(super) fn some(self) -> Option<Self> {
        (!self.value.is_null()).then_some(self)
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    /// A text that is not empty.
    pub(super) fn name(&self) -> Result<&'a str> {
        let name = self.text()?;
        if name.is_empty() { Err(self.wrong("a name")) } else { Ok(name) }
    }

    pub(super) fn flag(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// A whole number from 0 to `largest`.
    pub(super) fn number(&self, largest: u64) -> Result<u64> {
        let number = self.value.as_u64().filter(|number| *number <= largest);
        number.ok_or_else(|| self.wrong(&format!("a whole number from 0 to {largest}")))
    }

    /// The number of a layer, rank or expert, or how many there are.
    pub(super) fn index(&self) -> Result<usize> {
        let number = self.number(super::LARGEST)?;
        usize::try_from(number).map_err(|_| self.wrong("a smaller number"))
    }

    pub(super) fn list(&self) -> Result<impl ExactSizeIterator<Item = Place<'a>> + use<'a>> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let path = self.path.clone();
        Ok(list.iter().enumerate().map(move |(i, value)| Place { value, path: join(&path, &i.to_string()) }))
    }

    /// The entries of an object whose keys are names.
    pub(super) fn entries(&self) -> Result<impl ExactSizeIterator<Item = (&'a str, Place<'a>)> + use<'a>> {
        let map = self.value.as_object().ok_or_else(|| self.wrong("an object"))?;
        if map.contains_key("") {
            return Err(self.fault("expected names as keys, found an empty one".to_owned()));
        }
        let path = self.path.clone();
        Ok(map.iter().map(move |(key, value)| (key.as_str(), Place { value, path: join(&path, key) })))
    }

    /// What stands under the only key, where that is one of these.
    pub(super) fn tagged(&self, tags: &[&'static str]) -> Option<(&'static str, Self)> {
        let mut entries = self.value.as_object().filter(|map| map.len() == 1)?.iter();
        let (key, value) = entries.next()?;
        let tag = tags.iter().copied().find(|tag| tag == key)?;
        Some((tag, Self { value, path: join(&self.path, tag) }))
    }

    /// Whether it has such a field, in either spelling.
    pub(super) fn has(&self, name: &str) -> bool {
        let snake = snake_case(name);
        self.value.as_object().is_some_and(|map| map.contains_key(name) || map.contains_key(&snake))
    }

    /// Its fields, none but these.
    pub(super) fn fields(&self, names: &[&str]) -> Result<Fields<'a>> {
        let map = self.value.as_object().ok_or_else(|| self.wrong("an object"))?;
        let known: Vec<_> = names.iter().map(|name| (*name, snake_case(name))).collect();
        for key in map.keys() {
            if !known.iter().any(|(camel, snake)| key == camel || key == snake) {
                let message = format!("expected {}, found another field", names.join(", "));
                return Err(fault(&join(&self.path, key), message));
            }
        }
        for (camel, snake) in &known {
            if camel != snake && map.contains_key(*camel) && map.contains_key(snake) {
                let message = format!("expected either `{camel}` or `{snake}`, found both");
                return Err(fault(&join(&self.path, camel), message));
            }
        }
        Ok(Fields { map, path: self.path.clone() })
    }
}

impl<'a> Fields<'a> {
    /// A field that must be there.
    pub(super) fn get(&self, name: &str) -> Result<Place<'a>> {
        self.find(name).ok_or_else(|| {
            fault(&join(&self.path, name), format!("expected the field `{name}`, found nothing"))
        })
    }

    /// A field that may be left out or `null`.
    pub(super) fn find_some(&self, name: &str) -> Option<Place<'a>> {
        self.find(name)?.some()
    }

    fn find(&self, name: &str) -> Option<Place<'a>> {
        let value = self.map.get(name).or_else(|| self.map.get(&snake_case(name)))?;
        Some(Place { value, path: join(&self.path, name) })
    }
}

fn fault(path: &str, message: String) -> Error {
    let path = if path.is_empty() { "the whole" } else { path };
    Error::new(ErrorKind::PlacementInvalid, message)
        .with("field", path)
        .with_hint("give a placement as this library or Skulk 1.3 writes it")
}

/// Long keys are cut, for they would be copied into the path of all that is below them.
fn join(path: &str, key: &str) -> String {
    let key = cut(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("\"{}\"", cut(text)),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(map) => format!("an object of {}", map.len()),
    }
}

pub(super) fn snake_case(camel: &str) -> String {
    let mut snake = String::with_capacity(camel.len() + 4);
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}
