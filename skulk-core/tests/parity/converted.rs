//! Checkpoints as mlx-lm and llama.cpp convert them compute what those compute that they were made of, which is compared
//! with transformers.

use std::path::{Path, PathBuf};

use serde_json::Value;
use skulk::engine::ShardSpec;
use skulk::{ErrorKind, KvType, Precision, TokenId, Tokenizer, open_checkpoint};

use super::reference::{EXACT, F32_CACHE, compare, short};
use super::splits::few;
use super::stages::{Setup, Stages, engine};
use crate::fixtures::{self, checkpoints, chosen, ids, json};
use crate::support::mlx_layout::{Checkpoint, Tensor};

/// Models that are the text part of others, and what these are called.
const WRAPPERS: [(&str, &str); 7] = [
    ("gemma3", "gemma3"),
    ("gemma3n", "gemma3n"),
    ("gemma4", "gemma4"),
    ("gemma4_moe", "gemma4"),
    ("llama4", "llama4"),
    ("ministral3", "mistral3"),
    ("deepseek_v3", "kimi_k25"),
];

fn setup() -> Setup {
    Setup { kv: KvType::F32.into(), precision: Precision::Exact, context: 512, ..Setup::default() }
}

/// Whether the engine runs it. The CPU runs all, others refuse what they lack.
fn runs(path: &Path) -> bool {
    let Err(error) = Stages::load(path, &short(path, &setup())) else { return true };
    assert_ne!(super::ENGINE, "cpu", "{}: {error}", path.display());
    assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{}: {error}", path.display());
    false
}

/// Checkpoints that the engine runs and that mlx-lm converts. Of gpt-oss it takes blocks, which a fixture of its own has.
fn originals() -> Vec<PathBuf> {
    let is_original = |path: &PathBuf| {
        let config = path.join("config.json");
        let kind = |config: &Value| config.get("quantization").is_none() && config["model_type"] != "gpt_oss";
        config.exists()
            && kind(&json(&config))
            && json(&path.join("reference.json"))["prompts"].is_array()
            && runs(path)
    };
    let all: Vec<_> = checkpoints().into_iter().filter(is_original).collect();
    assert!(all.len() >= 25, "{}", all.len());
    all
}

/// The longest prompt of a model's reference, alone.
fn longest(model: &Path) -> Value {
    let reference = json(&model.join("reference.json"));
    let prompts = reference["prompts"].as_array().unwrap();
    let longest = prompts.iter().max_by_key(|prompt| prompt["ids"].as_array().unwrap().len());
    serde_json::json!({ "prompts": [longest.unwrap()] })
}

/// The first tokens of that: so few that every row sees all of them where positions are chosen.
fn beginning(model: &Path) -> Vec<TokenId> {
    ids(&longest(model)["prompts"][0]["ids"])[..12].to_vec()
}

#[test]
fn conversions_compute_the_same() {
    let setup = Setup { precision: Precision::Fast, ..setup() };
    for path in chosen(few(8), originals()) {
        let reference = longest(&path);
        let converted = Checkpoint::read(&path).converted(true);
        println!("{}", path.display());
        let name = path.file_name().unwrap().to_str().unwrap();
        for (_, wrapper) in WRAPPERS.iter().filter(|(of, _)| *of == name) {
            let folder = converted.clone().wrapped(wrapper).written();
            compare(folder.path(), &reference, &setup, F32_CACHE);
        }
        let folder = converted.written();
        Stages::load(folder.path(), &short(folder.path(), &setup)).unwrap();
        compare(folder.path(), &reference, &setup, F32_CACHE);
    }
}

/// Files of llama.cpp's converter, of whose families each has words, orders and signs of its own.
#[test]
fn gguf_files_compute_the_same() {
    let files = std::fs::read_dir(fixtures::path("").join("../gguf/families")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "gguf")).collect();
    files.sort();
    let mut refused = 0;
    assert!(files.len() >= 22, "{}", files.len());
    for path in chosen(few(8), files) {
        // What the file was made of has one, or else it lies beside.
        let model = fixtures::path(path.file_stem().unwrap().to_str().unwrap());
        let own = path.with_extension("json");
        let reference = json(&if own.exists() { own } else { model.join("reference.json") });
        let tokenizer = Tokenizer::from_checkpoint(&*open_checkpoint(&path).unwrap()).unwrap();
        // Phi 3's special tokens take the white space behind them, in files of that family.
        let strips = path.ends_with("phi3.gguf");
        for prompt in reference["prompts"].as_array().unwrap().iter().filter(|_| !strips) {
            let special = prompt["add_special_tokens"].as_bool().unwrap();
            let found = tokenizer.encode(prompt["text"].as_str().unwrap(), special).unwrap();
            assert_eq!(found, ids(&prompt["ids"]), "{} {}", path.display(), prompt["name"]);
        }
        let is_quantised = open_checkpoint(&path).unwrap().tensors().iter().any(|t| t.dtype.is_quantised());
        match Stages::load(&path, &short(&path, &setup())) {
            Err(error) => {
                assert_ne!(super::ENGINE, "cpu", "{}: {error}", path.display());
                let kinds = [ErrorKind::ArchUnsupported, ErrorKind::DTypeUnsupported];
                assert!(kinds.contains(&error.kind()), "{}: {error}", path.display());
                refused += 1;
            }
            Ok(_) => {
                let (precision, bound) =
                    if is_quantised { (Precision::Exact, EXACT) } else { (Precision::Fast, F32_CACHE) };
                compare(&path, &reference, &Setup { precision, ..setup() }, bound);
            }
        }
    }
    assert!(refused <= 3, "{refused}");
}

