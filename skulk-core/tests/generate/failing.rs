//! Is a session sound after a step that failed, and are the others?

use skulk::{Error, ErrorKind, Model, Session, TokenId};

use crate::generate::common::{expect_usable, fresh, greedy, long_prompt, model, on, one_thread, path};
use crate::generate::wrapped::Wrapped;

fn failed(message: &'static str) -> Error {
    Error::new(ErrorKind::EngineFailed, message)
}

/// A prompt that takes four steps.
fn prompt() -> Vec<TokenId> {
    long_prompt().into_iter().take(125).collect()
}

/// What ends a generation of the prompt, and of four tokens.
fn end_of(session: &Session) -> Error {
    session.generate(prompt(), greedy(4)).and_then(|mut generation| generation.output()).unwrap_err()
}

fn three_stages(engine: std::sync::Arc<Wrapped>) -> Model {
    let options = one_thread().engine(engine).stages(3).prefill_chunk(32);
    Model::open(path("llama"), &options).unwrap()
}

/// Whichever stage of whichever step fails or panics, the stages before it are a step ahead, and come back.
#[test]
fn stages_stay_at_one_length() {
    for call in 1..=18 {
        for panics in [false, true] {
            let model = three_stages(Wrapped::forward(move |n| {
                assert!(!(panics && n == call), "as planned");
                if n == call { Err(failed("as planned")) } else { Ok(()) }
            }));
            let session = model.session().unwrap();
            let error = end_of(&session);
            let kind = if panics { ErrorKind::Internal } else { ErrorKind::EngineFailed };
            assert!(error.kind() == kind && error.message().contains("as planned"), "call {call}: {error}");
            expect_usable(&model, &session, &prompt());
        }
    }
}

/// What went wrong first is what the caller learns, and only he: then the session goes on, as others do.
#[test]
fn what_a_session_held_is_computed_again_after_a_failure() {
    for panics in [false, true] {
        let model = three_stages(Wrapped::forward(move |n| {
            assert!(!(panics && n == 5), "the step");
            if n == 5 { Err(failed("the step")) } else { Ok(()) }
        }));
        let session = model.session().unwrap();
        let error = end_of(&session);
        assert!(error.message().contains("the step"), "{error}");
        assert_eq!(session.tokens().unwrap(), prompt());
        let expected = fresh(&self::model("llama"), prompt(), &greedy(4)).ids;
        assert_eq!(on(&session, prompt(), &greedy(4)).ids, expected);
        assert_eq!(fresh(&model, prompt(), &greedy(4)).ids, expected);
    }
}

/// The same when it is the reuse of what the session holds that fails.
#[test]
fn reuse_that_fails_ends_that_generation_alone() {
    for panics in [false, true] {
        let model = three_stages(Wrapped::new(
            |_| Ok(()),
            move |n| {
                assert!(!(panics && n == 2), "reuse");
                if n == 2 { Err(failed("reuse")) } else { Ok(()) }
            },
        ));
        let session = model.session().unwrap();
        let expected = on(&session, prompt(), &greedy(4)).ids;
        assert!(end_of(&session).message().contains("reuse"));
        assert_eq!(on(&session, prompt(), &greedy(4)).ids, expected);
    }
}

/// Nobody has cancelled it.
#[test]
fn a_stage_that_says_it_was_cancelled_fails() {
    let model = three_stages(Wrapped::forward(|_| Err(Error::new(ErrorKind::Cancelled, "by myself"))));
    assert_eq!(end_of(&model.session().unwrap()).message(), "by myself");
}

/// A step of several sessions that fails is repeated for each alone: whose rows are not at fault goes on.
#[test]
fn a_failed_step_is_repeated_one_by_one() {
    let expected = fresh(&model("llama"), prompt(), &greedy(6)).ids;
    for call in 1..=40 {
        let model =
            three_stages(Wrapped::forward(move |n| if n == call { Err(failed("once")) } else { Ok(()) }));
        let running: Vec<_> = (0..4).map(|_| model.generate(prompt(), greedy(6)).unwrap()).collect();
        let ended: Vec<_> = running.into_iter().map(|mut generation| generation.output()).collect();
        let failed = ended.iter().filter(|output| output.is_err()).count();
        assert!(failed <= 1, "call {call}: {failed} failed");
        assert!(ended.into_iter().flatten().all(|output| output.ids == expected), "call {call}");
    }
}
