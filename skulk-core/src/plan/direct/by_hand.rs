//! Does what a request fixes stay where it is?

use proptest::prelude::*;

use super::tests::{card, clusters, gpu_node, memory_node, mesh, models, request};
use crate::card::ModelCard;
use crate::error::ErrorKind;
use crate::plan::backend::own_engine;
use crate::plan::{
    Cluster, Inventory, Node, NodeId, Placement, PlacementBuilder, PlanReport, Planner, Request, Role, Rule,
    Strictness, Transport,
};

fn rules(inventory: &Inventory) -> PlacementBuilder {
    Placement::builder(inventory)
}

/// Node and backend of a layer's attention.
fn attention(placement: &Placement, layer: usize) -> (&NodeId, Option<&str>) {
    let stage = placement.stages().iter().find(|stage| stage.layers.contains(&layer)).unwrap();
    (&stage.node, stage.backend.as_deref())
}

/// Node and backend of one of its experts.
fn expert(placement: &Placement, layer: usize, expert: usize) -> (&NodeId, Option<&str>) {
    let mut shards = placement.experts().iter().filter(|shard| !shard.replica);
    match shards.find(|shard| shard.layers.contains(&layer) && shard.experts.contains(&expert)) {
        Some(shard) => (&shard.node, shard.backend.as_deref()),
        None => attention(placement, layer),
    }
}

/// 30 layers of 8 experts of 128 MiB: 30 GiB, and 3 GiB beside them.
fn mixture() -> (ModelCard, Inventory) {
    let inventory = Inventory::of_experts(30, 50 << 20, 50 << 20, (8, 2), 128 << 20, 2048);
    let mut card = card(0, 30);
    card.storage_size.in_bytes = inventory.weights();
    (card, inventory)
}

/// Experts that are fixed where there is no memory for all of them: refused, unless they may stay on disk.
#[test]
fn what_is_fixed_may_stay_on_disk() {
    let (card, inventory) = mixture();
    let cluster = mesh(vec![gpu_node("a", 24, 16)]);
    let request = Request::default()
        .inventory(inventory.clone())
        .fixed(rules(&inventory).engine("wgpu@a").feed_forward(0..30, "cpu@a"));
    assert_eq!(Planner::plan(&card, &cluster, &request).unwrap_err().kind(), ErrorKind::PlanNoFit);
    let placement = Planner::plan(&card, &cluster, &request.from_disk(true)).unwrap();
    placement.check_on(&card, &cluster, 8192).unwrap();
    let report = placement.report().unwrap();
    let processor = &report.nodes[1];
    assert_eq!((processor.experts, report.nodes[0].experts), (30 * 8, 0));
    assert_eq!(processor.on_disk + placement.ffn_budget().unwrap(), 30 * 8 * (128 << 20));
}

#[test]
fn the_rest_is_placed_around_what_is_fixed() {
    let (card, inventory) = mixture();
    let cluster = mesh(vec![gpu_node("a", 24, 64), memory_node("b", 64), gpu_node("c", 12, 4)]);
    let plan = |rules: PlacementBuilder| {
        let request = Request::default().inventory(inventory.clone()).fixed(rules);
        let placement = Planner::plan(&card, &cluster, &request).unwrap();
        placement.check(&card).unwrap();
        placement.check_on(&card, &cluster, 8192).unwrap();
        let report = placement.report().unwrap();
        assert!(!report.fixed.is_empty() && report.to_string().contains("by hand"), "{report}");
        let held = report.nodes.iter().map(|node| node.bytes.attention + node.bytes.feed_forward);
        assert_eq!(held.sum::<u64>(), inventory.weights());
        assert_eq!(report.nodes.iter().map(|node| node.experts).sum::<usize>(), 30 * 8);
        placement
    };
    let node = |(node, _): (&NodeId, Option<&str>)| node.as_str().to_owned();
    let free = Planner::plan(&card, &cluster, &Request::default().inventory(inventory.clone())).unwrap();
    assert_eq!(free.stages()[0].node.as_str(), "a");

    // Layers in the middle: what is left goes to faster devices.
    let placement = plan(rules(&inventory).layers(10..12, "cpu@b"));
    assert!(
        [10, 11].iter().all(|layer| attention(&placement, *layer) == (&NodeId::new("b"), Some("skulk-cpu")))
    );
    let alone = rules(&inventory).engine("cpu@b").build().unwrap();
    let asked = Request::default().inventory(inventory.clone());
    let (token, _) = Planner::price(&card, &cluster, &asked, &alone).unwrap();
    assert!(placement.report().unwrap().estimate.unwrap().seconds() < token.seconds() / 2.0);
    assert_eq!(placement.report().unwrap().fixed, ["layers 10..12 on cpu@b"]);
    // All attention: blocks are still the planner's.
    let placement = plan(rules(&inventory).engine("wgpu@c"));
    assert_eq!((placement.stages().len(), node(attention(&placement, 0))), (1, "c".to_owned()));
    assert!(placement.experts().iter().any(|shard| shard.node.as_str() != "c"));
    // Blocks alone, and some experts of each layer.
    let placement = plan(rules(&inventory).feed_forward(3..5, "cpu@b").experts(7..9, 2..4, "cpu@a"));
    assert!((0..8).all(|it| node(expert(&placement, 4, it)) == "b"));
    assert_eq!(expert(&placement, 8, 3), (&NodeId::new("a"), Some("skulk-cpu")));
    assert!(node(attention(&placement, 8)) != "b" && node(expert(&placement, 8, 4)) != "b");
    // Two runs of layers, and blocks of theirs elsewhere.
    let both =
        rules(&inventory).layers(0..1, "wgpu@a").layers(29..30, "wgpu@c").feed_forward(29..30, "cpu@b");
    let placement = plan(both);
    assert_eq!((node(attention(&placement, 0)), node(attention(&placement, 29))), ("a".into(), "c".into()));
    assert_eq!(node(expert(&placement, 29, 0)), "b");
    // What lies between two layers of a device is its, too.
    let placement = plan(rules(&inventory).layers(3..4, "cpu@b").layers(6..7, "cpu@b"));
    assert_eq!(node(attention(&placement, 5)), "b");
}

