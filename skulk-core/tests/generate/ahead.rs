//! Is the text the same, whatever is computed ahead? Drafts that are right, wrong, and right for a while.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use skulk::arch::ArchSpec;
use skulk::{
    ErrorKind, FinishReason, GenerateOptions, KvType, LoadOptions, Model, Output, Prompt, Sampling,
    Speculate, TokenId, open_checkpoint,
};

use crate::fixtures::{chosen, root};
use crate::generate::common::{OPENING, fresh, greedy, model, one_thread, path, reference_prompt};
use crate::generate::wrapped::Wrapped;

/// What a generation gives, in bits.
fn bits(model: &Model, prompt: &[TokenId], options: &GenerateOptions) -> Vec<(TokenId, String, Option<u32>)> {
    let generation = model.generate(prompt.to_vec(), options.clone()).unwrap();
    let events = generation.map(Result::unwrap).filter(|event| event.token.is_some());
    let each = events.map(|event| {
        let token = event.token.unwrap();
        (token.id, event.text, token.logprob.map(f32::to_bits))
    });
    each.collect()
}

/// Ways to choose, of which some need all logits and some the largest.
fn ways() -> Vec<GenerateOptions> {
    let drawn = |seed| Sampling::default().temperature(0.9).seed(seed);
    let most = || greedy(48);
    vec![
        most(),
        most().sampling(drawn(1).top_k(9)),
        most().sampling(drawn(2).top_p(0.9)).logprobs(2),
        most().sampling(Sampling::default().repetition_penalty(1.3)),
        most().sampling(drawn(3).presence_penalty(0.5).frequency_penalty(0.2)).stop(["the", "a b"]),
        most().ignore_eos(false).logprobs(0),
    ]
}

/// A text with some of its tokens changed.
fn corrupted(random: &mut ChaCha8Rng, tokens: &[TokenId], one_in: u32) -> Vec<TokenId> {
    let wrong = |random: &mut ChaCha8Rng| TokenId(3 + random.next_u32() % 200);
    tokens
        .iter()
        .map(|id| if random.next_u32().is_multiple_of(one_in) { wrong(random) } else { *id })
        .collect()
}

pub(crate) fn is_recurrent(name: &str) -> bool {
    let arch = ArchSpec::from_checkpoint(&*open_checkpoint(path(name)).unwrap()).unwrap();
    arch.layers.iter().any(|layer| layer.recurrent().is_some())
}

/// All fixtures that are one model each.
fn names() -> Vec<String> {
    let folders = std::fs::read_dir(root().join("tests/fixtures/models")).unwrap().flatten();
    let names = folders.map(|folder| folder.file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| path(name).join("reference.json").exists()).collect();
    names.sort();
    names
}

#[test]
fn no_draft_changes_a_text() {
    let (mut drafted, mut accepted, mut recurrent) = (0, 0, 0);
    for (seed, name) in names().iter().enumerate() {
        let mut random = ChaCha8Rng::seed_from_u64(seed as u64);
        let load = one_thread().kv([KvType::F16, KvType::Q8_0][seed % 2]).context(512);
        // Not all can be cut in the middle.
        let model = Model::open(path(name), &load.clone().stages(1 + seed / 2 % 2));
        let model = model.or_else(|_| Model::open(path(name), &load)).unwrap();
        recurrent += usize::from(is_recurrent(name));
        let prompt: Vec<_> = reference_prompt(name, 0).into_iter().cycle().take(70).collect();
        let mut ways: Vec<_> = ways().into_iter().enumerate().collect();
        ways.rotate_left(seed % 6);
        for (at, options) in chosen(2, ways) {
            let expected = bits(&model, &prompt, &options.clone().speculate(Speculate::Off));
            let ids: Vec<_> = expected.iter().map(|(id, ..)| *id).collect();
            let text = [&prompt[..], &ids[..]].concat();
            let texts =
                [6, 2].map(|one_in| model.tokenizer().decode(&corrupted(&mut random, &text, one_in), false));
            let ahead = options.clone().draft_texts(texts).draft_tokens([1, 3, 15, 7][(seed + at) % 4]);
            let tree = ahead.clone().draft_tree(!is_recurrent(name));
            assert_eq!(bits(&model, &prompt, &ahead), expected, "{name}: {ahead:?}");
            assert_eq!(bits(&model, &prompt, &tree), expected, "{name}: {tree:?}");
            let timings = fresh(&model, prompt.clone(), &ahead).finish.timings;
            drafted += timings.drafted_tokens;
            accepted += timings.accepted_tokens;
            // Positions that were given up are computed anew, also where a window slid on.
            let session = model.session().unwrap();
            session.generate(prompt.clone(), ahead.clone()).unwrap().output().unwrap();
            let more = session.generate(Prompt::Append(" and".into()), ahead).unwrap();
            let expected = fresh(&model, more.prompt_ids().to_vec(), &options.speculate(Speculate::Off));
            assert_eq!({ more }.output().unwrap().ids, expected.ids, "{name}");
        }
    }
    assert!(
        recurrent > 6 && accepted > 200 && drafted > 2 * accepted,
        "{recurrent}: {accepted} of {drafted}"
    );
}

