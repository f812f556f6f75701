//! Which of a prompt's special tokens are the template's own, and which are only text that a message has?
//!
//! The conversation is rendered a second time in which every character that begins a special token's text has been
//! replaced, in all that messages, tools and documents say, by a character that nobody uses: its twin. So has the first
//! character of a text that begins with more of a special token than its beginning, which a template could write in
//! front of it. No special token can arise there from what was said, whole or in parts, and where both renderings agree
//! the twins tell every character of such text. Templates that look for marks in messages, such as `</think>`, may render
//! otherwise then. Of theirs, the rendering is taken whose special tokens are the same ones: those that the template
//! writes by itself.

use std::collections::BTreeSet;

use super::template::Conversation;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::tokenizer::{Piece, Tokenizer};

/// Where twins are looked for: a plane for private use.
const PRIVATE: std::ops::RangeInclusive<u32> = 0x10_0000..=0x10_fffd;
/// Roles of models, which are the names of some models' special tokens.
const ROLES: [&str; 10] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
    "model",
    "observation",
    "ipython",
    "tool_response",
];
/// How often texts are looked through for special tokens that come to light when others are gone.
const PASSES: usize = 4;

/// What special tokens are made of.
#[derive(Debug)]
pub(super) struct Guard {
    /// All their characters, in order, and whether they begin one.
    chars: Vec<(char, bool)>,
    texts: Vec<String>,
    /// What is left of texts without their beginnings, in order: which text, and from where.
    rests: Vec<(u32, u32)>,
}

impl Guard {
    pub(super) fn new(tokenizer: &Tokenizer) -> Self {
        let texts: Vec<String> = tokenizer.special_texts().map(str::to_owned).collect();
        let begins: BTreeSet<char> = texts.iter().filter_map(|text| text.chars().next()).collect();
        let chars: BTreeSet<char> = texts.iter().flat_map(|text| text.chars()).collect();
        let mut rests: Vec<(u32, u32)> = (0_u32..)
            .zip(&texts)
            .flat_map(|(which, text)| {
                text.char_indices().skip(1).filter_map(move |(at, _)| Some((which, u32::try_from(at).ok()?)))
            })
            .collect();
        rests.sort_unstable_by_key(|rest| rest_of(&texts, *rest));
        rests.dedup_by_key(|rest| rest_of(&texts, *rest));
        let chars = chars.into_iter().map(|char| (char, begins.contains(&char))).collect();
        Self { chars, texts, rests }
    }

    /// Where the text has a special token's character behind which it goes on like the token, or ends: spaces aside, at
    /// its beginning.
    fn continues(&self, text: &str) -> Option<usize> {
        let rest = text.trim_start();
        let first = rest.chars().next()?;
        let has = |wanted: &str| {
            let at = self.rests.partition_point(|&rest| rest_of(&self.texts, rest) < wanted);
            self.rests
                .get(at)
                .map(|&rest| rest_of(&self.texts, rest))
                .filter(|found| found.starts_with(wanted))
        };
        // As long as some token goes on like this.
        let (mut len, mut continues) = (0, false);
        for char in rest.chars() {
            len += char.len_utf8();
            match has(&rest[..len]) {
                None => break,
                Some(found) => continues = continues || found.len() == len || len == rest.len(),
            }
        }
        (continues && self.of(first).is_some()).then(|| text.len() - rest.len())
    }

    /// Whether part of a special token could be in the text.
    fn suspects(&self, text: &str) -> bool {
        text.contains(|char| self.of(char).is_some_and(|(_, begins)| begins))
            || self.continues(text).is_some()
    }

    /// Which of the characters this is, and whether it begins a special token.
    fn of(&self, char: char) -> Option<(usize, bool)> {
        let at = self.chars.binary_search_by_key(&char, |(char, _)| *char).ok()?;
        Some((at, self.chars[at].1))
    }

