//! Which calls are elements, with one for each argument?

use serde_json::Value;

use super::{Frame, Left, Step};
use crate::chat::parse::delta::{CallProblem, Fault};
use crate::chat::parse::emit::{Emitter, escape};
use crate::chat::parse::format::{Tags, Values};
use crate::chat::parse::marker::{Scanner, Specials};

/// Reads elements.
#[derive(Debug, Clone)]
pub(super) struct Tagged {
    spec: &'static Tags,
    close: &'static str,
    specials: Specials,
    place: Place,
    scanner: Scanner,
    /// What was read at this place.
    text: String,
    calls: usize,
    arguments: usize,
    key: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Between,
    Name,
    InCall,
    Key,
    BeforeValue,
    Value,
    Whole,
    Ended,
}

/// What the argument that is being read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Text, passed on as it comes.
    Text {
        begun: bool,
    },
    /// JSON, says its tag.
    Json,
    Untyped,
}

impl Tagged {
    pub(super) fn new(spec: &'static Tags, frame: Frame<'_>) -> Self {
        let place = if spec.call.is_empty() { Place::Name } else { Place::Between };
        let mut tagged = Self {
            spec,
            close: frame.close,
            specials: frame.specials.clone(),
            place,
            scanner: Scanner::new(&[], frame.specials),
            text: String::new(),
            calls: 0,
            arguments: 0,
            key: String::new(),
            kind: Kind::Untyped,
        };
        tagged.go(place);
        tagged
    }

    pub(super) fn is_closed(&self) -> bool {
        self.place == Place::Ended
    }

    pub(super) fn left(&self) -> Left {
        match self.place {
            Place::Between => Left::between(self.calls, self.text.trim().is_empty() && !self.scanner.holds()),
            Place::Ended => Left::Nothing,
            _ => Left::Call,
        }
    }

    /// Goes on at this place. The first of its markers is the one that leads on, the second ends the call, the third
    /// all calls.
    fn go(&mut self, place: Place) {
        let (spec, close) = (self.spec, self.close);
        // Within a value, text like a marker is a value's; a special token is none.
        let real = |marker: &'static str| if self.specials.cover(marker) { marker } else { "" };
        let markers: &[&str] = match place {
            Place::Between => &[spec.call, "", close],
            Place::Name if spec.name_end.is_empty() => &[spec.key, spec.call_end, close],
            Place::Name => &[spec.name_end, "", close],
            Place::InCall => &[spec.key, spec.call_end, close, spec.whole.map_or("", |whole| whole.0)],
            Place::Key => &[spec.key_end, "", real(close)],
            Place::BeforeValue => &[spec.value, spec.call_end, close],
            Place::Value => &[spec.value_end, "", real(close)],
            Place::Whole => &[spec.whole.map_or("", |whole| whole.1), "", real(close)],
            Place::Ended => &[],
        };
        self.scanner = Scanner::new(markers, &self.specials);
        self.place = place;
        self.text.clear();
    }

    pub(super) fn read(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Step {
        loop {
            if self.place == Place::Ended {
                return Step::Close;
            }
            let marker = self.scanner.next(rest, special, |text| self.text.push_str(text));
            if let (Place::Value, Kind::Text { begun }) = (self.place, self.kind) {
                self.pass_on(begun, marker.is_some(), emit);
            }
            let Some(marker) = marker else { return Step::More };
            if let Some(step) = self.meet(marker, emit) {
                return step;
            }
        }
    }

    fn meet(&mut self, marker: usize, emit: &mut Emitter) -> Option<Step> {
        match (self.place, marker) {
            (Place::Between, 0) => {
                let told = self.between(emit);
                self.go(Place::Name);
                return told.then_some(Step::Told(self.spec.call));
            }
            (Place::Between, _) if self.calls == 0 => return Some(Step::closed(Fault::no_name())),
            (Place::Between, _) => {
                self.between(emit);
                self.go(Place::Ended);
            }
            (Place::Name, 0) => {
                if let Err(fault) = self.name(emit) {
                    return Some(Step::fail(fault));
                }
                let next = if self.spec.name_end.is_empty() { Place::Key } else { Place::InCall };
                self.go(next);
            }
            // A function without arguments.
            (Place::Name, end) if self.spec.name_end.is_empty() => {
                let closed = end == 2;
                if let Err(fault) = self.name(emit) {
                    return Some(Step::Fail { fault, closed });
                }
                return Some(self.call(closed, emit));
            }
            (Place::InCall, which) if !self.text.trim().is_empty() => {
                let fault = Fault::syntax("expected an argument, found text");
                return Some(Step::Fail { fault, closed: which == 2 });
            }
            (Place::InCall, 0) => self.go(Place::Key),
            (Place::InCall, 3) => self.go(Place::Whole),
            (Place::InCall, 1) => return Some(self.call(false, emit)),
            (Place::InCall, _) if self.spec.call_end.is_empty() => return Some(self.call(true, emit)),
            (Place::Key, 0) => {
                if let Err(fault) = self.key(emit) {
                    return Some(Step::fail(fault));
                }
                let next = if self.spec.value.is_empty() { Place::Value } else { Place::BeforeValue };
                self.go(next);
            }
            (Place::BeforeValue, 0) if self.text.trim().is_empty() => self.go(Place::Value),
            (Place::Value, 0) => {
                if let Err(fault) = self.value(emit) {
                    return Some(Step::fail(fault));
                }
                self.go(Place::InCall);
            }
            (Place::Whole, 0) => {
                let text = std::mem::take(&mut self.text);
                emit.arguments(&text);
                self.arguments = usize::MAX;
                self.go(Place::InCall);
            }
            (_, marker) => {
                let fault = Fault::syntax("expected the rest of the call, found its end");
                return Some(Step::Fail { fault, closed: marker == 2 });
            }
        }
        None
    }

    /// What lies between calls and is no white space is text. Whether there was any.
    fn between(&mut self, emit: &mut Emitter) -> bool {
        let some = !self.text.trim().is_empty();
        if some {
            emit.text(&self.text);
        }
        some
    }

    fn name(&mut self, emit: &mut Emitter) -> Result<(), Fault> {
        // What opens a call may be what opens them all: then its name is written as those of arguments are.
        let before = if self.spec.call.is_empty() { self.spec.key } else { self.spec.call };
        let name = attribute(before, &self.text).ok_or_else(Fault::no_name)?;
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || matches!(c, '<' | '{' | '"')) {
            return Err(Fault::no_name());
        }
        emit.start(name, None);
        self.arguments = 0;
        Ok(())
    }

