//! What does a plan tell of itself? Its report, and what would have made a refused one fit.

use std::ops::Range;

use super::choose::Solution;
use super::fit::Fit;
use super::rules::{Ledger, Refused};
use super::solve::Problem;
use crate::bytes::ByteSize;
use crate::card::ModelCard;
use crate::plan::backend::resolve_backend;
use crate::plan::ceiling::{context_ceiling, tokens_that_fit};
use crate::plan::cluster::Vendor;
use crate::plan::inventory::Inventory;
use crate::plan::memory::{OVERHEAD_FLOOR, kv_bytes, kv_bytes_per_token, overhead, scale, working_set};
use crate::plan::report::{
    Bytes, Candidate, ContextCeiling, NodeReport, PlanReport, Refusal, Rule, RuleReport,
};
use crate::plan::request::{Request, Sharding, Transport};
use crate::plan::stage::{Part, Stage};
use crate::plan::strictness::Strictness;

impl<'a> Problem<'a> {
    fn empty_report(&self, rules: Vec<RuleReport>) -> PlanReport {
        let ceiling = context_ceiling(self.card, None, None);
        let nodes: Vec<_> = (0..self.topology.len()).map(|node| self.topology.id(node)).collect();
        PlanReport::new(self.card, self.request, &nodes, rules, ceiling)
    }

    /// The report of a placement.
    pub(super) fn report(&self, solution: &Solution, rules: Vec<RuleReport>) -> PlanReport {
        let mut report = self.empty_report(rules);
        report.context = self.ceiling(solution);
        report.nodes = (0..solution.ring.len()).map(|rank| self.node_report(solution, rank)).collect();
        let n = solution.compared.len();
        report.candidates = solution
            .compared
            .iter()
            .enumerate()
            .map(|(i, (ring, score))| Candidate {
                nodes: self.topology.names(ring),
                arrangement: format!("{} sharding over {} node(s)", solution.sharding, ring.len()),
                estimate: None,
                chosen: i == 0,
                reason: match (i, n) {
                    (0, 1) => format!("the only one that is left: {}", score.text()),
                    (0, _) => format!("the best that can be arranged: {}", score.text()),
                    _ => score.text(),
                },
            })
            .collect();
        report
    }

    /// The stages of a placement, by rank.
    pub(super) fn stages(&self, solution: &Solution) -> Vec<Stage> {
        let stage = |(&node, (layers, part)): (&usize, &(Range<usize>, Part))| Stage {
            node: self.topology.id(node).clone(),
            backend: self.backend(node),
            layers: layers.clone(),
            part: *part,
        };
        solution.ring.iter().zip(&solution.parts).map(stage).collect()
    }

    fn backend(&self, node: usize) -> Option<String> {
        let placement = &self.card.placement;
        let tags = self.facts[node].tags?;
        resolve_backend(&placement.compatible_backends, &placement.backend_preference, tags)
            .map(str::to_owned)
    }

    fn node_report(&self, solution: &Solution, rank: usize) -> NodeReport {
        let (node, (layers, part)) = (solution.ring[rank], &solution.parts[rank]);
        let world = solution.ring.len();
        let fraction = fraction(self.card, layers, *part, world);
        let weights = scale(self.card.storage_size.in_bytes, fraction);
        let kv = scale(kv_bytes(self.card, self.request.context_tokens), fraction);
        let bytes = self.bytes(weights, kv, layers.clone());
        self.of_node(node, bytes, layers.clone())
    }

    fn of_node(&self, node: usize, bytes: Bytes, layers: Range<usize>) -> NodeReport {
        let facts = &self.facts[node];
        NodeReport {
            node: self.topology.id(node).clone(),
            address: None,
            role: facts.role,
            backend: self.backend(node),
            device: self.device(node),
            experts: layers.len(),
            layers,
            bytes,
            usable: facts.bytes(),
            on_disk: 0,
            drafter: None,
            seconds_per_token: None,
        }
    }

