//! Does the tokenizer agree with other people's software on real checkpoints?

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use skulk::{Detokenizer, ErrorKind, TokenId, Tokenizer, open_checkpoint};

use crate::fixtures::{checkpoints, copied, gemma, ids, json, path, root};

pub(crate) fn load(path: &Path) -> Arc<Tokenizer> {
    let checkpoint = open_checkpoint(path).unwrap();
    Arc::new(Tokenizer::from_checkpoint(&*checkpoint).unwrap())
}

/// The text a session would stream for `generated` after `prompt`.
pub(crate) fn stream(tokenizer: &Arc<Tokenizer>, prompt: &[TokenId], generated: &[TokenId]) -> String {
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
    let lacking = [
        r#"{"pad_token": "[PAD]"}"#,
        r#"{"mask_token": {"content": "<mask>", "special": true}}"#,
        r#"{"additional_special_tokens": ["<s>", "<|im_end|>"]}"#,
        r#"{"extra_special_tokens": {"image_token": "<image>"}}"#,
    ];
    let lacking = lacking.map(|config| [("tokenizer_config.json", Some(config))]);
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
        &lacking[0],
        &lacking[1],
        &lacking[2],
        &lacking[3],
    ] {
        let error = changed(files).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
        assert!(error.hint().is_some() && error.to_string().contains(".json"));
    }
    // So it does only when it encodes: words of no characters.
    let panics = with("/pre_tokenizer", serde_json::json!({"type": "FixedLength", "length": 0}));
    let error = changed(&one("tokenizer.json", Some(&panics))).unwrap().encode("a", true).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
    assert!(context(&error, "file").ends_with("tokenizer.json"));
}

/// What an error says of `key`.
fn context(error: &skulk::Error, key: &str) -> String {
    error.context().iter().find(|(name, _)| *name == key).unwrap().1.to_string()
}

