//! What do several tests need? Writers of small checkpoint files, and checks of parsed headers.
#![allow(dead_code)] // Every test binary compiles all of it and uses a part.
#![allow(unreachable_pub)] // Shared by path, each time as a private module.
#![allow(clippy::unwrap_used, clippy::panic)]

pub mod exercise;
pub mod gguf_writer;
pub mod mlx_layout;
pub mod safetensors_writer;
pub mod small_floats;
