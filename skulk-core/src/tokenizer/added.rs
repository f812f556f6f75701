//! Where does a text spell out added tokens?
//!
//! As in llama.cpp the longest tokens are looked for first, in all of the text, then shorter ones in what is left.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// With where it begins.
    Text(&'a str, usize),
    /// With where it is spelt out.
    Token(u32, Range<usize>),
}

/// Where control tokens that are spelt out become tokens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Control<'a> {
    /// Wherever they are.
    Found,
    /// Nowhere; nor do others that are guarded.
    Text,
    /// In these parts of the text; so do others that are guarded.
    Within(&'a [Range<usize>]),
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
        // Made in time that is linear in the texts, unlike a DFA.
        let mut builder = AhoCorasick::builder();
        builder.kind(Some(AhoCorasickKind::ContiguousNFA));
        let finder = (!tokens.is_empty()).then(|| builder.build(texts)).transpose()?;
        Ok(Self { tokens, finder })
    }

    /// `text`, cut at added tokens, of which those that are `guarded` become tokens only where markup is told apart.
    pub(super) fn split<'a>(
        &self,
        text: &'a str,
        control: Control<'_>,
        guarded: impl Fn(u32) -> bool,
    ) -> Vec<Piece<'a>> {
        let mut pieces = vec![Piece::Text(text, 0)];
        for token in self.occurring(text) {
            let within = match control {
                Control::Text if token.control || guarded(token.id) => continue,
                Control::Within(parts) if token.control || guarded(token.id) => Some(parts),
                _ => None,
            };
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                match piece {
                    Piece::Text(text, at) => token.split(text, at, within, &mut finer),
                    Piece::Token(..) => finer.push(piece),
                }
            }
            pieces = finer;
        }
        pieces.retain(|piece| !matches!(piece, Piece::Text("", _)));
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
    /// Cuts a piece that begins at `start`; where it is only found in some parts of the text, `within` has them.
    fn split<'a>(
        &self,
        text: &'a str,
        start: usize,
        within: Option<&[Range<usize>]>,
        pieces: &mut Vec<Piece<'a>>,
    ) {
        // Where what is not cut yet begins, and where the next one is looked for.
        let (mut rest, mut from) = (0, 0);
        while let Some(found) = text[from..].find(&self.text) {
            let at = from + found..from + found + self.text.len();
            let place = start + at.start..start + at.end;
            if !within.is_none_or(|parts| contains(parts, &place)) {
                from = at.start + text[at.start..].chars().next().map_or(1, char::len_utf8);
                continue;
            }
            let before = &text[rest..at.start];
            let before = if self.left { before.trim_end_matches(is_space) } else { before };
            pieces.push(Piece::Text(before, start + rest));
            pieces.push(Piece::Token(self.id, place));
            let behind = &text[at.end..];
            let kept = if self.right { behind.trim_start_matches(is_space) } else { behind };
            rest = text.len() - kept.len();
            from = rest;
        }
        pieces.push(Piece::Text(&text[rest..], start + rest));
    }
}

/// Whether all of a place is in one of some parts, which follow each other; those that touch are one.
fn contains(parts: &[Range<usize>], place: &Range<usize>) -> bool {
    let first = parts.partition_point(|part| part.end <= place.start);
    let mut end = place.start;
    for part in &parts[first..] {
        if part.start > end {
            break;
        }
        end = end.max(part.end);
    }
    end >= place.end && end > place.start
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
        let split = |text: &str, control| {
            let pieces = added.split(text, control, |_| false).into_iter();
            let shown = pieces.map(|piece| match piece {
                Piece::Text(part, at) => {
                    assert_eq!(&text[at..at + part.len()], part);
                    part.to_owned()
                }
                Piece::Token(id, _) => format!("#{id}"),
            });
            shown.collect::<Vec<_>>().join("|")
        };
        assert_eq!(split("abcd ab", Control::Found), "a|#1|#3|#0");
        assert_eq!(split("x     <s>x", Control::Found), "x|#2|#2|#3|#4|x");
        assert_eq!(split("ab<s>x", Control::Text), "#0|<s>x");
        assert_eq!(split("", Control::Found), "");
        let guarded = added.split("ab<s>x", Control::Text, |id| id == 0);
        assert_eq!(guarded, [Piece::Text("ab<s>x", 0)]);
        // Only all of one in what is markup, which may lie in several parts.
        assert_eq!(split("<s><s>ab<s>", Control::Within(&[0..2, 3..6, 9..11])), "<s>|#4|#0|<s>");
        assert_eq!(split("<s><s>", Control::Within(&[0..1, 1..4])), "#4|<s>");
    }

    /// With a DFA it would take minutes.
    #[test]
    fn long_tokens_take_reasonable_time() {
        let long = "a".repeat(200_000);
        let parts = Parts { tokens: vec![&long], kinds: vec![Kind::Control], ..Parts::default() };
        let added = Added::new(&parts).unwrap();
        assert_eq!(added.split(&"a".repeat(1_000_000), Control::Found, |_| false).len(), 5);
    }

    /// What is quadratic would not come to an end.
    #[test]
    fn nested_tokens_take_reasonable_time() {
        let runs: Vec<String> = (1..1000).map(|len| "a".repeat(len)).collect();
        let tokens: Vec<&str> = runs.iter().map(String::as_str).collect();
        let kinds = vec![Kind::UserDefined; tokens.len()];
        let added = Added::new(&Parts { tokens, kinds, ..Parts::default() }).unwrap();
        assert_eq!(added.split(&"a".repeat(1_000_000), Control::Text, |_| false).len(), 1001 + 1);
    }
}
