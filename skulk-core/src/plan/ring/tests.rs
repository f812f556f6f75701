//! Does the ring planner hold to its promises, beyond what the reference's cases show?

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{plan, rings};
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind};
use crate::plan::{
    Cluster, Instance, InterfaceType, Link, LinkSpeed, NetworkInterface, Node, NodeId, Part, Placement,
    PlanReport, Request, Rule, Sharding, Strictness, Transport,
};

const GB: u64 = 1 << 30;

fn card(gib: u64, n_layers: usize) -> ModelCard {
    let mut card = ModelCard::new("m", gib * GB, n_layers, 7168);
    (card.supports_tensor, card.num_key_value_heads) = (true, Some(8));
    card
}

fn request() -> Request {
    Request::default().transport(Transport::MlxRing)
}

fn node(name: &str, gib: u64) -> Node {
    let mut node = Node::new(name).memory(gib * GB, 2 * gib * GB).backends(["mlx"]);
    node.interfaces.push(NetworkInterface::new("en0", format!("host-{name}"), InterfaceType::Ethernet));
    node
}

fn socket(from: &str, to: &str) -> Link {
    Link::socket(from, to, format!("host-{to}"))
}

fn rdma(from: &str, to: &str) -> Link {
    Link::rdma(from, to, format!("to-{to}"), format!("from-{from}"))
}

fn both(a: &str, b: &str) -> [Link; 2] {
    [socket(a, b), socket(b, a)]
}

fn order(placement: &Placement) -> Vec<&str> {
    placement.stages().iter().map(|stage| stage.node.as_str()).collect()
}

fn report(error: &Error) -> &PlanReport {
    error.detail().unwrap_or_else(|| panic!("no report: {error}"))
}

fn refused(error: &Error) -> Rule {
    report(error).refused.as_ref().unwrap().rule
}

/// Three large nodes in a ring, and a small one by itself.
fn three_and_one() -> Cluster {
    let nodes = vec![node("small", 4), node("a", 64), node("b", 64), node("c", 48)];
    Cluster::new(nodes, [both("a", "b"), both("b", "c"), both("c", "a")].concat())
}

#[test]
fn leaves_come_first_in_given_rings_only() {
    let cluster = three_and_one();
    assert_eq!(order(&plan(&card(1, 10), &cluster, &request()).unwrap()), ["a"]);
    let mut given = request();
    given.rings = Some(vec![vec!["a".into()], vec!["small".into()]]);
    assert_eq!(order(&plan(&card(1, 10), &cluster, &given).unwrap()), ["small"]);
}

#[test]
fn a_ring_that_cannot_be_arranged_makes_place_for_the_next() {
    let large = [node("a", 64), node("b", 64), node("c", 60), node("d", 60)];
    // The larger two reach each other one way only.
    let links = [vec![socket("a", "b")], both("c", "d").to_vec()].concat();
    let placement = plan(&card(80, 40), &Cluster::new(large.to_vec(), links.clone()), &request()).unwrap();
    assert_eq!(order(&placement), ["c", "d"]);
    let without = Cluster::new(large[..2].to_vec(), vec![socket("a", "b"), rdma("b", "a")]);
    let error = plan(&card(80, 40), &without, &request()).unwrap_err();
    assert_eq!((error.kind(), refused(&error)), (ErrorKind::PlanNoFit, Rule::Hosts));
    assert!(error.message().contains("b has no socket to a"), "{error}");
}

