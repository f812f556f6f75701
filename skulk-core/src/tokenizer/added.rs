//! Where does a text spell out added tokens?
//!
//! As in llama.cpp the longest tokens are looked for first, in all of the text, then shorter ones in what is left.

use aho_corasick::AhoCorasick;

use super::parts::{Kind, Parts};

/// The added tokens of a vocabulary.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// Longest first.
    tokens: Vec<Token>,
    /// Of their texts.
    finder: Option<AhoCorasick>,
}

#[derive(Debug)]
struct Token {
    id: u32,
    text: String,
    control: bool,
    /// Whether it takes spaces in front of it.
    left: bool,
    /// Whether it takes spaces behind it.
    right: bool,
}

/// A piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Token(u32),
}

impl Added {
    pub(super) fn new(parts: &Parts) -> Result<Self, aho_corasick::BuildError> {
        let tokens = (0_u32..).zip(parts.tokens.iter().zip(&parts.kinds));
        let added = tokens.filter(|(_, (text, kind))| {
            matches!(kind, Kind::Control | Kind::Unknown | Kind::UserDefined) && !text.is_empty()
        });
        let mut tokens: Vec<Token> = added
            .map(|(id, (&text, kind))| {
                let (left, right) = parts.takes_spaces(text);
                Token { id, text: text.to_owned(), control: *kind != Kind::UserDefined, left, right }
            })
            .collect();
        tokens.sort_by_key(|token| std::cmp::Reverse(token.text.len()));
        let texts = tokens.iter().map(|token| &token.text);
        let finder = (!tokens.is_empty()).then(|| AhoCorasick::new(texts)).transpose()?;
        Ok(Self { tokens, finder })
    }

    /// `text`, cut at added tokens; with `control`, at control tokens too.
    pub(super) fn split<'a>(&self, text: &'a str, control: bool) -> Vec<Piece<'a>> {
        let mut pieces = vec![Piece::Text(text)];
        for token in self.occurring(text).filter(|token| control || !token.control) {
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                match piece {
                    Piece::Text(text) => token.split(text, &mut finer),
                    Piece::Token(_) => finer.push(piece),
                }
            }
            pieces = finer;
        }
        pieces.retain(|piece| *piece != Piece::Text(""));
        pieces
    }

    /// The tokens whose texts are anywhere in `text`.
    fn occurring(&self, text: &str) -> impl Iterator<Item = &Token> {
        let mut occurs = vec![false; self.tokens.len()];
        let mut missing = self.tokens.len();
        for found in self.finder.iter().flat_map(|finder| finder.find_overlapping_iter(text)) {
            if !std::mem::replace(&mut occurs[found.pattern().as_usize()], true) {
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        self.tokens.iter().zip(occurs).filter_map(|(token, occurs)| occurs.then_some(token))
    }
}

impl Token {
    fn split<'a>(&self, text: &'a str, pieces: &mut Vec<Piece<'a>>) {
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(&self.text) {
            let before = if self.left { before.trim_end_matches(is_space) } else { before };
            pieces.push(Piece::Text(before));
            pieces.push(Piece::Token(self.id));
            rest = if self.right { behind.trim_start_matches(is_space) } else { behind };
        }
        pieces.push(Piece::Text(rest));
    }
}

/// C's `isspace`.
fn is_space(char: char) -> bool {
    char.is_ascii_whitespace() || char == '\x0b'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_tokens_come_first() {
        let tokens = vec!["ab", "bcd", "  ", " ", "<s>", "x"];
        let kinds = [4, 4, 4, 4, 3, 1].map(|kind| Kind::from(i64::from(kind))).to_vec();
        let added = Added::new(&Parts { tokens, kinds, ..Parts::default() }).unwrap();
        let split = |text, control| {
            let pieces = added.split(text, control).into_iter();
            let shown = pieces.map(|piece| match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Token(id) => format!("#{id}"),
            });
            shown.collect::<Vec<_>>().join("|")
        };
        assert_eq!(split("abcd ab", true), "a|#1|#3|#0");
        assert_eq!(split("x     <s>x", true), "x|#2|#2|#3|#4|x");
        assert_eq!(split("ab<s>x", false), "#0|<s>x");
        assert_eq!(split("", true), "");
    }

    /// What is quadratic would not come to an end.
    #[test]
    fn nested_tokens_take_reasonable_time() {
        let runs: Vec<String> = (1..1000).map(|len| "a".repeat(len)).collect();
        let tokens: Vec<&str> = runs.iter().map(String::as_str).collect();
        let kinds = vec![Kind::UserDefined; tokens.len()];
        let added = Added::new(&Parts { tokens, kinds, ..Parts::default() }).unwrap();
        assert_eq!(added.split(&"a".repeat(1_000_000), false).len(), 1001 + 1);
    }
}
