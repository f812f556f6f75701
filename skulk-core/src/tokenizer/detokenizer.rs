//! Which text does the next token add?

use std::fmt;
use std::sync::Arc;

use super::Tokenizer;
use crate::ids::TokenId;

/// Turns tokens into text one at a time, never emitting half a character.
///
/// Bytes of a character that is not complete yet are held back, at most three of them, so each
/// token costs its own length and nothing of the history. All that [`push`](Self::push) and
/// [`flush`](Self::flush) return, joined, is what [`Tokenizer::decode`] makes of all the tokens,
/// except that text after a prompt continues it: `Once upon a` + ` time` keeps its space.
#[derive(Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    strip_spaces: usize,
    /// Whether no token came yet.
    first: bool,
    held: Vec<u8>,
    text: String,
}

impl Detokenizer {
    /// A detokenizer for the tokens that follow `prompt` (its last tokens suffice; empty for a
    /// text of its own). Control tokens add no text with `skip_special`.
    pub fn new(tokenizer: Arc<Tokenizer>, prompt: &[TokenId], skip_special: bool) -> Self {
        let mut detokenizer = Self {
            strip_spaces: tokenizer.strip_spaces(),
            tokenizer,
            skip_special,
            first: true,
            held: Vec::new(),
            text: String::new(),
        };
        for &id in prompt {
            // Once the prompt has any text, no leading space is left to strip.
            if detokenizer.strip_spaces == 0 && !detokenizer.first {
                break;
            }
            detokenizer.push(id);
        }
        detokenizer.held.clear();
        detokenizer
    }

    /// Whether a space that comes next is left out.
    #[cfg(feature = "grammar")]
    pub(crate) fn drops_space(&self) -> bool {
        self.strip_spaces > 0 || self.first && self.tokenizer.pieces.first_differs()
    }

    /// Takes the next token and returns the text it completes, possibly none. A token that is
    /// not in the vocabulary adds nothing.
    pub fn push(&mut self, id: TokenId) -> &str {
        self.text.clear();
        let counts = self.tokenizer.append_piece(id, self.skip_special, self.first, &mut self.held);
        self.first &= !counts;
        while self.strip_spaces > 0 && !self.held.is_empty() {
            if self.held[0] == b' ' {
                self.held.remove(0);
                self.strip_spaces -= 1;
            } else {
                self.strip_spaces = 0;
            }
        }
        let mut incomplete = 0;
        let mut chunks = self.held.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.text.push_str(chunk.valid());
            let broken = chunk.invalid();
            if chunks.peek().is_none() && is_beginning(broken) {
                incomplete = broken.len();
            } else if !broken.is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.held.drain(..self.held.len() - incomplete);
        &self.text
    }

    /// Ends the text: what is left of an incomplete character becomes U+FFFD.
    pub fn flush(&mut self) -> &str {
        self.text.clear();
        if !self.held.is_empty() {
            self.held.clear();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        &self.text
    }
}

/// Whether more bytes could make a character of these.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

impl fmt::Debug for Detokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detokenizer")
            .field("skip_special", &self.skip_special)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}
