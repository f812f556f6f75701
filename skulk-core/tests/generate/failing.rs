//! Is a session sound, or closed, after a step that failed?

use skulk::{Error, ErrorKind, Model, Session, TokenId};

use crate::generate::common::{expect_usable, fresh, greedy, long_prompt, model, one_thread, path};
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

/// What went wrong first is what the caller learns; the session is closed, and others are not.
#[test]
fn stages_that_cannot_come_back_close_the_session() {
    for panics in [false, true] {
        let model = three_stages(Wrapped::new(
            |n| if n == 5 { Err(failed("the step")) } else { Ok(()) },
            move |n| {
                assert!(!(panics && n == 2), "the truncation");
                if n == 2 { Err(failed("the truncation")) } else { Ok(()) }
            },
        ));
        let session = model.session().unwrap();
        let error = end_of(&session);
        assert_eq!((error.kind(), error.message()), (ErrorKind::EngineFailed, "the step"));
        for _ in 0..2 {
            let error = end_of(&session);
            assert_eq!(error.kind(), ErrorKind::EngineFailed, "{error}");
            assert!(error.message().contains("closed") && error.hint().is_some(), "{error}");
        }
        assert_eq!(session.tokens().unwrap(), prompt());
        let expected = fresh(&self::model("llama"), prompt(), &greedy(4)).ids;
        assert_eq!(fresh(&model, prompt(), &greedy(4)).ids, expected);
    }
}

/// The same when it is the reuse of what the session holds that fails.
#[test]
fn reuse_that_fails_closes_the_session() {
    let model =
        three_stages(Wrapped::new(|_| Ok(()), |n| if n == 2 { Err(failed("reuse")) } else { Ok(()) }));
    let session = model.session().unwrap();
    session.generate(prompt(), greedy(4)).unwrap().output().unwrap();
    assert_eq!(end_of(&session).message(), "reuse");
    assert!(end_of(&session).message().contains("closed"));
}
