//! What did a host give? Options by name, each of one kind, taken one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::ops::Range;
use std::str::FromStr;

use serde_json::{Map, Value};
use skulk::browse::{Band, SelectOrder};
use skulk::extract::VindexStorage;
use skulk::plan::{Inventory, NodeId, Sharding, Strictness, Transport};
use skulk::remote::wire::WireType;
use skulk::vindex::{SliceCopy, SlicePreset, VindexLevel, VindexPart};
use skulk::{
    ByteSize, EngineId, Error, ErrorKind, KvType, Memory, OnToolFailure, Precision, Speculate, WhenFull,
};

use crate::functions::sound;
use crate::words::as_written;

/// How a language spells the names of options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// `maxTokens`.
    Camel,
    /// `max_tokens`.
    Snake,
}

impl Spelling {
    /// A name as this language spells it.
    pub fn of(self, name: &str) -> String {
        match self {
            Self::Snake => name.to_owned(),
            Self::Camel => {
                let mut words = name.split('_').map(str::to_owned);
                let first = words.next();
                let title = |mut word: String| {
                    word.get_mut(..1).map(str::make_ascii_uppercase);
                    word
                };
                first.into_iter().chain(words.map(title)).collect()
            }
        }
    }

    /// A name of JSON's, which is `likeThis`, as this language spells it.
    pub(crate) fn of_json(self, name: &str) -> String {
        let small = |letter: char| letter.to_lowercase().next().unwrap_or(letter);
        let letters = name.chars().flat_map(|letter| match (self, letter.is_uppercase()) {
            (Self::Snake, true) => [Some('_'), Some(small(letter))],
            _ => [None, Some(letter)],
        });
        letters.flatten().collect()
    }
}

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

/// `Ok` where the options that were given are all among these.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for the first one that is not, with the closest one that there is.
pub fn expect_among<'a>(mut given: impl Iterator<Item = &'a String>, names: &[String]) -> skulk::Result<()> {
    let Some(unknown) = given.find(|name| !names.contains(name)) else { return Ok(()) };
    let near = |name: &&String| strsim::jaro_winkler(name, unknown);
    let closest = names.iter().max_by(|a, b| near(a).total_cmp(&near(b)));
    let hint = match closest.filter(|name| near(name) > 0.8) {
        Some(name) => format!("`{name}` is the closest option"),
        None if names.is_empty() => "leave it out: there are none here".to_owned(),
        None => format!("options are {}", names.join(", ")),
    };
    let shown = clip(unknown);
    Err(as_written(invalid(&shown, format!("there is no option `{shown}`")).with_hint(hint)))
}

/// Options that a host gave.
pub(crate) struct Given {
    fields: Map<String, Value>,
    spelling: Spelling,
}

impl Given {
    /// Options that are all among these `names`.
    pub(crate) fn new(
        fields: Map<String, Value>,
        spelling: Spelling,
        names: &[&'static str],
    ) -> skulk::Result<Self> {
        let names: Vec<_> = names.iter().map(|name| spelling.of(name)).collect();
        expect_among(fields.keys(), &names)?;
        Ok(Self { fields, spelling })
    }

    /// The option of this name; `None` where it is left out, or null.
    pub(crate) fn take<T: Leaf>(&mut self, name: &'static str) -> skulk::Result<Option<T>> {
        let name = self.spelling.of(name);
        match self.fields.remove(&name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::read_as(&name, &value, self.spelling)?.map(Some).ok_or_else(|| {
                invalid(&name, format!("expected {}, found {}", T::expected(), shown(&value)))
            }),
        }
    }
}

fn invalid(field: &str, message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message).with("field", field)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", clip(text)),
        value => clip(&value.to_string()),
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A kind of value.
pub(crate) trait Leaf: Sized {
    /// What it is, in words.
    fn expected() -> String;

    /// The value, if it is of this kind.
    fn read(value: &Value) -> Option<Self>;

