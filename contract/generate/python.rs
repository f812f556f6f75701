//! How does Python declare plain data? As dataclasses, which know what they are in JSON.

use serde_json::Value;

use crate::table::{Maker, Room};
use crate::types::{Class, Field, Kind};

/// Classes that methods are written for by hand, in `skulk._methods`, and whether these show them.
const METHODS: [(&str, bool); 15] = [
    ("ModelCard", true),
    ("Profile", false),
    ("Node", false),
    ("Cluster", false),
    ("Inventory", false),
    ("Event", false),
    ("Output", false),
    ("TextEvent", false),
    ("ReasoningEvent", false),
    ("ChatAnswer", false),
    ("SpeculationReport", true),
    ("ExtractReport", true),
    ("SliceReport", true),
    ("VerifyProblem", false),
    ("VerifyReport", true),
];

/// Classes of more fields than one can keep in order.
const KEYWORDS: [&str; 5] = ["ModelCard", "Accelerator", "LayerBytes", "Profile", "ConfigFacts"];

/// Fields that have another name in Python, where a method has theirs.
const RENAMED: [(&str, &str, &str); 1] = [("Cluster", "mesh", "mesh_speed")];

/// Lists of which nothing may change, in classes that the library makes.
const TUPLES: [(&str, &str); 3] =
    [("TensorInfo", "shape"), ("Profile", "builtinTools"), ("ConfigFacts", "architectures")];

/// Options that stand beside those of another call.
const BASES: [(&str, &str); 1] = [("ToolOptions", "ChatOptions")];

/// Fields that are too long to be shown, or say again what the others do.
const HIDDEN: [(&str, &str); 2] = [("Inventory", "layers"), ("VerifyProblem", "text")];

/// What exceptions stand for.
const RAISED: [&str; 2] = ["Failure", "FailureDetail"];

/// The modules, with their text.
pub(crate) fn files(classes: &[Class]) -> Vec<(&'static str, String)> {
    let package = |room| room != Room::Vindex;
    vec![
        (
            "skulk-py/python/skulk/_contract.py",
            module("What crosses between Python and the library? Plain data.", classes, package),
        ),
        (
            "skulk-py/python/skulk/vindex.py",
            module(
                "What is in a vindex, and what became of one? Data that `VindexReader`, `extract` and `verify_vindex` give.",
                classes,
                |room| !package(room),
            ),
        ),
        ("skulk-py/python/skulk/options.py", options(classes)),
    ]
}

fn module(doc: &str, classes: &[Class], here: impl Fn(Room) -> bool) -> String {
    let data = |class: &&Class| class.maker != Maker::Options && !RAISED.contains(&class.name.as_str());
    let classes: Vec<_> = classes.iter().filter(|class| here(class.room)).filter(data).collect();
    let body: String = classes.iter().map(|class| declaration(class)).collect();
    let mut names: Vec<_> = classes.iter().map(|class| format!("    \"{}\",\n", class.name)).collect();
    names.sort();
    let typing = match body.contains("ClassVar") {
        true => "from typing import Any, ClassVar, Literal\n",
        false => "from typing import Any, Literal\n",
    };
    let imports = [
        ("from pathlib import Path\n", "Path"),
        (typing, "Any"),
        ("\nfrom . import _methods\n", "_methods."),
    ];
    let imports: String =
        imports.iter().filter(|(_, word)| body.contains(word)).map(|(import, _)| *import).collect();
    let field = if body.contains("field(") { "dataclass, field" } else { "dataclass" };
    let infinite = if body.contains("_number(") {
        "\n\ndef _number(value: Any) -> float:\n    # JSON has no infinities and no NaN.\n    return float(\"nan\") if value is None else value\n"
    } else {
        ""
    };
    format!(
        "\"\"\"{doc}\n\nWritten by ``cargo run -p skulk-contract-generate`` from the library's own declarations.\n\"\"\"\n\n\
         from __future__ import annotations\n\nfrom dataclasses import {field}\n{imports}\n__all__ = [\n{}]\n{infinite}{body}",
        names.concat()
    )
}

