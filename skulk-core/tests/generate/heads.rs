//! Do heads for tokens ahead draft as they were trained to, and is the text the same?
#![allow(clippy::disallowed_methods, reason = "nothing here depends on last bits")]

use serde_json::json;
use skulk::{
    ErrorKind, Inventory, LoadOptions, Model, ModelCard, Sampling, Speculate, Timings, TokenId,
    open_checkpoint,
};

use skulk::card::{MtpConcatOrder, MtpNormConvention};

use crate::fixtures::{ids, json, root};
use crate::generate::common::{OPENING, fresh, greedy, one_thread, path, reference_prompt};
use crate::generate::drafted::{no_batch_changes, no_text_changes};
use crate::generate::wrapped::Wrapped;
use crate::support::mlx_layout::{Checkpoint, Tensor};

const NAME: &str = "qwen3_5";

fn model(load: LoadOptions) -> Model {
    Model::open(path(NAME), &load.context(512)).unwrap()
}

/// What drafts make of a text, by the reference's drafts of each row: drafted tokens, accepted ones, steps.
fn told(example: &serde_json::Value, depth: usize) -> (usize, usize, usize) {
    const ENDS: [TokenId; 2] = [TokenId(2038), TokenId(2036)];
    let (prompt, greedy) = (ids(&example["prompt_ids"]), ids(&example["greedy_ids"]));
    let (one, two) = (ids(&example["draft1"]), ids(&example["draft2"]));
    let first = example["first_t"].as_u64().unwrap() as usize;
    let (mut n, mut found) = (1, (0, 0, 0));
    while n < greedy.len() {
        // A step ends at a border of 64 positions, and with the text.
        let len = prompt.len() + n;
        let most = depth.min(greedy.len() - n - 1).min(64 - len % 64);
        let at = len - 2 - first;
        let drafts = [Some(one[at]), two.get(at).copied().filter(|_| !ENDS.contains(&one[at]))];
        let drafts: Vec<_> = drafts.into_iter().flatten().take(most).collect();
        let right = drafts.iter().zip(&greedy[n..]).take_while(|(draft, id)| draft == id).count();
        found = (found.0 + drafts.len(), found.1 + right, found.2 + usize::from(!drafts.is_empty()));
        n += right + 1;
    }
    found
}

#[test]
fn drafts_are_the_reference_s() {
    let reference = json(&path(NAME).join("reference_mtp.json"));
    for (at, example) in reference["examples"].as_array().unwrap().iter().enumerate() {
        // Prompts in one step, and in steps of a few rows. Where one row is left it is drafted behind, too.
        let model = model(one_thread().stages(1 + at % 2).prefill_chunk([256, 7, 6, 14][at]));
        for depth in [1, 2] {
            let expected = told(example, depth);
            let options = greedy(64).speculate(Speculate::DraftModel).draft_tokens(depth);
            let output = fresh(&model, ids(&example["prompt_ids"]), &options);
            assert_eq!(output.ids, ids(&example["greedy_ids"]), "{at}, {depth}");
            let Timings { drafted_tokens, accepted_tokens, draft_steps, .. } = output.finish.timings;
            assert_eq!((drafted_tokens, accepted_tokens, draft_steps), expected, "{at}, {depth}");
            // What the reference has on average: 1.75 tokens a step at depth 1, 2.54 at 2.
            let least = [1.5, 2.1][depth - 1];
            assert!(63.0 / draft_steps as f64 > least, "{at}, {depth}: {draft_steps}");
        }
    }
}

/// In one stage or more.
#[test]
fn no_head_changes_a_text() {
    no_text_changes(NAME, |at, load| model(load.stages(1 + at % 3)));
}

#[test]
fn a_batch_is_drafted_by_a_head() {
    no_batch_changes(NAME, &model(one_thread().sessions(4).prefill_chunk(32)));
}

/// A prompt that begins like another one is taken from what is kept; a head goes on with what it has of it.
#[test]
fn heads_go_on_behind_what_is_cached() {
    let model = model(one_thread());
    let long: Vec<_> = reference_prompt(NAME, 1).into_iter().cycle().take(150).collect();
    let options = greedy(40).speculate(Speculate::DraftModel).draft_tokens(1);
    let rate = |prompt: &[TokenId]| {
        let output = fresh(&model, prompt.to_vec(), &options);
        let timings = output.finish.timings;
        assert_eq!(output.ids, fresh(&model, prompt.to_vec(), &greedy(40).speculate(Speculate::Off)).ids);
        (output.finish.usage.cached_tokens, timings.accepted_tokens, timings.drafted_tokens)
    };
    let first = rate(&long);
    let again = rate(&long);
    assert!(first.0 == 0 && again.0 >= 64, "{first:?} {again:?}");
    assert!(again.1 * 2 >= first.1, "{first:?} {again:?}");
}

