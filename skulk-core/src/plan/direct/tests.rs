use proptest::prelude::*;

use crate::card::{ModelCard, RuntimeCardConfig, ServedSpecType};
use crate::error::ErrorKind;
use crate::plan::{
    Accelerator, Cluster, Inventory, Link, LinkSpeed, Node, NodeId, Placement, PlanReport, Planner, Request,
    Role, Rule, Strictness, Vendor,
};

const GIB: u64 = 1 << 30;

pub(super) fn card(gib: u64, n_layers: usize) -> ModelCard {
    let mut card = ModelCard::new("org/model", gib * GIB, n_layers, 4096);
    card.num_key_value_heads = Some(8);
    card.context_length = 131_072;
    card.placement.compatible_backends = ["skulk-cpu", "skulk-wgpu"].map(str::to_owned).into();
    card
}

fn gpu(gib: u64) -> Accelerator {
    let device = Accelerator::new(Vendor::Nvidia).name("GPU").backend("skulk-wgpu-vulkan:0");
    device.vram_total_bytes(gib * GIB).vram_used_bytes(0)
}

pub(super) fn memory_node(id: &str, gib: u64) -> Node {
    Node::new(id).backends(["skulk-cpu"]).memory(gib * GIB, 2 * gib * GIB)
}

pub(super) fn gpu_node(id: &str, vram: u64, ram: u64) -> Node {
    memory_node(id, ram).backends(["skulk-cpu", "skulk-wgpu-vulkan:0"]).accelerator(gpu(vram))
}

pub(super) fn mesh(nodes: Vec<Node>) -> Cluster {
    Cluster::mesh(nodes, LinkSpeed::new(1e-4, 1e9))
}

/// A mixture with the sizes of DeepSeek V3 at 4 bits: 671 billion parameters.
fn deepseek() -> (ModelCard, Inventory) {
    let inventory = Inventory::of_experts(61, 110_000_000, 25_000_000, (256, 8), 24_800_000, 36_864);
    let mut card = card(0, 61);
    card.hidden_size = 7168;
    card.storage_size.in_bytes = inventory.weights();
    (card, inventory)
}

fn plan(card: &ModelCard, cluster: &Cluster, request: &Request) -> Placement {
    let placement = Planner::plan(card, cluster, request).unwrap();
    placement.check(card).unwrap();
    placement
}

fn refused(card: &ModelCard, cluster: &Cluster, request: &Request) -> (ErrorKind, PlanReport) {
    let error = Planner::plan(card, cluster, request).unwrap_err();
    let Some(report) = error.detail::<PlanReport>() else { panic!("{error}") };
    assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error}");
    (error.kind(), report.clone())
}

fn nodes(placement: &Placement) -> Vec<&str> {
    placement.stages().iter().map(|stage| stage.node.as_str()).collect()
}

#[test]
fn a_model_that_fits_one_device_stays_there() {
    let cluster = mesh(vec![memory_node("a", 64), gpu_node("b", 24, 32), memory_node("c", 128)]);
    let placement = plan(&card(8, 32), &cluster, &Request::default());
    assert_eq!(nodes(&placement), ["b"]);
    assert_eq!(placement.stages()[0].backend.as_deref(), Some("skulk-wgpu-vulkan:0"));
    assert!(placement.experts().is_empty());
    let report = placement.report().unwrap();
    assert!(report.estimate.unwrap().tokens_per_second > 20.0);
    assert!(report.candidates.len() > 1 && report.candidates[0].chosen);
}

#[test]
fn weak_nodes_are_left_out_when_that_is_faster() {
    let slow = |id: &str| memory_node(id, 64).bytes_per_second(1e9);
    let cluster = mesh(vec![slow("a"), memory_node("b", 64), slow("c")]);
    assert_eq!(nodes(&plan(&card(20, 40), &cluster, &Request::default())), ["b"]);
    let wider = plan(&card(20, 40), &cluster, &Request::default().min_nodes(2));
    // Asked for two nodes, the slow one gets as little as can be.
    let slow = wider.report().unwrap().nodes.iter().find(|node| node.node.as_str() != "b").unwrap().clone();
    assert_eq!((slow.experts, slow.layers.len() <= 1), (1, true));
}

#[test]
fn attention_lands_on_the_accelerator_and_experts_on_memory_nodes() {
    let (card, inventory) = deepseek();
    let mut all = vec![gpu_node("gpu", 48, 32)];
    all.extend((0..8).map(|at| memory_node(&format!("ram{at}"), 128).role(Role::FfnOnly)));
    let placement = plan(&card, &mesh(all), &Request::default().inventory(inventory));
    assert_eq!(nodes(&placement), ["gpu"]);
    assert!(placement.experts().iter().any(|shard| shard.node.as_str() == "ram0"));
    assert!(placement.experts().iter().all(|shard| shard.n_experts == 256 && !shard.replica));
    let report = placement.report().unwrap();
    let gpu = &report.nodes[0];
    assert!(gpu.bytes.attention == 61 * 110_000_000 && gpu.bytes.kv_cache == 61 * 36_864 * 8192);
    assert!(report.nodes.iter().skip(1).all(|node| node.layers.is_empty() && node.bytes.attention == 0));
}

#[test]
fn one_machine_keeps_attention_on_its_accelerator_and_the_rest_in_memory() {
    let placement = plan(&card(20, 40), &mesh(vec![gpu_node("a", 12, 64)]), &Request::default());
    let gpu = Some("skulk-wgpu-vulkan:0".to_owned());
    assert_eq!(placement.stages()[0].backend, gpu);
    let report = placement.report().unwrap();
    assert!(report.nodes.iter().any(|node| node.backend.as_deref() == Some("skulk-cpu")));
    assert!(report.nodes.iter().all(|node| node.over() == 0));
}

#[test]
fn an_accelerator_in_main_memory_works_where_it_is_faster() {
    let backend = |vendor, rate: Option<f64>| {
        let shared = Accelerator {
            vendor,
            shares_memory: true,
            vram_total_bytes: None,
            bytes_per_second: rate,
            ..gpu(0)
        };
        let node = memory_node("a", 64).backends(["skulk-cpu", "skulk-wgpu-vulkan:0"]).accelerator(shared);
        let placement = plan(&card(8, 32), &mesh(vec![node]), &Request::default());
        assert_eq!(placement.report().unwrap().nodes.len(), 1);
        placement.stages()[0].backend.clone().unwrap()
    };
    assert_eq!(backend(Vendor::Intel, None), "skulk-cpu");
    assert_eq!(backend(Vendor::Intel, Some(1e11)), "skulk-wgpu-vulkan:0");
    assert_eq!(backend(Vendor::Apple, None), "skulk-wgpu-vulkan:0");
}