#[test]
fn rings_of_several_nodes_run_mlx() {
    let of = |name: &str, gib: u64, tag: &str| node(name, gib).backends([tag]);
    let mut card = card(60, 12);
    card.placement.compatible_backends = ["mlx", "skulk-cpu", "llama_cpp-cpu"].map(str::to_owned).into();
    let mesh = |nodes: &[Node]| Cluster::mesh(nodes.to_vec(), LinkSpeed::DEFAULT);
    let mixed = [node("a", 48), of("b", 60, "skulk-cpu"), of("c", 60, "llama_cpp-cpu")];
    for min in [1, 2] {
        let error = plan(&card, &mesh(&mixed), &request().min_nodes(min)).unwrap_err();
        let expected = if min == 1 { Rule::Memory } else { Rule::SingleNodeEngine };
        assert_eq!(refused(&error), expected, "{error}");
    }
    let more = [&mixed[..], &[node("d", 48)]].concat();
    let placement = plan(&card, &mesh(&more), &request()).unwrap();
    let mut nodes = order(&placement);
    nodes.sort_unstable();
    assert_eq!(nodes, ["a", "d"]);
    // One node runs whatever the card lists.
    let placement = plan(&card, &mesh(&[of("c", 128, "llama_cpp-cpu"), node("d", 48)]), &request()).unwrap();
    assert_eq!(order(&placement), ["c"]);
    // Given rings are the reference's, which looks at nothing else.
    let given = Request { rings: Some(vec![vec!["a".into(), "b".into()]]), ..request() };
    assert_eq!(order(&plan(&card, &mesh(&mixed), &given).unwrap()), ["a", "b"]);
}

#[test]
fn the_ring_that_got_furthest_says_why_it_failed() {
    let nodes = vec![node("x", 76), node("y", 24), node("a", 30), node("b", 30), node("c", 30)];
    // Layers cannot be cut for the two, and the last of the three does not find the first.
    let links = [both("x", "y").to_vec(), vec![socket("a", "b"), socket("b", "c"), rdma("c", "a")]].concat();
    let error = plan(&card(60, 3), &Cluster::new(nodes.clone(), links.clone()), &request()).unwrap_err();
    assert_eq!(refused(&error), Rule::Hosts, "{error}");
    assert!(error.message().contains("has no socket to"), "{error}");
    let two = Cluster::new(nodes[..2].to_vec(), links[..2].to_vec());
    assert_eq!(refused(&plan(&card(60, 3), &two, &request()).unwrap_err()), Rule::Layers);
}

#[test]
fn refusals_say_what_would_help() {
    let cluster = three_and_one();
    let error = plan(&card(400, 10), &cluster, &request()).unwrap_err();
    assert_eq!((error.kind(), refused(&error)), (ErrorKind::PlanNoFit, Rule::Memory));
    let report_ = report(&error);
    assert_eq!(report_.nodes.len(), 3, "the ring of three came closest");
    assert!(report_.nodes.iter().all(|node| node.over() > 0));
    // What is promised is true, to the byte.
    let helped = |more: u64| {
        let mut cluster = cluster.clone();
        let a = cluster.nodes.iter_mut().find(|node| node.id.as_str() == "a").unwrap();
        *a = node("a", 64).memory(64 * GB + more, 1024 * GB);
        plan(&card(80, 10), &cluster, &request().exclude("b").exclude("c"))
    };
    let error = helped(0).unwrap_err();
    assert!(report(&error).would_fit.contains(&"not excluding node b".to_owned()), "{error}");
    let needed = crate::plan::memory::shard_footprint(&card(80, 10), 1.0, 8192, Strictness::Safe) - 64 * GB;
    assert!(helped(needed - 1).is_err() && helped(needed).is_ok());

    let tight = Cluster::new(vec![node("n", 14)], Vec::new());
    let error = plan(&card(10, 64), &tight, &request()).unwrap_err();
    let would_fit = &report(&error).would_fit;
    assert!(would_fit.contains(&"strictness relaxed".to_owned()), "{would_fit:?}");
    let tokens = would_fit.iter().find_map(|change| change.strip_prefix("a context of ")?.split(' ').next());
    let tokens: u64 = tokens.unwrap().parse().unwrap();
    assert!(plan(&card(10, 64), &tight, &request().context_tokens(tokens)).is_ok());
    assert!(plan(&card(10, 64), &tight, &request().context_tokens(tokens + 1)).is_err());
    assert!(plan(&card(10, 64), &tight, &request().strictness(Strictness::Relaxed)).is_ok());
}

