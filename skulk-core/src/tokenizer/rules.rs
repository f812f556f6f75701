//! How is text encoded with the vocabulary of a GGUF file?

use tokenizers::Model;

use super::added::{Added, Control, Piece};
use super::cut::{Cut, words};
use super::pieces::gpt2_char;
use super::vocabulary::Vocabulary;
use super::{plain, unigram, word_piece};

/// What comes in front of the model's merges.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) added: Added,
    pub(super) words: Words,
}

/// What a kind of vocabulary does with text between added tokens.
#[derive(Debug)]
pub(super) enum Words {
    /// Words in GPT-2's byte alphabet.
    Bytes(Vec<Cut>),
    /// Words as they are, and U+2581 for spaces if `escaped`.
    Text {
        cuts: Vec<Cut>,
        escaped: bool,
        whole_lines: bool,
    },
    /// All of it as one word, U+2581 for spaces.
    SentencePiece {
        space_prefix: bool,
    },
    WordPiece(word_piece::Rules),
    Unigram(unigram::Normalizer),
}

impl Rules {
    /// The tokens of `text`, with those that are `guarded` only where `control` says.
    pub(super) fn encode(
        &self,
        model: &Vocabulary,
        text: &str,
        control: Control<'_>,
        guarded: impl Fn(u32) -> bool,
    ) -> tokenizers::Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut merge = |word: &str, ids: &mut Vec<u32>| {
            let tokens = model.tokenize(word)?;
            let tokens = match control {
                Control::Found => tokens,
                _ => plain::apart(model, word, tokens, &guarded)?,
            };
            ids.extend(tokens.iter().map(|token| token.id));
            tokenizers::Result::Ok(())
        };
        for piece in self.added.split(text, control, &guarded) {
            match piece {
                Piece::Token(id, _) => ids.push(id),
                Piece::Text(text, _) => self.words.encode(model, text, &mut merge, &mut ids)?,
            }
        }
        Ok(ids)
    }
}

impl Words {
    fn encode(
        &self,
        model: &Vocabulary,
        text: &str,
        merge: &mut impl FnMut(&str, &mut Vec<u32>) -> tokenizers::Result<()>,
        ids: &mut Vec<u32>,
    ) -> tokenizers::Result<()> {
        match self {
            Self::Bytes(cuts) => {
                let mut spelt = String::new();
                words(cuts, text, &mut |word| {
                    spelt.clear();
                    spelt.extend(word.bytes().map(gpt2_char));
                    merge(&spelt, ids)
                })
            }
            Self::Text { cuts, escaped, whole_lines } => {
                let text = if *escaped { text.replace(' ', "▁") } else { text.to_owned() };
                words(cuts, &text, &mut |word| {
                    let lines = *whole_lines && word.bytes().all(|byte| byte == b'\n');
                    match lines.then(|| model.token_to_id(word)).flatten() {
                        Some(id) => ids.push(id),
                        None => merge(word, ids)?,
                    }
                    Ok(())
                })
            }
            Self::SentencePiece { space_prefix } => {
                let prefix = if *space_prefix { "▁" } else { "" };
                merge(&format!("{prefix}{}", text.replace(' ', "▁")), ids)
            }
            Self::WordPiece(rules) => {
                rules.encode(model, text, ids);
                Ok(())
            }
            Self::Unigram(normalizer) => {
                let mut found = Vec::new();
                merge(&normalizer.normalize(text)?, &mut found)?;
                found.dedup_by(|a, b| a == b && Some(*a) == normalizer.unknown);
                ids.append(&mut found);
                Ok(())
            }
        }
    }
}
