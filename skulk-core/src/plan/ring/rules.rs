//! What did each rule leave? The ledger of a plan: candidates before and after, and why some were turned down.

use super::canonical::Ring;
use super::topology::Topology;
use crate::plan::report::{PlanReport, Rejection, Rule, RuleReport};

/// The rules that were applied so far.
pub(super) struct Ledger<'a> {
    topology: &'a Topology<'a>,
    pub(super) rules: Vec<RuleReport>,
}

/// A rule left nothing.
pub(super) struct Refused {
    pub(super) rule: Rule,
    pub(super) message: String,
    /// Nodes have not reported yet.
    pub(super) pending: bool,
    /// The rings that it had to judge.
    pub(super) rings: Vec<Ring>,
}

impl Refused {
    pub(super) fn new(rule: Rule, message: impl Into<String>) -> Self {
        Self { rule, message: message.into(), pending: false, rings: Vec::new() }
    }
}

impl<'a> Ledger<'a> {
    pub(super) fn new(topology: &'a Topology<'a>) -> Self {
        Self { topology, rules: Vec::new() }
    }

    /// Keeps the rings that a rule lets pass. Reasons are asked for those that are listed only.
    pub(super) fn keep(
        &mut self,
        rule: Rule,
        rings: Vec<Ring>,
        passes: impl Fn(&Ring) -> bool,
        reason: impl Fn(&Ring) -> String,
    ) -> Vec<Ring> {
        let before = rings.len();
        let mut rejected = Vec::new();
        let mut kept = rings;
        kept.retain(|ring| {
            let passes = passes(ring);
            if !passes && rejected.len() < PlanReport::LISTED {
                rejected.push(self.rejection(ring, reason(ring)));
            }
            passes
        });
        self.rules.push(RuleReport { rule, before, after: kept.len(), rejected });
        kept
    }

    /// Why a ring was turned down.
    pub(super) fn rejection(&self, ring: &[usize], reason: String) -> Rejection {
        Rejection { nodes: self.topology.names(ring), reason }
    }

    /// Notes a rule that was applied to one ring after the other.
    pub(super) fn note(&mut self, rule: Rule, before: usize, after: usize, rejected: Vec<Rejection>) {
        self.rules.push(RuleReport { rule, before, after, rejected });
    }
}