#[test]
fn heads_are_used_where_that_is_wanted() {
    let model = self::model(one_thread());
    let info = model.memory().draft_model.expect("the checkpoint has a head");
    assert_eq!((info.layers, info.weights > skulk::ByteSize(1_000_000)), (0..1, true));
    let without = self::model(one_thread().mtp(false));
    assert!(without.memory().draft_model.is_none());
    let error = without.generate(OPENING, greedy(2).speculate(Speculate::DraftModel)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let about =
        |error: &skulk::Error| error.context().iter().any(|(key, value)| *key == "field" && value == "mtp");
    let error = Model::open(path("llama"), &one_thread().mtp(true)).err().unwrap();
    assert!(error.kind() == ErrorKind::InvalidArgument && about(&error), "{error}");
    let error = Model::open(path(NAME), &one_thread().mtp(true).draft_model(path(NAME))).err().unwrap();
    assert!(error.kind() == ErrorKind::InvalidArgument && about(&error), "{error}");
    // Another model that is named drafts alone.
    let drafted = self::model(one_thread().draft_model(path(NAME)));
    assert_eq!(drafted.memory().draft_model.unwrap().layers, 0..4);
}

/// Makes a copy of the model without its head, and a folder with the head alone, both changed like this before.
fn apart(change: impl FnOnce(&mut Checkpoint)) -> [tempfile::TempDir; 2] {
    let mut checkpoint = Checkpoint::read(&path(NAME));
    change(&mut checkpoint);
    let (head, rest) = checkpoint.weights.into_iter().partition(|(name, _)| name.starts_with("mtp."));
    checkpoint.weights = head;
    let beside = checkpoint.written();
    checkpoint.weights = rest;
    let alone = checkpoint.written();
    std::fs::copy(path(NAME).join("tokenizer.json"), alone.path().join("tokenizer.json")).unwrap();
    std::fs::remove_file(beside.path().join("config.json")).unwrap();
    std::fs::rename(beside.path().join("model.safetensors"), beside.path().join("mtp.safetensors")).unwrap();
    [alone, beside]
}

/// A file of the head alone: as llama.cpp's converter writes it, and with the model's own tensors, without a description.
#[test]
fn heads_in_files_of_their_own_draft() {
    let [alone, beside] = apart(|_| ());
    let reference = json(&path(NAME).join("reference_mtp.json"));
    let example = &reference["examples"][0];
    let gguf = root().join("tests/fixtures/ahead/qwen3_5_mtp.gguf");
    for file in [beside.path().to_owned(), beside.path().join("mtp.safetensors"), gguf.clone()] {
        let model = Model::open(alone.path(), &one_thread().context(512).draft_model(&file)).unwrap();
        assert_eq!(model.memory().draft_model.unwrap().layers, 0..1);
        let options = greedy(64).speculate(Speculate::DraftModel).draft_tokens(2);
        let output = fresh(&model, ids(&example["prompt_ids"]), &options);
        assert_eq!(output.ids, ids(&example["greedy_ids"]));
        let Timings { drafted_tokens, accepted_tokens, draft_steps, .. } = output.finish.timings;
        assert_eq!((drafted_tokens, accepted_tokens, draft_steps), told(example, 2), "{}", file.display());
    }
    for file in [gguf, beside.path().join("nothing.safetensors")] {
        // Of another model, and none.
        let error = Model::open(path("stories260K"), &one_thread().draft_model(&file)).err().unwrap();
        assert!([ErrorKind::ConfigInvalid, ErrorKind::FileNotFound].contains(&error.kind()), "{error}");
    }
    let error = Model::open(path("llama"), &one_thread().draft_model(beside.path())).err().unwrap();
    assert!([ErrorKind::TensorMissing, ErrorKind::TensorShape].contains(&error.kind()), "{error}");
}

/// A card says how the norms of such a file are to be taken, and what comes first: with another convention than the head was
/// trained with, hardly a draft is right, and the text is the same.
#[test]
fn cards_say_how_heads_are_written() {
    let [alone, beside] = apart(|_| ());
    let reference = json(&path(NAME).join("reference_mtp.json"));
    let example = &reference["examples"][0];
    let card = include_str!("../../../cards/mlx-community--Qwen3.5-2B-4bit.toml");
    let runs = |beside: &tempfile::TempDir, norm, order| {
        let mut card = ModelCard::from_toml(card).unwrap();
        let runtime = card.runtime.as_mut().unwrap();
        (runtime.mtp_norm_convention, runtime.mtp_concat_order) = (norm, order);
        let mut load = one_thread().context(512).draft_model(beside.path());
        load.card = Some(card);
        let model = Model::open(alone.path(), &load).unwrap();
        let options = greedy(64).speculate(Speculate::DraftModel).draft_tokens(1);
        let output = fresh(&model, ids(&example["prompt_ids"]), &options);
        assert_eq!(output.ids, ids(&example["greedy_ids"]));
        output.finish.timings.accepted_tokens
    };
    let expected = told(example, 1).1;
    let (whole, last) = (Some(MtpNormConvention::ActualScale), Some(MtpConcatOrder::HiddenFirst));
    assert_eq!(runs(&beside, None, None), expected);
    assert_eq!(
        runs(&beside, Some(MtpNormConvention::ZeroCentered), Some(MtpConcatOrder::EmbedFirst)),
        expected
    );
    let accepted = runs(&beside, whole, None);
    assert!(accepted * 2 < expected, "{accepted}");
    // What the projection takes is in the other order.
    let [_, turned] = apart(|checkpoint| {
        let joint = checkpoint.weights.get_mut("mtp.fc.weight").unwrap();
        let row = joint.bytes.len() / joint.shape[0];
        joint.bytes.chunks_exact_mut(row).for_each(|row| row.rotate_left(row.len() / 2));
    });
    assert_eq!(runs(&turned, None, last), expected);
}

/// A head of which nothing is ever right drafts no more, says so once, and changes no text.
#[test]
fn heads_that_are_never_right_are_given_up() {
    let [alone, beside] = apart(|checkpoint| {
        let norm = checkpoint.weights.get_mut("mtp.norm.weight").unwrap();
        // Of each number the sign: what is near 0 is far below it, and the likeliest is the least likely.
        *norm = Tensor::of_f32(&norm.shape, &norm.values().iter().map(|x| -3.0 - x).collect::<Vec<_>>());
    });
    let model = Model::open(alone.path(), &one_thread().context(512).draft_model(beside.path())).unwrap();
    let prompt = reference_prompt(NAME, 0);
    let expected = fresh(&model, prompt.clone(), &greedy(90).speculate(Speculate::Off)).ids;
    let alone = greedy(90).speculate(Speculate::DraftModel).draft_tokens(3);
    let output = fresh(&model, prompt.clone(), &alone);
    assert_eq!(output.ids, expected);
    let [warning] = &output.finish.warnings[..] else { panic!("{:?}", output.finish) };
    assert!(warning.contains("mtp_norm_convention"), "{warning}");
    assert!(output.finish.timings.drafted_tokens < 160, "{:?}", output.finish.timings);
    assert_eq!(model.generate(prompt.clone(), alone).err().unwrap().kind(), ErrorKind::EngineFailed);
    let auto = fresh(&model, prompt, &greedy(90));
    assert_eq!((auto.ids, auto.finish.warnings), (expected, vec![]));
}

/// Tokens that are drawn from nearly all say nothing of a head.
#[test]
fn tokens_that_are_not_the_models_choice_speak_against_no_head() {
    let prompt = || reference_prompt(NAME, 0);
    let ahead = greedy(90).speculate(Speculate::DraftModel).draft_tokens(1);
    let drawn = |sampling| ahead.clone().sampling(sampling).max_tokens(200).ignore_eos(true);
    let model = model(one_thread());
    for seed in 0..2 {
        let output = fresh(&model, prompt(), &drawn(Sampling::default().temperature(50.0).seed(seed)));
        assert!(output.finish.timings.drafted_tokens > 60 && output.finish.warnings.is_empty(), "{output:?}");
    }
    let output = fresh(&model, prompt(), &ahead);
    assert!(output.finish.timings.accepted_tokens > 10 && output.finish.warnings.is_empty(), "{output:?}");
}

/// Engines that know no heads run without, and say so where one is asked for.
#[test]
fn other_engines_have_no_heads() {
    let engine = || LoadOptions::default().engine(Wrapped::forward(|_| Ok(())));
    assert!(self::model(engine()).memory().draft_model.is_none());
    let error = Model::open(path(NAME), &engine().mtp(true)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{error}");
}

/// A head that lacks a tensor, or has one of another shape, is an error by its name where it is asked for; else the model
/// loads without it.
#[test]
fn broken_heads_are_errors() {
    for (name, shape, kind) in [
        ("mtp.norm.weight", None, ErrorKind::TensorMissing),
        ("mtp.layers.0.mlp.up_proj.weight", None, ErrorKind::TensorMissing),
        ("mtp.fc.weight", Some(vec![512, 256]), ErrorKind::TensorShape),
        ("mtp.pre_fc_norm_hidden.weight", Some(vec![2, 128]), ErrorKind::TensorShape),
    ] {
        let mut checkpoint = Checkpoint::read(&path(NAME));
        match shape {
            Some(shape) => checkpoint.weights.get_mut(name).unwrap().shape = shape,
            None => drop(checkpoint.weights.remove(name)),
        }
        let folder = checkpoint.written();
        std::fs::copy(path(NAME).join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
        let error = Model::open(folder.path(), &one_thread().mtp(true)).err().unwrap();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(
            error.to_string().contains("mtp") || format!("{error:?}").contains(name),
            "{name}: {error:?}"
        );
        let model = Model::open(folder.path(), &one_thread()).unwrap();
        assert!(model.memory().draft_model.is_none(), "{name}");
        assert!(!fresh(&model, OPENING, &greedy(4)).ids.is_empty());
    }
}

/// A file with a projection alone, as DeepSeek's: texts are the same, and what it lacks or has too much is an error.
#[test]
fn heads_without_a_layer_change_no_text() {
    let width = 256;
    let values =
        |n: usize, around: f32| -> Vec<f32> { (0..n).map(|at| around + (at as f32).sin() / 8.0).collect() };
    let mut file = Checkpoint { config: json!({}), weights: Default::default() };
    for (name, shape) in [("enorm", vec![width]), ("hnorm", vec![width]), ("eh_proj", vec![width, 2 * width])]
    {
        let values = values(shape.iter().product(), if shape.len() == 1 { 1.0 } else { 0.0 });
        file.weights.insert(format!("mtp.0.{name}.weight"), Tensor::of_f32(&shape, &values));
    }
    let open = |file: &Checkpoint| {
        let folder = file.written();
        std::fs::remove_file(folder.path().join("config.json")).unwrap();
        std::fs::rename(folder.path().join("model.safetensors"), folder.path().join("mtp.safetensors"))
            .unwrap();
        let load = one_thread().context(512).sessions(2).stages(2).draft_model(folder.path());
        Model::open(path("llama"), &load).map(|model| (model, folder))
    };
    let (model, folder) = open(&file).unwrap();
    let counted =
        Inventory::from_draft_model(&*open_checkpoint(path("llama")).unwrap(), folder.path()).unwrap();
    assert_eq!(counted.weights(), 4 * (2 * 256 * 256 + 2 * 256), "{counted:?}");
    let prompt = reference_prompt("llama", 1);
    // Fewer steps in all than those behind which a head is given up.
    let expected = fresh(&model, prompt.clone(), &greedy(20).speculate(Speculate::Off)).ids;
    for options in [greedy(20), greedy(20).speculate(Speculate::DraftModel).draft_tokens(2)] {
        let output = fresh(&model, prompt.clone(), &options);
        assert_eq!((output.ids, output.finish.warnings), (expected.clone(), vec![]));
    }
    assert!(model.memory().draft_model.unwrap().weights.bytes() > 4 * 2 * 256 * 256);
    let mut broken = file.clone();
    broken.weights.get_mut("mtp.0.eh_proj.weight").unwrap().shape = vec![2 * width, width];
    let error = open(&broken).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TensorShape);
    assert!(format!("{error:?}").contains("mtp.0.eh_proj.weight"), "{error:?}");
    // A layer beside it that is not known here.
    let mut more = file.clone();
    more.weights.insert("mtp.0.self_attn.q_proj.weight".into(), Tensor::of_f32(&[1], &[0.0]));
    assert_eq!(open(&more).err().unwrap().kind(), ErrorKind::ConfigInvalid);
}
