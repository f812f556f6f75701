//! How does text become tokens when what it says must stay text?
//!
//! What a user writes may spell out control tokens. Encoded as text, it cannot end a turn or begin one.

use tokenizers::{AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizer, Token};

use super::{Tokenizer, caught, failed};
use crate::error::Result;
use crate::ids::TokenId;

impl Tokenizer {
    /// The tokens of `text`, in which control tokens spelt out, such as `<|eot_id|>`, stay text. Other
    /// [added](https://huggingface.co/docs/tokenizers/api/added-tokens) tokens are found as always. Nothing is put in
    /// front or behind.
    ///
    /// # Errors
    /// [`ErrorKind::TokenizerInvalid`](crate::ErrorKind::TokenizerInvalid) when the tokenizer's own rules fail on the
    /// text.
    pub fn encode_text(&self, text: &str) -> Result<Vec<TokenId>> {
        caught(|| self.without_control(text)).map_err(failed)
    }

    fn without_control(&self, text: &str) -> tokenizers::Result<Vec<TokenId>> {
        let mut words = self.plain.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(rules) = self.inner.get_pre_tokenizer() {
            rules.pre_tokenize(&mut words)?;
        }
        words.tokenize(|word| self.as_text(word.get()))?;
        let words = words.get_splits(OffsetReferential::Original, OffsetType::None);
        let tokens = words.iter().flat_map(|(.., tokens)| tokens.iter().flatten());
        Ok(tokens.map(|token| TokenId(token.id)).collect())
    }

    /// The tokens of a word. Some vocabularies lead to control tokens by merging, too: these are taken apart.
    fn as_text(&self, word: &str) -> tokenizers::Result<Vec<Token>> {
        let model = self.inner.get_model();
        let tokens = model.tokenize(word)?;
        let forged = |token: &Token| {
            let (from, to) = token.offsets;
            word.get(from..to) == Some(&token.value) && self.is_special(TokenId(token.id))
        };
        if !tokens.iter().any(forged) {
            return Ok(tokens);
        }
        let mut apart = Vec::new();
        for token in tokens {
            if forged(&token) {
                for char in token.value.chars() {
                    apart.extend(model.tokenize(char.encode_utf8(&mut [0; 4]))?);
                }
            } else {
                apart.push(token);
            }
        }
        Ok(apart)
    }
}

/// The tokens of `vocabulary` that stay when control tokens are text.
pub(super) fn without_control(vocabulary: &AddedVocabulary) -> AddedVocabulary {
    let mut plain = vocabulary.clone();
    plain.set_encode_special_tokens(true);
    plain
}