/// Logits of two checkpoints of a model are near each other, and the first one's weights are as large in memory as was
/// said before.
fn same(name: &str, [first, second]: [Checkpoint; 2], tokens: &[TokenId]) {
    let folders = [first, second].map(|checkpoint| checkpoint.written());
    let rows = folders.each_ref().map(|folder| {
        let stages = Stages::load(folder.path(), &short(folder.path(), &setup()));
        let stages = stages.unwrap_or_else(|error| panic!("{name}: {error}"));
        let rows = stages.feed(stages.open(0), 0, tokens);
        let checkpoint = open_checkpoint(folder.path()).unwrap();
        let spec: &ShardSpec = stages.shards[0].spec();
        let engine = engine(super::ENGINE, &skulk::EngineOptions::default()).unwrap();
        let said = engine.estimate(spec, &*checkpoint).unwrap().weights;
        if super::ENGINE == "cpu" {
            let found = stages.shards[0].weight_bytes();
            // Biases and small vectors may be counted or not.
            assert!(
                found.bytes().abs_diff(said.bytes()) <= said.bytes() / 50,
                "{name}: {found}, said {said}"
            );
        }
        rows.concat()
    });
    let largest = rows[1].iter().fold(0.0f32, |a, b| a.max(b.abs()));
    let worst = rows[0].iter().zip(&rows[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= EXACT * largest, "{name}: logits differ by {worst} of {largest}");
}

/// Packed matrices of every family, stacks of heads and experts too, are the numbers that they stand for.
#[test]
fn quantised_conversions_compute_the_same() {
    for path in originals() {
        let tokens = &beginning(&path);
        let pair = Checkpoint::read(&path).converted(true).quantised();
        same_or_refused(&path.display().to_string(), pair, tokens);
    }
}

/// Engines compute the same, or refuse such types.
fn same_or_refused(name: &str, pair: [Checkpoint; 2], tokens: &[TokenId]) {
    if super::ENGINE != "wgpu" {
        return same(name, pair, tokens);
    }
    let folder = pair[0].written();
    let error = Stages::load(folder.path(), &short(folder.path(), &setup())).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::DTypeUnsupported, "{name}: {error}");
}

/// Small floats: those of MLX, of stacks too, and FP8 with scales of every kind, of matrices that are taken apart too.
#[test]
fn small_floats_compute_the_same() {
    for model in ["llama", "deepseek_v3", "nemotron_h_moe", "phi3", "mixtral"] {
        let path = fixtures::path(model);
        if !runs(&path) {
            continue;
        }
        let tokens = &beginning(&path);
        for mode in ["mxfp4", "mxfp8", "nvfp4"] {
            let pair = Checkpoint::read(&path).converted(true).in_mode(mode);
            same_or_refused(&format!("{model} in {mode}"), pair, tokens);
        }
        for scales in ["blocks", "rows", "one"] {
            let pair = Checkpoint::read(&path).in_fp8(scales);
            assert!(pair[0].weights.values().filter(|tensor| tensor.dtype == "F8_E4M3").count() > 10);
            same_or_refused(&format!("{model} in FP8, {scales}"), pair, tokens);
        }
    }
}

/// Older conversions have what projects latent vectors in one tensor. Its columns are copied, and counted.
#[test]
fn heads_in_one_tensor() {
    for model in ["deepseek_v3", "glm4_moe_lite"] {
        let path = fixtures::path(model);
        if super::ENGINE == "wgpu" || !runs(&path) {
            continue;
        }
        let tokens = &beginning(&path);
        let pair = Checkpoint::read(&path).converted(false).quantised();
        assert!(pair[0].weights.keys().any(|name| name.ends_with("kv_b_proj.scales")));
        same(model, pair, tokens);
    }
}

