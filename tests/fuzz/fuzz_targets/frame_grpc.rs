//! Can any bytes break the reader of gRPC's messages of experts?
#![no_main]

#[path = "../../../skulk-core/tests/support/frames.rs"]
#[allow(dead_code)] // The tests use the rest.
mod frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // An error is a fine answer; a panic, a hang or a broken promise is not.
    frames::exercise_messages(bytes, 4);
});
