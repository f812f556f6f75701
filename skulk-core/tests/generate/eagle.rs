//! Do EAGLE-3 heads draft as they were trained to, and is the text the same?
#![allow(clippy::disallowed_methods, reason = "nothing here depends on last bits")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use skulk::{ErrorKind, GenerateOptions, KvType, LoadOptions, Model, Speculate, Timings, TokenId};

use crate::bad_input::expect;
use crate::fixtures::{self, ids, root};
use crate::generate::common::{OPENING, fresh, greedy, one_thread, path, reference_prompt};
use crate::generate::drafted::{broken_tensors, no_batch_changes, no_text_changes};
use crate::generate::wrapped::Wrapped;
use crate::support::gguf_writer::{GgufWriter, types};
use crate::support::mlx_layout::{Checkpoint, Tensor};

const NAME: &str = "llama";

fn beside() -> PathBuf {
    root().join("tests/fixtures/ahead/llama_eagle3")
}

fn model(load: LoadOptions) -> Model {
    model_with(&beside(), load)
}

fn model_with(beside: &Path, load: LoadOptions) -> Model {
    Model::open(path(NAME), &load.context(512).draft_model(beside)).unwrap()
}

fn drafted(n: usize) -> GenerateOptions {
    greedy(n).speculate(Speculate::DraftModel)
}

fn reference() -> Value {
    fixtures::json(&beside().join("reference_eagle3.json"))
}

/// What drafts make of a text, by the reference's drafts of each row: drafted tokens, accepted ones, steps.
fn told(example: &Value, ends: &[TokenId], depth: usize) -> (usize, usize, usize) {
    let greedy = ids(&example["greedy_ids"]);
    let told = ["draft1", "draft2", "draft3"].map(|name| ids(&example[name]));
    let (mut n, mut found) = (1, (0, 0, 0));
    while n < greedy.len() {
        let most = depth.min(greedy.len() - n - 1);
        let ended = told.iter().position(|drafts| ends.contains(&drafts[n - 1])).map_or(3, |at| at + 1);
        let drafts: Vec<_> = told.iter().map(|drafts| drafts[n - 1]).take(most.min(ended)).collect();
        let right = drafts.iter().zip(&greedy[n..]).take_while(|(draft, id)| draft == id).count();
        found = (found.0 + drafts.len(), found.1 + right, found.2 + usize::from(!drafts.is_empty()));
        n += right + 1;
    }
    found
}

/// The steps of a text with drafts, against the reference's.
fn follows(model: &Model, example: &Value, depth: usize) {
    let expected = told(example, model.tokenizer().eos_ids(), depth);
    let output = fresh(model, ids(&example["prompt_ids"]), &drafted(48).draft_tokens(depth));
    assert_eq!(output.ids, ids(&example["greedy_ids"]), "{depth}");
    let Timings { drafted_tokens, accepted_tokens, draft_steps, .. } = output.finish.timings;
    assert_eq!((drafted_tokens, accepted_tokens, draft_steps), expected, "{depth}");
}

#[test]
fn drafts_are_the_reference_s() {
    for (at, example) in reference()["examples"].as_array().unwrap().iter().enumerate() {
        // Prompts in two steps, of which the head sees all rows in one: with fewer it would begin a step later.
        let load = one_thread().stages(1 + at % 3).prefill_chunk([7, 22, 40, 64][at]).kv(KvType::F32);
        let model = model(load);
        assert_eq!(model.memory().draft_model.unwrap().layers, 0..1);
        (1..=3).for_each(|depth| follows(&model, example, depth));
    }
}

