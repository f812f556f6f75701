//! How is a model placed on nodes that a coordinator talks to? This library's own planner.
//!
//! The coordinator holds the conversation and the first stage; every other node must be linked with it in both
//! directions. For each possible coordinator a handful of arrangements is tried (`arrange.rs`), and the fastest
//! by the cost model (`cost.rs`) is taken. Candidates are orders of devices, not sets, so the time is polynomial:
//! coordinators · arrangements · (devices + layers · owners). Only the [`COORDINATORS`] fastest coordinators
//! are tried once something fits.

mod around;
mod arrange;
mod cost;
mod disk;
mod drafts;
mod drawn;
mod fill;
mod fixed;
mod group;
mod outcome;
mod problem;
mod replicas;
mod runs;
pub(super) mod seats;
mod sets;
mod side_by_side;
mod speculation;
mod ways;

use std::borrow::Cow;

use self::arrange::Arrangement;
#[cfg(feature = "generate")]
pub(crate) use self::cost::BETWEEN;
use self::cost::Owner;
use self::disk::OnDisk;
use self::group::Group;
use self::problem::Problem;
use self::seats::Seat;
use super::backend::{may_run, serves};
use super::ceiling::longest;
use super::check::{NEW_CLUSTER, no_device, not_listed, pending};
use super::cluster::NodeId;
use super::report::{Estimate, PromptEstimate, Rule, RuleReport};
use super::request::Sharding;
use super::stage::invalid;
use super::strictness::Strictness;
use super::{Cluster, Placement, Request};
use crate::card::ModelCard;
use crate::error::Result;

/// Coordinators that are compared.
const COORDINATORS: usize = 8;
/// How many times all memory may be counted when memory is no reason to refuse.
const FORCED: i32 = 60;

pub(super) fn plan(card: &ModelCard, cluster: &Cluster, request: &Request) -> Result<Placement> {
    let mut rules = Vec::new();
    let request = &within_reach(card, request);
    let (problem, pending) = Problem::new(card, cluster, request, &mut rules)?;
    let refused = refused(&problem, &rules);
    let found = match refused.0 {
        Rule::Memory => search_as_asked(&problem),
        _ => Found::default(),
    };
    match found.best {
        Some(best) => Ok(outcome::placement(&problem, rules, &best, &found.others)),
        None => Err(outcome::refusal(&problem, cluster, rules, refused, &pending)),
    }
}

/// What is asked, with no longer a context than loading gives, and no longer a prompt than that.
fn within_reach<'a>(card: &ModelCard, request: &'a Request) -> Cow<'a, Request> {
    let most = longest(card, request.inventory.as_ref().map_or(0, |counted| counted.context));
    let context_tokens = request.context_tokens.min(most);
    let prompt_tokens = request.prompt_tokens.min(context_tokens);
    if (context_tokens, prompt_tokens) == (request.context_tokens, request.prompt_tokens) {
        return Cow::Borrowed(request);
    }
    Cow::Owned(Request { context_tokens, prompt_tokens, ..request.clone() })
}

/// What a placement of this planner costs on a cluster: a token of each session, and the request's prompt.
///
/// # Errors
/// As [`Problem::new`]; [`ErrorKind::PlacementInvalid`] where a device of it is not there, or not reached.
pub(super) fn price(
    card: &ModelCard,
    cluster: &Cluster,
    request: &Request,
    placement: &Placement,
) -> Result<(Estimate, PromptEstimate)> {
    let request = &within_reach(card, request);
    let (mut problem, _) = Problem::new(card, cluster, request, &mut Vec::new())?;
    with_devices_of(&mut problem, cluster, placement);
    price_of(&problem, cluster, placement)
}

