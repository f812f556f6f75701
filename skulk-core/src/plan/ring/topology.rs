//! Who is connected to whom? The links of a cluster, looked up by pairs of nodes.

use std::collections::HashMap;

use crate::plan::cluster::{Cluster, LinkKind, Node, NodeId};

/// A cluster's nodes by index, and its links by pair. A mesh is a fact about all pairs, never a list of them.
pub(super) struct Topology<'a> {
    /// All names, those first that the cluster lists; then those that only links know.
    ids: Vec<&'a NodeId>,
    /// What is known about each; `None`: only a link names it.
    nodes: Vec<Option<&'a Node>>,
    by_id: HashMap<&'a NodeId, usize>,
    /// Source, sink and position of each link, sorted.
    pairs: Vec<(usize, usize, usize)>,
    cluster: &'a Cluster,
}

impl<'a> Topology<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        let known = cluster.nodes.len();
        let mut topology = Self {
            ids: Vec::with_capacity(known),
            nodes: Vec::with_capacity(known),
            by_id: HashMap::with_capacity(known),
            pairs: Vec::with_capacity(cluster.links.len()),
            cluster,
        };
        for node in &cluster.nodes {
            topology.add(&node.id, Some(node));
        }
        for (position, link) in cluster.links.iter().enumerate() {
            let (source, sink) = (topology.add(&link.source, None), topology.add(&link.sink, None));
            topology.pairs.push((source, sink, position));
        }
        topology.pairs.sort_unstable();
        topology
    }

    /// The index of a name; of two nodes with the same name, the first counts.
    fn add(&mut self, id: &'a NodeId, node: Option<&'a Node>) -> usize {
        *self.by_id.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.nodes.push(node);
            self.ids.len() - 1
        })
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn id(&self, node: usize) -> &'a NodeId {
        self.ids[node]
    }

    pub(super) fn node(&self, node: usize) -> Option<&'a Node> {
        self.nodes[node]
    }

    pub(super) fn index(&self, id: &NodeId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// Names of nodes, in this order.
    pub(super) fn names(&self, ring: &[usize]) -> Vec<NodeId> {
        ring.iter().map(|&node| self.ids[node].clone()).collect()
    }

    /// Every two nodes are connected, whether a link says so or not.
    pub(super) fn is_mesh(&self) -> bool {
        self.cluster.mesh.is_some()
    }

    /// The links from one node to another, the last stored first: as in the reference, where the newest
    /// counts.
    pub(super) fn links(
        &self,
        source: usize,
        sink: usize,
    ) -> impl Iterator<Item = &'a LinkKind> + use<'a, '_> {
        let start = self.pairs.partition_point(|&(a, b, _)| (a, b) < (source, sink));
        let same = self.pairs[start..].iter().take_while(move |&&(a, b, _)| (a, b) == (source, sink));
        let same = self.pairs[start..start + same.count()].iter().rev();
        same.map(|&(_, _, position)| &self.cluster.links[position].kind)
    }

    /// Source, sink and kind of each link, sorted by pairs.
    pub(super) fn all_links(&self) -> impl Iterator<Item = (usize, usize, &'a LinkKind)> + use<'a, '_> {
        let kind = |position: usize| &self.cluster.links[position].kind;
        self.pairs.iter().map(move |&(source, sink, position)| (source, sink, kind(position)))
    }

    /// Whether a node connects to another.
    pub(super) fn is_linked(&self, source: usize, sink: usize) -> bool {
        self.is_mesh() && source != sink || self.links(source, sink).next().is_some()
    }

    /// Whether a node connects to one other at most.
    pub(super) fn is_leaf(&self, node: usize) -> bool {
        if self.is_mesh() {
            return self.len() <= 2;
        }
        let start = self.pairs.partition_point(|&(source, ..)| source < node);
        let mut sinks = self.pairs[start..].iter().take_while(|pair| pair.0 == node).map(|pair| pair.1);
        sinks.next().is_none_or(|first| sinks.all(|sink| sink == first))
    }

    /// The interfaces by which a node reaches another by RDMA, the last stored first.
    pub(super) fn rdma(&self, source: usize, sink: usize) -> impl Iterator<Item = &'a str> + use<'a, '_> {
        self.links(source, sink).filter_map(|kind| match kind {
            LinkKind::Rdma { source_iface, .. } => Some(source_iface.as_str()),
            LinkKind::Socket { .. } => None,
        })
    }

    /// Whether a node reaches another by RDMA.
    pub(super) fn has_rdma(&self, source: usize, sink: usize) -> bool {
        self.rdma(source, sink).next().is_some()
    }

    /// The addresses at which a node reached another, the last stored first.
    pub(super) fn addresses(
        &self,
        source: usize,
        sink: usize,
    ) -> impl Iterator<Item = &'a str> + use<'a, '_> {
        self.links(source, sink).filter_map(|kind| match kind {
            LinkKind::Socket { address } => Some(address.as_str()),
            LinkKind::Rdma { .. } => None,
        })
    }
}
