//! Which bytes does a token stand for?
//!
//! Text is the concatenation of its tokens' bytes, read as UTF-8 with U+FFFD for what is broken.
//! That makes decoding a token at a time and decoding all at once the same thing. It agrees with
//! the `tokenizers` decoders except for broken runs of byte tokens (`<0xE4><0x41>`), where those
//! replace the whole run and this, like llama.cpp, only the broken part.

use std::borrow::Cow;

use serde_json::Value;
use tokenizers::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::normalizers::Replace;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::growth;
use crate::error::{Error, ErrorKind, Result};

/// How a vocabulary spells bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    byte_level: bool,
    byte_fallback: bool,
    fused: bool,
    /// What pieces that continue a word begin with; others then have a space in front, but for the first.
    word_piece: Option<String>,
    replace: Vec<(String, String)>,
    strip_spaces: usize,
    /// Whether the first token has no spaces at all: what stands for one is left out.
    bare: Option<String>,
}

/// What BERT's detokenizer joins again.
const CLEANUP: [(&str, &str); 11] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

impl Pieces {
    /// GPT-2's byte alphabet.
    pub(super) fn byte_level() -> Self {
        Self { byte_level: true, ..Self::default() }
    }

    /// SentencePiece: U+2581 for a space, `<0xNN>` for a byte, and possibly one leading space
    /// that encoding put there.
    pub(super) fn sentencepiece(space_prefix: bool) -> Self {
        Self {
            byte_fallback: true,
            fused: true,
            replace: vec![("▁".to_owned(), " ".to_owned())],
            strip_spaces: usize::from(space_prefix),
            ..Self::default()
        }
    }

    /// Text as it is, and `<0xNN>` for a byte.
    pub(super) fn text() -> Self {
        Self { byte_fallback: true, fused: true, ..Self::default() }
    }

    /// WordPiece as llama.cpp's files spell it: U+2581 in front of words.
    pub(super) fn word_piece() -> Self {
        let mut pieces = Self { byte_fallback: false, ..Self::sentencepiece(true) };
        pieces.clean_up();
        pieces
    }

    fn clean_up(&mut self) {
        self.replace.extend(CLEANUP.map(|(from, to)| (from.to_owned(), to.to_owned())));
    }

    /// The `decoder` section of a `tokenizer.json`.
    pub(super) fn from_decoder(decoder: &Value) -> Result<Self> {
        let mut pieces = Self::default();
        pieces.add(decoder)?;
        growth::check_replaced("decoder", &pieces.replace)?;
        Ok(pieces)
    }

    /// The other way about, for the kinds that GGUF files have.
    pub(super) fn decoder(&self) -> Result<DecoderWrapper> {
        if self.byte_level {
            return Ok(ByteLevel::default().into());
        }
        let mut decoders: Vec<DecoderWrapper> = Vec::new();
        for (from, to) in &self.replace {
            let replace = Replace::new(from.clone(), to.clone());
            decoders.push(replace.map_err(|e| broken().with_source(e))?.into());
        }
        if self.byte_fallback {
            decoders.push(ByteFallback::new().into());
        }
        if self.fused {
            decoders.push(Fuse::new().into());
        }
        if self.strip_spaces > 0 {
            decoders.push(Strip::new(' ', self.strip_spaces, 0).into());
        }
        Ok(Sequence::new(decoders).into())
    }

    fn add(&mut self, decoder: &Value) -> Result<()> {
        let text = |key: &str| decoder.get(key).and_then(Value::as_str);
        let number = |key: &str| decoder.get(key).and_then(Value::as_u64);
        match text("type") {
            Some("Sequence") => {
                for decoder in decoder["decoders"].as_array().into_iter().flatten() {
                    self.add(decoder)?;
                }
            }
            Some("ByteLevel") => self.byte_level = true,
            Some("ByteFallback") => self.byte_fallback = true,
            Some("Fuse") => self.fused = true,
            Some("Replace") if !self.fused => {
                match (decoder["pattern"]["String"].as_str(), text("content")) {
                    (Some(from), Some(to)) => self.replace.push((from.to_owned(), to.to_owned())),
                    _ => return Err(unsupported(decoder)),
                }
            }
            Some("Strip") if self.fused && text("content") == Some(" ") && number("stop") == Some(0) => {
                let spaces = number("start").and_then(|n| usize::try_from(n).ok());
                self.strip_spaces = spaces.ok_or_else(|| unsupported(decoder))?;
            }
            Some("Metaspace") if !self.fused => {
                let space = text("replacement").ok_or_else(|| unsupported(decoder))?;
                self.replace.push((space.to_owned(), " ".to_owned()));
                self.bare = (text("prepend_scheme") != Some("never")).then(|| space.to_owned());
            }
            Some("WordPiece") if *self == Self::default() => {
                self.word_piece = Some(text("prefix").ok_or_else(|| unsupported(decoder))?.to_owned());
                if decoder.get("cleanup").and_then(Value::as_bool) == Some(true) {
                    self.clean_up();
                }
            }
            _ => return Err(unsupported(decoder)),
        }
        Ok(())
    }

    /// How many spaces at the very beginning of a text are not part of it.
    pub(super) fn strip_spaces(&self) -> usize {
        self.strip_spaces
    }

