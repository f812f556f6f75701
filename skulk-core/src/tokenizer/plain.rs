//! How does text become tokens when what it says must stay text?
//!
//! What a user writes may spell out special tokens. Encoded as text, it cannot end a turn or begin one. For the crate's
//! own rules special tokens have other names, which no text has: a vocabulary of added tokens with these names stands in
//! for the tokenizer's own. Where a special token is meant its name is written, so that nothing else can become one,
//! whatever the rules do to text.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{AddedToken, AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizer, Token};

use super::added::{self, Control};
use super::rules::Rules;
use super::vocabulary::Vocabulary;
use super::{Route, Tokenizer, caught, failed};
use crate::error::{Error, Result};
use crate::ids::TokenId;

/// What may stand around names: characters that Unicode keeps free for such use. Texts rarely have one, never all.
const MARKS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// The texts of special tokens, where they are whole, are these tokens.
    Markup(&'a str),
    /// They are text.
    Plain(&'a str),
}

/// The added tokens with other names for the special ones.
pub(super) struct Names {
    mark: char,
    vocabulary: AddedVocabulary,
}

impl Names {
    /// `mark` is in no text that is cut.
    fn new(tokenizer: &Tokenizer, mark: char) -> tokenizers::Result<Self> {
        let added = tokenizer.inner.get_added_vocabulary().get_added_tokens_decoder();
        let mut tokens: Vec<_> = added.iter().map(|(&id, token)| (id, token.clone())).collect();
        tokens.sort_by_key(|(id, _)| *id);
        for (id, token) in &mut tokens {
            if tokenizer.is_guarded(TokenId(*id)) {
                token.content = name(mark, *id);
            }
        }
        let ids = Ids(tokens.iter().map(|(id, token)| (token.content.clone(), *id)).collect());
        let tokens: Vec<AddedToken> = tokens.into_iter().map(|(_, token)| token).collect();
        let mut vocabulary = AddedVocabulary::new();
        vocabulary.add_tokens(tokens, &ids, tokenizer.inner.get_normalizer())?;
        Ok(Self { mark, vocabulary })
    }
}

fn name(mark: char, id: u32) -> String {
    format!("{mark}{id}{mark}")
}

impl Tokenizer {
    /// The tokens of `text`, in which special tokens spelt out, such as `<|eot_id|>`, stay text. Other
    /// added tokens are found as always. Nothing is put in front or behind.
    ///
    /// # Errors
    /// - [`ErrorKind::TokenizerInvalid`](crate::ErrorKind::TokenizerInvalid) when the tokenizer's own rules fail on the
    ///   text.
    /// - [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when it has each of Unicode's noncharacters
    ///   U+FDD0 to U+FDEF.
    pub fn encode_text(&self, text: &str) -> Result<Vec<TokenId>> {
        match &self.rules {
            Route::Crate => self.by_names(&[Piece::Plain(text)]),
            Route::Own(rules) => self.by_rules(rules, text, Control::Text),
        }
    }

    /// The tokens of one text, of which some pieces are markup and others are not.
    pub(crate) fn encode_pieces(&self, pieces: &[Piece<'_>]) -> Result<Vec<TokenId>> {
        let Route::Own(rules) = &self.rules else { return self.by_names(pieces) };
        let (mut text, mut markup): (_, Vec<Range<usize>>) = (String::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Plain(plain) => text.push_str(plain),
                Piece::Markup(own) => {
                    markup.push(text.len()..text.len() + own.len());
                    text.push_str(own);
                }
            }
        }
        self.by_rules(rules, &text, Control::Within(&markup))
    }

    pub(super) fn by_rules(&self, rules: &Rules, text: &str, control: Control<'_>) -> Result<Vec<TokenId>> {
        let guarded = |id| self.is_guarded(TokenId(id));
        let ids = caught(|| rules.encode(self.inner.get_model(), text, control, guarded));
        let ids = ids.map_err(|e| failed(e, &self.file))?;
        Ok(ids.into_iter().map(TokenId).collect())
    }

    fn by_names(&self, pieces: &[Piece<'_>]) -> Result<Vec<TokenId>> {
        let unused = |mark: char| {
            !pieces.iter().any(|piece| match piece {
                Piece::Markup(text) | Piece::Plain(text) => text.contains(mark),
            })
        };
        let mark = MARKS.into_iter().find(|&mark| unused(mark)).ok_or_else(|| {
            Error::argument("text", "expected a text without one of the noncharacters U+FDD0 to U+FDEF")
                .with_hint("take out what is no text")
        })?;
        self.with_names(mark, |names| {
            let mut text = String::new();
            for piece in pieces {
                match piece {
                    Piece::Plain(plain) => text.push_str(plain),
                    Piece::Markup(markup) => self.write_named(markup, names.mark, &mut text),
                }
            }
            let mut words = names.vocabulary.extract_and_normalize(self.inner.get_normalizer(), &text);
            if let Some(rules) = self.inner.get_pre_tokenizer() {
                rules.pre_tokenize(&mut words)?;
            }
            let model = self.inner.get_model();
            words.tokenize(|word| {
                let tokens = model.tokenize(word.get())?;
                apart(model, word.get(), tokens, &|id| self.is_guarded(TokenId(id)))
            })?;
            let words = words.get_splits(OffsetReferential::Original, OffsetType::None);
            let tokens = words.iter().flat_map(|(.., tokens)| tokens.iter().flatten());
            Ok(tokens.map(|token| TokenId(token.id)).collect())
        })
    }

    /// Does `work` with the names around which `mark` stands; those of the first are kept.
    fn with_names<T>(&self, mark: char, work: impl FnOnce(&Names) -> tokenizers::Result<T>) -> Result<T> {
        let result = caught(|| {
            if mark != *MARKS.start() {
                return work(&Names::new(self, mark)?);
            }
            if let Some(names) = self.names.get() {
                return work(names);
            }
            let made = Names::new(self, mark)?;
            work(self.names.get_or_init(|| made))
        });
        result.map_err(|e| failed(e, &self.file))
    }

    /// Appends `markup` with the special tokens in it by their names.
    fn write_named(&self, markup: &str, mark: char, out: &mut String) {
        let mut from = 0;
        for (id, start, end) in self.special_in(markup) {
            out.push_str(&markup[from..start]);
            out.push_str(&name(mark, id.0));
            from = end;
        }
        out.push_str(&markup[from..]);
    }

    /// The special tokens whose texts are in `text`, as encoding finds them, and where.
    pub(crate) fn special_in(&self, text: &str) -> Vec<(TokenId, usize, usize)> {
        if let Route::Own(rules) = &self.rules {
            let found = rules.added.split(text, Control::Found, |_| true).into_iter();
            let tokens = found.filter_map(|piece| match piece {
                added::Piece::Token(id, at) => Some((TokenId(id), at.start, at.end)),
                added::Piece::Text(..) => None,
            });
            return tokens.filter(|(id, ..)| self.is_guarded(*id)).collect();
        }
        let added = self.inner.get_added_vocabulary();
        let cut = added.extract_and_normalize(self.inner.get_normalizer(), text);
        let splits = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let found = splits.into_iter().filter_map(|(_, (start, end), tokens)| match tokens.as_deref() {
            Some([Token { id, .. }]) if self.is_guarded(TokenId(*id)) => Some((TokenId(*id), start, end)),
            _ => None,
        });
        found.collect()
    }

    /// The texts of all special tokens.
    pub(crate) fn special_texts(&self) -> impl Iterator<Item = &str> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        let special = added.iter().filter(|(id, _)| self.is_guarded(TokenId(**id)));
        special.map(|(_, token)| token.content.as_str())
    }

    /// What only markup can write: control tokens, and added ones that end a turn.
    pub(crate) fn is_guarded(&self, id: TokenId) -> bool {
        self.is_special(id) || self.special.ends.contains(&id)
    }
}

/// The ids of added tokens, as the model that [`AddedVocabulary`] asks for them.
struct Ids(HashMap<String, u32>);

impl Model for Ids {
    type Trainer = BpeTrainer;

    fn tokenize(&self, _: &str) -> tokenizers::Result<Vec<Token>> {
        Ok(Vec::new())
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.get(token).copied()
    }

    fn id_to_token(&self, _: u32) -> Option<String> {
        None
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.clone()
    }

    fn get_vocab_size(&self) -> usize {
        self.0.len()
    }

    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}

/// The tokens of a word. Some vocabularies lead to control tokens by merging, too: these are taken apart.
pub(super) fn apart(
    model: &Vocabulary,
    word: &str,
    tokens: Vec<Token>,
    is_control: &impl Fn(u32) -> bool,
) -> tokenizers::Result<Vec<Token>> {
    // Not so unknown tokens: they do not spell what they stand for, or have the text that they stand for. Where characters
    // became nothing, places are not the word's; then there are no unknown tokens, and those of bytes stand for fewer than they
    // have themselves.
    let forged = |token: &Token| {
        let (from, to) = token.offsets;
        let spelt = || word.get(from..to) == Some(&token.value);
        is_control(token.id)
            && (spelt() || model.drops() && to - from == token.value.len())
            && model.id_to_token(token.id).as_ref() == Some(&token.value)
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

#[cfg(test)]
mod tests {
    use tokenizers::models::unigram::Unigram;

    use super::*;

    /// Of characters that the vocabulary lacks, all that follow each other are one unknown token.
    #[test]
    fn unknown_tokens_are_not_taken_apart() {
        let vocabulary = [("<unk>", 0.0), ("a", -1.0), ("</s>", -1.0)];
        let vocabulary = vocabulary.map(|(text, score)| (text.to_owned(), score)).to_vec();
        let model = Vocabulary::from(Unigram::from(vocabulary, Some(0), false).unwrap());
        let ids = |word: &str| -> Vec<u32> {
            let tokens = model.tokenize(word).unwrap();
            let tokens = apart(&model, word, tokens, &|id| id != 1).unwrap();
            tokens.iter().map(|token| token.id).collect()
        };
        assert_eq!(ids("aéÿßa"), [1, 0, 1]);
        assert_eq!(ids("a</s>"), [1, 0, 0, 0, 0]);
    }
}
