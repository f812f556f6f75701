//! How does text become tokens, and tokens text?
//!
//! [`Tokenizer`] wraps the `tokenizers` crate, filled from a `tokenizer.json` or rebuilt from GGUF
//! metadata. [`Detokenizer`] and [`StopMatcher`] work on the stream of generated tokens.

mod added;
mod bpe;
mod byte_level;
mod charsmap;
mod control;
mod cut;
mod declared;
mod detokenizer;
mod export;
mod gguf;
mod growth;
mod hf;
mod parts;
mod pieces;
mod plain;
mod pre;
mod rules;
mod sentencepiece;
mod stop;
mod texts;
mod unigram;
mod vocabulary;
mod word_piece;

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use detokenizer::Detokenizer;
pub(crate) use plain::Piece;
pub use stop::StopMatcher;

use self::added::Control;
use self::pieces::Pieces;
use self::rules::Rules;
use self::vocabulary::Inner;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::{Checkpoint, Metadata};

/// A model's vocabulary and the rules that cut text into it. Immutable and `Send + Sync`: one
/// `Arc` serves every session.
///
/// ```no_run
/// let checkpoint = skulk::open_checkpoint("model.gguf")?;
/// let tokenizer = skulk::Tokenizer::from_checkpoint(&*checkpoint)?;
/// let ids = tokenizer.encode("Once upon a time", true)?;
/// assert_eq!(tokenizer.decode(&ids, true), "Once upon a time");
/// # Ok::<(), skulk::Error>(())
/// ```
pub struct Tokenizer {
    inner: Inner,
    rules: Route,
    pieces: Pieces,
    special: Special,
    vocab_size: usize,
    /// Ids whose text another id has too, to the one that `inner` knows.
    duplicates: HashMap<u32, u32>,
    /// Made when text is first cut in which special tokens are text.
    names: OnceLock<plain::Names>,
    /// Where its rules are.
    file: PathBuf,
}

/// How text comes to the model's merges.
enum Route {
    /// The crate's.
    Crate,
    Own(Rules),
}

/// The tokens with a role, and whether encoding adds them.
#[derive(Debug, Clone, Default)]
struct Special {
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    ends: Vec<TokenId>,
    add_bos: bool,
    add_eos: bool,
}

impl Tokenizer {
    /// The tokenizer of a checkpoint: `tokenizer.json` and its companions in a Hugging Face
    /// folder or a vindex, the `tokenizer.ggml` section in a GGUF file.
    ///
    /// # Errors
    /// [`ErrorKind::TokenizerInvalid`] when it is missing, broken, of a kind that is not
    /// supported, or lacks tokens it needs.
    pub fn from_checkpoint(checkpoint: &dyn Checkpoint) -> Result<Self> {
        Self::builder(checkpoint)()
    }

    /// What builds the same, on any thread and when the checkpoint is gone.
    pub(crate) fn builder(checkpoint: &dyn Checkpoint) -> Box<dyn FnOnce() -> Result<Self> + Send> {
        let (metadata, file) = match checkpoint.metadata() {
            Metadata::Gguf(metadata) => {
                let metadata = metadata.clone();
                return Box::new(move || gguf::load(&metadata));
            }
            Metadata::HuggingFace(metadata) => (metadata.clone(), "config.json"),
            Metadata::Vindex(metadata) => (metadata.configuration().clone(), "index.json"),
        };
        Box::new(move || hf::load(&metadata, file))
    }

