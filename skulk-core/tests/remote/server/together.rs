//! Does it matter to anybody who else asks?

use std::sync::Arc;

use skulk::arch::ArchSpec;
use skulk::engine::{FfnJob, FfnPair, FfnService, LoadCx, StepCx};
use skulk::engines::CpuFfn;
use skulk::remote::wire::{ExpertReply, MultiRequest, MultiTask};
use skulk::{CancelToken, EngineOptions, ErrorKind, LayerIdx, Precision, open_checkpoint};

use super::{Server, frame, gemma, get, llama, model, options, post, rows, served};

/// Requests of all kinds, and where a reply has the time that it took.
fn requests(
    hidden: usize,
    dense: bool,
) -> Vec<(&'static str, &'static str, Vec<u8>, std::ops::Range<usize>)> {
    let of = |n: usize| rows(n as u32 + 1, n * hidden);
    let mut all = Vec::new();
    for n in 1..12 {
        if dense {
            let body = frame(&[(n % 2) as u32, n as u32, 1, 8], &of(n));
            all.push(("/v1/walk-ffn", "application/x-larql-ffn", body, 8..12));
            continue;
        }
        let rows: Vec<_> = of(n).chunks(hidden).map(<[f32]>::to_vec).collect();
        let mut body = frame(&[n as u32, hidden as u32], &[]);
        for (at, row) in rows.iter().enumerate() {
            body.extend(frame(&[(at % 2) as u32, (at % 4) as u32], row));
        }
        all.push(("/v1/expert/batch", "application/x-larql-expert", body, 8..12));
        let experts: Vec<Vec<u32>> = (0..n).map(|at| (0..=(at % 3) as u32).collect()).collect();
        let weights: Vec<_> = experts.iter().map(|own| vec![0.3; own.len()]).collect();
        let tasks = (0..n).map(|at| MultiTask {
            layer: (at % 2) as u32,
            row: rows[at].as_slice(),
            experts: experts[at].as_slice(),
            weights: weights[at].as_slice(),
        });
        let mut body = Vec::new();
        MultiRequest::encode(&mut body, tasks).unwrap();
        all.push(("/v1/experts/multi-layer-batch", "application/x-larql-experts-multi-layer", body, 0..0));
    }
    all
}

fn alike(server: &Server, dense: bool) {
    let ask = |(path, content_type, body, time): &(&str, &str, Vec<u8>, std::ops::Range<usize>)| {
        let replied = post(server, path, content_type, body);
        assert_eq!(replied.status, 200, "{replied:?}");
        let mut body = replied.body;
        body[time.clone()].fill(0);
        body
    };
    let all = requests(256, dense);
    let alone: Vec<_> = all.iter().map(ask).collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (all, alone) = (&all, &alone);
            scope.spawn(move || {
                for round in 0..all.len() {
                    let at = (round + thread) % all.len();
                    assert!(ask(&all[at]) == alone[at], "{at}");
                }
            });
        }
    });
}

#[test]
fn many_clients_get_what_each_gets_alone() {
    alike(&llama(), true);
    alike(&gemma(), false);
    // Few rows at a time: each request is cut.
    let folder = super::vindex("tiny-gemma4moe.q4k");
    alike(&served(folder, &options().max_rows(3)), false);
}

