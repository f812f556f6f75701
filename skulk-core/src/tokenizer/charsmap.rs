//! Which characters does a SentencePiece model replace before it looks at text?
//!
//! The map in its `precompiled_charsmap`: the length of a double-array trie in bytes, the trie, and the replacements,
//! each ended by a zero byte. A node of the trie has in bits 0 to 7 and 31 the byte that leads there, in bit 8 whether
//! a key ends there, and in bits 9 to 30 where its children are; of a key's end, bits 0 to 30 are the replacement's
//! offset.

use super::parts::invalid;
use crate::error::{Error, Result};

#[derive(Debug)]
pub(super) struct Charsmap {
    trie: Vec<u32>,
    /// Ends with a zero.
    replacements: String,
}

impl Charsmap {
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let (len, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| broken())?;
        let (trie, replacements) = rest.split_at_checked(len).ok_or_else(broken)?;
        let (units, odd) = trie.as_chunks();
        let replacements = std::str::from_utf8(replacements).map_err(|e| broken().with_source(e))?;
        if units.is_empty() || !odd.is_empty() || !replacements.ends_with('\0') {
            return Err(broken());
        }
        let trie = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Self { trie, replacements: replacements.to_owned() })
    }

    /// What the longest key that `text` begins with becomes, and the key's length.
    pub(super) fn longest(&self, text: &str) -> tokenizers::Result<Option<(&str, usize)>> {
        let node = |at: usize| self.trie.get(at).copied().ok_or("the character map points outside of itself");
        let children = |node: u32| ((node >> 10) << ((node & (1 << 9)) >> 6)) as usize;
        let mut longest = None;
        let mut at = children(node(0)?);
        for (index, byte) in text.bytes().enumerate().take_while(|(_, byte)| *byte != 0) {
            at ^= usize::from(byte);
            let here = node(at)?;
            if here & ((1 << 31) | 0xff) != u32::from(byte) {
                break;
            }
            at ^= children(here);
            if here & (1 << 8) != 0 {
                longest = Some((node(at)? & !(1 << 31), index + 1));
            }
        }
        let Some((offset, len)) = longest else { return Ok(None) };
        let replacement = self.replacements.get(offset as usize..).and_then(|rest| rest.split('\0').next());
        match replacement {
            Some(replacement)
                if text.is_char_boundary(len) && (offset as usize) < self.replacements.len() =>
            {
                Ok(Some((replacement, len)))
            }
            _ => Err("the character map replaces something by what it does not have".into()),
        }
    }
}

pub(super) fn broken() -> Error {
    invalid("tokenizer.ggml.precompiled_charsmap", "expected SentencePiece's map of characters")
        .with_hint("the file's metadata is damaged: fetch it again")
}
