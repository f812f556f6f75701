//! Which characters does a SentencePiece model replace before it looks at text?
//!
//! The map in its `precompiled_charsmap`: the length of a double-array trie in bytes, the trie, and the replacements,
//! each ended by a zero byte. A node of the trie has in bits 0 to 7 and 31 the byte that leads there, in bit 8 whether
//! a key ends there, and in bits 9 to 30 where its children are; of a key's end, bits 0 to 30 are the replacement's
//! offset.

use std::collections::VecDeque;

use super::growth;
use super::parts::invalid;
use crate::error::{Error, Result};

/// A node's byte.
const LABEL: u32 = 1 << 31 | 0xff;
/// Whether a key ends at a node.
const KEY: u32 = 1 << 8;

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
        let mut longest = None;
        let mut at = children(node(0)?);
        for (index, byte) in text.bytes().enumerate().take_while(|(_, byte)| *byte != 0) {
            at ^= usize::from(byte);
            let here = node(at)?;
            if here & LABEL != u32::from(byte) {
                break;
            }
            at ^= children(here);
            if here & KEY != 0 {
                longest = Some((node(at)?, index + 1));
            }
        }
        let Some((offset, len)) = longest else { return Ok(None) };
        match self.replacement(offset) {
            Some(replacement) if text.is_char_boundary(len) => Ok(Some((replacement, len))),
            _ => Err("the character map replaces something by what it does not have".into()),
        }
    }

    /// The replacement that a key's end leads to.
    fn replacement(&self, end: u32) -> Option<&str> {
        let rest = self.replacements.get((end & !(1 << 31)) as usize..)?;
        rest.split_once('\0').map(|(replacement, _)| replacement)
    }

    /// How many times as long as its key a replacement is at most, never less than 1. More than [`growth::MAX`] is not
    /// looked at further.
    pub(super) fn growth(&self) -> f64 {
        let mut most: f64 = 1.0;
        let mut seen = vec![false; self.trie.len()];
        // Nearest first: a node that is reached again ends a longer key.
        let mut nodes = VecDeque::from([(children(self.trie[0]), 1)]);
        while let Some((base, len)) = nodes.pop_front()
            && most <= growth::MAX
        {
            for byte in 1..=u8::MAX {
                let at = base ^ usize::from(byte);
                let Some(&here) = self.trie.get(at) else { continue };
                if here & LABEL != u32::from(byte) || std::mem::replace(&mut seen[at], true) {
                    continue;
                }
                let end = at ^ children(here);
                if here & KEY != 0 {
                    let replacement = self.trie.get(end).and_then(|&end| self.replacement(end));
                    most = most.max(replacement.map_or(0, str::len) as f64 / f64::from(len));
                }
                nodes.push_back((end, len + 1));
            }
        }
        most
    }
}

/// Where a node's children are.
fn children(node: u32) -> usize {
    ((node >> 10) << ((node & (1 << 9)) >> 6)) as usize
}

pub(super) fn broken() -> Error {
    invalid("tokenizer.ggml.precompiled_charsmap", "expected SentencePiece's map of characters")
        .with_hint("the file's metadata is damaged: fetch it again")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A map of one ASCII character.
    pub(in super::super) fn map(from: char, to: &str) -> Vec<u8> {
        let mut trie = vec![0_u32; 512];
        let at = from as usize;
        // Its end is 256 further.
        trie[at] = KEY | from as u32 | 256 << 10;
        let mut bytes = (trie.len() as u32 * 4).to_le_bytes().to_vec();
        bytes.extend(trie.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(to.bytes().chain([0]));
        bytes
    }

    #[test]
    fn growth_is_of_replacements() {
        for (to, growth) in [("", 1.0), ("b", 1.0), ("bcd", 3.0)] {
            let map = Charsmap::read(&map('a', to)).unwrap();
            assert_eq!(map.longest("ab").unwrap(), Some((to, 1)));
            assert_eq!(map.growth(), growth);
        }
    }
}