#[test]
fn memory_that_several_devices_reach_counts_once() {
    let mut model = card(20, 40);
    model
        .placement
        .compatible_backends
        .extend(["skulk-candle-cuda", "skulk-candle-metal"].map(str::to_owned));
    let device = |vendor, backend: &str, vram: Option<u64>, shares: bool| Accelerator {
        vram_total_bytes: vram.map(|gib| gib * GIB),
        ..Accelerator::new(vendor).name("GPU").backend(backend).shares_memory(shares).bytes_per_second(2e11)
    };
    let planned = |ram: u64, accelerators: Vec<Accelerator>| {
        let tags: Vec<String> = accelerators.iter().filter_map(|it| it.backend.clone()).collect();
        let node = memory_node("a", ram).backends(tags.into_iter().chain(["skulk-cpu".to_owned()]));
        let node = accelerators.into_iter().fold(node, Node::accelerator);
        Planner::plan(&model, &mesh(vec![node]), &Request::default())
    };
    let card = |backend: &str| device(Vendor::Nvidia, backend, Some(20), false);
    for (what, ram, accelerators) in [
        (
            "one device in main memory, by two engines",
            20,
            vec![
                device(Vendor::Apple, "skulk-candle-metal:0", None, true),
                device(Vendor::Apple, "skulk-wgpu-metal:0", None, true),
            ],
        ),
        (
            "the processor and its graphics",
            20,
            vec![device(Vendor::Amd, "skulk-wgpu-vulkan:0", Some(20), true)],
        ),
        ("the processor as a device", 20, vec![device(Vendor::Cpu, "skulk-wgpu-vulkan:0", Some(20), false)]),
        ("one card by two engines", 2, vec![card("skulk-candle-cuda:0"), card("skulk-wgpu-vulkan:0")]),
    ] {
        let error = planned(ram, accelerators).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::PlanNoFit, "{what}: {error}");
    }
    let two = planned(2, vec![card("skulk-wgpu-vulkan:0"), card("skulk-wgpu-vulkan:1")]).unwrap();
    assert_eq!(two.budgets().len(), 2, "cards of one name are two");
    let both = ["skulk-candle-cuda:0", "skulk-wgpu-vulkan:0", "skulk-candle-cuda:1", "skulk-wgpu-vulkan:1"];
    assert_eq!(planned(2, both.map(card).into()).unwrap().budgets().len(), 2);
}

#[test]
fn roles_are_kept() {
    let cluster =
        mesh(vec![memory_node("a", 64).role(Role::Management), memory_node("b", 64).role(Role::FfnOnly)]);
    let (kind, report) = refused(&card(8, 32), &cluster, &Request::default());
    assert_eq!((kind, report.refused.unwrap().rule), (ErrorKind::PlanNoFit, Rule::Eligible));
    let with_full = mesh([cluster.nodes, vec![memory_node("c", 6)]].concat());
    let placement = plan(&card(8, 32), &with_full, &Request::default());
    assert_eq!(nodes(&placement), ["c"]);
    assert!(placement.experts().iter().any(|shard| shard.node.as_str() == "b"));
    assert!(placement.experts().iter().all(|shard| shard.node.as_str() != "a"));
}

#[test]
fn refusals_say_which_rule_and_what_would_help() {
    let request = Request::default;
    let small = mesh(vec![memory_node("a", 4), memory_node("b", 4)]);
    let (kind, report) = refused(&card(40, 40), &small, &request());
    assert_eq!((kind, report.refused.as_ref().unwrap().rule), (ErrorKind::PlanNoFit, Rule::Memory));
    assert!(report.would_fit.iter().any(|it| it.contains("more memory")), "{:?}", report.would_fit);
    assert!(report.nodes.iter().any(|node| node.over() > 0));

    let (_, report) = refused(&card(10, 40), &mesh(vec![memory_node("a", 11)]), &request());
    assert!(report.would_fit.contains(&"strictness relaxed".to_owned()), "{:?}", report.would_fit);
    let (_, report) =
        refused(&card(1, 80), &mesh(vec![memory_node("a", 6)]), &request().context_tokens(65_536));
    assert!(
        report.would_fit.iter().any(|it| it.starts_with("a context of 8192 tokens")),
        "{:?}",
        report.would_fit
    );

    let rule = |cluster: &Cluster, request: &Request| {
        refused(&card(1, 40), cluster, request).1.refused.unwrap().rule
    };
    assert_eq!(rule(&mesh(Vec::new()), &request()), Rule::Connected);
    assert_eq!(rule(&small, &request().min_nodes(3)), Rule::Connected);
    assert_eq!(rule(&small, &request().exclude("a").exclude("b")), Rule::Excluded);
    assert_eq!(rule(&small, &request().require("x")), Rule::Required);
    assert_eq!(rule(&small, &request().exclude("a").require("a")), Rule::Required);
    let foreign = mesh(vec![memory_node("a", 64).backends(["mlx"])]);
    assert_eq!(rule(&foreign, &request()), Rule::Eligible);
    let apart = Cluster::new(vec![memory_node("a", 4), memory_node("b", 4)], Vec::new());
    assert_eq!(rule(&apart, &request().min_nodes(2)), Rule::Connected);
    let mut needs_gpu = card(1, 40);
    needs_gpu.placement.min_vram_gib = Some(16.0);
    let (_, report) = refused(&needs_gpu, &mesh(vec![gpu_node("a", 8, 64)]), &request());
    assert_eq!(report.refused.unwrap().rule, Rule::MinVram);
    plan(&needs_gpu, &mesh(vec![gpu_node("a", 16, 64)]), &request());
}

#[test]
fn nodes_that_have_not_reported_are_waited_for() {
    let cluster = mesh(vec![memory_node("a", 4), Node::new("b").backends(["skulk-cpu"])]);
    let (kind, report) = refused(&card(8, 32), &cluster, &Request::default());
    assert_eq!(kind, ErrorKind::PlanPending);
    assert!(report.refused.unwrap().pending);
    plan(&card(1, 32), &cluster, &Request::default());
}

#[test]
fn force_spreads_what_does_not_fit() {
    let cluster = mesh(vec![memory_node("a", 4), memory_node("b", 4)]);
    let request = Request::default().strictness(Strictness::Force);
    let placement = Planner::plan(&card(40, 40), &cluster, &request).unwrap();
    assert!(placement.report().unwrap().nodes.iter().all(|node| node.over() > 0));
    assert_eq!(placement.stages().len() + usize::from(!placement.experts().is_empty()), 2);
    placement.check(&card(40, 40)).unwrap();
}

#[test]
fn the_coordinator_reaches_every_node() {
    let link = |source: &str, sink: &str| Link::socket(source, sink, "10.0.0.1");
    let both = |a: &str, b: &str| [link(a, b), link(b, a)];
    // A star: only b reaches the others.
    let nodes_of = || ["a", "b", "c"].map(|id| memory_node(id, 6)).to_vec();
    let star = Cluster::new(nodes_of(), [both("b", "a"), both("b", "c")].concat());
    let placement = plan(&card(14, 30), &star, &Request::default());
    assert_eq!(placement.stages()[0].node.as_str(), "b");
    let one_way = Cluster::new(nodes_of(), vec![link("b", "a"), link("b", "c")]);
    refused(&card(14, 30), &one_way, &Request::default());
    let asked = Request::default().coordinator("a");
    refused(&card(14, 30), &star, &asked);
    assert_eq!(nodes(&plan(&card(2, 30), &star, &asked)), ["a"]);
}