/// The layout of the library speculators, which has a table of embeddings, and norms that it adds to unless it says otherwise.
#[test]
fn heads_by_speculators_draft() {
    let mut checkpoint = Checkpoint::read(&beside());
    checkpoint.weights = checkpoint
        .weights
        .into_iter()
        .map(|(name, tensor)| (name.replace("midlayer.", "layers.0."), tensor))
        .collect();
    let table = Checkpoint::read(&path(NAME)).weights["model.embed_tokens.weight"].clone();
    checkpoint.weights.insert("embed_tokens.weight".into(), table);
    let mut layer = checkpoint.config.clone();
    layer.as_object_mut().unwrap().retain(|field, _| !["eagle_config", "architectures"].contains(&&**field));
    checkpoint.config = json!({
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 1000,
        "eagle_aux_hidden_state_layer_ids": [2, 3, 4],
        "norm_before_residual": false,
        "transformer_layer_config": layer,
    });
    let reference = reference();
    let example = &reference["examples"][2];
    follows(&model_with(checkpoint.written().path(), one_thread().kv(KvType::F32)), example, 2);
    // Norms before the residual stream are another head's.
    checkpoint.config.as_object_mut().unwrap().remove("norm_before_residual");
    let model = model_with(checkpoint.written().path(), one_thread().kv(KvType::F32));
    let output = fresh(&model, ids(&example["prompt_ids"]), &drafted(48).draft_tokens(2));
    assert_eq!(output.ids, ids(&example["greedy_ids"]));
    let told = told(example, model.tokenizer().eos_ids(), 2);
    assert!(output.finish.timings.accepted_tokens < told.1, "{told:?}, {:?}", output.finish.timings);
}

/// The head with norms of one of these kinds, as `eagle3_norms.py` makes them.
pub(crate) fn with_norms(kind: &str) -> Checkpoint {
    let mut folder = Checkpoint::read(&beside());
    folder.config[kind] = true.into();
    let names: &[&str] = match kind {
        "norm_before_fc" => &["input_norm"],
        "fc_norm" => &["fc_norm.0", "fc_norm.1", "fc_norm.2"],
        _ => &[],
    };
    let weights: Vec<_> = (0..768).map(|at| (1.0 + 0.3 * (0.7 * f64::from(at)).sin()) as f32).collect();
    for (name, own) in names.iter().zip(weights.chunks(768 / names.len().max(1))) {
        folder.weights.insert(format!("{name}.weight"), Tensor::of_f32(&[own.len()], own));
    }
    folder
}

/// What they take or go on from is normed.
#[test]
fn heads_with_further_norms_draft() {
    let reference = fixtures::json(&beside().join("reference_norms.json"));
    for kind in ["norm_before_fc", "fc_norm", "norm_output"] {
        let folder = with_norms(kind).written();
        let model = model_with(folder.path(), one_thread().kv(KvType::F32));
        (1..=3).for_each(|depth| follows(&model, &reference[kind], depth));
    }
    // In GGUF one of these is known.
    let mut head = Gguf::new().with("norm_before_fc", Some(Key::Flag(true)));
    let norm = with_norms("norm_before_fc").weights.remove("input_norm.weight").unwrap();
    head.tensors.insert("enc.output_norm.weight".into(), norm);
    let (_folder, path) = head.written();
    follows(&model_with(&path, one_thread().kv(KvType::F32)), &reference["norm_before_fc"], 2);
}

/// A head in GGUF, as llama.cpp's converter names and turns it, in floats.
#[derive(Clone)]
struct Gguf {
    keys: BTreeMap<&'static str, Key>,
    tensors: BTreeMap<String, Tensor>,
}

#[derive(Clone)]
enum Key {
    Size(u32),
    Float(f32),
    Flag(bool),
    Layers(Vec<i32>),
}