/// Dictionaries of keyword arguments.
fn options(classes: &[Class]) -> String {
    let classes: Vec<_> = classes.iter().filter(|class| class.maker == Maker::Options).collect();
    let mut names: Vec<_> = classes.iter().map(|class| format!("    \"{}\",\n", class.name)).collect();
    names.sort();
    let body: String = classes
        .iter()
        .map(|class| {
            let field = |field: &Field| {
                let hint = format!("{} | None", given(class, field, &field.kind));
                let name = snake(&field.key);
                let hint = if 4 + name.len() + 2 + hint.len() > 120 { split(&hint) } else { hint };
                format!("    {name}: {hint}\n")
            };
            // In the class's documentation, where `help` shows them.
            let said = |field: &Field| {
                let doc = format!("`{}`: {}", snake(&field.key), field.doc);
                format!("    - {}\n", wrapped(&doc, 6))
            };
            let said: String = class.fields.iter().map(said).collect();
            let fields: String = class.fields.iter().map(field).collect();
            let doc = wrapped(&class.doc, 4);
            let base =
                BASES.iter().find(|(name, _)| *name == class.name).map_or("TypedDict", |(_, base)| base);
            format!(
                "\n\nclass {}({base}, total=False):\n    \"\"\"{doc}\n\n{said}    \"\"\"\n\n{fields}",
                class.name
            )
        })
        .collect();
    format!(
        "\"\"\"What may be asked for? Keyword arguments of functions and methods, as dictionaries.\n\n\
         Written by ``cargo run -p skulk-contract-generate`` from the library's own declarations.\n\"\"\"\n\n\
         from __future__ import annotations\n\nfrom collections.abc import Callable, Iterable, Mapping\nfrom os import PathLike\n\
         from typing import Any, Literal, TypedDict\n\nfrom ._contract import Inventory, ModelCard\n\n__all__ = [\n{}]\n\n\
         Ranges = range | Iterable[range | tuple[int, int]]\n\
         \"\"\"A range, several, or pairs of the first number and the one behind the last.\"\"\"\n\
         Tools = Iterable[Mapping[str, Any] | Callable[..., object] | tuple[Mapping[str, Any], Callable[..., object]]]\n\
         \"\"\"Tools of OpenAI's shape; functions, whose signatures and docstrings say what they are; pairs of both.\"\"\"\n{body}",
        names.concat()
    )
}

/// What hosts may give for a field.
fn given(class: &Class, field: &Field, kind: &Kind) -> String {
    match kind {
        Kind::Path => "str | PathLike[str]".to_owned(),
        Kind::List(_) if field.key == "tools" => "Tools".to_owned(),
        Kind::List(item) if matches!(**item, Kind::Range) => "Ranges".to_owned(),
        Kind::List(item) | Kind::Set(item) => format!("Iterable[{}]", given(class, field, item)),
        Kind::Numbered(item) => format!("Mapping[int, {}]", given(class, field, item)),
        Kind::Map(item) => format!("Mapping[str, {}]", given(class, field, item)),
        kind => hint(class, field, kind),
    }
}

fn declaration(class: &Class) -> String {
    if !class.kinds.is_empty() {
        return union(class);
    }
    let methods = METHODS.iter().find(|(name, _)| *name == class.name);
    let mut arguments = match class.maker {
        Maker::HostsInSteps => "slots=True".to_owned(),
        _ => "frozen=True, slots=True".to_owned(),
    };
    if KEYWORDS.contains(&class.name.as_str()) {
        arguments += ", kw_only=True";
    }
    if methods.is_some_and(|(_, shown)| *shown) {
        arguments += ", repr=False";
    }
    let base = methods.map(|(name, _)| format!("(_methods.{name})")).unwrap_or_default();
    // Without keywords, what may be left out stands behind what may not.
    let mut ordered: Vec<_> = class.fields.iter().collect();
    if !KEYWORDS.contains(&class.name.as_str()) {
        ordered.sort_by_key(|field| field.default.is_some());
    }
    let of_a_union = |tag: &String| {
        format!("    type: ClassVar[Literal[\"{tag}\"]] = \"{tag}\"\n    \"\"\"Which kind it is.\"\"\"\n")
    };
    let tag =
        class.tag.as_ref().filter(|_| class.maker == Maker::Library).map(of_a_union).unwrap_or_default();
    let fields: String = ordered.into_iter().map(|field| declared(class, field)).collect();
    format!(
        "\n\n@dataclass({arguments})\nclass {}{base}:\n    \"\"\"{}\"\"\"\n\n{tag}{fields}\n{}\n{}",
        class.name,
        wrapped(&class.doc, 4),
        reader(class),
        writer(class)
    )
}