#[test]
fn replicas_are_on_other_nodes() {
    let (card, inventory) = deepseek();
    let mut all = vec![gpu_node("gpu", 48, 32)];
    all.extend((0..16).map(|at| memory_node(&format!("ram{at}"), 128)));
    let placement = plan(&card, &mesh(all), &Request::default().inventory(inventory).replicas(1));
    let (replicas, owners): (Vec<_>, Vec<_>) = placement.experts().iter().partition(|shard| shard.replica);
    assert!(!replicas.is_empty());
    for replica in replicas {
        let owner = owners.iter().find(|owner| {
            owner.experts == replica.experts
                && owner.layers.start <= replica.layers.start
                && owner.layers.end > replica.layers.start
        });
        assert_ne!(owner.unwrap().node, replica.node);
    }
}

#[test]
fn speculation_follows_the_card() {
    let on = |runtime: Option<RuntimeCardConfig>, cluster: &Cluster, min: usize| {
        let mut card = ModelCard { runtime, ..card(8, 32) };
        card.placement.compatible_backends.clear();
        let placement = plan(&card, cluster, &Request::default().min_nodes(min));
        placement.report().unwrap().speculation.clone().unwrap().on
    };
    // They do not say what they run.
    let other = |id: &str| Node::new(id).memory(64 * GIB, 128 * GIB);
    let cluster = mesh(vec![other("a"), other("b")]);
    let assisted =
        RuntimeCardConfig { assistant_model_repo: Some("org/draft".into()), ..RuntimeCardConfig::default() };
    assert!(!on(None, &cluster, 1));
    assert!(on(Some(assisted.clone()), &cluster, 1));
    assert!(on(Some(assisted.clone()), &cluster, 2));
    let single = RuntimeCardConfig { speculative_multi_node: Some(false), ..assisted };
    assert!(!on(Some(single.clone()), &cluster, 2));
    assert!(on(Some(single), &cluster, 1));
}

/// This library's engines draft from the text, whatever a card declares.
#[test]
fn speculation_of_this_library_is_measured_while_it_runs() {
    let cluster = mesh(vec![memory_node("a", 64)]);
    let decided = |card: &ModelCard, inventory: Inventory| {
        let placement = plan(card, &cluster, &Request::default().inventory(inventory));
        placement.report().unwrap().speculation.clone().unwrap()
    };
    let plain = card(8, 32);
    let inventory = Inventory::from_card(&plain);
    assert!(decided(&plain, inventory.clone()).on);
    let assisted =
        RuntimeCardConfig { assistant_model_repo: Some("org/draft".into()), ..RuntimeCardConfig::default() };
    let speculation = decided(&ModelCard { runtime: Some(assisted), ..plain.clone() }, inventory.clone());
    assert!(speculation.on && speculation.reason.contains("draft_model names it"), "{}", speculation.reason);
    let eagle = RuntimeCardConfig {
        served_spec_type: Some(ServedSpecType::DraftEagle3),
        ..RuntimeCardConfig::default()
    };
    let reason = decided(&ModelCard { runtime: Some(eagle), ..plain.clone() }, inventory.clone()).reason;
    assert!(reason.contains("EAGLE head is loaded where the option draft_model"), "{reason}");
    let heads = RuntimeCardConfig {
        mtp_heads: Some(true),
        mtp_sidecar_repo: Some("org/head".into()),
        ..RuntimeCardConfig::default()
    };
    let reason = decided(&ModelCard { runtime: Some(heads), ..plain.clone() }, inventory.clone()).reason;
    assert!(reason.contains("draft_model names its file"), "{reason}");
    let reason = decided(&plain, Inventory { mtp: 1 << 20, ..inventory }).reason;
    assert!(reason.contains("option mtp asks for it"), "{reason}");
}

#[test]
fn the_context_is_limited_by_what_is_least() {
    let limit = |card: &ModelCard, gib: u64| {
        let placement = plan(card, &mesh(vec![memory_node("a", gib)]), &Request::default());
        (placement.context_limit(), placement.report().unwrap().context.limited_by.clone())
    };
    use crate::plan::ContextLimit as Limit;
    assert_eq!(limit(&card(4, 32), 200), (Some(131_072), Limit::Model));
    let mut capped = card(4, 32);
    capped.placement.max_context_tokens = Some(9000);
    assert_eq!(limit(&capped, 200), (Some(9000), Limit::Card));
    let (tokens, by) = limit(&card(4, 32), 8);
    assert_eq!(by, Limit::Memory(NodeId::new("a")));
    assert!((8192..131_072).contains(&tokens.unwrap()));
}

/// A cluster of up to nine nodes of every kind, whole or star-shaped.
pub(super) fn clusters() -> impl Strategy<Value = Cluster> {
    let node = (1u64..40, 0u64..30, 0usize..10, 1u64..50);
    (prop::collection::vec(node, 1..9), any::<bool>()).prop_map(|(nodes, star)| {
        let made = |(at, (ram, vram, kind, speed)): (usize, (u64, u64, usize, u64))| {
            let id = format!("n{at}");
            let node = match kind {
                0..3 => gpu_node(&id, vram, ram),
                3..6 => memory_node(&id, ram).role(Role::FfnOnly),
                6 => memory_node(&id, ram).role(Role::Management),
                _ => memory_node(&id, ram),
            };
            node.bytes_per_second(speed as f64 * 1e9)
        };
        let nodes: Vec<Node> = nodes.into_iter().enumerate().map(made).collect();
        let speed = LinkSpeed::new(2e-4, 1e9);
        if !star {
            return Cluster::mesh(nodes, speed);
        }
        let link = |a: &Node, b: &Node| Link::socket(a.id.clone(), b.id.clone(), "10.0.0.1").speed(speed);
        let links =
            nodes[1..].iter().flat_map(|node| [link(&nodes[0], node), link(node, &nodes[0])]).collect();
        Cluster::new(nodes, links)
    })
}

/// Dense models, where fewer experts are drawn, and mixtures.
pub(super) fn models(least_experts: usize) -> impl Strategy<Value = (ModelCard, Option<Inventory>)> {
    (1u64..60, 1usize..40, 0usize..20, 0usize..40).prop_map(move |(gib, layers, experts, joined)| {
        if experts < least_experts {
            return (card(gib, layers), None);
        }
        let expert = gib * GIB / (layers * experts) as u64;
        let used = (experts / 4).max(1);
        let mut inventory =
            Inventory::of_experts(layers, expert / 3, expert / 7, (experts, used), expert, 2048);
        // The last layers use others' keys and values.
        inventory.layers.iter_mut().rev().take(joined / 2).for_each(|layer| layer.joined = true);
        let mut card = card(0, layers);
        card.storage_size.in_bytes = inventory.weights();
        (card, Some(inventory))
    })
}

