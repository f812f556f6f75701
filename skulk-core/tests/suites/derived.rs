//! Are facts derived from configurations and GGUF files as the reference does?