/// One of several classes, each with its `type`.
fn union(class: &Class) -> String {
    let names: Vec<_> = class.kinds.iter().map(|(_, name)| name.as_str()).collect();
    let (names, doc) = (names.join("\n    | "), wrapped(&class.doc, 0));
    format!("\n\n{} = (\n    {names}\n)\n\"\"\"{doc}\"\"\"\n", class.name)
}

fn declared(class: &Class, field: &Field) -> String {
    let name = name(class, field);
    let hint = hint(class, field, &field.kind);
    let hidden = HIDDEN.contains(&(class.name.as_str(), field.key.as_str()));
    let default = field.default.as_ref().map(|default| value(class, field, default));
    let made = match (default, hidden, &field.kind, class.maker) {
        (Some(_), false, Kind::List(_) | Kind::Set(_) | Kind::Map(_), Maker::HostsInSteps) => {
            let factory = hint.split('[').next().unwrap_or_default();
            format!(" = field(default_factory={factory})")
        }
        (Some(default), false, ..) => format!(" = {default}"),
        (None, true, ..) => " = field(repr=False)".to_owned(),
        (None, false, ..) => String::new(),
        (Some(_), true, ..) => panic!("expected no default of a field that is not shown: {name}"),
    };
    let hint = if 4 + name.len() + 2 + hint.len() + made.len() > 120 { split(&hint) } else { hint };
    format!("    {name}: {hint}{made}\n    \"\"\"{}\"\"\"\n", wrapped(&field.doc, 4))
}

/// A choice whose names need a line each.
fn split(hint: &str) -> String {
    let (before, rest) = hint.split_once('[').unwrap_or_default();
    let (names, behind) = rest.split_once(']').unwrap_or_default();
    format!("{before}[\n        {}\n    ]{behind}", names)
}

/// What makes the class of parsed JSON.
fn reader(class: &Class) -> String {
    let lines: String = class
        .fields
        .iter()
        .map(|field| format!("            {}={},\n", name(class, field), read(class, field, &field.kind)))
        .collect();
    format!(
        "    @staticmethod\n    def _of(data: dict[str, Any]) -> {0}:\n        return {0}(\n{lines}        )\n",
        class.name
    )
}

fn read(class: &Class, field: &Field, kind: &Kind) -> String {
    let data = format!("data[\"{}\"]", field.key);
    match kind {
        Kind::OneOf(names) => {
            let (last, others) = names.split_last().unwrap();
            let other = |name: &String| {
                format!("{name}._of(data) if data[\"type\"] == \"{}\" else ", name.to_lowercase())
            };
            others.iter().map(other).chain([format!("{last}._of(data)")]).collect()
        }
        _ => made(class, field, kind, &data),
    }
}

fn made(class: &Class, field: &Field, kind: &Kind, data: &str) -> String {
    match kind {
        Kind::Float if class.maker == Maker::Library => format!("_number({data})"),
        Kind::Bool
        | Kind::Int
        | Kind::Float
        | Kind::Text
        | Kind::Choice(_)
        | Kind::Switch(_)
        | Kind::Json
        | Kind::Map(_)
        | Kind::Numbered(_)
        | Kind::OneOf(_) => data.to_owned(),
        Kind::Path => format!("Path({data})"),
        Kind::Range => format!("range({data}[\"start\"], {data}[\"end\"])"),
        Kind::Class(name) => format!("{name}._of({data})"),
        Kind::Set(_) if is_tuple(class, field) => format!("tuple({data})"),
        Kind::Set(_) => format!("set({data})"),
        Kind::List(item) => {
            let each = made(class, field, item, "item");
            match (is_tuple(class, field), each == "item") {
                (true, true) => format!("tuple({data})"),
                (true, false) => format!("tuple({each} for item in {data})"),
                (false, true) => data.to_owned(),
                (false, false) => format!("[{each} for item in {data}]"),
            }
        }
        Kind::Option(kind) => match made(class, field, kind, data) {
            same if same == data || matches!(**kind, Kind::Float) => data.to_owned(),
            other => format!("None if {data} is None else {other}"),
        },
    }
}