pub(super) fn request(inventory: Option<Inventory>, min_nodes: usize) -> Request {
    let request = Request::default().min_nodes(min_nodes);
    match inventory {
        Some(inventory) => request.inventory(inventory),
        None => request,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_sound(cluster in clusters(), (card, inventory) in models(1), min in 1usize..4) {
        let request = request(inventory.clone(), min);
        if let Ok(forced) = Planner::plan(&card, &cluster, &request.clone().strictness(Strictness::Force)) {
            prop_assert!(forced.check(&card).is_ok(), "{:?}", forced.check(&card));
        }
        let Ok(placement) = Planner::plan(&card, &cluster, &request) else { return Ok(()) };
        // Every layer and expert once, no device over budget.
        prop_assert!(placement.check(&card).is_ok(), "{:?}", placement.check(&card));
        let report = placement.report().unwrap();
        let held: u64 = report.nodes.iter().map(|node| node.bytes.attention + node.bytes.feed_forward).sum();
        prop_assert_eq!(held, report.weights);
        let joined = |at: usize| inventory.as_ref().is_some_and(|it| at > 0 && it.layers[at].joined);
        prop_assert!(placement.stages().iter().all(|stage| !joined(stage.layers.start)));
        let all: usize = inventory.as_ref().map_or(card.n_layers, |it| it.layers.iter().map(|l| l.n_experts.max(1)).sum());
        prop_assert_eq!(report.nodes.iter().map(|node| node.experts).sum::<usize>(), all);
        // A node's devices are distinct memories.
        let mut devices: Vec<_> = report.nodes.iter().map(|node| (&node.node, &node.backend)).collect();
        devices.sort();
        devices.dedup();
        prop_assert_eq!(devices.len(), report.nodes.len());
        let mut used: Vec<_> = report.nodes.iter().map(|node| &node.node).collect();
        used.sort();
        used.dedup();
        prop_assert!(used.len() >= min);
        let role = |id: &NodeId| cluster.nodes.iter().find(|node| node.id == *id).unwrap().role;
        prop_assert!(report.nodes.iter().all(|node| role(&node.node) != Role::Management));
        prop_assert!(placement.stages().iter().all(|stage| role(&stage.node) == Role::Full));
        // The same again.
        let again = Planner::plan(&card, &cluster, &request).unwrap();
        prop_assert_eq!(&placement, &again);
    }

    #[test]
    fn more_memory_never_ends_a_fit(
        cluster in clusters(), (card, inventory) in models(1), min in 1usize..4, at in 0usize..9, by in 1u64..(64 * GIB),
    ) {
        let request = request(inventory, min);
        if Planner::plan(&card, &cluster, &request).is_ok() {
            let mut richer = cluster.clone();
            let at = at % richer.nodes.len();
            let node = &mut richer.nodes[at];
            if let Some(memory) = &mut node.memory {
                memory.ram_total += 2 * by;
                memory.ram_available += by;
            }
            if let Some(vram) = node.accelerators.iter_mut().find_map(|it| it.vram_total_bytes.as_mut()) {
                *vram += by;
            }
            let richer = Planner::plan(&card, &richer, &request);
            prop_assert!(richer.is_ok(), "{:?}", richer);
        }
    }

    #[test]
    fn the_order_of_nodes_does_not_matter(cluster in clusters(), (card, inventory) in models(1)) {
        let request = request(inventory, 1);
        let mut turned = cluster.clone();
        turned.nodes.reverse();
        turned.links.reverse();
        let (a, b) = (Planner::plan(&card, &cluster, &request), Planner::plan(&card, &turned, &request));
        match (a, b) {
            (Ok(a), Ok(b)) => prop_assert_eq!(a, b),
            (Err(a), Err(b)) => prop_assert_eq!(a.to_string(), b.to_string()),
            (a, b) => prop_assert!(false, "{a:?} {b:?}"),
        }
    }

    #[test]
    fn names_only_name(cluster in clusters(), (card, inventory) in models(1)) {
        // Other names in the same order: the same plan under these names.
        let request = request(inventory, 1);
        let name = |id: &NodeId| NodeId::new(format!("x-{id}"));
        let mut renamed = cluster.clone();
        renamed.nodes.iter_mut().for_each(|node| node.id = name(&node.id));
        for link in &mut renamed.links {
            (link.source, link.sink) = (name(&link.source), name(&link.sink));
        }
        if let (Ok(a), Ok(b)) = (Planner::plan(&card, &cluster, &request), Planner::plan(&card, &renamed, &request)) {
            let stages = |it: &Placement| it.stages().iter().map(|s| (s.backend.clone(), s.layers.clone())).collect::<Vec<_>>();
            prop_assert_eq!(stages(&a), stages(&b));
            prop_assert!(a.stages().iter().zip(b.stages()).all(|(a, b)| name(&a.node) == b.node));
            prop_assert!(a.experts().iter().zip(b.experts()).all(|(a, b)| name(&a.node) == b.node));
        }
    }
}

#[test]
fn placements_are_checked_on_the_nodes_there_are() {
    let cluster = |gib| mesh(vec![gpu_node("a", 12, gib), memory_node("b", 64)]);
    let card = card(20, 40);
    let placement = plan(&card, &cluster(64), &Request::default());
    let received = Placement::from_json(&placement.to_json()).unwrap();
    received.check_on(&card, &cluster(64), 8192).unwrap();
    let kind = |cluster: &Cluster| {
        received.check(&card).unwrap();
        received.check_on(&card, cluster, 8192).unwrap_err().kind()
    };
    // Less than when it was planned, other devices, other nodes, and nothing known.
    let poor = |id: &str| gpu_node(id, 2, 1);
    assert_eq!(kind(&mesh(vec![poor("a"), poor("b")])), ErrorKind::PlacementInvalid);
    assert_eq!(kind(&mesh(vec![memory_node("a", 64).backends(["mlx"])])), ErrorKind::PlacementInvalid);
    assert_eq!(kind(&mesh(vec![memory_node("c", 64)])), ErrorKind::PlacementInvalid);
    let silent = |id: &str| Node::new(id).backends(["skulk-cpu"]);
    assert_eq!(kind(&mesh(vec![silent("a"), silent("b")])), ErrorKind::PlanPending);
    // By hand, on devices that are not there.
    let inventory = Inventory::from_card(&card);
    let by_hand = |target: &str| Placement::builder(&inventory).engine(target).build().unwrap();
    by_hand("wgpu@a").check_on(&card, &mesh(vec![gpu_node("a", 64, 64)]), 64).unwrap();
    for (target, kind) in [
        ("wgpu-vulkan:3@a", ErrorKind::PlacementInvalid),
        ("wgpu@b", ErrorKind::PlacementInvalid),
        ("cpu@c", ErrorKind::PlanPending),
    ] {
        let nodes = vec![gpu_node("a", 12, 64), memory_node("b", 64), Node::new("c").backends(["skulk-cpu"])];
        let error = by_hand(target).check_on(&card, &mesh(nodes), 64).unwrap_err();
        assert_eq!(error.kind(), kind, "{target}: {error:?}");
    }
    // Nodes that do something else.
    for role in [Role::FfnOnly, Role::Management] {
        let mut other = cluster(64);
        other.nodes.iter_mut().for_each(|node| node.role = role);
        assert_eq!(kind(&other), ErrorKind::PlacementInvalid);
    }
    // Budgets that say more than there is.
    let text = placement.to_json();
    let usable = format!("\"usable\":{}", placement.budgets()[0].usable);
    assert!(text.contains(&usable));
    let boasting = Placement::from_json(&text.replace(&usable, "\"usable\":9000000000000000000")).unwrap();
    boasting.check(&card).unwrap();
    assert!(boasting.check_on(&card, &mesh(vec![poor("a"), poor("b")]), 8192).is_err());
}

/// What comes from elsewhere may say anything of what devices hold.
#[test]
fn budgets_that_say_too_little_are_refused() {
    let (card, cluster) = (card(20, 40), mesh(vec![gpu_node("a", 12, 64)]));
    let placement = plan(&card, &cluster, &Request::default());
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json: serde_json::Value = serde_json::from_str(&placement.to_json()).unwrap();
        let instance = json.as_object_mut().unwrap().values_mut().next().unwrap();
        change(instance);
        Placement::from_json(&json.to_string()).unwrap().check(&card)
    };
    with(&|_| {}).unwrap();
    let nothing = |json: &mut serde_json::Value| {
        for budget in json["budgets"].as_array_mut().unwrap() {
            budget["bytes"]["attention"] = 0.into();
            budget["bytes"]["feedForward"] = 0.into();
        }
    };
    let error = with(&nothing).unwrap_err();
    assert!(error.hint().is_some_and(|hint| hint.contains("contradicts itself")), "{error:?}");
    let uncounted = with(&|json| {
        nothing(json);
        json["weights"] = 0.into();
    });
    assert!(uncounted.unwrap_err().message().contains("expected budgets for"));
    let none = with(&|json| json["budgets"] = serde_json::json!([]));
    assert!(none.unwrap_err().message().contains("one budget for each device, found 0"));
    let twice = with(&|json| {
        let budgets = json["budgets"].as_array_mut().unwrap();
        budgets.push(budgets[0].clone());
    });
    assert!(twice.unwrap_err().message().contains("one budget for each device, found 2"));
    with(&|json| json["weights"] = u64::MAX.into()).unwrap_err();
    with(&|json| json["contextTokens"] = 1_000_000_000.into()).unwrap_err();
    // Nobody counted: the card's size is what there is to go by.
    with(&|json| json["weights"] = serde_json::Value::Null).unwrap();
}

