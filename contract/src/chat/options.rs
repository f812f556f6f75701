//! What may hosts ask of an answer? Options by name.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use skulk::OnToolFailure;
use skulk::card::{ReasoningEffort, ReasoningRequest};
use skulk::chat::{Json, Tool};

use crate::functions::read;
use crate::given::{Given, Leaf, Object, Objects, Spelling};
use crate::options::{ChoiceOptions, options};

/// How much a model is to reason: whether at all, or an effort.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReasoningChoice(pub ReasoningRequest);

/// Turns reasoning on and off, as `true` and `false` do.
const SWITCH: [(&str, bool, &str); 2] =
    [("on", true, "Reasoning, as much as the model likes."), ("off", false, "No reasoning.")];

impl Leaf for ReasoningChoice {
    fn expected() -> String {
        let names = SWITCH.iter().map(|(name, ..)| format!("`{name}`"));
        let efforts = ReasoningEffort::ALL.iter().map(|effort| format!("`{effort}`"));
        format!("true, false, {}", names.chain(efforts).collect::<Vec<_>>().join(", "))
    }

    fn read(value: &Value) -> Option<Self> {
        if let Some(thinks) = value.as_bool() {
            return Some(Self(thinks.into()));
        }
        let name = value.as_str()?;
        match SWITCH.iter().find(|(word, ..)| *word == name) {
            Some((_, thinks, _)) => Some(Self((*thinks).into())),
            None => Some(Self(name.parse::<ReasoningEffort>().ok()?.into())),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ReasoningChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ReasoningChoice".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let one = |name: &str, doc: &str| schemars::json_schema!({"const": name, "description": doc});
        let efforts = ReasoningEffort::ALL.iter().map(|effort| (effort.as_str(), ""));
        let all = SWITCH.iter().map(|(name, _, doc)| (*name, *doc)).chain(efforts);
        let all: Vec<_> = all.map(|(name, doc)| one(name, doc)).collect();
        schemars::json_schema!({
            "description": "How much a model is to reason: whether at all, or an effort.",
            "format": "switch",
            "oneOf": all,
        })
    }
}

options! {
    /// Options of a prompt.
    RenderOptions of (options: skulk::chat::RenderOptions) {
        /// What the model may call: functions of OpenAI's shape, each with a JSON Schema of its arguments.
        tools: Objects => options.tools = Tool::list_from_json(&tools.0)?,
        /// How much the model is to reason; by default as much as it likes. What it cannot do is refused.
        reasoning: ReasoningChoice => options.reasoning = reasoning.0,
        /// Documents to answer from, for templates that know them.
        documents: Objects => options.documents = read("documents", &documents.0)?,
        /// Further variables of the template, by name.
        variables: Object => for (name, value) in object("variables", &variables.0)? {
            options = options.variable(&name, value);
        },
        /// Which of the model's templates; by default the one for tools where tools are given, else the usual one.
        template: String => options.template = Some(template),
        /// The time, for templates that tell it, in seconds since 1970; by default the system's clock, in UTC.
        now: u32 => options.now = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(now.into())),
        /// Texts of special tokens in messages, tools and documents become these tokens: whoever writes them can write
        /// turns.
        trust_messages: bool => options.trust_messages = trust_messages,
    }
}

options! {
    /// Options of an answer.
    ChatOptions of (
        options: skulk::ChatOptions,
        with render: RenderOptions => options.render = render,
        with choice: ChoiceOptions => options.generate = choice
    ) {
        /// Tokens that the model may reason at most; then its reasoning is ended, and it goes on with the answer.
        reasoning_budget: usize => options.reasoning_budget = Some(reasoning_budget),
    }
}

/// How often functions are called, and what happens where they fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounds {
    /// Answers at most.
    pub max: usize,
    /// What happens where a function fails.
    pub on_failure: OnToolFailure,
}

impl Default for Rounds {
    fn default() -> Self {
        let skulk::Toolbox { max_rounds, on_failure, .. } = skulk::Toolbox::default();
        Self { max: max_rounds, on_failure }
    }
}

options! {
    /// Options of a conversation in which the model calls functions.
    ToolOptions of (rounds: Rounds) {
        /// Answers at most, 8 by default; calls of the last one get no results.
        max_rounds: usize => rounds.max = max_rounds,
        /// What happens where a function fails; `tell` by default.
        on_tool_failure: OnToolFailure => rounds.on_failure = on_tool_failure,
    }
}

fn object(field: &'static str, text: &str) -> skulk::Result<Vec<(String, Json)>> {
    match read(field, text)? {
        Json::Object(fields) => Ok(fields),
        _ => Err(skulk::Error::new(
            skulk::ErrorKind::InvalidArgument,
            "expected an object, found something else",
        )
        .with("field", field)),
    }
}