    fn device(&self, node: usize) -> String {
        let cards = self.topology.node(node).map_or(&[][..], |node| &node.accelerators);
        let makers = [Vendor::Amd, Vendor::Nvidia];
        match (self.facts[node].usable, cards.iter().find(|card| makers.contains(&card.vendor))) {
            (Some(usable), Some(card)) if usable.vram && !card.name.is_empty() => card.name.clone(),
            (Some(usable), _) if usable.vram => "accelerator".to_owned(),
            _ => "main memory".to_owned(),
        }
    }

    /// The bytes of a node by kind. The card's weights are divided between attention and feed-forward as in
    /// the request's inventory, or in what is estimated from the card.
    fn bytes(&self, weights: u64, kv_cache: u64, layers: Range<usize>) -> Bytes {
        let overhead = overhead(self.card, self.request.strictness);
        let attention = scale(weights, attention_share(&self.inventory, layers));
        Bytes {
            attention: attention.min(weights),
            feed_forward: weights.saturating_sub(attention),
            kv_cache,
            activations: OVERHEAD_FLOOR,
            headroom: scale(weights, overhead).saturating_sub(weights),
        }
    }

    /// What the context is limited to. All nodes must agree on it without asking, so it comes from what
    /// does not change: main memory in all, not what is free of it.
    fn ceiling(&self, solution: &Solution) -> ContextCeiling {
        let (card, strictness) = (self.card, self.request.strictness);
        let per_token = kv_bytes_per_token(card) as f64;
        let world = solution.ring.len();
        let tokens = |(&node, (layers, part)): (&usize, &(Range<usize>, Part))| {
            let facts = &self.facts[node];
            let working_set = match facts.usable.filter(|usable| usable.vram) {
                Some(vram) => vram.bytes,
                None => working_set(self.topology.node(node)?.memory.as_ref()?, strictness),
            };
            let fraction = fraction(card, layers, *part, world);
            let weights = scale(scale(card.storage_size.in_bytes, fraction), overhead(card, strictness));
            Some((tokens_that_fit(working_set, weights, per_token * fraction)?, self.topology.id(node)))
        };
        // Nothing is known of the cache of a model that runs twice, and forced plans take no notice of memory.
        let runs_twice = solution.parts.iter().any(|(_, part)| matches!(part, Part::Cfg { .. }));
        if runs_twice || strictness == Strictness::Force {
            return context_ceiling(card, None, None);
        }
        let each: Option<Vec<_>> = solution.ring.iter().zip(&solution.parts).map(tokens).collect();
        context_ceiling(card, None, each.into_iter().flatten().min_by_key(|(tokens, _)| *tokens))
    }

    /// The report of a refusal: what came closest, and what would make it fit.
    pub(super) fn refusal(&self, refused: Refused, rules: Vec<RuleReport>) -> PlanReport {
        let mut report = self.empty_report(rules);
        let fit = Fit::new(self.card, self.request);
        let known =
            |ring: &&super::canonical::Ring| ring.iter().all(|&node| self.facts[node].usable.is_some());
        let rings = || refused.rings.iter().filter(known);
        let closest = rings().min_by_key(|ring| fit.missing(&self.usable(ring)));
        if let Some(ring) = closest.filter(|_| matches!(refused.rule, Rule::Memory | Rule::Layers)) {
            let usable = self.usable(ring);
            let needs = fit.needs(&usable);
            report.nodes = ring
                .iter()
                .zip(needs)
                .map(|(&node, need)| self.of_node(node, self.bytes(need.weights, need.kv, 0..0), 0..0))
                .collect();
            if refused.rule == Rule::Memory {
                report.would_fit.extend(self.more_memory(&fit, ring));
            }
        }
        if !refused.pending {
            report.would_fit.extend(self.other_requests(&refused));
        }
        let Refused { rule, message, pending, .. } = refused;
        report.refused = Some(Refusal { rule, message, pending });
        report
    }

    /// Bytes that would make a ring fit, on one of its nodes; the fewest first.
    fn more_memory(&self, fit: &Fit, ring: &[usize]) -> Vec<String> {
        /// Nodes for which that is computed, and those of them that are named.
        const TRIED: usize = 64;
        const NAMED: usize = 3;
        let usable = self.usable(ring);
        let tried = (0..ring.len()).take(TRIED);
        let mut more: Vec<(u64, usize)> =
            tried.filter_map(|i| Some((fit.more_on(&usable, i)?, ring[i]))).collect();
        more.sort_by_key(|&(bytes, node)| (bytes, self.topology.id(node)));
        let what = |(bytes, node): (u64, usize)| {
            format!("{} more that the model may use on node {}", ByteSize(bytes), self.topology.id(node))
        };
        more.into_iter().take(NAMED).map(what).collect()
    }