    /// `Ok` where a template that writes a role as markup writes none but its own.
    pub(super) fn role(&self, at: usize, role: &str) -> Result<()> {
        let is_word = |char: char| char.is_alphanumeric() || char == '_' || char == '-';
        let core = |text: &String| text.trim_matches(|char| !is_word(char)) == role;
        if role.chars().all(is_word) && (ROLES.contains(&role) || !self.texts.iter().any(core)) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ChatInvalid,
            "expected a role of letters, digits and `_`, which no special token has as its name",
        )
        .with("field", format!("messages[{at}].role"))
        .with("found", role)
        .with_hint("write a role that the model knows, as `user`, or trust the messages"))
    }

    /// The prompt that `render` makes of the conversation, text and tokens.
    pub(super) fn prompt(
        &self,
        tokenizer: &Tokenizer,
        conversation: &Conversation,
        render: impl Fn(&Conversation) -> Result<String>,
    ) -> Result<(String, Vec<TokenId>)> {
        let rendered = render(conversation);
        let mut suspicious = false;
        conversation.visit(&mut |text| suspicious = suspicious || self.suspects(text));
        if !suspicious {
            let text = rendered?;
            let tokens = tokenizer.encode(&text, false)?;
            return Ok((text, tokens));
        }
        let twins = self.twins(conversation, rendered.as_deref().unwrap_or_default())?;
        let own = match render(&conversation.mapped(|text| twins.all(text))) {
            Ok(own) => own,
            Err(e) => return Err(rendered.err().unwrap_or(e)),
        };
        let written = |text: &str| -> Vec<TokenId> {
            tokenizer.special_in(text).into_iter().map(|(token, ..)| token).collect()
        };
        let expected = written(&own);
        let mut says_special = false;
        conversation.visit(&mut |text| says_special = says_special || !written(text).is_empty());
        let prompt = match rendered {
            Ok(text) if twins.undone(&own) == text => own,
            // A template could leave out a token of its own where it finds another one in what was said.
            Ok(text) if !says_special && written(&text) == expected => text,
            // The template looks at what was said, and special tokens are in it, which it may be shown last of all.
            first => match render(&conversation.mapped(|text| twins.special(text, tokenizer))) {
                Ok(text) if written(&text) == expected => text,
                Err(_) if first.is_err() => return first.map(|text| (text, Vec::new())),
                _ => own,
            },
        };
        let tokens = tokenizer.encode_pieces(&twins.pieces(&prompt)).map_err(|e| match e.kind() {
            // It is the messages' text.
            ErrorKind::InvalidArgument => Error::new(
                ErrorKind::ChatInvalid,
                "expected messages without one of the noncharacters U+FDD0 to U+FDEF",
            )
            .with("field", "messages")
            .with_hint("take out what is no text"),
            _ => e,
        })?;
        Ok((twins.undone(&prompt), tokens))
    }

    /// Twins that neither the conversation nor `text` have.
    fn twins(&self, conversation: &Conversation, text: &str) -> Result<Twins<'_>> {
        let mut used: Vec<u32> = Vec::new();
        let mut note =
            |text: &str| used.extend(text.chars().map(u32::from).filter(|code| PRIVATE.contains(code)));
        conversation.visit(&mut note);
        note(text);
        used.sort_unstable();
        let wanted = u32::try_from(self.chars.len()).unwrap_or(u32::MAX);
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
        let texts = self.chars.iter().map(|(char, _)| char.to_string()).collect();
        Ok(Twins { first, guard: self, texts })
    }
}

/// Which text, and from where.
fn rest_of(texts: &[String], (which, from): (u32, u32)) -> &str {
    texts.get(which as usize).and_then(|text| text.get(from as usize..)).unwrap_or_default()
}

/// Characters that stand for those which special tokens are made of.
struct Twins<'a> {
    first: u32,
    guard: &'a Guard,
    texts: Vec<String>,
}

impl Twins<'_> {
    fn of(&self, char: char) -> Option<char> {
        let (at, _) = self.guard.of(char)?;
        char::from_u32(self.first + u32::try_from(at).ok()?)
    }

    /// Which character's twin this is, as text.
    fn original(&self, twin: char) -> Option<&str> {
        let at = u32::from(twin).checked_sub(self.first)?;
        self.texts.get(usize::try_from(at).ok()?).map(String::as_str)
    }

    /// With a twin for every character that can begin a special token, or go on with one.
    fn all(&self, text: &str) -> String {
        let first = self.guard.continues(text);
        let begins = |char: char| self.guard.of(char).is_some_and(|(_, begins)| begins);
        let twin = |(at, char)| if first == Some(at) || begins(char) { self.of(char) } else { None };
        text.char_indices().map(|(at, char)| twin((at, char)).unwrap_or(char)).collect()
    }

    /// With a twin at the beginning of every special token's text, and where the text goes on with one.
    fn special(&self, text: &str, tokenizer: &Tokenizer) -> String {
        let mut text = text.to_owned();
        if let Some(at) = self.guard.continues(&text) {
            text = self.put(&text, [at].into_iter());
        }
        for _ in 0..PASSES {
            let found = tokenizer.special_in(&text);
            if found.is_empty() {
                return text;
            }
            let places = found.into_iter().filter_map(|(_, start, end)| {
                let mut chars = text[start..end].char_indices();
                chars.find_map(|(at, char)| self.of(char).map(|_| start + at))
            });
            text = self.put(&text, places);
        }
        self.all(&text)
    }

    /// With twins at these places, which are in order.
    fn put(&self, text: &str, places: impl Iterator<Item = usize>) -> String {
        let mut out = String::with_capacity(text.len() + 64);
        let mut from = 0;
        for at in places {
            let char = text[at..].chars().next();
            out.push_str(&text[from..at]);
            out.extend(char.map(|char| self.of(char).unwrap_or(char)));
            from = at + char.map_or(0, char::len_utf8);
        }
        out.push_str(&text[from..]);
        out
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
