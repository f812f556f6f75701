//! stub
/// Config.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct HfMetadata {
    pub folder: std::path::PathBuf,
    pub config: serde_json::Value,
    pub generation_config: Option<serde_json::Value>,
    pub tokenizer_config: Option<serde_json::Value>,
}