#[test]
fn fields_of_the_wrong_type_are_refused() {
    let configured = |field: &str, value: &Value| {
        let config = serde_json::json!({ field: value }).to_string();
        changed(&[("tokenizer_config.json", Some(&config))])
    };
    for (field, wrong) in [
        ("bos_token", r#"[2043, ["<s>"], true, {"text": "<s>"}, {"content": 1}]"#),
        ("mask_token", "[1]"),
        ("add_bos_token", r#"["false", 0, [], {}]"#),
        ("add_eos_token", r#"["true"]"#),
        ("additional_special_tokens", r#"["<s>", 7, true, [7], [["<s>"]]]"#),
        ("extra_special_tokens", r#"[{"image_token": false}]"#),
    ] {
        let wrong: Vec<Value> = serde_json::from_str(wrong).unwrap();
        for value in wrong {
            let error = configured(field, &value).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
            assert!(context(&error, "file").ends_with("tokenizer_config.json"));
            assert_eq!(context(&error, "field"), field);
            assert!(!context(&error, "found").is_empty() && !context(&error, "expected").is_empty());
        }
    }
    for (field, right) in [
        ("bos_token", r#"[null, "<s>", {"__type": "AddedToken", "content": "<s>", "special": true}]"#),
        ("add_bos_token", "[null, true, false]"),
        ("additional_special_tokens", r#"[null, [], ["<s>", {"content": "</s>"}, null], {}]"#),
        ("extra_special_tokens", r#"[{"image_token": "<s>"}, ["<s>"]]"#),
        ("added_tokens_decoder", r#"[{"0": {"content": "<unk>"}}, 7]"#),
    ] {
        let right: Vec<Value> = serde_json::from_str(right).unwrap();
        for value in right {
            configured(field, &value).unwrap();
        }
    }
}

#[test]
fn rules_that_lengthen_texts_without_bound_are_refused() {
    let long = "ab".repeat(2000);
    let replace = |pattern: &str, content: &str| {
        let pattern = serde_json::json!({"Regex": pattern});
        serde_json::json!({"type": "Replace", "pattern": pattern, "content": content})
    };
    let stages = |rules: Vec<Value>| serde_json::json!({"type": "Sequence", "normalizers": rules});
    let bytes = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let spelt = serde_json::json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": long}]});
    let twice = serde_json::json!({"type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 0}}], "single": vec![serde_json::json!({"Sequence": {"id": "A",
        "type_id": 0}}); 2000], "special_tokens": {}});
    for (field, value) in [
        ("normalizer", stages(vec![replace(".", &long); 3])),
        ("normalizer", stages(vec![replace("a*", &"b".repeat(100)); 5])),
        ("normalizer", serde_json::json!({"type": "Prepend", "prepend": long})),
        ("pre_tokenizer", serde_json::json!({"type": "Sequence", "pretokenizers": vec![bytes; 40]})),
        ("decoder", spelt),
        ("post_processor", twice),
    ] {
        let file = with(&format!("/{field}"), value);
        let error = changed(&[("tokenizer.json", Some(&file))]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
        assert_eq!(context(&error, "field"), field);
        assert!(context(&error, "file").ends_with("tokenizer.json"));
        assert_eq!(context(&error, "expected"), "at most 1024 times");
    }
}

#[test]
fn ids_beyond_the_vocabulary_are_refused() {
    let sides = serde_json::json!({"type": "BertProcessing", "cls": ["<s>", 1], "sep": ["</s>", 512]});
    let sides = with("/post_processor", sides);
    let template = with("/post_processor/special_tokens/<s>/ids", serde_json::json!([512]));
    for content in [sides.as_str(), &template] {
        let error = changed(&[("tokenizer.json", Some(content))]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
        assert!(error.to_string().contains("expected a token id below 512"), "{error}");
        assert!(context(&error, "file").ends_with("tokenizer.json"));
    }
    // Configurations keep defaults of other models, which never come.
    changed(&[("generation_config.json", Some(r#"{"eos_token_id": [2, 50256]}"#))]).unwrap();
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_read() {
    let folder = copied(&path("stories260K"));
    let file = folder.path().join("tokenizer.json");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    let checkpoint = open_checkpoint(folder.path()).unwrap();
    let error = Tokenizer::from_checkpoint(&*checkpoint).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
    std::fs::remove_file(&file).unwrap();
    std::fs::File::create(&file).unwrap().set_len(1 << 29).unwrap();
    let error = Tokenizer::from_checkpoint(&*checkpoint).err().unwrap();
    assert!(error.to_string().contains("at most 268435456 bytes"), "{error}");
}

#[test]
fn holes_in_the_vocabulary_count() {
    let file = with("/model/vocab/z", 9000.into());
    let tokenizer = changed(&[("tokenizer.json", Some(&file))]).unwrap();
    assert_eq!(tokenizer.vocab_size(), 9001);
    assert_eq!(tokenizer.token_text(TokenId(9000)).as_deref(), Some("z"));
}

/// A tokenizer made of a `tokenizer.json` alone.
fn made(json: &Value) -> Arc<Tokenizer> {
    Arc::new(
        changed(&[("tokenizer.json", Some(&json.to_string())), ("tokenizer_config.json", Some("{}"))])
            .unwrap(),
    )
}

#[test]
fn word_pieces_and_metaspaces_are_decoded_as_by_the_crate() {
    let words =
        ["[UNK]", "[CLS]", "don", "'", "t", "##t", "##s", ".", "hello", "##,", "##", "we", "n't", "'s"];
    let pieces = ["<unk>", "</s>", "▁", "▁a", "a", "▁▁b", "b▁", "▁.", "<0xE4>", "c"];
    let vocab: Value = (0_u32..)
        .zip(words)
        .map(|(id, word)| (word.to_owned(), id))
        .collect::<std::collections::BTreeMap<_, _>>()
        .into_iter()
        .collect();
    let scored: Vec<Value> = pieces.iter().map(|piece| serde_json::json!([piece, -1.0])).collect();
    let added = |id: u32, content: &str| {
        serde_json::json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    let word_piece = |cleanup: bool| {
        serde_json::json!({"version": "1.0", "added_tokens": [added(1, "[CLS]")], "normalizer": null,
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": cleanup},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocab}})
    };
    let metaspace = |scheme: &str| {
        serde_json::json!({"version": "1.0", "added_tokens": [added(1, "</s>")], "normalizer": null,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true},
            "post_processor": null,
            "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true},
            "model": {"type": "Unigram", "unk_id": 0, "vocab": scored, "byte_fallback": false}})
    };
    for json in
        [word_piece(true), word_piece(false), metaspace("always"), metaspace("first"), metaspace("never")]
    {
        let foreign = tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap();
        let tokenizer = made(&json);
        let count = foreign.get_vocab_size(true) as u32;
        // All texts of three tokens.
        for number in 0..count.pow(3) {
            let ids = [number % count, number / count % count, number / count / count];
            for skip in [true, false] {
                let tokens = ids.map(TokenId);
                assert_eq!(
                    tokenizer.decode(&tokens, skip),
                    foreign.decode(&ids, skip).unwrap(),
                    "{json} {ids:?}"
                );
            }
            let tokens = ids.map(TokenId);
            let begun = tokenizer.decode(&tokens[..1], false);
            let streamed = begun + &stream(&tokenizer, &tokens[..1], &tokens[1..]);
            assert_eq!(streamed, tokenizer.decode(&tokens, false), "{ids:?}");
        }
        for text in ["hello, don't we", "a  b c</s>a", "[CLS]we [CLS]", ""] {
            let expected = foreign.encode(text, false).unwrap();
            let expected: Vec<_> = expected.get_ids().iter().copied().map(TokenId).collect();
            assert_eq!(tokenizer.encode(text, false).unwrap(), expected, "{text:?}");
            let plain = tokenizer.encode_text(text).unwrap();
            assert!(plain.iter().all(|id| id.0 != 1), "{text:?}");
        }
    }
}