/// Beside others, and with little memory.
#[test]
fn a_batch_is_drafted_as_its_texts_are_alone() {
    let names = ["llama", "gemma3", "mixtral", "deepseek_v3", "gemma3", "llama", "qwen3_5", "nemotron_h"];
    for (at, name) in names.into_iter().enumerate() {
        let mut load = one_thread().context(512).sessions(6).prefill_chunk([256, 16, 1][(at + at / 3) % 3]);
        if at > 2 {
            // Little more than one session needs.
            let full =
                Model::open(path(name), &load.clone().sessions(1)).unwrap().stages()[0].kv_cache.bytes();
            load = load.kv_memory(skulk::ByteSize(full * 5 / 4));
        }
        let model = Model::open(path(name), &load).unwrap();
        let alone = |prompt: &[TokenId], options: &GenerateOptions| {
            fresh(&model, prompt.to_vec(), &options.clone().speculate(Speculate::Off)).ids
        };
        let prompts: Vec<Vec<_>> = (0..9)
            .map(|at| reference_prompt(name, at % 3).into_iter().cycle().take(20 + 31 * at).collect())
            .collect();
        for (at, options) in ways().into_iter().enumerate() {
            let ahead = options.clone().draft_tokens([5, 15][at % 2]);
            let ahead = ahead.draft_tree(at % 3 > 0 && !is_recurrent(name));
            let all: Vec<Prompt> = prompts.iter().cloned().map(Into::into).collect();
            let outputs = model.generate_batch(all, &ahead);
            for (prompt, output) in prompts.iter().zip(outputs) {
                assert_eq!(output.unwrap().ids, alone(prompt, &options), "{name}, {at}");
            }
        }
    }
}

#[test]
fn timings_tell_what_was_drafted() {
    let model = model("stories260K");
    let story = fresh(&model, OPENING, &greedy(100).speculate(Speculate::Off));
    let timings = story.finish.timings;
    assert_eq!((timings.drafted_tokens, timings.accepted_tokens, timings.draft_steps), (0, 0, 0));
    assert_eq!(timings.draft_gain, 1.0);
    let quoted = greedy(100).draft_texts([format!("{OPENING}{}", story.text)]);
    let again = fresh(&model, OPENING, &quoted.clone().draft_tokens(4));
    assert_eq!(again.text, story.text);
    let timings = again.finish.timings;
    // Nearly all is quoted: the steps are a fifth.
    assert!(timings.accepted_tokens > 60 && timings.draft_steps < 30, "{timings:?}");
    assert!(timings.accepted_tokens <= timings.drafted_tokens, "{timings:?}");
    assert!(timings.drafted_tokens <= 4 * timings.draft_steps && timings.draft_gain > 0.0, "{timings:?}");
    // By what pays it is the same text.
    assert_eq!(fresh(&model, OPENING, &quoted).text, story.text);
}