impl Gguf {
    fn new() -> Self {
        let folder = Checkpoint::read(&beside());
        let names = [
            ("fc", "fc"),
            ("norm", "output_norm"),
            ("lm_head", "output"),
            ("midlayer.input_layernorm", "blk.0.attn_norm"),
            ("midlayer.hidden_norm", "blk.0.attn_norm_2"),
            ("midlayer.self_attn.q_proj", "blk.0.attn_q"),
            ("midlayer.self_attn.k_proj", "blk.0.attn_k"),
            ("midlayer.self_attn.v_proj", "blk.0.attn_v"),
            ("midlayer.self_attn.o_proj", "blk.0.attn_output"),
            ("midlayer.post_attention_layernorm", "blk.0.ffn_norm"),
            ("midlayer.mlp.gate_proj", "blk.0.ffn_gate"),
            ("midlayer.mlp.up_proj", "blk.0.ffn_up"),
            ("midlayer.mlp.down_proj", "blk.0.ffn_down"),
        ];
        let tensor = |(from, to): (&str, &str)| {
            let tensor = &folder.weights[&format!("{from}.weight")];
            let values = tensor.values();
            let values = if ["q_proj", "k_proj"].iter().any(|end| from.ends_with(end)) {
                // The two of a pair beside each other, of heads of 32 elements.
                let rows: Vec<_> = values.chunks(tensor.shape[1]).collect();
                let row = |at: usize| rows[at / 32 * 32 + at % 2 * 16 + at % 32 / 2];
                (0..rows.len()).flat_map(row).copied().collect()
            } else {
                values
            };
            (format!("{to}.weight"), Tensor::of_f32(&tensor.shape, &values))
        };
        let mut tensors: BTreeMap<_, _> = names.into_iter().map(tensor).collect();
        tensors.insert(
            "d2t".into(),
            integers(&(0..).zip(offsets(&folder)).map(|(at, by)| at + by).collect::<Vec<_>>()),
        );
        let keys = [
            ("target_layers", Key::Layers(vec![2, 3, 4])),
            ("target_hidden_size", Key::Size(256)),
            ("norm_before_residual", Key::Flag(false)),
            ("block_count", Key::Size(1)),
            ("context_length", Key::Size(1024)),
            ("embedding_length", Key::Size(256)),
            ("feed_forward_length", Key::Size(384)),
            ("attention.head_count", Key::Size(8)),
            ("attention.head_count_kv", Key::Size(2)),
            ("attention.layer_norm_rms_epsilon", Key::Float(1e-5)),
            ("vocab_size", Key::Size(2048)),
        ];
        Self { keys: keys.into(), tensors }
    }

    fn with(mut self, key: &'static str, value: Option<Key>) -> Self {
        self.keys.remove(key);
        self.keys.extend(value.map(|value| (key, value)));
        self
    }

    /// With other numbers in place of its tokens.
    fn tokens(mut self, tokens: &[i64]) -> Self {
        self.tensors.insert("d2t".into(), integers(tokens));
        self
    }

