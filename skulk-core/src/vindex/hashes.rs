//! Which SHA-256 has each file, and each 16 MiB of it? `skulk_hashes.json`, beside LARQL's checksums of whole files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::HASHES;
use super::invalid;
use crate::error::{ErrorKind, Result};
use crate::weights::safetensors::{leads_out, read_bytes};

/// Bytes that have a hash of their own, so that damage can be told apart from what is whole.
pub(crate) const CHUNK: u64 = 16 << 20;
/// The only algorithm of this version.
const ALGORITHM: &str = "sha256";
/// Digits of a hash.
const DIGITS: usize = 64;

/// The contents of `skulk_hashes.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hashes {
    algorithm: String,
    chunk_bytes: u64,
    /// By path in the folder, with `/` between its parts.
    pub(crate) files: BTreeMap<String, FileHashes>,
}

/// Hashes of one file, in lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileHashes {
    /// Length of the file.
    pub(crate) bytes: u64,
    /// SHA-256 of the whole file.
    pub(crate) sha256: String,
    /// SHA-256 of every [`CHUNK`] bytes, of which the last may be fewer; none for an empty file.
    pub(crate) chunks: Vec<String>,
}

impl Hashes {
    /// Those of some files, by path in the folder.
    pub(crate) fn new(files: BTreeMap<String, FileHashes>) -> Self {
        Self { algorithm: ALGORITHM.to_owned(), chunk_bytes: CHUNK, files }
    }

