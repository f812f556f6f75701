//! Is another guess at the next token computed beside the first one, and taken where it is right?

use std::time::{Duration, Instant};

use skulk::{ErrorKind, GenerateOptions, KvType, LoadOptions, Model, Prompt, Speculate, TokenId};

use crate::fixtures::root;
use crate::generate::common::{OPENING, fresh, greedy, model, one_thread, path, reference_prompt};

fn drafted(name: &str, beside: &str, load: LoadOptions) -> Model {
    let beside = root().join("tests/fixtures").join(beside);
    Model::open(path(name), &load.context(512).draft_model(beside)).unwrap()
}

/// Accepted tokens and steps of a text, with trees or without.
fn steps(model: &Model, prompt: &[TokenId], options: &GenerateOptions, tree: bool) -> (usize, usize) {
    let expected = fresh(model, prompt.to_vec(), &greedy(64).speculate(Speculate::Off)).ids;
    let output = fresh(model, prompt.to_vec(), &options.clone().draft_tree(tree));
    assert_eq!((output.ids, output.finish.warnings), (expected, vec![]), "{options:?}");
    let timings = output.finish.timings;
    let each = if tree { 2 } else { 1 };
    assert!(timings.drafted_tokens <= each * timings.draft_steps, "{timings:?}");
    (timings.accepted_tokens, timings.draft_steps)
}

/// What drafts has a second guess, which is right now and then where the first is not: a step gives more.
#[test]
fn second_guesses_of_models_are_taken() {
    let beside = [
        ("llama", "ahead/llama_eagle3", 1),
        ("llama", "ahead/llama_eagle3", 3),
        ("gemma4", "ahead/gemma4_assistant", 1),
        ("llama", "models/llama", 1),
    ];
    for (name, drafts, stages) in beside {
        let model = drafted(name, drafts, one_thread().stages(stages).kv(KvType::F32));
        let options = greedy(64).speculate(Speculate::DraftModel).draft_tokens(1);
        let (mut chain, mut tree) = ((0, 0), (0, 0));
        for prompt in 0..3 {
            let prompt = reference_prompt(name, prompt);
            let [alone, both] = [false, true].map(|tree| steps(&model, &prompt, &options, tree));
            chain = (chain.0 + alone.0, chain.1 + alone.1);
            tree = (tree.0 + both.0, tree.1 + both.1);
        }
        if drafts.starts_with("models") {
            // The model itself is never wrong.
            assert_eq!(tree, chain, "{name} by {drafts}");
        } else {
            // The EAGLE head is seldom wrong about these texts.
            let more = if drafts.contains("eagle") { 1 } else { 5 };
            assert!(
                tree.0 >= chain.0 + more && tree.1 + more <= chain.1,
                "{name} by {drafts}: {tree:?}, {chain:?}"
            );
        }
    }
}

/// Where the latest text goes on otherwise, what an earlier one says is right.
#[test]
fn other_texts_are_taken() {
    let model = model("stories260K");
    let prompt = model.tokenizer().encode(OPENING, true).unwrap();
    let story = fresh(&model, prompt.clone(), &greedy(64).speculate(Speculate::Off));
    let all = [&prompt[..], &story.ids[..]].concat();
    let text = |ids: &[TokenId]| model.tokenizer().decode(ids, true);
    // Each of the later ones ends where it is wrong.
    let wrong = |end: usize| text(&[&all[..end], &[TokenId(all[end].0 ^ 1)]].concat());
    let texts: Vec<_> = std::iter::once(text(&all)).chain((30..60).rev().step_by(3).map(wrong)).collect();
    let options = greedy(64).draft_texts(texts).draft_tokens(1);
    let [chain, tree] = [false, true].map(|tree| steps(&model, &prompt, &options, tree));
    assert!(tree.0 >= chain.0 + 3 && tree.1 + 3 <= chain.1, "{tree:?}, {chain:?}");
}

/// Copies go back, those in which nothing was right and sequences that a copy took the place of.
#[test]
fn copies_leave_no_pages() {
    let load = one_thread().sessions(4).prefill_chunk(32);
    let model = drafted("llama", "ahead/llama_eagle3", load);
    let prompts: Vec<Prompt> = (0..6).map(|at| reference_prompt("llama", at % 3).into()).collect();
    let options = greedy(40).speculate(Speculate::DraftModel).draft_tokens(2).draft_tree(true);
    let outputs = model.generate_batch(prompts, &options);
    assert!(outputs.into_iter().all(|output| output.unwrap().finish.timings.accepted_tokens > 0));
    let end = Instant::now() + Duration::from_secs(20);
    while model.kv_memory().in_use.bytes() > 0 {
        assert!(Instant::now() < end, "{:?}", model.kv_memory());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn impossible_trees_are_errors() {
    for (name, options) in [
        ("stories260K", greedy(4).draft_tree(true).speculate(Speculate::Off)),
        ("qwen3_5", greedy(4).draft_tree(true)),
    ] {
        let model = model(name);
        let Err(error) = model.generate(OPENING, options.clone()) else { panic!("{name}") };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(format!("{error:?}").contains("draft_tree"), "{error:?}");
        fresh(&model, OPENING, &options.draft_tree(false));
    }
}
