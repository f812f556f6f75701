//! How fast do two nodes talk? The cluster's links by index, without a table of all pairs.

use std::collections::{BTreeMap, HashMap};

use super::cluster::{Cluster, LinkSpeed, NodeId};

/// The links of a cluster.
pub(super) struct Links {
    mesh: Option<LinkSpeed>,
    /// Of several links between the same two nodes those that are the quickest for some number of bytes.
    between: HashMap<(usize, usize), Vec<LinkSpeed>>,
}

impl Links {
    /// Of a cluster whose nodes have these indices.
    pub(super) fn new(cluster: &Cluster, index: &BTreeMap<&NodeId, usize>) -> Self {
        let mut between: HashMap<(usize, usize), Vec<LinkSpeed>> = HashMap::new();
        for link in &cluster.links {
            let (Some(&source), Some(&sink)) = (index.get(&link.source), index.get(&link.sink)) else {
                continue;
            };
            let speed = link.speed.or(cluster.mesh).unwrap_or(LinkSpeed::DEFAULT);
            let known = between.entry((source, sink)).or_default();
            if !known.iter().any(|known| is_as_quick(known, &speed)) {
                known.retain(|known| !is_as_quick(&speed, known));
                known.push(speed);
            }
        }
        Self { mesh: cluster.mesh, between }
    }

    /// Whether all nodes reach each other.
    pub(super) fn join_all(&self) -> bool {
        self.mesh.is_some()
    }

    /// Whether two different nodes reach each other.
    pub(super) fn join(&self, a: usize, b: usize) -> bool {
        self.from(a, b).is_some() && self.from(b, a).is_some()
    }

    /// Seconds until so many bytes are there and an answer is back, between two different nodes that reach each other: at the
    /// slower direction's speed, by the links that are the quickest for it.
    pub(super) fn seconds(&self, a: usize, b: usize, bytes: f64) -> Option<f64> {
        let (there, back) = (self.from(a, b)?, self.from(b, a)?);
        let by = |there: &LinkSpeed, back: &LinkSpeed| {
            there.round_trip_seconds.max(back.round_trip_seconds)
                + bytes / there.bytes_per_second.min(back.bytes_per_second)
        };
        there.iter().flat_map(|there| back.iter().map(move |back| by(there, back))).min_by(f64::total_cmp)
    }

    /// The speeds of links from a node to another.
    fn from(&self, source: usize, sink: usize) -> Option<&[LinkSpeed]> {
        let all = self.mesh.as_ref().map(std::slice::from_ref);
        self.between.get(&(source, sink)).map(Vec::as_slice).or(all)
    }
}

/// Whether a link is at least as quick as another, however much goes over it.
fn is_as_quick(link: &LinkSpeed, other: &LinkSpeed) -> bool {
    link.round_trip_seconds <= other.round_trip_seconds && link.bytes_per_second >= other.bytes_per_second
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Link, Node};

    #[test]
    fn of_several_links_the_quickest_for_what_goes_over_it_counts() {
        let nodes = ["a", "b"].map(NodeId::new);
        let index: BTreeMap<&NodeId, usize> = nodes.iter().zip(0..).collect();
        let seconds = |speeds: &[(f64, f64)], bytes: f64| {
            let link = |a: &str, b: &str, &(trip, rate): &(f64, f64)| {
                Link::socket(a, b, "").speed(LinkSpeed::new(trip, rate))
            };
            let both = |it: &(f64, f64)| [link("a", "b", it), link("b", "a", it)];
            let links = speeds.iter().flat_map(both).collect();
            let cluster = Cluster::new(["a", "b"].map(Node::new).to_vec(), links);
            Links::new(&cluster, &index).seconds(0, 1, bytes)
        };
        let (near, wide, worse) = ((1e-4, 1e8), (1.01e-4, 1e10), (1e-4, 1e7));
        for speeds in [[near, wide, worse], [worse, wide, near], [wide, worse, near]] {
            assert_eq!(seconds(&speeds, 0.0), Some(1e-4));
            assert_eq!(seconds(&speeds, 1e8), Some(1.01e-4 + 1e-2));
        }
        assert_eq!(seconds(&[], 1.0), None);
    }
}
