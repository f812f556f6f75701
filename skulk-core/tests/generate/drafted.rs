//! What must be so of a text, whatever drafts for it.

use std::path::Path;

use skulk::{Error, ErrorKind, GenerateOptions, LoadOptions, Model, Prompt, Sampling, Speculate};

use crate::generate::ahead::is_recurrent;
use crate::generate::common::{fresh, greedy, on, one_thread, reference_prompt};
use crate::support::mlx_layout::Checkpoint;

/// Ways to write a text.
fn ways() -> Vec<GenerateOptions> {
    let drawn = |seed| Sampling::default().temperature(0.9).seed(seed);
    vec![
        greedy(48),
        greedy(48).sampling(drawn(1).top_k(9)),
        greedy(48).sampling(drawn(2).top_p(0.9)).logprobs(2),
        greedy(48).sampling(Sampling::default().repetition_penalty(1.3)).ignore_eos(false),
    ]
}

/// Whatever drafts changes no text, greedy or drawn, in turns of a conversation, with all drafters or one: of models that are
/// opened for each way.
pub(crate) fn no_text_changes(name: &str, open: impl Fn(usize, LoadOptions) -> Model) {
    let (mut accepted, trees) = (0, !is_recurrent(name));
    for (at, options) in ways().into_iter().enumerate() {
        let model = open(at, one_thread().prefill_chunk([256, 16, 1, 64][at]));
        let prompt: Vec<_> = reference_prompt(name, at % 3).into_iter().cycle().take(70 + 29 * at).collect();
        let plain = options.clone().speculate(Speculate::Off);
        let expected = fresh(&model, prompt.clone(), &plain);
        for ahead in [
            options.clone(),
            options.clone().speculate(Speculate::DraftModel),
            options.clone().speculate(Speculate::DraftModel).draft_tokens([1, 4, 15, 2][at]),
            options.clone().draft_tokens(3),
            options.clone().draft_tree(trees),
            options.clone().speculate(Speculate::DraftModel).draft_tokens([2, 1, 1, 5][at]).draft_tree(trees),
        ] {
            let output = fresh(&model, prompt.clone(), &ahead);
            assert_eq!((output.ids, output.text), (expected.ids.clone(), expected.text.clone()), "{ahead:?}");
            assert!(output.finish.warnings.is_empty(), "{:?}", output.finish.warnings);
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

/// Nor does it in a batch, of a model with room for four sessions.
pub(crate) fn no_batch_changes(name: &str, model: &Model) {
    let prompts: Vec<Vec<_>> = (0..6)
        .map(|at| reference_prompt(name, at % 3).into_iter().cycle().take(20 + 31 * at).collect())
        .collect();
    let off = greedy(40).speculate(Speculate::Off);
    let alone: Vec<_> = prompts.iter().map(|prompt| fresh(model, prompt.clone(), &off).ids).collect();
    let (all, one) = (greedy(40), greedy(40).speculate(Speculate::DraftModel));
    for ahead in [
        all.clone(),
        all.draft_tokens(2),
        one.clone(),
        one.clone().draft_tokens(1),
        one.clone().draft_tokens(9),
        one.draft_tokens(2).draft_tree(!is_recurrent(name)),
    ] {
        let prompts: Vec<Prompt> = prompts.iter().cloned().map(Into::into).collect();
        let outputs = model.generate_batch(prompts, &ahead).into_iter();
        assert_eq!(outputs.map(|output| output.unwrap().ids).collect::<Vec<_>>(), alone, "{ahead:?}");
    }
}

/// A checkpoint without a tensor, or with one of another shape, is an error of this kind by the tensor's name.
pub(crate) fn broken_tensors<const N: usize>(
    beside: &Path,
    open: impl Fn(Checkpoint) -> Error,
    cases: [(&str, Option<Vec<usize>>, ErrorKind); N],
) {
    for (name, shape, kind) in cases {
        let mut checkpoint = Checkpoint::read(beside);
        match shape {
            Some(shape) => checkpoint.weights.get_mut(name).unwrap().shape = shape,
            None => drop(checkpoint.weights.remove(name)),
        }
        let error = open(checkpoint);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(format!("{error:?}").contains(name), "{name}: {error:?}");
    }
}
