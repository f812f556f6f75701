//! What has been found so far? Deltas in their order, and the call that is being written.

use serde_json::Value;

use super::delta::{CallProblem, Delta, Fault, MalformedCall, ToolCall};
use super::schema::Tools;

/// Collects deltas.
#[derive(Debug, Clone, Default)]
pub(super) struct Emitter {
    pub(super) out: Vec<Delta>,
    pub(super) tools: Tools,
    /// The next call's index.
    next: usize,
    call: Option<Open>,
}

/// A call that was started.
#[derive(Debug, Clone)]
struct Open {
    id: Option<String>,
    name: String,
    /// Its arguments so far.
    json: String,
}

impl Emitter {
    pub(super) fn new(tools: Tools) -> Self {
        Self { tools, ..Self::default() }
    }

    pub(super) fn text(&mut self, new: &str) {
        match self.out.last_mut() {
            Some(Delta::Text { text }) => text.push_str(new),
            _ if new.is_empty() => {}
            _ => self.out.push(Delta::Text { text: new.to_owned() }),
        }
    }

    pub(super) fn reasoning(&mut self, new: &str) {
        match self.out.last_mut() {
            Some(Delta::Reasoning { text }) => text.push_str(new),
            _ if new.is_empty() => {}
            _ => self.out.push(Delta::Reasoning { text: new.to_owned() }),
        }
    }

    /// A call begins.
    pub(super) fn start(&mut self, name: &str, id: Option<String>) {
        self.out.push(Delta::CallStarted { index: self.next, id: id.clone(), name: name.to_owned() });
        self.call = Some(Open { id, name: name.to_owned(), json: String::new() });
    }

    /// The call that was started has this id.
    pub(super) fn identify(&mut self, id: String) {
        if let Some(call) = &mut self.call {
            call.id = Some(id);
        }
    }

    /// Whether a call was started and has not ended.
    pub(super) fn is_started(&self) -> bool {
        self.call.is_some()
    }

    /// The function that is being called.
    pub(super) fn name(&self) -> &str {
        self.call.as_ref().map_or("", |call| &call.name)
    }

    /// More of its arguments.
    pub(super) fn arguments(&mut self, new: &str) {
        let Some(call) = &mut self.call else { return };
        call.json.push_str(new);
        match self.out.last_mut() {
            Some(Delta::CallArguments { text, .. }) => text.push_str(new),
            _ if new.is_empty() => {}
            _ => self.out.push(Delta::CallArguments { index: self.next, text: new.to_owned() }),
        }
    }

    /// The call is whole.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        let call = self.call.as_ref().ok_or_else(Fault::no_name)?;
        let arguments: Value = serde_json::from_str(&call.json).map_err(|e| match e.is_eof() {
            true => {
                Fault::new(CallProblem::Unfinished, "expected the rest of the arguments, found their end")
            }
            false => Fault::new(
                CallProblem::InvalidJson,
                format!("expected arguments in JSON, found something else: {e}"),
            ),
        })?;
        if !arguments.is_object() {
            return Err(Fault::new(
                CallProblem::NoArguments,
                "expected arguments, an object; found no object",
            ));
        }
        let arguments = self.tools.convert(&call.name, arguments);
        let (id, name) = (call.id.clone(), call.name.clone());
        let call = ToolCall { id, name, arguments };
        self.out.push(Delta::CallFinished { index: self.next, call });
        self.call = None;
        self.next += 1;
        Ok(())
    }

    /// The call is none.
    pub(super) fn fail(&mut self, fault: Fault, raw: String) {
        let name = self.call.take().map(|call| call.name);
        let Fault { problem, message } = fault;
        let call = MalformedCall { name, raw, problem, message };
        self.out.push(Delta::CallMalformed { index: self.next, call });
        self.next += 1;
    }
}

/// Appends `text` as the inside of a JSON string.
pub(super) fn escape(text: &str, json: &mut String) {
    let quoted = Value::String(text.to_owned()).to_string();
    json.push_str(&quoted[1..quoted.len() - 1]);
}