/// To the last position, and with all that may end a text.
#[test]
fn texts_end_where_they_would_have() {
    let load = |context| LoadOptions::default().context(context);
    let model = Model::open(path("stories260K"), &load(96)).unwrap();
    let plain = GenerateOptions::default().ignore_eos(true).speculate(Speculate::Off);
    let told = |options: &GenerateOptions| {
        let Output { ids, finish, .. } = fresh(&model, OPENING, options);
        (ids, finish.reason)
    };
    let full = told(&plain);
    assert_eq!(full.1, FinishReason::Length);
    let text = fresh(&model, OPENING, &plain).text;
    let quoting =
        |options: GenerateOptions| options.draft_texts([format!("{OPENING}{text}")]).draft_tokens(15);
    let ahead = || quoting(GenerateOptions::default().ignore_eos(true));
    assert_eq!(told(&ahead()), full);
    for most in [1, 2, 3, 17, 18, 40] {
        assert_eq!(told(&ahead().max_tokens(most)), told(&plain.clone().max_tokens(most)), "{most}");
    }
    assert!(text.is_ascii(), "{text}");
    for stop in [".", "e ", &text[60..64], &text[30..60]] {
        let expected = told(&plain.clone().stop([stop]));
        assert_eq!(
            (told(&ahead().stop([stop])), expected.1),
            (expected.clone(), FinishReason::StopString),
            "{stop}"
        );
    }
    // A biased end comes while others are drafted.
    let end = model.tokenizer().eos_ids()[0];
    for bias in [5.0, 8.0, 12.0] {
        let ends = |options: GenerateOptions| {
            let sampling = Sampling::default().temperature(1.0).seed(3).logit_bias(vec![(end, bias)]);
            told(&options.sampling(sampling).ignore_eos(false))
        };
        assert_eq!(ends(ahead()), ends(plain.clone()), "{bias}");
    }
}

#[cfg(feature = "grammar")]
#[test]
fn constraints_hold_ahead() {
    let model = model("stories260K");
    let schema = serde_json::json!({
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"enum": ["a cat", "a car"]}}, "required": ["name"]},
        "minItems": 3,
        "maxItems": 8,
    });
    for sampling in [Sampling::default(), Sampling::default().temperature(1.5).seed(4)] {
        let options = GenerateOptions::default()
            .max_tokens(150)
            .sampling(sampling)
            .constraint(skulk::Constraint::JsonSchema(schema.clone()));
        let expected = fresh(&model, OPENING, &options.clone().speculate(Speculate::Off));
        for n in [1, 4, 15] {
            let ahead = fresh(&model, OPENING, &options.clone().draft_tokens(n));
            assert_eq!(ahead.text, expected.text);
        }
    }
}

#[test]
fn impossible_drafts_are_errors() {
    let model = model("stories260K");
    let hopeless = |model: &Model, options: GenerateOptions, field: &str| {
        let Err(error) = model.generate(OPENING, options) else { panic!("{field} was taken") };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.context().iter().any(|(key, value)| *key == "field" && value == field), "{error}");
    };
    for n in [0, 16, usize::MAX] {
        hopeless(&model, greedy(4).draft_tokens(n), "draft_tokens");
    }
    hopeless(&model, greedy(4).draft_tokens(2).speculate(Speculate::Off), "draft_tokens");
    hopeless(&model, greedy(4).draft_texts(["a"]).speculate(Speculate::Off), "draft_texts");
    hopeless(&model, greedy(4).draft_texts(["Once upon a time ".repeat(90_000)]), "draft_texts");
    for options in [greedy(4).draft_texts([""]), greedy(4).draft_texts(["a", "", "b"]).draft_tokens(15)] {
        fresh(&model, OPENING, &options);
    }
}

/// A GPU's rows are not exact in every bit; its likeliest tokens are the same.
#[cfg(feature = "wgpu")]
#[test]
fn greedy_texts_are_the_same_on_gpus() {
    for name in ["stories260K", "llama", "qwen3_next"] {
        // The software adapter, or the GPU that is asked for.
        let gpu = crate::parity::cpu::stages::engine("wgpu", &skulk::EngineOptions::default()).unwrap();
        let options = LoadOptions::default().context(512).engine_name(gpu.id().as_str());
        let model = Model::open(path(name), &options).unwrap();
        let prompt: Vec<_> = reference_prompt(name, 0).into_iter().cycle().take(70).collect();
        let expected = fresh(&model, prompt.clone(), &greedy(40).speculate(Speculate::Off));
        for n in [1, 4, 15] {
            let ahead = greedy(40).draft_tokens(n).draft_tree(n > 1 && !is_recurrent(name));
            let ahead = fresh(&model, prompt.clone(), &ahead);
            assert_eq!(ahead.ids, expected.ids, "{name}, {n}");
            assert!(ahead.finish.timings.drafted_tokens > 0);
        }
    }
}

