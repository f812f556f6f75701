//! Can any bytes break the reader of frames of weighted experts of a layer?
#![no_main]

#[path = "../../../skulk-core/tests/support/frames.rs"]
#[allow(dead_code)] // The tests use the rest.
mod frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // An error is a fine answer; a panic, a hang or a broken promise is not.
    frames::exercise("layer-", bytes, 256);
});
