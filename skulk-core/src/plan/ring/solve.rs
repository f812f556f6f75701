//! Which rings come into question? The rules that turn candidates down, one after the other.

use std::sync::Arc;

use super::canonical::{Ring, Search, Shape};
use super::choose::Solution;
use super::facts::{self, Facts};
use super::fit::Fit;
use super::graph::Graph;
use super::rules::{Ledger, Refused};
use super::topology::Topology;
use crate::card::ModelCard;
use crate::error::{Error, Result};
use crate::plan::backend::{engine_of, is_multi_node};
use crate::plan::cluster::{LinkKind, Role};
use crate::plan::inventory::Inventory;
use crate::plan::memory::{GIB, accelerator_memory};
use crate::plan::report::{PlanReport, Rule};
use crate::plan::request::{Request, Sharding, Transport};
use crate::plan::strictness::Strictness;

/// The model of which Skulk 1.3 knows that it cannot be split by layers.
const NO_PIPELINE: &str = "mlx-community/DeepSeek-V3.1-8bit";

/// What is to be placed, and on what.
pub(super) struct Problem<'a> {
    pub(super) card: &'a ModelCard,
    pub(super) request: &'a Request,
    pub(super) topology: &'a Topology<'a>,
    pub(super) facts: Vec<Facts<'a>>,
    /// How the model's weights are divided.
    pub(super) inventory: Arc<Inventory>,
    /// The request's rings.
    pub(super) given: Option<Vec<Ring>>,
}

