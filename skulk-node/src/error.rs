//! How does an error reach JavaScript? As JSON in an exception's text, of which `lib/errors.js` makes a `SkulkError`.

use skulk::{Error, ErrorKind};
use skulk_contract::functions::failure;

/// The exception for a failure of the library.
pub(crate) fn raise(error: Error) -> napi::Error {
    napi::Error::from_reason(format!("skulk:{}", failure(&error)))
}

/// What a handle holds until it is closed.
pub(crate) fn open<'a, T>(handle: &'a Option<T>, what: &str) -> napi::Result<&'a T> {
    handle.as_ref().ok_or_else(|| {
        let message = format!("expected an open {what}, found a closed one");
        raise(Error::new(ErrorKind::InvalidArgument, message).with_hint("close handles when all is done"))
    })
}
