//! Which of gRPC's codes stands for which of HTTP's statuses?

use hyper::StatusCode;

/// A code, and the status that means the same. Of codes and statuses that are there twice the first counts.
const CODES: &[(u16, StatusCode)] = &[
    (0, StatusCode::OK),
    (3, StatusCode::BAD_REQUEST),
    (4, StatusCode::REQUEST_TIMEOUT),
    (7, StatusCode::FORBIDDEN),
    (8, StatusCode::TOO_MANY_REQUESTS),
    (11, StatusCode::PAYLOAD_TOO_LARGE),
    (12, StatusCode::NOT_IMPLEMENTED),
    (12, StatusCode::NOT_FOUND),
    (13, StatusCode::INTERNAL_SERVER_ERROR),
    (14, StatusCode::SERVICE_UNAVAILABLE),
    (16, StatusCode::UNAUTHORIZED),
];

/// What gRPC calls unknown.
const UNKNOWN: u16 = 2;

/// The header or trailer of the code.
pub(super) const STATUS: &str = "grpc-status";

/// The header or trailer of what went wrong, in words that are percent-encoded.
pub(super) const MESSAGE: &str = "grpc-message";

/// The header of how messages are compressed.
pub(super) const ENCODING: &str = "grpc-encoding";

pub(super) fn code_of(status: StatusCode) -> u16 {
    CODES.iter().find(|(_, found)| *found == status).map_or(UNKNOWN, |(code, _)| *code)
}

pub(super) fn status_of(code: u16) -> StatusCode {
    let status = CODES.iter().find(|(found, _)| *found == code).map(|(_, status)| *status);
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
