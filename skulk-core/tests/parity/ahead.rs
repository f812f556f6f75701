//! Heads for tokens ahead against a reference made with transformers and torch in float32: drafts token by token, logits, and
//! hidden states.
#![allow(clippy::disallowed_methods, reason = "nothing here depends on last bits")]

use std::sync::Arc;

use skulk::arch::ArchSpec;
use skulk::engine::{LoadCx, Logits, Reply, Segment, ShardSpec, StepCx};
use skulk::{Batch, CancelToken, KvType, SeqId, Shard, TokenId, open_checkpoint};

use super::reference::F32_CACHE;
use super::stages::{Setup, Stages, argmax, assert_near, floats};
use crate::fixtures::{chosen, ids, json, path};
use crate::support::mlx_layout::{Checkpoint, Tensor};

/// Rows of a head; gives the last one's logits, and its hidden state behind the last norm.
fn draft(head: &dyn Shard, start: usize, tokens: &[TokenId], hidden: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (n, cancel) = (tokens.len(), CancelToken::new());
    let segments = [Segment::new(SeqId(0), start, n).want_last(Logits::All).tap(n - 1..n)];
    let batch = Batch::new(&segments, tokens).hidden(hidden).taps(&[1]);
    let mut reply = Reply::new();
    head.forward(&batch, &mut reply, &StepCx::new(&cancel)).unwrap();
    (reply.logits(0).data.to_vec(), reply.tap(0, 1).unwrap().to_vec())
}

#[test]
fn heads_draft_what_the_reference_does() {
    let folder = path("qwen3_5");
    let checkpoint = open_checkpoint(&folder).unwrap();
    let reference = json(&folder.join("reference_mtp.json"));
    let examples: Vec<_> = reference["examples"].as_array().unwrap().iter().enumerate().collect();
    let few = if super::is_emulated() { 1 } else { 4 };
    for (at, example) in chosen(few, examples) {
        // One stage has the embeddings, or the last one has its own.
        let cuts = if at % 2 == 0 { vec![] } else { vec![2] };
        let setup = Setup { cuts, kv: KvType::F32.into(), ..Setup::default() };
        let stages = Stages::load(&folder, &setup).unwrap();
        let head = stages.arch.head_in(&*checkpoint).unwrap();
        let spec = ShardSpec::new(Arc::new(head), 0..1, 1024, 512, KvType::F32).unwrap();
        let cx = CancelToken::new();
        let last = stages.shards.last().unwrap();
        let head = last.load_ahead(&spec, &*checkpoint, &*checkpoint, &LoadCx::new(&cx, &|| ())).unwrap();
        head.open(SeqId(0), &[]).unwrap();

        let text = [ids(&example["prompt_ids"]), ids(&example["greedy_ids"])].concat();
        let norm = stages.arch.n_layers();
        let taps = [norm];
        let segments = [Segment::new(stages.open(0), 0, text.len()).tap(0..text.len())];
        let mut replies: Vec<Reply> = Vec::new();
        for shard in &stages.shards {
            let batch = Batch::new(&segments, &text).taps(&taps);
            let batch = replies.last().map_or(batch, |before| batch.hidden(before.hidden().data()));
            let mut reply = Reply::new();
            shard.forward(&batch, &mut reply, &StepCx::new(&cx)).unwrap();
            replies.push(reply);
        }
        let width = stages.arch.hidden_size;
        let hidden = replies.last().unwrap().tap(0, norm).unwrap();

        let first = example["first_t"].as_u64().unwrap() as usize;
        let (one, two) = (ids(&example["draft1"]), ids(&example["draft2"]));
        let mut known = 0;
        for (at, expected) in one.iter().enumerate() {
            let row = first + at;
            // What it has not seen yet, of which chained rows are forgotten.
            let (rows, tokens) = (&hidden[known * width..(row + 1) * width], &text[known + 1..row + 2]);
            let (logits, given) = draft(&*head, known, tokens, rows);
            known = row + 1;
            assert_eq!(argmax(&logits), *expected, "row {row}");
            let next = draft(&*head, known, &[*expected], &given);
            if let Some(expected) = two.get(at) {
                assert_eq!(argmax(&next.0), *expected, "row {row}");
            }
            if at == 0 {
                let state = &example["at_first_t"];
                let told = floats(&state["main_hidden_post_norm_first8"]);
                assert_near(&rows[rows.len() - width..][..8], &told, F32_CACHE, "hidden");
                assert_near(&given[..8], &floats(&state["mtp_norm_out_first8"]), F32_CACHE, "given");
                assert_near(&next.1[..8], &floats(&state["depth2_mtp_norm_out_first8"]), F32_CACHE, "chained");
                for (logits, told) in [(&logits, "draft1_top20"), (&next.0, "draft2_top20")] {
                    let told: Vec<_> = state[told].as_array().unwrap().iter().map(floats).collect();
                    let found: Vec<_> = told.iter().map(|pair| logits[pair[0] as usize]).collect();
                    let told: Vec<_> = told.iter().map(|pair| pair[1]).collect();
                    assert_near(&found, &told, F32_CACHE, "logits");
                }
            }
        }
    }
}

