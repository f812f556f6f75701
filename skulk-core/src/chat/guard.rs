//! Which of a prompt's special tokens are the template's own, and which are only text that a message has?
//!
//! The conversation is rendered a second time in which every character that begins a special token's text has been
//! replaced, in all that messages, tools and documents say, by a character that nobody uses: its twin. No special token
//! can arise there from what was said, whole or in parts, and where both renderings agree the twins tell every
//! character of such text. Templates that look for marks in messages, such as `</think>`, may render otherwise then. Of
//! theirs, the rendering is taken whose special tokens are the same ones: those that the template writes by itself.

use super::template::Conversation;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::tokenizer::{Piece, Tokenizer};

/// Where twins are looked for: a plane for private use.
const PRIVATE: std::ops::RangeInclusive<u32> = 0x10_0000..=0x10_fffd;
/// How often texts are looked through for special tokens that come to light when others are gone.
const PASSES: usize = 4;

/// The characters that special tokens begin with, in order.
#[derive(Debug)]
pub(super) struct Guard {
    begins: Vec<char>,
}

impl Guard {
    pub(super) fn new(tokenizer: &Tokenizer) -> Self {
        let mut begins: Vec<char> =
            tokenizer.special_texts().filter_map(|text| text.chars().next()).collect();
        begins.sort_unstable();
        begins.dedup();
        Self { begins }
    }

    /// The prompt that `render` makes of the conversation, and behind it `said`: text and tokens.
    pub(super) fn prompt(
        &self,
        tokenizer: &Tokenizer,
        conversation: &Conversation,
        said: &str,
        render: impl Fn(&Conversation) -> Result<String>,
    ) -> Result<(String, Vec<TokenId>)> {
        let rendered = render(conversation);
        let begins_one = |text: &str| text.contains(|char| self.begins.binary_search(&char).is_ok());
        let mut suspicious = begins_one(said);
        conversation.visit(&mut |text| suspicious = suspicious || begins_one(text));
        if !suspicious {
            let text = rendered? + said;
            let tokens = tokenizer.encode(&text, false)?;
            return Ok((text, tokens));
        }
        let twins = self.twins(conversation, &[said, rendered.as_deref().unwrap_or_default()])?;
        let own = match render(&conversation.mapped(|text| twins.all(text))) {
            Ok(own) => own,
            Err(e) => return Err(rendered.err().unwrap_or(e)),
        };
        let written = |text: &str| -> Vec<TokenId> {
            tokenizer.special_in(text).into_iter().map(|(token, ..)| token).collect()
        };
        let expected = written(&own);
        let prompt = match rendered {
            Ok(text) if twins.undone(&own) == text => own,
            Ok(text) if written(&text) == expected => text,
            // The template looks at what was said, and special tokens are in it, which it may be shown last of all.
            first => match render(&conversation.mapped(|text| twins.special(text, tokenizer))) {
                Ok(text) if written(&text) == expected => text,
                Err(_) if first.is_err() => return first.map(|text| (text, Vec::new())),
                _ => own,
            },
        };
        let prompt = prompt + &twins.all(said);
        let tokens = tokenizer.encode_pieces(&twins.pieces(&prompt))?;
        Ok((twins.undone(&prompt), tokens))
    }

    /// Twins that neither the conversation nor `texts` have.
    fn twins(&self, conversation: &Conversation, texts: &[&str]) -> Result<Twins<'_>> {
        let mut used: Vec<u32> = Vec::new();
        let mut note =
            |text: &str| used.extend(text.chars().map(u32::from).filter(|code| PRIVATE.contains(code)));
        conversation.visit(&mut note);
        texts.iter().for_each(|text| note(text));
        used.sort_unstable();
        let wanted = u32::try_from(self.begins.len()).unwrap_or(u32::MAX);
        let mut first = *PRIVATE.start();
        for code in used {
            if code.saturating_sub(first) >= wanted {
                break;
            }
            first = first.max(code + 1);
        }
        if first.saturating_add(wanted) > PRIVATE.end() + 1 {
            return Err(Error::new(
                ErrorKind::ChatInvalid,
                "expected messages that leave some of Unicode's private characters U+100000 to U+10FFFD unused",
            )
            .with_hint("take out what is no text"));
        }
        Ok(Twins { first, begins: &self.begins, texts: self.begins.iter().map(char::to_string).collect() })
    }
}

/// Characters that stand for those which begin special tokens.
struct Twins<'a> {
    first: u32,
    begins: &'a [char],
    texts: Vec<String>,
}

impl Twins<'_> {
    fn of(&self, char: char) -> Option<char> {
        let at = self.begins.binary_search(&char).ok()?;
        char::from_u32(self.first + u32::try_from(at).ok()?)
    }

    /// Which character's twin this is, as text.
    fn original(&self, twin: char) -> Option<&str> {
        let at = u32::from(twin).checked_sub(self.first)?;
        self.texts.get(usize::try_from(at).ok()?).map(String::as_str)
    }

    /// With a twin for every character that can begin a special token.
    fn all(&self, text: &str) -> String {
        text.chars().map(|char| self.of(char).unwrap_or(char)).collect()
    }

    /// With a twin at the beginning of every special token's text.
    fn special(&self, text: &str, tokenizer: &Tokenizer) -> String {
        let mut text = text.to_owned();
        for _ in 0..PASSES {
            let found = tokenizer.special_in(&text);
            if found.is_empty() {
                return text;
            }
            // From the end, so that what is before keeps its place.
            for (_, start, end) in found.into_iter().rev() {
                let token =
                    text[start..end].char_indices().find_map(|(at, char)| Some((at, char, self.of(char)?)));
                if let Some((at, char, twin)) = token {
                    let at = start + at;
                    text.replace_range(at..at + char.len_utf8(), twin.encode_utf8(&mut [0; 4]));
                }
            }
        }
        self.all(&text)
    }

    fn undone(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for char in text.chars() {
            match self.original(char) {
                Some(original) => out.push_str(original),
                None => out.push(char),
            }
        }
        out
    }

    fn pieces<'t>(&'t self, text: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let mut from = 0;
        for (at, char) in text.char_indices() {
            if let Some(original) = self.original(char) {
                pieces.extend((from < at).then(|| Piece::Markup(&text[from..at])));
                pieces.push(Piece::Plain(original));
                from = at + char.len_utf8();
            }
        }
        pieces.push(Piece::Markup(&text[from..]));
        pieces
    }
}
