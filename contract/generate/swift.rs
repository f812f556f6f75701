//! How does Swift declare plain data? As structs that know what they are in JSON, and enums of closed sets.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;

use crate::api::objects;
use crate::table::{Maker, classes};
use crate::types::{Class, Field, Kind, Set, camel};

/// What errors stand for.
const THROWN: [&str; 2] = ["Failure", "FailureDetail"];

/// What Swift or Apple's frameworks have those names for.
const RENAMED: [(&str, &str); 4] =
    [("Edge", "FeatureEdge"), ("Label", "FeatureLabel"), ("Link", "NodeLink"), ("Task", "ModelTask")];

/// Fields for which Swift has types that are written by hand.
const TYPED: [(&str, &str, &str); 1] = [("ChatAnswer", "message", "ChatMessage")];

/// Names in the documentation that are other people's.
const FOREIGN: [&str; 2] = ["json_schema", "model_type"];

/// What fields and methods are called.
static NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let fields = classes().into_iter().flat_map(|class| class.fields).map(|field| field.key);
    let rows = objects().into_iter().flat_map(|object| object.rows);
    fields.chain(rows.filter_map(|row| row.names.last().cloned().flatten())).collect()
});

/// Words of the language that names are, too.
const WORDS: [&str; 6] = ["default", "extension", "in", "internal", "repeat", "static"];

/// The declarations, with their text.
pub(crate) fn files(classes: &[Class]) -> Vec<(&'static str, String)> {
    let head = "// What crosses between Swift and the library? Plain data.\n//\n\
        // Written by `cargo run -p skulk-contract-generate` from the library's own declarations.\n";
    let data = classes.iter().filter(|class| !THROWN.contains(&class.name.as_str()));
    let mut sets = Vec::<&Set>::new();
    for field in classes.iter().flat_map(|class| &class.fields) {
        if let Some(set) = set(&field.kind)
            && !sets.iter().any(|other| other.name == set.name)
        {
            sets.push(set);
        }
    }
    let sets = sets.into_iter().map(closed).chain([errors()]);
    let body: String = data.map(declaration).chain(sets).collect();
    vec![("skulk-swift/Sources/Skulk/Contract.swift", format!("{head}{body}"))]
}

/// The set whose texts a field holds.
fn set(kind: &Kind) -> Option<&Set> {
    match kind {
        Kind::Choice(set) | Kind::Switch(set) => Some(set),
        Kind::List(item) | Kind::Set(item) | Kind::Map(item) | Kind::Numbered(item) | Kind::Option(item) => {
            set(item)
        }
        _ => None,
    }
}

fn declaration(class: &Class) -> String {
    let (name, doc) = (renamed(&class.name), comment(&class.doc, ""));
    if !class.kinds.is_empty() {
        return union(name, &doc, &class.kinds);
    }
    let fields: String = class
        .fields
        .iter()
        .map(|field| {
            format!(
                "{}    public var {}: {}\n",
                comment(&field.doc, "    "),
                word(&field.key),
                hint(class, field)
            )
        })
        .collect();
    let arguments: Vec<_> = class
        .fields
        .iter()
        .map(|field| format!("{}: {}{}", word(&field.key), hint(class, field), default(class, field)))
        .collect();
    let set: String =
        class.fields.iter().map(|field| format!("        self.{0} = {0}\n", word(&field.key))).collect();
    let doc_of_init = "    /// Of its fields.\n";
    let arguments = arguments.join(", ");
    let arguments = if arguments.len() > 100 {
        format!("\n        {}\n    ", arguments.replace(", ", ",\n        "))
    } else {
        arguments
    };
    let kinds: String = class.fields.iter().map(|field| kinds(class, field)).collect();
    format!(
        "\n{doc}public struct {name}: Codable, Sendable, Hashable {{\n{fields}\n{doc_of_init}    public init({arguments}) \
         {{\n{set}    }}\n{}}}\n{kinds}",
        coding(class)
    )
}

