//! Does text become the tokens that llama.cpp makes of it, with each of its vocabularies?

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use skulk::{TokenId, Tokenizer};

use crate::fixtures::{ids, json, root, vocabularies};
use crate::tokenizer::{load, stream};

/// The suites: the project's, and that of `SKULK_EXTRA_SUITES` where it has one.
fn suites() -> Vec<Value> {
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(PathBuf::from);
    let files =
        [Some(root().join("tests/suites")), extra].into_iter().flatten().map(|f| f.join("tokenizers.json"));
    files.filter(|file| file.exists()).map(|file| json(&file)).collect()
}

/// A vocabulary of a suite. Those of other suites may lie beside them.
fn vocabulary(folder: &Path, name: &str) -> PathBuf {
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(|folder| PathBuf::from(folder).join(name));
    extra.filter(|path| path.exists()).unwrap_or_else(|| folder.join(name))
}

/// Texts and tokens that come with a vocabulary of llama.cpp.
fn vectors(path: &Path) -> Vec<(String, Vec<TokenId>)> {
    let read = |end: &str| std::fs::read_to_string(format!("{}.{end}", path.display()));
    let (Ok(texts), Ok(tokens)) = (read("inp"), read("out")) else {
        return Vec::new();
    };
    let texts = texts.split("\n__ggml_vocab_test__\n").map(str::to_owned);
    let id = |id: &str| TokenId(id.parse().unwrap());
    texts.zip(tokens.lines().map(|line| line.split_whitespace().map(id).collect())).collect()
}

#[test]
fn vocabularies_give_llama_cpps_tokens() {
    let Some(folder) = vocabularies() else { return };
    let (mut compared, mut different) = (0, Vec::new());
    for suite in suites() {
        let texts: Vec<&str> =
            suite["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        for (name, columns) in suite["vocabularies"].as_object().unwrap() {
            let tokenizer = load(&vocabulary(&folder, name));
            for (column, tokens) in columns.as_object().unwrap() {
                let tokens = tokens.as_array().unwrap();
                assert_eq!(tokens.len(), texts.len(), "{name}");
                for (text, expected) in texts.iter().zip(tokens) {
                    let found = match column.as_str() {
                        "plain" => tokenizer.encode_text(text),
                        "special" => tokenizer.encode(text, false),
                        other => panic!("{other}"),
                    };
                    if found.unwrap() != ids(expected) {
                        different.push(format!("{name} {column} {text:?}"));
                    }
                    compared += 1;
                }
            }
        }
    }
    assert!(different.is_empty(), "{} of {compared}:\n{}", different.len(), different.join("\n"));
    assert!(compared >= 19 * 45 * 2, "{compared}");
}

#[test]
fn llama_cpps_own_vectors_agree() {
    let Some(folder) = vocabularies() else { return };
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "gguf") {
            let tokenizer = load(&path);
            for (text, expected) in vectors(&path) {
                assert_eq!(tokenizer.encode(&text, false).unwrap(), expected, "{path:?}: {text:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 600, "{compared}");
}

#[test]
fn what_was_encoded_is_decoded_all_at_once_and_bit_by_bit() {
    let Some(folder) = vocabularies() else { return };
    let suite = &suites()[0];
    for name in suite["vocabularies"].as_object().unwrap().keys() {
        let tokenizer = load(&folder.join(name));
        for text in suite["texts"].as_array().unwrap() {
            let text = text.as_str().unwrap();
            let tokens = tokenizer.encode_text(text).unwrap();
            let decoded = tokenizer.decode(&tokens, false);
            assert_eq!(stream(&tokenizer, &[], &tokens), decoded, "{name}: {text:?}");
            // The other kinds lose case, accents or spaces; what is left has the same tokens.
            if name.contains("bert") {
                let again = tokenizer.encode_text(&decoded).unwrap();
                let unknown = |id: &TokenId| tokenizer.is_special(*id);
                assert!(again == tokens || tokens.iter().any(unknown), "{name}: {text:?}, {decoded:?}");
            } else {
                assert_eq!(decoded, text, "{name}");
            }
            let half = tokens.len() / 2;
            let begun = tokenizer.decode(&tokens[..half], false);
            let rest = stream(&tokenizer, &tokens[..half], &tokens[half..]);
            if !begun.contains('\u{fffd}') {
                assert_eq!(begun + &rest, decoded, "{name}: {text:?}");
            }
        }
    }
}

/// Texts of one kind, or of anything, 100 kB each.
fn long_texts() -> Vec<String> {
    let words = "The quick brown fox, 12345 Wörter für 日本語 🦊!\n\n  ";
    let units =
        [words, "a", "A", " ", "\n", "1", "é", "漢", "!", "=", "\u{301}", "\u{200b}", "ab", "<", "x "];
    units.iter().map(|unit| unit.repeat(100_000 / unit.len())).collect()
}

/// What is quadratic would not come to an end.
#[test]
fn long_texts_take_reasonable_time() {
    let Some(folder) = vocabularies() else { return };
    let suite = &suites()[0];
    for name in suite["vocabularies"].as_object().unwrap().keys() {
        let tokenizer: Arc<Tokenizer> = load(&folder.join(name));
        for text in long_texts() {
            let tokens = tokenizer.encode_text(&text).unwrap();
            assert!(!tokens.is_empty() || name.contains("bert"), "{name}");
        }
    }
}