    /// Changes of the request under which there is a placement.
    fn other_requests(&self, refused: &Refused) -> Vec<String> {
        let request = self.request;
        let mut found = Vec::new();
        let mut attempt = |text: String, change: &dyn Fn(&mut Request)| {
            let mut changed = request.clone();
            change(&mut changed);
            if changed != *request && self.is_solved(&changed) {
                found.push(text);
            }
        };
        for node in request.excluded_nodes.iter().take(PlanReport::LISTED) {
            attempt(format!("not excluding node {node}"), &|r| {
                r.excluded_nodes.retain(|other| other != node)
            });
        }
        if request.excluded_nodes.len() > 1 {
            attempt("excluding no nodes".to_owned(), &|r| r.excluded_nodes.clear());
        }
        attempt("requiring no nodes".to_owned(), &|r| r.required_nodes.clear());
        attempt("min_nodes 1".to_owned(), &|r| r.min_nodes = r.min_nodes.min(1));
        attempt("sharding pipeline".to_owned(), &|r| r.sharding = Sharding::Pipeline);
        attempt("sharding tensor".to_owned(), &|r| r.sharding = Sharding::Tensor);
        attempt("sockets instead of RDMA".to_owned(), &|r| r.transport = Transport::MlxRing);
        if refused.rule == Rule::Memory {
            attempt("strictness relaxed".to_owned(), &|r| {
                if r.strictness == Strictness::Safe {
                    r.strictness = Strictness::Relaxed;
                }
            });
            let tokens = self.most_tokens(refused);
            attempt(format!("a context of {tokens} tokens"), &|r| r.context_tokens = tokens);
        }
        found
    }

    /// The largest context that passes the memory rule on any of the rings that it turned down.
    fn most_tokens(&self, refused: &Refused) -> u64 {
        let fits = |tokens: u64| {
            let mut request = self.request.clone();
            request.context_tokens = tokens;
            let fit = Fit::new(self.card, &request);
            refused.rings.iter().any(|ring| fit.fits(&self.usable(ring)))
        };
        let (mut low, mut high) = (0, self.request.context_tokens);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        low
    }

    fn is_solved(&self, request: &Request) -> bool {
        let problem = Problem::new(self.card, self.topology, request);
        problem.is_ok_and(|problem| problem.solve(&mut Ledger::new(self.topology)).is_ok())
    }
}

/// The share of the model that a rank holds.
fn fraction(card: &ModelCard, layers: &Range<usize>, part: Part, world: usize) -> f64 {
    match part {
        Part::Tensor => 1.0 / world as f64,
        Part::Whole | Part::Cfg { .. } => layers.len() as f64 / card.n_layers as f64,
    }
}

/// The share of attention, norms, embedding and head in these layers' weights; of no layers, in all.
fn attention_share(inventory: &Inventory, layers: Range<usize>) -> f64 {
    let last = layers.end >= inventory.layers.len();
    let held = inventory.layers.get(layers.clone()).filter(|held| !held.is_empty());
    let (held, first, last) =
        held.map_or((&inventory.layers[..], true, true), |held| (held, layers.start == 0, last));
    let mut attention = held.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.attention));
    if first || inventory.embedding_everywhere {
        attention = attention.saturating_add(inventory.embedding);
    }
    if last {
        attention = attention.saturating_add(inventory.head);
    }
    let feed_forward = held.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.feed_forward()));
    attention as f64 / (attention as f64 + feed_forward as f64).max(1.0)
}

/// What is asked of a caller whose plan was refused.
pub(super) fn hint(report: &PlanReport) -> String {
    match (&report.refused, report.would_fit.as_slice()) {
        (Some(refusal), _) if refusal.pending => "ask again shortly".to_owned(),
        (_, []) => "add nodes, memory or connections, or ask for less; the report says more".to_owned(),
        (_, changes) => format!("it would fit with {}", changes.join(", or with ")),
    }
}
