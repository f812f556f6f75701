//! What is a declaration made of? Classes with fields of a few types, read from JSON Schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::table::{Maker, Room};

/// Plain data of one name.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) room: Room,
    pub(crate) maker: Maker,
    /// Its value of `type`, where it is one of several kinds.
    pub(crate) tag: Option<String>,
    pub(crate) fields: Vec<Field>,
    /// Where it stands for one of several kinds, their tags and classes. It has no fields of its own.
    pub(crate) kinds: Vec<(String, String)>,
}

/// A field of a class.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// Its name in JSON, in camelCase.
    pub(crate) key: String,
    pub(crate) doc: String,
    pub(crate) kind: Kind,
    /// What it is where hosts leave it out; none: they must not.
    pub(crate) default: Option<Value>,
}

/// What a field holds.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Bool,
    Int,
    Float,
    Text,
    Path,
    /// Whole numbers from `start` to `end`, which is not among them.
    Range,
    /// One of these texts.
    Choice(Set),
    /// One of these texts, or whether at all.
    Switch(Set),
    /// Whatever JSON can say.
    Json,
    Class(String),
    List(Box<Kind>),
    Set(Box<Kind>),
    /// By text.
    Map(Box<Kind>),
    /// By whole number.
    Numbered(Box<Kind>),
    Option(Box<Kind>),
    /// One of these classes, whose fields stand among the owner's, with their tag.
    OneOf(Vec<String>),
}

/// A closed set.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    /// Its name in Rust.
    pub(crate) name: String,
    pub(crate) doc: String,
    /// Its texts, each with what it means.
    pub(crate) values: Vec<(String, String)>,
}

impl Set {
    /// Its texts in quotation marks.
    pub(crate) fn quoted(&self) -> Vec<String> {
        self.values.iter().map(|(name, _)| format!("\"{name}\"")).collect()
    }
}

/// JSON Schema of all types, and what those are called that have a name in every language.
pub(crate) struct Definitions {
    schemas: Map<String, Value>,
    names: BTreeMap<String, &'static str>,
}

impl Definitions {
    pub(crate) fn new(schemas: Map<String, Value>, names: BTreeMap<String, &'static str>) -> Self {
        Self { schemas, names }
    }

    /// The class of a definition; of one that is one of several kinds, a class for each.
    pub(crate) fn classes(&self, name: &str, definition: &str, room: Room, maker: Maker) -> Vec<Class> {
        let schema = &self.schemas[definition];
        let class = |name: &str, schema: &Value| Class {
            name: name.to_owned(),
            doc: text(schema),
            room,
            maker,
            tag: tag(schema),
            fields: self.fields(schema, maker),
            kinds: vec![],
        };
        match schema.get("properties") {
            Some(_) => vec![class(name, schema)],
            // Those that the library tells, which kinds of whom is not known by their names alone.
            None if maker == Maker::Library => {
                let named = |kind| format!("{}Event", title(&camel(&tag(kind).unwrap())));
                let own: Vec<_> = kinds(schema).map(|kind| class(&named(kind), kind)).collect();
                let tags = own.iter().map(|class| (class.tag.clone().unwrap(), class.name.clone())).collect();
                let any = Class { kinds: tags, fields: vec![], tag: None, ..class(name, schema) };
                own.into_iter().chain([any]).collect()
            }
            None => kinds(schema).map(|kind| class(&title(&tag(kind).unwrap()), kind)).collect(),
        }
    }

