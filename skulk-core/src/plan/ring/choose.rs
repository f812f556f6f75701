//! Which of the rings that are left is taken? Fewest nodes, then scores, then what can be arranged.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use super::assign::{Check, assign};
use super::canonical::Ring;
use super::hosts;
use super::rules::{Ledger, Refused};
use super::solve::Problem;
use crate::plan::backend::serves;
use crate::plan::instance::Instance;
use crate::plan::memory::GIB;
use crate::plan::report::{PlanReport, Rejection, Rule};
use crate::plan::request::{Sharding, Transport};
use crate::plan::stage::Part;

/// A ring with all that its nodes must know.
pub(super) struct Solution {
    pub(super) ring: Ring,
    /// As it came to be: one node has nothing to divide.
    pub(super) sharding: Sharding,
    /// Layers and part of each rank.
    pub(super) parts: Vec<(Range<usize>, Part)>,
    pub(super) instance: Instance,
    /// Other rings that passed all rules, and all scores; the chosen one first.
    pub(super) compared: Vec<(Ring, Score)>,
}

/// How the model is split over a ring, the layers and part of each rank, and how they reach each other.
type Arranged = (Sharding, Vec<(Range<usize>, Part)>, Instance);

/// How good a ring is, the most important first.
#[derive(Clone, Copy)]
pub(super) struct Score {
    /// Higher for a backend that the card prefers more, and that all nodes have.
    pub(super) backend: usize,
    /// Shares of the model on disk, added up.
    pub(super) download: f64,
    /// Free main memory, added up.
    pub(super) available: u128,
}

impl Score {
    fn cmp(&self, other: &Self) -> Ordering {
        let download = self.download.total_cmp(&other.download);
        self.backend.cmp(&other.backend).then(download).then(self.available.cmp(&other.available))
    }

    pub(super) fn text(&self) -> String {
        format!(
            "backend score {}, {:.2} of the model on disk, {:.1}GiB free",
            self.backend,
            self.download,
            self.available as f64 / GIB
        )
    }
}