/// How what JSON has in another form, or may leave out, is read and written; nothing where all is as in JSON.
fn coding(class: &Class) -> String {
    let differs = class.fields.iter().any(|field| matches!(field.kind, Kind::OneOf(_)) || spans(&field.kind));
    if !differs && !class.fields.iter().any(|field| may_lack(class, field)) {
        return String::new();
    }
    let own = |field: &&Field| !matches!(field.kind, Kind::OneOf(_));
    let keys: Vec<_> = class.fields.iter().filter(own).map(|field| word(&field.key)).collect();
    let (mut reads, mut writes) = (String::new(), String::new());
    for field in &class.fields {
        let key = word(&field.key);
        let may = class.maker == Maker::Options || matches!(field.kind, Kind::Option(_));
        let suffix = if may { "IfPresent" } else { "" };
        let kind = match &field.kind {
            Kind::Option(kind) => kind,
            kind => kind,
        };
        let (read, write) = match kind {
            Kind::OneOf(_) => (
                format!("try {}(from: decoder)", name_of(class, field)),
                format!("try {key}.encode(to: encoder)"),
            ),
            kind if spans(kind) => {
                let (many, mark) = (matches!(kind, Kind::List(_)), if may { "?" } else { "" });
                let (of, read, write) = match many {
                    true => (
                        "[Span]",
                        format!("{mark}.map {{ try $0.range }}"),
                        format!("{key}{mark}.map(Span.init)"),
                    ),
                    false if may => ("Span", "?.range".to_owned(), format!("{key}.map(Span.init)")),
                    false => ("Span", ".range".to_owned(), format!("Span({key})")),
                };
                (
                    format!("try values.decode{suffix}({of}.self, forKey: .{key}){read}"),
                    format!("try values.encode{suffix}({write}, forKey: .{key})"),
                )
            }
            kind => {
                let of = type_of(class, field, kind);
                let read = match field.default.as_ref().filter(|_| may_lack(class, field)) {
                    None => format!("try values.decode{suffix}({of}.self, forKey: .{key})"),
                    Some(value) => {
                        let value = literal(kind, value);
                        format!("try values.decodeIfPresent({of}.self, forKey: .{key}) ?? {value}")
                    }
                };
                (read, format!("try values.encode{suffix}({key}, forKey: .{key})"))
            }
        };
        reads.push_str(&format!("        {key} = {read}\n"));
        writes.push_str(&format!("        {write}\n"));
    }
    let read = format!(
        "\n    /// Reads what JSON has of it.\n    public init(from decoder: any Decoder) throws {{\n        \
         let values = try decoder.container(keyedBy: CodingKeys.self)\n{reads}    }}\n"
    );
    if !differs {
        return read;
    }
    format!(
        "\n    enum CodingKeys: CodingKey {{\n        case {}\n    }}\n{read}\n    \
         /// Writes it as JSON has it.\n    public func encode(to encoder: any Encoder) throws {{\n        \
         var values = encoder.container(keyedBy: CodingKeys.self)\n{writes}    }}\n",
        keys.join(", ")
    )
}

/// Whether JSON may leave out a field that is something then.
fn may_lack(class: &Class, field: &Field) -> bool {
    class.maker != Maker::Options && field.default.as_ref().is_some_and(|value| !value.is_null())
}

fn spans(kind: &Kind) -> bool {
    match kind {
        Kind::Range => true,
        Kind::List(item) | Kind::Option(item) => spans(item),
        _ => false,
    }
}

/// The enum of a field that is one of several classes.
fn kinds(class: &Class, field: &Field) -> String {
    let Kind::OneOf(names) = &field.kind else { return String::new() };
    let doc = "/// One of several kinds, whose fields stand among its owner's in JSON.\n";
    let kinds: Vec<_> = names.iter().map(|of| (lower(of), of.clone())).collect();
    union(&name_of(class, field), doc, &kinds)
}

/// An enum of several classes, each with its `type`.
fn union(name: &str, doc: &str, kinds: &[(String, String)]) -> String {
    let (mut cases, mut reads, mut writes) = (String::new(), String::new(), String::new());
    for (tag, of) in kinds {
        let case = case_name(tag);
        cases.push_str(&format!("    /// This kind.\n    case {case}({of})\n"));
        reads.push_str(&format!("        case \"{tag}\": self = .{case}(try {of}(from: decoder))\n"));
        writes.push_str(&format!(
            "        case .{case}(let own):\n            try values.encode(\"{tag}\", forKey: .type)\n            \
             try own.encode(to: encoder)\n"
        ));
    }
    format!(
        "\n{doc}public enum {name}: Codable, Sendable, Hashable {{\n{cases}\n    enum CodingKeys: CodingKey {{\n        \
         case type\n    }}\n\n    /// Reads what JSON has of it.\n    public init(from decoder: any Decoder) throws {{\n        \
         let values = try decoder.container(keyedBy: CodingKeys.self)\n        \
         switch try values.decode(String.self, forKey: .type) {{\n{reads}        case let other:\n            \
         throw DecodingError.dataCorruptedError(\n                \
         forKey: .type, in: values, debugDescription: \"there is no kind `\\(other)`\")\n        }}\n    }}\n\n    \
         /// Writes it as JSON has it.\n    public func encode(to encoder: any Encoder) throws {{\n        \
         var values = encoder.container(keyedBy: CodingKeys.self)\n        switch self {{\n{writes}        }}\n    }}\n}}\n"
    )
}

fn closed(set: &Set) -> String {
    let case = |(text, doc): &(String, String)| {
        let name = case_name(text);
        let doc = if doc.is_empty() { format!("`{text}`.") } else { doc.clone() };
        let value = if name == *text { String::new() } else { format!(" = \"{text}\"") };
        format!("{}    case {}{value}\n", comment(&doc, "    "), word(&name))
    };
    let cases: String = set.values.iter().map(case).collect();
    format!(
        "\n{}public enum {}: String, Codable, Sendable, Hashable, CaseIterable {{\n{cases}}}\n",
        comment(&set.doc, ""),
        renamed(&set.name)
    )
}

