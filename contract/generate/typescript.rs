//! How does TypeScript declare plain data? As interfaces, in the form that JSON has.

use crate::table::Maker;
use crate::types::{Class, Field, Kind};

/// The declarations, with their text.
pub(crate) fn files(classes: &[Class]) -> Vec<(&'static str, String)> {
    let head = "// What crosses between JavaScript and the library? Plain data.\n//\n\
        // Written by `cargo run -p skulk-contract-generate` from the library's own declarations.\n\n\
        /** Whole numbers from `start` to `end`, which is not among them. */\n\
        export interface Range {\n  start: number;\n  end: number;\n}\n";
    let body: String = classes.iter().map(declaration).collect();
    vec![
        ("skulk-node/lib/contract.d.ts", format!("{head}{body}")),
        ("skulk-node/lib/names.js", names(classes)),
    ]
}

/// The names of options, for who reads them at run time.
fn names(classes: &[Class]) -> String {
    let head = "\"use strict\";\n// Which options does the library have? Their names, by the interfaces of `contract.d.ts`.\n//\n\
        // Written by `cargo run -p skulk-contract-generate` from the library's own declarations.\n";
    let list = |class: &Class| {
        let names: String = class.fields.iter().map(|field| format!("    \"{}\",\n", field.key)).collect();
        format!("  {}: [\n{names}  ],\n", class.name)
    };
    let lists: String = classes.iter().filter(|class| class.maker == Maker::Options).map(list).collect();
    format!("{head}\nmodule.exports = {{\n{lists}}};\n")
}

fn declaration(class: &Class) -> String {
    let (kinds, fields): (Vec<_>, Vec<_>) =
        class.fields.iter().partition(|field| matches!(field.kind, Kind::OneOf(_)));
    let tag: String = class.tag.iter().map(|tag| format!("  type: \"{tag}\";\n")).collect();
    let fields: String = fields.into_iter().map(|field| declared(class, field)).collect();
    let (name, doc) = (&class.name, comment(&class.doc, ""));
    if !class.kinds.is_empty() {
        let kinds: Vec<_> = class.kinds.iter().map(|(_, name)| name.as_str()).collect();
        return format!("\n{doc}export type {name} =\n  | {};\n", kinds.join("\n  | "));
    }
    match kinds.as_slice() {
        [Field { kind: Kind::OneOf(kinds), .. }] => {
            format!("\n{doc}export type {name} = ({}) & {{\n{fields}}};\n", kinds.join(" | "))
        }
        _ => format!("\n{doc}export interface {name} {{\n{tag}{fields}}}\n"),
    }
}

fn declared(class: &Class, field: &Field) -> String {
    // What hosts may leave out, they may; what the library makes has every field.
    let may = class.maker == Maker::Options || (field.default.is_some() && class.maker != Maker::Library);
    let mark = if may { "?" } else { "" };
    let null = if class.maker == Maker::Options { " | null" } else { "" };
    format!("{}  {}{mark}: {}{null};\n", comment(&field.doc, "  "), field.key, hint(&field.kind))
}

fn hint(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "boolean".to_owned(),
        Kind::Int | Kind::Float => "number".to_owned(),
        Kind::Text | Kind::Path => "string".to_owned(),
        Kind::Range => "Range".to_owned(),
        Kind::Choice(set) => set.quoted().join(" | "),
        Kind::Switch(set) => format!("boolean | {}", set.quoted().join(" | ")),
        Kind::Json => "any".to_owned(),
        Kind::Class(name) => name.clone(),
        Kind::List(item) | Kind::Set(item) => match hint(item) {
            one if one.contains('|') => format!("({one})[]"),
            one => format!("{one}[]"),
        },
        Kind::Map(item) => format!("Record<string, {}>", hint(item)),
        Kind::Numbered(item) => format!("Record<number, {}>", hint(item)),
        Kind::Option(kind) => format!("{} | null", hint(kind)),
        Kind::OneOf(names) => names.join(" | "),
    }
}

/// Documentation, wrapped at 120 columns.
fn comment(doc: &str, indent: &str) -> String {
    let doc = doc.replace("`None`", "`null`").replace("*/", "* /");
    if indent.len() + doc.len() + 8 <= 120 {
        return format!("{indent}/** {doc} */\n");
    }
    let mut lines = format!("{indent}/**");
    let mut length = usize::MAX;
    for word in doc.split(' ') {
        if length.saturating_add(1 + word.len()) > 120 {
            lines.push_str(&format!("\n{indent} *"));
            length = indent.len() + 2;
        }
        lines.push(' ');
        lines.push_str(word);
        length += 1 + word.len();
    }
    format!("{lines}\n{indent} */\n")
}
