//! What does a server say to what it cannot do, and does it outlive what anybody sends?

use super::super::recorded;
use super::{Server, ask, frame, gemma, get, llama, model, options, post, rows, served, vindex};
use skulk::vindex::{SliceOptions, SlicePreset};
use skulk::{ByteSize, EngineOptions, Precision, VindexReader};

const WALK: (&str, &str) = ("/v1/walk-ffn", "application/x-larql-ffn");
const EXPERT: (&str, &str) = ("/v1/expert/batch", "application/x-larql-expert");
const LAYER: (&str, &str) = ("/v1/experts/layer-batch", "application/x-larql-experts-layer");
const MULTI: (&str, &str) = ("/v1/experts/multi-layer-batch", "application/x-larql-experts-multi-layer");

/// The server refuses with this status; what it says.
fn refused(server: &Server, (path, content_type): (&str, &str), body: &[u8], status: u16) -> String {
    let replied = post(server, path, content_type, body);
    assert_eq!(replied.status, status, "{path} {replied:?}");
    assert_eq!(replied.header("content-type"), Some("application/json"));
    replied.error()
}

#[test]
fn mistakes_are_told_in_larqls_words() {
    let server = llama();
    let row = rows(1, 256);
    let json = ("/v1/walk-ffn", "application/json");
    for (route, body, words) in [
        (WALK, frame(&[0, 1, 0, 8], &row), "binary wire format requires full_output = true"),
        (WALK, frame(&[7, 1, 1, 8], &row), "layer 7 out of range (num_layers = 2)"),
        (
            WALK,
            frame(&[0, 1, 1, 8], &row[1..]),
            "residual has 255 elements, expected 256 (seq_len=1 * hidden_size=256)",
        ),
        (
            WALK,
            frame(&[u32::MAX, 2, 0, 1, 1, 1, 8], &row[1..]),
            "residual has 255 elements, expected 256 (seq_len=1 * hidden_size=256)",
        ),
        (
            WALK,
            [frame(&[0, 1, 1, 8], &row), vec![0; 2]].concat(),
            "binary: residual byte length is not a multiple of 4",
        ),
        (WALK, frame(&[0, 1], &[]), "binary: body too short (need ≥ 16 bytes)"),
        (json, b"{".to_vec(), "invalid JSON: EOF while parsing an object at line 1 column 1"),
    ] {
        assert_eq!(refused(&server, route, &body, 400), words);
    }
    let none = "model is not a hybrid MoE — no expert endpoints available";
    let request = |path: &str| recorded(&format!("gemma4moe-q4k/{path}.req.bin"));
    for (route, body) in [
        (EXPERT, request("expert_batch_bin")),
        (LAYER, request("layer_batch")),
        (("/v1/experts/layer-batch-f16", "x"), request("layer_batch_f16")),
        (MULTI, request("multi_layer_batch")),
        (("/v1/experts/multi-layer-batch-q8k", "x"), request("multi_layer_batch_q8k")),
        (("/v1/expert/0/1", "application/json"), format!("{{\"residual\":{row:?}}}").into_bytes()),
    ] {
        assert_eq!(refused(&server, route, &body, 400), none);
    }
}

