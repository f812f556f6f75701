//! Which calls are written like a programming language's? `f(a=1, b="x")`, or `call:f{a:1}`.

use serde_json::Value;

use super::words::{self, Escaped};
use super::{Frame, Left, Step};
use crate::chat::parse::delta::{CallProblem, Delta, Fault};
use crate::chat::parse::emit::{Emitter, escape};
use crate::chat::parse::format::Dialect;
use crate::chat::parse::marker::{Expected, Met, Scanner, Specials};

/// Levels that values may have.
const DEPTH: usize = 64;

/// Writes what it reads as JSON.
#[derive(Debug, Clone)]
pub(super) struct Literals {
    dialect: &'static Dialect,
    close: Expected,
    /// Before calls, where something begins them.
    before: Scanner,
    /// The beginning of a string, where that is a marker, and its end.
    quote: Expected,
    quoted: Scanner,
    place: Place,
    /// What closes each container, from the outermost.
    stack: Vec<char>,
    /// Something stands before, so that a comma must.
    follows: bool,
    kept: String,
    json: String,
    calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    Name,
    Key,
    BareKey,
    Assign,
    Value,
    Bare,
    /// Within quotes, or within markers.
    Text {
        of_key: bool,
        quote: Option<char>,
    },
    /// Behind a backslash.
    Escape {
        of_key: bool,
        quote: char,
    },
    /// The digits of a character's number, and how many are to come.
    Digits {
        of_key: bool,
        quote: char,
        left: u8,
    },
    After,
    Ended,
}

impl Literals {
    pub(super) fn new(dialect: &'static Dialect, frame: Frame<'_>) -> Self {
        Self {
            dialect,
            close: Expected::new(frame.close, frame.specials),
            before: Scanner::new(&[dialect.call, frame.close], frame.specials),
            quote: Expected::new(dialect.quote, frame.specials),
            quoted: Scanner::new(&[dialect.quote], frame.specials),
            place: Place::Before,
            stack: Vec::new(),
            follows: false,
            kept: String::new(),
            json: String::new(),
            calls: 0,
        }
    }

    pub(super) fn left(&self) -> Left {
        let held = self.before.holds() || self.close.begun();
        match self.place {
            Place::Before => Left::between(self.calls, self.kept.trim().is_empty() && !held),
            Place::Ended => Left::Nothing,
            _ => Left::Call,
        }
    }

