//! Do the readers accept what is right and refuse what is wrong, in so many words?

mod fp8;
mod gguf;
mod gguf_split;
mod hostile;
mod mlx;
mod mxfp4;
mod open;
mod resident;
mod safetensors;

use skulk::{Error, ErrorKind};

/// The error says what class it is, which file it concerns, and everything in `parts`.
#[track_caller]
pub(crate) fn assert_error<T>(result: skulk::Result<T>, kind: ErrorKind, parts: &[&str]) {
    let error: Error = result.err().expect("expected an error, found success");
    let text = format!("{error:?}");
    assert_eq!(error.kind(), kind, "{text}");
    assert!(error.hint().is_some(), "no hint: {text}");
    assert!(error.context().iter().any(|(key, _)| *key == "file"), "no file: {text}");
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in {text:?}");
    }
}
