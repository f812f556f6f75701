//! What is each part of an answer? Reasoning, text and calls, by the markers between them.

use super::call::{Block, Place};
use super::channel::{Message, To};
use super::emit::Emitter;
use super::format::{Addressing, Channels, Format};
use super::marker::{Scanner, Specials};
use super::syntax::ReasoningSyntax;

/// Reads an answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    format: Option<Format>,
    specials: Specials,
    text: Marked,
    thought: Marked,
    header: Marked,
    mode: Mode,
}

/// A scanner, and what its markers do.
#[derive(Debug, Clone)]
struct Marked {
    scanner: Scanner,
    markers: Vec<(String, Meaning)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Reason,
    Answer,
    Call,
    Drop,
    /// A message's header begins, or goes on.
    Header,
    /// It ends.
    Message,
    /// A message ends.
    End,
    /// This is no header.
    NoHeader,
}

#[derive(Debug, Clone)]
enum Mode {
    /// White space before an answer that may be a call as a whole.
    Bare(String),
    /// What may be the rest of a header that the prompt began.
    Opening(String),
    Header(Message),
    Text,
    /// Behind a message's end: what is there is no text where another message follows.
    Between(String),
    Reasoning,
    /// And whether it is within reasoning.
    Call(Box<Block>, bool),
    /// A message to a function.
    Arguments(Message),
}

impl Marked {
    fn new(markers: Vec<(&str, Meaning)>, specials: &Specials) -> Self {
        let texts: Vec<_> = markers.iter().map(|(text, _)| *text).collect();
        let scanner = Scanner::new(&texts, specials);
        Self {
            scanner,
            markers: markers.into_iter().map(|(text, meaning)| (text.to_owned(), meaning)).collect(),
        }
    }

    /// The next marker and what it means.
    fn next(&mut self, rest: &mut &str, special: bool, take: impl FnMut(&str)) -> Option<(&str, Meaning)> {
        let which = self.scanner.next(rest, special, take)?;
        let (text, meaning) = &self.markers[which];
        Some((text, *meaning))
    }
}

impl Answer {
    pub(super) fn new(
        format: Option<Format>,
        reasoning: Option<&ReasoningSyntax>,
        specials: Specials,
        reasons: bool,
    ) -> Self {
        let (mut text, mut thought, mut header) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(syntax) = reasoning {
            text.push((syntax.start.as_str(), Meaning::Reason));
            thought.push((syntax.end.as_str(), Meaning::Answer));
        }
        let mut mode = if reasons { Mode::Reasoning } else { Mode::Text };
        if let Some(format) = &format {
            let starts = || format.starts.iter().map(|start| (*start, Meaning::Call));
            text.extend(starts());
            text.extend(format.dropped.iter().map(|marker| (*marker, Meaning::Drop)));
            if format.in_reasoning {
                thought.extend(starts());
            }
            if let Some(channels) = format.channels {
                let ends = || channels.ends.iter().map(|end| (*end, Meaning::End));
                let opens = || channels.opens.iter().map(|open| (*open, Meaning::Header));
                for list in [&mut text, &mut thought] {
                    list.extend(ends().chain(opens()));
                }
                header.extend(opens());
                header.push((channels.message, Meaning::Message));
                if channels.addressing != Addressing::Line {
                    text.push((channels.message, Meaning::Drop));
                    header.extend(channels.ends.iter().map(|end| (*end, Meaning::NoHeader)));
                    header.push(("\n", Meaning::NoHeader));
                }
            }
            mode = match format.channels {
                _ if reasons => mode,
                Some(Channels { addressing: Addressing::Line, .. }) => Mode::Header(Message::default()),
                Some(_) => Mode::Opening(String::new()),
                None if format.bare => Mode::Bare(String::new()),
                None => mode,
            };
        }
        Self {
            text: Marked::new(text, &specials),
            thought: Marked::new(thought, &specials),
            header: Marked::new(header, &specials),
            format,
            specials,
            mode,
        }
    }

    pub(super) fn push(&mut self, text: &str, special: bool, emit: &mut Emitter) {
        let mut rest = text;
        while !rest.is_empty() {
            self.read(&mut rest, special, emit);
        }
    }

