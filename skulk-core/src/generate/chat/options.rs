//! What may a caller ask of an answer?

use std::time::SystemTime;

use crate::card::ReasoningRequest;
use crate::chat::{Json, RenderOptions, Tool};
use crate::generate::GenerateOptions;
use crate::macros::setters;

/// Options of one answer. `Default`: nothing special.
///
/// What a model cannot do is refused, not left out: reasoning of a model that has none, or without it of one that always
/// reasons; an effort where nothing is told of it; tools where its template knows none; log-probabilities, which are
/// for [`Model::generate`](crate::Model::generate).
///
/// ```
/// use skulk::card::ReasoningEffort;
/// use skulk::{ChatOptions, GenerateOptions};
/// let options = ChatOptions::default()
///     .reasoning(ReasoningEffort::Low)
///     .reasoning_budget(200)
///     .generate(GenerateOptions::default().max_tokens(1000));
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ChatOptions {
    /// What belongs to the conversation: tools, how much the model is to reason, what its template asks for.
    pub render: RenderOptions,
    /// The most tokens that the model may reason; then its reasoning is ended, and it goes on with the answer. Calls within
    /// reasoning are not counted, and are left whole.
    pub reasoning_budget: Option<usize>,
    /// How tokens are chosen, how many there are, and what ends them. Stop strings are looked for in the answer's text,
    /// neither in its reasoning nor in calls.
    pub generate: GenerateOptions,
}

setters!(ChatOptions {
    /// Sets all that belongs to the conversation.
    render: RenderOptions;
    /// Lets the model reason for so many tokens at most.
    reasoning_budget: usize => Some(reasoning_budget);
    /// Generates like this.
    generate: GenerateOptions;
});

/// The setters of [`RenderOptions`].
impl ChatOptions {
    /// Sets what the model may call.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.render.tools = tools.into_iter().collect();
        self
    }

    /// Says how much the model is to reason: an effort, `true` or `false`, or both.
    #[must_use]
    pub fn reasoning(mut self, reasoning: impl Into<ReasoningRequest>) -> Self {
        self.render.reasoning = reasoning.into();
        self
    }

    /// Sets documents to answer from.
    #[must_use]
    pub fn documents(mut self, documents: impl IntoIterator<Item = Json>) -> Self {
        self.render.documents = documents.into_iter().collect();
        self
    }

    /// Sets a variable of the template's.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.render = self.render.variable(name, value);
        self
    }

    /// Chooses one of the model's templates.
    #[must_use]
    pub fn template(mut self, template: impl Into<String>) -> Self {
        self.render.template = Some(template.into());
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn now(mut self, now: SystemTime) -> Self {
        self.render.now = Some(now);
        self
    }

    /// Lets texts of special tokens in messages become these tokens.
    #[must_use]
    pub fn trust_messages(mut self, trust_messages: bool) -> Self {
        self.render.trust_messages = trust_messages;
        self
    }
}