/// Adds devices that a placement uses where plans prefer another one that reaches the same memory.
fn with_devices_of(problem: &mut Problem<'_>, cluster: &Cluster, placement: &Placement) {
    let stages = placement.stages().iter().map(|stage| (&stage.node, &stage.backend));
    let owners = placement.experts().iter().map(|shard| (&shard.node, &shard.backend));
    for (id, backend) in stages.chain(owners) {
        let known = || problem.seats.iter().filter(|seat| problem.ids[seat.node] == id);
        let Some(at) = known().map(|seat| seat.node).next() else { continue };
        if known().any(|seat| seat.backend == *backend) {
            continue;
        }
        let node = cluster.nodes.iter().find(|node| node.id == *id);
        let (card, Request { kv, strictness, .. }) = (problem.card, problem.request);
        let all = node
            .map(|node| seats::devices(at, node, card, kv.unwrap_or_default(), *strictness))
            .unwrap_or_default();
        problem.seats.extend(all.into_iter().find(|seat| seat.backend == *backend));
    }
}

/// The device that a part of a placement is on. By hand it may be named by less than its tag, where that means only one.
fn seat_of(problem: &Problem<'_>, cluster: &Cluster, id: &NodeId, backend: Option<&str>) -> Result<usize> {
    let Some(node) = cluster.nodes.iter().find(|node| node.id == *id) else {
        return Err(invalid("expected nodes of the cluster, found another", NEW_CLUSTER).with("node", id));
    };
    let own = || (0..problem.seats.len()).filter(|&at| problem.ids[problem.seats[at].node] == id);
    let tag = |at: usize| problem.seats[at].backend.as_deref();
    if let Some(exact) = own().find(|&at| tag(at) == backend) {
        return Ok(exact);
    }
    let is_it = |at: &usize| tag(*at).zip(backend).is_some_and(|(own, asked)| serves(own, asked));
    let found: Vec<usize> = own().filter(is_it).collect();
    match (&found[..], backend) {
        ([one], _) => Ok(*one),
        ([], _) if node.memory.is_none() => Err(pending(id)),
        ([], Some(tag)) if !may_run(tag, &problem.card.placement.compatible_backends) => {
            Err(not_listed(problem.card, id, tag))
        }
        ([], _) => Err(no_device(problem.card, id, backend, problem.request.kept())),
        (several, _) => {
            let tags: Vec<&str> = several.iter().filter_map(|&at| tag(at)).collect();
            let message = format!(
                "expected one device, found {}, which {} are: {}",
                backend.unwrap_or_default(),
                tags.len(),
                tags.join(", ")
            );
            Err(invalid(message, "name the device itself, as in wgpu-vulkan:0").with("node", id))
        }
    }
}

fn price_of(
    problem: &Problem<'_>,
    cluster: &Cluster,
    placement: &Placement,
) -> Result<(Estimate, PromptEstimate)> {
    let seat = |node: &NodeId, backend: &Option<String>| seat_of(problem, cluster, node, backend.as_deref());
    let stages = placement
        .stages()
        .iter()
        .map(|stage| Ok((seat(&stage.node, &stage.backend)?, stage.layers.clone())))
        .collect::<Result<Vec<_>>>()?;
    let mut owners = Vec::new();
    for shard in placement.experts().iter().filter(|shard| !shard.replica) {
        let seat = seat(&shard.node, &shard.backend)?;
        let owner = |layer| Owner { seat, layer, experts: shard.experts.clone() };
        owners.extend(shard.layers.clone().map(owner));
    }
    owners.sort_by_key(|owner| (owner.layer, owner.experts.start));
    let costs = problem.costs();
    let layers = &problem.inventory.layers;
    let is_there =
        |owner: &Owner| layers.get(owner.layer).is_some_and(|layer| owner.experts.end <= layer.blocks().0);
    if let Some(owner) = owners.iter().find(|owner| !is_there(owner)) {
        let blocks = layers.get(owner.layer).map_or(0, |layer| layer.blocks().0);
        let message =
            format!("expected experts within 0..{blocks}, which the model has, found {:?}", owner.experts);
        let hint = "give the model's own inventory, as a card without facts says nothing of experts";
        return Err(invalid(message, hint).with("layer", owner.layer));
    }
    if let Some((_, range)) = stages.iter().find(|(_, range)| range.end > layers.len()) {
        let message = format!("expected layers within 0..{}, found {range:?}", layers.len());
        return Err(invalid(message, "give the card of the model that the placement is of"));
    }
    let reads = |seat: &Seat| problem.ids[seat.node] == &placement.stages()[0].node && seat.disk.is_some();
    let disk = placement.ffn_budget().and_then(|budget| {
        let processor = problem.seats.iter().position(reads)?;
        OnDisk::new(problem, processor, budget, &stages, &owners)
    });
    let seats = disk.map_or_else(|| problem.seats.clone(), |disk| disk.seats(problem));
    let estimate = costs.estimate(&seats, &stages, &owners);
    let prompt = costs.prompt(&seats, &stages, &owners, problem.request.prompt_tokens);
    estimate.zip(prompt).ok_or_else(|| {
        let message = "expected nodes that the coordinator is linked with in both directions, found others";
        invalid(message, NEW_CLUSTER)
    })
}

