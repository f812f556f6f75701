//! Does the tokenizer agree with other people's software on real checkpoints?

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use skulk::{Detokenizer, ErrorKind, TokenId, Tokenizer, open_checkpoint};

use crate::fixtures::{checkpoints, copied, gemma, ids, json, path, root, vocabularies};

fn load(path: &Path) -> Arc<Tokenizer> {
    let checkpoint = open_checkpoint(path).unwrap();
    Arc::new(Tokenizer::from_checkpoint(&*checkpoint).unwrap())
}

/// The text a session would stream for `generated` after `prompt`.
fn stream(tokenizer: &Arc<Tokenizer>, prompt: &[TokenId], generated: &[TokenId]) -> String {
    let mut detokenizer = Detokenizer::new(tokenizer.clone(), prompt, false);
    let mut text = String::new();
    for &id in generated {
        text.push_str(detokenizer.push(id));
    }
    text.push_str(detokenizer.flush());
    text
}

fn agrees_with_reference(tokenizer: &Arc<Tokenizer>, reference: &Value, what: &Path) {
    for prompt in reference["prompts"].as_array().unwrap() {
        let text = prompt["text"].as_str().unwrap();
        let add_special = prompt["add_special_tokens"].as_bool().unwrap();
        let expected = ids(&prompt["ids"]);
        assert_eq!(tokenizer.encode(text, add_special).unwrap(), expected, "{what:?}");
        // A rendered chat brings its own BOS, which is never doubled.
        if prompt["is_chat_rendered"] == true && tokenizer.bos() == Some(expected[0]) {
            assert_eq!(tokenizer.encode(text, true).unwrap(), expected, "{what:?}");
        }
        let generated = ids(&prompt["greedy"]["ids"]);
        let text = prompt["greedy"]["text"].as_str().unwrap();
        assert_eq!(tokenizer.decode(&generated, false), text, "{what:?}");
        let streamed = stream(tokenizer, &expected, &generated);
        let all: Vec<_> = expected.iter().chain(&generated).copied().collect();
        let prompt = tokenizer.decode(&expected, false);
        assert_eq!(tokenizer.decode(&all, false), prompt + &streamed);
    }
    let ends = tokenizer.eos_ids();
    for id in ids(&reference["eos_ids"]) {
        assert!(ends.contains(&id), "{what:?}: {id} is not in {ends:?}");
    }
}

#[test]
fn folders_agree_with_transformers() {
    for folder in checkpoints() {
        let tokenizer = load(&folder);
        agrees_with_reference(&tokenizer, &json(&folder.join("reference.json")), &folder);
        let ends = tokenizer.eos_ids();
        assert!(ends.iter().all(|&id| tokenizer.is_special(id)));
        let last = TokenId(tokenizer.vocab_size() as u32 - 1);
        assert!(tokenizer.token_text(last).is_some());
        assert_eq!(tokenizer.token_text(TokenId(last.0 + 1)), None);
    }
}

#[test]
fn the_real_gguf_agrees_with_llama_cpp_and_transformers() {
    let Some(path) = gemma() else { return };
    let checkpoint = open_checkpoint(&path).unwrap();
    let started = Instant::now();
    let tokenizer = Arc::new(Tokenizer::from_checkpoint(&*checkpoint).unwrap());
    println!("built in {:?}", started.elapsed());
    let fixtures = root().join("tests/fixtures/gemma3-270m");
    let llamacpp = json(&fixtures.join("llamacpp.json"));
    for prompt in llamacpp["prompts"].as_array().unwrap() {
        let expected = ids(&prompt["prompt_ids"]);
        let text = prompt["prompt"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text, true).unwrap(), expected);
        let generated = ids(&prompt["greedy_ids"]);
        let text = prompt["greedy_text"].as_str().unwrap();
        assert_eq!(stream(&tokenizer, &expected, &generated), text);
    }
    agrees_with_reference(&tokenizer, &json(&fixtures.join("reference.json")), &path);
    assert_eq!(tokenizer.vocab_size(), 262_144);
    let text = "Grüße,\n\n\n  日本語 <table>\t\t🦊🏽 \u{200d} fin";
    let ids = tokenizer.encode(text, true).unwrap();
    assert_eq!(tokenizer.decode(&ids, true), text);
}

