//! What comes of requests for more than there is, and how is that said?

use super::tests::{card, memory_node, mesh};
use crate::plan::{
    Accelerator, Cluster, Inventory, LinkSpeed, Node, Placement, PlanReport, Planner, Request, Role, Rule,
    Transport, Vendor,
};

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

#[test]
fn refusals_name_what_leaves_nothing() {
    let card = card(4, 4);
    let refused = |cluster: &Cluster, request: &Request| {
        let error = Planner::plan(&card, cluster, request).unwrap_err();
        let refused = error.detail::<PlanReport>().unwrap().refused.clone().unwrap();
        (refused.rule, refused.message)
    };
    let request = Request::default;
    let twelve = mesh(cluster_of(12, 64));
    let (rule, message) = refused(&twelve, &request().min_nodes(9));
    assert_eq!(rule, Rule::Layers);
    let most: usize = message.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(message.starts_with("expected parts of the model for 9 nodes"), "{message}");
    Planner::plan(&card, &twelve, &request().min_nodes(most)).unwrap();
    assert_eq!(refused(&twelve, &request().min_nodes(most + 1)).0, Rule::Layers);

    let blocks = mesh([cluster_of(2, 64), vec![memory_node("m", 64).role(Role::FfnOnly)]].concat());
    let (rule, message) = refused(&blocks, &request().coordinator("m"));
    assert!(rule == Rule::Eligible && message.contains("`m`"), "{message}");

    let inventory = Inventory::from_card(&card);
    let all = Placement::builder(&inventory).layers(0..4, "cpu@n00").feed_forward(0..4, "cpu@n00");
    let fixed = request().inventory(inventory).fixed(all);
    let (rule, message) = refused(&twelve, &fixed.clone().require("n01"));
    assert!(rule == Rule::Required && message.contains("`n01`"), "{message}");
    assert_eq!(refused(&twelve, &fixed.min_nodes(2)).0, Rule::Layers);

    // Each of two accelerators of a node would have to serve the other.
    let tags = ["skulk-wgpu-vulkan:0", "skulk-wgpu-vulkan:1"];
    let gpu =
        |tag: &str| Accelerator::new(Vendor::Nvidia).name("GPU").backend(tag).vram_total_bytes(64 << 30);
    let two = memory_node("n", 64).backends(tags).accelerator(gpu(tags[0])).accelerator(gpu(tags[1]));
    let inventory = Inventory::from_card(&card);
    let rules = Placement::builder(&inventory);
    let rules = rules.feed_forward(0..1, "wgpu-vulkan:0@n").feed_forward(1..2, "wgpu-vulkan:1@n");
    let (rule, message) = refused(&mesh(vec![two]), &request().inventory(inventory).fixed(rules));
    assert!(rule == Rule::Layers && message.contains("fixed by hand"), "{message}");

    let apart = Cluster::new(cluster_of(2, 64), Vec::new());
    assert_eq!(refused(&apart, &request().min_nodes(2)).0, Rule::Connected);
    assert_eq!(refused(&apart, &request().require("n00").require("n01")).0, Rule::Connected);
}

#[test]
fn excluded_nodes_that_are_not_there_are_warned_of() {
    let cluster = mesh(cluster_of(3, 64));
    for transport in [Transport::Direct, Transport::MlxRing] {
        let mut card = card(8, 32);
        card.placement.compatible_backends.insert("mlx".to_owned());
        let warnings = |id: &str| {
            let request = Request::default().transport(transport).exclude("n01").exclude(id);
            Planner::plan(&card, &cluster, &request).unwrap().report().unwrap().warnings.clone()
        };
        assert_eq!(warnings("typo"), ["`typo`, which is excluded, is no node of the cluster"]);
        assert!(warnings("n02").is_empty());
    }
}

#[test]
fn layers_are_counted_before_they_are_made() {
    for n_layers in [4097, usize::MAX] {
        let error = Inventory::of_experts(n_layers, 1, 1, (4, 2), 1, 1).check().unwrap_err();
        assert_eq!(error.message(), "expected 1 to 4096 layers, found more");
    }
}
