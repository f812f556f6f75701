//! What are the tokens of text in which the texts of special tokens are text?
//!
//! Special tokens have other names here, which no text has: a vocabulary of added tokens with these names stands in for
//! the tokenizer's own. Where a special token is meant its name is written, so that nothing else can become one,
//! whatever the tokenizer's rules do to text.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{AddedToken, AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizer, Token};

use super::{Tokenizer, caught};
use crate::error::{Error, ErrorKind, Result};
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
    /// The tokens of `text`, in which texts of special tokens such as `<|eot_id|>` are text like any other. Added tokens
    /// that are not special stay tokens.
    ///
    /// # Errors
    /// - [`ErrorKind::TokenizerInvalid`] when the tokenizer's own rules fail on the text.
    /// - [`ErrorKind::InvalidArgument`] when it has each of Unicode's noncharacters U+FDD0 to U+FDEF.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<TokenId>> {
        self.encode_pieces(&[Piece::Plain(text)])
    }

    /// The tokens of one text, of which some pieces are markup and others are not.
    pub(crate) fn encode_pieces(&self, pieces: &[Piece<'_>]) -> Result<Vec<TokenId>> {
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
            let mut cut = names.vocabulary.extract_and_normalize(self.inner.get_normalizer(), &text);
            if let Some(rules) = self.inner.get_pre_tokenizer() {
                rules.pre_tokenize(&mut cut)?;
            }
            self.inner.get_model().tokenize_in_pretokenized(&mut cut, None)?;
            let encoding = cut.into_encoding(None, 0, OffsetType::None)?;
            Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
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
        result.map_err(|e| {
            Error::new(ErrorKind::TokenizerInvalid, "the tokenizer failed on a text")
                .with_source(e)
                .with_hint("the tokenizer's rules are inconsistent: fetch the checkpoint again")
        })
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
    fn is_guarded(&self, id: TokenId) -> bool {
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
