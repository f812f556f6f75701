//! Does a server reply what LARQL's replied to the same requests?

use skulk::remote::wire::{ExpertReply, MultiReply, WalkReply, WireType};

use super::super::recorded;
use super::{Replied, gemma, get, llama, post};

/// Elements of a row of the recorded models.
const HIDDEN: usize = 256;

/// The values are near, as parts of the largest.
fn near(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
    let off = found.iter().zip(expected).fold(0f32, |most, (a, b)| most.max((a - b).abs())) / largest;
    println!("{what}: {off}");
    assert!(off <= tolerance, "{what}: {off}");
}

fn walked(bytes: &[u8], wire: WireType) -> Vec<(u32, Vec<f32>)> {
    let reply = WalkReply::decode(bytes, wire, HIDDEN).unwrap();
    let values = |rows: skulk::remote::wire::Rows<'_>| {
        let mut values = Vec::new();
        rows.append_to(&mut values).unwrap();
        values
    };
    reply.entries().map(|(layer, rows)| (layer, values(rows))).collect()
}

fn ok(replied: Replied, content_type: &str) -> Vec<u8> {
    assert_eq!(replied.status, 200, "{replied:?} {}", String::from_utf8_lossy(&replied.body));
    assert_eq!(replied.header("content-type"), Some(content_type));
    replied.body
}

#[test]
fn walks_are_near_the_recorded_ones() {
    let server = llama();
    for name in ["wf_bin_f32", "wf_bin_f32_seq2", "wf_bin_batch", "wf_bin_batch1", "wf_bin_x_k8"] {
        let request = recorded(&format!("llama512-ffnonly-i8/{name}.req.bin"));
        let expected = walked(&recorded(&format!("llama512-ffnonly-i8/{name}.resp.bin")), WireType::F32);
        let replied = post(&server, "/v1/walk-ffn", "application/x-larql-ffn", &request);
        let found = walked(&ok(replied, "application/x-larql-ffn"), WireType::F32);
        assert_eq!(found.len(), expected.len());
        for ((layer, found), (same, expected)) in found.iter().zip(&expected) {
            assert_eq!(layer, same);
            near(name, found, expected, 2e-4);
        }
    }
}

#[test]
fn experts_are_near_the_recorded_ones() {
    let server = gemma();
    let request = recorded("gemma4moe-q4k/expert_batch_bin.req.bin");
    let replied = post(&server, "/v1/expert/batch", "application/x-larql-expert", &request);
    let bytes = ok(replied, "application/x-larql-expert");
    let expected = recorded("gemma4moe-q4k/expert_batch_bin.resp.bin");
    let [found, expected] = [&bytes, &expected].map(|bytes| {
        let mut values = Vec::new();
        for row in ExpertReply::decode(bytes, HIDDEN).unwrap().rows() {
            row.values.append_to(&mut values).unwrap();
        }
        values
    });
    near("expert/batch", &found, &expected, 2e-2);
}

#[test]
fn sums_are_near_the_recorded_ones() {
    let server = gemma();
    for (name, suffix) in [("multi_layer_batch", ""), ("multi_layer_batch_q8k", "-q8k")] {
        let request = recorded(&format!("gemma4moe-q4k/{name}.req.bin"));
        let content_type = format!("application/x-larql-experts-multi-layer{suffix}");
        let replied =
            post(&server, &format!("/v1/experts/multi-layer-batch{suffix}"), &content_type, &request);
        let bytes = ok(replied, "application/x-larql-experts-multi-layer");
        let expected = recorded(&format!("gemma4moe-q4k/{name}.resp.bin"));
        let [found, expected] = [&bytes, &expected].map(|bytes| {
            let mut values = Vec::new();
            for (_, row) in MultiReply::decode(bytes, HIDDEN).unwrap().rows() {
                row.append_to(&mut values).unwrap();
            }
            values
        });
        near(name, &found, &expected, 2e-2);
    }
}

#[test]
fn servers_say_what_larql_says_of_itself() {
    let server = llama();
    let health = get(&server, "/v1/health").json();
    assert_eq!(health["status"], "ok");
    let stats = get(&server, "/v1/stats").json();
    assert_eq!(stats["hidden_size"], 256);
    println!("{stats} {health} {}", server.metrics());
}