    fn fields(&self, schema: &Value, maker: Maker) -> Vec<Field> {
        let mut fields: Vec<Field> = schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "type" || tag(schema).is_none())
            .map(|(key, schema)| {
                let kind = match self.kind(schema) {
                    // Of options nothing else is said where they may be left out.
                    Kind::Option(kind) if maker == Maker::Options => *kind,
                    kind => kind,
                };
                let missing = matches!(kind, Kind::Option(_)).then_some(Value::Null);
                let default = schema.get("default").cloned().or(missing);
                let default = default.filter(|_| maker != Maker::Library);
                Field { key: camel(key), doc: self.doc(schema), kind, default }
            })
            .collect();
        // Kinds that stand among the owner's fields.
        if schema.get("oneOf").is_some() && schema.get("properties").is_some() {
            let names = kinds(schema).map(|kind| title(&tag(kind).unwrap())).collect();
            let doc = "Over what: one of these, whose fields stand among these with its `type`.".to_owned();
            let at = fields.iter().position(|field| field.default.is_some()).unwrap_or(fields.len());
            fields.insert(at, Field { key: "kind".to_owned(), doc, kind: Kind::OneOf(names), default: None });
        }
        fields
    }

    /// What a field is; of a closed set also what its names mean, where they do not say so themselves.
    fn doc(&self, schema: &Value) -> String {
        let definition = |schema: &Value| {
            let path = schema.get("$ref")?.as_str()?;
            self.schemas.get(path.rsplit('/').next()?).cloned()
        };
        let first = schema.get("anyOf").map_or(schema, |any| &any[0]);
        let set = definition(first).unwrap_or_default();
        let meaning = |one: &Value| {
            let (name, doc) = (one.get("const")?.as_str()?, text(one));
            let doc = doc.trim_end_matches('.');
            let says = doc.to_lowercase().replace([' ', '-', '.'], "");
            (!doc.is_empty() && says != name.replace('_', "")).then(|| format!("`{name}`: {doc}"))
        };
        let meanings: Vec<_> =
            set.get("oneOf").and_then(Value::as_array).into_iter().flatten().filter_map(meaning).collect();
        match meanings.as_slice() {
            [] => text(schema),
            meanings if meanings.iter().map(String::len).sum::<usize>() > 200 => text(schema),
            meanings => format!("{} {}.", text(schema), meanings.join("; ")),
        }
    }

    fn kind(&self, schema: &Value) -> Kind {
        if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
            let definition = path.rsplit('/').next().unwrap();
            if definition.starts_with("Range") {
                return Kind::Range;
            }
            return match self.names.get(definition) {
                Some(name) => Kind::Class((*name).to_owned()),
                None => match self.kind(&self.schemas[definition]) {
                    Kind::Choice(set) => Kind::Choice(Set { name: definition.to_owned(), ..set }),
                    Kind::Switch(set) => Kind::Switch(Set { name: definition.to_owned(), ..set }),
                    kind => kind,
                },
            };
        }
        if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
            let [kind, null] = any.as_slice() else { panic!("expected one kind or null: {schema}") };
            assert_eq!(null["type"], "null", "{schema}");
            return Kind::Option(Box::new(self.kind(kind)));
        }
        if let Some(values) = values(schema) {
            let set = Set { name: String::new(), doc: text(schema), values };
            let switch = schema.get("format").is_some_and(|format| format == "switch");
            return if switch { Kind::Switch(set) } else { Kind::Choice(set) };
        }
        if schema == &Value::Bool(true) {
            return Kind::Json;
        }
        if let Some([kind, null]) = schema["type"].as_array().map(Vec::as_slice) {
            assert_eq!(null, "null", "{schema}");
            let mut schema = schema.clone();
            schema["type"] = kind.clone();
            return Kind::Option(Box::new(self.kind(&schema)));
        }
        match schema["type"].as_str().unwrap_or_else(|| panic!("expected a type: {schema}")) {
            "boolean" => Kind::Bool,
            "integer" => Kind::Int,
            "number" => Kind::Float,
            "string" if schema.get("format").is_some_and(|format| format == "path") => Kind::Path,
            "string" => Kind::Text,
            "array" if schema.get("uniqueItems").is_some() => {
                Kind::Set(Box::new(self.kind(&schema["items"])))
            }
            "array" => Kind::List(Box::new(self.kind(&schema["items"]))),
            "object" if schema.get("patternProperties").is_some() => {
                let items = schema["patternProperties"].as_object().unwrap();
                Kind::Numbered(Box::new(self.kind(items.values().next().unwrap())))
            }
            "object" => Kind::Map(Box::new(self.kind(&schema["additionalProperties"]))),
            other => panic!("expected a kind that is known: {other}"),
        }
    }
}

/// A closed set's texts, each with what it means.
fn values(schema: &Value) -> Option<Vec<(String, String)>> {
    if let Some(names) = schema.get("enum") {
        return names
            .as_array()?
            .iter()
            .map(|name| Some((name.as_str()?.to_owned(), String::new())))
            .collect();
    }
    let value = |one: &Value| Some((one.get("const")?.as_str()?.to_owned(), text(one)));
    schema.get("oneOf")?.as_array()?.iter().map(value).collect()
}

fn kinds(schema: &Value) -> impl Iterator<Item = &Value> {
    schema["oneOf"].as_array().unwrap().iter()
}

fn tag(schema: &Value) -> Option<String> {
    schema["properties"].get("type")?.get("const")?.as_str().map(str::to_owned)
}

/// Documentation without its links: their words stay.
fn text(schema: &Value) -> String {
    let doc = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let doc = doc.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    let mut words = String::new();
    let mut rest = doc.as_str();
    while let Some(start) = rest.find('[') {
        let Some((label, behind)) = rest[start + 1..].split_once(']') else { break };
        words.push_str(&rest[..start]);
        // An interval, as in `[0, 1)`, is no link.
        let (label, behind) = match behind.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, behind)) => (label.to_owned(), behind),
            None if label.starts_with('`') => (label.to_owned(), behind),
            None => (format!("[{label}]"), behind),
        };
        words.push_str(&label);
        rest = behind;
    }
    words + rest
}

/// `snake_case` as camelCase.
pub(crate) fn camel(name: &str) -> String {
    let mut words = name.split('_');
    words.next().into_iter().map(str::to_owned).chain(words.map(title)).collect()
}

fn title(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
