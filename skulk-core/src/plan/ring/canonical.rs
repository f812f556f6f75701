//! Which rings are worth considering? The planner's own, without enumerating cycles.
//!
//! All are over positions in the nodes' canonical order, so that neither the order of nodes nor that of links
//! matters. Parts of the graph in which each node reaches each other are taken one by one:
//!
//! - of at most [`EXACT`] nodes: one ring of each set of nodes that has any, found set by set (the dynamic
//!   programme of Held and Karp, over reachability);
//! - in which all are linked: the prefixes of each order of preference, as any order of nodes is a ring;
//! - others: rings of two, the shortest way back from each link, and what these grow to by inserting nodes
//!   between neighbours that are linked to them, in each order of preference.
//!
//! Rings for RDMA are sets in which all are linked with all, by the same three ways.

use std::collections::HashSet;
use std::ops::Deref;
use std::rc::Rc;

use super::facts::Orders;
use super::graph::Graph;

/// Nodes of a part of which every set is tried: 2^12 sets.
pub(super) const EXACT: usize = 12;
/// Width up to which orders of preference are mixed, and rings grow where not all are linked.
const MIXED: usize = 16;
const GROWN: usize = 256;
/// Links from which ways back are sought, rings from which others grow, and nodes from which sets grow.
const LINKS: usize = 4096;
const SEEDS: usize = 4;
const STARTS: usize = 64;
/// Links that are looked up at most while a ring grows, and while all do.
const LOOKED_UP: usize = 1 << 20;
const LOOKED_UP_IN_ALL: usize = 1 << 24;

/// Nodes by rank: the first `len` of an order that other rings may share.
#[derive(Clone)]
pub(super) struct Ring {
    order: Rc<[usize]>,
    len: usize,
}

impl Ring {
    pub(super) fn new(nodes: Vec<usize>) -> Self {
        Self { len: nodes.len(), order: nodes.into() }
    }
}

impl Deref for Ring {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.order[..self.len]
    }
}

/// How a ring's nodes must be linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Each to the next.
    Cycle,
    /// Each with each.
    Clique,
}

/// Collects rings; each set of nodes once.
pub(super) struct Search<'a> {
    /// What each position stands for.
    nodes: &'a [usize],
    orders: &'a [Orders],
    /// Width from which rings are wanted, and up to which they grow.
    narrowest: usize,
    widest: usize,
    /// Width beyond which there is nothing left to divide.
    most: usize,
    /// Links that may still be looked up.
    lookups: usize,
    seen: HashSet<Vec<usize>>,
    rings: Vec<Ring>,
}

impl<'a> Search<'a> {
    /// Starts with the nodes alone. Rings of fewer nodes than `min_nodes` need not be found, nor wider ones
    /// than that if they are of more than `most`.
    pub(super) fn new(nodes: &'a [usize], orders: &'a [Orders], min_nodes: usize, most: usize) -> Self {
        let rings = nodes.iter().map(|&node| Ring::new(vec![node])).collect();
        Self {
            nodes,
            orders,
            narrowest: min_nodes.max(2),
            widest: GROWN.max(min_nodes),
            most: most.max(min_nodes),
            lookups: LOOKED_UP_IN_ALL,
            seen: HashSet::new(),
            rings,
        }
    }

    /// All that was found, narrow ones first; of the same width, in the order in which they were found.
    pub(super) fn finish(mut self) -> Vec<Ring> {
        self.rings.sort_by_key(|ring| ring.len);
        self.rings
    }

    /// Rings of this shape in this graph.
    pub(super) fn add(&mut self, graph: &Graph, shape: Shape) {
        for part in graph.components() {
            if part.len() <= EXACT {
                self.exact(graph, shape, &part);
            } else if graph.is_complete(&part) {
                self.prefixes(&part);
            } else {
                match shape {
                    Shape::Cycle => self.grow(graph, &part),
                    Shape::Clique => self.cliques(graph, &part),
                }
            }
        }
    }

    /// Adds a ring over positions, unless one of the same nodes is there.
    fn push(&mut self, ring: &[usize]) {
        let mut set = ring.to_vec();
        set.sort_unstable();
        if self.seen.insert(set) {
            self.rings.push(Ring::new(ring.iter().map(|&position| self.nodes[position]).collect()));
        }
    }

    /// One ring of each set of these nodes that has any.
    fn exact(&mut self, graph: &Graph, shape: Shape, part: &[usize]) {
        let n = part.len();
        let out: Vec<u16> = part
            .iter()
            .map(|&a| (0..n).filter(|&b| graph.linked(a, part[b])).fold(0, |bits, b| bits | 1 << b))
            .collect();
        let mut sets: Vec<u16> =
            (1..1u32 << n).map(|set| set as u16).filter(|set| set.count_ones() > 1).collect();
        // By width, then those first whose first nodes come first.
        sets.sort_by_key(|set| (set.count_ones(), std::cmp::Reverse(set.reverse_bits())));
        let ends = if shape == Shape::Cycle { path_ends(&out) } else { Vec::new() };
        for set in sets {
            let ring = match shape {
                Shape::Cycle => cycle_of(&out, &ends, set),
                Shape::Clique => {
                    bits(set).all(|a| set & !(out[a] | 1 << a) == 0).then(|| bits(set).collect())
                }
            };
            if let Some(ring) = ring {
                self.push(&ring.into_iter().map(|i: usize| part[i]).collect::<Vec<_>>());
            }
        }
    }