#[test]
fn prices_say_which_device_is_not_there() {
    let tags = ["skulk-wgpu-vulkan:1", "skulk-wgpu-vulkan:0", "skulk-cpu"];
    let device = |tag: &str, rate: f64| gpu(24).backend(tag).bytes_per_second(rate).name(tag);
    let both = memory_node("a", 64).backends(tags);
    let both = both.accelerator(device(tags[0], 1e11)).accelerator(device(tags[1], 1e12));
    let (card, cluster) = (card(8, 32), mesh(vec![both, memory_node("b", 64)]));
    let on = |node: &str, engine: &str| {
        let inventory = Inventory::from_card(&card);
        Placement::builder(&inventory).engine(format!("{engine}@{node}").as_str()).build().unwrap()
    };
    let price = |placement: &Placement, cluster: &Cluster, request: &Request| {
        Planner::price(&card, cluster, request, placement).map(|(token, _)| token.tokens_per_second)
    };
    let request = Request::default();
    let each =
        ["wgpu-vulkan:1", "wgpu-vulkan:0"].map(|name| price(&on("a", name), &cluster, &request).unwrap());
    assert!(each[1] > 5.0 * each[0], "{each:?}");
    price(&on("b", "cpu"), &cluster, &request).unwrap();
    let one = mesh(vec![gpu_node("a", 24, 64)]);
    let named = ["wgpu", "wgpu-vulkan:0"].map(|name| price(&on("a", name), &one, &request).unwrap());
    assert!(named[0] == named[1], "{named:?}");
    let mut silent = cluster.clone();
    silent.nodes[1].memory = None;
    for (placement, cluster, request, words) in [
        (on("a", "wgpu"), &cluster, &request, "which 2 are: skulk-wgpu-vulkan:1, skulk-wgpu-vulkan:0"),
        (on("c", "cpu"), &cluster, &request, "nodes of the cluster"),
        (on("b", "wgpu"), &cluster, &request, "backend skulk-wgpu on the node, found none"),
        (on("b", "candle-cpu"), &cluster, &request, "(skulk-cpu, skulk-wgpu), found skulk-candle-cpu"),
        (on("b", "cpu"), &silent, &request, "not reported its memory"),
    ] {
        let error = price(&placement, cluster, request).unwrap_err();
        assert!(error.message().contains(words) && error.hint().is_some(), "{words}: {error:?}");
    }
    // Experts of a model of which the card says nothing.
    let experts = Inventory::of_experts(32, 1 << 20, 0, (8, 2), 1 << 20, 64);
    let apart = Placement::builder(&experts).engine("cpu@b").experts(0..32, 4..8, "cpu@a").build().unwrap();
    let error = price(&apart, &cluster, &request).unwrap_err();
    assert!(error.hint().is_some_and(|hint| hint.contains("inventory")), "{error:?}");
    price(&apart, &cluster, &request.inventory(experts)).unwrap();
}

/// Contexts are no longer than the model, its card and what drafts allow, whatever is asked for.
#[test]
fn contexts_are_no_longer_than_models_have() {
    let cluster = mesh(vec![memory_node("a", 64)]);
    let asked = Request::default().context_tokens(1 << 40);
    let tokens = |card: &ModelCard, request: &Request| {
        let placement = plan(card, &cluster, request);
        assert!(placement.context_limit().is_none_or(|limit| limit >= placement.context_tokens().unwrap()));
        placement.context_tokens().unwrap()
    };
    let mut card = card(8, 32);
    card.context_length = 4096;
    assert_eq!(tokens(&card, &asked), 4096);
    let mut counted = Inventory::from_card(&card);
    counted.context = 2048;
    assert_eq!(tokens(&card, &asked.clone().inventory(counted)), 2048);
    card.placement.max_context_tokens = Some(1000);
    assert_eq!(tokens(&card, &asked.clone().strictness(Strictness::Force)), 1000);
    card.placement.max_context_tokens = None;
    // A draft model that was trained for less keeps less.
    let kept = |context: u64| {
        let mut drafts = Inventory::from_card(&self::card(1, 12));
        drafts.context = context;
        let placement = plan(&card, &cluster, &asked.clone().draft_model(drafts));
        placement.drafter().unwrap().bytes.kv_cache
    };
    assert_eq!(kept(1024), kept(4096) / 4);
}

