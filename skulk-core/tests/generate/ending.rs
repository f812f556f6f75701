//! When does a generation end? Stop strings, end-of-sequence tokens, `max_tokens`, the context.

use skulk::{FinishReason, GenerateOptions, LoadOptions, Model, Sampling};

use crate::generate::common::{NAMES, OPENING, fresh, greedy, model, one_thread, path, reference_prompt};

#[test]
fn stop_strings_end_the_text_wherever_they_lie() {
    for name in NAMES {
        let model = model(name);
        let full = fresh(&model, OPENING, &greedy(40));
        let starts: Vec<usize> = full.text.char_indices().map(|(i, _)| i).collect();
        for window in starts.windows(8).skip(3).step_by(6) {
            // Seven characters are more than nearly every token has: most of them cross a border.
            let stop = &full.text[window[0]..window[7]];
            let output = fresh(&model, OPENING, &greedy(40).stop(["not in it", stop]));
            assert_eq!(output.finish.reason, FinishReason::StopString, "{name} {stop:?}");
            assert_eq!(output.text, full.text[..full.text.find(stop).unwrap()], "{name} {stop:?}");
            assert_eq!(output.ids, full.ids[..output.ids.len()]);
            assert_eq!(output.finish.usage.completion_tokens, output.ids.len());
        }
    }
}

#[test]
fn an_unfinished_stop_string_is_text_after_all() {
    let model = model("stories260K");
    let full = fresh(&model, OPENING, &greedy(20));
    let tail: String = full.text.chars().skip(full.text.chars().count() - 3).collect();
    let output = fresh(&model, OPENING, &greedy(20).stop([format!("{tail}\u{0}")]));
    assert_eq!((output.text, output.finish.reason), (full.text, FinishReason::Length));
}

#[test]
fn an_end_of_sequence_token_ends_unless_ignored() {
    for name in NAMES {
        let model = model(name);
        let eos = model.tokenizer().eos_ids()[0];
        let sure = Sampling::default().logit_bias(vec![(eos, 1e6)]);
        let options = GenerateOptions::default().max_tokens(5).sampling(sure);
        let output = fresh(&model, OPENING, &options);
        assert_eq!(output.finish.reason, FinishReason::EndOfSequence, "{name}");
        assert_eq!((output.ids.as_slice(), output.text.as_str()), (&[eos][..], ""));
        assert_eq!(output.finish.usage.completion_tokens, 1);
        let output = fresh(&model, OPENING, &options.ignore_eos(true));
        assert_eq!((output.ids, output.finish.reason), (vec![eos; 5], FinishReason::Length), "{name}");
    }
}

#[test]
fn models_end_their_stories_by_themselves() {
    for name in ["llama", "gemma3"] {
        let model = model(name);
        let prompt = reference_prompt(name, 2);
        let story = fresh(&model, prompt.clone(), &GenerateOptions::default());
        let (last, text) = story.ids.split_last().unwrap();
        let eos = model.tokenizer().eos_ids();
        assert_eq!(story.finish.reason, FinishReason::EndOfSequence, "{name}");
        assert!(eos.contains(last) && !text.iter().any(|id| eos.contains(id)), "{name}");
        assert_eq!(story.finish.usage.completion_tokens, story.ids.len());
        let on = fresh(&model, prompt, &greedy(story.ids.len() + 3));
        assert_eq!(on.ids[..story.ids.len()], story.ids, "{name}");
        assert_eq!(on.finish.reason, FinishReason::Length);
    }
}

#[test]
fn max_tokens_and_the_context_are_lengths() {
    let options: LoadOptions = one_thread().context(24);
    let model = Model::open(path("stories260K"), &options).unwrap();
    let prompt = reference_prompt("stories260K", 0);
    let room = 24 - prompt.len();
    for (max_tokens, expected) in [(Some(1), 1), (Some(room), room), (None, room)] {
        let mut options = GenerateOptions::default().ignore_eos(true);
        options.max_tokens = max_tokens;
        let output = fresh(&model, prompt.clone(), &options);
        assert_eq!((output.ids.len(), output.finish.reason), (expected, FinishReason::Length));
    }
}
