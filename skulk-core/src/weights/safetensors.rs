//! What does a Hugging Face folder hold? (stub)
/// Config.
#[derive(Debug)]
pub struct HfMetadata;