    pub(super) fn read(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Step {
        loop {
            let step = match self.place {
                Place::Ended => Some(Step::Close),
                Place::Before if self.dialect.call.is_empty() => self.open(rest, special),
                Place::Before => self.find(rest, special, emit),
                _ if self.close.is_special_piece(rest, special) => {
                    Some(Step::fail(Fault::syntax("expected the rest of the call, found its end")))
                }
                Place::Text { of_key, quote: None } => self.marked(of_key, rest, special),
                Place::Key | Place::Value if self.quote.begun() || self.at_quote(rest) => {
                    self.quote(rest, special)
                }
                _ => self.character(rest, emit),
            };
            if let Some(step) = step {
                emit.arguments(&std::mem::take(&mut self.json));
                if matches!(step, Step::Call) {
                    self.calls += 1;
                    self.kept.clear();
                    self.place = if self.close.is_empty() { Place::Ended } else { Place::Before };
                }
                return step;
            }
        }
    }

    /// Calls in a list, or one alone.
    fn open(&mut self, rest: &mut &str, special: bool) -> Option<Step> {
        if !self.close.begun() {
            *rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '[', ']', ',', ';']);
        }
        let Some(first) = rest.chars().next() else { return Some(Step::More) };
        if !self.close.begun() && (first.is_alphabetic() || first == '_') {
            self.place = Place::Name;
            self.kept.clear();
            return None;
        }
        Some(match self.close.take(rest, special) {
            Met::Partly => Step::More,
            Met::Wholly if self.calls > 0 => Step::Close,
            Met::Wholly => Step::closed(Fault::no_name()),
            Met::Not => Step::fail(Fault::syntax("expected the name of a function, found something else")),
        })
    }

    /// Calls behind markers of their own; what lies between and is no white space is text.
    fn find(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Option<Step> {
        let opens = match self.before.next(rest, special, |text| self.kept.push_str(text)) {
            None => return Some(Step::More),
            Some(0) => true,
            Some(_) if self.calls == 0 => return Some(Step::closed(Fault::no_name())),
            Some(_) => false,
        };
        let between = std::mem::take(&mut self.kept);
        let told = !between.trim().is_empty();
        if told {
            emit.text(&between);
        }
        if !opens {
            return Some(Step::Close);
        }
        self.place = Place::Name;
        told.then_some(Step::Told(self.dialect.call))
    }

    /// Whether the marker of strings may be next.
    fn at_quote(&self, rest: &str) -> bool {
        !self.quote.is_empty() && rest.trim_start().starts_with('<')
    }

    fn quote(&mut self, rest: &mut &str, special: bool) -> Option<Step> {
        if !self.quote.begun() {
            *rest = rest.trim_start();
        }
        match self.quote.take(rest, special) {
            Met::Partly => Some(Step::More),
            Met::Not => Some(Step::fail(Fault::syntax("expected a value, found something else"))),
            Met::Wholly => {
                self.begin_text(None);
                None
            }
        }
    }

    /// A string between markers.
    fn marked(&mut self, of_key: bool, rest: &mut &str, special: bool) -> Option<Step> {
        let json = &mut self.json;
        let ended = self.quoted.next(rest, special, |text| escape(text, json));
        if ended.is_none() {
            return Some(Step::More);
        }
        self.end_text(of_key);
        None
    }

    fn character(&mut self, rest: &mut &str, emit: &mut Emitter) -> Option<Step> {
        let Some(c) = rest.chars().next() else { return Some(Step::More) };
        match self.step(c, emit) {
            Ok(Taken::Not) => None,
            Ok(taken) => {
                *rest = &rest[c.len_utf8()..];
                (taken == Taken::Call).then_some(Step::Call)
            }
            Err(fault) => Some(Step::fail(fault)),
        }
    }

    fn step(&mut self, c: char, emit: &mut Emitter) -> Result<Taken, Fault> {
        let wrong =
            |what: &str| Err(Fault::syntax(format!("expected {what}, found `{}`", c.escape_default())));
        match self.place {
            Place::Name if c == self.dialect.open => {
                let name = std::mem::take(&mut self.kept);
                let name = name.strip_suffix(self.dialect.suffix).unwrap_or(&name);
                if name.is_empty() {
                    return Err(Fault::no_name());
                }
                emit.start(name, None);
                self.push(if c == '(' { ')' } else { '}' }, '{')?;
            }
            Place::Name if c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/') => {
                self.kept.push(c)
            }
            Place::Name => return wrong("the name of a function and its arguments"),
            Place::Key | Place::Value | Place::After | Place::Assign if c.is_whitespace() => {}
            Place::Key if Some(&c) == self.stack.last() => return Ok(self.pop()),
            Place::Key if self.is_quote(c) => self.begin_text(Some(c)),
            Place::Key if matches!(c, ',' | '{' | '}' | '[' | ']' | '(' | ')') => {
                return wrong("the name of an argument");
            }
            Place::Key => {
                self.kept.clear();
                self.kept.push(c);
                self.place = Place::BareKey;
            }
            Place::BareKey if c == self.assign() => {
                let key = std::mem::take(&mut self.kept);
                self.lead();
                self.json.push('"');
                escape(key.trim(), &mut self.json);
                self.json.push_str("\": ");
                self.place = Place::Value;
            }
            Place::BareKey if matches!(c, ',' | '{' | '}' | '[' | ']' | '(' | ')') => {
                return wrong("the value of an argument");
            }
            Place::BareKey | Place::Bare
                if !(self.place == Place::Bare && matches!(c, ',' | '}' | ']' | ')')) =>
            {
                self.kept.push(c);
            }
            Place::Assign if c == self.assign() => {
                self.json.push_str(": ");
                self.place = Place::Value;
            }
            Place::Assign => return wrong("the value of an argument"),
            Place::Value if c == '{' => self.push('}', '{')?,
            Place::Value if c == '[' => self.push(']', '[')?,
            Place::Value if c == '(' => self.push(')', '[')?,
            Place::Value if self.in_list() && Some(&c) == self.stack.last() => return Ok(self.pop()),
            Place::Value if self.is_quote(c) => self.begin_text(Some(c)),
            Place::Value if matches!(c, ',' | '}' | ']' | ')') => return wrong("a value"),
            Place::Value => {
                self.kept.clear();
                self.kept.push(c);
                self.place = Place::Bare;
            }
            Place::Bare => {
                let word = std::mem::take(&mut self.kept);
                self.lead_item();
                self.json.push_str(&words::word(word.trim()));
                self.place = Place::After;
                return Ok(Taken::Not);
            }
            Place::After if c == ',' => self.place = if self.in_list() { Place::Value } else { Place::Key },
            Place::After if Some(&c) == self.stack.last() => return Ok(self.pop()),
            Place::After => return wrong("a comma or the end of a value"),
            Place::Text { of_key, quote: Some(quote) } => match c {
                '\\' => self.place = Place::Escape { of_key, quote },
                _ if c == quote => self.end_text(of_key),
                _ => escape(c.encode_utf8(&mut [0; 4]), &mut self.json),
            },
            Place::Escape { of_key, quote } => self.escaped(c, of_key, quote),
            Place::Digits { of_key, quote, left } => {
                if !c.is_ascii_hexdigit() {
                    return wrong("a hexadecimal digit");
                }
                self.kept.push(c);
                self.place = Place::Digits { of_key, quote, left: left - 1 };
                if left == 1 {
                    let number = u32::from_str_radix(&self.kept, 16).ok().and_then(char::from_u32);
                    let text = number.unwrap_or(char::REPLACEMENT_CHARACTER);
                    escape(text.encode_utf8(&mut [0; 4]), &mut self.json);
                    self.place = Place::Text { of_key, quote: Some(quote) };
                }
            }
            _ => return wrong("a call"),
        }
        Ok(Taken::Yes)
    }

    /// What stands behind a key here.
    fn assign(&self) -> char {
        if self.stack.len() == 1 { self.dialect.assign } else { ':' }
    }

    fn is_quote(&self, c: char) -> bool {
        self.dialect.quote.is_empty() && matches!(c, '"' | '\'')
    }

    fn in_list(&self) -> bool {
        self.stack.len() > 1 && self.stack.last() != Some(&'}')
    }

    /// A comma, where something stands before.
    fn lead(&mut self) {
        if self.follows {
            self.json.push_str(", ");
        }
        self.follows = true;
    }

    /// The same before values; behind a key there is none.
    fn lead_item(&mut self) {
        if self.in_list() {
            self.lead();
        }
    }

    fn push(&mut self, closer: char, json: char) -> Result<(), Fault> {
        if self.stack.len() == DEPTH {
            let message = format!("expected at most {DEPTH} levels, found more");
            return Err(Fault::new(CallProblem::TooDeep, message));
        }
        self.lead_item();
        self.stack.push(closer);
        self.json.push(json);
        self.follows = false;
        self.place = if json == '{' { Place::Key } else { Place::Value };
        Ok(())
    }

    fn pop(&mut self) -> Taken {
        let object = !self.in_list();
        self.stack.pop();
        self.json.push(if object { '}' } else { ']' });
        self.follows = true;
        self.place = Place::After;
        if self.stack.is_empty() {
            self.follows = false;
            return Taken::Call;
        }
        Taken::Yes
    }

    fn begin_text(&mut self, quote: Option<char>) {
        let of_key = self.place == Place::Key;
        if of_key {
            self.lead();
        } else {
            self.lead_item();
        }
        self.json.push('"');
        self.place = Place::Text { of_key, quote };
    }

    fn end_text(&mut self, of_key: bool) {
        self.json.push('"');
        self.place = if of_key { Place::Assign } else { Place::After };
    }

    fn escaped(&mut self, c: char, of_key: bool, quote: char) {
        self.place = Place::Text { of_key, quote: Some(quote) };
        match words::escaped(c) {
            Escaped::Text(text) => escape(text, &mut self.json),
            Escaped::Itself => escape(c.encode_utf8(&mut [0; 4]), &mut self.json),
            Escaped::Digits(left) => {
                self.kept.clear();
                self.place = Place::Digits { of_key, quote, left };
            }
            Escaped::Nothing => {
                escape("\\", &mut self.json);
                escape(c.encode_utf8(&mut [0; 4]), &mut self.json);
            }
        }
    }
}

/// The value of a text in Python's notation.
pub(in crate::chat::parse) fn python(text: &str) -> Option<Value> {
    let dialect = &Dialect { call: "", open: '(', assign: '=', quote: "", suffix: "" };
    let mut reader = Literals::new(dialect, Frame { close: "", specials: &Specials::default() });
    let mut emit = Emitter::default();
    let call = format!("f(x={text})");
    let mut rest = call.as_str();
    let step = reader.read(&mut rest, false, &mut emit);
    let whole = matches!(step, Step::Call) && rest.is_empty() && emit.finish().is_ok();
    match emit.out.pop() {
        Some(Delta::CallFinished { call, .. }) if whole => call.arguments.get("x").cloned(),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Yes,
    /// It is looked at once more.
    Not,
    Call,
}