/// Every number that devices and links say of their speed.
fn quicker(cluster: &Cluster, by: f64) -> Cluster {
    let mut cluster = cluster.clone();
    for node in &mut cluster.nodes {
        node.bytes_per_second = node.bytes_per_second.map(|rate| rate * by);
    }
    let speed = |it: &mut LinkSpeed| {
        it.round_trip_seconds /= by;
        it.bytes_per_second *= by;
    };
    cluster.mesh.iter_mut().for_each(speed);
    cluster.links.iter_mut().filter_map(|link| link.speed.as_mut()).for_each(speed);
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_quicker_or_larger_is_not_priced_worse(
        cluster in clusters(), (card, inventory) in models(1), by in 1.0f64..4.0, gib in 1u64..64,
    ) {
        let request = request(inventory, 1);
        let Ok(placement) = Planner::plan(&card, &cluster, &request) else { return Ok(()) };
        let report = placement.report().unwrap();
        let (before, prompt) = (report.estimate.unwrap(), report.prompt.unwrap());
        prop_assert!(prompt.seconds.is_finite() && prompt.link_seconds <= prompt.seconds);
        // The same placement, on quicker devices over quicker links, with more memory, and beside more nodes.
        let mut better = quicker(&cluster, by);
        for node in &mut better.nodes {
            if let Some(memory) = &mut node.memory {
                (memory.ram_total, memory.ram_available) =
                    (memory.ram_total + gib * GIB, memory.ram_available + gib * GIB);
            }
        }
        better.nodes.push(memory_node("z", gib));
        let after = Planner::price(&card, &better, &request, &placement).unwrap();
        prop_assert!(after.0.seconds() <= before.seconds() * (1.0 + 1e-9), "{before:?} {after:?}");
        prop_assert!(after.1.seconds <= prompt.seconds * (1.0 + 1e-9), "{prompt:?} {after:?}");
        // And on what it was planned for, what the plan says.
        let same = Planner::price(&card, &cluster, &request, &placement).unwrap();
        prop_assert!((same.0.seconds() / before.seconds() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn experts_apart_cost_more_than_their_mean() {
    let (card, inventory) = deepseek();
    let mut all = vec![gpu_node("gpu", 24, 32)];
    all.extend((0..8).map(|at| memory_node(&format!("ram{at}"), 128).role(Role::FfnOnly)));
    let request = Request::default().inventory(inventory);
    let placement = plan(&card, &mesh(all), &request);
    let report = placement.report().unwrap();
    let prompt = report.prompt.unwrap();
    assert_eq!(prompt.tokens, 512);
    assert!(prompt.seconds > report.estimate.unwrap().seconds());
    assert!(prompt.link_seconds > 0.0);
}

#[test]
fn ranges_of_experts_on_one_device_are_computed_one_after_the_other() {
    let (card, inventory) = deepseek();
    let cluster = mesh(vec![memory_node("a", 640), memory_node("b", 640)]);
    let request = Request::default().inventory(inventory.clone());
    let seconds = |ranges: &[std::ops::Range<usize>]| {
        let rules = Placement::builder(&inventory).engine("cpu@a");
        let rules = ranges.iter().fold(rules, |rules, range| rules.experts(0..61, range.clone(), "cpu@b"));
        Planner::price(&card, &cluster, &request, &rules.build().unwrap()).unwrap().0.seconds()
    };
    assert!((seconds(&[0..64, 128..192]) / seconds(&[0..64, 64..128]) - 1.0).abs() < 1e-12);
}

#[test]
fn a_slow_link_is_warned_of() {
    let nodes = || vec![memory_node("a", 24), memory_node("b", 24)];
    let warnings = |speed: LinkSpeed| {
        let placement = plan(&card(30, 32), &Cluster::mesh(nodes(), speed), &Request::default());
        placement.report().unwrap().warnings.join("\n")
    };
    assert_eq!(warnings(LinkSpeed::new(1e-4, 1e9)), "");
    let slow = warnings(LinkSpeed::new(10.0, 1e5));
    assert!(slow.contains("a token's time") && slow.contains("512 tokens"), "{slow}");
}

#[test]
fn speeds_that_cannot_be_are_refused_and_unknown_names_told() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e19] {
        let node = memory_node("a", 64).bytes_per_second(rate);
        let error = Planner::plan(&card(8, 32), &mesh(vec![node]), &Request::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{rate}");
        assert!(error.to_string().contains("expected 1 to"), "{error}");
    }
    let named = |name: &str| {
        let mut node = gpu_node("a", 24, 32);
        node.accelerators[0].name = name.to_owned();
        plan(&card(8, 32), &mesh(vec![node]), &Request::default()).report().unwrap().clone()
    };
    assert!(named("Nobody's GPU 1").warnings[0].contains("Nobody's GPU 1"));
    let (fast, slow) = (named("NVIDIA GeForce RTX 4090"), named("RTX 4060"));
    assert!(fast.warnings.is_empty());
    assert!(fast.estimate.unwrap().seconds() < slow.estimate.unwrap().seconds());
    assert!(fast.prompt.unwrap().seconds < slow.prompt.unwrap().seconds);
}

#[test]
fn sessions_share_what_is_read() {
    let cluster = mesh(vec![memory_node("a", 64)]);
    let of = |sessions: usize| {
        let placement = plan(&card(8, 32), &cluster, &Request::default().sessions(sessions));
        placement.report().unwrap().clone()
    };
    let (one, four) = (of(1), of(4));
    assert_eq!(four.nodes[0].bytes.kv_cache, 4 * one.nodes[0].bytes.kv_cache);
    let (one, four) = (one.estimate.unwrap(), four.estimate.unwrap());
    assert!(four.tokens_per_second > 2.0 * one.tokens_per_second && four.seconds() > one.seconds());
}

/// Of a mixture of 380 GB, attention on a GPU with 24 GB, and as many experts as main memory holds.
#[test]
fn what_fits_in_no_memory_stays_on_disk() {
    let (card, inventory) = deepseek();
    let cluster = |gib: u64, rate: f64| mesh(vec![gpu_node("a", 24, gib).disk_bytes_per_second(rate)]);
    let request = Request::default().inventory(inventory).context_tokens(1024);
    let from_disk = request.clone().from_disk(true);
    refused(&card, &cluster(96, 3e9), &request);
    let planned = |cluster: &Cluster| {
        let placement = plan(&card, cluster, &from_disk);
        let estimate = placement.report().unwrap().estimate.unwrap();
        (placement, estimate.tokens_per_second)
    };
    let (placement, slow) = planned(&cluster(96, 3e9));
    let received = Placement::from_json(&placement.to_json()).unwrap();
    assert_eq!(received.ffn_budget(), placement.ffn_budget());
    received.check(&card).unwrap();
    let report = placement.report().unwrap();
    assert_eq!(report.nodes[0].device, "GPU");
    let processor = report.nodes.iter().find(|node| node.on_disk > 0).unwrap();
    assert!(processor.bytes.total() <= processor.usable, "{processor:?}");
    let budget = placement.ffn_budget().unwrap();
    assert_eq!(budget, processor.bytes.feed_forward);
    let all: u64 = report.nodes.iter().map(|node| node.bytes.feed_forward + node.on_disk).sum();
    assert_eq!(all, report.weights - report.nodes.iter().map(|node| node.bytes.attention).sum::<u64>());
    // Of some 11 GB that a token reads, the share that is not in memory comes at 3 GB/s.
    let missing = 1.0 - budget as f64 / (budget + processor.on_disk) as f64;
    let seconds = 61.0 * 8.0 * 24.8e6 * missing / 3e9;
    assert!((1.0 / slow / seconds - 1.0).abs() < 0.25, "{slow} {seconds}");
    let price = Planner::price(&card, &cluster(96, 3e9), &from_disk, &placement).unwrap().0;
    assert!((price.tokens_per_second / slow - 1.0).abs() < 1e-9);
    // Faster disks, more memory, and memory elsewhere.
    assert!(planned(&cluster(96, 6e9)).1 > 1.5 * slow);
    assert!(planned(&cluster(192, 3e9)).1 > 1.3 * slow);
    let server = memory_node("b", 512).role(Role::FfnOnly);
    let two = mesh(vec![gpu_node("a", 24, 96).disk_bytes_per_second(3e9), server]);
    assert_eq!(planned(&two).0.ffn_budget(), None);
    // What nobody measured is said.
    let warned = planned(&mesh(vec![gpu_node("a", 24, 96)])).0.report().unwrap().warnings.join(" ");
    assert!(warned.contains("disk of node `a`: 3 GB/s"), "{warned}");
    // Too little for attention; weights that are copied; other software.
    refused(&card, &mesh(vec![gpu_node("a", 4, 1)]), &from_disk);
    let mut copied = deepseek().1;
    copied.layers[60].copied = true;
    refused(&card, &cluster(96, 3e9), &from_disk.clone().inventory(copied));
    refused(&card, &mesh(vec![memory_node("a", 64).backends(["mlx-metal"])]), &from_disk);
    for rate in [0.0, f64::NAN, 1e19] {
        let error = Planner::plan(&card, &cluster(96, rate), &from_disk).unwrap_err();
        assert!(error.to_string().contains("expected 1 to"), "{error}");
    }
}

/// What an accelerator is measured to take for each layer, and to answer, is in the times of plans.
#[test]
fn waiting_is_part_of_the_time() {
    let inventory = Inventory::of_experts(32, GIB / 8, 3 * GIB / 8, (0, 0), 0, 0);
    let mut card = card(16, 32);
    card.storage_size.in_bytes = inventory.weights();
    let seconds = |layer: Option<f64>, trip: Option<f64>| {
        let mut node = gpu_node("a", 10, 64);
        let gpu = &mut node.accelerators[0];
        (gpu.layer_seconds, gpu.round_trip_seconds) = (layer, trip);
        Planner::plan(&card, &mesh(vec![node]), &Request::default().inventory(inventory.clone()))
            .map(|placement| placement.report().unwrap().estimate.unwrap())
    };
    let quick = seconds(Some(0.0), Some(0.0)).unwrap();
    assert_eq!((quick.hop_seconds, quick.fan_out_seconds), (0.0, 0.0));
    assert!(seconds(Some(1e-3), Some(0.0)).unwrap().seconds() > quick.seconds() + 1e-3);
    let far = seconds(Some(0.0), Some(2e-3)).unwrap();
    assert!(far.seconds() > quick.seconds() + 1e-3, "{far:?}");
    for (layer, trip, field) in
        [(Some(-1.0), None, "layer_seconds"), (None, Some(f64::NAN), "round_trip_seconds")]
    {
        let error = seconds(layer, trip).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.context().contains(&("field", field.to_owned())), "{error}");
    }
}

/// Dense blocks are needed in turn: those that fit stay but for one.
#[test]
fn dense_blocks_pass_through_the_place_of_one() {
    let inventory = Inventory::of_experts(80, GIB / 4, 3 * GIB / 4, (0, 0), 0, 0);
    let mut card = card(80, 80);
    card.storage_size.in_bytes = inventory.weights();
    let node = memory_node("a", 48).bytes_per_second(5e10).disk_bytes_per_second(1e9);
    let placement = plan(&card, &mesh(vec![node]), &Request::default().inventory(inventory).from_disk(true));
    assert!(placement.experts().is_empty() && placement.stages().len() == 1);
    let budget = placement.ffn_budget().unwrap();
    let read = (60 * GIB - budget + 3 * GIB / 4) as f64;
    let seconds = placement.report().unwrap().estimate.unwrap().seconds();
    // Attention is read, and half of what blocks take to compute goes on while they are.
    let computing = 60.0 * GIB as f64 / 5e10 + read / 1.4e10;
    let expected = 20.0 * GIB as f64 / 5e10 + read / 1e9 + computing / 2.0;
    assert!((seconds / expected - 1.0).abs() < 0.02, "{seconds} {read}");
}

/// What is let go stays in the system's cache, where what plans leave free has room for all of it.
#[test]
fn what_the_cache_keeps_is_not_read_from_disk() {
    let inventory = Inventory::of_experts(16, GIB / 4, 5 * GIB / 8, (0, 0), 0, 0);
    let mut card = card(16, 16);
    card.storage_size.in_bytes = inventory.weights();
    // Plans use three quarters of 16 GiB; 10 of blocks do not fit there beside 4 of attention.
    let node = |available: u64| {
        let mut node = Node::new("a").backends(["skulk-cpu"]).memory(available * GIB, 16 * GIB);
        (node.bytes_per_second, node.layer_seconds) = (Some(5e10), Some(0.0));
        mesh(vec![node])
    };
    let planned = |available: u64| {
        let request = Request::default().inventory(inventory.clone()).from_disk(true);
        plan(&card, &node(available), &request)
    };
    let cached = planned(16);
    let budget = cached.ffn_budget().unwrap();
    let missing = (10 * GIB - budget + 5 * GIB / 8) as f64;
    let read = inventory.weights() as f64 / 5e10;
    let report = cached.report().unwrap();
    let seconds = report.estimate.as_ref().unwrap().seconds();
    assert!((seconds / (read + missing / 1.4e10) - 1.0).abs() < 0.02, "{seconds}");
    assert!(report.warnings.iter().all(|it| !it.contains("disk")), "{:?}", report.warnings);
    // Other programs have what plans leave free.
    let full = planned(12);
    assert_eq!(full.ffn_budget(), Some(budget));
    let report = full.report().unwrap();
    let seconds = report.estimate.as_ref().unwrap().seconds();
    // Half of what they take to compute goes on while they are read.
    let computing = 10.0 * GIB as f64 / 5e10 + missing / 1.4e10;
    let expected = 4.0 * GIB as f64 / 5e10 + missing / 3e9 + computing / 2.0;
    assert!((seconds / expected - 1.0).abs() < 0.05, "{seconds}");
    assert!(report.warnings.iter().any(|it| it.contains("3 GB/s are assumed")), "{:?}", report.warnings);
    // More memory and a quicker disk make nothing slower.
    for rate in [1e9, 6e9, 5e10] {
        let seconds = |available: u64| {
            let mut cluster = node(available);
            cluster.nodes[0].disk_bytes_per_second = Some(rate);
            let request = Request::default().inventory(inventory.clone()).from_disk(true);
            plan(&card, &cluster, &request).report().unwrap().estimate.as_ref().unwrap().seconds()
        };
        let all: Vec<_> = (8..=16).map(seconds).collect();
        assert!(all.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-9)), "{rate}: {all:?}");
        assert!(all[0] > all[8], "{rate}: {all:?}");
    }
}

