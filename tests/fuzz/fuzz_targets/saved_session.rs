//! Can any bytes break the reader of saved sessions?
#![no_main]

use sha2::{Digest, Sha256};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // With the hash that belongs to them, or nothing else would be read.
    let mut sealed = bytes.to_vec();
    sealed.extend(Sha256::digest(bytes));
    // An error is a fine answer; a panic, a hang or a broken promise is not.
    if let Ok(saved) = skulk::SavedSession::parse(&sealed) {
        assert!(saved.tokens().len() <= bytes.len());
    }
});