    /// Prefixes of each order of preference; narrow ones also of several orders, one after the other.
    fn prefixes(&mut self, part: &[usize]) {
        let inside: HashSet<usize> = part.iter().copied().collect();
        let within =
            |order: &[usize]| order.iter().copied().filter(|p| inside.contains(p)).collect::<Vec<_>>();
        for orders in self.orders {
            let by_usable = within(&orders.by_usable);
            let others = orders.others.iter().map(|order| within(order));
            for other in [by_usable.clone()].into_iter().chain(others) {
                for width in self.narrowest..=MIXED.min(self.most).min(other.len()) {
                    for first in 1..=width {
                        let head = &other[..first];
                        let rest = by_usable.iter().filter(|position| !head.contains(position));
                        self.push(&head.iter().chain(rest).take(width).copied().collect::<Vec<_>>());
                    }
                }
                let order: Rc<[usize]> = other.iter().map(|&position| self.nodes[position]).collect();
                self.rings
                    .extend((MIXED + 1..=order.len()).map(|len| Ring { order: Rc::clone(&order), len }));
            }
        }
    }

    /// Rings of two, shortest ways back, and what grows from them.
    fn grow(&mut self, graph: &Graph, part: &[usize]) {
        let pairs = part.iter().flat_map(|&a| part.iter().map(move |&b| (a, b)));
        let mut seeds: Vec<Vec<usize>> = Vec::new();
        for (a, b) in pairs.filter(|&(a, b)| graph.linked(a, b)).take(LINKS) {
            if a < b && graph.linked(b, a) {
                seeds.push(vec![a, b]);
            }
            seeds.extend(graph.detour(b, a).map(|path| {
                // The way ends where it is to begin.
                [&path[path.len() - 1..], &path[..path.len() - 1]].concat()
            }));
        }
        seeds.iter().for_each(|seed| self.push(seed));
        let orders = self.orders;
        for order in orders.iter().flat_map(|orders| [&orders.by_usable].into_iter().chain(&orders.others)) {
            let mut place = vec![usize::MAX; self.nodes.len()];
            order.iter().enumerate().for_each(|(i, &position)| place[position] = i);
            let mut seeds: Vec<_> = seeds
                .iter()
                .filter(|seed| seed.iter().all(|&position| place[position] < usize::MAX))
                .map(|seed| (seed.iter().map(|&position| place[position]).sum::<usize>() / seed.len(), seed))
                .collect();
            seeds.sort();
            seeds.dedup();
            let order: Vec<usize> = order.iter().copied().filter(|p| part.binary_search(p).is_ok()).collect();
            for (_, seed) in seeds.into_iter().take(SEEDS) {
                self.grow_from(graph, seed.clone(), &order);
            }
        }
    }

    /// Inserts the first node that fits anywhere, until none does or enough was looked up.
    fn grow_from(&mut self, graph: &Graph, mut ring: Vec<usize>, order: &[usize]) {
        let mut inside: HashSet<usize> = ring.iter().copied().collect();
        let mut lookups = LOOKED_UP.min(self.lookups);
        self.lookups -= lookups;
        'grown: while ring.len() < self.widest {
            for v in order.iter().copied().filter(|v| !inside.contains(v)) {
                let Some(left) = lookups.checked_sub(ring.len()) else { return };
                lookups = left;
                let fits = |i: usize| graph.linked(ring[i], v) && graph.linked(v, ring[(i + 1) % ring.len()]);
                if let Some(i) = (0..ring.len()).rev().find(|&i| fits(i)) {
                    ring.insert(i + 1, v);
                    inside.insert(v);
                    self.push(&ring);
                    continue 'grown;
                }
            }
            break;
        }
        self.lookups += lookups;
    }

    /// From each of the first nodes, who is linked with all so far, in each order of preference.
    fn cliques(&mut self, graph: &Graph, part: &[usize]) {
        let orders = self.orders;
        for order in orders.iter().flat_map(|orders| [&orders.by_usable].into_iter().chain(&orders.others)) {
            let order: Vec<usize> = order.iter().copied().filter(|p| part.binary_search(p).is_ok()).collect();
            for &start in order.iter().take(STARTS) {
                let mut clique = vec![start];
                for &v in &order {
                    let Some(left) = self.lookups.checked_sub(clique.len()) else { return };
                    self.lookups = left;
                    let linked = |&u: &usize| graph.linked(u, v) && graph.linked(v, u);
                    if clique.len() < self.widest && v != start && clique.iter().all(linked) {
                        clique.push(v);
                        self.push(&clique);
                    }
                }
            }
        }
    }
}

