//! Does a server reply what LARQL's replied to the same requests?
//!
//! Tolerances are parts of the largest number of a reply. LARQL's walks multiply with weights as floats: they differ from
//! ours by the order of sums, and what this library rounds with precision `exact`. Its experts round what they multiply
//! with to 8 bits, twice in a block: by up to 1/254 of the largest each time.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use skulk::remote::wire::{
    BlocksBuf, ExpertReply, LayerReply, MultiReply, Q8kReply, Q8kRequest, Rows, WalkReply, WireType,
};

use super::super::recorded;
use super::{Replied, Server, ask, frame, gemma, get, llama, post, rows};

/// Elements of a row of the recorded models.
const HIDDEN: usize = 256;
/// 5.2e-5 is found.
const FLOATS: f32 = 2e-4;
/// 1.8e-2 is found.
const ROUNDED: f32 = 4e-2;

/// The values are near, as parts of the largest.
fn near(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
    let off = found.iter().zip(expected).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(off <= tolerance * largest, "{what}: {off} of {largest}");
}

fn values(rows: Rows<'_>) -> Vec<f32> {
    let mut values = Vec::new();
    rows.append_to(&mut values).unwrap();
    values
}

fn walked(bytes: &[u8], wire: WireType) -> Vec<(u32, Vec<f32>)> {
    let reply = WalkReply::decode(bytes, wire, HIDDEN).unwrap();
    reply.entries().map(|(layer, rows)| (layer, values(rows))).collect()
}

/// The body of a reply of this type.
fn ok(replied: Replied, content_type: &str) -> Vec<u8> {
    assert_eq!(replied.status, 200, "{}", replied.body.escape_ascii());
    assert_eq!(replied.header("content-type"), Some(content_type));
    replied.body
}

/// What a server replies to a recorded request, in the request's type or another, and what LARQL's replied.
fn both(server: &Server, path: &str, name: &str, types: [&str; 2]) -> [Vec<u8>; 2] {
    let replied = post(server, path, types[0], &recorded(&format!("{name}.req.bin")));
    let bodies = [ok(replied, types[1]), recorded(&format!("{name}.resp.bin"))];
    assert_eq!(bodies[0].len(), bodies[1].len(), "{name}");
    bodies
}

#[test]
fn walks_are_near_the_recorded_ones() {
    let server = llama();
    for name in ["wf_bin_f32", "wf_bin_f32_seq2", "wf_bin_batch", "wf_bin_batch1", "wf_bin_x_k8"] {
        let types = ["application/x-larql-ffn"; 2];
        let bodies = both(&server, "/v1/walk-ffn", &format!("llama512-ffnonly-i8/{name}"), types);
        let [found, expected] = bodies.map(|body| walked(&body, WireType::F32));
        for ((layer, found), (same, expected)) in found.iter().zip(&expected) {
            assert_eq!(layer, same);
            near(name, found, expected, FLOATS);
        }
    }
}

#[test]
fn clients_get_the_smallest_type_that_they_take() {
    let server = llama();
    let i8 = "application/x-larql-ffn-i8, application/x-larql-ffn-f16, application/x-larql-ffn";
    let f16 = "application/x-larql-ffn-f16, application/x-larql-ffn";
    for (name, accept, wire) in [
        ("wf_bin_f16", f16, WireType::F16),
        ("wf_bin_batch_f16", f16, WireType::F16),
        ("wf_bin_i8", i8, WireType::I8),
        ("wf_bin_f32", "application/x-larql-ffn", WireType::F32),
        ("wf_bin_f32", "*/*", WireType::F32),
    ] {
        let request = recorded(&format!("llama512-ffnonly-i8/{name}.req.bin"));
        let headers = [("content-type", "application/x-larql-ffn"), ("accept", accept)];
        let found = ok(ask(&server, "POST", "/v1/walk-ffn", &headers, &request), wire.content_type());
        let recorded = recorded(&format!("llama512-ffnonly-i8/{name}.resp.bin"));
        assert_eq!(found.len(), recorded.len(), "{name}");
        for ((_, found), (_, recorded)) in walked(&found, wire).iter().zip(&walked(&recorded, wire)) {
            // Halves have 11 bits, integers 7: values beside a border round to either side of it.
            let step = match wire {
                WireType::F16 => 1.0 / 2048.0,
                WireType::I8 => 1.0 / 127.0,
                _ => 0.0,
            };
            near(name, found, recorded, FLOATS + step);
        }
    }
}

