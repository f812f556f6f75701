//! Are vectors of texts those of other people's software, and is whatever a folder holds else refused?

use std::path::Path;

use serde_json::{Value, json};
use skulk::ErrorKind::{
    self, ArchUnsupported, CheckpointTruncated, ConfigInvalid, FileNotFound, InvalidArgument,
};
use skulk::embed::{EmbedOptions, EmbeddingModel, EmbeddingOptions, Pooling};
use skulk::{CancelToken, ErrorKind::TensorShape};

use crate::fixtures;
use crate::support::safetensors_writer::{file, write};

const WORDS: [&str; 12] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "##s", "on", "the", "mat"];
const WIDTH: usize = 8;
const INNER: usize = 12;
const POSITIONS: usize = 16;

fn open(folder: &Path) -> skulk::Result<EmbeddingModel> {
    EmbeddingModel::open(folder, &EmbeddingOptions::default().threads(2))
}

fn put(folder: &Path, name: &str, value: &Value) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap(), value.to_string().as_bytes());
}

/// A model of two layers with weights that follow a formula.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let config = json!({
        "model_type": "bert", "vocab_size": WORDS.len(), "hidden_size": WIDTH, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": INNER, "max_position_embeddings": POSITIONS, "hidden_act": "gelu",
    });
    put(path, "config.json", &config);
    let vocabulary: Value =
        WORDS.iter().enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
    let added: Vec<_> = WORDS[..5].iter().enumerate().map(|(id, word)| {
        json!({ "id": id, "content": word, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false })
    }).collect();
    let special = |id: usize| json!({ "SpecialToken": { "id": WORDS[id], "type_id": 0 } });
    let tokens = |id: usize| json!({ "id": WORDS[id], "ids": [id], "tokens": [WORDS[id]] });
    let sequence = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    put(
        path,
        "tokenizer.json",
        &json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                "lowercase": true },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "post_processor": { "type": "TemplateProcessing", "single": [special(2), sequence, special(3)],
                "pair": [special(2), sequence, special(3)],
                "special_tokens": { WORDS[2]: tokens(2), WORDS[3]: tokens(3) } },
            "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
            "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocabulary },
        }),
    );
    write(path, "model.safetensors", &weights(WIDTH));
    folder
}

fn weights(width: usize) -> Vec<u8> {
    let mut tensors = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![WORDS.len(), width]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![POSITIONS, width]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, width]),
        ("embeddings.LayerNorm.weight".to_owned(), vec![width]),
        ("embeddings.LayerNorm.bias".to_owned(), vec![width]),
    ];
    for layer in 0..2 {
        let shapes = [
            ("attention.self.query", vec![width, width]),
            ("attention.self.key", vec![width, width]),
            ("attention.self.value", vec![width, width]),
            ("attention.output.dense", vec![width, width]),
            ("attention.output.LayerNorm", vec![width]),
            ("intermediate.dense", vec![INNER, width]),
            ("output.dense", vec![width, INNER]),
            ("output.LayerNorm", vec![width]),
        ];
        for (name, shape) in shapes {
            tensors.push((format!("encoder.layer.{layer}.{name}.bias"), vec![shape[0]]));
            tensors.push((format!("encoder.layer.{layer}.{name}.weight"), shape));
        }
    }
    let mut at = 0u32;
    let mut number = || {
        at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(at >> 8) / f64::from(1u32 << 23) - 1.0) as f32
    };
    let stored: Vec<_> = tensors
        .into_iter()
        .map(|(name, shape)| {
            let values: Vec<u8> =
                (0..shape.iter().product::<usize>()).flat_map(|_| number().to_le_bytes()).collect();
            (name, shape, values)
        })
        .collect();
    let all: Vec<_> = stored
        .iter()
        .map(|(name, shape, bytes)| (name.as_str(), "F32", shape.as_slice(), bytes.as_slice()))
        .collect();
    file(&all)
}

