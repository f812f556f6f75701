//! Can any bytes break the reader of frames of rows as blocks of integers?
#![no_main]

#[path = "../../../skulk-core/tests/support/frames.rs"]
#[allow(dead_code)] // The tests use the rest.
mod frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // An error is a fine answer; a panic, a hang or a broken promise is not.
    frames::exercise("q8k-", bytes, 256);
});