#[test]
fn what_half_precision_cannot_hold_goes_as_it_is() {
    let large: Vec<_> = rows(1, HIDDEN).iter().map(|value| value * 1e4).collect();
    let headers = [("content-type", "application/x-larql-ffn"), ("accept", "application/x-larql-ffn-f16")];
    let server = llama();
    let walk = |scale: f32| {
        let row: Vec<_> = large.iter().map(|value| value * scale).collect();
        ask(&server, "POST", "/v1/walk-ffn", &headers, &frame(&[0, 1, 1, 8], &row))
    };
    let found = walked(&ok(walk(1.0), "application/x-larql-ffn"), WireType::F32);
    assert!(found[0].1.iter().any(|value| value.abs() > 65520.0));
    // And what nothing can hold is said to be so.
    let replied = walk(1e30);
    assert_eq!(replied.status, 500);
    assert!(replied.error().contains("not finite"));
}

#[test]
fn rows_as_integers_give_what_the_same_rows_give() {
    let server = llama();
    let row = rows(5, HIDDEN);
    let (mut first, mut second) = (BlocksBuf::new(), BlocksBuf::new());
    let [first, second] = [first.round(&row).unwrap(), second.round(&row).unwrap()];
    let mut request = Vec::new();
    Q8kRequest::encode(&mut request, [(1, first), (0, second)].into_iter()).unwrap();
    let content_type = "application/x-larql-ffn-q8k-batch";
    let found = ok(post(&server, "/v1/walk-ffn-q8k", content_type, &request), content_type);
    let mut rounded = vec![0.0; HIDDEN];
    first.copy_to(&mut rounded).unwrap();
    for (layer, found) in Q8kReply::decode(&found, HIDDEN).unwrap().rows() {
        let content_type = "application/x-larql-ffn";
        let walk = post(&server, "/v1/walk-ffn", content_type, &frame(&[layer, 1, 1, 8], &rounded));
        assert_eq!(values(found), walked(&ok(walk, content_type), WireType::F32)[0].1);
    }
    // LARQL multiplies with rounded numbers, as in its experts.
    let [found, expected] =
        both(&server, "/v1/walk-ffn-q8k", "llama512-ffnonly-i8/wf_q8k", [content_type; 2])
            .map(|body| values(Q8kReply::decode(&body, HIDDEN).unwrap().rows().next().unwrap().1));
    near("walk-ffn-q8k", &found, &expected, ROUNDED);
}

#[test]
fn experts_are_near_the_recorded_ones() {
    let server = gemma();
    let types = ["application/x-larql-expert"; 2];
    let [found, expected] =
        both(&server, "/v1/expert/batch", "gemma4moe-q4k/expert_batch_bin", types).map(|body| {
            let reply = ExpertReply::decode(&body, HIDDEN).unwrap();
            reply.rows().map(|row| (row.layer, row.expert, values(row.values))).collect::<Vec<_>>()
        });
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1));
        near("expert/batch", &found.2, &expected.2, ROUNDED);
    }
}

