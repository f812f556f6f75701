//! How fast are gates searched? `cargo bench -p skulk-bench --bench browse`, over gates of the size of Gemma 3 270M.
#![allow(clippy::unwrap_used, reason = "a benchmark, run by hand")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use skulk::CancelToken;
use skulk::browse::VindexBrowser;

const LAYERS: usize = 18;
const FEATURES: usize = 2048;
const WIDTH: usize = 640;

/// A folder of level browse with gate vectors alone.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bytes = FEATURES * WIDTH * 2;
    let layers: Vec<_> = (0..LAYERS)
        .map(|layer| {
            json!({ "layer": layer, "num_features": FEATURES, "offset": layer * bytes, "length": bytes })
        })
        .collect();
    let index = json!({
        "version": 2, "model": "made up", "family": "gemma3", "num_layers": LAYERS, "hidden_size": WIDTH,
        "intermediate_size": FEATURES, "vocab_size": 1, "embed_scale": 1.0, "dtype": "f16", "layers": layers,
        "down_top_k": 10,
    });
    std::fs::write(folder.path().join("index.json"), index.to_string()).unwrap();
    let mut state = 1u32;
    let gates = (0..LAYERS * FEATURES * WIDTH).flat_map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        half::f16::from_f32(state as f32 / u32::MAX as f32 - 0.5).to_le_bytes()
    });
    std::fs::write(folder.path().join("gate_vectors.bin"), gates.collect::<Vec<_>>()).unwrap();
    folder
}

fn browse(c: &mut Criterion) {
    let folder = folder();
    let threads = std::thread::available_parallelism().unwrap().get();
    let query: Vec<f32> = (0..WIDTH).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let cancel = CancelToken::new();
    let mut group = c.benchmark_group(format!("{LAYERS} layers of {FEATURES} features, {WIDTH} wide, f16"));
    group.throughput(Throughput::Bytes((LAYERS * FEATURES * WIDTH * 2) as u64));
    for threads in [1, threads] {
        let browser = VindexBrowser::open(folder.path(), threads).unwrap();
        group.bench_function(format!("10 nearest of each, {threads} threads"), |b| {
            b.iter(|| browser.nearest_in(0..LAYERS, &query, 10, &cancel).unwrap().len());
        });
    }
    group.finish();
}

criterion_group!(benches, browse);
criterion_main!(benches);
