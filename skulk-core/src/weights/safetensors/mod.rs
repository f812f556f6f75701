//! What does a Hugging Face folder hold? Its configuration, and tensors in safetensors files.
//!
//! Format: `README.md` of the safetensors repository; folder layout: what `save_pretrained` of
//! transformers writes.

mod checkpoint;
mod folder;
mod header;

pub use checkpoint::HfCheckpoint;
pub use folder::HfMetadata;
pub use header::SafetensorsHeader;

#[cfg(feature = "embeddings")]
pub(crate) use folder::read_json;
pub(crate) use folder::{INDEX, SINGLE, leads_out, read_bytes, read_object, read_text};
