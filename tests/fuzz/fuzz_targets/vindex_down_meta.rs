//! Can any bytes break the reader of the files of vindexes that tell what features write?
#![no_main]

#[path = "../../../skulk-core/tests/support/exercise.rs"]
#[allow(dead_code)] // The other targets use the rest.
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // An error is a fine answer; a panic, a hang or a broken promise is not.
    let _ = exercise::vindex_down_meta(bytes);
});