    /// Reads to where the mode changes, or to the end of the piece.
    fn read(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) {
        match &mut self.mode {
            Mode::Bare(kept) => {
                let trimmed = rest.trim_start();
                kept.push_str(&rest[..rest.len() - trimmed.len()]);
                *rest = trimmed;
                if let Some(first) = rest.chars().next() {
                    let kept = std::mem::take(kept);
                    emit.text(&kept);
                    self.mode = match &self.format {
                        Some(format) if first == '{' && !special => {
                            Mode::Call(Box::new(Block::new(format, &self.specials, None)), false)
                        }
                        _ => Mode::Text,
                    };
                }
            }
            Mode::Opening(kept) => {
                let Some(first) = rest.chars().next() else { return };
                if TO.as_bytes().get(kept.len()).copied().map(char::from) == Some(first) && !special {
                    kept.push(first);
                    *rest = &rest[1..];
                    if kept == TO {
                        self.mode = Mode::Header(Message::begun(TO));
                    }
                } else {
                    emit.text(&std::mem::take(kept));
                    self.mode = Mode::Text;
                }
            }
            Mode::Header(message) => {
                let found = self.header.next(rest, special, |text| message.push(text));
                let Some((marker, meaning)) = found else { return };
                message.push(marker);
                let message = std::mem::take(message);
                self.headed(message, meaning, emit);
            }
            Mode::Text => {
                let found = self.text.next(rest, special, |text| emit.text(text));
                if let Some((marker, meaning)) = found {
                    let marker = marker.to_owned();
                    self.turn(&marker, meaning, false);
                }
            }
            Mode::Between(kept) => {
                let found = self.text.next(rest, special, |text| kept.push_str(text));
                let Some((marker, meaning)) = found.filter(|(_, meaning)| *meaning != Meaning::End) else {
                    return;
                };
                let marker = marker.to_owned();
                if matches!(meaning, Meaning::Reason | Meaning::Call) {
                    emit.text(kept);
                }
                self.turn(&marker, meaning, false);
            }
            Mode::Reasoning => {
                let found = self.thought.next(rest, special, |text| emit.reasoning(text));
                if let Some((marker, meaning)) = found {
                    let marker = marker.to_owned();
                    self.turn(&marker, meaning, true);
                }
            }
            Mode::Call(block, reasons) => {
                if block.push(rest, special, emit) == Place::Ended {
                    self.mode = if *reasons { Mode::Reasoning } else { Mode::Text };
                }
            }
            Mode::Arguments(message) => {
                let found = self.thought.next(rest, special, |text| {
                    message.push(text);
                    emit.arguments(text);
                });
                if let Some((marker, meaning)) = found {
                    message.push(if meaning == Meaning::End { marker } else { "" });
                    let marker = marker.to_owned();
                    message.end("", emit);
                    self.turn(&marker, meaning, false);
                }
            }
        }
    }

    /// A marker in text or reasoning.
    fn turn(&mut self, marker: &str, meaning: Meaning, reasons: bool) {
        self.mode = match (meaning, &self.format) {
            (Meaning::Reason, _) => Mode::Reasoning,
            (Meaning::Header, _) => Mode::Header(Message::begun(marker)),
            (Meaning::End, _) => Mode::Between(String::new()),
            (Meaning::Call, Some(format)) => {
                Mode::Call(Box::new(Block::new(format, &self.specials, Some(marker))), reasons)
            }
            _ => Mode::Text,
        };
    }

    /// A marker within a header.
    fn headed(&mut self, message: Message, meaning: Meaning, emit: &mut Emitter) {
        let channels = self.format.as_ref().and_then(|format| format.channels);
        self.mode = match (meaning, channels) {
            (Meaning::Header, _) => Mode::Header(message),
            (Meaning::Message, Some(channels)) => match message.to(channels) {
                To::User => Mode::Text,
                To::Itself => Mode::Reasoning,
                To::Function(name) => {
                    emit.start(&name, None);
                    Mode::Arguments(message)
                }
                // The call is in its text.
                To::Calls => Mode::Text,
                To::Nobody => {
                    emit.text(message.raw());
                    Mode::Text
                }
            },
            _ => {
                emit.text(message.raw());
                Mode::Text
            }
        };
    }

    /// The answer ends: what may have been the beginning of markup is none.
    pub(super) fn end(&mut self, emit: &mut Emitter) {
        match std::mem::replace(&mut self.mode, Mode::Text) {
            Mode::Bare(kept) | Mode::Opening(kept) => emit.text(&kept),
            Mode::Header(message) => {
                emit.text(message.raw());
                emit.text(&self.header.scanner.flush());
            }
            Mode::Text => emit.text(&self.text.scanner.flush()),
            Mode::Between(kept) => emit.text(&(kept + &self.text.scanner.flush())),
            Mode::Reasoning => emit.reasoning(&self.thought.scanner.flush()),
            Mode::Call(mut block, _) => block.end(emit),
            Mode::Arguments(mut message) => message.end(&self.thought.scanner.flush(), emit),
        }
    }

    /// Whether it is within reasoning, and not in a call there.
    pub(super) fn reasons(&self) -> bool {
        matches!(self.mode, Mode::Reasoning)
    }

    /// Whether it is within a call.
    pub(super) fn calls(&self) -> bool {
        matches!(self.mode, Mode::Call(..) | Mode::Arguments(_))
    }
}

/// What a header goes on with, where the prompt has the role.
const TO: &str = " to=";
