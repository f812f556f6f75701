//! How fast is the library of cards read? `cargo bench -p skulk-bench --bench cards`.
#![allow(clippy::unwrap_used, reason = "a benchmark, run by hand")]

use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use skulk::{CardLibrary, ModelCard};

fn cards(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cards");
    let cards: Vec<ModelCard> = CardLibrary::builtin().iter().cloned().collect();
    let toml: Vec<String> = cards.iter().map(|card| card.to_toml().unwrap()).collect();
    let json: Vec<String> = cards.iter().map(ModelCard::to_json).collect();

    let mut group = c.benchmark_group(format!("{} cards", cards.len()));
    group.bench_function("from TOML", |b| {
        b.iter(|| toml.iter().map(|text| ModelCard::from_toml(text).unwrap().n_layers).sum::<usize>());
    });
    group.bench_function("from TOML, and profiles", |b| {
        b.iter(|| {
            let profiles = toml.iter().map(|text| ModelCard::from_toml(text).unwrap().profile());
            profiles.filter(|profile| profile.supports_thinking).count()
        });
    });
    group.bench_function("from JSON", |b| {
        b.iter(|| json.iter().map(|text| ModelCard::from_json(text).unwrap().n_layers).sum::<usize>());
    });
    group.bench_function("to TOML", |b| {
        b.iter(|| cards.iter().map(|card| card.to_toml().unwrap().len()).sum::<usize>());
    });
    group.bench_function("from a folder", |b| {
        b.iter(|| CardLibrary::empty().with_folder(&folder).len());
    });
    let mut library = CardLibrary::empty().with_folder(&folder);
    group.bench_function("reload, nothing changed", |b| b.iter(|| library.reload()));
    group.finish();
}

criterion_group!(benches, cards);
criterion_main!(benches);
