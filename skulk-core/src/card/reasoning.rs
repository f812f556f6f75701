//! How much does a model reason on this request? What was asked for, made possible for the model.

use serde::Serialize;

use super::profile::Profile;
use super::schema::ReasoningEffort;
use crate::macros::setters;

/// What a request says about reasoning; also what is left of it for a given model.
///
/// `Default`: nothing.
///
/// ```
/// use skulk::card::{Profile, ProfileHints, ReasoningEffort, ReasoningRequest};
/// let profile = Profile::resolve("Qwen/Qwen3-8B", None, &ProfileHints::default());
/// let asked = ReasoningRequest::default().enable_thinking(true);
/// assert_eq!(profile.reasoning(asked).effort, Some(ReasoningEffort::Medium));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ReasoningRequest {
    /// How much.
    pub effort: Option<ReasoningEffort>,
    /// Whether at all.
    pub enable_thinking: Option<bool>,
}

setters!(ReasoningRequest {
    /// Asks for this much.
    effort: ReasoningEffort => Some(effort);
    /// Asks for reasoning, or for none.
    enable_thinking: bool => Some(enable_thinking);
});

impl From<ReasoningEffort> for ReasoningRequest {
    fn from(effort: ReasoningEffort) -> Self {
        Self::default().effort(effort)
    }
}

impl From<bool> for ReasoningRequest {
    fn from(enable_thinking: bool) -> Self {
        Self::default().enable_thinking(enable_thinking)
    }
}

impl Profile {
    /// The profile to read requests by while nothing is known of the model: it reasons, on request only, as
    /// much as is asked for. Whatever a request says is kept.
    pub fn permissive() -> Self {
        Self {
            supports_thinking: true,
            supports_thinking_toggle: true,
            supports_thinking_budget: true,
            ..Self::default()
        }
    }

    /// What a request means for this model:
    ///
    /// | model | request | result: effort, enabled |
    /// |---|---|---|
    /// | does not reason | any | none, none |
    /// | always reasons | an effort but `none` | the effort, none |
    /// | always reasons | otherwise | none, none |
    /// | can be asked to | effort `none`, or not enabled | the disabled effort, no |
    /// | can be asked to | enabled | the effort unless it is the disabled one, else the default one; yes |
    /// | can be asked to | an effort alone | the effort; yes unless it is the disabled one |
    /// | can be asked to | nothing | none, none |
    ///
    /// As `resolve_reasoning_params` of Skulk 1.3.
    #[must_use]
    pub fn reasoning(&self, request: ReasoningRequest) -> ReasoningRequest {
        let (off, asked) = (self.disabled_reasoning_effort, request.effort);
        let asks_for_none = asked == Some(ReasoningEffort::None);
        if !self.supports_thinking {
            return ReasoningRequest::default();
        }
        if !self.supports_thinking_toggle {
            return ReasoningRequest { effort: asked.filter(|_| !asks_for_none), enable_thinking: None };
        }
        if asks_for_none || request.enable_thinking == Some(false) {
            return ReasoningRequest { effort: Some(off), enable_thinking: Some(false) };
        }
        if request.enable_thinking == Some(true) {
            let effort = asked.filter(|&effort| effort != off).unwrap_or(self.default_reasoning_effort);
            return ReasoningRequest { effort: Some(effort), enable_thinking: Some(true) };
        }
        ReasoningRequest { effort: asked, enable_thinking: asked.map(|effort| effort != off) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_reasoning_off_wins_over_an_effort() {
        let asked = ReasoningRequest::default().effort(ReasoningEffort::High).enable_thinking(false);
        let off = Profile { disabled_reasoning_effort: ReasoningEffort::Minimal, ..Profile::permissive() };
        let expected = ReasoningRequest::default().effort(ReasoningEffort::Minimal).enable_thinking(false);
        assert_eq!(off.reasoning(asked), expected);
        assert_eq!(off.reasoning(asked.enable_thinking(true)).effort, Some(ReasoningEffort::High));
    }
}