    /// Reads the folder's `skulk_hashes.json`; `None` where there is none.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and [`ErrorKind::FileIo`].
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(HASHES);
        match read_bytes(&path, ErrorKind::CheckpointInvalid)? {
            Some(text) => Self::parse(&text, &path).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the text of a `skulk_hashes.json`. The `path` only serves messages.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointInvalid`] when it is none, is of another algorithm, names files outside the folder, or
    /// has hashes that are none or not as many as the file's length takes.
    pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let hashes: Self = serde_json::from_slice(text).map_err(|e| {
            invalid("expected the hashes of files, with bytes, sha256 and chunks", path).with_source(e)
        })?;
        if hashes.algorithm != ALGORITHM || hashes.chunk_bytes != CHUNK {
            return Err(invalid(
                format!(
                    "expected {ALGORITHM} of every {CHUNK} bytes, found `{}` of {}",
                    hashes.algorithm, hashes.chunk_bytes
                ),
                path,
            ));
        }
        for (name, file) in &hashes.files {
            if let Some(message) = wrong_name(name).or_else(|| file.fault()) {
                return Err(invalid(message, path).with("name", name));
            }
        }
        Ok(hashes)
    }

    /// The text of a `skulk_hashes.json`.
    pub(crate) fn to_json(&self) -> String {
        // Strings, numbers and maps by strings always serialise.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl FileHashes {
    /// Those of a file of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut hasher = FileHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// What is wrong in itself, without a look at the file.
    fn fault(&self) -> Option<String> {
        let is_hash = |text: &String| {
            text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let chunks = self.bytes.div_ceil(CHUNK);
        if self.chunks.len() as u64 != chunks {
            return Some(format!(
                "expected {chunks} hashes of {} bytes, found {}",
                self.bytes,
                self.chunks.len()
            ));
        }
        if let Some(found) = std::iter::once(&self.sha256).chain(&self.chunks).find(|text| !is_hash(text)) {
            return Some(format!("expected {DIGITS} hexadecimal digits, found {found:.80?}"));
        }
        let is_one = |chunk: &String| *chunk == self.sha256;
        match &self.chunks[..] {
            [only] if !is_one(only) => Some("expected one hash of a file of one chunk, found two".to_owned()),
            _ => None,
        }
    }
}

/// What is wrong with a name that is no path in the folder.
fn wrong_name(name: &str) -> Option<String> {
    leads_out(name).then(|| format!("expected files inside the folder, found the path {name:.200?}"))
}

/// Hashes a file, of which it is given one piece after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileHasher {
    bytes: u64,
    whole: Sha256,
    /// The chunk that has begun, from the second on: the first one's hash is the whole's so far.
    chunk: Sha256,
    chunks: Vec<String>,
}

impl FileHasher {
    /// A hasher of an empty file.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The file's next bytes.
    pub(crate) fn update(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let left = CHUNK - self.bytes % CHUNK;
            let (now, rest) = piece.split_at(piece.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            self.whole.update(now);
            if self.bytes >= CHUNK {
                self.chunk.update(now);
            }
            self.bytes += now.len() as u64;
            if self.bytes.is_multiple_of(CHUNK) {
                self.end_chunk();
            }
            piece = rest;
        }
    }

    /// Hashes of all bytes that were given.
    pub(crate) fn finish(mut self) -> FileHashes {
        if !self.bytes.is_multiple_of(CHUNK) {
            self.end_chunk();
        }
        FileHashes { bytes: self.bytes, sha256: hex(self.whole), chunks: self.chunks }
    }

    fn end_chunk(&mut self) {
        let chunk = match self.chunks.is_empty() {
            true => self.whole.clone(),
            false => std::mem::take(&mut self.chunk),
        };
        self.chunks.push(hex(chunk));
    }
}

/// The hash of what `hasher` was given, in hexadecimal digits.
pub(crate) fn hex(hasher: Sha256) -> String {
    let mut text = String::with_capacity(DIGITS);
    for byte in hasher.finalize() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From FIPS 180-4's examples.
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn hashed(pieces: &[&[u8]]) -> FileHashes {
        let mut hasher = FileHasher::new();
        pieces.iter().for_each(|piece| hasher.update(piece));
        hasher.finish()
    }

    #[test]
    fn hashes_are_those_of_the_standard() {
        assert_eq!(hashed(&[]), FileHashes { bytes: 0, sha256: EMPTY.into(), chunks: vec![] });
        assert_eq!(
            hashed(&[b"a", b"", b"bc"]),
            FileHashes { bytes: 3, sha256: ABC.into(), chunks: vec![ABC.into()] }
        );
    }

    #[test]
    fn chunks_do_not_depend_on_the_pieces() {
        let bytes: Vec<u8> = (0..2 * CHUNK + 5).map(|i| ((i * i) >> 7) as u8).collect();
        let at = CHUNK as usize;
        let one = |bytes: &[u8]| hex(Sha256::new_with_prefix(bytes));
        let expected = FileHashes {
            bytes: bytes.len() as u64,
            sha256: one(&bytes),
            chunks: vec![one(&bytes[..at]), one(&bytes[at..2 * at]), one(&bytes[2 * at..])],
        };
        let pieces = [&bytes[..at - 1], &bytes[at - 1..at], &bytes[at..at + 1], &bytes[at + 1..]];
        assert_eq!(hashed(&pieces), expected);
        // A file that ends with a chunk has none of no bytes behind it.
        assert_eq!(hashed(&[&bytes[..at]]).chunks, expected.chunks[..1]);
    }

    #[test]
    fn what_is_written_is_read() {
        let names = ["empty", "layers/layer_00.weights"];
        let hashes =
            Hashes::new(names.map(str::to_owned).into_iter().zip([hashed(&[]), hashed(&[b"abc"])]).collect());
        let text = hashes.to_json();
        let read = Hashes::parse(text.as_bytes(), Path::new("h")).unwrap();
        assert_eq!(read, hashes);
        assert!(read.files.keys().eq(&names));
        assert_eq!(read.files["layers/layer_00.weights"].sha256, ABC);
    }

    #[test]
    fn what_breaks_the_format_is_refused() {
        let text = Hashes::new([("norms.bin".to_owned(), FileHashes::of(b"abc"))].into()).to_json();
        let other = ABC.replacen('b', "c", 1);
        for (from, to) in [
            ("sha256\",\"chunk", "md5\",\"chunk"),
            ("16777216", "4096"),
            ("norms.bin", "../norms.bin"),
            ("norms.bin", "/norms.bin"),
            ("norms.bin", ""),
            ("norms.bin", "a\\\\b"),
            ("\"bytes\":3", "\"bytes\":0"),
            ("\"bytes\":3", "\"bytes\":18446744073709551615"),
            ("\"bytes\":3", "\"bytes\":-1"),
            ("\"bytes\":3", "\"bytes\":3,\"more\":1"),
            (ABC, "ba78"),
            (ABC, &ABC.to_uppercase()),
            (&format!("\"{ABC}\"]"), &format!("\"{other}\"]")),
            ("}}}", "}}"),
        ] {
            let broken = text.replace(from, to);
            assert_ne!(broken, text, "{from}");
            let error = Hashes::parse(broken.as_bytes(), Path::new("h")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CheckpointInvalid, "{to}");
        }
    }
}