impl Problem<'_> {
    /// The reference's choice: fewest nodes, then RDMA, leaves and scores; what then fails, fails.
    pub(super) fn best_given(&self, ledger: &mut Ledger, rings: Vec<Ring>) -> Result<Solution, Refused> {
        let fewest = rings.iter().map(|ring| ring.len()).min().unwrap_or(0);
        let reason = |ring: &Ring| format!("{} nodes, more than {fewest}", ring.len());
        let mut rings = ledger.keep(Rule::FewestNodes, rings, |ring| ring.len() == fewest, reason);
        if self.request.transport == Transport::MlxJaccl {
            let reason = |_: &Ring| "neighbours without RDMA".to_owned();
            rings = ledger.keep(Rule::Rdma, rings, |ring| self.linked_are_rdma(ring), reason);
            if rings.is_empty() {
                return Err(no_rdma());
            }
        }
        let has_leaf = |ring: &Ring| ring.iter().any(|&node| self.topology.is_leaf(node));
        if rings.iter().any(has_leaf) {
            let reason = |_: &Ring| "each node has several neighbours".to_owned();
            rings = ledger.keep(Rule::LeafFirst, rings, has_leaf, reason);
        }
        let mut compared = self.compared(rings);
        let (before, others) = (compared.len(), compared.iter().skip(1));
        let worse = others.take(PlanReport::LISTED).map(|(ring, score)| ledger.rejection(ring, score.text()));
        let worse: Vec<Rejection> = worse.collect();
        ledger.note(Rule::Best, before, before.min(1), worse);
        compared.truncate(PlanReport::LISTED);
        let Some((ring, _)) = compared.first().cloned() else {
            return Err(Refused::new(Rule::Best, "expected at least one candidate cycle, found none"));
        };
        let attempt = self.attempt(&ring, Check::Weights);
        let (sharding, parts, instance) = attempt.map_err(|(rule, message)| {
            ledger.note(rule, 1, 0, vec![ledger.rejection(&ring, message.clone())]);
            Refused { rings: vec![ring.clone()], ..Refused::new(rule, message) }
        })?;
        ledger.note(Rule::Layers, 1, 1, Vec::new());
        ledger.note(Rule::Hosts, 1, 1, Vec::new());
        Ok(Solution { ring, sharding, parts, instance, compared })
    }

    /// The planner's own choice: fewest nodes, then scores; and what fails makes place for the next.
    pub(super) fn best_own(&self, ledger: &mut Ledger, rings: Vec<Ring>) -> Result<Solution, Refused> {
        let total = rings.len();
        let mut widths: BTreeMap<usize, Vec<Ring>> = BTreeMap::new();
        for ring in rings {
            widths.entry(ring.len()).or_default().push(ring);
        }
        let jaccl = self.request.transport == Transport::MlxJaccl;
        let mut tried = Tried::default();
        let mut chosen = None;
        let mut widths = widths.into_values();
        while let (None, Some(rings)) = (&chosen, widths.next()) {
            let n = rings.len();
            let passes = |ring: &Ring| !jaccl || self.all_are_rdma(ring);
            let (rings, without): (Vec<Ring>, Vec<Ring>) = rings.into_iter().partition(passes);
            tried.rdma.pass(rings.len());
            for ring in without {
                tried.rdma.fail(|| ledger.rejection(&ring, "not all are linked with all by RDMA".to_owned()));
            }
            let mut compared = self.compared(rings);
            let found = (0..compared.len()).find_map(|i| {
                let (ring, arranged) = self.arrange(ledger, &mut tried, &compared[i].0)?;
                Some((i, ring, arranged))
            });
            if let Some((i, ring, arranged)) = found {
                // Those before it could not be arranged.
                compared.drain(..i);
                compared[0].0 = ring;
                chosen = Some((n, compared, arranged));
            }
        }
        if jaccl {
            ledger.note(Rule::Rdma, tried.rdma.before, tried.rdma.after, tried.rdma.rejected);
        }
        if let Some((n, compared, _)) = &chosen {
            let reason = |ring: &Ring| format!("{} nodes, more than {}", ring.len(), compared[0].0.len());
            let wider = widths.flatten().take(PlanReport::LISTED);
            let wider = wider.map(|ring| ledger.rejection(&ring, reason(&ring))).collect();
            ledger.note(Rule::FewestNodes, total, *n, wider);
            let worse = compared.iter().skip(1).take(PlanReport::LISTED);
            let worse = worse.map(|(ring, score)| ledger.rejection(ring, score.text())).collect();
            ledger.note(Rule::Best, compared.len(), 1, worse);
        }
        for (rule, tally) in [(Rule::Layers, tried.layers), (Rule::Hosts, tried.hosts)] {
            if tally.before > 0 {
                ledger.note(rule, tally.before, tally.after, tally.rejected);
            }
        }
        match chosen {
            Some((_, mut compared, (sharding, parts, instance))) => {
                compared.truncate(PlanReport::LISTED);
                let ring = compared[0].0.clone();
                Ok(Solution { ring, sharding, parts, instance, compared })
            }
            None => Err(tried.furthest.unwrap_or_else(no_rdma)),
        }
    }

    /// Layers and hosts of a ring, from whichever of its nodes it can be arranged.
    fn arrange(&self, ledger: &Ledger, tried: &mut Tried, ring: &Ring) -> Option<(Ring, Arranged)> {
        for ring in self.turns(ring) {
            match self.attempt(&ring, Check::Footprint) {
                Ok(arranged) => {
                    tried.layers.pass(1);
                    tried.hosts.pass(1);
                    return Some((ring, arranged));
                }
                Err((rule, message)) => {
                    let tally = if rule == Rule::Layers {
                        &mut tried.layers
                    } else {
                        tried.layers.pass(1);
                        &mut tried.hosts
                    };
                    tally.fail(|| ledger.rejection(&ring, message.clone()));
                    let known = tried.furthest.as_ref().map(|refused| refused.rule);
                    if known.is_none_or(|known| known == Rule::Layers && rule == Rule::Hosts) {
                        tried.furthest =
                            Some(Refused { rings: vec![ring.clone()], ..Refused::new(rule, message) });
                    }
                }
            }
        }
        None
    }

    /// The same ring from each of its nodes, where it matters who is first: all others must reach that one.
    fn turns(&self, ring: &Ring) -> Vec<Ring> {
        if self.request.transport == Transport::MlxRing {
            return vec![ring.clone()];
        }
        (0..ring.len()).map(|first| Ring::new([&ring[first..], &ring[..first]].concat())).collect()
    }

    /// Layers and hosts of a ring, or the rule that turns it down.
    fn attempt(&self, ring: &[usize], check: Check) -> Result<Arranged, (Rule, String)> {
        let request = self.request;
        let single = ring.len() == 1;
        let sharding = if single { Sharding::Pipeline } else { request.sharding };
        let (names, facts) = (self.names(ring), self.facts_of(ring));
        let parts = assign(self.card, request, sharding, &names, &facts, check);
        let parts = parts.map_err(|message| (Rule::Layers, message))?;
        let canonical = self.given.is_none();
        let instance = if single || request.transport == Transport::MlxRing {
            hosts::ring(self.topology, ring, request.port, canonical)
        } else {
            hosts::jaccl(self.topology, ring, request.port, canonical)
        };
        Ok((sharding, parts, instance.map_err(|message| (Rule::Hosts, message))?))
    }

    /// Rings by score, best first; of equal ones the first.
    fn compared(&self, rings: Vec<Ring>) -> Vec<(Ring, Score)> {
        let mut compared: Vec<(Ring, Score)> =
            rings.into_iter().map(|ring| (ring.clone(), self.score(&ring))).collect();
        compared.sort_by(|(_, a), (_, b)| b.cmp(a));
        compared
    }

    fn score(&self, ring: &[usize]) -> Score {
        let preference = &self.card.placement.backend_preference;
        let all_serve = |tag: &String| {
            ring.iter()
                .all(|&node| self.facts[node].tags.is_none_or(|tags| tags.iter().any(|has| serves(has, tag))))
        };
        let facts = || ring.iter().map(|&node| &self.facts[node]);
        Score {
            backend: preference.iter().position(all_serve).map_or(0, |i| preference.len() - i),
            download: facts().map(|facts| facts.download).sum(),
            available: facts().map(|facts| u128::from(facts.available)).sum(),
        }
    }

    /// The reference's rule: wherever a node of the ring is linked to another, one of the links is RDMA.
    fn linked_are_rdma(&self, ring: &[usize]) -> bool {
        let pairs = ring.iter().flat_map(|&a| ring.iter().map(move |&b| (a, b)));
        pairs.into_iter().all(|(a, b)| !self.topology.is_linked(a, b) || self.topology.has_rdma(a, b))
    }

    fn all_are_rdma(&self, ring: &[usize]) -> bool {
        ring.iter().all(|&a| ring.iter().all(|&b| a == b || self.topology.has_rdma(a, b)))
    }
}
fn no_rdma() -> Refused {
    Refused::new(Rule::Rdma, "Requested RDMA (mlx_jaccl) but no RDMA-connected cycles available")
}

/// What was tried, and why the first failed of those that got furthest.
#[derive(Default)]
struct Tried {
    rdma: Tally,
    layers: Tally,
    hosts: Tally,
    furthest: Option<Refused>,
}

/// What a rule did to one ring after the other.
#[derive(Default)]
struct Tally {
    before: usize,
    after: usize,
    rejected: Vec<Rejection>,
}

impl Tally {
    fn pass(&mut self, n: usize) {
        self.before += n;
        self.after += n;
    }

    fn fail(&mut self, rejection: impl FnOnce() -> Rejection) {
        self.before += 1;
        if self.rejected.len() < PlanReport::LISTED {
            self.rejected.push(rejection());
        }
    }
}
