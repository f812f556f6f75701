//! What candle's engines copy of keys and values: it grows with the context, and only attention does it.

use super::tests::{card, memory_node, mesh};
use crate::card::ModelCard;
use crate::plan::{Cluster, Inventory, Placement, Planner, Request, Role};

fn model() -> (ModelCard, Inventory) {
    let inventory = Inventory::of_experts(12, 20_000_000, 4_000_000, (4, 2), 10_000_000, 65_536);
    let mut card = card(0, 12);
    card.storage_size.in_bytes = inventory.weights();
    card.placement.compatible_backends = ["skulk-candle-cpu", "skulk-cpu"].map(str::to_owned).into();
    (card, inventory)
}

fn plan(cluster: &Cluster, tokens: u64) -> Option<Placement> {
    let (card, inventory) = model();
    Planner::plan(&card, cluster, &Request::default().context_tokens(tokens).inventory(inventory)).ok()
}

#[test]
fn a_context_as_long_as_the_limit_fits() {
    for backend in ["skulk-candle-cpu", "skulk-cpu"] {
        let cluster = mesh(vec![memory_node("a", 8).backends([backend])]);
        let limit = plan(&cluster, 512).unwrap().context_limit().unwrap();
        assert!(limit > 2048 && limit < 131_072, "{limit}");
        assert_eq!(plan(&cluster, limit).unwrap().context_limit(), Some(limit), "{backend}");
        assert!(plan(&cluster, limit + 1).is_none(), "{backend}");
    }
}

#[test]
fn blocks_alone_copy_no_keys_and_values() {
    let blocks = memory_node("b", 8).role(Role::FfnOnly).backends(["skulk-candle-cpu"]);
    let cluster = mesh(vec![memory_node("a", 1).backends(["skulk-cpu"]), blocks]);
    let headroom = |tokens: u64| {
        let placement = plan(&cluster, tokens).unwrap();
        let report = placement.report().unwrap();
        report.nodes.iter().find(|node| node.node.as_str() == "b").unwrap().bytes.headroom
    };
    assert_eq!(headroom(256), headroom(512));
}