/// Texts and tokens that come with a vocabulary of llama.cpp, or that it made of others.
fn vectors(path: &Path, name: &str) -> Vec<(String, Vec<TokenId>)> {
    let read = |end: &str| std::fs::read_to_string(format!("{}.{end}", path.display()));
    let (Ok(texts), Ok(tokens)) = (read("inp"), read("out")) else {
        let made = json(&root().join("tests/fixtures/tokenizers/llamacpp.json"));
        let texts = made["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned());
        return texts.zip(made["vocabularies"][name].as_array().unwrap().iter().map(ids)).collect();
    };
    let texts = texts.split("\n__ggml_vocab_test__\n").map(str::to_owned);
    let id = |id: &str| TokenId(id.parse().unwrap());
    texts.zip(tokens.lines().map(|line| line.split_whitespace().map(id).collect())).collect()
}

#[test]
fn vocabularies_of_llama_cpp_give_its_tokens() {
    let Some(folder) = vocabularies() else { return };
    let (mut compared, mut refused) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_prefix("ggml-vocab-").and_then(|name| name.strip_suffix(".gguf")) else {
            continue;
        };
        match Tokenizer::from_checkpoint(&*open_checkpoint(&path).unwrap()) {
            Ok(tokenizer) => {
                for (text, expected) in vectors(&path, name) {
                    assert_eq!(tokenizer.encode(&text, false).unwrap(), expected, "{name}: {text:?}");
                    compared += 1;
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
                refused.push(name.to_owned());
            }
        }
    }
    refused.sort_unstable();
    assert_eq!(refused, ["bert-bge", "gemma-4", "nomic-bert-moe"]);
    assert!(compared > 700, "{compared}");
}

#[test]
fn streaming_is_decoding() {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for folder in checkpoints() {
        let tokenizer = load(&folder);
        let broad: Vec<_> = (0..tokenizer.vocab_size() as u32 + 2).map(TokenId).collect();
        // The tokens of hard text make broken and whole characters likely.
        let hard = "ü日𝄞🦊ß\u{301}\u{feff}  \n";
        let hard = tokenizer.encode(hard, false).unwrap();
        for round in 0..2000 {
            let pool = if round % 2 == 0 { &broad } else { &hard };
            let ids: Vec<_> = (0..random(12)).map(|_| pool[random(pool.len())]).collect();
            let text = tokenizer.decode(&ids, false);
            assert_eq!(stream(&tokenizer, &[], &ids), text, "{ids:?}");
        }
        for _ in 0..20 {
            let text: String = (0..100)
                .filter_map(|_| {
                    let plane = [0x80, 0x800, 0x1_0000, 0x11_0000][random(4)];
                    char::from_u32(random(plane) as u32)
                })
                .collect();
            let ids = tokenizer.encode(&text, false).unwrap();
            let text = tokenizer.decode(&ids, false);
            assert_eq!(stream(&tokenizer, &[], &ids), text);
        }
    }
}

#[test]
fn half_characters_are_held_back() {
    let tokenizer = load(&path("stories260K"));
    let fox = tokenizer.encode("🦊", false).unwrap();
    let mut detokenizer = Detokenizer::new(tokenizer.clone(), &[], false);
    let texts: Vec<_> = fox.iter().map(|&id| detokenizer.push(id).to_owned()).collect();
    assert_eq!(texts.concat(), "🦊");
    assert_eq!(texts.iter().filter(|text| !text.is_empty()).count(), 1);
    assert_eq!(detokenizer.push(fox[fox.len() - 4]), "");
    assert_eq!(detokenizer.flush(), "\u{fffd}");
    assert_eq!(detokenizer.flush(), "");
}

#[test]
fn text_continues_the_prompt() {
    let tokenizer = load(&path("stories260K"));
    let prompt = tokenizer.encode("Once upon a", true).unwrap();
    let next = tokenizer.encode("time", false).unwrap();
    assert_eq!(stream(&tokenizer, &prompt, &next), " time");
    assert_eq!(stream(&tokenizer, &prompt[..1], &next), " time");
    assert_eq!(stream(&tokenizer, &[], &next), "time");
    let mut readable = Detokenizer::new(tokenizer.clone(), &prompt[..1], true);
    let text: String = next.iter().map(|&id| readable.push(id).to_owned()).collect();
    assert_eq!(text, "time");
}

/// The tokenizer of a fixture with these files replaced, or removed.
fn changed(files: &[(&str, Option<&str>)]) -> skulk::Result<Tokenizer> {
    let folder = copied(&path("stories260K"));
    for (file, content) in files {
        match content {
            Some(content) => std::fs::write(folder.path().join(file), content).unwrap(),
            None => std::fs::remove_file(folder.path().join(file)).unwrap(),
        }
    }
    let checkpoint = open_checkpoint(folder.path()).unwrap();
    Tokenizer::from_checkpoint(&*checkpoint)
}

/// The fixture's `tokenizer.json` with another value at `place`.
fn with(place: &str, value: Value) -> String {
    let mut json = json(&path("stories260K").join("tokenizer.json"));
    *json.pointer_mut(place).unwrap() = value;
    json.to_string()
}

#[test]
fn broken_folders_are_typed_errors() {
    let foreign_bos = [
        ("tokenizer_config.json", Some(r#"{"add_bos_token": true, "bos_token": "<x>"}"#)),
        ("generation_config.json", Some(r#"{"bos_token_id": 512}"#)),
    ];
    // The tokenizers crate panics: merges are shorter than the prefix that their right sides have.
    let panics = with("/model/continuing_subword_prefix", "#".repeat(99).into());
    let one = |file, content| [(file, content)];
    for files in [
        &one("tokenizer.json", None)[..],
        &one("tokenizer.json", Some("{")),
        &one("tokenizer.json", Some(r#"{"version": "1.0"}"#)),
        &one("tokenizer.json", Some(&panics)),
        &one("generation_config.json", Some(r#"{"eos_token_id": [2, -1]}"#)),
        &one("generation_config.json", Some(r#"{"eos_token_id": "2"}"#)),
        &foreign_bos,
    ] {
        let error = changed(files).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
        assert!(error.hint().is_some() && error.to_string().contains(".json"));
    }
    // So it does only when it encodes: words of no characters.
    let panics = with("/pre_tokenizer", serde_json::json!({"type": "FixedLength", "length": 0}));
    let error = changed(&one("tokenizer.json", Some(&panics))).unwrap().encode("a", true).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
}

#[test]
fn holes_in_the_vocabulary_count() {
    let file = with("/model/vocab/z", 9000.into());
    let tokenizer = changed(&[("tokenizer.json", Some(&file))]).unwrap();
    assert_eq!(tokenizer.vocab_size(), 9001);
    assert_eq!(tokenizer.token_text(TokenId(9000)).as_deref(), Some("z"));
}