    /// The tokens of `text`. Control tokens spelt out in it, such as `<|eot_id|>`, become those
    /// tokens; [`encode_text`](Self::encode_text) leaves them text. With `add_special`, the model's rules add a beginning-of-sequence or an
    /// end-of-sequence token, never a second one beside one that is already there.
    ///
    /// # Errors
    /// [`ErrorKind::TokenizerInvalid`] when the tokenizer's own rules fail on the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<TokenId>> {
        let mut ids: Vec<TokenId> = match &self.rules {
            Route::Crate => {
                let encoding = caught(|| self.inner.encode_fast(text, add_special));
                let encoding = encoding.map_err(|e| failed(e, &self.file))?;
                encoding.get_ids().iter().copied().map(TokenId).collect()
            }
            Route::Own(rules) => self.by_rules(rules, text, Control::Found)?,
        };
        if add_special {
            self.add_special(&mut ids);
        }
        Ok(ids)
    }

    fn add_special(&self, ids: &mut Vec<TokenId>) {
        let Special { bos, eos, .. } = self.special;
        if let Some(bos) = bos {
            if self.special.add_bos && ids.first() != Some(&bos) {
                ids.insert(0, bos);
            }
            let doubled = ids.iter().take_while(|&&id| id == bos).count();
            ids.drain(1.min(doubled)..doubled);
        }
        if let Some(eos) = eos
            && self.special.add_eos
            && ids.last() != Some(&eos)
        {
            ids.push(eos);
        }
    }

    /// The text of `ids`; bytes that are no UTF-8 become U+FFFD, ids outside the vocabulary
    /// nothing. Control tokens are left out with `skip_special`, spelt out without.
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> String {
        let mut bytes = Vec::new();
        let mut first = true;
        for &id in ids {
            first &= !self.append_piece(id, skip_special, first, &mut bytes);
        }
        let spaces = bytes.iter().take_while(|&&byte| byte == b' ').count();
        let start = spaces.min(self.strip_spaces());
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }

    /// The beginning-of-sequence token, if the model has one.
    pub fn bos(&self) -> Option<TokenId> {
        self.special.bos
    }

    /// The tokens that end a generation: end of sequence, of turn, of message.
    pub fn eos_ids(&self) -> &[TokenId] {
        &self.special.ends
    }

    /// One past the highest token id. The embedding may have more rows, never fewer.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// How the vocabulary spells a token, e.g. `▁the` or `<0x0A>`; `None` outside of it.
    pub fn token_text(&self, id: TokenId) -> Option<String> {
        self.inner.id_to_token(self.known(id))
    }

    /// Whether it is a control token: markup for the model, not text for a reader.
    pub fn is_special(&self, id: TokenId) -> bool {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        added.get(&self.known(id)).is_some_and(|token| token.special)
    }

    /// Whether the text is that of a control token.
    pub(crate) fn is_special_text(&self, text: &str) -> bool {
        self.inner.token_to_id(text).is_some_and(|id| self.is_special(TokenId(id)))
    }

    fn is_added(&self, id: TokenId) -> bool {
        self.inner.get_added_vocabulary().get_added_tokens_decoder().contains_key(&self.known(id))
    }

    fn known(&self, id: TokenId) -> u32 {
        self.duplicates.get(&id.0).copied().unwrap_or(id.0)
    }

    /// Appends the bytes of a token, `first` of a text; whether it is one that counts.
    pub(crate) fn append_piece(
        &self,
        id: TokenId,
        skip_special: bool,
        first: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        if skip_special && self.is_special(id) {
            return false;
        }
        let Some(token) = self.token_text(id) else { return false };
        // The crate's decoders know no difference, files of llama.cpp do: added tokens are spelt as text.
        if matches!(self.rules, Route::Own(_)) && self.is_added(id) {
            out.extend_from_slice(token.as_bytes());
        } else {
            self.pieces.append(&token, first, out);
        }
        true
    }

    fn strip_spaces(&self) -> usize {
        self.pieces.strip_spaces()
    }
}

/// What the `tokenizers` crate does, which panics over some files that it should refuse.
fn caught<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("the tokenizers crate panicked".into()))
}

fn failed(e: tokenizers::Error, file: &Path) -> Error {
    Error::new(ErrorKind::TokenizerInvalid, "the tokenizer failed on a text")
        .with("file", file.display())
        .with_source(e)
        .with_hint("the tokenizer's rules are inconsistent: fetch the checkpoint again")
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size)
            .field("special", &self.special)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tokenizer_serves_all_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Tokenizer>();
        shared::<Detokenizer>();
        shared::<StopMatcher>();
    }
}
