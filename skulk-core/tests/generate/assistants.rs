//! Do assistants draft as they were trained to, from a session's own keys and values, and is the text the same?

use std::path::PathBuf;

use skulk::{ErrorKind, GenerateOptions, KvType, LoadOptions, Model, Speculate, Timings, TokenId};

use crate::fixtures::{ids, json, root};
use crate::generate::common::{OPENING, fresh, greedy, one_thread, path, reference_prompt};
use crate::generate::drafted::{broken_tensors, no_batch_changes, no_text_changes};
use crate::generate::wrapped::Wrapped;
use crate::support::mlx_layout::{Checkpoint, Tensor};

const NAME: &str = "gemma4";

fn beside() -> PathBuf {
    root().join("tests/fixtures/ahead/gemma4_assistant")
}

fn model(load: LoadOptions) -> Model {
    Model::open(path(NAME), &load.context(512).draft_model(beside())).unwrap()
}

fn assisted(n: usize) -> GenerateOptions {
    greedy(n).speculate(Speculate::DraftModel)
}

/// What drafts make of a text, by the reference's drafts of each row: drafted tokens, accepted ones, steps.
fn told(example: &serde_json::Value, ends: &[TokenId], depth: usize) -> (usize, usize, usize) {
    let greedy = ids(&example["greedy_ids"]);
    let (one, two) = (ids(&example["draft1"]), ids(&example["draft2"]));
    let (mut n, mut found) = (1, (0, 0, 0));
    while n < greedy.len() {
        let most = depth.min(greedy.len() - n - 1);
        let drafts = [one.get(n - 1), two.get(n - 1).filter(|_| !ends.contains(&one[n - 1]))];
        let drafts: Vec<_> = drafts.into_iter().flatten().take(most).collect();
        let right = drafts.iter().zip(&greedy[n..]).take_while(|(draft, id)| *draft == id).count();
        found = (found.0 + drafts.len(), found.1 + right, found.2 + usize::from(!drafts.is_empty()));
        n += right + 1;
    }
    found
}

#[test]
fn drafts_are_the_reference_s() {
    let reference = json(&beside().join("reference_assistant.json"));
    let (mut drafted, mut accepted) = ([0; 2], [0; 2]);
    for (at, example) in reference["examples"].as_array().unwrap().iter().enumerate() {
        // Prompts in one step, and in steps of a few rows.
        let load = one_thread().prefill_chunk([256, 7, 6, 14][at]).kv(KvType::F32);
        let model = model(load);
        for depth in [1, 2] {
            let expected = told(example, model.tokenizer().eos_ids(), depth);
            let output = fresh(&model, ids(&example["prompt_ids"]), &assisted(48).draft_tokens(depth));
            assert_eq!(output.ids, ids(&example["greedy_ids"]), "{at}, {depth}");
            let Timings { drafted_tokens, accepted_tokens, draft_steps, .. } = output.finish.timings;
            assert_eq!((drafted_tokens, accepted_tokens, draft_steps), expected, "{at}, {depth}");
            drafted[depth - 1] += drafted_tokens;
            accepted[depth - 1] += accepted_tokens;
        }
    }
    // On the reference's 12 texts 0.504 at depth 1.
    assert!(accepted[0] * 100 > 40 * drafted[0] && accepted[1] > accepted[0], "{accepted:?} of {drafted:?}");
}

/// With keys of any type.
#[test]
fn no_assistant_changes_a_text() {
    let kv = [KvType::F16, KvType::F32, KvType::Q8_0, KvType::Q4_0];
    no_text_changes(NAME, |at, load| model(load.kv(kv[at])));
}

/// At every position of a long text, also where a page that windows saw is given up.
#[test]
fn assistants_draft_at_every_position() {
    let model = model(one_thread());
    let prompt: Vec<_> = reference_prompt(NAME, 1).into_iter().cycle().take(20).collect();
    let expected = fresh(&model, prompt.clone(), &greedy(300).speculate(Speculate::Off)).ids;
    for depth in [1, 3] {
        let tree = fresh(&model, prompt.clone(), &assisted(300).draft_tokens(depth).draft_tree(true));
        assert_eq!((tree.ids, tree.finish.warnings), (expected.clone(), vec![]), "{depth}");
        let output = fresh(&model, prompt.clone(), &assisted(300).draft_tokens(depth));
        assert_eq!((output.ids, output.finish.warnings), (expected.clone(), vec![]), "{depth}");
        let Timings { drafted_tokens, accepted_tokens, draft_steps, .. } = output.finish.timings;
        // All but the prompt's step, and the last one where nothing may follow.
        assert!(300 - accepted_tokens - draft_steps <= 2, "{draft_steps} and {accepted_tokens}");
        assert!(drafted_tokens >= draft_steps * depth - 10);
    }
}

/// Where there is no page to spare it leaves drafts out, and the text is the same.
#[test]
fn assistants_do_with_the_memory_of_one_session() {
    let full = model(one_thread()).stages()[0].kv_cache;
    let model = model(one_thread().kv_memory(full).sessions(2));
    let prompt: Vec<_> = reference_prompt(NAME, 1).into_iter().cycle().take(330).collect();
    let off = greedy(120).speculate(Speculate::Off);
    let expected = fresh(&model, prompt.clone(), &off).ids;
    let tree = fresh(&model, prompt.clone(), &assisted(120).draft_tokens(2).draft_tree(true));
    assert_eq!((tree.ids, tree.finish.warnings), (expected.clone(), vec![]));
    let output = fresh(&model, prompt, &assisted(120).draft_tokens(2));
    assert_eq!((output.ids, output.finish.warnings), (expected, vec![]));
    assert!(output.finish.timings.accepted_tokens > 10, "{:?}", output.finish.timings);
}