/// What makes parsed JSON of the class.
fn writer(class: &Class) -> String {
    let tag = class.tag.iter().map(|tag| format!("            \"type\": \"{tag}\",\n"));
    let fields = class.fields.iter().map(|field| {
        let own = format!("self.{}", name(class, field));
        match &field.kind {
            kind @ Kind::OneOf(_) => format!("            **{},\n", written(kind, &own)),
            kind => format!("            \"{}\": {},\n", field.key, written(kind, &own)),
        }
    });
    let lines: String = tag.chain(fields).collect();
    format!(
        "    def to_dict(self) -> dict[str, Any]:\n        \"\"\"The same as JSON has it, in camelCase.\"\"\"\n        \
         return {{\n{lines}        }}\n"
    )
}

/// What hosts may have put there, the wrong thing included, which the library then refuses with a message.
fn written(kind: &Kind, own: &str) -> String {
    match kind {
        Kind::Bool
        | Kind::Int
        | Kind::Float
        | Kind::Text
        | Kind::Choice(_)
        | Kind::Switch(_)
        | Kind::Json => own.to_owned(),
        Kind::Option(kind) => written(kind, own),
        Kind::OneOf(_) => format!("_methods.tagged({own})"),
        _ => format!("_methods.plain({own})"),
    }
}

fn hint(class: &Class, field: &Field, kind: &Kind) -> String {
    match kind {
        Kind::Bool => "bool".to_owned(),
        Kind::Int => "int".to_owned(),
        Kind::Float => "float".to_owned(),
        Kind::Text => "str".to_owned(),
        Kind::Path => "Path".to_owned(),
        Kind::Range => "range".to_owned(),
        Kind::Choice(set) => format!("Literal[{}]", set.quoted().join(", ")),
        Kind::Switch(set) => format!("bool | Literal[{}]", set.quoted().join(", ")),
        Kind::Json => "Any".to_owned(),
        Kind::Class(name) => name.clone(),
        Kind::List(item) if is_tuple(class, field) => format!("tuple[{}, ...]", hint(class, field, item)),
        Kind::List(item) => format!("list[{}]", hint(class, field, item)),
        Kind::Set(item) if is_tuple(class, field) => format!("tuple[{}, ...]", hint(class, field, item)),
        Kind::Set(item) => format!("set[{}]", hint(class, field, item)),
        Kind::Map(item) => format!("dict[str, {}]", hint(class, field, item)),
        Kind::Numbered(item) => format!("dict[int, {}]", hint(class, field, item)),
        Kind::Option(kind) => format!("{} | None", hint(class, field, kind)),
        Kind::OneOf(names) => names.join(" | "),
    }
}

/// A default in Python.
fn value(class: &Class, field: &Field, default: &Value) -> String {
    match (default, &field.kind) {
        (Value::Null, _) => "None".to_owned(),
        (Value::Bool(true), _) => "True".to_owned(),
        (Value::Bool(false), _) => "False".to_owned(),
        (Value::Object(_), Kind::Class(name)) => format!("{name}()"),
        (Value::Array(items), _) if is_tuple(class, field) => match items.as_slice() {
            [] => "()".to_owned(),
            [one] => format!("({one},)"),
            _ => panic!("expected a short default: {default}"),
        },
        _ => default.to_string(),
    }
}

/// What nobody changes once it is made, nobody can change in part either.
fn is_tuple(class: &Class, field: &Field) -> bool {
    class.maker == Maker::Hosts || TUPLES.contains(&(class.name.as_str(), field.key.as_str()))
}

fn name(class: &Class, field: &Field) -> String {
    let renamed = RENAMED.iter().find(|(name, key, _)| *name == class.name && *key == field.key);
    renamed.map_or_else(|| snake(&field.key), |(.., own)| (*own).to_owned())
}

/// `camelCase` as snake_case.
fn snake(key: &str) -> String {
    let mut name = String::new();
    for letter in key.chars() {
        if letter.is_uppercase() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// Documentation in lines, those behind the first `indent` from the left.
pub(crate) fn wrapped(doc: &str, indent: usize) -> String {
    let doc = doc.replace('`', "``").replace('\\', "\\\\");
    let (mut lines, mut length) = (String::new(), indent + 3);
    for word in doc.split(' ') {
        // Three quotation marks may follow the last word.
        if length + 1 + word.len() + 3 > 120 {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            length = indent;
        } else if !lines.is_empty() {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += word.len();
    }
    lines
}