    fn written(&self) -> (tempfile::TempDir, PathBuf) {
        let mut file = GgufWriter::new().str("general.architecture", "eagle3");
        for (key, value) in &self.keys {
            let key = format!("eagle3.{key}");
            file = match value {
                Key::Size(n) => file.u32(&key, *n),
                Key::Float(x) => file.f32(&key, *x),
                Key::Flag(is) => file.bool(&key, *is),
                Key::Layers(layers) => file.i32s(&key, layers),
            };
        }
        for (name, tensor) in &self.tensors {
            let shape: Vec<_> = tensor.shape.iter().map(|n| *n as u64).collect();
            let kind = if tensor.dtype == "I64" { 27 } else { types::F32 };
            file = file.tensor(name, kind, &shape, &tensor.bytes);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("head.gguf");
        std::fs::write(&path, file.build()).unwrap();
        (folder, path)
    }
}

fn integers(numbers: &[i64]) -> Tensor {
    let bytes = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    Tensor { dtype: "I64".into(), shape: vec![numbers.len()], bytes }
}

/// By how much further on the head's tokens are.
fn offsets(folder: &Checkpoint) -> Vec<i64> {
    let (numbers, _) = folder.weights["d2t"].bytes.as_chunks();
    numbers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

/// Heads in GGUF draft as those in safetensors, with layers by either name, and tokens or what older converters wrote.
#[test]
fn heads_in_gguf_draft() {
    let (reference, head) = (reference(), Gguf::new());
    let layers = head.keys["target_layers"].clone();
    let older = head.clone().with("target_layers", None).with("extract_layers", Some(layers));
    let older = older.tokens(&offsets(&Checkpoint::read(&beside())));
    for (at, head) in [head.clone(), older].into_iter().enumerate() {
        let (_folder, path) = head.written();
        let model = model_with(&path, one_thread().stages(1 + at).kv(KvType::F32));
        (1..=3).for_each(|depth| follows(&model, &reference["examples"][2 * at], depth));
    }
    // Norms before the residual stream are another head's.
    let (_folder, path) = head.with("norm_before_residual", Some(Key::Flag(true))).written();
    let accepted = |path: &Path, example: &Value| {
        let model = model_with(path, one_thread().kv(KvType::F32));
        let output = fresh(&model, ids(&example["prompt_ids"]), &drafted(48).draft_tokens(2));
        assert_eq!(output.ids, ids(&example["greedy_ids"]));
        (output.finish.timings.accepted_tokens, told(example, model.tokenizer().eos_ids(), 2).1)
    };
    let (found, told) = accepted(&path, &reference["examples"][2]);
    assert!(found < told, "{found} of {told}");
    // What llama.cpp's converter writes, in 8 bits: nearly as many are right.
    let file = root().join("tests/fixtures/ahead/llama_eagle3-q8_0.gguf");
    for example in reference["examples"].as_array().unwrap() {
        let (found, told) = accepted(&file, example);
        assert!(found.abs_diff(told) <= 2, "{found} of {told}");
    }
    let alone = Model::open(&file, &one_thread()).err().unwrap();
    assert_eq!(alone.kind(), ErrorKind::ArchUnsupported);
    assert!(alone.hint().is_some_and(|hint| hint.contains("draft model")), "{alone}");
}

/// What a head in GGUF lacks, or says that cannot be, is an error with the file, the tensor or the key, and something to do.
#[test]
fn broken_heads_in_gguf_are_errors() {
    let open = |head: Gguf, kind: ErrorKind, names: &[&str]| {
        let (_folder, path) = head.written();
        let error = Model::open(self::path(NAME), &one_thread().draft_model(&path)).err().unwrap();
        let names = [&["draft_model", "head.gguf"][..], names].concat();
        expect(&names.join(" "), &error, kind, &names);
    };
    let new = Gguf::new();
    for name in
        ["fc", "output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.attn_q", "blk.0.ffn_norm"]
    {
        let (mut head, name) = (new.clone(), format!("{name}.weight"));
        head.tensors.remove(&name);
        open(head, ErrorKind::TensorMissing, &[&name]);
    }
    for (name, shape, found) in [
        ("fc.weight", vec![768, 256], "[768, 256]"),
        ("blk.0.attn_k.weight", vec![128, 256], "[128, 256]"),
        ("blk.0.attn_norm_2.weight", vec![2, 128], "[2, 128]"),
        ("d2t", vec![500, 2], "[500, 2]"),
    ] {
        let mut head = new.clone();
        head.tensors.get_mut(name).unwrap().shape = shape;
        open(head, ErrorKind::TensorShape, &[name, "expected", found]);
    }
    let normed = new.clone().with("norm_before_fc", Some(Key::Flag(true)));
    open(normed, ErrorKind::TensorMissing, &["enc.output_norm.weight"]);
    let mut head = new.clone();
    head.tensors.remove("d2t");
    open(head, ErrorKind::TensorMissing, &["d2t", "1000"]);
    let mut head = new.clone();
    head.tensors.insert("d2t".into(), Tensor::of_f32(&[1000], &[0.0; 1000]));
    open(head, ErrorKind::DTypeUnsupported, &["d2t", "I64", "F32"]);
    // Neither tokens nor distances: below the first one, behind the last one, or twice the same in both ways.
    let tokens: Vec<_> = (0..1000).collect();
    for (at, token, found) in [(7, -9, "-2"), (999, 2048, "3047"), (0, 1, "")] {
        let mut tokens = tokens.clone();
        tokens[at] = token;
        if at == 0 {
            tokens[1..4].copy_from_slice(&[0, 5, 5]);
        }
        open(new.clone().tokens(&tokens), ErrorKind::CheckpointInvalid, &["d2t", "below 2048", found]);
    }
    let invalid = ErrorKind::ConfigInvalid;
    let size = |n| Some(Key::Size(n));
    let layers = |layers: &[i32]| Some(Key::Layers(layers.to_vec()));
    let cases: [(&str, Option<Key>, ErrorKind, &[&str]); 14] = [
        ("target_layers", None, invalid, &["expected an array", "nothing"]),
        ("target_layers", size(3), invalid, &["expected an array"]),
        ("target_layers", layers(&[2, 3]), invalid, &["three"]),
        ("target_layers", layers(&[-1, 2, 3]), invalid, &["three"]),
        ("target_layers", layers(&[0, 2, 3]), invalid, &["[0, 2, 3]"]),
        ("target_layers", layers(&[2, 4, 3]), invalid, &["[2, 4, 3]"]),
        ("target_layers", layers(&[2, 3, 5]), invalid, &["4 layers", "[2, 3, 5]"]),
        ("target_hidden_size", None, invalid, &["none"]),
        ("norm_before_residual", size(1), invalid, &["a boolean"]),
        ("norm_before_fc", size(1), invalid, &["a boolean"]),
        ("block_count", size(2), ErrorKind::ArchUnsupported, &["2"]),
        ("embedding_length", None, invalid, &["none"]),
        ("attention.head_count", None, invalid, &["none"]),
        ("vocab_size", None, invalid, &["none"]),
    ];
    for (key, value, kind, names) in cases {
        open(new.clone().with(key, value), kind, &[names, &[&format!("eagle3.{key}")]].concat());
    }
    // Another model's.
    for (key, n, found) in [("target_hidden_size", 128, "[128, 2048]"), ("vocab_size", 2000, "[256, 2000]")] {
        open(new.clone().with(key, size(n)), invalid, &["[256, 2048]", found]);
    }
}

/// In one stage or more, with keys of any type.
#[test]
fn no_eagle_head_changes_a_text() {
    let kv = [KvType::F16, KvType::F32, KvType::Q8_0, KvType::Q4_0];
    no_text_changes(NAME, |at, load| model(load.stages(1 + at % 3).kv(kv[at])));
}

#[test]
fn a_batch_is_drafted_by_an_eagle_head() {
    no_batch_changes(NAME, &model(one_thread().sessions(4).prefill_chunk(32)));
}

/// What a head lacks, or has in another shape, and what its configuration says that cannot be, is an error by name.
#[test]
fn broken_eagle_heads_are_errors() {
    let open = |checkpoint: Checkpoint| {
        let folder = checkpoint.written();
        let error = Model::open(path(NAME), &one_thread().draft_model(folder.path())).err().unwrap();
        assert!(format!("{error:?}").contains("draft_model"), "{error:?}");
        error
    };
    broken_tensors(
        &beside(),
        open,
        [
            ("fc.weight", None, ErrorKind::TensorMissing),
            ("norm.weight", None, ErrorKind::TensorMissing),
            ("midlayer.hidden_norm.weight", None, ErrorKind::TensorMissing),
            ("midlayer.self_attn.q_proj.weight", None, ErrorKind::TensorMissing),
            ("d2t", None, ErrorKind::TensorMissing),
            ("d2t", Some(vec![500, 2]), ErrorKind::TensorShape),
            ("fc.weight", Some(vec![768, 256]), ErrorKind::TensorShape),
            ("midlayer.self_attn.k_proj.weight", Some(vec![128, 256]), ErrorKind::TensorShape),
        ],
    );
    // Tokens that are none.
    let mut checkpoint = Checkpoint::read(&beside());
    checkpoint.weights.get_mut("d2t").unwrap().bytes[8 * 7..8 * 8].copy_from_slice(&(-9i64).to_le_bytes());
    assert_eq!(open(checkpoint).kind(), ErrorKind::CheckpointInvalid);
    let mut checkpoint = Checkpoint::read(&beside());
    let mut further = Tensor::of_f32(&[1000], &[0.0; 1000]);
    std::mem::swap(checkpoint.weights.get_mut("d2t").unwrap(), &mut further);
    assert_eq!(open(checkpoint).kind(), ErrorKind::DTypeUnsupported, "floats are no integers");
    for (change, kind) in [
        (json!({"draft_vocab_size": 999}), ErrorKind::TensorShape),
        (json!({"draft_vocab_size": 0}), ErrorKind::ConfigInvalid),
        (json!({"vocab_size": 2000}), ErrorKind::ConfigInvalid),
        (json!({"target_hidden_size": 128}), ErrorKind::ConfigInvalid),
        (json!({"num_hidden_layers": 2}), ErrorKind::ArchUnsupported),
        (json!({"model_type": "qwen3"}), ErrorKind::ArchUnsupported),
        (json!({"norm_output": "yes"}), ErrorKind::ConfigInvalid),
        (json!({"fc_norm": true}), ErrorKind::TensorMissing),
        (json!({"norm_before_fc": true}), ErrorKind::TensorMissing),
        (json!({"fc_norm": true, "norm_before_fc": true}), ErrorKind::ConfigInvalid),
        (json!({"eagle_aux_hidden_state_layer_ids": [1, 2]}), ErrorKind::ConfigInvalid),
        (json!({"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}), ErrorKind::ConfigInvalid),
        (json!({"eagle_aux_hidden_state_layer_ids": [1, 3, 2]}), ErrorKind::ConfigInvalid),
        (json!({"eagle_aux_hidden_state_layer_ids": [2, 3, 5]}), ErrorKind::ConfigInvalid),
        (json!({"eagle_aux_hidden_state_layer_ids": "last"}), ErrorKind::ConfigInvalid),
        // Without any, those of larger models.
        (json!({"eagle_config": null}), ErrorKind::ConfigInvalid),
    ] {
        let mut checkpoint = Checkpoint::read(&beside());
        for (field, value) in change.as_object().unwrap() {
            checkpoint.config[field] = value.clone();
        }
        let error = open(checkpoint);
        assert_eq!(error.kind(), kind, "{change}: {error}");
    }
    // Embeddings of another width, with the model's output head.
    let mut checkpoint = Checkpoint::read(&beside());
    checkpoint.weights.remove("lm_head.weight");
    let table = Tensor::of_f32(&[2048, 128], &vec![0.0; 2048 * 128]);
    checkpoint.weights.insert("embed_tokens.weight".into(), table);
    checkpoint.config["hidden_size"] = json!(128);
    checkpoint.config["target_hidden_size"] = json!(256);
    assert_eq!(open(checkpoint).kind(), ErrorKind::ConfigInvalid);
    // Numbers that are none are found while it drafts, and the text goes on.
    let mut checkpoint = Checkpoint::read(&beside());
    checkpoint.weights.get_mut("norm.weight").unwrap().bytes.fill(0xff);
    let broken = model_with(checkpoint.written().path(), one_thread());
    let prompt = reference_prompt(NAME, 0);
    let output = fresh(&broken, prompt.clone(), &drafted(20).draft_tokens(2));
    assert_eq!(output.ids, fresh(&broken, prompt, &greedy(20).speculate(Speculate::Off)).ids);
    let [warning] = &output.finish.warnings[..] else { panic!("{:?}", output.finish) };
    assert!(warning.contains("the likeliest") && !warning.contains("internal"), "{warning}");
    // Of another model, and where an engine knows none.
    let error = Model::open(path("stories260K"), &one_thread().draft_model(beside())).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
    let engine = one_thread().engine(Wrapped::forward(|_| Ok(()))).draft_model(beside());
    assert_eq!(Model::open(path(NAME), &engine).err().unwrap().kind(), ErrorKind::ArchUnsupported);
    assert!(!fresh(&model(one_thread()), OPENING, &greedy(4)).ids.is_empty());
}