/// What a head takes is checked as what shards take is.
#[test]
fn batches_without_hidden_states_are_refused() {
    let checkpoint = open_checkpoint(path("qwen3_5")).unwrap();
    let stages = Stages::load(&path("qwen3_5"), &Setup::default()).unwrap();
    let describe = |arch: ArchSpec| ShardSpec::new(Arc::new(arch), 0..1, 64, 16, KvType::F32).unwrap();
    let spec = describe(stages.arch.head_in(&*checkpoint).unwrap());
    let (cancel, last) = (CancelToken::new(), stages.shards.last().unwrap());
    let cx = LoadCx::new(&cancel, &|| ());
    let load = |spec: &ShardSpec| last.load_ahead(spec, &*checkpoint, &*checkpoint, &cx);
    let head = load(&spec).unwrap();
    head.open(SeqId(0), &[]).unwrap();
    let (tokens, width) = ([TokenId(5), TokenId(6)], stages.arch.hidden_size);
    let segments = [Segment::new(SeqId(0), 0, 2)];
    let step = |batch: Batch<'_>| head.forward(&batch, &mut Reply::new(), &StepCx::new(&cancel));
    let batch = Batch::new(&segments, &tokens);
    assert!(step(batch).is_err() && step(batch.hidden(&vec![0.0; width])).is_err());
    assert!(step(batch.hidden(&vec![0.0; 2 * width]).taps(&[2])).is_err(), "there is one layer");
    step(batch.hidden(&vec![0.0; 2 * width])).unwrap();
    // A model is none, nor is a head of another one.
    assert!(load(&describe((*stages.arch).clone())).is_err());
    let mut other = stages.arch.head_in(&*checkpoint).unwrap();
    other.hidden_size *= 2;
    assert!(load(&describe(other)).is_err());
}

/// Heads that lie behind the last layer, as DeepSeek's and GLM's do: one that is that layer again and takes hidden states as
/// they are computes what that layer does.
#[test]
fn heads_behind_the_last_layer_compute_as_it_does() {
    let names = ["deepseek_v3", "glm4_moe", "glm4_moe_lite", "deepseek_v32", "glm_moe_dsa"];
    let few = if super::is_emulated() { 1 } else { 5 };
    for name in chosen(few, names) {
        let mut written = Checkpoint::read(&path(name));
        let arch = ArchSpec::from_checkpoint(&*open_checkpoint(path(name)).unwrap()).unwrap();
        let (n, width, own) = (arch.n_layers(), arch.hidden_size, &mut written.weights);
        let last = format!("model.layers.{}.", n - 1);
        let rename = |(name, tensor): (&String, &Tensor)| {
            let rest = name.strip_prefix(&last)?;
            Some((format!("model.layers.{n}.{rest}"), tensor.clone()))
        };
        let head: Vec<_> = own.iter().filter_map(rename).collect();
        own.extend(head);
        let norm = own["model.norm.weight"].clone();
        own.insert(format!("model.layers.{n}.shared_head.norm.weight"), norm);
        let ones = vec![1.0; width];
        for norm in ["enorm", "hnorm"] {
            own.insert(format!("model.layers.{n}.{norm}.weight"), Tensor::of_f32(&[width], &ones));
        }
        // Embeddings come first.
        let joint: Vec<_> = (0..width * 2 * width)
            .map(|at| if at % (2 * width) == width + at / (2 * width) { 1.0 } else { 0.0 })
            .collect();
        own.insert(format!("model.layers.{n}.eh_proj.weight"), Tensor::of_f32(&[width, 2 * width], &joint));
        let folder = written.written();
        let checkpoint = open_checkpoint(folder.path()).unwrap();
        let setup = Setup { cuts: vec![n - 1], kv: KvType::F32.into(), ..Setup::default() };
        let stages = Stages::load(folder.path(), &setup).unwrap();
        let (last, cancel) = (stages.shards.last().unwrap(), CancelToken::new());
        assert_eq!(last.spec().layers, n - 1..n, "{name}");
        let head = stages.arch.head_in(&*checkpoint).unwrap();
        let spec = ShardSpec::new(Arc::new(head), 0..1, 64, 16, KvType::F32).unwrap();
        let head = last.load_ahead(&spec, &*checkpoint, &*checkpoint, &LoadCx::new(&cancel, &|| ())).unwrap();
        head.open(SeqId(0), &[]).unwrap();
        last.open(SeqId(0), &[]).unwrap();
        let rows = 9;
        let hidden: Vec<f32> = (0..rows * width).map(|at| ((at * 37 % 101) as f32 - 50.0) / 20.0).collect();
        let normed = hidden.chunks(width).flat_map(|row| {
            let square = row.iter().map(|x| x * x).sum::<f32>() / width as f32;
            row.iter().map(move |x| x / (square + 1e-6).sqrt())
        });
        let normed: Vec<f32> = normed.collect();
        let tokens: Vec<_> = (3..3 + rows as u32).map(TokenId).collect();
        let (logits, _) = draft(&*head, 0, &tokens, &hidden);
        let segments = [Segment::new(SeqId(0), 0, rows).want_last(Logits::All)];
        let mut reply = Reply::new();
        let batch = Batch::new(&segments, &tokens).hidden(&normed);
        last.forward(&batch, &mut reply, &StepCx::new(&cancel)).unwrap();
        assert_near(&logits, reply.logits(0).data, F32_CACHE, name);
    }
}