#[test]
fn reports_tell_of_every_step() {
    let mut cluster = three_and_one();
    cluster.nodes[0].backends = Some(["llama_cpp-cpu".to_owned()].into());
    let placement = plan(&card(60, 10), &cluster, &request().exclude("nobody")).unwrap();
    let report = placement.report().unwrap();
    let steps: Vec<_> = report.rules.iter().map(|rule| (rule.rule, rule.before, rule.after)).collect();
    // Four nodes, three pairs, and all three; of which pairs with too few bytes and wider rings go.
    let expected = [
        (Rule::Connected, 8, 8),
        (Rule::Excluded, 8, 8),
        (Rule::Eligible, 8, 7),
        (Rule::Memory, 7, 4),
        (Rule::FewestNodes, 4, 3),
        (Rule::Best, 3, 1),
        (Rule::Layers, 1, 1),
        (Rule::Hosts, 1, 1),
    ];
    assert_eq!(steps, expected);
    assert_eq!(report.rules[2].rejected[0].reason, "node small has backends {\"llama_cpp-cpu\"}");
    assert!(report.rules[3].rejected[0].reason.contains("needs ~"), "{:?}", report.rules[3]);
    let chosen: Vec<bool> = report.candidates.iter().map(|candidate| candidate.chosen).collect();
    assert_eq!(chosen, [true, false, false]);
    assert_eq!(
        report.candidates[0].nodes,
        placement.stages().iter().map(|s| s.node.clone()).collect::<Vec<_>>()
    );
    assert_eq!(
        report.nodes.iter().map(|node| node.bytes.attention + node.bytes.feed_forward).sum::<u64>(),
        60 * GB
    );
    assert_eq!(report.context.tokens, placement.context_limit());
}

#[test]
fn forced_plans_say_what_is_over() {
    let silent = Cluster::new(vec![Node::new("n")], Vec::new());
    assert_eq!(plan(&card(1, 4), &silent, &request()).unwrap_err().kind(), ErrorKind::PlanPending);
    for cluster in [silent, Cluster::new(vec![node("n", 8)], Vec::new())] {
        let placement = plan(&card(40, 4), &cluster, &request().strictness(Strictness::Force)).unwrap();
        assert_eq!(placement.stages()[0].layers, 0..4);
        assert!(placement.report().unwrap().nodes[0].over() > 30 * GB);
        assert_eq!(placement.context_limit(), None);
    }
}

#[test]
fn jaccl_takes_nodes_that_are_all_linked() {
    let nodes = ["a", "b", "c", "d"].map(|name| node(name, 40)).to_vec();
    let links: Vec<Link> = [("b", "c"), ("c", "d"), ("d", "b")]
        .into_iter()
        .flat_map(|(x, y)| [rdma(x, y), rdma(y, x)])
        // Only d can be found by the others.
        .chain([socket("b", "d"), socket("c", "d"), socket("a", "b"), socket("b", "a")])
        .collect();
    let request = request().transport(Transport::MlxJaccl).min_nodes(3);
    let placement = plan(&card(20, 12), &Cluster::new(nodes.clone(), links), &request).unwrap();
    assert_eq!(order(&placement)[0], "d");
    let Instance::MlxJaccl { jaccl_devices, jaccl_coordinators } = placement.instance() else { panic!() };
    assert_eq!(jaccl_devices[0][1].as_deref(), Some(format!("to-{}", order(&placement)[1]).as_str()));
    assert_eq!(jaccl_coordinators[&NodeId::new("b")], "host-d:50000");
    let error = plan(&card(20, 12), &Cluster::new(nodes, both("a", "b").to_vec()), &request.min_nodes(2));
    assert_eq!(refused(&error.unwrap_err()), Rule::Rdma);
}

