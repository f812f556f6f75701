//! What is there to call, and what is it called in each language? The table of `api.txt`.

use crate::table::Maker;
use crate::types::{Class, camel};

/// A language.
pub(crate) struct Language {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    /// It writes names `likeThis`.
    pub(crate) is_camel: bool,
}

pub(crate) const LANGUAGES: [Language; 4] = [
    Language { name: "Rust", key: "rust", is_camel: false },
    Language { name: "Python", key: "python", is_camel: false },
    Language { name: "Node.js", key: "node", is_camel: true },
    Language { name: "Swift", key: "swift", is_camel: true },
];

/// What an object has: its name in each language, none where it has none, and what it does.
pub(crate) struct Row {
    pub(crate) names: Vec<Option<String>>,
    doc: &'static str,
}

pub(crate) struct Object {
    pub(crate) name: &'static str,
    doc: &'static str,
    pub(crate) rows: Vec<Row>,
}

pub(crate) fn objects() -> Vec<Object> {
    let mut objects: Vec<Object> = vec![];
    for line in include_str!("api.txt").lines().filter(|line| !line.is_empty()) {
        let (names, doc) = line.split_once(" | ").unwrap();
        match names.strip_prefix("# ") {
            Some(name) => objects.push(Object { name, doc, rows: vec![] }),
            None => objects.last_mut().unwrap().rows.push(Row { names: named(names), doc }),
        }
    }
    objects
}

fn named(names: &str) -> Vec<Option<String>> {
    let mut words = names.split(' ');
    let usual = words.next().unwrap();
    let own: Vec<_> = words.map(|word| word.split_once('=').unwrap()).collect();
    LANGUAGES
        .iter()
        .map(|language| match own.iter().find(|(key, _)| *key == language.key) {
            Some((_, "-")) => None,
            Some((_, name)) => Some((*name).to_owned()),
            None if language.is_camel => Some(camel(usual)),
            None => Some(usual.to_owned()),
        })
        .collect()
}

/// The page, with its text.
pub(crate) fn files(classes: &[Class]) -> Vec<(&'static str, String)> {
    let mut page = "# What there is, in every language\n\n\
        Written by `cargo run -p skulk-contract-generate`; a test asks every language whether it has what stands here. A\n\
        dash: the language has a way of its own, which the last column says. Data have the same fields everywhere, in the\n\
        language's spelling, and values of closed sets are spelled alike.\n"
        .to_owned();
    let heads: String = LANGUAGES.iter().map(|language| format!(" {} |", language.name)).collect();
    for object in objects() {
        page += &format!("\n## {}\n\n{}\n\n|{heads} |\n|{}---|\n", object.name, object.doc, "---|".repeat(4));
        for row in object.rows {
            let names = row
                .names
                .iter()
                .map(|name| name.as_ref().map_or(" — |".to_owned(), |name| format!(" `{name}` |")));
            page += &format!("|{} {} |\n", names.collect::<String>(), row.doc);
        }
    }
    page +=
        "\n# Options\n\nEach may be left out. Names in Python and Rust; in Node.js and Swift `likeThis`.\n";
    for class in classes.iter().filter(|class| class.maker == Maker::Options) {
        page += &format!("\n## {}\n\n{}\n\n| option | |\n|---|---|\n", class.name, class.doc);
        for field in &class.fields {
            page += &format!("| `{}` | {} |\n", snake(&field.key), field.doc.replace('|', "\\|"));
        }
    }
    page += "\n# Data\n\n| name | |\n|---|---|\n";
    for class in classes.iter().filter(|class| class.maker != Maker::Options) {
        page += &format!("| `{}` | {} |\n", class.name, class.doc);
    }
    page += "\n# Errors\n\nRust's `ErrorKind`, Node.js' and Swift's `kind`; Python has a class for each, called `KindError`.\n\n\
        | kind | code |\n|---|---|\n";
    for (kind, code) in skulk_contract::kinds() {
        page += &format!("| `{kind}` | `{code}` |\n");
    }
    vec![("docs/api.md", page)]
}

fn snake(key: &str) -> String {
    let letters = key
        .chars()
        .flat_map(|letter| letter.is_uppercase().then_some('_').into_iter().chain(letter.to_lowercase()));
    letters.collect()
}