#[test]
fn what_a_request_asks_for_must_be_there() {
    let (llama, gemma, row) = (llama(), gemma(), rows(1, 256));
    let words = |server: &Server, route, words: &[u32], values: &[f32]| {
        refused(server, route, &frame(words, values), 400)
    };
    assert!(words(&gemma, WALK, &[0, 1, 1, 8], &row).contains("no dense block"));
    assert!(words(&llama, WALK, &[u32::MAX, 0, 1, 1, 8], &row).contains("num_layers"));
    assert!(words(&llama, WALK, &[0, 1, 3, 8], &row).contains("flags"));
    assert!(words(&llama, WALK, &[0, 0, 1, 8], &row).contains("seq_len"));
    assert!(words(&gemma, EXPERT, &[1, 256, 9, 0], &row).contains("layer 9 out of range (num_layers = 4)"));
    assert!(words(&gemma, EXPERT, &[1, 256, 0, 4], &row).contains("expert 4 out of range (num_experts = 4)"));
    assert!(words(&gemma, EXPERT, &[1, 255, 0, 0], &row).contains("hidden_size"));
    assert!(words(&gemma, EXPERT, &[u32::MAX, 256, 0, 0], &row).contains("expected"));
    assert!(words(&gemma, LAYER, &[0, 256, 0], &row).contains("num_experts"));
    // Five of four.
    let five = [frame(&[0, 256, 5], &row), frame(&[0, 0x3f80_0000].repeat(5), &[])].concat();
    assert!(refused(&gemma, LAYER, &five, 400).contains("takes 5 experts"));
    for not in [f32::NAN, f32::INFINITY] {
        let mut row = row.clone();
        row[7] = not;
        assert!(words(&llama, WALK, &[0, 1, 1, 8], &row).contains("finite"));
        assert!(words(&gemma, EXPERT, &[1, 256, 0, 0], &row).contains("finite"));
        assert!(words(&gemma, LAYER, &[0, 256, 1], &[&row[..], &[0.0, 1.0]].concat()).contains("finite"));
    }
    let json = |server: &Server, path: &str, body: &str| {
        refused(server, (path, "application/json"), body.as_bytes(), 400)
    };
    let text = format!("{row:?}");
    assert!(json(&llama, "/v1/walk-ffn", &format!("{{\"residual\":{text}}}")).contains("full_output"));
    let wants = |rest: &str| format!("{{\"residual\":{text},\"full_output\":true{rest}}}");
    assert!(json(&llama, "/v1/walk-ffn", &wants("")).contains("'layer' or 'layers'"));
    let none = "{\"residual\":[],\"full_output\":true,\"layer\":0,\"seq_len\":0}";
    assert!(json(&llama, "/v1/walk-ffn", none).contains("a row or more"));
    assert!(json(&llama, "/v1/walk-ffn", &wants(",\"layer\":0,\"seq_len\":2")).contains("expected 512"));
    assert!(json(&llama, "/v1/walk-ffn", &wants(",\"layer\":-1")).contains("invalid JSON"));
    assert!(json(&llama, "/v1/walk-ffn", &wants(",\"layer\":0,\"moe_layer\":true")).contains("moe_layer"));
    let large = format!("{{\"layer\":0,\"full_output\":true,\"residual\":[1e39{}]}}", ",0".repeat(255));
    let large = json(&llama, "/v1/walk-ffn", &large);
    assert!(large.contains("number out of range"), "{large}");
    assert!(json(&gemma, "/v1/expert/batch", "{\"requests\":[]}").contains("requests"));
    assert!(json(&gemma, "/v1/expert/0/x", &format!("{{\"residual\":{text}}}")).contains("index"));
    assert!(
        json(&llama, "/v1/embed", "{\"token_ids\":[99999999]}")
            .contains("token_id 99999999 out of range (vocab=512)")
    );
    assert!(
        json(&llama, "/v1/logits", &format!("{{\"residual\":{text},\"temperature\":0}}"))
            .contains("temperature")
    );
    assert!(json(&llama, "/v1/logits", &format!("{{\"residual\":{text},\"top_k\":0}}")).contains("top_k"));
}

