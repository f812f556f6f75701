//! What is a client told? Rows, JSON, or why it gets none.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use super::batch::Refused;
use crate::error::{Error, ErrorKind};

/// All replies.
pub(super) type Reply = Response<ReplyBody>;

/// What a reply has.
pub(super) type ReplyBody = UnsyncBoxBody<Bytes, Infallible>;

/// A body that is there already.
pub(super) fn whole(body: impl Into<Bytes>) -> ReplyBody {
    Full::new(body.into()).boxed_unsync()
}

/// Why a request is not answered as it wants.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The request asks for what cannot be.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn reply(&self) -> Reply {
        let mut reply = json(self.status, &json!({ "error": self.message }));
        let headers = reply.headers_mut();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if matches!(self.status, StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE) {
            // The rest of the body is not waited for.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::PeerFailed | ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
            ErrorKind::Cancelled | ErrorKind::OutOfMemory => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let field = error.context().iter().find(|(key, _)| *key == "field");
        let field = field.map(|(_, field)| format!("{field}: ")).unwrap_or_default();
        Self::new(status, format!("{field}{}", error.message()))
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too many requests wait to be computed")
            }
            Refused::Stopping => stopping(),
        }
    }
}

pub(super) fn stopping() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
}

/// A reply without a body.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// A reply of this type.
pub(super) fn of_type(content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(whole(body));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// A reply in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(body) => {
            let mut reply = of_type("application/json", body);
            *reply.status_mut() = status;
            reply
        }
        Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
