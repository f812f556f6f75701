//! What does a GGUF file hold? Typed metadata and a table of tensors, read from its header alone.
//!
//! Versions 2 and 3 in little-endian order, single files and split sets. Format:
//! `docs/gguf.md` of the ggml repository.

mod checkpoint;
mod cursor;
mod header;
mod metadata;
mod scan;
mod split;
mod tensors;
mod value;

pub use checkpoint::GgufCheckpoint;
pub use header::GgufHeader;
pub use metadata::GgufMetadata;
pub use value::{GgufArray, GgufValue};

pub(super) use header::MAGIC;
pub(crate) use scan::HeaderScan;
pub(super) use split::ShardName;