/// What a search found.
#[derive(Default)]
struct Found {
    best: Option<Arrangement>,
    /// The others that fit, the fastest first.
    others: Vec<Arrangement>,
}

/// Tries arrangements, memory counting `scale` times, around so many coordinators at most.
fn search(problem: &Problem<'_>, scale: f64, most: usize) -> Found {
    let mut found: Vec<Arrangement> = Vec::new();
    let has_fixed = |seats: &[usize]| problem.fixed.seats.iter().all(|seat| seats.contains(seat));
    let groups = problem.groups().into_iter().filter(|(seats, _)| has_fixed(seats));
    for (seats, wide) in groups {
        let group = Group::new(problem, seats, wide, scale);
        for arrangement in group.search(most) {
            if !found.iter().any(|other| other.is_same(&arrangement)) {
                found.push(arrangement);
            }
        }
    }
    // Stable: of equals the one tried first.
    found.sort_by(Arrangement::faster);
    let mut found = found.into_iter();
    Found { best: found.next(), others: found.collect() }
}

/// Like [`search`], with as much more memory as it takes, the same factor on all devices.
fn search_forced(problem: &Problem<'_>) -> Found {
    let fitting =
        |scale: f64| Some(search(problem, scale, COORDINATORS)).filter(|found| found.best.is_some());
    let Some((mut low, mut high, mut found)) = (0..FORCED)
        .find_map(|k| fitting(2f64.powi(k)).map(|found| (2f64.powi(k - 1).max(1.0), 2f64.powi(k), found)))
    else {
        return Found::default();
    };
    for _ in 0..6 {
        let middle = (low + high) / 2.0;
        match fitting(middle) {
            Some(tighter) => (high, found) = (middle, tighter),
            None => low = middle,
        }
    }
    found
}

/// Like [`search`], and with each set of few devices alone, of which only the fastest counts.
fn search_sets(problem: &Problem<'_>) -> Found {
    let Found { best, mut others } = search(problem, 1.0, usize::MAX);
    let Some(mut best) = best else { return Found::default() };
    for (seats, wide) in problem.groups() {
        if let Some(faster) = Group::new(problem, seats, wide, 1.0).of_sets(&best) {
            others.insert(0, std::mem::replace(&mut best, faster));
        }
    }
    Found { best: Some(best), others }
}

fn search_as_asked(problem: &Problem<'_>) -> Found {
    let found = search_sets(problem);
    match (found.best, problem.request.strictness) {
        (None, Strictness::Force) => search_forced(problem),
        (best, _) => Found { best, ..found },
    }
}