    /// The same of kinds that have names in them, which this language spells; what is wrong within is an error about option
    /// `name`.
    fn read_as(_name: &str, value: &Value, _spelling: Spelling) -> skulk::Result<Option<Self>> {
        Ok(Self::read(value))
    }
}

impl Leaf for bool {
    fn expected() -> String {
        "true or false".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Leaf for String {
    fn expected() -> String {
        "a text".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl Leaf for f32 {
    fn expected() -> String {
        "a number".to_owned()
    }

    /// What JSON cannot say is a text.
    fn read(value: &Value) -> Option<Self> {
        match value.as_str() {
            Some("Infinity") => Some(Self::INFINITY),
            Some("-Infinity") => Some(Self::NEG_INFINITY),
            Some("NaN") => Some(Self::NAN),
            Some(_) => None,
            #[expect(clippy::cast_possible_truncation, reason = "rounded, as every number of this type")]
            None => value.as_f64().map(|value| value as Self),
        }
    }
}

/// Whole numbers, also as floats, as some hosts have only those.
macro_rules! whole {
    ($($type:ty)*) => {$(
        impl Leaf for $type {
            fn expected() -> String {
                format!("a whole number from {} to {}", Self::MIN, Self::MAX)
            }

            fn read(value: &Value) -> Option<Self> {
                /// From here on not every whole number is a float.
                const FIRST_GAP: f64 = 9_007_199_254_740_992.0;
                let exact = || value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() <= FIRST_GAP);
                #[expect(clippy::cast_possible_truncation, reason = "just checked")]
                let signed = || value.as_i64().or_else(|| exact().map(|n| n as i64));
                value.as_u64().map_or_else(|| signed()?.try_into().ok(), |n| n.try_into().ok())
            }
        }
    )*};
}

whole!(u16 u32 u64 usize i32);

/// What is another kind's value under a name of its own.
macro_rules! named {
    ($($type:ty = $new:expr, $inner:ty;)*) => {$(
        impl Leaf for $type {
            fn expected() -> String {
                <$inner>::expected()
            }

            fn read(value: &Value) -> Option<Self> {
                <$inner>::read(value).map($new)
            }
        }
    )*};
}

named! {
    ByteSize = ByteSize, u64;
    EngineId = |name: String| EngineId::new(&name), String;
    NodeId = NodeId::new, String;
}

/// Sets of names.
macro_rules! sets {
    ($($type:ty)*) => {$(
        impl Leaf for $type {
            fn expected() -> String {
                let mut names: Vec<_> = Self::ALL.iter().map(|value| format!("`{value}`")).collect();
                let last = names.pop().unwrap_or_default();
                format!("{} or {last}", names.join(", "))
            }

            fn read(value: &Value) -> Option<Self> {
                value.as_str()?.parse().ok()
            }
        }
    )*};
}

sets! {
    Band KvType Memory OnToolFailure Precision SelectOrder Sharding SliceCopy SlicePreset Speculate Strictness Transport VindexLevel VindexPart
    VindexStorage WhenFull WireType
}

/// What stands as JSON in the text of an option, so that keys keep their order, and problems their names. Hosts that do
/// not care give the value itself.
macro_rules! texts {
    ($($(#[doc = $doc:literal])* $name:ident = $type:ty;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(pub String);

        impl Leaf for $name {
            fn expected() -> String {
                "JSON".to_owned()
            }

            fn read(value: &Value) -> Option<Self> {
                Some(Self(value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$type>::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                <$type>::schema_id()
            }

            fn inline_schema() -> bool {
                <$type>::inline_schema()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$type>::json_schema(generator)
            }
        }
    )*};
}

texts! {
    /// A card.
    Card = skulk::ModelCard;
    /// A list of objects.
    Objects = Vec<Map<String, Value>>;
    /// An object.
    Object = Map<String, Value>;
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(pub skulk::remote::Address);

impl Leaf for Address {
    fn expected() -> String {
        "`http://host:port`, `https://host:port`, `grpc://host:port`, `grpcs://host:port` or `unix:///path`"
            .to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_str()?.parse().ok().map(Self)
    }

    fn read_as(name: &str, value: &Value, _: Spelling) -> skulk::Result<Option<Self>> {
        let Some(text) = value.as_str() else { return Ok(None) };
        // The library says what is wrong with it.
        let wrong = |e: Error| {
            let hint = e.hint().unwrap_or_default().to_owned();
            invalid(name, e.message().to_owned()).with_hint(hint)
        };
        text.parse().map(|address| Some(Self(address))).map_err(wrong)
    }
}

/// Where a file or a folder is.
#[derive(Debug)]
pub struct FilePath(pub std::path::PathBuf);

impl Leaf for FilePath {
    fn expected() -> String {
        "a path".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(|path| Self(path.into()))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for FilePath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FilePath".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "path" })
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Address {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        String::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

impl Leaf for Inventory {
    fn expected() -> String {
        "an inventory".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        serde_json::from_value(value.clone()).ok()
    }

    fn read_as(name: &str, value: &Value, spelling: Spelling) -> skulk::Result<Option<Self>> {
        sound(name, value.clone(), spelling).map(Some)
    }
}

impl Leaf for Range<usize> {
    fn expected() -> String {
        "a range with `start` and `end`".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        let fields = value.as_object().filter(|fields| fields.len() == 2)?;
        Some(usize::read(fields.get("start")?)?..usize::read(fields.get("end")?)?)
    }
}

fn several<T: Leaf, C: FromIterator<T>>(value: &Value) -> Option<C> {
    value.as_array()?.iter().map(T::read).collect()
}

impl<T: Leaf> Leaf for Vec<T> {
    fn expected() -> String {
        format!("a list, of each item {}", T::expected())
    }

    fn read(value: &Value) -> Option<Self> {
        several(value)
    }

    fn read_as(name: &str, value: &Value, spelling: Spelling) -> skulk::Result<Option<Self>> {
        let Some(items) = value.as_array() else { return Ok(None) };
        items.iter().map(|item| T::read_as(name, item, spelling)).collect()
    }
}

impl<T: Leaf + Ord> Leaf for BTreeSet<T> {
    fn expected() -> String {
        Vec::<T>::expected()
    }

    fn read(value: &Value) -> Option<Self> {
        several(value)
    }
}

impl<K, T> Leaf for BTreeMap<K, T>
where
    K: Leaf + FromStr + Ord + Debug + Display,
    T: Leaf,
{
    fn expected() -> String {
        format!("a map: from {} to {}", K::expected(), T::expected())
    }

    fn read(value: &Value) -> Option<Self> {
        // Of keys like `+1` and `01` others would be the same.
        let key = |text: &String| text.parse().ok().filter(|key: &K| key.to_string() == *text);
        value.as_object()?.iter().map(|(text, value)| Some((key(text)?, T::read(value)?))).collect()
    }
}
