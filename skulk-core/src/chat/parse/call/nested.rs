//! Which calls have elements named after their arguments, and values as elements within?

use serde_json::{Map, Value};

use super::{Frame, Left, Step};
use crate::chat::parse::delta::{CallProblem, Fault};
use crate::chat::parse::emit::Emitter;
use crate::chat::parse::format::Nested;
use crate::chat::parse::marker::{Scanner, Specials};

/// Levels that values may have.
const DEPTH: usize = 64;
/// Elements of a list.
const ITEM: &str = "item";

/// Reads calls as a whole, since a value's type is known behind it only.
#[derive(Debug, Clone)]
pub(super) struct Elements {
    spec: &'static Nested,
    between: Scanner,
    within: Scanner,
    in_call: bool,
    text: String,
    calls: usize,
}

impl Elements {
    pub(super) fn new(spec: &'static Nested, frame: Frame<'_>) -> Self {
        let specials: &Specials = frame.specials;
        let close = if specials.cover(frame.close) { frame.close } else { "" };
        Self {
            spec,
            between: Scanner::new(&[spec.call, frame.close], specials),
            within: Scanner::new(&[spec.call_end, close], specials),
            in_call: false,
            text: String::new(),
            calls: 0,
        }
    }

    pub(super) fn left(&self) -> Left {
        match self.in_call {
            false => Left::between(self.calls, self.text.trim().is_empty() && !self.between.holds()),
            true => Left::Call,
        }
    }

    pub(super) fn read(&mut self, rest: &mut &str, special: bool, emit: &mut Emitter) -> Step {
        loop {
            let scanner = if self.in_call { &mut self.within } else { &mut self.between };
            let Some(marker) = scanner.next(rest, special, |text| self.text.push_str(text)) else {
                return Step::More;
            };
            let text = std::mem::take(&mut self.text);
            if self.in_call {
                self.in_call = false;
                return match self.call(&text, emit) {
                    Ok(()) if marker == 0 => {
                        self.calls += 1;
                        Step::Call
                    }
                    Ok(()) => Step::closed(Fault::syntax("expected the rest of the call, found its end")),
                    Err(fault) => Step::Fail { fault, closed: marker == 1 },
                };
            }
            let told = !text.trim().is_empty() && (marker == 0 || self.calls > 0);
            if told {
                emit.text(&text);
            }
            match marker {
                0 => {
                    self.in_call = true;
                    if told {
                        return Step::Told(self.spec.call);
                    }
                }
                _ if self.calls == 0 => return Step::closed(Fault::no_name()),
                _ => return Step::Close,
            }
        }
    }

    /// The name and what follows it.
    fn call(&self, text: &str, emit: &mut Emitter) -> Result<(), Fault> {
        let (name, elements) = text.split_once("\">").ok_or_else(Fault::no_name)?;
        if name.is_empty() {
            return Err(Fault::no_name());
        }
        emit.start(name, None);
        let arguments = emit.tools.guess(name, self.value(elements)?);
        emit.arguments(&arguments.to_string());
        Ok(())
    }

    fn value(&self, elements: &str) -> Result<Value, Fault> {
        let wrong = || Fault::syntax("expected an element, found something else");
        let mut parts = elements.split(self.spec.prefix);
        let text = parts.next().unwrap_or_default().to_owned();
        let mut stack = vec![Element { text, ..Element::default() }];
        for part in parts {
            let (tag, text) =
                part.strip_prefix('<').and_then(|part| part.split_once('>')).ok_or_else(wrong)?;
            match tag.strip_prefix('/') {
                None if stack.len() == DEPTH => {
                    let message = format!("expected at most {DEPTH} levels, found more");
                    return Err(Fault::new(CallProblem::TooDeep, message));
                }
                None => {
                    stack.push(Element { name: tag.to_owned(), text: text.to_owned(), parts: Vec::new() })
                }
                Some(name) => {
                    let mut element = stack.pop().filter(|element| element.name == name).ok_or_else(wrong)?;
                    let parent = stack.last_mut().ok_or_else(wrong)?;
                    parent.text.push_str(text);
                    let name = std::mem::take(&mut element.name);
                    parent.parts.push((name, element.value().ok_or_else(wrong)?));
                }
            }
        }
        match (stack.pop(), stack.is_empty()) {
            (Some(root), true) if root.text.trim().is_empty() => {
                Ok(Value::Object(root.parts.into_iter().collect::<Map<_, _>>()))
            }
            (Some(_), true) => Err(wrong()),
            _ => Err(Fault::syntax("expected the end of an element, found that of the call")),
        }
    }
}

#[derive(Debug, Default)]
struct Element {
    name: String,
    /// What is in no part of it.
    text: String,
    parts: Vec<(String, Value)>,
}

impl Element {
    /// `None`: there is text beside parts.
    fn value(self) -> Option<Value> {
        if !self.parts.is_empty() && !self.text.trim().is_empty() {
            return None;
        }
        Some(if self.parts.is_empty() {
            Value::String(self.text)
        } else if self.parts.iter().all(|(name, _)| name == ITEM) {
            self.parts.into_iter().map(|(_, value)| value).collect()
        } else {
            Value::Object(self.parts.into_iter().collect())
        })
    }
}