#[test]
fn rows_are_normed_as_the_layer_norms_them() {
    let checkpoint = open_checkpoint(model("mixtral")).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let (hidden, never) = (arch.hidden_size, CancelToken::new());
    let engine_options = EngineOptions::default().threads(2).precision(Precision::Exact);
    let n = arch.layers[1].ffn.experts.unwrap().n_experts;
    let cx = LoadCx::new(&never, &|| ());
    let service = CpuFfn::load(&*checkpoint, &arch, &[(1..2, 0..n)], &engine_options, &cx).unwrap();
    assert!(service.norms(LayerIdx(1)) && !service.norms(LayerIdx(0)));

    let residual = rows(3, 2 * hidden);
    let pairs = [FfnPair::new(0, 2, 1.0), FfnPair::new(1, 0, 1.0)];
    let compute = |job: &FfnJob<'_>| {
        let (mut line, cx) = (service.line(8).unwrap(), StepCx::new(&never));
        let mut out = vec![0.0; job.results() * hidden];
        line.begin(job, &cx)?;
        line.wait(&mut out, &cx).map(|()| out)
    };
    let of_residual = FfnJob::of_residual(LayerIdx(1), hidden, &residual, &pairs);
    assert!(of_residual.is_of_residual() && of_residual.rows() == 2);
    let found = compute(&of_residual).unwrap();

    // The same by hand.
    let weights = checkpoint.region(&arch.names.weight(1, skulk::arch::LayerTensor::FfnNorm)).unwrap();
    assert_eq!(weights.dtype(), skulk::DType::BF16);
    // The upper halves of floats.
    let upper = |half: &[u8]| f32::from_le_bytes([0, 0, half[0], half[1]]);
    let weights: Vec<_> = weights.bytes().chunks_exact(2).map(upper).collect();
    let mut normed = residual.clone();
    for row in normed.chunks_mut(hidden) {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / hidden as f32;
        let scale = (mean + arch.norm.eps).sqrt().recip();
        row.iter_mut().zip(&weights).for_each(|(x, weight)| *x *= scale * weight);
    }
    let expected = compute(&FfnJob::new(LayerIdx(1), hidden, &normed, &pairs)).unwrap();
    let largest = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() < largest * 1e-5, "{a} {b}");
    }
    // A job has rows of one kind, and whole ones.
    let half = FfnJob::of_residual(LayerIdx(1), hidden, &residual[1..], &pairs);
    assert_eq!(compute(&half).unwrap_err().kind(), ErrorKind::InvalidArgument);

    // And from a server, bit for bit.
    let server = served(model("mixtral"), &options());
    let mut body = frame(&[2, hidden as u32], &[]);
    for (pair, row) in pairs.iter().zip(residual.chunks(hidden)) {
        body.extend(frame(&[1, pair.expert], row));
    }
    let replied = post(&server, "/v1/expert/batch", "application/x-larql-expert", &body);
    let mut values = Vec::new();
    for row in ExpertReply::decode(&replied.body, hidden).unwrap().rows() {
        row.values.append_to(&mut values).unwrap();
    }
    assert_eq!(values, found);
}

#[test]
fn files_of_ggml_are_served_like_folders() {
    // Their matrices are rounded to 8 bits: 3e-3 of the largest is found.
    let folder = super::super::root().join("tests/fixtures/gguf/stories260K-q8_0.gguf");
    let [found, expected] = [folder, model("stories260K")].map(|path| {
        let server = served(path, &options());
        let hidden = get(&server, "/v1/stats").json()["hidden_size"].as_u64().unwrap() as usize;
        let body = frame(&[2, 3, 1, 8], &rows(1, 3 * hidden));
        let replied = post(&server, "/v1/walk-ffn", "application/x-larql-ffn", &body);
        assert_eq!(replied.status, 200, "{replied:?}");
        let values = replied.body[12..].chunks_exact(4);
        values.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect::<Vec<_>>()
    });
    let largest = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
    let off = found.iter().zip(&expected).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(off < largest * 1e-2, "{}", off / largest);
    assert!(off > 0.0);
}

#[test]
fn what_is_done_is_counted() {
    let server = llama();
    let body = frame(&[0, 3, 1, 8], &rows(1, 3 * 256));
    post(&server, "/v1/walk-ffn", "application/x-larql-ffn", &body);
    post(&server, "/v1/walk-ffn", "application/x-larql-ffn", &body[..20]);
    get(&server, "/v1/nope");
    let replied = get(&server, "/v1/metrics");
    assert!(replied.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = String::from_utf8(replied.body).unwrap();
    for line in [
        "skulk_ffn_requests_total{route=\"/v1/walk-ffn\",status=\"200\"} 1",
        "skulk_ffn_requests_total{route=\"/v1/walk-ffn\",status=\"400\"} 1",
        "skulk_ffn_requests_total{route=\"none\",status=\"404\"} 1",
        "skulk_ffn_rows_total 3",
        "skulk_ffn_computing_seconds_count 1",
        "skulk_ffn_waiting_seconds_count 1",
        "skulk_ffn_queue_requests 0",
        "# TYPE skulk_ffn_connections gauge",
        "# TYPE skulk_ffn_received_bytes counter",
        "# TYPE skulk_ffn_sent_bytes counter",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("weights"), "there is no budget");
    assert_eq!(get(&server, "/v1/health").json()["requests_served"], 4);
    let budget = skulk::ByteSize(1 << 20);
    let engine_options = EngineOptions::default().threads(1).ffn_budget(budget);
    let server = served(super::vindex("tiny-llama512.q4kd"), &options().engine_options(engine_options));
    assert!(server.metrics().contains("skulk_ffn_weights_budget_bytes 1048576"), "{}", server.metrics());
}