#[test]
fn places_that_cannot_be_are_refused_by_name() {
    let (card, inventory) = mixture();
    let silent = Node::new("silent").backends(["skulk-cpu"]);
    let mut two =
        gpu_node("two", 24, 64).backends(["skulk-cpu", "skulk-wgpu-vulkan:0", "skulk-wgpu-vulkan:1"]);
    let again = two.accelerators[0].clone().backend("skulk-wgpu-vulkan:1");
    two.accelerators.push(again);
    let nodes = vec![
        gpu_node("a", 24, 64),
        memory_node("b", 64),
        memory_node("c", 64).role(Role::FfnOnly),
        two,
        silent,
    ];
    let cluster = mesh(nodes);
    let asked = || Request::default().inventory(inventory.clone());
    let error = |request: Request| Planner::plan(&card, &cluster, &request).unwrap_err();
    let invalid = |rules: PlacementBuilder, words: &[&str]| {
        let error = error(asked().fixed(rules));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(
            error.context().iter().any(|(name, value)| *name == "field" && value == "fixed"),
            "{error:?}"
        );
        assert!(error.hint().is_some_and(|hint| !hint.is_empty()));
        let text = format!("{} {}", error.message(), error.hint().unwrap_or_default());
        words.iter().for_each(|word| assert!(text.contains(word), "{text}"));
    };
    let all = || rules(&inventory);
    invalid(all().layers(0..3, "cpu@nowhere"), &["layers 0..3 on cpu@nowhere", "a, b, c"]);
    invalid(all().layers(0..3, "cpu"), &["layers 0..3 on cpu", "engine@node"]);
    invalid(all().layers(0..3, "wgpu@b"), &["layers 0..3 on wgpu@b", "cpu@b"]);
    invalid(
        all().engine("candle-cuda@a"),
        &["layers that are not named on candle-cuda@a", "wgpu-vulkan:0@a"],
    );
    invalid(all().layers(0..3, "cpu@c"), &["role full", "layers 0..3 on cpu@c"]);
    invalid(all().layers(0..3, "wgpu@two"), &["one device", "wgpu-vulkan:0@two, wgpu-vulkan:1@two"]);
    invalid(
        all().layers(0..3, "cpu@a").layers(3..4, "cpu@b").layers(4..5, "cpu@a"),
        &["one run", "layers 3..4"],
    );
    invalid(all().layers(0..3, "cpu@a").feed_forward(0..3, "wgpu@a"), &["layers 0..3 on cpu@a", "on wgpu@a"]);
    invalid(rules(&Inventory::of_experts(3, 1, 1, (8, 2), 1, 1)).engine("cpu@a"), &["30 layers", "for 3"]);
    let wider = Inventory::of_experts(30, 1, 1, (16, 2), 1, 1);
    invalid(rules(&wider).experts(0..1, 8..16, "cpu@b"), &["0..8", "experts 8..16 of layers 0..1"]);

    let differ = all().experts(0..2, 0..4, "cpu@a").experts(1..2, 3..5, "cpu@b");
    assert_eq!(error(asked().fixed(differ)).kind(), ErrorKind::PlacementInvalid);
    assert_eq!(error(asked().fixed(all().layers(29..31, "cpu@a"))).kind(), ErrorKind::PlacementInvalid);
    let pending = error(asked().fixed(all().layers(0..1, "cpu@silent")));
    assert_eq!(pending.kind(), ErrorKind::PlanPending);
    let excluded = error(asked().exclude("b").fixed(all().layers(0..1, "cpu@b")));
    assert!(excluded.hint().is_some_and(|hint| hint.contains("excluded")), "{excluded}");
    let ring = Request::default().transport(Transport::MlxRing).fixed(all().layers(0..1, "cpu@b"));
    assert!(error(ring).message().contains("layers 0..1 on cpu@b"));
    let apart = error(asked().coordinator("a").fixed(all().layers(0..1, "cpu@b")));
    assert_eq!(apart.detail::<PlanReport>().unwrap().refused.as_ref().unwrap().rule, Rule::Required);
    assert!(apart.message().contains("`a`") && apart.message().contains("`b`"), "{apart}");
}