/// Fixtures that draft for each other, as they have one vocabulary.
fn pairs() -> Vec<(&'static str, &'static str)> {
    vec![
        ("llama", "llama"),
        ("gemma3", "gemma3"),
        ("qwen3_5", "qwen3_5"),
        ("llama", "qwen3_5"),
        ("qwen3_next", "llama"),
        ("deepseek_v3", "mistral"),
        ("mixtral", "nemotron_h"),
        ("olmo3", "glm4"),
    ]
}

fn drafted(target: &str, draft: &str, load: LoadOptions) -> Model {
    Model::open(path(target), &load.draft_model(path(draft))).unwrap()
}

/// Whatever a second model says, which is what the first one would say, or anything.
#[test]
fn no_draft_model_changes_a_text() {
    let mut accepted = 0;
    for (seed, (target, draft)) in pairs().into_iter().enumerate() {
        let load = one_thread().context(512).stages(1 + seed % 2).prefill_chunk([256, 16][seed % 2]);
        let model = drafted(target, draft, load);
        let prompt: Vec<_> = reference_prompt(target, 0).into_iter().cycle().take(70).collect();
        let mut ways: Vec<_> = ways().into_iter().enumerate().collect();
        ways.rotate_left(seed % 6);
        for (at, options) in chosen(2, ways) {
            let plain = options.clone().speculate(Speculate::Off);
            let expected = bits(&model, &prompt, &plain);
            let ahead = options.speculate(Speculate::DraftModel).draft_tokens([1, 3, 15, 7][(seed + at) % 4]);
            assert_eq!(bits(&model, &prompt, &ahead), expected, "{target} by {draft}: {ahead:?}");
            let tree = ahead.clone().draft_tree(!is_recurrent(target));
            assert_eq!(bits(&model, &prompt, &tree), expected, "{target} by {draft}: {tree:?}");
            let timings = fresh(&model, prompt.clone(), &ahead).finish.timings;
            assert!(timings.drafted_tokens > 0, "{target} by {draft}: {timings:?}");
            accepted += timings.accepted_tokens;
            // Further turns of a conversation, of which it has seen only the first.
            let session = model.session().unwrap();
            session.generate(prompt.clone(), ahead.clone()).unwrap().output().unwrap();
            let more = session.generate(Prompt::Append(" and".into()), ahead.clone()).unwrap();
            let expected = fresh(&model, more.prompt_ids().to_vec(), &plain);
            assert_eq!({ more }.output().unwrap().ids, expected.ids, "{target} by {draft}");
        }
    }
    assert!(accepted > 100, "{accepted}");
}

/// A model agrees with itself: each step gives all that it drafts, and one more.
#[test]
fn a_model_drafts_what_it_says() {
    for name in ["llama", "gemma3", "qwen3_5"] {
        let recurrent = is_recurrent(name);
        let model = drafted(name, name, one_thread().context(512));
        let prompt = reference_prompt(name, 0);
        let options = greedy(49).speculate(Speculate::DraftModel).draft_tokens(3);
        let timings = fresh(&model, prompt, &options).finish.timings;
        // The first token comes of the prompt.
        let told = (timings.drafted_tokens, timings.accepted_tokens, timings.draft_steps);
        // Models with states end a step at a border of 64 positions.
        let (least, most) = if recurrent { (33, 13) } else { (36, 12) };
        assert!(told.0 == told.1 && told.0 >= least && told.2 <= most, "{name}: {told:?}");
    }
}

/// Sessions together, by text and by model, by what pays and by force.
#[test]
fn a_batch_is_drafted_by_a_model() {
    for (at, (target, draft)) in pairs().into_iter().step_by(3).enumerate() {
        let load = one_thread().context(512).sessions(4).prefill_chunk([256, 16, 1][at % 3]);
        let model = drafted(target, draft, load);
        let prompts: Vec<Vec<_>> = (0..6)
            .map(|at| reference_prompt(target, at % 3).into_iter().cycle().take(20 + 31 * at).collect())
            .collect();
        let options = greedy(40);
        let alone: Vec<_> = prompts
            .iter()
            .map(|prompt| fresh(&model, prompt.clone(), &options.clone().speculate(Speculate::Off)).ids)
            .collect();
        for ahead in [
            options.clone(),
            options.clone().draft_tokens(4),
            options.clone().speculate(Speculate::DraftModel),
            options.clone().speculate(Speculate::DraftModel).draft_tokens(9),
        ] {
            let all: Vec<Prompt> = prompts.iter().cloned().map(Into::into).collect();
            let outputs = model.generate_batch(all, &ahead);
            let outputs: Vec<_> = outputs.into_iter().map(|output| output.unwrap().ids).collect();
            assert_eq!(outputs, alone, "{target} by {draft}: {ahead:?}");
        }
    }
}

