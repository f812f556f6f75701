//! How long does planning take? A mixture of 671 billion parameters over full meshes of mixed nodes:
//! `cargo bench -p skulk-bench --bench planner`.
#![allow(clippy::unwrap_used, reason = "a benchmark, run by hand")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use skulk::plan::{Accelerator, Inventory, LinkSpeed, Role, Transport, Vendor};
use skulk::{Cluster, ModelCard, Node, Planner, Request};

const GIB: u64 = 1 << 30;

/// 61 layers of 256 experts, at 8 bits.
fn inventory() -> Inventory {
    Inventory::of_experts(61, 190_000_000, 44_000_000, (256, 8), 44_000_000, 36_864)
}

fn card(backends: &str) -> ModelCard {
    let text = format!(
        r#"{{"modelId": "org/mixture-671b", "storageSize": {{"inBytes": {}}}, "nLayers": 61, "hiddenSize": 7168,
        "numKeyValueHeads": 128, "supportsTensor": true, "tasks": ["TextGeneration"],
        "placement": {{"compatibleBackends": [{backends}]}}}}"#,
        inventory().weights()
    );
    ModelCard::from_json(&text).unwrap()
}

fn mixed(n: usize, backend: &str) -> Cluster {
    let node = |at: usize| {
        let ram = (8 + (at * 7) % 57) as u64 * GIB;
        let node = Node::new(format!("node{at:04}")).memory(ram, ram + 8 * GIB).backends([backend]);
        match at % 4 {
            0 if backend != "mlx" => {
                let vram = (8 + (at % 5) as u64 * 8) * GIB;
                let gpu = Accelerator::new(Vendor::Nvidia).vram_total_bytes(vram).vram_used_bytes(0);
                let tag = "skulk-wgpu-vulkan:0";
                node.backends([backend, tag]).accelerator(gpu.backend(tag))
            }
            1 => node.role(Role::FfnOnly),
            2 if at % 40 == 2 => node.role(Role::Management),
            _ => node,
        }
    };
    Cluster::mesh((0..n).map(node).collect(), LinkSpeed::new(2e-4, 1.2e9))
}

fn planner(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan 671B");
    group.sample_size(10);
    for n in [256, 1000] {
        let (ours, cluster) = (card(r#""skulk-cpu", "skulk-wgpu""#), mixed(n, "skulk-cpu"));
        let request = Request::default().inventory(inventory());
        group.bench_function(format!("direct, {n} nodes"), |bench| {
            bench.iter(|| black_box(Planner::plan(&ours, &cluster, &request)).unwrap());
        });
        let replicated = request.clone().replicas(1);
        group.bench_function(format!("direct, {n} nodes, replicas"), |bench| {
            bench.iter(|| black_box(Planner::plan(&ours, &cluster, &replicated)).unwrap());
        });
        let refused = request.clone().exclude("node0000").context_tokens(1 << 40);
        group.bench_function(format!("direct, {n} nodes, refused"), |bench| {
            bench.iter(|| black_box(Planner::plan(&ours, &cluster, &refused)).unwrap_err());
        });
        let (mlx, cluster) = (card(r#""mlx""#), mixed(n, "mlx"));
        let ring = Request::default().transport(Transport::MlxRing);
        group.bench_function(format!("ring, {n} nodes"), |bench| {
            bench.iter(|| black_box(Planner::plan(&mlx, &cluster, &ring)).is_ok());
        });
    }
    group.finish();
}

criterion_group!(benches, planner);
criterion_main!(benches);
