//! What do the markers of tool calls enclose? One reader for each kind of body, and what they share.

mod json;
mod literal;
mod named;
mod nested;
mod tagged;
mod value;
mod words;

use super::delta::Fault;
use super::emit::Emitter;
use super::format::{Body, Format};
use super::marker::{Scanner, Specials};
use json::Objects;
use literal::Literals;
pub(super) use literal::python;
use named::Headed;
use nested::Elements;
use tagged::Tagged;

/// What a reader says of the piece that it took.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing is left of it.
    More,
    /// What was taken is told as text, but for the marker behind it, which opens a call.
    Told(&'static str),
    /// A call is whole.
    Call,
    /// The calls are at their end.
    Close,
    /// This is no call. With `closed`, the close marker was taken.
    Fail { fault: Fault, closed: bool },
}

impl Step {
    fn fail(fault: Fault) -> Self {
        Self::Fail { fault, closed: false }
    }

    fn closed(fault: Fault) -> Self {
        Self::Fail { fault, closed: true }
    }
}

/// What there is at the end of an answer that did not end its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// Behind whole calls, what may have been markup.
    Text,
    /// Some of a call.
    Call,
}

impl Left {
    /// Between calls, with nothing but white space and separators there; or not.
    fn between(calls: usize, empty: bool) -> Self {
        match calls {
            0 => Self::Call,
            _ if empty => Self::Nothing,
            _ => Self::Text,
        }
    }
}

/// What surrounds a reader.
#[derive(Debug, Clone, Copy)]
struct Frame<'a> {
    close: &'static str,
    specials: &'a Specials,
}

/// Calls between their markers.
#[derive(Debug, Clone)]
pub(super) struct Block {
    close: &'static str,
    bodies: &'static [Body],
    specials: Specials,
    reader: Reader,
    /// All since the last whole call, or since text between calls.
    raw: String,
    /// Without a start marker it is a guess, and text where it fails before anything was told.
    guessed: bool,
}

#[derive(Debug, Clone)]
enum Reader {
    /// White space so far.
    Undecided,
    Json(Objects),
    Named(Headed),
    Tagged(Tagged),
    Literal(Literals),
    Nested(Elements),
    /// What is wrong, while the close marker is looked for.
    Broken(Fault, Scanner),
}

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Within,
    Ended,
}

impl Block {
    /// Calls behind this start marker; without one, an answer that may be a call.
    pub(super) fn new(format: &Format, specials: &Specials, start: Option<&str>) -> Self {
        Self {
            close: format.close,
            bodies: format.bodies,
            specials: specials.clone(),
            reader: Reader::Undecided,
            raw: start.unwrap_or_default().to_owned(),
            guessed: start.is_none(),
        }
    }

    /// Takes from `rest` what belongs to the calls.
    pub(super) fn push(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Place {
        loop {
            let before = *rest;
            let step = self.read(rest, special, emit);
            self.raw.push_str(&before[..before.len() - rest.len()]);
            match step {
                Step::More => return Place::Within,
                Step::Told(marker) => {
                    self.raw.clear();
                    self.raw.push_str(marker);
                }
                Step::Close => return Place::Ended,
                Step::Call => match emit.finish() {
                    Ok(()) => self.raw.clear(),
                    Err(fault) => {
                        let closed = self.close.is_empty() || self.is_closed();
                        if self.failed(fault, closed, emit) {
                            return Place::Ended;
                        }
                    }
                },
                Step::Fail { fault, closed } => {
                    if self.failed(fault, closed || self.close.is_empty(), emit) {
                        return Place::Ended;
                    }
                }
            }
        }
    }

    /// Reports what is wrong now, or when the close marker is there. Whether that is now.
    fn failed(&mut self, fault: Fault, closed: bool, emit: &mut Emitter) -> bool {
        if closed {
            self.report(fault, emit);
        } else {
            let scanner = Scanner::new(&[self.close], &self.specials);
            self.reader = Reader::Broken(fault, scanner);
        }
        closed
    }

    fn report(&mut self, fault: Fault, emit: &mut Emitter) {
        let raw = std::mem::take(&mut self.raw);
        if self.guessed && !emit.is_started() { emit.text(&raw) } else { emit.fail(fault, raw) }
    }

    /// Whether the close marker was taken with the call.
    fn is_closed(&self) -> bool {
        match &self.reader {
            Reader::Json(reader) => reader.is_closed(),
            Reader::Named(reader) => reader.is_closed(),
            Reader::Tagged(reader) => reader.is_closed(),
            Reader::Undecided | Reader::Literal(_) | Reader::Nested(_) | Reader::Broken(..) => false,
        }
    }

    fn read(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Step {
        match &mut self.reader {
            Reader::Undecided => {
                let trimmed = rest.trim_start();
                let Some(first) = trimmed.chars().next() else {
                    *rest = "";
                    return Step::More;
                };
                self.reader = self.choose(first);
                *rest = trimmed;
                self.read(rest, special, emit)
            }
            Reader::Json(reader) => reader.read(rest, special, emit),
            Reader::Named(reader) => reader.read(rest, special, emit),
            Reader::Tagged(reader) => reader.read(rest, special, emit),
            Reader::Literal(reader) => reader.read(rest, special, emit),
            Reader::Nested(reader) => reader.read(rest, special, emit),
            Reader::Broken(fault, scanner) => match scanner.next(rest, special, |_| {}) {
                Some(_) => Step::closed(fault.clone()),
                None => Step::More,
            },
        }
    }

    /// The answer ends here.
    pub(super) fn end(&mut self, emit: &mut Emitter) {
        let left = match &self.reader {
            Reader::Broken(fault, _) => return self.report(fault.clone(), emit),
            Reader::Undecided => Left::Call,
            Reader::Json(reader) => reader.left(),
            Reader::Named(reader) => reader.left(),
            Reader::Tagged(reader) => reader.left(),
            Reader::Literal(reader) => reader.left(),
            Reader::Nested(reader) => reader.left(),
        };
        match left {
            Left::Nothing => {}
            Left::Text => emit.text(&self.raw),
            Left::Call => self.report(Fault::unfinished(), emit),
        }
    }

    fn choose(&self, first: char) -> Reader {
        let frame = Frame { close: self.close, specials: &self.specials };
        let is_json = matches!(first, '{' | '[');
        let body = self.bodies.iter().find(|body| match body {
            Body::Json(json) => is_json || json.in_list || self.bodies.len() == 1,
            _ => true,
        });
        match body {
            Some(Body::Named(named)) => Reader::Named(Headed::new(named, frame)),
            Some(Body::Tagged(tags)) => Reader::Tagged(Tagged::new(tags, frame)),
            Some(Body::Literal(dialect)) => Reader::Literal(Literals::new(dialect, frame)),
            Some(Body::Nested(nested)) => Reader::Nested(Elements::new(nested, frame)),
            Some(Body::Json(json)) => Reader::Json(Objects::new(*json, frame, self.guessed)),
            None => Reader::Broken(Fault::no_name(), Scanner::new(&[self.close], &self.specials)),
        }
    }
}