#[test]
fn what_is_fixed_must_fit_unless_forced() {
    let (card, inventory) = mixture();
    let cluster = mesh(vec![memory_node("a", 64), memory_node("b", 8)]);
    let request = |strictness| {
        let rules = rules(&inventory).feed_forward(0..15, "cpu@b");
        Request::default().inventory(inventory.clone()).strictness(strictness).fixed(rules)
    };
    let error = Planner::plan(&card, &cluster, &request(Strictness::Safe)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanNoFit);
    assert!(error.message().contains("fixed by hand") && error.message().contains("`b`"), "{error}");
    let report = error.detail::<PlanReport>().unwrap();
    assert!(report.nodes.iter().all(|node| node.node.as_str() == "b" && node.over() > 0));
    assert!(
        report.would_fit.iter().any(|way| way.contains("more memory") && way.contains("`b`")),
        "{report}"
    );
    let forced = Planner::plan(&card, &cluster, &request(Strictness::Force)).unwrap();
    assert_eq!(expert(&forced, 14, 0).0.as_str(), "b");
    forced.check(&card).unwrap();
}

#[test]
fn a_device_that_shares_its_memory_works_where_it_is_named() {
    let mut node = gpu_node("a", 0, 64);
    node.accelerators[0].shares_memory = true;
    node.accelerators[0].vram_total_bytes = None;
    node.accelerators[0].bytes_per_second = Some(1e12);
    let (card, inventory) = mixture();
    let plan = |rules: Option<PlacementBuilder>| {
        let request = Request::default().inventory(inventory.clone());
        let request = rules.into_iter().fold(request, Request::fixed);
        let placement = Planner::plan(&card, &mesh(vec![node.clone()]), &request).unwrap();
        placement.stages()[0].backend.clone().unwrap()
    };
    assert_eq!(plan(None), "skulk-wgpu-vulkan:0");
    assert_eq!(plan(Some(rules(&inventory).layers(0..1, "cpu@a"))), "skulk-cpu");
    // By hand each alone, and one beside the other: all have a price.
    let n = inventory.layers.len();
    let price = |rules: PlacementBuilder| {
        let (placement, request) = (rules.build().unwrap(), Request::default().inventory(inventory.clone()));
        Planner::price(&card, &mesh(vec![node.clone()]), &request, &placement).unwrap().0.seconds()
    };
    let graphics = price(rules(&inventory).layers(0..n, "wgpu-vulkan:0@a"));
    let processor = price(rules(&inventory).layers(0..n, "cpu@a"));
    let both = price(rules(&inventory).layers(0..n, "wgpu-vulkan:0@a").feed_forward(0..n, "cpu@a"));
    assert!(graphics < both && both < processor, "{graphics} {both} {processor}");
}

/// All that a plan has, where it has it.
fn all_of(placement: &Placement, inventory: &Inventory) -> PlacementBuilder {
    let place = |node: &NodeId, backend: &Option<String>| {
        format!("{}@{node}", own_engine(backend.as_deref().unwrap()).unwrap())
    };
    let mut fixed = rules(inventory);
    for stage in placement.stages() {
        fixed = fixed.layers(stage.layers.clone(), &*place(&stage.node, &stage.backend));
        // Of layers whose blocks are elsewhere, shards have all.
        for layer in stage.layers.clone() {
            if placement.experts().iter().all(|shard| !shard.layers.contains(&layer)) {
                fixed = fixed.feed_forward(layer..layer + 1, &*place(&stage.node, &stage.backend));
            }
        }
    }
    for shard in placement.experts() {
        let to = place(&shard.node, &shard.backend);
        fixed = fixed.experts(shard.layers.clone(), shard.experts.clone(), &*to);
    }
    fixed
}