/// Further rows add their arithmetic on a processor; an accelerator reads meanwhile.
#[test]
fn rows_share_what_is_read() {
    let inventory = Inventory::of_experts(8, GIB / 8, 3 * GIB / 8, (0, 0), 0, 0);
    let mut card = card(4, 8);
    card.storage_size.in_bytes = inventory.weights();
    let (rate, arithmetic) = (2e10, 1e12);
    let bytes = inventory.weights() as f64;
    // The card names no quantisation: 16 bits a weight. What lies between products takes as long as 3,000 operations.
    let row = 2.0 * (bytes / 2.0) / arithmetic;
    let further = row + 8.0 * 3000.0 * card.hidden_size as f64 / arithmetic;
    let seconds = |node: Node, sessions: usize| {
        let request = Request::default().inventory(inventory.clone()).sessions(sessions);
        plan(&card, &mesh(vec![node]), &request).report().unwrap().estimate.as_ref().unwrap().seconds()
    };
    let mut processor = memory_node("a", 64);
    processor.bytes_per_second = Some(rate);
    processor.operations_per_second = Some(arithmetic);
    processor.layer_seconds = Some(0.0);
    for sessions in [1, 8] {
        let (found, more) = (seconds(processor.clone(), sessions), (sessions - 1) as f64 * further);
        let read = bytes / rate;
        assert!(
            (found - read - more).abs() < f64::max(0.01 * more, 1e-3 * read),
            "{sessions}: {found} {more}"
        );
    }
    // What is looked back at is read once for each session, and multiplied for each row.
    let looking = Inventory::of_experts(8, GIB / 8, 3 * GIB / 8, (0, 0), 0, 1 << 16);
    let request = Request::default().inventory(looking).context_tokens(4096).prompt_tokens(2048);
    let placement = plan(&card, &mesh(vec![processor.clone()]), &request);
    let report = placement.report().unwrap();
    let kept = 8.0 * f64::from(1 << 16) * 2048.0;
    let token = report.estimate.as_ref().unwrap().seconds();
    assert!((token / ((bytes + kept) / rate) - 1.0).abs() < 0.01, "{token}");
    let chunks = (bytes + kept / 2.0) / rate + 255.0 * further;
    // In floats, of which a vector holds a quarter.
    let scores = 4.0 * 255.0 * 8.0 * 4.0 * 1024.0 * card.hidden_size as f64 / arithmetic;
    let prompt = report.prompt.as_ref().unwrap().seconds;
    assert!((prompt / (8.0 * (chunks + scores)) - 1.0).abs() < 0.03, "{prompt}");
    let mut graphics = gpu_node("a", 64, 1).bytes_per_second(1e9);
    let gpu = &mut graphics.accelerators[0];
    (gpu.bytes_per_second, gpu.operations_per_second, gpu.layer_seconds) =
        (Some(rate), Some(arithmetic), Some(0.0));
    for (sessions, expected) in [(1, bytes / rate), (64, f64::max(bytes / rate, 64.0 * row))] {
        let found = seconds(graphics.clone(), sessions);
        assert!((found / expected - 1.0).abs() < 0.01, "{sessions}: {found} {expected}");
    }
}