/// A draft model that fails ends nothing: the text goes on without it, and a warning says so.
#[test]
fn a_draft_model_that_fails_is_left_out() {
    for fails in [2, 6] {
        // The prompt's step is the first; then the second model's and the model's come in turns.
        let engine = Wrapped::forward(move |n| {
            let error = || Err(skulk::Error::new(ErrorKind::EngineFailed, "no more"));
            if n == fails { error() } else { Ok(()) }
        });
        let model = drafted("llama", "llama", LoadOptions::default().context(512).engine(engine));
        let options = greedy(20).speculate(Speculate::DraftModel).draft_tokens(1);
        let prompt = reference_prompt("llama", 0);
        let output = fresh(&model, prompt.clone(), &options);
        let expected = fresh(&model, prompt.clone(), &greedy(20).speculate(Speculate::Off));
        assert_eq!(output.ids, expected.ids);
        let [warning] = &output.finish.warnings[..] else { panic!("{:?}", output.finish.warnings) };
        assert!(warning.contains("no more"), "{warning}");
        assert_eq!(output.finish.timings.draft_steps, fails / 2 - 1);
        // Later ones say so before their first token, or do without.
        let error = model.generate(prompt.clone(), options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::EngineFailed, "{error}");
        let auto = fresh(&model, prompt, &greedy(20));
        assert_eq!((auto.ids, auto.finish.warnings), (expected.ids, vec![]));
    }
}

