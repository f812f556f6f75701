//! Are answers those that LARQL's server gave? Recorded exchanges, against the folder that was served.
//!
//! The server rounds scores to one decimal (features alone: to two). A score of ours is added up in another order, and
//! counts as equal when what it is, or that a little more or less, rounds to the recorded number.

use std::path::{Path, PathBuf};

use serde_json::Value;
use skulk::browse::{
    Band, DescribeOptions, RelationsOptions, SelectOptions, SelectOrder, VindexBrowser, WalkOptions,
};
use skulk::extract::{ExtractOptions, VindexStorage};
use skulk::vindex::VindexQuant;
use skulk::{CancelToken, ErrorKind, TokenId, VindexReader};
use tempfile::TempDir;

use crate::fixtures;
use crate::vindex::extract::extracted;

/// What a sum of some hundred products may be off by, in relation to it or to 1.
const SLACK: f32 = 1e-5;

/// Folders of exchanges, each with the vindex that was served, and where that is made for the test what keeps it. One of
/// f32 is made from its source where it is not there: nothing is lost in it, whoever made it.
fn servers() -> Vec<(PathBuf, PathBuf, Option<TempDir>)> {
    let own = fixtures::root().join("tests/fixtures/vindex");
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(|folder| PathBuf::from(folder).join("vindex"));
    let list = |folder: PathBuf| {
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let mut found = Vec::new();
    for root in [Some(own), extra].into_iter().flatten() {
        let folders: Vec<_> = ["made", "served"].into_iter().flat_map(|sub| list(root.join(sub))).collect();
        for server in list(root.join("http")) {
            match folders.iter().find(|folder| is_served(&server, folder)) {
                Some(folder) => found.push((server, folder.clone(), None)),
                None => {
                    let stats = exchange(&server, "get_stats").unwrap()["response_json"].clone();
                    assert_eq!(stats["dtype"], "f32", "the folder that {} answered from", server.display());
                    let source = root.join("source").join(model_of(&stats));
                    let options = ExtractOptions::default().storage(VindexStorage::F32).threads(2);
                    let (keeper, folder) = extracted(&source, options);
                    found.push((server, folder, Some(keeper)));
                }
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// Whether a server's statistics and name are those of a folder. One of level browse, in `served`, stands for the whole
/// folder whose files it shares.
fn is_served(server: &Path, folder: &Path) -> bool {
    let stats = exchange(server, "get_stats").unwrap()["response_json"].clone();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let model = model_of(&stats);
    let reader = VindexReader::open(folder).unwrap();
    let index = reader.index();
    let transposed = stats["q4k_ffn"]["feature_major_down"] == true;
    let is_q4k = transposed || name(server).contains("q4k");
    let dtype = if index.dtype() == skulk::DType::F16 { "f16" } else { "f32" };
    name(folder).starts_with(&format!("{model}."))
        && stats["dtype"] == dtype
        && (index.quant() == VindexQuant::Q4K) == is_q4k
        && folder.join("down_features_q4k.bin").exists() == transposed
        && folder.join("gate_vectors.bin").exists() != name(server).contains("q4kng")
        && (stats["extract_level"] == index.extract_level.as_str()
            || folder.parent().unwrap().ends_with("served"))
}

/// The last part of the model's name in a server's statistics.
fn model_of(stats: &Value) -> String {
    stats["model"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
}

/// A recorded exchange, if there is one.
fn exchange(server: &Path, name: &str) -> Option<Value> {
    let path = server.join(format!("{name}.json"));
    path.exists().then(|| fixtures::json(&path))
}

/// Calls `check` with each server's browser, recorded request, and reply, and with what the request says behind `?`.
fn each(name: &str, check: impl Fn(&VindexBrowser, &Value, &Value, &Asked)) {
    let mut n = 0;
    for (server, folder, _keeper) in servers() {
        let browser = VindexBrowser::open(&folder, 2).unwrap();
        let Some(recorded) = exchange(&server, name) else { continue };
        println!("{}: {name} of {}", server.display(), folder.display());
        let asked = Asked::new(recorded["path"].as_str().unwrap());
        check(&browser, &recorded["request_json"], &recorded["response_json"], &asked);
        n += 1;
    }
    assert!(n > 0, "no {name}");
}

/// What a path says behind `?`.
struct Asked(Vec<(String, String)>);

impl Asked {
    fn new(path: &str) -> Self {
        let pairs = path.split_once('?').map_or("", |(_, query)| query).split('&');
        Self(
            pairs.filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), unescape(v))).collect(),
        )
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.text(key).map(|text| text.parse().ok().unwrap())
    }

    /// `a-b` or `a,b`, of the layers that there are.
    fn layers(&self, all: &[usize]) -> Option<Vec<usize>> {
        let text = self.text("layers")?;
        if let Some((first, last)) = text.split_once('-') {
            let range = first.parse().unwrap()..=last.parse().unwrap();
            return Some(all.iter().copied().filter(|layer| range.contains(layer)).collect());
        }
        let layers = text.split(',').filter_map(|layer| layer.trim().parse().ok());
        Some(layers.filter(|layer| all.contains(layer)).collect())
    }
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}

fn number(value: &Value) -> f32 {
    value.as_f64().unwrap() as f32
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// Whether a score of ours rounds to what was recorded.
#[track_caller]
fn rounded(ours: f32, recorded: &Value, unit: f32) {
    let slack = SLACK * ours.abs().max(1.0);
    let recorded = number(recorded);
    let near = [0.0, -slack, slack].map(|by| ((ours + by) * unit).round() / unit);
    assert!(near.contains(&recorded), "{ours} for {recorded}");
}

/// Whether a score of `down_meta.bin` is what was recorded: in LARQL's folder it is the same number, in one made here a
/// sum in another order.
#[track_caller]
fn stored(browser: &VindexBrowser, ours: f32, recorded: &Value) {
    let is_larqls = !browser.reader().index().source.as_ref().unwrap().larql_version.starts_with("skulk");
    let slack = if is_larqls { 0.0 } else { 10.0 * SLACK * ours.abs() };
    assert!((ours - number(recorded)).abs() <= slack, "{ours} for {recorded}");
}

#[test]
fn walks() {
    each("walk", |browser, _, reply, asked| {
        let mut options = WalkOptions::default();
        options.top = asked.number("top").unwrap_or(options.top);
        options.layers = asked.layers(&browser.layers());
        let hits = browser.walk(asked.text("prompt").unwrap(), &options).unwrap();
        let recorded = reply["hits"].as_array().unwrap();
        assert_eq!(hits.len(), recorded.len());
        for (hit, recorded) in hits.iter().zip(recorded) {
            assert_eq!((&recorded["layer"], &recorded["feature"]), (&hit.layer.into(), &hit.feature.into()));
            assert_eq!(recorded["target"], hit.target);
            assert_eq!(recorded.get("relation").and_then(Value::as_str), hit.relation.as_deref());
            rounded(hit.gate_score, &recorded["gate_score"], 10.0);
        }
    });
}

#[test]
fn descriptions() {
    each("describe", |browser, _, reply, asked| {
        let mut options = DescribeOptions::default();
        if let Some(band) = asked.text("band") {
            options.band = band.parse().unwrap_or(Band::All);
        }
        options.limit = asked.number("limit").unwrap_or(options.limit);
        options.min_score = asked.number("min_score").unwrap_or(options.min_score);
        let found = browser.describe(asked.text("entity").unwrap(), &options).unwrap();
        assert_eq!(reply["entity"], found.entity);
        let base = |model: &str| model.rsplit('/').next().unwrap().to_owned();
        assert_eq!(base(reply["model"].as_str().unwrap()), base(&found.model));
        let recorded = reply["edges"].as_array().unwrap();
        assert_eq!(found.edges.len(), recorded.len());
        for (edge, recorded) in found.edges.iter().zip(recorded) {
            assert_eq!(
                (&recorded["target"], &recorded["layer"]),
                (&edge.target.as_str().into(), &edge.layer.into())
            );
            rounded(edge.gate_score, &recorded["gate_score"], 10.0);
            let also = recorded.get("also").cloned().unwrap_or(Value::Array(Vec::new()));
            assert_eq!(also, Value::from(edge.also.clone()));
            assert_eq!(recorded.get("relation").and_then(Value::as_str), edge.relation.as_deref());
            assert_eq!(
                recorded.get("source").and_then(Value::as_str),
                edge.source.map(|source| source.as_str())
            );
            if asked.text("verbose") == Some("true") {
                let counts =
                    [("layer_min", edge.layer_min), ("layer_max", edge.layer_max), ("count", edge.count)];
                for (key, ours) in counts {
                    assert_eq!(recorded[key], ours, "{key}");
                }
            }
        }
    });
}

#[test]
fn selections() {
    each("select", |browser, request, reply, _| {
        let text = |key: &str| request[key].as_str().map(str::to_owned);
        let size = |key: &str| request[key].as_u64().map(|n| n as usize);
        let mut options = SelectOptions::default();
        (options.entity, options.relation, options.layer) = (text("entity"), text("relation"), size("layer"));
        options.min_score = request["min_confidence"].as_f64().map(|score| score as f32);
        options.limit = size("limit").unwrap_or(options.limit);
        let by = text("order_by");
        options.order = if by.as_deref() == Some("layer") { SelectOrder::Layer } else { SelectOrder::Score };
        // Without a known field the server orders downwards whatever was asked for.
        let is_known =
            ["gate_score", "confidence", "c_score", "layer"].contains(&by.as_deref().unwrap_or(""));
        options.ascending = is_known && text("order").is_some_and(|order| order != "desc");
        let found = browser.select(&options).unwrap();
        assert_eq!(reply["total"], found.total);
        let recorded = reply["edges"].as_array().unwrap();
        assert_eq!(found.features.len(), recorded.len());
        for (ours, recorded) in found.features.iter().zip(recorded) {
            assert_eq!(
                (&recorded["layer"], &recorded["feature"]),
                (&ours.layer.into(), &ours.feature.into())
            );
            assert_eq!(recorded["target"], ours.target);
            stored(browser, ours.c_score, &recorded["c_score"]);
            assert_eq!(recorded.get("relation").and_then(Value::as_str), ours.relation.as_deref());
        }
    });
}

/// Of words with equal counts the server lists some first at random: those at its list's end may be any.
#[test]
fn relations() {
    each("get_relations", |browser, _, reply, _| {
        let found = browser.relations(&RelationsOptions::default().limit(usize::MAX)).unwrap();
        assert_eq!(reply["total"], found.total);
        assert_eq!(reply["probe_count"], found.probe_count);
        assert_eq!(reply["probe_relations"].as_array().unwrap().len(), found.probes.len());
        let recorded = reply["relations"].as_array().unwrap();
        assert_eq!(recorded.len(), RelationsOptions::default().limit.min(found.total));
        for (recorded, in_order) in recorded.iter().zip(&found.relations) {
            assert_eq!(recorded["count"], in_order.count);
            let ours = found.relations.iter().find(|ours| recorded["name"] == ours.name).unwrap();
            assert_eq!(recorded["count"], ours.count);
            stored(browser, ours.max_score, &recorded["max_score"]);
            assert_eq!(recorded["min_layer"], ours.min_layer);
            assert_eq!(recorded["max_layer"], ours.max_layer);
            assert_eq!(recorded["examples"], Value::from(ours.examples.clone()));
        }
    });
}

#[test]
fn features_for_a_residual() {
    each("wf_features", |browser, request, reply, _| {
        let residual = numbers(&request["residual"]);
        let k = request["top_k"].as_u64().unwrap() as usize;
        let (layers, replies) = match request["layers"].as_array() {
            Some(layers) => (layers.clone(), reply["results"].as_array().unwrap().clone()),
            None => (vec![request["layer"].clone()], vec![reply.clone()]),
        };
        for (layer, reply) in layers.iter().zip(replies) {
            assert_eq!(*layer, reply["layer"]);
            let hits = browser
                .nearest_in([layer.as_u64().unwrap() as usize], &residual, k, &CancelToken::new())
                .unwrap();
            let features: Vec<Value> = hits.iter().map(|hit| hit.feature.into()).collect();
            assert_eq!(reply["features"], Value::from(features));
            for (hit, score) in hits.iter().zip(reply["scores"].as_array().unwrap()) {
                rounded(hit.score, score, 100.0);
            }
        }
    });
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Embeddings are what is stored times one number: every bit is known.
#[test]
fn embeddings() {
    each("embed_json", |browser, request, reply, _| {
        for (token, row) in
            request["token_ids"].as_array().unwrap().iter().zip(reply["residual"].as_array().unwrap())
        {
            assert_eq!(browser.embed(TokenId(token.as_u64().unwrap() as u32)).unwrap(), numbers(row));
        }
    });
    each("embed_one_json", |browser, _, reply, _| {
        let token = TokenId(reply["token_id"].as_u64().unwrap() as u32);
        assert_eq!(browser.embed(token).unwrap(), numbers(&reply["embedding"]));
    });
    each("embed_oob", |browser, request, _, _| {
        for token in fixtures::ids(&request["token_ids"]) {
            assert_eq!(browser.embed(token).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    });
    for (server, folder, _keeper) in servers() {
        let browser = VindexBrowser::open(&folder, 1).unwrap();
        let read = |name: &str| std::fs::read(server.join(name)).unwrap();
        if let Some(one) = exchange(&server, "embed_one") {
            let token = one["path"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap();
            assert_eq!(browser.embed(TokenId(token)).unwrap(), floats(&read("embed_one.resp.bin")));
        }
        if exchange(&server, "embed_bin").is_some() {
            let (request, reply) = (read("embed_bin.req.bin"), read("embed_bin.resp.bin"));
            let tokens = request[4..].as_chunks().0.iter().map(|b| TokenId(u32::from_le_bytes(*b)));
            let rows: Vec<f32> = tokens.flat_map(|token| browser.embed(token).unwrap()).collect();
            assert_eq!(rows, floats(&reply[8..]));
        }
    }
}

#[test]
fn tokens() {
    each("token_encode", |browser, _, reply, asked| {
        let ids = browser.tokenizer().unwrap().encode(asked.text("text").unwrap(), false).unwrap();
        assert_eq!(fixtures::ids(&reply["token_ids"]), ids);
    });
    each("token_decode", |browser, _, reply, asked| {
        let ids: Vec<_> =
            asked.text("ids").unwrap().split(',').map(|id| TokenId(id.parse().unwrap())).collect();
        assert_eq!(reply["text"], browser.tokenizer().unwrap().decode(&ids, true));
    });
}

#[test]
fn statistics() {
    each("get_stats", |browser, _, reply, _| {
        let index = browser.reader().index();
        let features = |layer: &usize| browser.num_features(*layer);
        assert_eq!(reply["family"], index.family);
        let sizes = [
            ("layers", index.num_layers),
            ("features", browser.layers().iter().map(features).sum()),
            ("features_per_layer", browser.layers().first().map_or(0, features)),
            ("hidden_size", index.hidden_size),
            ("vocab_size", index.vocab_size),
        ];
        for (key, ours) in sizes {
            assert_eq!(reply[key], ours, "{key}");
        }
        assert_eq!(reply["layer_bands"], serde_json::to_value(index.layer_bands).unwrap());
    });
}
