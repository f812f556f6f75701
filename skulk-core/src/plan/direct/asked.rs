//! What comes of requests for more than there is, and how is that said?

use super::tests::{card, memory_node, mesh};
use crate::plan::{Node, Planner, Request};

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
