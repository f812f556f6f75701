//! Has every language what the table says? Its declarations, read line by line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::api::{LANGUAGES, Language, objects};

/// Where each language declares what it has, in files of which endings, and words before a name that is declared.
const SOURCES: [(&str, &[&str], &[&str]); 4] = [
    ("skulk-core/src", &[".rs"], &["pub", "fn", "const"]),
    ("skulk-py/python/skulk", &[".py", ".pyi"], &["async", "def"]),
    ("skulk-node/lib", &[".d.ts"], &["export", "function", "const", "static", "get", "readonly"]),
    ("skulk-swift/Sources/Skulk", &[".swift"], &["public", "static", "mutating", "func", "var", "let"]),
];

/// A language's declarations, by the line.
fn lines(folder: &str, endings: &[&str]) -> Vec<String> {
    let mut texts = vec![];
    let mut folders: Vec<PathBuf> = vec![crate::root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.to_str().unwrap();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                texts.push(std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    texts.iter().flat_map(|text| text.lines().map(str::to_owned)).collect()
}

/// The name that a line declares.
fn declared<'a>(words: &[&str], line: &'a str) -> Option<&'a str> {
    let mut rest = line.trim_start();
    while let Some(behind) = words.iter().find_map(|word| rest.strip_prefix(word)?.strip_prefix(' ')) {
        rest = behind;
    }
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    (end > 0 && rest[end..].trim_start().starts_with(['(', '<', ':', '=', '{'])).then_some(&rest[..end])
}

/// What the declarations of an object have, or, of none, those that are in none.
fn members<'a>(language: &Language, words: &[&str], lines: &'a [String], object: &str) -> BTreeSet<&'a str> {
    // Rust's objects have their methods in many files, and its functions in modules: there the name must do.
    if language.key == "rust" {
        let is_public = |line: &&String| line.trim_start().starts_with("pub ") || line.starts_with("    fn ");
        return lines.iter().filter(is_public).filter_map(|line| declared(words, line)).collect();
    }
    let heads = ["class", "extension", "struct", "enum", "interface", "const", "typealias"];
    let opens = |line: &str| {
        let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words.any(|word| heads.contains(&word)) && words.any(|word| word.eq_ignore_ascii_case(object))
    };
    // A module of its own in Python and Node.js.
    let is_module = ["functions", "planning"].contains(&object);
    let (mut inside, mut found) = (false, BTreeSet::new());
    for line in lines {
        let is_top = !line.starts_with([' ', '}', ')']) && !line.is_empty();
        if is_top {
            inside = opens(line);
        }
        if is_top == is_module || (inside && !is_top) {
            found.extend(declared(words, line).filter(|_| is_module || inside));
        }
    }
    found
}

#[test]
fn every_language_has_every_row() {
    let mut lacking = vec![];
    for (at, (language, (folder, endings, words))) in LANGUAGES.iter().zip(SOURCES).enumerate() {
        let lines = lines(folder, endings);
        for object in objects() {
            let members = members(language, words, &lines, object.name);
            for name in object.rows.iter().filter_map(|row| row.names[at].as_deref()) {
                if !members.contains(name) {
                    lacking.push(format!("{}: {}.{name}", language.name, object.name));
                }
            }
        }
    }
    assert!(lacking.is_empty(), "declared nowhere:\n{}", lacking.join("\n"));
}

#[test]
fn what_is_not_declared_is_missed() {
    let lines = [
        "export class Model {",
        "  load(path: string): void;",
        "}",
        "export class Other {",
        "  plan(): void;",
    ];
    let lines = lines.map(str::to_owned);
    let [_, _, node, _] = &LANGUAGES;
    let members = |object| members(node, SOURCES[2].2, &lines, object).into_iter().collect::<Vec<_>>();
    assert_eq!(
        (members("Model"), members("Other"), members("functions")),
        (vec!["load"], vec!["plan"], vec![])
    );
}
