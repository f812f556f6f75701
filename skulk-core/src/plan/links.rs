//! How fast do two nodes talk? The cluster's links by index, without a table of all pairs.

use std::collections::{BTreeMap, HashMap};

use super::cluster::{Cluster, LinkSpeed, NodeId};

/// The links of a cluster.
pub(super) struct Links {
    mesh: Option<LinkSpeed>,
    between: HashMap<(usize, usize), LinkSpeed>,
}

impl Links {
    /// Of a cluster whose nodes have these indices. Of several links between the same two nodes the quickest
    /// counts.
    pub(super) fn new(cluster: &Cluster, index: &BTreeMap<&NodeId, usize>) -> Self {
        let mut between: HashMap<(usize, usize), LinkSpeed> = HashMap::new();
        for link in &cluster.links {
            let (Some(&source), Some(&sink)) = (index.get(&link.source), index.get(&link.sink)) else {
                continue;
            };
            let speed = link.speed.or(cluster.mesh).unwrap_or(LinkSpeed::DEFAULT);
            let known = between.entry((source, sink)).or_insert(speed);
            if speed.round_trip_seconds < known.round_trip_seconds {
                *known = speed;
            }
        }
        Self { mesh: cluster.mesh, between }
    }

    /// Whether all nodes reach each other.
    pub(super) fn join_all(&self) -> bool {
        self.mesh.is_some()
    }

    /// The speed of two different nodes that reach each other; the slower direction's.
    pub(super) fn speed(&self, a: usize, b: usize) -> Option<LinkSpeed> {
        let one = |from, to| self.between.get(&(from, to)).copied().or(self.mesh);
        let (there, back) = (one(a, b)?, one(b, a)?);
        Some(LinkSpeed {
            round_trip_seconds: there.round_trip_seconds.max(back.round_trip_seconds),
            bytes_per_second: there.bytes_per_second.min(back.bytes_per_second),
        })
    }
}
