//! Which calls have a header with their name, and arguments in JSON behind it?

use super::value::ValueEnd;
use super::{Frame, Left, Step};
use crate::chat::parse::delta::{CallProblem, Fault};
use crate::chat::parse::emit::Emitter;
use crate::chat::parse::format::{Header, Named};
use crate::chat::parse::marker::{Expected, Met, Scanner};

/// Reads headers and JSON.
#[derive(Debug, Clone)]
pub(super) struct Headed {
    spec: &'static Named,
    place: Place,
    /// Before each call: its beginning, or the end of all.
    before: Scanner,
    /// Within the header: the end of the call, that of all, or the arguments.
    header: Scanner,
    close: Expected,
    /// What ends the arguments, where anything does.
    end: Expected,
    text: String,
    value: ValueEnd,
    calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    Header,
    Arguments,
    Behind,
    Ended,
}

impl Headed {
    pub(super) fn new(spec: &'static Named, frame: Frame<'_>) -> Self {
        let end = if spec.end.is_empty() { frame.close } else { spec.end };
        Self {
            spec,
            place: if spec.call.is_empty() { Place::Header } else { Place::Before },
            before: Scanner::new(&[spec.call, frame.close], frame.specials),
            header: Scanner::new(&["{", frame.close, spec.end], frame.specials),
            close: Expected::new(frame.close, frame.specials),
            end: Expected::new(end, frame.specials),
            text: String::new(),
            value: ValueEnd::default(),
            calls: 0,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.place == Place::Ended
    }

    pub(super) fn left(&self) -> Left {
        match self.place {
            Place::Before => Left::between(self.calls, self.text.trim().is_empty() && !self.before.holds()),
            Place::Ended => Left::Nothing,
            _ => Left::Call,
        }
    }

    pub(super) fn read(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Step {
        loop {
            let step = match self.place {
                Place::Ended => Some(Step::Close),
                Place::Before => self.before(rest, special, emit),
                Place::Header => self.header(rest, special, emit),
                Place::Arguments => self.arguments(rest, special, emit),
                Place::Behind => self.behind(rest, special),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn before(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Option<Step> {
        match self.before.next(rest, special, |text| self.text.push_str(text)) {
            None => return Some(Step::More),
            Some(0) => self.place = Place::Header,
            Some(_) if self.calls == 0 => return Some(Step::closed(Fault::no_name())),
            Some(_) => self.place = Place::Ended,
        }
        let between = std::mem::take(&mut self.text);
        if between.trim().is_empty() {
            return None;
        }
        emit.text(&between);
        (self.place == Place::Header).then_some(Step::Told(self.spec.call))
    }

    fn header(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Option<Step> {
        match self.header.next(rest, special, |text| self.text.push_str(text)) {
            None => return Some(Step::More),
            Some(0) => {}
            Some(which) => {
                let fault =
                    Fault::new(CallProblem::NoArguments, "expected arguments, found the end of the call");
                return Some(Step::Fail { fault, closed: which == 1 });
            }
        }
        let text = std::mem::take(&mut self.text);
        let (name, id) = self.spec.header.parse(&text);
        let is_word =
            |word: &str| !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c == '<');
        if !is_word(name) || !id.is_none_or(is_word) {
            return Some(Step::fail(Fault::no_name()));
        }
        emit.start(name, id.map(str::to_owned));
        self.value = ValueEnd::default();
        let (text, _) = self.value.take(&mut "{");
        emit.arguments(text);
        self.place = Place::Arguments;
        None
    }

    fn arguments(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Option<Step> {
        let ended = self.end.is_special_piece(rest, special) || self.close.is_special_piece(rest, special);
        if self.value.in_string() && ended {
            let message = "expected the end of a string, found that of the call";
            return Some(Step::fail(Fault::new(CallProblem::InvalidJson, message)));
        }
        let (text, ended) = self.value.take(rest);
        emit.arguments(text);
        match ended {
            Err(fault) => return Some(Step::fail(fault)),
            Ok(false) => return Some(Step::More),
            Ok(true) if self.end.is_empty() => {
                self.place = Place::Ended;
                self.calls += 1;
                return Some(Step::Call);
            }
            Ok(true) => self.place = Place::Behind,
        }
        None
    }

    fn behind(&mut self, rest: &mut &str, special: bool) -> Option<Step> {
        if !self.end.begun() {
            *rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '`']);
        }
        if rest.is_empty() {
            return Some(Step::More);
        }
        Some(match self.end.take(rest, special) {
            Met::Partly => Step::More,
            Met::Not => Step::fail(Fault::syntax("expected the end of the call, found something else")),
            Met::Wholly => {
                self.place = if self.spec.end.is_empty() { Place::Ended } else { Place::Before };
                self.calls += 1;
                Step::Call
            }
        })
    }
}

impl Header {
    /// The name and, where there is one, the id.
    fn parse(self, text: &str) -> (&str, Option<&str>) {
        match self {
            Self::Kimi => {
                let id = text.trim().trim_end_matches("<|tool_call_argument_begin|>").trim();
                let name = id.strip_prefix("functions.").unwrap_or(id);
                (name.rsplit_once(':').map_or(name, |(name, _)| name), Some(id))
            }
            Self::DeepSeek => {
                let (first, second) = text.split_once("<｜tool▁sep｜>").unwrap_or((text, ""));
                let second = second.trim().trim_end_matches("```json").trim();
                (if second.is_empty() { first.trim() } else { second }, None)
            }
            Self::Mistral => {
                let text = text.trim().trim_end_matches("[ARGS]");
                match text.split_once("[CALL_ID]") {
                    Some((name, id)) => (name.trim(), Some(id.trim())),
                    None => (text.trim(), None),
                }
            }
            Self::Solar => {
                let text = text.trim().trim_end_matches("<|tool_call:args|>");
                match text.split_once("<|tool_call:name|>") {
                    Some((id, name)) => (name.trim(), Some(id.trim())),
                    None => ("", None),
                }
            }
            Self::Until(end) => (text.trim().trim_end_matches(end), None),
        }
    }
}