#[test]
fn models_that_cannot_draft_are_errors() {
    let load = |draft: std::path::PathBuf| {
        Model::open(path("llama"), &one_thread().draft_model(draft)).expect_err("it was taken")
    };
    let about = |error: &skulk::Error| {
        error.context().iter().any(|(key, value)| *key == "field" && value == "draft_model")
    };
    let error = load(path("stories260K"));
    assert_eq!(error.kind(), ErrorKind::TokenizerInvalid, "{error}");
    assert!(about(&error) && error.to_string().contains("same vocabulary"), "{error}");
    let error = load(path("no such model"));
    assert!(about(&error), "{error}");
    let model = self::model("llama");
    let error = model.generate(OPENING, greedy(2).speculate(Speculate::DraftModel)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let model = drafted("llama", "llama", one_thread());
    let texts = greedy(2).speculate(Speculate::DraftModel).draft_texts(["a"]);
    assert_eq!(model.generate(OPENING, texts).err().unwrap().kind(), ErrorKind::InvalidArgument);
    let info = model.memory().draft_model.unwrap();
    assert_eq!((info.layers, info.weights), (model.stages()[0].layers.clone(), model.stages()[0].weights));
}

#[test]
fn tuning_tries_each_way() {
    let of = |model: &Model, options: GenerateOptions| model.tune_speculation([OPENING, "A dog"], &options);
    let model = model("stories260K");
    let report = of(&model, greedy(24)).unwrap();
    let ways = |report: &skulk::SpeculationReport| {
        report.ways.iter().map(|way| (way.speculate, way.draft_tokens)).collect::<Vec<_>>()
    };
    let depths = [Some(1), Some(2), Some(4), Some(8), None];
    let alone = |how: Speculate| depths.map(|depth| (how, depth)).to_vec();
    let off = vec![(Speculate::Off, None)];
    assert_eq!(ways(&report), [off.clone(), alone(Speculate::Ngram)].concat());
    assert_eq!((report.prompts, report.ways[0].gain, report.ways[0].tokens_per_step), (2, 1.0, 1.0));
    let fastest = report.ways.iter().all(|way| way.gain <= report.best().unwrap().gain);
    assert!(fastest && report.ways.iter().all(|way| way.tokens_per_second > 0.0), "{report}");
    let text = report.to_string();
    assert_eq!(text.lines().count(), 8, "{text}");
    assert!(text.contains("ngram, 8 a step") && text.contains("ngram, what pays"), "{text}");
    let model = drafted("llama", "llama", one_thread());
    let report = of(&model, greedy(24)).unwrap();
    let all =
        [off.clone(), alone(Speculate::Ngram), alone(Speculate::DraftModel), vec![(Speculate::Auto, None)]];
    assert_eq!(ways(&report), all.concat());
    // It drafts what it says itself.
    let deep = report.ways.iter().find(|way| **way == report.ways[9]).unwrap();
    assert_eq!((deep.speculate, deep.draft_tokens, deep.acceptance), (Speculate::DraftModel, Some(8), 1.0));
    assert!(deep.tokens_per_step > 4.0, "{deep:?}");
    let report = of(&model, greedy(24).speculate(Speculate::DraftModel)).unwrap();
    assert_eq!(ways(&report), [off, alone(Speculate::DraftModel)].concat());
    for wrong in [greedy(4).draft_tokens(2), greedy(4).speculate(Speculate::Off)] {
        assert_eq!(of(&model, wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let none: [&str; 0] = [];
    let error = model.tune_speculation(none, &greedy(4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// Stages that have no memory for what makes going back cheap: texts are the same, and come to their end.
#[test]
fn models_with_states_draft_with_little_memory() {
    for (name, stages) in [("nemotron_h", 3), ("qwen3_5", 2), ("qwen3_next", 1)] {
        let load = |bytes: u64| {
            let load = one_thread().context(512).sessions(1).prefill_chunk(16).stages(stages);
            Model::open(path(name), &load.kv_memory(skulk::ByteSize(bytes))).unwrap()
        };
        let roomy = load(1 << 30);
        let full: u64 = roomy.stages().iter().map(|stage| stage.kv_cache.bytes()).sum();
        let prompt: Vec<_> = reference_prompt(name, 0).into_iter().cycle().take(22).collect();
        let plain = greedy(150).speculate(Speculate::Off);
        let expected = fresh(&roomy, prompt.clone(), &plain);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let texts = [8, 4]
            .map(|one_in| roomy.tokenizer().decode(&corrupted(&mut random, &expected.ids, one_in), false));
        let mut ended = 0;
        for percent in (50..110).step_by(4) {
            let end = |options: GenerateOptions| {
                let cancel = skulk::CancelToken::new();
                // What comes to no end fails.
                let (done, ended) = std::sync::mpsc::channel::<()>();
                let late = cancel.clone();
                std::thread::spawn(move || {
                    if ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                        late.cancel();
                    }
                });
                let model = load(full * percent / 100);
                let generation = model.generate(prompt.clone(), options.cancel(cancel));
                let output = generation.and_then(|mut generation| generation.output());
                drop(done);
                output.map(|output| output.ids)
            };
            let Ok(ids) = end(plain.clone()) else { continue };
            ended += 1;
            let ahead = greedy(150).draft_texts(texts.clone()).draft_tokens(7);
            assert_eq!(end(ahead).unwrap(), ids, "{name}, {percent} %");
            assert_eq!(ids, expected.ids, "{name}, {percent} %");
        }
        assert!(ended > 3, "{name}");
    }
}

/// A draft model whose context is shorter drafts while it can; then what texts repeat is proposed.
#[test]
fn a_short_draft_model_does_not_keep_texts_from_drafting() {
    let folder = crate::fixtures::copied(&path("llama"));
    let file = folder.path().join("config.json");
    let mut config: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    config["max_position_embeddings"] = 48.into();
    std::fs::write(file, config.to_string()).unwrap();
    let model = Model::open(path("llama"), &one_thread().context(512).draft_model(folder.path())).unwrap();
    let prompt: Vec<_> = reference_prompt("llama", 0).into_iter().cycle().take(40).collect();
    let plain = greedy(120).speculate(Speculate::Off);
    let expected = fresh(&model, prompt.clone(), &plain);
    let text = model.tokenizer().decode(&[&prompt[..], &expected.ids].concat(), false);
    let alone = fresh(&model, prompt.clone(), &greedy(120).speculate(Speculate::DraftModel).draft_tokens(4));
    assert_eq!(alone.ids, expected.ids);
    // Positions up to 48, of which the prompt has 40.
    let drafted = alone.finish.timings.drafted_tokens;
    assert!((1..=8).contains(&drafted), "{drafted}");
    let both = fresh(&model, prompt, &greedy(120).draft_texts([text]).draft_tokens(4));
    assert_eq!(both.ids, expected.ids);
    assert!(both.finish.timings.accepted_tokens > 60, "{:?}", both.finish.timings);
}
