//! Which ring of nodes runs a model under MLX or llama.cpp? What Skulk 1.3 does, step by step, with the reasons
//! kept.
//!
//! A candidate is a ring: nodes by rank, each linked to the next. Rules turn candidates down in a fixed order
//! ([`Rule`](super::Rule)); of those left with the fewest nodes the one is taken whose nodes have a preferred
//! backend, then more of the model on disk, then more free memory. Layers go by usable memory.
//!
//! With [`Request::rings`] the rings are those, and all is as the reference does it. Its own come out of a
//! library's enumeration of cycles, of which there are exponentially many. The planner's own rings are
//! polynomially many ([`canonical`]), and what Skulk 1.3 does badly is not repeated with them:
//!
//! - a ring that cannot be arranged, as neighbours have no sockets to each other or layers do not fit, makes
//!   place for the next instead of refusing;
//! - no node is over what the memory rule allows it once layers are whole numbers, mirrored halves included;
//! - nodes with a single neighbour are not preferred: an isolated small node would beat a ring of large ones;
//! - rings of several nodes are of those that run MLX, whatever else the card lists;
//! - of addresses as good, the first by name is taken, so that the order of links does not matter.

mod assign;
mod canonical;
mod choose;
mod facts;
mod fit;
mod graph;
mod hosts;
mod report;
mod rules;
mod solve;
#[cfg(test)]
mod tests;
mod topology;

use std::sync::Arc;

use self::rules::Ledger;
use self::solve::Problem;
use self::topology::Topology;
use super::{Budget, Cluster, NodeId, Placement, Request};
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};

pub use hosts::is_vpn_address;

/// Places a model as the reference does.
pub(super) fn plan(card: &ModelCard, cluster: &Cluster, request: &Request) -> Result<Placement> {
    let topology = Topology::new(cluster);
    let problem = Problem::new(card, &topology, request)?;
    let mut ledger = Ledger::new(&topology);
    match problem.solve(&mut ledger) {
        Ok(solution) => {
            let report = problem.report(&solution, ledger.rules);
            Ok(Placement {
                n_layers: card.n_layers,
                stages: problem.stages(&solution),
                experts: Vec::new(),
                addresses: std::collections::BTreeMap::new(),
                budgets: report.nodes.iter().map(|node| Budget::new(node, request.strictness)).collect(),
                ffn_budget: None,
                weights: None,
                context_tokens: Some(request.context_tokens),
                sessions: None,
                kv: request.kv,
                context_limit: report.context.tokens,
                // Skulk 1.3 refuses fields that it does not know.
                card: Some(Arc::new(ModelCard { facts: None, ..card.clone() })),
                instance: solution.instance,
                ids: None,
                report: Some(Arc::new(report)),
            })
        }
        Err(refused) => {
            let kind = if refused.pending { ErrorKind::PlanPending } else { ErrorKind::PlanNoFit };
            let error = Error::new(kind, refused.message.clone()).with("model", &card.model_id);
            let report = problem.refusal(refused, ledger.rules);
            Err(error.with_hint(report::hint(&report)).with_detail(report))
        }
    }
}

/// The rings that a plan considers unless its request has some: nodes by rank, narrow ones first. For hosts
/// that show them, or give a plan some of them.
///
/// # Errors
/// `InvalidArgument` for rings in the request that are none.
pub fn rings(card: &ModelCard, cluster: &Cluster, request: &Request) -> Result<Vec<Vec<NodeId>>> {
    let topology = Topology::new(cluster);
    let problem = Problem::new(card, &topology, request)?;
    let all: Vec<usize> = (0..topology.len()).collect();
    Ok(problem.own_rings(&all).iter().map(|ring| topology.names(ring)).collect())
}

/// Nodes that connect to one other at most: those that rings given in a request are preferred for.
pub fn leaves(cluster: &Cluster) -> Vec<NodeId> {
    let topology = Topology::new(cluster);
    let leaves: Vec<usize> = (0..topology.len()).filter(|&node| topology.is_leaf(node)).collect();
    topology.names(&leaves)
}