#[test]
fn sums_are_near_the_recorded_ones() {
    let server = gemma();
    for (suffix, name, wire) in
        [("", "layer_batch", WireType::F32), ("-f16", "layer_batch_f16", WireType::F16)]
    {
        let content_type = format!("application/x-larql-experts-layer{suffix}");
        let path = format!("/v1/experts/layer-batch{suffix}");
        let [found, expected] = both(&server, &path, &format!("gemma4moe-q4k/{name}"), [&content_type; 2])
            .map(|body| values(LayerReply::decode(&body, wire, HIDDEN).unwrap().row));
        near(name, &found, &expected, ROUNDED);
    }
    for (suffix, name) in [("", "multi_layer_batch"), ("-q8k", "multi_layer_batch_q8k")] {
        let reply = "application/x-larql-experts-multi-layer";
        let path = format!("/v1/experts/multi-layer-batch{suffix}");
        let sent = format!("{reply}{suffix}");
        let [found, expected] =
            both(&server, &path, &format!("gemma4moe-q4k/{name}"), [&sent, reply]).map(|body| {
                let reply = MultiReply::decode(&body, HIDDEN).unwrap();
                reply.rows().flat_map(|(_, row)| values(row)).collect::<Vec<_>>()
            });
        near(name, &found, &expected, ROUNDED);
    }
}

#[test]
fn tokens_have_the_recorded_rows() {
    let server = llama();
    let types = ["application/x-larql-ffn"; 2];
    let [found, expected] = both(&server, "/v1/embed", "llama512-ffnonly-i8/embed_bin", types);
    assert_eq!(found, expected);
    let one = ask(&server, "GET", "/v1/embed/40", &[], &[]);
    assert_eq!(one.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(one.header("vary"), Some("accept"));
    assert_eq!(ok(one, "application/x-larql-ffn").len(), HIDDEN * 4);
    let logits = |content_type, body: &[u8]| post(&server, "/v1/logits", content_type, body).json();
    let row = rows(2, HIDDEN);
    let binary = logits("application/x-larql-ffn", &frame(&[], &row));
    let text = logits("application/json", &serde_json::to_vec(&json!({ "residual": row })).unwrap());
    assert_eq!(binary["top_k"], text["top_k"]);
    assert_eq!(binary["top_k"].as_array().unwrap().len(), 5);
}

/// As LARQL reads them, whatever its recorded clients sent.
#[test]
fn requests_are_read_as_larql_reads_them() {
    let (server, row, binary) = (llama(), rows(3, HIDDEN), "application/x-larql-ffn");
    let walk = |words: &[u32]| ok(post(&server, "/v1/walk-ffn", binary, &frame(words, &row)), binary);
    let one = walked(&walk(&[0, 1, 1, 8]), WireType::F32);
    // Layers may be asked for twice.
    let twice = walk(&[u32::MAX, 2, 0, 0, 1, 1, 8]);
    assert_eq!(walked(&twice, WireType::F32), [&one[..], &one[..]].concat());

    // However often: each is computed once.
    let computed = || {
        let metrics = server.metrics();
        let line = metrics.lines().find(|line| line.starts_with("skulk_ffn_rows_total ")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let before = computed();
    let often = walk(&[&[u32::MAX, 2000][..], &[0, 1].repeat(1000), &[1, 1, 8]].concat());
    let often = walked(&often, WireType::F32);
    assert!(often.len() == 2000 && often[..1] == one && often[1998..] == often[..2]);
    assert_eq!(computed() - before, 2.0);

    let text = |layers: &str, content_type| {
        let body = format!("{{{layers},\"residual\":{row:?},\"full_output\":true}}");
        post(&server, "/v1/walk-ffn", content_type, body.as_bytes()).json()
    };
    // What is not of the binary type is JSON, whatever it is called. A batch of one layer is answered as one.
    let plain = text("\"layer\":0", "application/json");
    for content_type in ["application/x-www-form-urlencoded", "text/plain", "application/octet-stream"] {
        let batch = text("\"layers\":[0]", content_type);
        assert_eq!((&batch["output"], &batch["layer"]), (&plain["output"], &json!(0)), "{content_type}");
    }
    let twice = text("\"layers\":[0,0]", "application/json");
    let results = twice["results"].as_array().unwrap();
    assert!(results.len() == 2 && results.iter().all(|result| result["output"] == plain["output"]));

    let many = serde_json::to_vec(&json!({ "residual": row, "top_k": 600 })).unwrap();
    let many = post(&server, "/v1/logits", "text/plain", &many).json();
    assert_eq!(many["top_k"].as_array().unwrap().len(), 512);
}

/// All numbers but integers in the order in which they are found, and all else in its place.
fn numbers(value: &Value, to: &mut Vec<f32>) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            to.push(number.as_f64().unwrap() as f32);
            Value::Null
        }
        Value::Array(all) => all.iter().map(|value| numbers(value, to)).collect(),
        Value::Object(all) => {
            let timeless = all.iter().filter(|(key, _)| *key != "latency_ms");
            Value::Object(timeless.map(|(key, value)| (key.clone(), numbers(value, to))).collect())
        }
        other => other.clone(),
    }
}