#[test]
fn rings_of_a_request_must_be_rings() {
    let cluster = three_and_one();
    let rings: [(Vec<NodeId>, &str); 3] =
        [(vec![], "none"), (vec!["a".into(), "a".into()], "`a`, `a`"), (vec!["nobody".into()], "`nobody`")];
    for (ring, found) in rings {
        let mut request = request();
        request.rings = Some(vec![ring]);
        let error = plan(&card(1, 4), &cluster, &request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let expected = format!("expected rings of different nodes of the cluster, found {found}");
        assert_eq!((error.message(), error.hint().is_some()), (expected.as_str(), true));
    }
}

#[test]
fn preferences_are_found_in_large_meshes() {
    let mut nodes: Vec<Node> = (0..30).map(|i| node(&format!("n{i:02}"), 30 + i)).collect();
    let model = ModelCard { placement: preferring(["mlx-metal"]), ..card(50, 40) };
    for i in [3, 4, 5] {
        nodes[i].backends = Some(["mlx", "mlx-metal"].map(str::to_owned).into());
    }
    nodes[7].downloads.insert("m".to_owned(), 1.0);
    let mesh = |nodes: &[Node]| Cluster::mesh(nodes.to_vec(), LinkSpeed::DEFAULT);
    let planned = |card: &ModelCard, request: &Request| {
        let placement = plan(card, &mesh(&nodes), request).unwrap();
        order(&placement).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(planned(&model, &request()), ["n05", "n04"]);
    // Without the preference: who has the model, with the best of the others.
    assert_eq!(planned(&card(50, 40), &request()), ["n07", "n29"]);
    assert_eq!(planned(&card(50, 40), &request().require("n11").min_nodes(3)), ["n11", "n07", "n29"]);
}

fn preferring<const N: usize>(tags: [&str; N]) -> crate::card::PlacementCardConfig {
    let tags = tags.map(str::to_owned);
    crate::card::PlacementCardConfig {
        compatible_backends: tags.iter().cloned().chain(["mlx".to_owned()]).collect(),
        backend_preference: tags.to_vec(),
        ..Default::default()
    }
}

#[test]
fn a_thousand_nodes_are_no_matter() {
    let nodes: Vec<Node> = (0..1000).map(|i| node(&format!("n{i:04}"), 3 + i % 5)).collect();
    let mesh = Cluster::mesh(nodes.clone(), LinkSpeed::DEFAULT);
    let start = Instant::now();
    let wide = plan(&card(350, 100), &mesh, &request()).unwrap();
    assert!(wide.stages().len() > 60);
    assert!(plan(&card(8000, 1000), &mesh, &request()).is_err());
    // Each with twenty others, around.
    let name = |i: usize| format!("n{:04}", i % 1000);
    let links = (0..1000).flat_map(|i| (1..=10).flat_map(move |step| both(&name(i), &name(i + step))));
    let sparse = Cluster::new(nodes, links.collect());
    assert!(plan(&card(100, 100), &sparse, &request()).unwrap().stages().len() > 15);
    // Each with each, and then without every seventh.
    let few = |n: usize| (0..n).map(|i| node(&name(i), 3)).collect::<Vec<_>>();
    let pairs = (0..150).flat_map(|a| (0..a).map(move |b| (a, b)));
    let full =
        |pairs: Vec<(usize, usize)>| pairs.iter().flat_map(|&(a, b)| both(&name(a), &name(b))).collect();
    let without = pairs.clone().filter(|(a, b)| (a + b) % 7 != 0);
    for pairs in [pairs.clone().collect(), without.collect()] {
        let cluster = Cluster::new(few(150), full(pairs));
        assert_eq!(plan(&card(200, 140), &cluster, &request()).unwrap().stages().len(), 140);
    }
    // Seconds in a debug build are tenths in a release build.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

/// Clusters of up to seven nodes with some links, most of them both ways.
fn clusters() -> impl Strategy<Value = Cluster> {
    let node = (1u64..200, 1u64..200, proptest::option::of(0.0..1.0f64));
    (proptest::collection::vec(node, 1..7), proptest::collection::vec((0usize..7, 0usize..7, 0..9), 0..30))
        .prop_map(|(facts, pairs)| {
            let name = |i: usize| format!("n{i}");
            let nodes: Vec<Node> = facts
                .iter()
                .enumerate()
                .map(|(i, &(available, total, share))| {
                    let mut node = Node::new(name(i)).memory(available * GB / 4, total * GB / 4);
                    node.downloads.extend(share.map(|share| ("m".to_owned(), share)));
                    node
                })
                .collect();
            let inside = pairs.into_iter().filter(|&(a, b, _)| a < facts.len() && b < facts.len());
            let links = inside.flat_map(|(a, b, kind)| match kind {
                0 => vec![socket(&name(a), &name(b))],
                1 => vec![rdma(&name(a), &name(b)), rdma(&name(b), &name(a))],
                _ => both(&name(a), &name(b)).to_vec(),
            });
            Cluster::new(nodes, links.collect())
        })
}

fn requests() -> impl Strategy<Value = Request> {
    let sharding = prop_oneof![Just(Sharding::Pipeline), Just(Sharding::Tensor)];
    let transport = prop_oneof![3 => Just(Transport::MlxRing), 1 => Just(Transport::MlxJaccl)];
    let strictness = prop_oneof![Just(Strictness::Safe), Just(Strictness::Relaxed)];
    (sharding, transport, strictness, 0usize..4).prop_map(|(sharding, transport, strictness, min)| {
        request().sharding(sharding).transport(transport).strictness(strictness).min_nodes(min)
    })
}

proptest! {
    #[test]
    fn no_node_is_over_budget_and_every_layer_is_there(
        cluster in clusters(), request in requests(), gib in 0u64..60, n_layers in 1usize..40, cfg: bool,
    ) {
        let card = ModelCard { uses_cfg: cfg, ..card(gib, n_layers) };
        if let Ok(forced) = plan(&card, &cluster, &request.clone().strictness(Strictness::Force)) {
            prop_assert!(forced.check(&card).is_ok(), "{:?}", forced.check(&card));
        }
        let Ok(placement) = plan(&card, &cluster, &request) else { return Ok(()) };
        let report = placement.report().unwrap();
        if request.sharding == Sharding::Pipeline {
            for node in &report.nodes {
                prop_assert_eq!(node.over(), 0, "{:?}", node);
            }
        }
        let mut owners = vec![0; n_layers];
        for stage in placement.stages() {
            owners[stage.layers.clone()].iter_mut().for_each(|n| *n += 1);
        }
        let expected = match placement.stages()[0].part {
            Part::Whole => 1,
            Part::Tensor => placement.stages().len(),
            Part::Cfg { .. } => 2,
        };
        prop_assert!(owners.iter().all(|&n| n == expected), "{:?}", owners);
        prop_assert_eq!(placement.budgets().len(), placement.stages().len());
    }

    #[test]
    fn the_order_of_nodes_and_links_does_not_matter(
        cluster in clusters(), request in requests(), gib in 0u64..60, seed: u64,
    ) {
        let card = card(gib, 12);
        let mut turned = cluster.clone();
        turned.nodes.rotate_left(seed as usize % cluster.nodes.len());
        turned.links.reverse();
        match (plan(&card, &cluster, &request), plan(&card, &turned, &request)) {
            (Ok(a), Ok(b)) => prop_assert_eq!(a, b),
            (Err(a), Err(b)) => prop_assert_eq!(a.to_string(), b.to_string()),
            (a, b) => prop_assert!(false, "{:?} and {:?}", a, b),
        }
    }

    #[test]
    fn more_memory_never_turns_a_fit_into_a_refusal(
        cluster in clusters(), request in requests(), gib in 0u64..60, n_layers in 1usize..40, at: usize, more in 1u64..64, cfg: bool,
    ) {
        let card = ModelCard { uses_cfg: cfg, ..card(gib, n_layers) };
        if plan(&card, &cluster, &request).is_err() {
            return Ok(());
        }
        let mut larger = cluster.clone();
        let at = at % larger.nodes.len();
        let memory = larger.nodes[at].memory.as_mut().unwrap();
        memory.ram_available += more * GB;
        memory.ram_total += more * GB;
        let planned = plan(&card, &larger, &request);
        prop_assert!(planned.is_ok(), "{:?}", planned);
    }

    #[test]
    fn own_rings_are_rings(cluster in clusters()) {
        let linked = |a: &NodeId, b: &NodeId| cluster.links.iter().any(|l| l.source == *a && l.sink == *b);
        for ring in rings(&card(1, 4), &cluster, &request()).unwrap() {
            for (i, a) in ring.iter().enumerate().filter(|_| ring.len() > 1) {
                prop_assert!(linked(a, &ring[(i + 1) % ring.len()]), "{:?}", ring);
            }
        }
    }
}