/// The cases of a suite, made by llama.cpp from a GGUF file in f32 of the same weights. llama.cpp looks its GELU up in a table
/// of f16: elements of vectors of length 1 differ by some 1e-4.
fn gives_llama_cpps_vectors(model: &EmbeddingModel, suite: &str) {
    let suite: Value = fixtures::json(&fixtures::root().join(suite));
    let cases = suite["cases"].as_array().unwrap();
    let texts: Vec<_> = cases.iter().map(|case| case["text"].as_str().unwrap()).collect();
    let vectors = model.embed(&texts).unwrap();
    for (case, vector) in cases.iter().zip(&vectors) {
        let text = case["text"].as_str().unwrap();
        let ids: Vec<u32> = model.tokenizer().encode(text, true).unwrap().iter().map(|id| id.0).collect();
        assert_eq!(json!(ids), case["ids"], "{text}");
        let expected: Vec<f32> = serde_json::from_value(case["vector"].clone()).unwrap();
        let worst = vector.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "{text}: {worst}");
    }
    assert_eq!(cases.len(), 7);
}

#[test]
fn the_real_model_gives_llama_cpps_vectors() {
    let Some(folder) = fixtures::minilm() else { return };
    let model = open(&folder).unwrap();
    assert_eq!((model.dimensions(), model.max_tokens(), model.is_normalized()), (384, 256, true));
    assert_eq!(model.poolings(), [Pooling::Mean]);
    gives_llama_cpps_vectors(&model, "tests/suites/embeddings.json");
}

#[test]
fn an_untrained_model_gives_llama_cpps_vectors() {
    let model = open(&fixtures::root().join("tests/fixtures/embeddings/tiny-bert")).unwrap();
    assert_eq!((model.dimensions(), model.max_tokens(), model.is_normalized()), (16, 16, true));
    gives_llama_cpps_vectors(&model, "tests/fixtures/embeddings/tiny-bert.json");
}

#[test]
fn vectors_depend_on_nothing_but_their_text() {
    let folder = folder();
    let model = open(folder.path()).unwrap();
    let texts = ["the cat sat on the mat", "", "cats", "a mat a mat a mat", "xyz"];
    let together = model.embed(&texts).unwrap();
    let other = EmbeddingModel::open(folder.path(), &EmbeddingOptions::default().threads(1)).unwrap();
    for (text, vector) in texts.iter().zip(&together) {
        assert_eq!(vector.len(), WIDTH);
        assert!(vector.iter().all(|x| x.is_finite()));
        for model in [&model, &other] {
            let alone = model.embed(&[text]).unwrap().remove(0);
            assert!(alone.iter().zip(vector).all(|(a, b)| a.to_bits() == b.to_bits()), "{text}");
        }
    }
    assert!(model.embed::<&str>(&[]).unwrap().is_empty());
    assert_ne!(together[0], together[2]);
}