    /// Whether the first token of a text is spelt without the space that it has elsewhere.
    #[cfg(feature = "grammar")]
    pub(super) fn first_differs(&self) -> bool {
        self.word_piece.is_some() || self.bare.is_some()
    }

    /// Appends the bytes of the token spelt `token`, which is the `first` of a text or not.
    pub(super) fn append(&self, token: &str, first: bool, out: &mut Vec<u8>) {
        if self.byte_level {
            let start = out.len();
            for char in token.chars() {
                let Some(byte) = gpt2_byte(char) else {
                    // Added tokens are spelt in plain text, not in the byte alphabet.
                    out.truncate(start);
                    out.extend_from_slice(token.as_bytes());
                    return;
                };
                out.push(byte);
            }
            return;
        }
        if let Some(byte) = self.byte_fallback.then(|| byte_token(token)).flatten() {
            out.push(byte);
            return;
        }
        let mut text = Cow::Borrowed(token);
        match (&self.word_piece, &self.bare) {
            (Some(prefix), _) if !first => match token.strip_prefix(prefix.as_str()) {
                Some(rest) => text = Cow::Borrowed(rest),
                None => text = Cow::Owned(format!(" {token}")),
            },
            (_, Some(space)) if first => text = Cow::Owned(token.replace(space.as_str(), "")),
            _ => {}
        }
        for (from, to) in &self.replace {
            if text.contains(from.as_str()) {
                text = Cow::Owned(text.replace(from.as_str(), to));
            }
        }
        out.extend_from_slice(text.as_bytes());
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::TokenizerInvalid, "the rules of decoding are inconsistent")
        .with_hint("the file's metadata is damaged: fetch it again")
}

fn unsupported(decoder: &Value) -> Error {
    Error::new(
        ErrorKind::TokenizerInvalid,
        "expected a decoder made of ByteLevel, WordPiece, ByteFallback, Fuse, Metaspace, literal Replace and leading Strip",
    )
    .with("field", "decoder")
    .with("found", decoder)
    .with_hint("this kind of tokenizer is not supported: use a checkpoint with a BPE, SentencePiece, WordPiece or Unigram tokenizer")
}

/// The byte of a `<0xNN>` token.
fn byte_token(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let digits = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u8::from_str_radix(hex, 16).ok())?
}

/// The byte that a character of GPT-2's byte alphabet stands for: printable Latin-1 is itself, the
/// other 68 bytes follow from U+0100 on, in order (`bytes_to_unicode` of the GPT-2 release).
fn gpt2_byte(char: char) -> Option<u8> {
    let code = u32::from(char);
    let byte = match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The character of GPT-2's byte alphabet that stands for a byte.
pub(super) fn gpt2_char(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0..=0x20 => code + 0x100,
        0x7f..=0xa0 => code - 0x7f + 0x121,
        0xad => 0x143,
    };
    char::from_u32(code).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn bytes(pieces: &Pieces, token: &str) -> Vec<u8> {
        let mut out = Vec::new();
        pieces.append(token, false, &mut out);
        out
    }

    #[test]
    fn the_byte_alphabet_is_a_bijection() {
        let bytes: BTreeSet<u8> =
            ByteLevel::alphabet().into_iter().map(|char| gpt2_byte(char).unwrap()).collect();
        assert_eq!(bytes.len(), 256);
        assert!((0..=u8::MAX).all(|byte| gpt2_byte(gpt2_char(byte)) == Some(byte)));
        assert_eq!(gpt2_byte('Ġ'), Some(b' '));
        assert_eq!(gpt2_byte('Ċ'), Some(b'\n'));
        assert_eq!(gpt2_byte('▁'), None);
    }

    #[test]
    fn tokens_become_bytes() {
        let level = Pieces::byte_level();
        assert_eq!(bytes(&level, "ĠaÃ¼"), " aü".as_bytes());
        assert_eq!(bytes(&level, "<｜x▁y｜>"), "<｜x▁y｜>".as_bytes());
        let spm = Pieces::sentencepiece(true);
        assert_eq!(bytes(&spm, "▁▁time"), b"  time");
        assert_eq!(bytes(&spm, "<0xE4>"), [0xe4]);
        assert_eq!(bytes(&spm, "<0x+4>"), b"<0x+4>");
        assert_eq!(spm.strip_spaces(), 1);
    }

    #[test]
    fn reads_the_decoders_of_tokenizer_json() {
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        assert_eq!(Pieces::from_decoder(&decoder).unwrap(), Pieces::sentencepiece(true));
        let decoder = json!({"type": "ByteLevel", "trim_offsets": true});
        assert_eq!(Pieces::from_decoder(&decoder).unwrap(), Pieces::byte_level());
        for pieces in [Pieces::byte_level(), Pieces::sentencepiece(true), Pieces::sentencepiece(false)] {
            let decoder = serde_json::to_value(pieces.decoder().unwrap()).unwrap();
            assert_eq!(Pieces::from_decoder(&decoder).unwrap(), pieces);
        }
        for bad in [json!(null), json!({"type": "CTC"}), json!({"type": "Strip", "content": "x"})] {
            let error = Pieces::from_decoder(&bad).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::TokenizerInvalid);
        }
    }
}