/// A stack of heads that are not turned, and one of too few.
#[test]
fn heads_of_wrong_shapes_are_refused() {
    let path = fixtures::path("glm4_moe_lite");
    if !runs(&path) {
        return;
    }
    let changes: [fn(&mut Tensor); 2] = [
        |stack| stack.shape.swap(1, 2),
        |stack| {
            stack.shape[0] -= 1;
            let len = stack.shape.iter().product::<usize>() * 2;
            stack.bytes.truncate(len);
        },
    ];
    for (word, change) in [("embed_q", changes[0]), ("embed_q", changes[1]), ("unembed_out", changes[1])] {
        let mut checkpoint = Checkpoint::read(&path).converted(true);
        let name = format!("model.layers.1.self_attn.{word}.weight");
        change(checkpoint.weights.get_mut(&name).unwrap());
        let folder = checkpoint.written();
        let error = Stages::load(folder.path(), &short(folder.path(), &setup())).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TensorShape, "{error}");
        assert!(error.to_string().contains(&name), "{error}");
    }
}

/// What a checkpoint of this fixture computes that was changed so, where the engine runs it, is what the fixture's reference
/// says.
fn computes_the_same(model: &str, change: impl FnOnce(&mut Checkpoint)) {
    let path = fixtures::path(model);
    if !runs(&path) {
        return;
    }
    let mut checkpoint = Checkpoint::read(&path);
    change(&mut checkpoint);
    println!("{model}");
    let folder = checkpoint.written();
    compare(folder.path(), &longest(&path), &Setup { precision: Precision::Fast, ..setup() }, F32_CACHE);
}

/// Experts in the stacks that transformers 5 has them in, gates before ups.
#[test]
fn stacked_experts_compute_the_same() {
    for model in ["deepseek_v3", "glm4_moe", "glm_moe_dsa", "qwen3_next"] {
        computes_the_same(model, |checkpoint| {
            let mut stacks = std::collections::BTreeMap::<String, Vec<[Tensor; 3]>>::new();
            let first = |name: &String| name.strip_suffix(".0.gate_proj.weight").map(str::to_owned);
            for before in checkpoint.weights.keys().filter_map(first).collect::<Vec<_>>() {
                let of = |expert: usize, word: &str| format!("{before}.{expert}.{word}_proj.weight");
                let mut experts = Vec::new();
                while checkpoint.weights.contains_key(&of(experts.len(), "up")) {
                    let parts = ["gate", "up", "down"].map(|word| of(experts.len(), word));
                    experts.push(parts.map(|name| checkpoint.weights.remove(&name).unwrap()));
                }
                stacks.insert(before, experts);
            }
            assert!(!stacks.is_empty());
            for (before, experts) in stacks {
                let [gate, _, down] = &experts[0];
                let shapes = [[experts.len(), gate.shape[0] * 2, gate.shape[1]], {
                    [experts.len(), down.shape[0], down.shape[1]]
                }];
                let bytes = |parts: &[usize]| {
                    let all = experts.iter().flat_map(|expert| parts.iter().map(|part| &expert[*part]));
                    all.flat_map(|tensor| tensor.bytes.clone()).collect::<Vec<_>>()
                };
                for ((word, parts), shape) in
                    [("gate_up_proj", &[0, 1][..]), ("down_proj", &[2])].into_iter().zip(shapes)
                {
                    let stack =
                        Tensor { dtype: gate.dtype.clone(), shape: shape.to_vec(), bytes: bytes(parts) };
                    checkpoint.weights.insert(format!("{before}.{word}"), stack);
                }
            }
        });
    }
}

/// Dense blocks of Kimi Linear are called as those of experts, and its configuration has no section for states, as
/// transformers 5 writes both.
#[test]
fn kimi_linear_of_transformers_computes_the_same() {
    computes_the_same("kimi_linear", |checkpoint| {
        let (ours, theirs) = ("layers.0.mlp.", "layers.0.block_sparse_moe.");
        let named = std::mem::take(&mut checkpoint.weights).into_iter();
        checkpoint.weights = named.map(|(name, tensor)| (name.replace(ours, theirs), tensor)).collect();
        assert!(checkpoint.weights.contains_key(&format!("model.{theirs}up_proj.weight")));
        checkpoint.config.as_object_mut().unwrap().remove("linear_attn_config");
    });
}

/// A head that is another matrix than the table counts, whatever the configuration ties; a copy of the table does not.
#[test]
fn heads_beside_tables() {
    const HEAD: &str = "lm_head.weight";
    for model in ["mistral", "nemotron_h", "qwen3_next"] {
        computes_the_same(model, |checkpoint| {
            assert!(checkpoint.weights.contains_key(HEAD));
            checkpoint.config["tie_word_embeddings"] = true.into();
        });
    }
    computes_the_same("llama", |checkpoint| {
        assert_eq!(checkpoint.config["tie_word_embeddings"], true);
        let table = checkpoint.weights["model.embed_tokens.weight"].clone();
        checkpoint.weights.insert(HEAD.into(), table);
        let folder = checkpoint.written();
        let arch = skulk::arch::ArchSpec::from_checkpoint(&*open_checkpoint(folder.path()).unwrap()).unwrap();
        assert!(arch.tied_embeddings);
    });
}
