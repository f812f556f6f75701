//! Do whole models run on engines made of a backend and the decoder?

#[cfg(feature = "wgpu")]
mod gpu;
mod pages;
mod providers;
