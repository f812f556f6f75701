//! Which checkpoint lies at this path? (stub)
use super::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use std::{path::Path, sync::Arc};
/// Opens.
///
/// # Errors
/// x
pub fn open_checkpoint(path: impl AsRef<Path>) -> Result<Arc<dyn Checkpoint>> {
    let _ = path;
    Err(Error::new(ErrorKind::Internal, "stub"))
}
