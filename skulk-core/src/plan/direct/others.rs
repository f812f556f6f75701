//! What other nodes change: those that have not said what they run, and those of other software.

use super::tests::{card, memory_node, mesh};
use crate::plan::{Cluster, Link, LinkSpeed, Node, Planner, Request};

const GIB: u64 = 1 << 30;

/// A node that has not said what it runs.
fn silent(id: &str, gib: u64) -> Node {
    Node::new(id).memory(gib * GIB, 2 * gib * GIB)
}

fn seconds(cluster: &Cluster) -> Option<f64> {
    let placement = Planner::plan(&card(19, 48), cluster, &Request::default()).ok()?;
    Some(placement.report().unwrap().estimate.unwrap().seconds())
}

/// What they take is not known, and nobody else's.
#[test]
fn a_node_that_has_not_said_what_it_runs_changes_no_plan() {
    let linked = |nodes: &[Node]| {
        let link = |a: &Node, b: &Node| {
            Link::socket(a.id.clone(), b.id.clone(), "").speed(LinkSpeed::new(1e-4, 1e9))
        };
        nodes.iter().flat_map(|a| nodes.iter().map(move |b| link(a, b))).collect::<Vec<_>>()
    };
    // Up to eight devices, and more.
    for n in [1, 2, 9] {
        let nodes: Vec<Node> = (0..n).map(|at| memory_node(&format!("a{at}"), 12 + 12 / n)).collect();
        let links = linked(&nodes);
        let before = seconds(&Cluster::new(nodes.clone(), links.clone())).unwrap();
        let with = [nodes, vec![silent("b", 1)]].concat();
        assert_eq!(seconds(&Cluster::new(with.clone(), links)), Some(before), "{n}, apart");
        assert_eq!(seconds(&mesh(with)), Some(before), "{n}");
    }
    // They work together, whoever else is there.
    let two = || vec![silent("b", 14), silent("c", 14)];
    let with = [two(), vec![memory_node("m", 4).backends(["mlx"])]].concat();
    let mut card = card(19, 48);
    card.placement.compatible_backends.insert("mlx".to_owned());
    for cluster in [mesh(two()), mesh(with)] {
        let placement = Planner::plan(&card, &cluster, &Request::default()).unwrap();
        assert_eq!(placement.stages().len(), 2);
    }
}
