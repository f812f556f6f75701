//! What comes of requests for more than there is, and how is that said?

use super::tests::{card, memory_node, mesh};
use crate::plan::{Cluster, LinkSpeed, Node, PlanReport, Planner, Request};

fn cluster_of(n: usize, gib: u64) -> Vec<Node> {
    (0..n).map(|at| memory_node(&format!("n{at:02}"), gib)).collect()
}

#[test]
fn prompts_are_no_longer_than_the_context() {
    let cluster = mesh(cluster_of(1, 64));
    let card = card(8, 32);
    let tokens = |request: &Request| {
        let placement = Planner::plan(&card, &cluster, request).unwrap();
        let (_, priced) = Planner::price(&card, &cluster, request, &placement).unwrap();
        let planned = placement.report().unwrap().prompt.unwrap();
        assert_eq!(planned, priced);
        planned.tokens
    };
    let request = Request::default;
    assert_eq!(tokens(&request()), 512);
    assert_eq!(tokens(&request().context_tokens(64)), 64);
    assert_eq!(tokens(&request().context_tokens(2048).prompt_tokens(1_000_000)), 2048);
    assert_eq!(tokens(&request().context_tokens(u64::MAX).prompt_tokens(u64::MAX)), 131_072);
}

#[test]
fn memory_that_is_out_of_reach_is_not_counted() {
    let card = card(12, 8);
    let refused = |cluster: &Cluster| {
        let error = Planner::plan(&card, cluster, &Request::default()).unwrap_err();
        let report = error.detail::<PlanReport>().unwrap();
        (report.refused.clone().unwrap().message, report.would_fit.clone())
    };
    let (message, ways) = refused(&Cluster::new(cluster_of(4, 8), Vec::new()));
    assert!(message.contains("found 8.0 GiB on 1 device; not linked with `n00`"), "{message}");
    let links = "links between all nodes".to_owned();
    assert!(ways.contains(&links), "{ways:?}");
    Planner::plan(&card, &Cluster::mesh(cluster_of(4, 8), LinkSpeed::DEFAULT), &Request::default()).unwrap();
    let (message, ways) = refused(&mesh(cluster_of(2, 4)));
    assert!(message.ends_with("found 8.0 GiB on 2 devices that can share the work"), "{message}");
    assert!(!ways.contains(&links), "{ways:?}");
    // Nothing but whole layers of 1.5 GiB: no device has room for one.
    let (message, _) = refused(&mesh(cluster_of(16, 1)));
    assert!(message.ends_with("in pieces that are too small"), "{message}");
    // Other software does not work over several nodes.
    let foreign = cluster_of(3, 4).into_iter().map(|node| node.backends(["mlx"])).collect();
    let mut card = card;
    card.placement.compatible_backends.insert("mlx".to_owned());
    let error = Planner::plan(&card, &mesh(foreign), &Request::default()).unwrap_err();
    assert!(error.to_string().contains("found 4.0 GiB on 1 device"), "{error}");
}
