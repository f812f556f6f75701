//! What other nodes change: those that have not said what they run, and those of other software.

use super::tests::{card, memory_node, mesh};
use crate::card::ModelCard;
use crate::plan::{Cluster, Inventory, Link, LinkSpeed, Node, Planner, Request, Role};

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

/// Further owners are devices of the same engine, each charged what it takes.
#[test]
fn replicas_are_on_devices_that_work_together() {
    let inventory = Inventory::of_experts(12, 100_000_000, 20_000_000, (16, 2), 50_000_000, 4096);
    let mut card = card(0, 12);
    card.storage_size.in_bytes = inventory.weights();
    card.placement.compatible_backends = ["skulk-cpu", "mlx"].map(str::to_owned).into();
    let request = Request::default().context_tokens(512).inventory(inventory).replicas(1);
    let blocks = |id: &str, gib: u64| memory_node(id, gib).role(Role::FfnOnly);
    let replicas = |other: Node| {
        let cluster = mesh(vec![memory_node("a", 5), blocks("b", 8), other]);
        let placement = Planner::plan(&card, &cluster, &request).unwrap();
        placement.check(&card).unwrap();
        let replicas = placement.experts().iter().filter(|shard| shard.replica);
        replicas.map(|shard| shard.node.to_string()).collect::<Vec<_>>()
    };
    let foreign = replicas(memory_node("m", 3).backends(["mlx"]));
    assert!(!foreign.contains(&"m".to_owned()), "{foreign:?}");
    let own = replicas(blocks("m", 16));
    assert!(own.contains(&"m".to_owned()), "{own:?}");
}

/// There are fewer where nodes have no room for more, and none for what is where its layer's attention is.
#[test]
fn missing_replicas_are_warned_of() {
    let inventory = Inventory::of_experts(12, 100_000_000, 20_000_000, (16, 2), 50_000_000, 4096);
    let warnings = |card: &ModelCard, nodes: &[Node], inventory: &Inventory, replicas: usize| {
        let request = Request::default().context_tokens(512).inventory(inventory.clone()).replicas(replicas);
        let placement = Planner::plan(card, &mesh(nodes.to_vec()), &request).unwrap();
        let found = placement.experts().iter().filter(|shard| shard.replica).count();
        let warnings = placement.report().unwrap().warnings.clone();
        (found, warnings.into_iter().filter(|it| it.contains("replicas")).collect::<Vec<_>>())
    };
    let mut mixture = card(0, 12);
    mixture.storage_size.in_bytes = inventory.weights();
    let blocks = |id: &str| memory_node(id, 16).role(Role::FfnOnly);
    let nodes = [memory_node("a", 3), blocks("b"), blocks("c")];
    assert!(warnings(&mixture, &nodes, &inventory, 0).1.is_empty());
    let (found, one) = warnings(&mixture, &nodes, &inventory, 1);
    assert!(found > 0 && one.is_empty(), "{one:?}");
    let (_, more) = warnings(&mixture, &nodes, &inventory, usize::MAX);
    assert!(more.len() == 1 && more[0].starts_with("of "), "{more:?}");
    let dense = card(8, 32);
    let nodes = [memory_node("a", 64), memory_node("b", 64)];
    let (found, none) = warnings(&dense, &nodes, &Inventory::from_card(&dense), 1);
    assert!(found == 0 && none[0].starts_with("all blocks and experts"), "{none:?}");
}