#[test]
fn a_batch_is_drafted_by_an_assistant() {
    no_batch_changes(NAME, &model(one_thread().sessions(4).prefill_chunk(32)));
}

/// A prompt that is all kept but for its last token has one row to draft behind.
#[test]
fn assistants_go_on_behind_what_is_cached() {
    let model = model(one_thread());
    let long: Vec<_> = reference_prompt(NAME, 1).into_iter().cycle().take(150).collect();
    let rate = |prompt: &[TokenId]| {
        let output = fresh(&model, prompt.to_vec(), &assisted(40).draft_tokens(1));
        assert_eq!(output.ids, fresh(&model, prompt.to_vec(), &greedy(40).speculate(Speculate::Off)).ids);
        let Timings { drafted_tokens, accepted_tokens, .. } = output.finish.timings;
        (output.finish.usage.cached_tokens, drafted_tokens, accepted_tokens)
    };
    let (first, again) = (rate(&long), rate(&long));
    assert!(first.0 == 0 && again.0 >= 64, "{first:?} {again:?}");
    assert_eq!(
        (first.1, first.2),
        (again.1, again.2),
        "it needs nothing of what is cached but keys and values"
    );
}

/// Files as llama.cpp's converter writes them do as well.
#[test]
fn assistants_in_gguf_draft() {
    let file = root().join("tests/fixtures/ahead/gemma4_assistant-q8_0.gguf");
    let load = one_thread().context(512).draft_model(&file);
    let model = Model::open(path(NAME), &load).unwrap();
    assert_eq!(model.memory().draft_model.unwrap().layers, 0..4);
    let output = fresh(&model, reference_prompt(NAME, 0), &assisted(48).draft_tokens(1));
    let Timings { drafted_tokens, accepted_tokens, .. } = output.finish.timings;
    assert!(accepted_tokens * 4 > drafted_tokens, "{accepted_tokens} of {drafted_tokens}");
    for file in [file, beside()] {
        // Of another model.
        let error = Model::open(path("gemma3"), &one_thread().draft_model(&file)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
        assert!(format!("{error:?}").contains("draft_model"), "{error:?}");
        // By itself it is no model.
        let error = Model::open(&file, &one_thread()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("draft model")), "{error:?}");
    }
    let engine = one_thread().engine(Wrapped::forward(|_| Ok(()))).draft_model(beside());
    assert_eq!(Model::open(path(NAME), &engine).err().unwrap().kind(), ErrorKind::ArchUnsupported);
}

/// One of which nothing is right is tried now and then, and changes no text.
#[test]
fn assistants_that_are_never_right_cost_little() {
    let mut checkpoint = Checkpoint::read(&beside());
    let norm = checkpoint.weights.get_mut("model.norm.weight").unwrap();
    *norm = Tensor::of_f32(&norm.shape, &norm.values().iter().map(|x| -x).collect::<Vec<_>>());
    let folder = checkpoint.written();
    let load = one_thread().context(512).draft_model(folder.path());
    let model = Model::open(path(NAME), &load).unwrap();
    let prompt = reference_prompt(NAME, 0);
    let expected = fresh(&model, prompt.clone(), &greedy(90).speculate(Speculate::Off)).ids;
    for options in [assisted(90).draft_tokens(3), assisted(90)] {
        let output = fresh(&model, prompt.clone(), &options);
        assert_eq!((output.ids, output.finish.warnings), (expected.clone(), vec![]));
        assert_eq!(output.finish.timings.accepted_tokens, 0);
    }
    assert!(!fresh(&model, OPENING, &assisted(2)).ids.is_empty());
}

/// What an assistant lacks, or has in another shape, and what its configuration says that cannot be, is an error by name.
#[test]
fn broken_assistants_are_errors() {
    let open = |checkpoint: Checkpoint| {
        let folder = checkpoint.written();
        Model::open(path(NAME), &one_thread().draft_model(folder.path())).err().unwrap()
    };
    broken_tensors(
        &beside(),
        open,
        [
            ("pre_projection.weight", None, ErrorKind::TensorMissing),
            ("post_projection.weight", None, ErrorKind::TensorMissing),
            ("model.norm.weight", None, ErrorKind::TensorMissing),
            ("model.layers.2.self_attn.q_norm.weight", None, ErrorKind::TensorMissing),
            ("pre_projection.weight", Some(vec![512, 128]), ErrorKind::TensorShape),
            ("model.embed_tokens.weight", Some(vec![1024, 256]), ErrorKind::TensorShape),
        ],
    );
    let number = |at: usize| serde_json::json!(at);
    for (section, field, value) in [
        ("", "backbone_hidden_size", number(0)),
        ("", "backbone_hidden_size", number(512)),
        ("", "backbone_hidden_size", serde_json::json!("much")),
        ("text_config", "num_key_value_heads", number(2)),
        ("text_config", "vocab_size", number(1000)),
        ("text_config", "hidden_size", number(0)),
    ] {
        let mut checkpoint = Checkpoint::read(&beside());
        let config = match section {
            "" => &mut checkpoint.config,
            section => &mut checkpoint.config[section],
        };
        config[field] = value;
        let error = open(checkpoint);
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{field}: {error}");
    }
    for (field, value) in
        [("enable_moe_block", serde_json::json!(true)), ("hidden_size_per_layer_input", number(32))]
    {
        let mut checkpoint = Checkpoint::read(&beside());
        checkpoint.config["text_config"][field] = value;
        assert_eq!(open(checkpoint).kind(), ErrorKind::ArchUnsupported, "{field}");
    }
}
