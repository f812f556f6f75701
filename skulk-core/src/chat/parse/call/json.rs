//! Which calls do JSON objects make? `{"name": …, "arguments": …}`, alone, in a list or one after the other.

use super::value::ValueEnd;
use super::{Frame, Left, Step};
use crate::chat::parse::delta::{CallProblem, Fault};
use crate::chat::parse::emit::Emitter;
use crate::chat::parse::format::Json;
use crate::chat::parse::marker::{Expected, Met};

/// Reads objects with a name and arguments.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    shape: Json,
    close: Expected,
    /// Only what is sure to be a call is told; anything else in an object ends the guess.
    guessed: bool,
    place: Place,
    in_list: bool,
    calls: usize,
    value: ValueEnd,
    /// The key or value that is being read, where it is kept.
    kept: String,
    name: Option<String>,
    id: Option<String>,
    arguments: Arguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where an object may begin.
    Outside,
    Key,
    InKey,
    Colon,
    Value(Field),
    Between,
    /// Behind the object or the list, before the close marker.
    Whole {
        due: bool,
    },
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Id,
    Arguments,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Arguments {
    Missing,
    /// Their text is passed on, or kept until the name is known.
    Object(Option<String>),
    /// Something else; a string may hold JSON.
    Text(String),
}

impl Objects {
    pub(super) fn new(shape: Json, frame: Frame<'_>, guessed: bool) -> Self {
        Self {
            shape,
            close: Expected::new(frame.close, frame.specials),
            guessed,
            place: Place::Outside,
            in_list: shape.in_list,
            calls: 0,
            value: ValueEnd::default(),
            kept: String::new(),
            name: None,
            id: None,
            arguments: Arguments::Missing,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.place == Place::Ended
    }

    pub(super) fn left(&self) -> Left {
        match self.place {
            Place::Outside | Place::Whole { due: false } => Left::between(self.calls, !self.close.begun()),
            Place::Ended => Left::Nothing,
            _ => Left::Call,
        }
    }

    pub(super) fn read(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Step {
        loop {
            if self.place == Place::Ended {
                return Step::Close;
            }
            if self.close.begun() {
                return self.closing(rest, special);
            }
            if self.value.in_string() && self.close.is_special_piece(rest, special) {
                let fault = Fault::new(
                    CallProblem::InvalidJson,
                    "expected the end of a string, found that of the call",
                );
                return Step::fail(fault);
            }
            let in_value =
                self.place == Place::InKey || matches!(self.place, Place::Value(_)) && !self.value.is_fresh();
            if !in_value {
                *rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            }
            let Some(first) = rest.bytes().next() else { return Step::More };
            let step = match self.place {
                Place::Outside => self.outside(first, rest, special),
                Place::Whole { .. } => Some(self.closing(rest, special)),
                Place::Key => self.key(first, rest, emit),
                Place::InKey => self.in_key(rest),
                Place::Colon => self.colon(first, rest),
                Place::Value(field) => self.value(field, first, rest, emit),
                Place::Between => self.between(first, rest, emit),
                Place::Ended => Some(Step::Close),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn outside(&mut self, first: u8, rest: &mut &str, special: bool) -> Option<Step> {
        match first {
            b'{' => {
                self.place = Place::Key;
                (self.name, self.id, self.arguments) = (None, None, Arguments::Missing);
            }
            b'[' if !self.in_list && self.calls == 0 => self.in_list = true,
            b',' if self.in_list && self.calls > 0 => {}
            b']' if self.in_list => {
                self.in_list = false;
                self.place = if self.close.is_empty() { Place::Ended } else { Place::Whole { due: false } };
                if self.calls == 0 && self.close.is_empty() {
                    return Some(Step::closed(Fault::no_name()));
                }
            }
            _ => return Some(self.closing(rest, special)),
        }
        *rest = &rest[1..];
        None
    }

    /// The close marker must be next.
    fn closing(&mut self, rest: &mut &str, special: bool) -> Step {
        if self.close.is_empty() {
            // One after the other, and this is none.
            self.place = Place::Ended;
            return if self.calls > 0 { Step::Close } else { Step::fail(Fault::no_name()) };
        }
        match self.close.take(rest, special) {
            Met::Partly => Step::More,
            Met::Not => Step::fail(Fault::syntax("expected the end of the call, found something else")),
            Met::Wholly => {
                let due = self.place == Place::Whole { due: true };
                self.place = Place::Ended;
                match (due, self.calls) {
                    (true, _) => self.whole(),
                    (false, 0) => Step::closed(Fault::no_name()),
                    (false, _) => Step::Close,
                }
            }
        }
    }

    fn whole(&mut self) -> Step {
        self.calls += 1;
        Step::Call
    }

    fn key(&mut self, first: u8, rest: &mut &str, emit: &mut Emitter) -> Option<Step> {
        match first {
            b'"' => {
                self.place = Place::InKey;
                self.value = ValueEnd::default();
                self.kept.clear();
                None
            }
            b'}' => {
                *rest = &rest[1..];
                self.object(emit)
            }
            _ => Some(Step::fail(Fault::syntax("expected a key of an object, found something else"))),
        }
    }

    fn in_key(&mut self, rest: &mut &str) -> Option<Step> {
        let (text, ended) = self.value.take(rest);
        self.kept.push_str(text);
        match ended {
            Err(fault) => Some(Step::fail(fault)),
            Ok(false) => Some(Step::More),
            Ok(true) => {
                self.place = Place::Colon;
                None
            }
        }
    }

    fn colon(&mut self, first: u8, rest: &mut &str) -> Option<Step> {
        if first != b':' {
            return Some(Step::fail(Fault::syntax("expected a colon behind a key, found something else")));
        }
        let Ok(key) = serde_json::from_str::<String>(&self.kept) else {
            return Some(Step::fail(Fault::syntax("expected a key of an object, found no JSON string")));
        };
        let field = match key.as_str() {
            _ if self.shape.name_is_key && self.name.is_none() => {
                self.name = Some(key);
                Field::Arguments
            }
            "name" | "tool_name" => Field::Name,
            "arguments" | "parameters" => Field::Arguments,
            "id" | "tool_call_id" | "call_id" => Field::Id,
            "type" => Field::Other,
            _ if self.guessed && self.arguments == Arguments::Missing => {
                return Some(Step::fail(Fault::syntax("expected a call, found another object")));
            }
            _ => Field::Other,
        };
        let twice = match field {
            Field::Name => self.name.is_some(),
            Field::Arguments => self.arguments != Arguments::Missing,
            Field::Id => self.id.is_some(),
            Field::Other => false,
        };
        if twice {
            return Some(Step::fail(Fault::syntax("expected each key once, found one twice")));
        }
        *rest = &rest[1..];
        self.place = Place::Value(field);
        self.value = ValueEnd::default();
        self.kept.clear();
        None
    }

    fn value(&mut self, field: Field, first: u8, rest: &mut &str, emit: &mut Emitter) -> Option<Step> {
        if field == Field::Arguments && self.value.is_fresh() {
            self.arguments = match first {
                b'{' => Arguments::Object(None),
                _ => Arguments::Text(String::new()),
            };
            if first == b'{' {
                self.start(emit);
                if self.guessed && !emit.is_started() {
                    return Some(Step::fail(Fault::syntax(
                        "expected a known function, found another object",
                    )));
                }
                if !emit.is_started() {
                    self.arguments = Arguments::Object(Some(String::new()));
                }
            }
        }
        let (text, ended) = self.value.take(rest);
        match (&mut self.arguments, field) {
            (Arguments::Object(None), Field::Arguments) => emit.arguments(text),
            (Arguments::Object(Some(kept)) | Arguments::Text(kept), Field::Arguments) => kept.push_str(text),
            (_, Field::Name | Field::Id) => self.kept.push_str(text),
            _ => {}
        }
        match ended {
            Err(fault) => return Some(Step::fail(fault)),
            Ok(false) => return Some(Step::More),
            Ok(true) => self.place = Place::Between,
        }
        match field {
            Field::Name => match serde_json::from_str::<String>(&self.kept) {
                Ok(name) if !name.is_empty() => {
                    self.name = Some(name);
                    if !self.guessed || self.arguments != Arguments::Missing {
                        self.start(emit);
                    }
                }
                _ => return Some(Step::fail(Fault::no_name())),
            },
            Field::Id => {
                let id = serde_json::from_str(&self.kept).unwrap_or_else(|_| self.kept.clone());
                emit.identify(id.clone());
                self.id = Some(id);
            }
            Field::Arguments | Field::Other => {}
        }
        None
    }

    /// Tells of the call, once its name is known, and of the arguments that were kept until then.
    fn start(&mut self, emit: &mut Emitter) {
        let Some(name) = self.name.as_deref().filter(|_| !emit.is_started()) else { return };
        if self.guessed && !emit.tools.allow(name) {
            return;
        }
        emit.start(name, self.id.clone());
        if let Arguments::Object(kept @ Some(_)) = &mut self.arguments {
            emit.arguments(&kept.take().unwrap_or_default());
        }
    }

    fn between(&mut self, first: u8, rest: &mut &str, emit: &mut Emitter) -> Option<Step> {
        match first {
            b',' => self.place = Place::Key,
            b'}' => {
                *rest = &rest[1..];
                return self.object(emit);
            }
            _ => {
                return Some(Step::fail(Fault::syntax(
                    "expected a comma or the end of an object, found neither",
                )));
            }
        }
        *rest = &rest[1..];
        None
    }

    /// The object is whole.
    fn object(&mut self, emit: &mut Emitter) -> Option<Step> {
        if self.arguments != Arguments::Missing {
            self.start(emit);
        }
        if !emit.is_started() {
            return Some(Step::fail(Fault::no_name()));
        }
        match &self.arguments {
            Arguments::Missing => {
                let missing = Fault::new(CallProblem::NoArguments, "expected `arguments`, found none");
                return Some(Step::fail(missing));
            }
            Arguments::Object(_) => {}
            // JSON within a string.
            Arguments::Text(text) => {
                emit.arguments(&serde_json::from_str::<String>(text).unwrap_or_else(|_| text.clone()));
            }
        }
        if self.in_list || self.shape.sequence {
            self.place = Place::Outside;
        } else if self.close.is_empty() {
            self.place = Place::Ended;
        } else {
            self.place = Place::Whole { due: true };
            return None;
        }
        Some(self.whole())
    }
}
