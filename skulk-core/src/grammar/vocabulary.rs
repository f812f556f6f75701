//! What do a model's tokens spell, as grammars read them?

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::tokenizer::Tokenizer;

/// The tokens of a model by their bytes. Immutable: one serves all sessions.
pub(super) struct Vocabulary {
    pub(super) env: TokEnv,
    pub(super) slicer: Arc<SlicedBiasComputer>,
    pub(super) tokenizer: Arc<Tokenizer>,
}

/// Bytes of a token, at most: longer ones are never chosen where there is a constraint.
const MOST_BYTES: usize = 512;
/// What tokens are sorted by, beside their bytes: those that may be anywhere within a JSON string.
const SLICES: [&str; 1] = [r#"[^"\\\x00-\x1F\x7F]+"#];

impl Vocabulary {
    pub(super) fn new(tokenizer: &Arc<Tokenizer>) -> Result<Self> {
        let words: Vec<Vec<u8>> =
            (0..tokenizer.vocab_size() as u32).map(|id| word(tokenizer, TokenId(id))).collect();
        // It panics over sizes that no vocabulary has.
        let made = catch_unwind(AssertUnwindSafe(|| sorted(tokenizer, &words)));
        made.unwrap_or_else(|_| Err("the tokens are too many or too long".to_owned())).map_err(|e| {
            Error::new(ErrorKind::TokenizerInvalid, format!("expected tokens that can be sorted: {e}"))
                .with_hint("generate without a constraint")
        })
    }

    pub(super) fn trie(&self) -> &TokTrie {
        self.env.tok_trie()
    }
}

fn sorted(tokenizer: &Arc<Tokenizer>, words: &[Vec<u8>]) -> std::result::Result<Vocabulary, String> {
    let ends: Vec<u32> = tokenizer.eos_ids().iter().map(|id| id.0).collect();
    let size = u32::try_from(words.len()).map_err(|e| e.to_string())?;
    let info = TokRxInfo::new(size, ends.first().copied().unwrap_or(INVALID_TOKEN));
    let mut trie = TokTrie::from(&info, words);
    if ends.iter().any(|end| *end >= size) {
        return Err("a token that ends texts is not among them".to_owned());
    }
    if ends.len() > 1 {
        trie = trie.with_eos_tokens(&ends);
    }
    let env: TokEnv = Arc::new(Env { tokenizer: Arc::clone(tokenizer), trie });
    let slices = SLICES.map(str::to_owned);
    let slicer = SlicedBiasComputer::new(&env, &slices).map_err(|e| e.to_string())?;
    Ok(Vocabulary { env, slicer: Arc::new(slicer), tokenizer: Arc::clone(tokenizer) })
}

/// What a token spells behind others; nothing where it can be no part of a text.
fn word(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    if tokenizer.is_guarded(id) {
        // By such names grammars may ask for special tokens. No text has them.
        let name = tokenizer.token_text(id).unwrap_or_default();
        let named = if name.starts_with('<') && name.ends_with('>') { name } else { format!("<{name}>") };
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], named.as_bytes()].concat();
    }
    let mut bytes = Vec::new();
    tokenizer.append_piece(id, false, false, &mut bytes);
    // The marker is no part of any text in UTF-8.
    if bytes.len() > MOST_BYTES || bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
        bytes.clear();
    }
    bytes
}

/// The tokenizer as `llguidance` asks for it.
struct Env {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        let text = std::str::from_utf8(bytes).ok();
        let ids = text.and_then(|text| self.tokenizer.encode_text(text).ok());
        match ids {
            Some(ids) => ids.into_iter().map(|id| id.0).collect(),
            None => self.trie.greedy_tokenize(bytes),
        }
    }
}