#[test]
fn layers_and_experts_that_are_not_served_are_said_to_be() {
    let row = rows(1, 256);
    let part = served(vindex("tiny-gemma4moe.q4k"), &options().layers(1..3).experts(1..3));
    for (layer, expert, words) in
        [(0, 1, "expert 1 of layer 0 is not served"), (1, 0, "expert 0 of layer 1 is not served")]
    {
        let body = frame(&[1, 256, layer, expert], &row);
        assert!(refused(&part, EXPERT, &body, 400).contains(words));
    }
    assert_eq!(post(&part, EXPERT.0, EXPERT.1, &frame(&[1, 256, 2, 2], &row)).status, 200);
    let blocks = get(&part, "/v1/stats").json()["skulk"]["blocks"].clone();
    assert_eq!(blocks.as_array().unwrap().len(), 2);
    assert_eq!(blocks[0]["layer"], 1);
    assert_eq!(blocks[0]["experts"], serde_json::json!({ "start": 1, "end": 3 }));
    let part = served(vindex("tiny-llama512.q4kd"), &options().layers(1..2));
    assert!(refused(&part, WALK, &frame(&[0, 1, 1, 8], &row), 400).contains("layer 0 is not served"));
    for wrong in [options().layers(0..9), options().layers(1..1), options().layers(0..1).experts(0..5)] {
        let checkpoint = skulk::open_checkpoint(vindex("tiny-gemma4moe.q4k")).unwrap();
        assert!(skulk::serve(&*checkpoint, &wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn embeddings_need_a_checkpoint_that_has_them() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "index.json",
        "interleaved_q4k.bin",
        "interleaved_q4k_manifest.json",
        "norms.bin",
        "weight_manifest.json",
    ] {
        std::fs::copy(vindex("tiny-llama512.q4kd").join(name), folder.path().join(name)).unwrap();
    }
    let server = served(folder.path().to_owned(), &options());
    let token = refused(&server, ("/v1/embed", "application/json"), b"{\"token_ids\":[1]}", 503);
    assert!(token.contains("lacks embeddings"), "{token}");
    assert_eq!(get(&server, "/v1/embed/1").status, 503);
    let row = format!("{{\"residual\":{:?}}}", rows(1, 256));
    refused(&server, ("/v1/logits", "application/json"), row.as_bytes(), 503);
    assert_eq!(get(&server, "/v1/stats").json()["loaded"]["embed_service"], false);
    assert_eq!(post(&server, WALK.0, WALK.1, &frame(&[0, 1, 1, 8], &rows(1, 256))).status, 200);
}

#[test]
fn rows_are_normed_only_where_the_checkpoint_has_the_norms() {
    let folder = tempfile::tempdir().unwrap();
    let from = vindex("tiny-gemma4moe.q4k");
    std::fs::create_dir(folder.path().join("layers")).unwrap();
    for place in ["", "layers"] {
        for entry in std::fs::read_dir(from.join(place)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() && entry.file_name() != "norms.bin" {
                std::fs::copy(entry.path(), folder.path().join(place).join(entry.file_name())).unwrap();
            }
        }
    }
    let server = served(folder.path().to_owned(), &options());
    let words = refused(&server, EXPERT, &frame(&[1, 256, 0, 0], &rows(1, 256)), 400);
    assert!(words.contains("lacks the norm"), "{words}");
    let normed = recorded("gemma4moe-q4k/multi_layer_batch_q8k.req.bin");
    assert_eq!(post(&server, "/v1/experts/multi-layer-batch-q8k", "x", &normed).status, 200);
}

#[test]
fn slices_of_experts_are_served() {
    let (folder, whole) = (tempfile::tempdir().unwrap(), vindex("tiny-gemma4moe.q4k"));
    let slice = SliceOptions::default().preset(SlicePreset::ExpertServer).experts(1..3);
    VindexReader::open(&whole).unwrap().slice(folder.path(), &slice).unwrap();
    // A budget is for those experts that are there.
    let engine_options = EngineOptions::default().threads(2).precision(Precision::Exact);
    let engine_options = engine_options.ffn_budget(ByteSize(1 << 20));
    let options = options().experts(1..3).engine_options(engine_options);
    let part = served(folder.path().to_owned(), &options);
    let body = frame(&[1, 256, 1, 2], &rows(1, 256));
    let [found, expected] = [&part, &gemma()].map(|server| post(server, EXPERT.0, EXPERT.1, &body));
    assert_eq!((found.status, expected.status), (200, 200), "{}", found.body.escape_ascii());
    assert_eq!(found.body[12..], expected.body[12..]);
    assert!(refused(&part, EXPERT, &frame(&[1, 256, 1, 0], &rows(1, 256)), 400).contains("not served"));
    // What is hashed is a whole block.
    assert_eq!(get(&part, "/v1/stats").json()["skulk"]["blocks"][0]["weights"], "");
}

#[test]
fn routes_methods_and_types_are_those_there_are() {
    let server = llama();
    for path in [
        "/",
        "/v1",
        "/v1/nope",
        "/v1/health/",
        "/v1/expert/",
        "/v1/expert/1",
        "/v1/embed/1/2",
        "/v1/expert/1/2/3",
    ] {
        let replied = get(&server, path);
        assert_eq!((replied.status, replied.body.len()), (404, 0), "{path}");
    }
    for (method, path, allowed) in
        [("GET", "/v1/walk-ffn", "post"), ("POST", "/v1/stats", "get"), ("DELETE", "/v1/health", "get")]
    {
        let replied = ask(&server, method, path, &[], &[]);
        assert_eq!((replied.status, replied.header("allow")), (405, Some(allowed)), "{path}");
    }
    let body = frame(&[0, 1, 1, 8], &rows(1, 256));
    assert!(refused(&server, ("/v1/walk-ffn", "text/plain"), &body, 400).contains("invalid JSON"));
    assert_eq!(post(&server, "/v1/walk-ffn?x=y", WALK.1, &body).status, 200);
}

#[test]
fn bodies_and_replies_are_bounded() {
    let server = served(vindex("tiny-llama512.q4kd"), &options().max_body(ByteSize(4096)));
    let three = frame(&[0, 3, 1, 8], &rows(1, 3 * 256));
    assert_eq!(post(&server, WALK.0, WALK.1, &three).status, 200);
    assert!(refused(&server, WALK, &frame(&[0, 5, 1, 8], &rows(1, 5 * 256)), 413).contains("4096"));
    // The request is small, and its reply is not.
    let both = frame(&[u32::MAX, 2, 0, 1, 3, 1, 8], &rows(1, 3 * 256));
    assert!(refused(&server, WALK, &both, 413).contains("reply"));
    let tokens = frame(&[&[500][..], &[1; 500]].concat(), &[]);
    assert!(refused(&server, ("/v1/embed", WALK.1), &tokens, 413).contains("reply"));
    // Without a length.
    let chunk = "1000\r\n".to_owned() + &"x".repeat(0x1000) + "\r\n";
    let request = format!(
        "POST /v1/walk-ffn HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    );
    let mut stream = super::connect(&server);
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    assert_eq!(super::reply(&mut stream).status, 413);
}

#[test]
fn damaged_frames_are_refused_and_outlived() {
    let servers = [gemma(), llama(), served(model("mixtral"), &options())];
    let request = |path: &str| recorded(&format!("{path}.req.bin"));
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for (path, content_type, body) in [
        (WALK.0, WALK.1, request("llama512-ffnonly-i8/wf_bin_batch")),
        ("/v1/walk-ffn-q8k", "application/x-larql-ffn-q8k-batch", request("llama512-ffnonly-i8/wf_q8k")),
        (EXPERT.0, EXPERT.1, request("gemma4moe-q4k/expert_batch_bin")),
        (LAYER.0, LAYER.1, request("gemma4moe-q4k/layer_batch")),
        ("/v1/experts/layer-batch-f16", LAYER.1, request("gemma4moe-q4k/layer_batch_f16")),
        (MULTI.0, MULTI.1, request("gemma4moe-q4k/multi_layer_batch")),
        ("/v1/experts/multi-layer-batch-q8k", MULTI.1, request("gemma4moe-q4k/multi_layer_batch_q8k")),
        ("/v1/embed", WALK.1, request("llama512-ffnonly-i8/embed_bin")),
        ("/v1/logits", WALK.1, request("llama512-ffnonly-i8/embed_bin")),
    ] {
        for round in 0..60 {
            let mut body = body.clone();
            match round % 4 {
                0 => body.truncate(next() % body.len()),
                1 => {
                    let at = next() % body.len().min(24);
                    body[at] = 0xff;
                }
                2 => body.extend_from_slice(&[1, 2, 3, 4]),
                _ => {
                    let at = next() % body.len();
                    body[at] ^= 1 << (next() % 8);
                }
            }
            for server in &servers {
                let status = post(server, path, content_type, &body).status;
                assert!([200, 400, 413].contains(&status), "{path} {status}");
            }
        }
    }
    for server in &servers {
        assert_eq!(get(server, "/v1/health").status, 200);
    }
}
