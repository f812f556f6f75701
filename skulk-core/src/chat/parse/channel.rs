//! Whom is a message for? Read from its header.

use super::emit::Emitter;
use super::format::{Addressing, Channels};

/// A message's header, and its content where that is a call.
#[derive(Debug, Clone, Default)]
pub(super) struct Message {
    raw: String,
}

/// Whom it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum To {
    User,
    /// The model's reasoning.
    Itself,
    /// The arguments of this function.
    Function(String),
    /// Functions, which are named in it.
    Calls,
    /// This is no header.
    Nobody,
}

impl Message {
    pub(super) fn begun(raw: &str) -> Self {
        Self { raw: raw.to_owned() }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.raw.push_str(text);
    }

    /// All of it so far.
    pub(super) fn raw(&self) -> &str {
        &self.raw
    }

    /// Whom its header names; `raw` ends with the marker behind it.
    pub(super) fn to(&self, channels: &Channels) -> To {
        let header = self.raw.strip_suffix(channels.message).unwrap_or(&self.raw);
        if channels.addressing == Addressing::Line {
            let name =
                channels.opens.iter().find_map(|open| header.strip_prefix(open)).unwrap_or(header).trim();
            return match name {
                "all" => To::User,
                "" => To::Nobody,
                _ if name.contains(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))) => {
                    To::Nobody
                }
                _ => To::Function(name.to_owned()),
            };
        }
        let words = || {
            header.split("<|").flat_map(|part| {
                // What follows a marker's name is its text.
                part.split_once("|>").map_or(part, |(_, text)| text).split_whitespace()
            })
        };
        let recipient = words().find_map(|word| word.strip_prefix("to="));
        if channels.addressing == Addressing::Recipient {
            return match recipient {
                Some("self") => To::Itself,
                Some("user") | None => To::User,
                Some(_) => To::Calls,
            };
        }
        let channel = header.rsplit_once("<|channel|>").map_or("", |(_, text)| text);
        let channel = channel.split(|c: char| c.is_whitespace() || c == '<').find(|word| !word.is_empty());
        match (recipient, channel) {
            (Some(name), _) if !matches!(name, "user" | "assistant" | "all") => {
                To::Function(name.strip_prefix("functions.").unwrap_or(name).to_owned())
            }
            (_, Some("analysis")) => To::Itself,
            _ => To::User,
        }
    }

    /// The call in it is at its end; `behind` is what may have been the beginning of markup.
    pub(super) fn end(&mut self, behind: &str, emit: &mut Emitter) {
        match emit.finish() {
            Ok(()) => emit.text(behind),
            Err(fault) => emit.fail(fault, std::mem::take(&mut self.raw) + behind),
        }
    }
}