/// 28 layers leave 6 bytes of the accelerator, less than margins of blocks and of attention are rounded up by.
#[test]
fn a_plan_that_leaves_no_byte_is_planned_again() {
    let inventory = Inventory::of_experts(32, 64 << 20, 28_760_941, (2, 1), 192 << 20, 2048);
    let mut card = card(0, 32);
    card.storage_size.in_bytes = inventory.weights();
    for less in 0..=7 {
        let mut node = gpu_node("n0", 16, 3).bytes_per_second(26e9);
        node.accelerators[0].vram_used_bytes = Some(if less == 0 { 0 } else { 1_717_986_918 + less });
        let cluster = mesh(vec![node]);
        let request = request(Some(inventory.clone()), 1);
        let placement = Planner::plan(&card, &cluster, &request).unwrap();
        assert_eq!(placement.stages()[0].layers.len() == 28, less < 7, "{:?}", placement.stages());
        let again = Planner::plan(&card, &cluster, &request.fixed(all_of(&placement, &inventory))).unwrap();
        assert_eq!((again.stages(), again.experts()), (placement.stages(), placement.experts()));
    }
}

fn place_of(cluster: &Cluster, at: usize) -> String {
    let node = &cluster.nodes[at % cluster.nodes.len()];
    let engine = if node.accelerators.is_empty() || at.is_multiple_of(2) { "cpu" } else { "wgpu" };
    format!("{engine}@{}", node.id)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_fixed_stays(
        cluster in clusters(), (card, inventory) in models(1), first in 0usize..40, len in 1usize..6, at in 0usize..18,
        block in 0usize..40, other in 0usize..18,
    ) {
        let inventory = inventory.unwrap_or_else(|| Inventory::from_card(&card));
        let n = card.n_layers;
        let (first, block) = (first % n, block % n);
        let layers = first..(first + len).min(n);
        let (home, beside) = (place_of(&cluster, at), place_of(&cluster, other));
        let blocks = inventory.layers[block].blocks().0;
        let experts = blocks / 3..blocks.div_ceil(2);
        let rules = rules(&inventory)
            .layers(layers.clone(), &*home)
            .experts(block..block + 1, experts.clone(), &*beside);
        let request = Request::default().inventory(inventory.clone()).fixed(rules);
        let Ok(placement) = Planner::plan(&card, &cluster, &request) else { return Ok(()) };
        prop_assert!(placement.check(&card).is_ok(), "{:?}", placement.check(&card));
        let is = |(node, backend): (&NodeId, Option<&str>), place: &str| {
            let (engine, name) = place.split_once('@').unwrap();
            node.as_str() == name && backend.is_some_and(|it| it.starts_with(&format!("skulk-{engine}")))
        };
        prop_assert!(layers.clone().all(|layer| is(attention(&placement, layer), &home)));
        prop_assert!(experts.clone().all(|it| is(expert(&placement, block, it), &beside)));
        let report = placement.report().unwrap();
        prop_assert!(report.nodes.iter().all(|node| node.over() == 0));
        let held = report.nodes.iter().map(|node| node.bytes.attention + node.bytes.feed_forward);
        prop_assert_eq!(held.sum::<u64>(), report.weights);
        let devices: std::collections::BTreeSet<_> =
            placement.stages().iter().map(|stage| (&stage.node, &stage.backend)).collect();
        prop_assert_eq!(devices.len(), placement.stages().len());
    }

    #[test]
    fn a_plan_that_is_fixed_is_planned_again(cluster in clusters(), (card, inventory) in models(1)) {
        let inventory = inventory.unwrap_or_else(|| Inventory::from_card(&card));
        let request = request(Some(inventory.clone()), 1);
        let Ok(placement) = Planner::plan(&card, &cluster, &request) else { return Ok(()) };
        let again = Planner::plan(&card, &cluster, &request.fixed(all_of(&placement, &inventory))).unwrap();
        prop_assert_eq!(again.stages(), placement.stages());
        prop_assert_eq!(again.experts(), placement.experts());
        let seconds = |placement: &Placement| placement.report().unwrap().estimate.unwrap().seconds();
        prop_assert!((seconds(&again) / seconds(&placement) - 1.0).abs() < 1e-9);
    }
}
