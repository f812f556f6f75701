//! What does the ring planner know about each node, and which nodes does it prefer?

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::topology::Topology;
use crate::card::ModelCard;
use crate::plan::backend::serves;
use crate::plan::cluster::{NodeId, Role};
use crate::plan::memory::{Usable, usable_memory};
use crate::plan::request::Request;

/// What is known about a node.
pub(super) struct Facts<'a> {
    /// What a model may use; `None`: it has not reported its memory.
    pub(super) usable: Option<Usable>,
    /// Main memory that is free.
    pub(super) available: u64,
    /// The share of the model that lies on its disk.
    pub(super) download: f64,
    /// Its backends; `None`: it has not reported them.
    pub(super) tags: Option<&'a BTreeSet<String>>,
    /// What it does.
    pub(super) role: Role,
    id: &'a NodeId,
}

impl<'a> Facts<'a> {
    pub(super) fn all(card: &ModelCard, topology: &Topology<'a>, request: &Request) -> Vec<Self> {
        let facts = |index| {
            let (id, node) = (topology.id(index), topology.node(index));
            let download = node.and_then(|node| node.downloads.get(&card.model_id)).copied().unwrap_or(0.0);
            Self {
                usable: node.and_then(|node| usable_memory(node, request.strictness)),
                available: node.and_then(|node| node.memory).map_or(0, |memory| memory.ram_available),
                download: if download.is_finite() { download } else { 0.0 },
                tags: node.and_then(|node| node.backends.as_ref()),
                role: node.map_or(Role::Full, |node| node.role),
                id,
            }
        };
        (0..topology.len()).map(facts).collect()
    }

    /// Bytes that a model may use; 0 where that is not known.
    pub(super) fn bytes(&self) -> u64 {
        self.usable.map_or(0, |usable| usable.bytes)
    }

    /// Whether it has a backend, as far as it has reported any.
    pub(super) fn may_serve(&self, card_tag: &str) -> bool {
        self.tags.is_none_or(|tags| tags.iter().any(|tag| serves(tag, card_tag)))
    }

    /// The canonical order, best first: by facts, and only then by name.
    fn key(&self) -> impl Ord + use<'_> {
        let download = Reverse(self.download.max(0.0).to_bits());
        (
            Reverse(self.usable.map(|usable| usable.bytes)),
            Reverse(self.available),
            download,
            self.tags,
            self.id,
        )
    }
}

/// Nodes in their canonical order.
pub(super) fn canonical(facts: &[Facts], nodes: &mut [usize]) {
    nodes.sort_by(|&a, &b| facts[a].key().cmp(&facts[b].key()));
}

/// Orders of preference over the same nodes, given by position in their canonical order.
pub(super) struct Orders {
    /// By memory that a model may use.
    pub(super) by_usable: Vec<usize>,
    /// By share on disk, and by free memory, where these differ.
    pub(super) others: Vec<Vec<usize>>,
}

/// Preferred backends that get orders of their own.
const PREFERENCES: usize = 32;

/// What rings can be wanted for: those of all nodes, and those of nodes that have a preferred backend; in each,
/// most memory that a model may use, most of the model on disk, and most free memory. Nodes that must be used
/// come first in each.
pub(super) fn orders(card: &ModelCard, request: &Request, facts: &[Facts], nodes: &[usize]) -> Vec<Orders> {
    let all: Vec<usize> = (0..nodes.len()).collect();
    let mut groups = vec![all];
    for tag in card.placement.backend_preference.iter().take(PREFERENCES) {
        let serves = |&position: &usize| facts[nodes[position]].may_serve(tag);
        let group: Vec<usize> = (0..nodes.len()).filter(serves).collect();
        if group.len() > 1 && !groups.contains(&group) {
            groups.push(group);
        }
    }
    let fact = |position: usize| &facts[nodes[position]];
    let required = |position: &usize| !request.required_nodes.contains(fact(*position).id);
    let order = |mut by_usable: Vec<usize>| {
        by_usable.sort_by_key(required);
        let mut by_download = by_usable.clone();
        by_download.sort_by(|&a, &b| {
            required(&a).cmp(&required(&b)).then(fact(b).download.total_cmp(&fact(a).download))
        });
        let mut by_available = by_usable.clone();
        by_available.sort_by_key(|position| (required(position), Reverse(fact(*position).available)));
        let mut others = vec![by_download, by_available];
        others.retain(|order| *order != by_usable);
        others.dedup();
        Orders { by_usable, others }
    };
    groups.into_iter().map(order).collect()
}