/// A head without a layer: embedding and hidden state are normed, projected together, and normed again, by its own norm or the
/// model's. The same in plain loops.
#[test]
fn heads_without_a_layer_draft_what_their_formula_says() {
    let model = Checkpoint::read(&path("llama"));
    let (table, width) = (model.weights["model.embed_tokens.weight"].values(), 256);
    let made = |n: usize, by: f64, around: f64| -> Vec<f32> {
        (0..n).map(|at| (around + 0.4 * (by * at as f64).sin()) as f32).collect()
    };
    let [embedding_norm, hidden_norm, own_norm] = [0.7, 1.1, 1.9].map(|by| made(width, by, 1.0));
    let joint = made(width * 2 * width, 0.37, 0.0);
    let tensor = |shape: &[usize], values: &[f32]| Tensor::of_f32(shape, values);
    for (prefix, with_norm, cuts) in [("mtp.0.", true, vec![]), ("model.mtp.0.", false, vec![2])] {
        let mut file = Checkpoint { config: model.config.clone(), weights: Default::default() };
        let mut put = |name: &str, tensor| file.weights.insert(format!("{prefix}{name}.weight"), tensor);
        put("enorm", tensor(&[width], &embedding_norm));
        put("hnorm", tensor(&[width], &hidden_norm));
        put("eh_proj", tensor(&[width, 2 * width], &joint));
        if with_norm {
            put("shared_head.norm", tensor(&[width], &own_norm));
        }
        let folder = file.written();
        let beside = open_checkpoint(folder.path()).unwrap();
        let checkpoint = open_checkpoint(path("llama")).unwrap();
        let setup = Setup { cuts, kv: KvType::F32.into(), ..Setup::default() };
        let stages = Stages::load(&path("llama"), &setup).unwrap();
        let head = stages.arch.head_in(&*beside).unwrap();
        let spec = ShardSpec::new(Arc::new(head), 0..1, 1024, 64, KvType::F32).unwrap();
        let (cx, last) = (CancelToken::new(), stages.shards.last().unwrap());
        let head = last.load_ahead(&spec, &*beside, &*checkpoint, &LoadCx::new(&cx, &|| ())).unwrap();
        head.open(SeqId(0), &[]).unwrap();

        let norm = |x: &[f32], weights: &[f32], eps: f64| -> Vec<f64> {
            let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
            let scaled = |(x, weight): (&f32, &f32)| f64::from(*x) / (mean + eps).sqrt() * f64::from(*weight);
            x.iter().zip(weights).map(scaled).collect()
        };
        let product = |matrix: &[f32], x: &[f64]| -> Vec<f32> {
            let dot = |row: &[f32]| row.iter().zip(x).map(|(a, b)| f64::from(*a) * b).sum::<f64>() as f32;
            matrix.chunks(x.len()).map(dot).collect()
        };
        let last_norm = if with_norm { own_norm.clone() } else { model.weights["model.norm.weight"].values() };
        let expected = |token: TokenId, hidden: &[f32]| {
            let row = &table[token.0 as usize * width..][..width];
            let both = [norm(hidden, &hidden_norm, 1e-6), norm(row, &embedding_norm, 1e-6)].concat();
            let given = norm(&product(&joint, &both), &last_norm, 1e-6);
            (product(&table, &given), given.iter().map(|x| *x as f32).collect::<Vec<_>>())
        };
        let hidden = made(3 * width, 0.23, 0.1);
        let tokens = [TokenId(17), TokenId(900), TokenId(2040)];
        let found = draft(&*head, 0, &tokens, &hidden);
        let first = expected(tokens[2], &hidden[2 * width..]);
        assert_near(&found.0, &first.0, F32_CACHE, "logits");
        assert_near(&found.1, &first.1, F32_CACHE, "given");
        // It goes on from what it gives.
        let next = argmax(&found.0);
        assert_near(&draft(&*head, 3, &[next], &found.1).0, &expected(next, &found.1).0, F32_CACHE, "next");
    }
}
