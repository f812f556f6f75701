//! How fast do two nodes talk? The cluster's links by index, without a table of all pairs.

use std::collections::{BTreeMap, HashMap};

use super::cluster::{Cluster, LinkSpeed, NodeId};

/// The links of a cluster.
pub(super) struct Links {
    mesh: Option<LinkSpeed>,
    /// What the links of two nodes, the lower first, give there and back: each of these speeds is the quickest for some number
    /// of bytes, with shorter round trips first.
    between: HashMap<(usize, usize), Vec<LinkSpeed>>,
}

impl Links {
    /// Of a cluster whose nodes have these indices.
    pub(super) fn new(cluster: &Cluster, index: &BTreeMap<&NodeId, usize>) -> Self {
        let mut between: HashMap<(usize, usize), [Vec<LinkSpeed>; 2]> = HashMap::new();
        for link in &cluster.links {
            let (Some(&source), Some(&sink)) = (index.get(&link.source), index.get(&link.sink)) else {
                continue;
            };
            let speed = link.speed.or(cluster.mesh).unwrap_or(LinkSpeed::DEFAULT);
            let ways = between.entry((source.min(sink), source.max(sink))).or_default();
            ways[usize::from(source > sink)].push(speed);
        }
        let joined = |ways: [Vec<LinkSpeed>; 2]| {
            let [there, back] =
                ways.map(|way| if way.is_empty() { cluster.mesh.into_iter().collect() } else { way });
            there_and_back(&quickest(there), &quickest(back))
        };
        let between = between.into_iter().map(|(nodes, ways)| (nodes, joined(ways)));
        Self { mesh: cluster.mesh, between: between.filter(|(_, speeds)| !speeds.is_empty()).collect() }
    }

    /// Whether all nodes reach each other.
    pub(super) fn join_all(&self) -> bool {
        self.mesh.is_some()
    }

    /// Whether two different nodes reach each other.
    pub(super) fn join(&self, a: usize, b: usize) -> bool {
        !self.speeds(a, b).is_empty()
    }

    /// Seconds until so many bytes are there and an answer is back, between two different nodes that reach each other: at the
    /// slower direction's speed, by the links that are the quickest for it.
    pub(super) fn seconds(&self, a: usize, b: usize, bytes: f64) -> Option<f64> {
        let by = |speed: &LinkSpeed| speed.round_trip_seconds + bytes / speed.bytes_per_second;
        self.speeds(a, b).iter().map(by).min_by(f64::total_cmp)
    }

    fn speeds(&self, a: usize, b: usize) -> &[LinkSpeed] {
        let all = self.mesh.as_slice();
        self.between.get(&(a.min(b), a.max(b))).map_or(all, Vec::as_slice)
    }
}

/// Those that no other is as quick as, however much goes over them: with longer round trips come more bytes a second.
fn quickest(mut speeds: Vec<LinkSpeed>) -> Vec<LinkSpeed> {
    speeds.sort_by(|a, b| {
        let trips = a.round_trip_seconds.total_cmp(&b.round_trip_seconds);
        trips.then(b.bytes_per_second.total_cmp(&a.bytes_per_second))
    });
    let mut most = f64::NEG_INFINITY;
    speeds.retain(|speed| {
        let is_more = speed.bytes_per_second > most;
        most = most.max(speed.bytes_per_second);
        is_more
    });
    speeds
}

/// What two directions' quickest links give together: the longer round trip and the fewer bytes a second. Beside a link is the
/// widest of the other direction's that takes no longer.
fn there_and_back(there: &[LinkSpeed], back: &[LinkSpeed]) -> Vec<LinkSpeed> {
    let beside = |one: &LinkSpeed, others: &[LinkSpeed]| {
        let n = others.partition_point(|other| other.round_trip_seconds <= one.round_trip_seconds);
        let bytes_per_second = others[..n].last()?.bytes_per_second.min(one.bytes_per_second);
        Some(LinkSpeed { bytes_per_second, ..*one })
    };
    let first = there.iter().filter_map(|one| beside(one, back));
    quickest(first.chain(back.iter().filter_map(|one| beside(one, there))).collect())
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

    /// As trying each link there with each one back.
    #[test]
    fn directions_take_different_links() {
        let speed = |trip: u32, rate: u32| LinkSpeed::new(f64::from(trip), f64::from(rate));
        let mut state = 7u32;
        let mut next = |most: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            1 + (state >> 16) % most
        };
        for _ in 0..200 {
            let [there, back] =
                [(); 2].map(|()| (0..next(5)).map(|_| speed(next(9), next(9))).collect::<Vec<_>>());
            let joined = there_and_back(&quickest(there.clone()), &quickest(back.clone()));
            for bytes in [0.0, 1.0, 5.0, 100.0] {
                let by = |there: &LinkSpeed, back: &LinkSpeed| {
                    there.round_trip_seconds.max(back.round_trip_seconds)
                        + bytes / there.bytes_per_second.min(back.bytes_per_second)
                };
                let pairs = there.iter().flat_map(|there| back.iter().map(move |back| by(there, back)));
                let seconds = |speed: &LinkSpeed| speed.round_trip_seconds + bytes / speed.bytes_per_second;
                let found = joined.iter().map(seconds).min_by(f64::total_cmp);
                assert_eq!(found, pairs.min_by(f64::total_cmp), "{there:?} {back:?} {bytes}");
            }
        }
    }
}