impl<'a> Problem<'a> {
    /// # Errors
    /// `InvalidArgument` for rings of the request that are empty, or name nodes that are not there, or twice.
    pub(super) fn new(card: &'a ModelCard, topology: &'a Topology<'a>, request: &'a Request) -> Result<Self> {
        let given = request.rings.as_ref().map(|rings| {
            let ring = |names: &Vec<_>| {
                let found: Option<Vec<usize>> = names.iter().map(|name| topology.index(name)).collect();
                let found = found.filter(|ring| !ring.is_empty()).filter(|ring| {
                    let mut sorted = ring.clone();
                    sorted.sort_unstable();
                    sorted.windows(2).all(|pair| pair[0] != pair[1])
                });
                found.map(Ring::new).ok_or_else(|| {
                    let found = match names.is_empty() {
                        true => "none".to_owned(),
                        false => names.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", "),
                    };
                    let message = format!("expected rings of different nodes of the cluster, found {found}");
                    Error::argument("rings", message)
                        .with_hint("name each node of a ring once, by rank, as the cluster names it")
                })
            };
            rings.iter().map(ring).collect::<Result<Vec<Ring>>>()
        });
        let facts = Facts::all(card, topology, request);
        let inventory = request.inventory.clone().unwrap_or_else(|| Arc::new(Inventory::from_size(card)));
        Ok(Self { card, request, topology, facts, inventory, given: given.transpose()? })
    }

    /// Applies all rules.
    pub(super) fn solve(&self, ledger: &mut Ledger) -> Result<Solution, Refused> {
        let rings = self.of_eligible_nodes(ledger)?;
        let rings = self.that_fit(ledger, rings)?;
        let rings = self.divisible(ledger, rings)?;
        match self.given {
            Some(_) => self.best_given(ledger, rings),
            None => self.best_own(ledger, rings),
        }
    }

    /// The planner's own rings of these nodes.
    pub(super) fn own_rings(&self, nodes: &[usize]) -> Vec<Ring> {
        let mut nodes = nodes.to_vec();
        facts::canonical(&self.facts, &mut nodes);
        let orders = facts::orders(self.card, self.request, &self.facts, &nodes);
        let mut position = vec![usize::MAX; self.topology.len()];
        nodes.iter().enumerate().for_each(|(i, &node)| position[node] = i);
        let graph = |wanted: &dyn Fn(&LinkKind) -> bool| {
            let links = self.topology.all_links().filter(|(.., kind)| wanted(kind));
            let links = links.map(|(a, b, _)| (position[a], position[b]));
            Graph::new(nodes.len(), links.filter(|&(a, b)| a < usize::MAX && b < usize::MAX))
        };
        let most = match self.request.sharding {
            // Two halves, if the model runs twice.
            Sharding::Pipeline => self.card.n_layers.saturating_mul(2),
            Sharding::Tensor => self.card.hidden_size,
        };
        let mut search = Search::new(&nodes, &orders, self.request.min_nodes, most);
        if self.request.transport == Transport::MlxJaccl {
            search.add(&graph(&|kind| matches!(kind, LinkKind::Rdma { .. })).mutual(), Shape::Clique);
        }
        // Rings whose neighbours reach each other come before those that only a cycle of links makes.
        let sockets = graph(&|kind| matches!(kind, LinkKind::Socket { .. })).mutual();
        search.add(&sockets, Shape::Cycle);
        if self.topology.is_mesh() {
            // Of a mesh, interfaces say at which addresses.
            let has_interface =
                |&i: &usize| self.topology.node(nodes[i]).is_some_and(|node| !node.interfaces.is_empty());
            search.add(&Graph::Complete((0..nodes.len()).filter(has_interface).collect()), Shape::Cycle);
            search.add(&Graph::Complete((0..nodes.len()).collect()), Shape::Cycle);
        } else {
            let linked = graph(&|_| true);
            if linked.n_links() > sockets.n_links() {
                search.add(&linked, Shape::Cycle);
            }
        }
        search.finish()
    }

    /// Rings that are wide enough, of nodes that may be used, that hold those that must be.
    fn of_eligible_nodes(&self, ledger: &mut Ledger) -> Result<Vec<Ring>, Refused> {
        let (card, request) = (self.card, self.request);
        let min = request.min_nodes;
        let mut nodes: Vec<usize> = (0..self.topology.len()).collect();
        let rings = self.given.clone().unwrap_or_else(|| self.own_rings(&nodes));
        let reason = |ring: &Ring| format!("{} node(s), fewer than {min}", ring.len());
        let rings = ledger.keep(Rule::Connected, rings, |ring| ring.len() >= min, reason);
        if rings.is_empty() {
            let known = self.topology.len();
            let pending = known >= min;
            let message = if pending {
                format!(
                    "The topology knows {known} node(s) but none form a connected cycle of at least {min} node(s) \
                     yet. Connection info may still be on its way: retry shortly"
                )
            } else {
                format!(
                    "The topology has only {known} node(s); a placement with min_nodes={min} is impossible"
                )
            };
            return Err(Refused { pending, ..Refused::new(Rule::Connected, message) });
        }

        let excluded = |node: usize| {
            let id = self.topology.id(node);
            request.excluded_nodes.contains(id).then(|| format!("node {id} is excluded"))
        };
        let rings = self.without(ledger, Rule::Excluded, rings, &mut nodes, excluded, || {
            let n = request.excluded_nodes.len();
            format!("All cycles of at least {min} node(s) touch an excluded node ({n} node(s) excluded)")
        })?;

        let compatible = &card.placement.compatible_backends;
        let ineligible = |node: usize| {
            let (id, facts) = (self.topology.id(node), &self.facts[node]);
            if facts.role != Role::Full {
                return Some(format!("node {id} has the role {}", facts.role.as_str()));
            }
            let tags = facts.tags.filter(|_| !compatible.iter().any(|tag| facts.may_serve(tag)))?;
            Some(format!("node {id} has backends {tags:?}"))
        };
        let rings = self.without(ledger, Rule::Eligible, rings, &mut nodes, ineligible, || {
            format!(
                "All cycles of at least {min} node(s) touch a node ineligible for this model: either one that is \
                 not for models, or one whose backends do not match the model's compatible_backends \
                 ({compatible:?})"
            )
        })?;

        let mut rings = rings;
        if let Some(gib) = card.placement.min_vram_gib {
            let too_small = |node: usize| {
                let has = self.topology.node(node).and_then(accelerator_memory);
                let has_enough = has.is_some_and(|bytes| bytes as f64 >= gib * GIB);
                let id = self.topology.id(node);
                (!has_enough).then(|| match has {
                    Some(bytes) => {
                        format!("node {id} has {:.1}GiB of accelerator memory, not {gib}", bytes as f64 / GIB)
                    }
                    None => format!("node {id} has reported no accelerator memory, not {gib}GiB"),
                })
            };
            rings = self.without(ledger, Rule::MinVram, rings, &mut nodes, too_small, || {
                format!("All cycles of at least {min} node(s) touch a node with less accelerator memory than {gib}GiB")
            })?;
        }

        if !compatible.is_empty() && !compatible.iter().filter_map(|tag| engine_of(tag)).any(is_multi_node) {
            let reason = |ring: &Ring| format!("{} nodes, but {compatible:?} run on one", ring.len());
            rings = ledger.keep(Rule::SingleNodeEngine, rings, |ring| ring.len() == 1, reason);
            if rings.is_empty() {
                let message =
                    "This model's engine is single-node only, but no single-node cycle is eligible for it";
                return Err(Refused::new(Rule::SingleNodeEngine, message));
            }
        }

        if self.given.is_none() && !compatible.is_empty() {
            rings = self.wide_of_mlx(ledger, rings, &nodes)?;
        }

        let required = &request.required_nodes;
        if !required.is_empty() {
            let mut must = vec![false; self.topology.len()];
            required.iter().filter_map(|id| self.topology.index(id)).for_each(|node| must[node] = true);
            let held = |ring: &Ring| ring.iter().filter(|&&node| must[node]).count();
            let reason = |ring: &Ring| format!("{} of {} required nodes", held(ring), required.len());
            rings = ledger.keep(Rule::Required, rings, |ring| held(ring) == required.len(), reason);
            if rings.is_empty() {
                let names: Vec<&str> = required.iter().map(|id| id.as_str()).collect();
                let message =
                    format!("No candidate cycle contains all required nodes [{}]", names.join(", "));
                return Err(Refused::new(Rule::Required, message));
            }
        }
        Ok(rings)
    }

    /// Single nodes, and wider rings of those of these nodes that run MLX: no other engine talks as its transports do.
    fn wide_of_mlx(
        &self,
        ledger: &mut Ledger,
        rings: Vec<Ring>,
        nodes: &[usize],
    ) -> Result<Vec<Ring>, Refused> {
        let listed = || self.card.placement.compatible_backends.iter();
        let mlx = |node: usize| {
            listed().any(|tag| engine_of(tag) == Some("mlx") && self.facts[node].may_serve(tag))
        };
        let can_be = |ring: &Ring| ring.len() == 1 || ring.iter().all(|&node| mlx(node));
        if rings.iter().all(can_be) {
            return Ok(rings);
        }
        let mut rings = ledger.keep(Rule::SingleNodeEngine, rings, can_be, |ring| {
            let others = ring.iter().copied().filter(|&node| !mlx(node));
            format!("without mlx: {}", self.names(&others.collect::<Vec<_>>()).join(", "))
        });
        let least = self.request.min_nodes.max(2);
        let able: Vec<usize> = nodes.iter().copied().filter(|&node| mlx(node)).collect();
        rings.retain(|ring| ring.len() == 1);
        rings.extend(self.own_rings(&able).into_iter().filter(|ring| ring.len() >= least));
        if let Some(report) = ledger.rules.last_mut() {
            report.after = rings.len();
        }
        if rings.is_empty() {
            let message = format!("expected a ring of at least {least} nodes that run mlx, found none");
            return Err(Refused::new(Rule::SingleNodeEngine, message));
        }
        Ok(rings)
    }

    /// Rings without the nodes for which there is a reason: those given that have none of them; else the
    /// planner's own of the others.
    fn without(
        &self,
        ledger: &mut Ledger,
        rule: Rule,
        rings: Vec<Ring>,
        nodes: &mut Vec<usize>,
        reason: impl Fn(usize) -> Option<String>,
        message: impl Fn() -> String,
    ) -> Result<Vec<Ring>, Refused> {
        let bad: Vec<bool> = (0..self.topology.len()).map(|node| reason(node).is_some()).collect();
        let is_good = |ring: &Ring| ring.iter().all(|&node| !bad[node]);
        let why = |ring: &Ring| {
            let reasons = ring.iter().filter_map(|&node| reason(node));
            reasons.take(PlanReport::LISTED).collect::<Vec<_>>().join("; ")
        };
        let all = rings.clone();
        let mut rings = ledger.keep(rule, rings, is_good, why);
        if self.given.is_none() && rings.len() < all.len() {
            nodes.retain(|&node| !bad[node]);
            rings = self.own_rings(nodes);
            rings.retain(|ring| ring.len() >= self.request.min_nodes);
            if let Some(report) = ledger.rules.last_mut() {
                report.after = rings.len();
            }
        }
        if rings.is_empty() {
            Err(Refused { rings: all, ..Refused::new(rule, message()) })
        } else {
            Ok(rings)
        }
    }

    /// Bytes that each of a ring's nodes may use.
    pub(super) fn usable(&self, ring: &[usize]) -> Vec<u64> {
        ring.iter().map(|&node| self.facts[node].bytes()).collect()
    }

    pub(super) fn names(&self, ring: &[usize]) -> Vec<&'a str> {
        ring.iter().map(|&node| self.topology.id(node).as_str()).collect()
    }

    pub(super) fn facts_of(&self, ring: &[usize]) -> Vec<&Facts<'a>> {
        ring.iter().map(|&node| &self.facts[node]).collect()
    }

    /// Rings that have the memory.
    fn that_fit(&self, ledger: &mut Ledger, rings: Vec<Ring>) -> Result<Vec<Ring>, Refused> {
        let fit = Fit::new(self.card, self.request);
        let force = self.request.strictness == Strictness::Force;
        let known = |ring: &Ring| force || ring.iter().all(|&node| self.facts[node].usable.is_some());
        let reason = |ring: &Ring| {
            if known(ring) {
                return fit.reason(&self.names(ring), &self.facts_of(ring));
            }
            let silent = ring.iter().filter(|&&node| self.facts[node].usable.is_none()).copied();
            format!(
                "nothing is known of the memory of {}",
                self.names(&silent.collect::<Vec<_>>()).join(", ")
            )
        };
        let all = rings.clone();
        let fits = |ring: &Ring| known(ring) && fit.fits(&self.usable(ring));
        let rings = ledger.keep(Rule::Memory, rings, fits, reason);
        if !rings.is_empty() {
            return Ok(rings);
        }
        let mut seen = vec![false; self.topology.len()];
        let silent = |node: &&usize| self.facts[**node].usable.is_none();
        let pending: Vec<usize> = all
            .iter()
            .flat_map(|ring| ring.iter().filter(silent))
            .filter(|&&node| !std::mem::replace(&mut seen[node], true))
            .copied()
            .collect();
        let message = if pending.is_empty() {
            let listed = all.iter().take(PlanReport::LISTED).map(reason);
            format!(
                "No candidate cycle fits {} ({:.1}GiB of weights): {}",
                self.card.model_id,
                self.card.storage_size.in_bytes as f64 / GIB,
                listed.collect::<Vec<_>>().join("; ")
            )
        } else {
            let names = self.names(&pending).join(", ");
            format!("Memory info has not been gathered yet for node(s) [{names}]")
        };
        Err(Refused { pending: !pending.is_empty(), rings: all, ..Refused::new(Rule::Memory, message) })
    }

    /// Rings over which the model can be split as requested.
    fn divisible(&self, ledger: &mut Ledger, rings: Vec<Ring>) -> Result<Vec<Ring>, Refused> {
        let card = self.card;
        match self.request.sharding {
            Sharding::Tensor if !card.supports_tensor => {
                ledger.keep(Rule::TensorDivisible, rings, |_| false, |_| "the card says no".to_owned());
                let what = "Requested Tensor sharding but this model does not support tensor parallelism";
                Err(Refused::new(Rule::TensorDivisible, format!("{what}: {}", card.model_id)))
            }
            Sharding::Tensor => {
                let heads = card.num_key_value_heads;
                let divides = |ring: &Ring| {
                    card.hidden_size.is_multiple_of(ring.len())
                        && heads.is_none_or(|heads| heads.is_multiple_of(ring.len()))
                };
                let facts = match heads {
                    Some(heads) => format!("hidden_size={}, num_key_value_heads={heads}", card.hidden_size),
                    None => format!("hidden_size={}", card.hidden_size),
                };
                let reason = |ring: &Ring| format!("{} nodes do not divide {facts}", ring.len());
                let rings = ledger.keep(Rule::TensorDivisible, rings, divides, reason);
                if rings.is_empty() {
                    let what = "No tensor sharding found for model with";
                    let message = format!("{what} {facts} across candidate cycles");
                    return Err(Refused::new(Rule::TensorDivisible, message));
                }
                Ok(rings)
            }
            Sharding::Pipeline if card.model_id == NO_PIPELINE => {
                let reason = |_: &Ring| "the model cannot be split by layers".to_owned();
                ledger.keep(Rule::PipelineSupported, rings, |_| false, reason);
                let message = "Pipeline parallelism is not supported for DeepSeek V3.1 (8-bit)";
                Err(Refused::new(Rule::PipelineSupported, message))
            }
            Sharding::Pipeline => Ok(rings),
        }
    }
}