fn bits(set: u16) -> impl Iterator<Item = usize> {
    (0..16).filter(move |i| set >> i & 1 == 1)
}

/// For each set, at which of its nodes a way can end that starts at the first and visits each once.
fn path_ends(out: &[u16]) -> Vec<u16> {
    let mut ends = vec![0u16; 1 << out.len()];
    for set in 1..ends.len() {
        let first = set.trailing_zeros();
        if set.is_power_of_two() {
            ends[set] = set as u16;
        }
        let later = !(set as u16) & (u16::MAX << first);
        for end in bits(ends[set]) {
            for next in bits(out[end] & later) {
                ends[set | 1 << next] |= 1 << next;
            }
        }
    }
    ends
}

/// A ring of all nodes of a set, from the first.
fn cycle_of(out: &[u16], ends: &[u16], set: u16) -> Option<Vec<usize>> {
    let first = set.trailing_zeros() as usize;
    let (mut rest, mut next, mut ring) = (set, first, Vec::new());
    while rest.count_ones() > 1 {
        let end = bits(ends[usize::from(rest)]).find(|&end| out[end] >> next & 1 == 1)?;
        ring.push(end);
        rest &= !(1 << end);
        next = end;
    }
    // The last step leads back to the first, from which `ends` began.
    (out[first] >> next & 1 == 1).then(|| {
        ring.push(first);
        ring.reverse();
        ring
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(n: usize, links: &[(usize, usize)], shape: Shape) -> Vec<Vec<usize>> {
        let nodes: Vec<usize> = (0..n).collect();
        let orders = [Orders { by_usable: nodes.clone(), others: Vec::new() }];
        let mut search = Search::new(&nodes, &orders, 1, n);
        search.add(&Graph::new(n, links.iter().copied()), shape);
        search.finish().iter().map(|ring| ring.to_vec()).collect()
    }

    fn ring_graph(n: usize, both_ways: bool) -> Vec<(usize, usize)> {
        let there = (0..n).map(|i| (i, (i + 1) % n));
        let back = (0..n).map(|i| ((i + 1) % n, i)).filter(|_| both_ways);
        there.chain(back).collect()
    }

    /// Rings that are none, and widths that are missing.
    fn check(n: usize, links: &[(usize, usize)], widths: &[usize]) {
        let rings = search(n, links, Shape::Cycle);
        for ring in rings.iter().filter(|ring| ring.len() > 1) {
            for (i, a) in ring.iter().enumerate() {
                assert!(links.contains(&(*a, ring[(i + 1) % ring.len()])), "{ring:?}");
            }
            assert_eq!(ring.iter().collect::<HashSet<_>>().len(), ring.len());
        }
        let found: HashSet<usize> = rings.iter().map(|ring| ring.len()).collect();
        assert_eq!(found, widths.iter().copied().collect());
    }

    #[test]
    fn rings_of_every_width_are_found() {
        for n in [4, 9, 12, 13, 40] {
            check(n, &ring_graph(n, true), &[1, 2, n]);
            check(n, &ring_graph(n, false), &[1, n]);
            let all: Vec<_> =
                (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
            check(n, &all, &(1..=n).collect::<Vec<_>>());
        }
        // A wheel: all are linked with the hub, and with their neighbours on the rim.
        for n in [8, 30] {
            let spokes = (1..n).flat_map(|i| [(0, i), (i, 0)]);
            let rim = (1..n).flat_map(|i| [(i, i % (n - 1) + 1), (i % (n - 1) + 1, i)]);
            check(n, &spokes.chain(rim).collect::<Vec<_>>(), &(1..=n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_best_ring_of_a_mesh_is_a_prefix() {
        let n = 20;
        let all: Vec<_> = (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
        let rings = search(n, &all, Shape::Cycle);
        for width in 1..=n {
            let first = rings.iter().find(|ring| ring.len() == width).unwrap();
            assert_eq!(*first, (0..width).collect::<Vec<_>>());
        }
    }

    #[test]
    fn cliques_are_linked_all_to_all() {
        for n in [6, 20] {
            // Two halves, each complete, with one link between them.
            let half = |i: usize| i * 2 / n;
            let links = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
            let inside = links.filter(|&(a, b)| {
                a != b && (half(a) == half(b) || (a, b) == (0, n - 1) || (b, a) == (0, n - 1))
            });
            let inside: Vec<_> = inside.collect();
            let rings = search(n, &inside, Shape::Clique);
            let graph = Graph::new(n, inside.into_iter());
            assert_eq!(rings.iter().map(Vec::len).max(), Some(n / 2));
            assert!(rings.iter().all(|ring| graph.is_complete(ring)));
        }
    }
}
