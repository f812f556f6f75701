//! Do EAGLE-3 heads draft as they were trained to, and is the text the same?

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use skulk::{ErrorKind, GenerateOptions, KvType, LoadOptions, Model, Speculate, Timings, TokenId};

use crate::fixtures::{self, ids, root};
use crate::generate::common::{OPENING, fresh, greedy, one_thread, path, reference_prompt};
use crate::generate::drafted::{broken_tensors, no_batch_changes, no_text_changes};
use crate::generate::wrapped::Wrapped;
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
        (json!({"norm_output": true}), ErrorKind::ArchUnsupported),
        (json!({"fc_norm": true}), ErrorKind::ArchUnsupported),
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
