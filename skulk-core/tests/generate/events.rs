//! Do the events tell the whole story, once?
#![allow(clippy::disallowed_methods, reason = "nothing here depends on last bits")]

use skulk::{ErrorKind, Event, FinishReason, GenerateOptions};

use crate::generate::common::{NAMES, OPENING, fresh, greedy, model};

#[test]
fn texts_join_to_the_output_and_only_the_last_event_finishes() {
    for name in NAMES {
        let model = model(name);
        let mut generation = model.generate(OPENING, greedy(40)).unwrap();
        let prompt_ids = generation.prompt_ids().to_vec();
        let events: Vec<Event> = generation.by_ref().map(|e| e.unwrap()).collect();
        assert!(generation.next().is_none());
        let (last, before) = events.split_last().unwrap();
        assert!(before.iter().all(|e| e.finish.is_none()), "{name}");
        let finish = last.finish.as_ref().unwrap();

        let output = fresh(&model, OPENING, &greedy(40));
        let text: String = events.iter().map(|e| e.text.as_str()).collect();
        let ids: Vec<_> = events.iter().filter_map(|e| e.token.as_ref()).map(|t| t.id).collect();
        assert_eq!((text, ids), (output.text, output.ids), "{name}");
        assert_eq!(finish.reason, FinishReason::Length);
        assert_eq!(finish.reason, output.finish.reason);
        assert_eq!(finish.usage, output.finish.usage);
        assert_eq!(finish.usage.prompt_tokens, prompt_ids.len());
        assert_eq!(finish.usage.cached_tokens, 0);
        assert_eq!(finish.usage.completion_tokens, 40);
        assert_eq!(prompt_ids, model.tokenizer().encode(OPENING, true).unwrap());
    }
}

#[test]
fn a_generation_read_to_its_end_has_no_output_left() {
    let model = model("stories260K");
    let mut generation = model.generate(OPENING, greedy(4)).unwrap();
    let first = generation.next().unwrap().unwrap();
    let rest = generation.output().unwrap();
    assert_eq!(rest.ids.len(), 3);
    assert_eq!(first.text + &rest.text, fresh(&model, OPENING, &greedy(4)).text);
    let error = generation.output().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.hint().is_some());
    assert!(generation.next().is_none());
}

#[test]
fn logprobs_are_those_of_the_sampled_tokens() {
    for name in NAMES {
        let model = model(name);
        let plain = fresh(&model, OPENING, &greedy(10));
        for top in [0, 1, 5, GenerateOptions::MAX_LOGPROBS] {
            let events: Vec<Event> =
                model.generate(OPENING, greedy(10).logprobs(top)).unwrap().map(|e| e.unwrap()).collect();
            let ids: Vec<_> = events.iter().filter_map(|e| e.token.as_ref()).map(|t| t.id).collect();
            assert_eq!(ids, plain.ids, "asking for log-probabilities changes nothing");
            for token in events.iter().filter_map(|e| e.token.as_ref()) {
                let logprob = token.logprob.unwrap();
                assert!(logprob <= 0.0, "{name}: {logprob}");
                assert_eq!(token.top_logprobs.len(), top);
                assert!(token.top_logprobs.windows(2).all(|w| w[0].logprob >= w[1].logprob));
                let sum: f64 = token.top_logprobs.iter().map(|t| f64::from(t.logprob).exp()).sum();
                assert!(sum <= 1.0 + 1e-5, "{name}: {sum}");
                if let Some(first) = token.top_logprobs.first() {
                    assert_eq!((first.id, first.logprob), (token.id, logprob), "greedy takes the likeliest");
                }
            }
        }
        let none = model.generate(OPENING, greedy(2)).unwrap().next().unwrap().unwrap().token.unwrap();
        assert!(none.logprob.is_none() && none.top_logprobs.is_empty());
    }
}