#[test]
fn exchanges_in_json_are_the_recorded_ones() {
    let recorded: Value = serde_json::from_slice(&recorded("exchanges.json")).unwrap();
    for (folder, server) in [("llama512-ffnonly-i8", llama()), ("gemma4moe-q4k", gemma())] {
        for (name, exchange) in recorded[folder].as_object().unwrap() {
            let text = |key: &str| exchange[key].as_str().unwrap();
            let body = exchange.get("request").map_or(Vec::new(), |body| serde_json::to_vec(body).unwrap());
            let headers = [("content-type", "application/json"), ("accept", "application/json")];
            let replied = ask(&server, text("method"), text("path"), &headers, &body);
            assert_eq!(u64::from(replied.status), exchange["status"].as_u64().unwrap(), "{name}");
            let (found, expected) = (replied.json(), &exchange["reply"]);
            assert_eq!(found.get("latency_ms").is_some(), expected.get("latency_ms").is_some());
            let (mut found_numbers, mut expected_numbers) = (Vec::new(), Vec::new());
            let found = numbers(&found, &mut found_numbers);
            assert_eq!(found, numbers(expected, &mut expected_numbers), "{name}");
            let tolerance = match name.as_str() {
                name if name.starts_with("embed") => 0.0,
                name if name.starts_with("expert") => ROUNDED,
                _ => FLOATS,
            };
            near(name, &found_numbers, &expected_numbers, tolerance);
        }
    }
}

#[test]
fn servers_say_of_themselves_what_larql_says() {
    let facts: Value = serde_json::from_slice(&recorded("facts.json")).unwrap();
    for (folder, server) in [("llama512-ffnonly-i8", llama()), ("gemma4moe-q4k", gemma())] {
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let (health, models) = (get(&server, "/v1/health").json(), get(&server, "/v1/models").json());
        assert_eq!(keys(&health), keys(&facts[folder]["get_health"]));
        assert_eq!(health["status"], "ok");
        let (found, expected) = (&models["data"][0], &facts[folder]["get_models"]["data"][0]);
        assert_eq!(keys(found), keys(expected));
        for key in ["id", "object", "owned_by", "path", "features", "loaded"] {
            assert_eq!(found[key], expected[key], "{key}");
        }
        let mut stats = get(&server, "/v1/stats").json();
        let own = stats.as_object_mut().unwrap().remove("skulk").unwrap();
        let expected = &facts[folder]["get_stats"];
        assert_eq!(keys(&stats), keys(expected));
        for key in keys(expected) {
            match &*key {
                "loaded" | "q4k_ffn" => assert_eq!(keys(&stats[&key]), keys(&expected[&key])),
                // Blocks alone are served.
                "mode" => assert_eq!(stats["mode"], "ffn-service"),
                _ => assert_eq!(stats[&key], expected[&key], "{key}"),
            }
        }
        assert_eq!(own["computes"], "cpu, exact");
        assert_eq!(own["blocks"].as_array().unwrap().len() as u64, stats["layers"].as_u64().unwrap());
    }
}
