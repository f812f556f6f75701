//! Do hosts read errors with the names that they know?
#![allow(clippy::unwrap_used, reason = "a test")]

use serde_json::{Map, Value};
use skulk::{Error, ErrorKind};
use skulk_contract::functions::failure;
use skulk_contract::options::{LinkOptions, Spelling};
use skulk_contract::{Failure, keep_names};

/// An error about a field, with these words.
fn error(kind: ErrorKind, field: &str, message: &str, hint: &str) -> Error {
    Error::new(kind, message.to_owned()).with("field", field).with_hint(hint.to_owned())
}

/// The field, the message and the hint that hosts read.
fn told(error: &Error, spelling: Spelling) -> [String; 3] {
    let Failure { mut context, message, hint, text, .. } = Failure::of(error, spelling);
    let told = [context.remove("field").unwrap_or_default(), message, hint.unwrap_or_default()];
    told.iter().for_each(|word| assert!(text.contains(word), "{text} lacks {word}"));
    told
}

#[test]
fn options_of_loading_have_the_names_of_hosts() {
    let lost =
        error(ErrorKind::PeerLost, "timeout", "too late", "give more time with the option timeout, or less");
    let [field, _, hint] = told(&lost, Spelling::Snake);
    assert_eq!((&*field, &*hint), ("peer_timeout", "give more time with the option peer_timeout, or less"));
    let [field, _, hint] = told(&lost, Spelling::Camel);
    assert_eq!((&*field, &*hint), ("peerTimeout", "give more time with the option peerTimeout, or less"));

    let beside =
        error(ErrorKind::InvalidArgument, "engine_name", "found the option engine_name beside it", "");
    assert_eq!(told(&beside, Spelling::Camel)[..2], ["engine", "found the option engine beside it"]);

    let address = error(ErrorKind::InvalidArgument, "address", "", "");
    assert_eq!(told(&address, Spelling::Camel)[0], "ffnAt");
    assert_eq!(told(&address.with("node", "shed"), Spelling::Snake)[0], "addresses");
}

#[test]
fn functions_with_the_librarys_names_keep_them() {
    let key = || error(ErrorKind::InvalidArgument, "key", "", "give it with the option key");
    assert_eq!(told(&key(), Spelling::Snake)[0], "peer_key");
    for spelling in [Spelling::Snake, Spelling::Camel] {
        assert_eq!(told(&keep_names(key()), spelling), ["key", "", "give it with the option key"]);
    }
    let given: Map<String, Value> = [("timeout".to_owned(), Value::from("soon"))].into_iter().collect();
    let error = LinkOptions::read(given, Spelling::Camel).unwrap_err();
    assert_eq!(told(&error, Spelling::Camel)[0], "timeout");
    // What there is not is called as the host called it.
    for unknown in ["max_rows", "identities"] {
        let given: Map<String, Value> = [(unknown.to_owned(), Value::Null)].into_iter().collect();
        let error = LinkOptions::read(given, Spelling::Camel).unwrap_err();
        assert_eq!(
            told(&error, Spelling::Camel)[..2],
            [unknown.to_owned(), format!("there is no option `{unknown}`")]
        );
    }
}

#[test]
fn names_are_spelled_where_they_are_options() {
    let hint =
        "set max_tokens; `draft_model` and chat_template, not rope_theta, model.max_tokens or max_tokens.rs";
    let argument = error(ErrorKind::InvalidArgument, "logit_bias[12].some_name", "see max_tokens", hint);
    let [field, message, hint] = told(&argument, Spelling::Camel);
    assert_eq!(field, "logitBias[12].some_name");
    assert_eq!(message, "see max_tokens", "messages say what was found");
    assert_eq!(
        hint,
        "set maxTokens; `draftModel` and chatTemplate, not rope_theta, model.max_tokens or max_tokens.rs"
    );
    let hint = "größer als max_tokens – ü_max_tokens";
    let facts = error(ErrorKind::CardInvalid, "rope_scaling.max_tokens", "", hint);
    assert_eq!(
        told(&facts, Spelling::Camel),
        ["rope_scaling.max_tokens", "", "größer als maxTokens – ü_max_tokens"]
    );
    assert_eq!(told(&facts, Spelling::Snake), ["rope_scaling.max_tokens", "", hint]);
}

#[test]
fn facts_and_causes_are_kept() {
    let failed = keep_names(skulk::ModelCard::from_json("{}").unwrap_err());
    let read: Value = serde_json::from_str(&failure(&failed)).unwrap();
    assert!(read["detail"]["faults"].as_array().is_some_and(|faults| !faults.is_empty()), "{read}");

    let failed =
        keep_names(Error::new(ErrorKind::FileIo, "broken").with_source(std::io::Error::other("behind it")));
    let read: Value = serde_json::from_str(&failure(&failed)).unwrap();
    assert!(read["text"].as_str().unwrap().contains("behind it"), "{read}");
}
