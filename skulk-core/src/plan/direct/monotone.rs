//! What is more or quicker never makes a plan worse: more memory, quicker devices, disks and links, more devices, more
//! nodes.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::sets::SETS;
use super::tests::{memory_node, models, request};
use crate::card::ModelCard;
use crate::plan::{Accelerator, Cluster, Link, LinkSpeed, Node, NodeId, Planner, Request, Role, Vendor};

const GIB: u64 = 1 << 30;
/// Clusters and changes that are drawn.
const CASES: u64 = 250;

/// A card of an accelerator with so many GiB that reads so many gigabytes a second.
fn accelerator(at: usize, gib: u64, rate: u64) -> Accelerator {
    Accelerator::new(Vendor::Nvidia)
        .name("GPU")
        .backend(format!("skulk-wgpu-vulkan:{at}"))
        .vram_total_bytes(gib * GIB)
        .vram_used_bytes(0)
        .bytes_per_second(rate as f64 * 1e9)
        .operations_per_second(rate as f64 * 1e11)
}

fn with_accelerator(mut node: Node, gib: u64, rate: u64) -> Node {
    let it = accelerator(node.accelerators.len(), gib, rate);
    if let Some(tags) = &mut node.backends {
        tags.extend(it.backend.clone());
    }
    node.accelerator(it)
}

/// What a node is made of: memory, what it reads a second, what its disk does, its role, accelerators.
type Made = (u64, u64, u64, usize, Vec<(u64, u64)>);

fn made() -> impl Strategy<Value = Made> {
    let accelerators = prop::collection::vec((2u64..26, 100u64..2000), 0..3);
    (1u64..40, 5u64..300, 1u64..14, 0usize..10, accelerators)
}

fn node(id: &str, (gib, rate, disk, role, accelerators): Made) -> Node {
    let node =
        memory_node(id, gib).bytes_per_second(rate as f64 * 1e9).operations_per_second(rate as f64 * 1e10);
    let node = node.disk_bytes_per_second(disk as f64 * 1e9);
    let node = match role {
        0 | 1 => node.role(Role::FfnOnly),
        2 => node.role(Role::Management),
        _ => node,
    };
    let accelerators = accelerators.into_iter().take(if role < 5 { 0 } else { 2 });
    accelerators.fold(node, |node, (gib, rate)| with_accelerator(node, gib, rate))
}

fn speed((trip, bytes): (u64, u64)) -> LinkSpeed {
    LinkSpeed::new(trip as f64 * 1e-5, bytes as f64 * 1e8)
}

/// Clusters of up to `most` nodes, each linked with all or with some, by links of different speeds.
fn clusters(most: usize) -> impl Strategy<Value = Cluster> {
    let link = (1u64..200, 1u64..100, 0usize..8);
    (
        prop::collection::vec(made(), 1..=most),
        prop::collection::vec(link, most * most),
        0usize..3,
        (1u64..200, 1u64..100),
    )
        .prop_map(move |(nodes, links, kind, mesh)| {
            let nodes: Vec<Node> =
                nodes.into_iter().enumerate().map(|(at, it)| node(&format!("n{at}"), it)).collect();
            if kind == 0 {
                return Cluster::mesh(nodes, speed(mesh));
            }
            let n = nodes.len();
            let pairs = (0..n).flat_map(|a| (0..a).map(move |b| (a, b)));
            let links = pairs.filter(|(a, b)| kind == 1 || links[a * most + b].2 > 1).flat_map(|(a, b)| {
                let (trip, bytes, _) = links[a * most + b];
                let id = |at: usize| nodes[at].id.clone();
                let link = |a, b| Link::socket(id(a), id(b), "").speed(speed((trip, bytes)));
                [link(a, b), link(b, a)]
            });
            let links = links.collect();
            Cluster::new(nodes, links)
        })
}

/// Experts of a mixture at least: half of the models are dense.
const EXPERTS: usize = 7;

/// One thing that is better.
#[derive(Debug, Clone)]
enum Change {
    /// Bytes of main memory of a node.
    Memory(usize, u64),
    /// Bytes of an accelerator.
    Accelerator(usize, u64),
    /// A node's processor is so many times as fast.
    Processor(usize, f64),
    /// A node's accelerators are.
    Accelerators(usize, f64),
    Disk(usize, f64),
    /// All links have so many times the bytes a second, and so much less of a round trip.
    Links(f64, f64),
    /// One node's links have.
    LinksOf(usize, f64, f64),
    Device(usize, u64, u64),
    Node(Made, (u64, u64)),
}

fn changes() -> impl Strategy<Value = Change> {
    let by = || 1.0f64..8.0;
    prop_oneof![
        (0usize..9, 1u64..(32 * GIB)).prop_map(|(at, by)| Change::Memory(at, by)),
        (0usize..9, 1u64..(32 * GIB)).prop_map(|(at, by)| Change::Accelerator(at, by)),
        (0usize..9, by()).prop_map(|(at, by)| Change::Processor(at, by)),
        (0usize..9, by()).prop_map(|(at, by)| Change::Accelerators(at, by)),
        (0usize..9, by()).prop_map(|(at, by)| Change::Disk(at, by)),
        (by(), by()).prop_map(|(a, b)| Change::Links(a, b)),
        (0usize..9, by(), by()).prop_map(|(at, a, b)| Change::LinksOf(at, a, b)),
        (0usize..9, 2u64..26, 100u64..2000).prop_map(|(at, gib, rate)| Change::Device(at, gib, rate)),
        (made(), (1u64..200, 1u64..100)).prop_map(|(made, speed)| Change::Node(made, speed)),
    ]
}