    /// The call is whole.
    fn call(&mut self, closed: bool, emit: &mut Emitter) -> Step {
        match self.arguments {
            usize::MAX => {}
            0 => emit.arguments("{}"),
            _ => emit.arguments("}"),
        }
        self.calls += 1;
        self.go(if closed || self.spec.call.is_empty() { Place::Ended } else { Place::Between });
        Step::Call
    }

    fn key(&mut self, emit: &mut Emitter) -> Result<(), Fault> {
        let none = || Fault::syntax("expected an argument's name, found more");
        let key = attribute(self.spec.key, &self.text).ok_or_else(none)?.to_owned();
        let tag = &self.text[..];
        let is = |attribute: &str| tag.contains(attribute);
        self.kind = if is("string=\"true\"") || is("type=\"string\"") || is_text(self.spec, &key, emit) {
            Kind::Text { begun: false }
        } else if is("string=\"false\"") || is("type=\"") {
            Kind::Json
        } else {
            Kind::Untyped
        };
        self.key = key;
        Ok(())
    }

    /// What stands before an argument's value.
    fn lead(&mut self) -> String {
        let mut json = String::from(if self.arguments == 0 { "{" } else { ", " });
        self.arguments = self.arguments.saturating_add(1);
        json.push('"');
        escape(&self.key, &mut json);
        json.push_str("\": ");
        json
    }

    /// Passes on what is new of a text, but for a line break that may be the last.
    fn pass_on(&mut self, begun: bool, ended: bool, emit: &mut Emitter) {
        let lines = self.spec.values == Values::Lines;
        let mut json = String::new();
        if !begun {
            if self.text.is_empty() && !ended {
                return;
            }
            json = self.lead();
            json.push('"');
            self.kind = Kind::Text { begun: true };
        }
        let mut new = self.text.as_str();
        if lines && !begun {
            new = new.strip_prefix('\n').unwrap_or(new);
        }
        let last = if lines { new.strip_suffix('\n') } else { None };
        escape(last.unwrap_or(new), &mut json);
        let held = if last.is_some() && !ended { "\n" } else { "" };
        self.text.clear();
        self.text.push_str(held);
        if ended {
            json.push('"');
        }
        emit.arguments(&json);
    }

    /// The value is whole.
    fn value(&mut self, emit: &mut Emitter) -> Result<(), Fault> {
        if matches!(self.kind, Kind::Text { .. }) {
            return Ok(());
        }
        let text = match self.spec.values {
            Values::Lines => {
                let text = self.text.strip_prefix('\n').unwrap_or(&self.text);
                text.strip_suffix('\n').unwrap_or(text)
            }
            Values::Text => {
                let data = self.text.strip_prefix("<![CDATA[").and_then(|text| text.strip_suffix("]]>"));
                data.unwrap_or(&self.text)
            }
            Values::Json => &self.text,
        };
        let parsed = || serde_json::from_str::<Value>(text.trim());
        let value = match self.kind {
            Kind::Json => parsed().map_err(|e| {
                let message =
                    format!("expected the argument `{}` in JSON, found something else: {e}", self.key);
                Fault::new(CallProblem::InvalidJson, message)
            })?,
            _ => {
                let plain = || Value::String(text.to_owned());
                let declared = emit.tools.parse(emit.name(), &self.key, text);
                declared.unwrap_or_else(|| match self.spec.values {
                    Values::Json => parsed().unwrap_or_else(|_| plain()),
                    Values::Lines | Values::Text => plain(),
                })
            }
        };
        let json = format!("{}{value}", self.lead());
        emit.arguments(&json);
        Ok(())
    }
}

/// Whether a key's value is text for sure, and may be passed on as it comes.
fn is_text(spec: &Tags, key: &str, emit: &Emitter) -> bool {
    spec.values != Values::Text && emit.tools.is_text(emit.name(), key)
}

/// A name; where a quote is open before it, without the closing one and attributes behind it. `None`: there is something else.
fn attribute<'a>(before: &str, text: &'a str) -> Option<&'a str> {
    let text = text.trim();
    if !before.ends_with('"') {
        return Some(text);
    }
    let (name, rest) = text.split_once('"').unwrap_or((text, ""));
    let known = |attribute: &str| {
        let value =
            attribute.split_once("=\"").filter(|(name, _)| ["string", "type", "index"].contains(name));
        value.and_then(|(_, value)| value.strip_suffix('"')).is_some_and(|value| value.is_ascii())
    };
    rest.split_whitespace().all(known).then_some(name)
}