#[test]
fn what_the_folder_declares_is_done() {
    let folder = folder();
    let path = folder.path();
    let transformer = json!({ "type": "sentence_transformers.models.Transformer", "path": "" });
    let pooling = json!({ "type": "sentence_transformers.models.Pooling", "path": "1_Pooling" });
    let normalize = json!({ "type": "sentence_transformers.models.Normalize", "path": "2_Normalize" });
    put(path, "modules.json", &json!([transformer, pooling]));
    let pooled = |config: &Value| {
        put(path, "1_Pooling/config.json", config);
        open(path).unwrap().embed(&["a cat sat"]).unwrap().remove(0)
    };
    let mode = |mode: &str| pooled(&json!({ "pooling_mode": mode }));
    let (cls, mean, max, last) = (mode("cls"), mode("mean"), mode("max"), mode("lasttoken"));
    let near = |a: f32, b: f32| (a - b).abs() < 1e-5;
    // Five tokens, with those around the text.
    let root = mode("mean_sqrt_len_tokens");
    assert!(mean.iter().zip(&root).all(|(mean, root)| near(mean * 5f32.sqrt(), *root)));
    assert!(max.iter().zip(cls.iter().zip(&last)).all(|(max, (cls, last))| max >= cls && max >= last));
    let both = pooled(&json!({ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true }));
    assert_eq!(both, [cls.clone(), mean.clone()].concat());
    // As in sentence-transformers the mean counts where nothing is said of it.
    assert_eq!(pooled(&json!({ "pooling_mode_cls_token": true })), both);
    assert_eq!(pooled(&json!({ "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false })), cls);
    assert_eq!(pooled(&json!({ "include_prompt": false })), mean);
    let weighted = mode("weightedmean");
    assert!(weighted != mean && weighted.iter().zip(&max).all(|(weighted, max)| weighted <= max));
    put(path, "modules.json", &json!([transformer, pooling, normalize]));
    let length = mode("mean").iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!(near(length, 1.0));
    // A prompt goes before each text, and what is in capitals is another word here.
    let prompt = json!({ "prompts": { "query": "the cat " }, "default_prompt_name": "query" });
    put(path, "config_sentence_transformers.json", &prompt);
    let prompted = open(path).unwrap().embed(&["sat"]).unwrap();
    std::fs::remove_file(path.join("config_sentence_transformers.json")).unwrap();
    assert_eq!(prompted, open(path).unwrap().embed(&["the cat sat"]).unwrap());
}

#[test]
fn long_texts_are_cut_or_refused() {
    let folder = folder();
    put(folder.path(), "sentence_bert_config.json", &json!({ "max_seq_length": 6, "do_lower_case": false }));
    let model = open(folder.path()).unwrap();
    assert_eq!(model.max_tokens(), 6);
    let [long, short] = ["the cat sat on a mat", "the cat sat on"];
    assert_eq!(model.embed(&[long]).unwrap(), model.embed(&[short]).unwrap());
    let whole = EmbedOptions::default().truncate(false);
    let error = model.embed_with(&[short, long], &whole).unwrap_err();
    assert_eq!(error.kind(), InvalidArgument);
    assert!(error.to_string().contains("texts.1") && error.to_string().contains('8'), "{error}");
    // Of far longer ones not all is looked at; words that are none are one token, however long.
    let longer = "the cat sat on\n".repeat(5000);
    assert_eq!(model.embed(&[&longer]).unwrap(), model.embed(&[short]).unwrap());
    let error = model.embed_with(&[&longer], &whole).unwrap_err();
    assert!(error.to_string().contains("found more than"), "{error}");
    let word = "é".repeat(50_000);
    assert_eq!(model.embed_with(&[&word], &whole).unwrap(), model.embed(&["x"]).unwrap());
    let cancel = CancelToken::new();
    cancel.cancel();
    let error = model.embed_with(&[short], &EmbedOptions::default().cancel(cancel)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn what_transformers_is_told_of_texts_counts() {
    let folder = folder();
    let path = folder.path();
    let told = |config: Value| {
        put(path, "tokenizer_config.json", &config);
        open(path).unwrap().embed(&["CAT"]).unwrap()
    };
    let lowered = told(json!({}));
    assert_eq!(lowered, open(path).unwrap().embed(&["cat"]).unwrap());
    let as_it_is = told(json!({ "do_lower_case": false, "tokenizer_class": "BertTokenizer" }));
    assert_eq!(as_it_is, open(path).unwrap().embed(&["[UNK]"]).unwrap());
    assert_eq!(
        told(json!({ "do_lower_case": false, "tokenizer_class": "PreTrainedTokenizerFast" })),
        lowered
    );
}

#[test]
fn damaged_weights_give_no_vectors() {
    let folder = folder();
    let mut bytes = weights(WIDTH);
    let last = bytes.len() - 32;
    bytes[last..].as_chunks_mut::<4>().0.fill(f32::NAN.to_le_bytes());
    write(folder.path(), "model.safetensors", &bytes);
    let error = open(folder.path()).unwrap().embed(&["a cat"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EngineFailed);
    assert!(error.to_string().contains("texts.0") && error.hint().is_some(), "{error}");
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |change: &dyn Fn(&Path), kind: ErrorKind, part: &str| {
        let folder = folder();
        change(folder.path());
        let error = open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part) && error.hint().is_some(), "{part}: {error}");
    };
    let config = |key: &'static str, value: Value| {
        move |path: &Path| {
            let mut config = fixtures::json(&path.join("config.json"));
            config[key] = value.clone();
            put(path, "config.json", &config);
        }
    };
    for (key, value, kind) in [
        ("model_type", json!("llama"), ArchUnsupported),
        ("model_type", json!(1), ArchUnsupported),
        ("position_embedding_type", json!("relative_key"), ArchUnsupported),
        ("is_decoder", json!(true), ArchUnsupported),
        ("hidden_act", json!("swish"), ArchUnsupported),
        ("hidden_size", json!(0), ConfigInvalid),
        ("hidden_size", json!("8"), ConfigInvalid),
        ("num_attention_heads", json!(0), ConfigInvalid),
        ("num_attention_heads", json!(3), ConfigInvalid),
        ("num_hidden_layers", json!(1u64 << 40), ConfigInvalid),
        ("layer_norm_eps", json!(-1.0), ConfigInvalid),
        ("max_position_embeddings", json!(1.5), ConfigInvalid),
    ] {
        refused(&config(key, value), kind, key);
    }
    refused(&config("hidden_size", json!(16)), TensorShape, "embeddings");
    refused(&config("num_hidden_layers", json!(3)), ErrorKind::TensorMissing, "encoder.layer.2");
    refused(&config("vocab_size", json!(11)), TensorShape, "word_embeddings");
    let modules = |value: Value| move |path: &Path| put(path, "modules.json", &value);
    let one = |kind: &str, path: &str| json!({ "type": format!("sentence_transformers.models.{kind}"), "path": path });
    refused(&modules(json!({})), ConfigInvalid, "modules.json");
    refused(&modules(json!([])), ConfigInvalid, "pools");
    refused(&modules(json!([one("Transformer", "../other")])), ConfigInvalid, "inside");
    refused(&modules(json!([one("Transformer", ""), one("Dense", "2")])), ArchUnsupported, "Dense");
    refused(&modules(json!([one("Transformer", ""), one("Pooling", "1")])), FileNotFound, "pooling");
    refused(&modules(json!([one("CLIPModel", "")])), ArchUnsupported, "CLIPModel");
    let tight = |path: &Path| put(path, "sentence_bert_config.json", &json!({ "max_seq_length": 2 }));
    refused(&tight, ConfigInvalid, "max_seq_length");
    let tight = |path: &Path| put(path, "tokenizer_config.json", &json!({ "model_max_length": 2 }));
    refused(&tight, ConfigInvalid, "tokenizer_config.json");
    let slow = |path: &Path| {
        let mut tokenizer = fixtures::json(&path.join("tokenizer.json"));
        tokenizer["model"]["max_input_chars_per_word"] = json!(100_000);
        put(path, "tokenizer.json", &tokenizer);
    };
    refused(&slow, ErrorKind::TokenizerInvalid, "max_input_chars_per_word");
    let apart = |path: &Path| {
        put(path, "modules.json", &json!([one("Transformer", ""), one("Pooling", "1")]));
        put(path, "1/config.json", &json!({ "include_prompt": false }));
        let prompt = json!({ "prompts": { "query": "a " }, "default_prompt_name": "query" });
        put(path, "config_sentence_transformers.json", &prompt);
    };
    refused(&apart, ArchUnsupported, "include_prompt");
    refused(
        &|path| std::fs::remove_file(path.join("tokenizer.json")).unwrap(),
        ErrorKind::TokenizerInvalid,
        "tokenizer.json",
    );
    refused(
        &|path| write(path, "model.safetensors", &weights(WIDTH)[..600]),
        CheckpointTruncated,
        "model.safetensors",
    );
    let error = EmbeddingModel::open(folder().path(), &EmbeddingOptions::default().threads(0)).unwrap_err();
    assert_eq!(error.kind(), InvalidArgument);
}
