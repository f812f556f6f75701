//! Do heads for tokens ahead draft as they were trained to, and is the text the same?

use skulk::{
    ErrorKind, GenerateOptions, LoadOptions, Model, Prompt, Sampling, Speculate, Timings, TokenId,
};

use crate::fixtures::{ids, json};
use crate::generate::common::{OPENING, fresh, greedy, on, one_thread, path, reference_prompt};
use crate::generate::wrapped::Wrapped;
use crate::support::mlx_layout::Checkpoint;

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

fn ways() -> Vec<GenerateOptions> {
    let drawn = |seed| Sampling::default().temperature(0.9).seed(seed);
    vec![
        greedy(48),
        greedy(48).sampling(drawn(1).top_k(9)),
        greedy(48).sampling(drawn(2).top_p(0.9)).logprobs(2),
        greedy(48).sampling(Sampling::default().repetition_penalty(1.3)).ignore_eos(false),
    ]
}

/// Greedy or drawn, in one stage or more, in turns of a conversation, with all drafters or one.
#[test]
fn no_head_changes_a_text() {
    let mut accepted = 0;
    for (at, options) in ways().into_iter().enumerate() {
        let model = model(one_thread().stages(1 + at % 3).prefill_chunk([256, 16, 1, 64][at]));
        let prompt: Vec<_> = reference_prompt(NAME, at % 3).into_iter().cycle().take(70 + 29 * at).collect();
        let plain = options.clone().speculate(Speculate::Off);
        let expected = fresh(&model, prompt.clone(), &plain);
        for ahead in [
            options.clone(),
            options.clone().speculate(Speculate::DraftModel),
            options.clone().speculate(Speculate::DraftModel).draft_tokens([1, 4, 15, 2][at]),
            options.clone().draft_tokens(3),
        ] {
            let output = fresh(&model, prompt.clone(), &ahead);
            assert_eq!((output.ids, output.text), (expected.ids.clone(), expected.text.clone()), "{ahead:?}");
            assert!(output.finish.warnings.is_empty());
            accepted += output.finish.timings.accepted_tokens;
            let session = model.session().unwrap();
            on(&session, prompt.clone(), &ahead);
            let more = session.generate(Prompt::Append(" and then".into()), ahead.clone()).unwrap();
            let expected = fresh(&model, more.prompt_ids().to_vec(), &plain);
            assert_eq!({ more }.output().unwrap().ids, expected.ids, "{ahead:?}");
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn a_batch_is_drafted_by_a_head() {
    let model = model(one_thread().sessions(4).prefill_chunk(32));
    let prompts: Vec<Vec<_>> = (0..6)
        .map(|at| reference_prompt(NAME, at % 3).into_iter().cycle().take(20 + 31 * at).collect())
        .collect();
    let off = greedy(40).speculate(Speculate::Off);
    let alone: Vec<_> = prompts.iter().map(|prompt| fresh(&model, prompt.clone(), &off).ids).collect();
    let all = greedy(40);
    let head = greedy(40).speculate(Speculate::DraftModel);
    for ahead in [all.clone(), all.draft_tokens(2), head.clone(), head.clone().draft_tokens(1), head.draft_tokens(9)] {
        let prompts: Vec<Prompt> = prompts.iter().cloned().map(Into::into).collect();
        let outputs = model.generate_batch(prompts, &ahead).into_iter();
        assert_eq!(outputs.map(|output| output.unwrap().ids).collect::<Vec<_>>(), alone, "{ahead:?}");
    }
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
    let about = |error: &skulk::Error| error.context().iter().any(|(key, value)| *key == "field" && value == "mtp");
    let error = Model::open(path("llama"), &one_thread().mtp(true)).err().unwrap();
    assert!(error.kind() == ErrorKind::InvalidArgument && about(&error), "{error}");
    let error = Model::open(path(NAME), &one_thread().mtp(true).draft_model(path(NAME))).err().unwrap();
    assert!(error.kind() == ErrorKind::InvalidArgument && about(&error), "{error}");
    // Another model that is named drafts alone.
    let drafted = self::model(one_thread().draft_model(path(NAME)));
    assert_eq!(drafted.memory().draft_model.unwrap().layers, 0..4);
}

/// Engines that know no heads run without, and say so where one is asked for.
#[test]
fn other_engines_have_no_heads() {
    let engine = || LoadOptions::default().engine(Wrapped::forward(|_| Ok(())));
    assert!(self::model(engine()).memory().draft_model.is_none());
    let error = Model::open(path(NAME), &engine().mtp(true)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{error}");
}

/// A head that lacks a tensor, or has one of another shape, is an error by its name; without it the model loads.
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
        let error = Model::open(folder.path(), &one_thread()).err().unwrap();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains("mtp") || format!("{error:?}").contains(name), "{name}: {error:?}");
        let model = Model::open(folder.path(), &one_thread().mtp(false)).unwrap();
        assert!(!fresh(&model, OPENING, &greedy(4)).ids.is_empty());
    }
}