/// The kinds of errors, which are declared apart.
fn errors() -> String {
    let kinds: Vec<_> = skulk_contract::kinds().collect();
    let cases: String = kinds
        .iter()
        .map(|(name, code)| format!("    /// `{code}`.\n    case {} = \"{name}\"\n", word(&lower(name))))
        .collect();
    let codes: String =
        kinds.iter().map(|(name, code)| format!("        case .{}: \"{code}\"\n", lower(name))).collect();
    format!(
        "\n/// What class of failure an error is: the same kinds and codes in every language.\n\
         public enum ErrorKind: String, Codable, Sendable, Hashable, CaseIterable {{\n{cases}\n    \
         /// The stable, dotted code of this kind.\n    public var code: String {{\n        switch self {{\n{codes}        \
         }}\n    }}\n}}\n"
    )
}

fn renamed(name: &str) -> &str {
    RENAMED.iter().find(|(own, _)| *own == name).map_or(name, |(_, own)| own)
}

/// A text as the name of a case. `none` would be taken for a missing value.
fn case_name(text: &str) -> String {
    if text == "none" {
        return "nothing".to_owned();
    }
    let mut words = text.split(['_', '-']);
    let first = words.next().map(lower).unwrap_or_default();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

fn lower(name: &str) -> String {
    name[..1].to_lowercase() + &name[1..]
}

fn word(name: &str) -> String {
    if WORDS.contains(&name) { format!("`{name}`") } else { name.to_owned() }
}

fn name_of(class: &Class, field: &Field) -> String {
    format!("{}{}{}", class.name, field.key[..1].to_uppercase(), &field.key[1..])
}

fn hint(class: &Class, field: &Field) -> String {
    let own = type_of(class, field, &field.kind);
    if class.maker == Maker::Options { format!("{own}?") } else { own }
}

fn type_of(class: &Class, field: &Field, kind: &Kind) -> String {
    let of = |kind| type_of(class, field, kind);
    let typed = TYPED.iter().find(|(owner, key, _)| (*owner, *key) == (&*class.name, &*field.key));
    if let Some((.., name)) = typed {
        return (*name).to_owned();
    }
    match kind {
        Kind::Bool => "Bool".to_owned(),
        Kind::Int => "Int".to_owned(),
        Kind::Float => "Double".to_owned(),
        Kind::Text | Kind::Path => "String".to_owned(),
        Kind::Range => "Range<Int>".to_owned(),
        Kind::Choice(set) | Kind::Switch(set) => renamed(&set.name).to_owned(),
        Kind::Json => "JSONValue".to_owned(),
        Kind::Class(name) => renamed(name).to_owned(),
        Kind::List(item) => format!("[{}]", of(item)),
        Kind::Set(item) => format!("Set<{}>", of(item)),
        // Its keys have an order, which a dictionary does not keep.
        Kind::Map(item) if matches!(**item, Kind::Json) => "JSONValue".to_owned(),
        Kind::Map(item) => format!("[String: {}]", of(item)),
        Kind::Numbered(item) => format!("[Int: {}]", of(item)),
        Kind::Option(kind) => format!("{}?", of(kind)),
        Kind::OneOf(_) => name_of(class, field),
    }
}

/// What an argument is where it is left out.
fn default(class: &Class, field: &Field) -> String {
    if class.maker == Maker::Options {
        return " = nil".to_owned();
    }
    field.default.as_ref().map(|value| format!(" = {}", literal(&field.kind, value))).unwrap_or_default()
}

fn literal(kind: &Kind, value: &Value) -> String {
    match (value, kind) {
        (Value::Null, _) => "nil".to_owned(),
        (Value::Object(_), Kind::Class(name)) => format!("{name}()"),
        (Value::Object(_), _) => "[:]".to_owned(),
        (Value::String(text), Kind::Choice(_)) => format!(".{}", case_name(text)),
        (Value::Array(items), Kind::List(of) | Kind::Set(of)) => {
            let items: Vec<_> = items.iter().map(|item| literal(of, item)).collect();
            format!("[{}]", items.join(", "))
        }
        (value, Kind::Option(kind)) => literal(kind, value),
        (value, _) => value.to_string(),
    }
}

/// Documentation with names as Swift spells them.
fn spelled(doc: &str) -> String {
    let own = |(at, part): (usize, &str)| {
        let name = camel(part);
        // Every other part stands in backticks.
        let is_own = at % 2 == 1 && !FOREIGN.contains(&part) && NAMES.contains(&name);
        if is_own { name } else { part.to_owned() }
    };
    doc.split('`').enumerate().map(own).collect::<Vec<_>>().join("`")
}

/// Documentation, wrapped at 120 columns.
fn comment(doc: &str, indent: &str) -> String {
    let doc = spelled(&doc.replace("`None`", "`nil`").replace("`null`", "`nil`"));
    let (mut lines, mut length) = (format!("{indent}///"), indent.len() + 3);
    for word in doc.split(' ') {
        if length + 1 + word.len() > 120 {
            lines.push_str(&format!("\n{indent}///"));
            length = indent.len() + 3;
        }
        lines.push(' ');
        lines.push_str(word);
        length += 1 + word.len();
    }
    lines + "\n"
}
