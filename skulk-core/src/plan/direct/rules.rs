//! What did each rule turn down?

use crate::plan::report::{PlanReport, Rejection, Rule, RuleReport};

/// The rules applied so far.
#[derive(Debug, Default)]
pub(super) struct Rules(pub(super) Vec<RuleReport>);

impl Rules {
    /// Adds a rule with what it turned down of so many.
    pub(super) fn record(&mut self, rule: Rule, before: usize, mut rejected: Vec<Rejection>) {
        let after = before.saturating_sub(rejected.len());
        rejected.truncate(PlanReport::LISTED);
        self.0.push(RuleReport { rule, before, after, rejected });
    }
}
