//! What does a GGUF file hold? (stub)
/// The key-value section of a GGUF file.
#[derive(Debug)]
pub struct GgufMetadata;