fn quicker(speed: &mut LinkSpeed, bytes: f64, trip: f64) {
    speed.bytes_per_second *= bytes;
    speed.round_trip_seconds /= trip;
}

fn changed(cluster: &Cluster, change: &Change) -> Cluster {
    let mut better = cluster.clone();
    let n = better.nodes.len();
    let times = |rate: &mut Option<f64>, by: f64| *rate = rate.map(|rate| rate * by);
    match change {
        Change::Memory(at, by) => {
            let memory = better.nodes[at % n].memory.as_mut().unwrap();
            memory.ram_total += 2 * by;
            memory.ram_available += by;
        }
        Change::Accelerator(at, by) => {
            let total =
                better.nodes[at % n].accelerators.iter_mut().find_map(|it| it.vram_total_bytes.as_mut());
            total.into_iter().for_each(|it| *it += by);
        }
        Change::Processor(at, by) => {
            let node = &mut better.nodes[at % n];
            times(&mut node.bytes_per_second, *by);
            times(&mut node.operations_per_second, *by);
        }
        Change::Accelerators(at, by) => {
            for it in &mut better.nodes[at % n].accelerators {
                times(&mut it.bytes_per_second, *by);
                times(&mut it.operations_per_second, *by);
            }
        }
        Change::Disk(at, by) => times(&mut better.nodes[at % n].disk_bytes_per_second, *by),
        Change::Links(bytes, trip) => {
            better.mesh.iter_mut().for_each(|it| quicker(it, *bytes, *trip));
            better
                .links
                .iter_mut()
                .filter_map(|it| it.speed.as_mut())
                .for_each(|it| quicker(it, *bytes, *trip));
        }
        Change::LinksOf(at, bytes, trip) => {
            let id = better.nodes[at % n].id.clone();
            let own = better.links.iter_mut().filter(|it| it.source == id || it.sink == id);
            own.filter_map(|it| it.speed.as_mut()).for_each(|it| quicker(it, *bytes, *trip));
        }
        Change::Device(at, gib, rate) => {
            let at = at % n;
            better.nodes[at] = with_accelerator(better.nodes[at].clone(), *gib, *rate);
        }
        Change::Node(made, own) => {
            let id = NodeId::new("a-new-one");
            if better.mesh.is_none() {
                let both = |other: &Node| {
                    let link =
                        |a: &NodeId, b: &NodeId| Link::socket(a.clone(), b.clone(), "").speed(speed(*own));
                    [link(&id, &other.id), link(&other.id, &id)]
                };
                let links: Vec<Link> = better.nodes.iter().flat_map(both).collect();
                better.links.extend(links);
            }
            better.nodes.push(node(id.as_str(), made.clone()));
        }
    }
    better
}

/// Seconds of a token; `None`: refused.
fn seconds(card: &ModelCard, cluster: &Cluster, request: &Request) -> Option<f64> {
    let placement = Planner::plan(card, cluster, request).ok()?;
    placement.check(card).unwrap();
    let report = placement.report().unwrap();
    assert!(report.nodes.iter().all(|node| node.over() == 0));
    Some(report.estimate.unwrap().seconds())
}

fn devices(cluster: &Cluster) -> usize {
    cluster.nodes.iter().map(|node| 1 + node.accelerators.len()).sum()
}

/// The same clusters and changes each time: that no plan gets slower is sure for more devices and nodes only, for what else is
/// better it is tried out.
#[test]
fn what_is_better_makes_no_plan_slower() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[0; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let drawn = (clusters(3), models(EXPERTS), changes(), 1usize..3, any::<bool>());
    let mut compared = 0;
    for case in 0..CASES {
        let (cluster, (card, inventory), change, min, from_disk) =
            drawn.new_tree(&mut runner).unwrap().current();
        let better = changed(&cluster, &change);
        if devices(&better) > SETS {
            continue;
        }
        let request = request(inventory, min).from_disk(from_disk);
        let Some(before) = seconds(&card, &cluster, &request) else { continue };
        let after = seconds(&card, &better, &request);
        let is_slower = after.is_none_or(|after| after > before * (1.0 + 1e-9));
        assert!(!is_slower, "case {case}, {change:?}: {before} s, then {after:?}");
        compared += 1;
    }
    assert!(compared > CASES / 3, "{compared}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_better_ends_no_fit(cluster in clusters(3), (card, inventory) in models(EXPERTS), change in changes()) {
        let (better, request) = (changed(&cluster, &change), request(inventory, 1));
        if devices(&better) <= SETS && Planner::plan(&card, &cluster, &request).is_ok() {
            let after = Planner::plan(&card, &better, &request);
            prop_assert!(after.is_ok(), "{:?}", after);
        }
    }
}
