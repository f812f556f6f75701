//! How do values cross to other languages? What plain data's `Serialize` has of its own.

use std::path::Path;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// As the `f64` of the same value: all languages see the same digits.
pub(crate) fn wide<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(f64::from(*value))
}

/// The same of one that may be absent.
pub(crate) fn wide_option<S: Serializer>(value: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(f64::from).serialize(serializer)
}

/// In seconds.
pub(crate) fn seconds<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_secs_f64())
}

/// As text, with signs in place of what is none.
pub(crate) fn path<S: Serializer>(value: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    value.to_string_lossy().serialize(serializer)
}
