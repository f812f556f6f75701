//! Does cancelling end the work and nothing else?

use std::sync::{Arc, Barrier};

use skulk::{CancelToken, ErrorKind, Generation, Model};

use crate::generate::common::{
    OPENING, expect_usable, fresh, greedy, long_prompt, model, on, one_thread, path,
};
use crate::generate::wrapped::Wrapped;

fn expect_cancelled(generation: Generation) -> usize {
    let mut tokens = 0;
    for event in generation {
        match event {
            Ok(event) => {
                assert!(event.finish.is_none());
                tokens += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                assert!(error.hint().is_some());
                return tokens;
            }
        }
    }
    panic!("the generation was not cancelled")
}

#[test]
fn before_the_start() {
    let model = model("llama");
    let session = model.session().unwrap();
    let token = CancelToken::new();
    token.cancel();
    let generation = session.generate(long_prompt(), greedy(5).cancel(token)).unwrap();
    assert_eq!(expect_cancelled(generation), 0);
    expect_usable(&model, &session, &long_prompt());
}

#[test]
fn from_another_thread_in_prefill() {
    let model = Model::open(path("llama"), &one_thread().prefill_chunk(1024)).unwrap();
    let session = model.session().unwrap();
    let token = CancelToken::new();
    let generation = session.generate(long_prompt(), greedy(400).cancel(token.clone())).unwrap();
    std::thread::spawn(move || token.cancel()).join().unwrap();
    expect_cancelled(generation);
    expect_usable(&model, &session, &long_prompt());
}

#[test]
fn in_decode() {
    let model = model("llama");
    let session = model.session().unwrap();
    let mut generation = session.generate(OPENING, greedy(800)).unwrap();
    assert_eq!(generation.by_ref().take(3).filter(|e| e.is_ok()).count(), 3);
    generation.cancel();
    expect_cancelled(generation);
    expect_usable(&model, &session, &long_prompt());
}

#[test]
fn one_of_two_that_share_a_parent() {
    let model = model("llama");
    let parent = CancelToken::new();
    let expected = fresh(&model, OPENING, &greedy(60)).ids;
    let dropped = model.generate(OPENING, greedy(800).cancel(parent.clone())).unwrap();
    let mut kept = model.generate(OPENING, greedy(60).cancel(parent.clone())).unwrap();
    drop(dropped);
    assert!(!parent.is_cancelled());
    assert_eq!(kept.output().unwrap().ids, expected);

    let both = [0, 1].map(|_| model.generate(OPENING, greedy(800).cancel(parent.clone())).unwrap());
    parent.cancel();
    for generation in both {
        expect_cancelled(generation);
    }
}

/// Whichever stage of whichever step is cut off, the stages before it are a step ahead.
#[test]
fn in_any_stage_of_any_step() {
    // Three stages; a prompt of 500 tokens in chunks of 128 takes four steps.
    for call in 1..=18 {
        let token = CancelToken::new();
        let cancelled = token.clone();
        let engine = Wrapped::forward(move |n| {
            if n == call {
                cancelled.cancel();
            }
            Ok(())
        });
        let options = one_thread().engine(engine).stages(3).prefill_chunk(128);
        let model = Model::open(path("llama"), &options).unwrap();
        let session = model.session().unwrap();
        let generation = session.generate(long_prompt(), greedy(400).cancel(token)).unwrap();
        // The first token comes after the twelfth call, then one after every third.
        assert_eq!(expect_cancelled(generation), ((call - 1) / 3).saturating_sub(3), "call {call}");
        expect_usable(&model, &session, &long_prompt());
    }
}

/// Nobody waits for a step that he has no part in.
#[test]
fn who_waits_ends_while_others_compute() {
    for steps_before in [0, 1] {
        let (entered, held) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (at_step, until) = (Arc::clone(&entered), Arc::clone(&held));
        let engine = Wrapped::forward(move |n| {
            if n == 2 {
                at_step.wait();
                until.wait();
            }
            Ok(())
        });
        let model = Model::open(path("llama"), &one_thread().engine(engine).sessions(1)).unwrap();
        let mut running = model.generate("Once", greedy(40)).unwrap();
        let start = || {
            let cancel = CancelToken::new();
            let session = model.session().unwrap();
            let generation = session.generate("a", greedy(4).cancel(cancel.clone())).unwrap();
            (session, generation, cancel)
        };
        // One that the model's thread has seen, or one that it has not.
        let early = (steps_before == 1).then(start);
        running.next().unwrap().unwrap();
        entered.wait();
        let (session, mut waiting, cancel) = early.unwrap_or_else(start);
        cancel.cancel();
        assert_eq!(waiting.next().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
        assert!(session.tokens().unwrap().is_empty());
        held.wait();
        assert_eq!(running.output().unwrap().ids.len(), 39);
        assert_eq!(on(&session, "a", &greedy(4)).ids.len(), 4);
    }
}
