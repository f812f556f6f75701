//! Does browsing give LARQL's answers, and typed errors for what is not there?

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use skulk::browse::{
    Band, DescribeOptions, FeatureHit, LabelSource, RelationsOptions, SelectOptions, SelectOrder,
    VindexBrowser, WalkOptions,
};
use skulk::vindex::VindexPart;
use skulk::{CancelToken, Checkpoint, ErrorKind, TokenId, VindexReader};

use crate::vindex::{
    change, change_json, copied, expert_names, fixtures, is_summary, pairs, refused, values, write,
};

/// A folder of level browse that LARQL made.
fn served() -> PathBuf {
    fixtures::root().join("tests/fixtures/vindex/served/tiny-llama.browse.vindex")
}

/// A copy of it.
fn folder() -> tempfile::TempDir {
    copied(&served())
}

fn browser() -> VindexBrowser {
    VindexBrowser::open(served(), 2).unwrap()
}

/// Numbers that look random, between -1 and 1.
fn query(width: usize) -> Vec<f32> {
    (0..width).map(|i| ((i * 7919 + 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}

fn places(hits: &[FeatureHit]) -> Vec<(usize, usize)> {
    hits.iter().map(|hit| (hit.layer, hit.feature)).collect()
}

/// Scores are sums of products that are exact in f64. Ours are added in f32, in whatever order; and where gates are
/// quantised, each number of the query is off by at most 1/64,516 of the largest.
#[test]
fn scores_are_products_of_all_features() {
    for (made, _) in pairs() {
        let reader = Arc::new(VindexReader::open(&made).unwrap());
        let [one, three] = [1, 3].map(|threads| reader.browse(threads).unwrap());
        let x = query(reader.index().hidden_size);
        for layer in one.layers() {
            let gates = reader.gates(layer).unwrap();
            assert_eq!(gates.shape(), [one.num_features(layer), x.len()]);
            let mut scores = vec![f32::NAN; gates.rows()];
            one.scores(layer, &x, &mut scores).unwrap();
            for (row, score) in values(&gates).chunks_exact(x.len()).zip(&scores) {
                let terms = || row.iter().zip(&x).map(|(a, b)| f64::from(*a) * f64::from(*b));
                let size: f64 = terms().map(f64::abs).sum();
                let rounding = if gates.dtype().is_quantised() {
                    row.iter().map(|a| f64::from(a.abs())).sum::<f64>() / 64_516.0
                } else {
                    0.0
                };
                let bound = size * x.len() as f64 * f64::from(f32::EPSILON) + rounding;
                assert!(
                    (terms().sum::<f64>() - f64::from(*score)).abs() <= bound,
                    "{} {layer}",
                    made.display()
                );
            }
            // Hits are the scores in order of magnitude, on any number of threads.
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|a, b| scores[*b].abs().total_cmp(&scores[*a].abs()));
            for k in [0, 1, 7, scores.len(), usize::MAX] {
                let hits = one.nearest(layer, &x, k).unwrap();
                let expected: Vec<_> = order.iter().take(k).map(|&i| (layer, i, scores[i])).collect();
                assert_eq!(hits.iter().map(|h| (h.layer, h.feature, h.score)).collect::<Vec<_>>(), expected);
                assert_eq!(three.nearest(layer, &x, k).unwrap(), hits);
            }
        }
        let all = one.nearest_in(one.layers(), &x, 5, &CancelToken::new()).unwrap();
        let each: Vec<_> =
            one.layers().into_iter().flat_map(|layer| one.nearest(layer, &x, 5).unwrap()).collect();
        assert_eq!(all, each);
    }
}

/// Experts' rows lie behind each other, and their numbers go on.
#[test]
fn features_of_a_mixture_are_those_of_its_experts() {
    for (made, _) in pairs().into_iter().filter(|(made, _)| made.join("gate_vectors.bin").exists()) {
        let reader = VindexReader::open(&made).unwrap();
        for entry in reader.index().layers.iter().filter(|entry| entry.num_experts.is_some()) {
            if is_summary(reader.index(), entry.layer) {
                let name = format!("layers.{}.gate_vectors", entry.layer);
                assert_eq!(reader.tensor(&name).unwrap().shape[0], entry.num_features);
                continue;
            }
            let gates = values(&reader.gates(entry.layer).unwrap());
            let (n, width) = (entry.num_experts.unwrap(), reader.index().hidden_size);
            for (expert, rows) in gates.chunks_exact(gates.len() / n).enumerate() {
                let names = expert_names(entry.layer, expert, "gate_proj");
                let name = names.iter().find(|name| reader.tensor(name).is_some()).unwrap();
                assert_eq!(values(&reader.region(name).unwrap()), rows, "{name}");
                assert_eq!(rows.len(), entry.num_features_per_expert.unwrap() * width);
            }
        }
    }
}

#[test]
fn embeddings_are_scaled_rows() {
    for (made, _) in pairs() {
        let reader = Arc::new(VindexReader::open(&made).unwrap());
        let browser = reader.browse(1).unwrap();
        let table = values(&reader.region("embed_tokens.weight").unwrap());
        let width = reader.index().hidden_size;
        for token in [0, 1, reader.index().vocab_size - 1] {
            let expected: Vec<f32> =
                table[token * width..][..width].iter().map(|x| x * reader.index().embed_scale).collect();
            assert_eq!(browser.embed(TokenId(token as u32)).unwrap(), expected);
        }
        refused(
            browser.embed(TokenId(reader.index().vocab_size as u32)),
            ErrorKind::InvalidArgument,
            "token",
        );
        refused(browser.embed(TokenId(u32::MAX)), ErrorKind::InvalidArgument, "4294967295");
    }
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let (browser, cancel) = (browser(), CancelToken::new());
    let (x, invalid) = (query(256), ErrorKind::InvalidArgument);
    refused(browser.nearest(4, &x, 1), invalid, "(0..4)");
    refused(browser.nearest(usize::MAX, &x, 1), invalid, "(0..4)");
    refused(browser.nearest_in(0..usize::MAX, &x, 1, &cancel), invalid, "found 4");
    refused(browser.nearest(0, &x[1..], 1), invalid, "256");
    refused(browser.nearest(0, &[], 1), invalid, "256");
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = x.clone();
        x[200] = wrong;
        refused(browser.nearest(0, &x, 1), invalid, "finite");
    }
    refused(browser.scores(0, &x, &mut []), invalid, "384");
    refused(browser.scores(9, &x, &mut []), invalid, "found 9");
    refused(browser.embed_into(TokenId(0), &mut [0.0; 255]), invalid, "256");
    refused(browser.feature(4, 0), invalid, "below 4");
    refused(browser.features(4).map(|_| ()), invalid, "below 4");
    refused(browser.select(&SelectOptions::default().layer(4)), invalid, "below 4");
    refused(browser.walk("", &WalkOptions::default()), invalid, "empty");
    refused(browser.walk("a", &WalkOptions::default().layers([1, 4])), invalid, "found 4");
    refused(VindexBrowser::open(folder().path(), 0).map(|_| ()), invalid, "threads");
    assert_eq!(browser.feature(0, usize::MAX).unwrap(), None);
    assert!(browser.describe("", &DescribeOptions::default()).unwrap().edges.is_empty());
    assert!(browser.nearest_in([], &x, 1, &cancel).unwrap().is_empty());
    cancel.cancel();
    let cancelled = ErrorKind::Cancelled;
    refused(browser.nearest_in([0], &x, 1, &cancel), cancelled, "cancelled");
    refused(browser.walk("a", &WalkOptions::default().cancel(cancel.clone())), cancelled, "cancelled");
    refused(
        browser.describe("a", &DescribeOptions::default().cancel(cancel.clone())),
        cancelled,
        "cancelled",
    );
    refused(browser.select(&SelectOptions::default().cancel(cancel.clone())), cancelled, "cancelled");
    refused(browser.relations(&RelationsOptions::default().cancel(cancel)), cancelled, "cancelled");
}

/// Every answer that needs a file names it when it is gone, and the others are given.
#[test]
fn files_may_be_missing_one_by_one() {
    let needs: [(&str, &[&str]); 4] = [
        ("gate_vectors.bin", &["nearest", "walk", "describe"]),
        ("embeddings.bin", &["embed", "walk", "describe"]),
        ("down_meta.bin", &["walk", "describe", "feature", "select", "relations"]),
        ("tokenizer.json", &["walk", "describe", "feature", "select", "relations"]),
    ];
    for (file, without) in needs {
        let folder = folder();
        std::fs::remove_file(folder.path().join(file)).unwrap();
        let browser = VindexBrowser::open(folder.path(), 1).unwrap();
        let answers = [
            ("nearest", browser.nearest(0, &query(256), 3).map(|_| ())),
            ("embed", browser.embed(TokenId(5)).map(|_| ())),
            ("walk", browser.walk("The model", &WalkOptions::default()).map(|_| ())),
            ("describe", browser.describe("model", &DescribeOptions::default().min_score(0.0)).map(|_| ())),
            ("feature", browser.feature(0, 0).map(|_| ())),
            ("select", browser.select(&SelectOptions::default()).map(|_| ())),
            ("relations", browser.relations(&RelationsOptions::default()).map(|_| ())),
        ];
        for (answer, result) in answers {
            assert_eq!(result.is_err(), without.contains(&answer), "{answer} without {file}");
            if let Err(e) = result {
                let kind = match file {
                    "down_meta.bin" => ErrorKind::FileNotFound,
                    "tokenizer.json" => ErrorKind::TokenizerInvalid,
                    _ => ErrorKind::TensorMissing,
                };
                assert_eq!(e.kind(), kind, "{e}");
                assert!(e.to_string().contains(file) && e.hint().is_some(), "{e}");
            }
        }
    }
}

#[test]
fn layers_that_a_slice_lacks_are_named() {
    let folder = folder();
    change_json(folder.path(), "index.json", |index| drop(index["layers"].as_array_mut().unwrap().remove(1)));
    let browser = VindexBrowser::open(folder.path(), 1).unwrap();
    assert_eq!(browser.layers(), [0, 2, 3]);
    refused(browser.nearest(1, &query(256), 1), ErrorKind::TensorMissing, "(0..1, 2..4)");
    assert_eq!(
        places(&browser.nearest_in(browser.layers(), &query(256), 1, &CancelToken::new()).unwrap()).len(),
        3
    );
}

#[test]
fn truncated_files_are_refused() {
    for file in ["down_meta.bin", "feature_labels.json", "tokenizer.json"] {
        let folder = folder();
        let path = folder.path().join(file);
        if file == "feature_labels.json" {
            std::fs::write(&path, r#"{"L0_F1": "capital", "L0_F2": "borders"}"#).unwrap();
        }
        let whole = std::fs::read(&path).unwrap();
        for len in [0, 1, 7, 15, 17, whole.len() / 2, whole.len() - 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            let browser = VindexBrowser::open(folder.path(), 1).unwrap();
            let error = browser.walk("The model", &WalkOptions::default()).err();
            let error = error.unwrap_or_else(|| panic!("{file} at {len}"));
            assert!(error.to_string().contains(file) && error.hint().is_some(), "{error}");
        }
    }
}

#[test]
fn gates_that_are_no_numbers_are_no_hits() {
    let folder = folder();
    change(folder.path(), "gate_vectors.bin", |gates| gates[3 * 512..4 * 512].fill(0xff));
    let browser = VindexBrowser::open(folder.path(), 1).unwrap();
    let hits = browser.nearest(0, &query(256), usize::MAX).unwrap();
    assert_eq!(hits.len(), 383);
    assert!(!places(&hits).contains(&(0, 3)));
}

#[test]
fn threads_share_a_browser() {
    let browser = browser();
    let expected = browser.walk("The model", &WalkOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(browser.walk("The model", &WalkOptions::default()).unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn labels_are_given_where_there_are_some() {
    let folder = folder();
    let plain = VindexBrowser::open(folder.path(), 1).unwrap();
    let walk = WalkOptions::default().top(2);
    let hit = plain.walk("The model", &walk).unwrap().remove(0);
    assert_eq!(hit.relation, None);
    let place = format!("L{}_F{}", hit.layer, hit.feature);
    let labels = json!({ place: "Capital of", "L3_F7": "Capital of", "L3_F8": "borders" });
    std::fs::write(folder.path().join("feature_labels.json"), labels.to_string()).unwrap();
    std::fs::write(folder.path().join("relation_clusters.json"), r#"{"k":1,"labels":["cities"]}"#).unwrap();
    std::fs::write(folder.path().join("feature_clusters.jsonl"), "{\"l\":2,\"f\":5,\"c\":0}\n").unwrap();
    let browser = VindexBrowser::open(folder.path(), 1).unwrap();
    assert_eq!(browser.walk("The model", &walk).unwrap()[0].relation.as_deref(), Some("Capital of"));
    let label = browser.feature(2, 5).unwrap().unwrap().label.unwrap();
    assert_eq!((label.name.as_str(), label.source), ("cities", LabelSource::Cluster));
    let label = browser.feature(3, 7).unwrap().unwrap().label.unwrap();
    assert_eq!((label.name.as_str(), label.source), ("Capital of", LabelSource::Probe));
    let capitals = browser.select(&SelectOptions::default().relation("CAPITAL")).unwrap();
    assert_eq!(capitals.total, 2);
    assert!(capitals.features.iter().all(|feature| feature.relation.as_deref() == Some("Capital of")));
    let relations = browser.relations(&RelationsOptions::default()).unwrap();
    let probes: Vec<_> = relations.probes.iter().map(|probe| (probe.name.as_str(), probe.count)).collect();
    assert_eq!((probes, relations.probe_count), (vec![("Capital of", 2), ("borders", 1)], 3));
    let options = DescribeOptions::default().band(Band::All).min_score(0.0).limit(1000);
    let edges = browser.describe("model", &options).unwrap().edges;
    for edge in &edges {
        assert_eq!(edge.source, edge.relation.as_ref().map(|_| LabelSource::Probe));
    }
    assert!(edges.iter().all(|edge| edge.relation.is_some()
        == [(hit.layer, hit.feature), (3, 7), (3, 8)].contains(&(edge.layer, edge.feature))));
}

#[test]
fn lists_are_in_order() {
    let browser = browser();
    let all = browser.select(&SelectOptions::default().limit(usize::MAX)).unwrap();
    assert_eq!(all.features.len(), all.total);
    assert!(all.features.is_sorted_by(|a, b| a.c_score >= b.c_score));
    let each: usize = browser.layers().iter().map(|&layer| browser.features(layer).unwrap().count()).sum();
    assert_eq!(each, all.total);
    let up = browser.select(&SelectOptions::default().ascending(true).limit(3)).unwrap();
    assert!(up.features.is_sorted_by(|a, b| a.c_score <= b.c_score));
    assert_eq!(up.features[0].c_score, all.features.last().unwrap().c_score);
    let layers =
        browser.select(&SelectOptions::default().order(SelectOrder::Layer).limit(usize::MAX)).unwrap();
    assert!(
        layers.features.is_sorted_by(|a, b| (b.layer, a.feature) < (a.layer, b.feature) || b.layer < a.layer)
    );
    let target = all.features.iter().find(|feature| feature.target.len() > 3).unwrap().target.clone();
    let some = browser.select(&SelectOptions::default().entity(target.to_uppercase()).limit(9999)).unwrap();
    let by_hand = all.features.iter().filter(|f| f.target.to_lowercase().contains(&target.to_lowercase()));
    assert_eq!(some.features, by_hand.cloned().collect::<Vec<_>>());
    let least = all.features[9].c_score;
    assert_eq!(browser.select(&SelectOptions::default().min_score(least)).unwrap().total, 10);
}

#[test]
fn version_1_is_browsed_too() {
    let folder = write::float_vindex(true, 1);
    let browser = VindexBrowser::open(folder.path(), 1).unwrap();
    let walk = |browser: &VindexBrowser| browser.walk("The model", &WalkOptions::default().top(2));
    refused(walk(&browser), ErrorKind::FileNotFound, "down_meta.bin");
    let tokens = browser.tokenizer().unwrap().encode("The model", true).unwrap();
    let query = browser.embed(*tokens.last().unwrap()).unwrap();
    let hits = browser.nearest(1, &query, 2).unwrap();
    let line = json!({ "layer": 1, "feature": hits[1].feature, "top_token": "x", "top_token_id": 421, "c_score": 0.5 });
    std::fs::write(folder.path().join("down_meta.jsonl"), format!("{{\"_header\":true}}\n{line}\n")).unwrap();
    let browser = VindexBrowser::open(folder.path(), 1).unwrap();
    let found = walk(&browser).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].layer, found[0].feature, found[0].gate_score), (1, hits[1].feature, hits[1].score));
    assert_eq!(found[0].target, browser.tokenizer().unwrap().decode(&[TokenId(421)], true).trim());
}

#[test]
fn parts_are_what_lies_in_the_folder() {
    for (made, _) in pairs() {
        let reader = VindexReader::open(&made).unwrap();
        let parts = reader.parts().unwrap();
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        let mut files = 0;
        for part in &parts {
            for file in &part.files {
                assert_eq!(VindexPart::of(&file.name), Some(part.part));
                assert_eq!(file.bytes.bytes(), size(&made.join(&file.name)));
                files += 1;
            }
            assert_eq!(part.bytes, part.files.iter().map(|file| file.bytes).sum());
        }
        assert_eq!(files, count(&made), "{}", made.display());
        assert_eq!(parts.iter().map(|part| part.tensors).sum::<usize>(), reader.tensors().len());
        assert!(parts.is_sorted_by(|a, b| a.part < b.part));
    }
}

fn count(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
}

/// Keys of objects, in order, at every level but that of `checksums`, whose order LARQL leaves to chance.
fn same(a: &Value, b: &Value, at: &str) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            if at != ".checksums" {
                assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{at}");
            }
            assert_eq!(a.len(), b.len(), "{at}");
            for (key, value) in a {
                same(value, &b[key], &format!("{at}.{key}"));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{at}");
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                same(a, b, &format!("{at}[{i}]"));
            }
        }
        _ => assert_eq!(a, b, "{at}"),
    }
}

#[test]
fn an_index_that_is_written_again_is_the_same() {
    let own = fixtures::root().join("tests/fixtures/vindex");
    let beside = ["tiny-gemma4moe.q4k", "tiny-llama.browse", "served/tiny-llama.browse.vindex"];
    let folders = pairs().into_iter().map(|(made, _)| made).chain(beside.map(|name| own.join(name)));
    for path in folders.map(|folder| folder.join("index.json")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let index = skulk::vindex::VindexIndex::parse(text.as_bytes(), &path).unwrap();
        let written = serde_json::to_string_pretty(&index).unwrap();
        same(&serde_json::from_str(&text).unwrap(), &serde_json::from_str(&written).unwrap(), "");
    }
}
