//! How does text become tokens when what it says must stay text?
//!
//! What a user writes may spell out control tokens. Encoded as text, it cannot end a turn or begin one.

use tokenizers::{AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizer, Token};

use super::rules::Rules;
use super::{Route, Tokenizer, caught, failed};
use crate::error::Result;
use crate::ids::TokenId;

impl Tokenizer {
    /// The tokens of `text`, in which control tokens spelt out, such as `<|eot_id|>`, stay text. Other
    /// added tokens are found as always. Nothing is put in front or behind.
    ///
    /// # Errors
    /// [`ErrorKind::TokenizerInvalid`](crate::ErrorKind::TokenizerInvalid) when the tokenizer's own rules fail on the
    /// text.
    pub fn encode_text(&self, text: &str) -> Result<Vec<TokenId>> {
        caught(|| match &self.rules {
            Route::Crate(plain) => self.by_crate(plain, text),
            Route::Own(rules) => self.by_rules(rules, text, false),
        })
        .map_err(failed)
    }

    pub(super) fn by_rules(
        &self,
        rules: &Rules,
        text: &str,
        control: bool,
    ) -> tokenizers::Result<Vec<TokenId>> {
        let is_control = |id| self.is_special(TokenId(id));
        let ids = rules.encode(self.inner.get_model(), text, control, is_control)?;
        Ok(ids.into_iter().map(TokenId).collect())
    }

    fn by_crate(&self, plain: &AddedVocabulary, text: &str) -> tokenizers::Result<Vec<TokenId>> {
        let mut words = plain.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(rules) = self.inner.get_pre_tokenizer() {
            rules.pre_tokenize(&mut words)?;
        }
        let model = self.inner.get_model();
        words.tokenize(|word| {
            let tokens = model.tokenize(word.get())?;
            apart(model, word.get(), tokens, &|id| self.is_special(TokenId(id)))
        })?;
        let words = words.get_splits(OffsetReferential::Original, OffsetType::None);
        let tokens = words.iter().flat_map(|(.., tokens)| tokens.iter().flatten());
        Ok(tokens.map(|token| TokenId(token.id)).collect())
    }
}

/// The tokens of a word. Some vocabularies lead to control tokens by merging, too: these are taken apart.
pub(super) fn apart(
    model: &impl Model,
    word: &str,
    tokens: Vec<Token>,
    is_control: &impl Fn(u32) -> bool,
) -> tokenizers::Result<Vec<Token>> {
    // Not so unknown tokens, which do not spell what they stand for.
    let forged = |token: &Token| {
        let (from, to) = token.offsets;
        word.get(from..to) == Some(&token.value) && is_control(token.id)
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

/// The tokens of `vocabulary`, of which control tokens are not found.
pub(super) fn without_control(vocabulary: &AddedVocabulary) -> AddedVocabulary {
    let mut plain = vocabulary.clone();
    plain.set_encode_special_tokens(true);
    plain
}