/// What may stay on disk need not: devices that take as much as they can first may leave the processor what it holds.
#[test]
fn what_fits_is_planned_where_it_may_stay_on_disk() {
    let mut inventory = Inventory::of_experts(6, 182_685_240, 78_293_674, (16, 4), 548_055_722, 2048);
    let mut card = card(4, 6);
    card.storage_size.in_bytes = inventory.weights();
    let nodes = vec![memory_node("n0", 20).role(Role::FfnOnly), memory_node("n1", 21), gpu_node("n2", 0, 13)];
    let cluster = mesh(nodes.into_iter().map(|node| node.bytes_per_second(1e9)).collect());
    for copied in [false, true] {
        inventory.layers.iter_mut().for_each(|layer| layer.copied = copied);
        let request = Request::default().inventory(inventory.clone()).from_disk(true);
        let placement = plan(&card, &cluster, &request);
        assert_eq!(placement.ffn_budget(), None);
        let report = placement.report().unwrap();
        assert!(report.nodes.iter().all(|node| node.over() == 0 && node.on_disk == 0), "{report}");
        assert!(report.candidates.iter().all(|it| !it.arrangement.contains("from disk")), "{report}");
    }
}

/// Candle's engines copy a layer's keys and values to numbers of 32 bits.
#[test]
fn copies_of_keys_and_values_are_counted_where_they_are_made() {
    let inventory = Inventory::of_experts(8, GIB / 8, GIB / 8, (0, 0), 0, 1 << 16);
    let mut card = card(4, 8);
    card.storage_size.in_bytes = inventory.weights();
    let headroom = |engine: &str, tokens: u64| {
        let tag = format!("skulk-{engine}");
        let mut card = card.clone();
        card.placement.compatible_backends = [tag.clone()].into();
        let node = Node::new("a").backends([tag]).memory(64 * GIB, 64 * GIB);
        let request = Request::default().inventory(inventory.clone()).context_tokens(tokens);
        plan(&card, &mesh(vec![node]), &request).report().unwrap().nodes[0].bytes.headroom
    };
    assert_eq!(headroom("cpu", 8192), headroom("cpu", 4096));
    let more = headroom("candle-cpu", 8192) - headroom("candle-cpu", 4096);
    assert_eq!(more, 3 * 4096 * (1 << 16));
}

/// 671 billion parameters over a thousand nodes, none of which is as fast as another: the worst that the expected
/// maximum over owners meets. `cargo bench -p skulk-bench --bench planner` measures how long it takes.
#[test]
fn a_thousand_different_nodes_are_planned() {
    let (card, inventory) = deepseek();
    let node = |at: usize| {
        let node = memory_node(&format!("n{at:04}"), 8 + (at as u64 * 7) % 57);
        node.bytes_per_second(1e10 + at as f64 * 1e7)
    };
    let cluster = mesh((0..1000).map(node).collect());
    let start = std::time::Instant::now();
    let placement = plan(&card, &cluster, &Request::default().inventory(inventory));
    let taken = start.elapsed();
    println!("planned in {taken:?}");
    assert!(placement.report().unwrap().nodes.len() > 8);
    assert!(taken.as_secs() < 20, "{taken:?}");
}