/// Whether there is a placement for a request.
fn fits(card: &ModelCard, cluster: &Cluster, request: &Request) -> bool {
    let problem = Problem::new(card, cluster, request, &mut Vec::new());
    problem.is_ok_and(|(problem, _)| search(&problem, 1.0, usize::MAX).best.is_some())
}

/// Whether there is a way to place the model with as much memory as is ever counted.
fn can_be(problem: &Problem<'_>) -> bool {
    search(problem, 2f64.powi(FORCED - 1), COORDINATORS).best.is_some()
}

/// Which rule leaves nothing, and what it found; [`Rule::Memory`] where only a search can say.
fn refused(problem: &Problem<'_>, rules: &[RuleReport]) -> (Rule, String) {
    let request = problem.request;
    if request.sharding == Sharding::Tensor {
        let message = "expected sharding by layers, found tensor, which this transport does not have";
        return (Rule::TensorDivisible, message.to_owned());
    }
    if problem.ids.is_empty() {
        return (Rule::Connected, "expected at least one node, found none".to_owned());
    }
    if let Some(rule) = rules.iter().find(|rule| rule.after == 0) {
        let reasons: Vec<_> =
            rule.rejected.iter().take(3).map(|it| format!("{}: {}", it.nodes[0], it.reason)).collect();
        let message = format!("none of {} nodes is left: {}", rule.before, reasons.join("; "));
        return (rule.rule, message);
    }
    let is_seated = |id: &super::NodeId| problem.seats.iter().any(|seat| problem.ids[seat.node] == id);
    let wanted = request.required_nodes.iter().chain(&request.coordinator);
    if let Some(missing) = wanted.clone().find(|id| !is_seated(id)) {
        let message = format!("node `{missing}` must be used, but is not there, excluded, or not eligible");
        return (Rule::Required, message);
    }
    let is_its = |seat: &&Seat| Some(seat.node) == problem.coordinator;
    if let Some(wanted) = &request.coordinator
        && !problem.seats.iter().filter(is_its).any(|seat| seat.attention)
    {
        let message =
            format!("expected a coordinator in role full, found `{wanted}`, which takes no attention");
        return (Rule::Eligible, message);
    }
    let first = problem.fixed.stages.first().filter(|(_, run)| run.start == 0);
    if let (Some(wanted), Some((seat, _))) = (&request.coordinator, first)
        && problem.ids[problem.seats[*seat].node] != wanted
    {
        let node = problem.ids[problem.seats[*seat].node];
        let message = format!(
            "expected the first stage on `{wanted}`, which must coordinate, found it fixed on `{node}`"
        );
        return (Rule::Required, message);
    }
    let groups = problem.groups();
    let nodes = |seats: &[usize]| {
        let nodes: std::collections::BTreeSet<_> =
            seats.iter().map(|&seat| problem.seats[seat].node).collect();
        nodes.len()
    };
    let least = request.min_nodes.max(request.required_nodes.len());
    let widest = groups.iter().filter(|(_, wide)| *wide).map(|(seats, _)| nodes(seats)).max();
    if least > widest.unwrap_or(1) {
        let all = nodes(&(0..problem.seats.len()).collect::<Vec<_>>());
        return match widest {
            None if all >= least => {
                let message = format!(
                    "expected an engine that works over {least} nodes, found only engines that work on one with this transport"
                );
                (Rule::SingleNodeEngine, message)
            }
            _ => {
                (Rule::Connected, format!("expected {least} eligible nodes, found {}", widest.unwrap_or(all)))
            }
        };
    }
    if !problem.seats.iter().any(|seat| seat.attention) {
        return (Rule::Eligible, "expected a node in role full for attention, found none".to_owned());
    }
    (Rule::Memory, String::new())
}

#[cfg(test)]
mod accuracy;
#[cfg(test)]
mod asked;
#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod drafted;
#[cfg(test)]
mod monotone;
#[cfg(test)]
mod others;
#[cfg(test)]
mod tests;
