//! Assistants against a reference made with transformers in float32: drafts token by token, logits, and hidden states.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use skulk::arch::{ArchSpec, Mixer};
use skulk::engine::{LoadCx, Logits, Reply, Segment, ShardSpec, StepCx};
use skulk::{Batch, CancelToken, ErrorKind, KvType, KvTypes, SeqId, Shard, TokenId, open_checkpoint};

use super::reference::F32_CACHE;
use super::stages::{Setup, Stages, argmax, assert_near, floats, keeps};
use crate::fixtures::{chosen, ids, json, path, root};
use crate::support::mlx_layout::{Checkpoint, Tensor};

fn told() -> Value {
    json(&root().join("tests/fixtures/ahead/gemma4_assistant/reference_assistant.json"))
}

/// A model's stages with what its assistant takes of them.
struct Assisted {
    stages: Stages,
    seq: SeqId,
    /// Positions computed, and the last one's hidden state.
    len: usize,
    hidden: Vec<f32>,
    assistant: Box<dyn Shard>,
}

impl Assisted {
    fn load(beside: &str, cuts: Vec<usize>, kv: KvTypes) -> Self {
        Self::of(&path("gemma4"), &root().join("tests/fixtures/ahead").join(beside), cuts, kv)
    }

    fn of(model: &Path, beside: &Path, cuts: Vec<usize>, kv: KvTypes) -> Self {
        let (checkpoint, path) = (open_checkpoint(beside).unwrap(), model);
        let model = open_checkpoint(path).unwrap();
        let stages = Stages::load(path, &Setup { cuts, kv, ..Setup::default() }).unwrap();
        let spec = stages.arch.assistant_in(&*checkpoint).unwrap().expect("an assistant");
        let n = spec.n_layers();
        let spec = ShardSpec::new(Arc::new(spec), 0..n, 1024, 4, kv).unwrap();
        let (cancel, last) = (CancelToken::new(), stages.shards.last().unwrap());
        let assistant =
            last.load_ahead(&spec, &*checkpoint, &*model, &LoadCx::new(&cancel, &|| ())).unwrap();
        let seq = stages.open(0);
        Self { stages, seq, len: 0, hidden: Vec::new(), assistant }
    }

    /// Computes tokens; the last so many were wrong.
    fn go_on(&mut self, tokens: &[TokenId], wrong: usize) {
        let (cancel, n) = (CancelToken::new(), tokens.len());
        let norm = [self.stages.arch.n_layers()];
        let segments = [Segment::new(self.seq, self.len, n).drafted(wrong).tap(n - wrong - 1..n - wrong)];
        let mut before = Reply::new();
        for (at, shard) in self.stages.shards.iter().enumerate() {
            let batch = Batch::new(&segments, tokens).taps(&norm);
            let batch = if at > 0 { batch.hidden(before.hidden().data()) } else { batch };
            let mut reply = Reply::new();
            shard.forward(&batch, &mut reply, &StepCx::new(&cancel)).unwrap();
            before = reply;
        }
        self.hidden = before.tap(0, norm[0]).unwrap().to_vec();
        self.len += n - wrong;
        for shard in self.stages.shards.iter().filter(|_| wrong > 0) {
            assert_eq!(shard.truncate(self.seq, self.len).unwrap(), self.len);
        }
    }

    /// What it drafts behind a token and a hidden state, and the one that it gives.
    fn draft(&self, token: TokenId, hidden: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (cancel, norm) = (CancelToken::new(), self.assistant.spec().arch.n_layers());
        let segments = [Segment::new(self.seq, self.len, 1).want_last(Logits::All).tap(0..1)];
        let (tokens, taps) = ([token], [norm]);
        let batch = Batch::new(&segments, &tokens).hidden(hidden).taps(&taps);
        let mut reply = Reply::new();
        self.assistant.forward(&batch, &mut reply, &StepCx::new(&cancel)).unwrap();
        (reply.logits(0).data.to_vec(), reply.tap(0, norm).unwrap().to_vec())
    }
}

/// Row by row and behind drafts that were wrong, in one stage and in two, from keys and values in floats.
#[test]
fn assistants_draft_what_the_reference_does() {
    let reference = told();
    let examples: Vec<_> = reference["examples"].as_array().unwrap().iter().enumerate().collect();
    let few = if super::is_emulated() { 1 } else { 4 };
    for (at, example) in chosen(few, examples) {
        let cuts = if at % 2 == 0 { vec![] } else { vec![2] };
        let mut model = Assisted::load("gemma4_assistant", cuts, KvType::F32.into());
        let text = [ids(&example["prompt_ids"]), ids(&example["greedy_ids"])].concat();
        let first = example["first_t"].as_u64().unwrap() as usize;
        let (one, two) = (ids(&example["draft1"]), ids(&example["draft2"]));
        for (at, (expected, next)) in one.iter().zip(&two).enumerate() {
            let row = first + at;
            let mut tokens = text[model.len..=row].to_vec();
            let wrong = if at % 3 == 2 { 1 + at % 5 } else { 0 };
            tokens.extend((0..wrong as u32).map(|at| TokenId(40 + at)));
            model.go_on(&tokens, wrong);
            let (logits, given) = model.draft(text[row + 1], &model.hidden);
            assert_eq!(argmax(&logits), *expected, "row {row}");
            let chained = model.draft(*expected, &given);
            assert_eq!(argmax(&chained.0), *next, "behind row {row}");
            // It has changed nothing.
            assert_eq!(model.draft(text[row + 1], &model.hidden).0, logits);
            if at > 0 {
                continue;
            }
            let state = &example["at_first_t"];
            assert_near(&model.hidden[..8], &floats(&state["backbone_hidden_first8"]), F32_CACHE, "hidden");
            assert_near(&given[..8], &floats(&state["post_projection_first8"]), F32_CACHE, "given");
            for (logits, told) in [(&logits, "draft1_top20"), (&chained.0, "draft2_top20")] {
                let told: Vec<_> = state[told].as_array().unwrap().iter().map(floats).collect();
                let found: Vec<_> = told.iter().map(|pair| logits[pair[0] as usize]).collect();
                let told: Vec<_> = told.iter().map(|pair| pair[1]).collect();
                assert_near(&found, &told, F32_CACHE, "logits");
            }
        }
    }
}

/// llama.cpp's file in 8 bits, and keys and values in fewer bits, whose norms are shared out otherwise: nearly the same drafts.
#[test]
fn assistants_draft_from_files_and_keys_of_fewer_bits() {
    let reference = told();
    for (beside, kv) in [
        ("gemma4_assistant-q8_0.gguf", KvType::F32),
        ("gemma4_assistant", KvType::F16),
        ("gemma4_assistant", KvType::Q8_0),
        ("gemma4_assistant", KvType::Q4_0),
    ] {
        let (mut same, mut all) = (0, 0);
        if !keeps(super::ENGINE, kv.into()) {
            continue;
        }
        for example in chosen(if super::is_emulated() { 1 } else { 4 }, reference["examples"].as_array().unwrap()) {
            let mut model = Assisted::load(beside, vec![], kv.into());
            let text = [ids(&example["prompt_ids"]), ids(&example["greedy_ids"])].concat();
            let first = example["first_t"].as_u64().unwrap() as usize;
            for (at, expected) in ids(&example["draft1"]).iter().enumerate() {
                let row = first + at;
                model.go_on(&text[model.len..=row], 0);
                let (logits, _) = model.draft(text[row + 1], &model.hidden);
                (same, all) = (same + usize::from(argmax(&logits) == *expected), all + 1);
            }
        }
        // Rounding turns the drafts that were nearly others: keys in 4 bits one in ten.
        let least = if kv == KvType::Q4_0 { 85 } else { 94 };
        assert!(100 * same >= least * all, "{beside}, {kv:?}: {same} of {all}");
    }
}

/// A model whose layers share no keys and values, so that in few bits their norms share what they scale elements by, gives an
/// assistant the same in one stage and in two: those of its own layers.
#[test]
fn queries_are_divided_as_the_model_s_own_layers_are() {
    let kv = KvType::Q8_0;
    if !keeps(super::ENGINE, kv.into()) {
        return;
    }
    let mut written = Checkpoint::read(&path("gemma4"));
    written.config["num_kv_shared_layers"] = 0.into();
    for (to, from) in [(4, 3), (5, 2)] {
        for word in ["k_proj", "v_proj", "k_norm"] {
            let name = |layer: usize| format!("model.layers.{layer}.self_attn.{word}.weight");
            let tensor = written.weights[&name(from)].clone();
            written.weights.insert(name(to), tensor);
        }
        for word in ["gate_proj", "up_proj", "down_proj"] {
            let tensor = written.weights.get_mut(&format!("model.layers.{to}.mlp.{word}.weight")).unwrap();
            let values = tensor.values();
            let columns = tensor.shape[1];
            // The first half of what is twice as wide where layers share.
            *tensor = match word {
                "down_proj" => {
                    let half: Vec<_> = values.chunks(columns).flat_map(|row| &row[..columns / 2]).copied().collect();
                    Tensor::of_f32(&[tensor.shape[0], columns / 2], &half)
                }
                _ => Tensor::of_f32(&[tensor.shape[0] / 2, columns], &values[..values.len() / 2]),
            };
        }
    }
    // What keys grow by, queries shrink by.
    for layer in [4, 5] {
        let name = |word: &str| format!("model.layers.{layer}.self_attn.{word}.weight");
        for (word, grows) in [("k_norm", true), ("q_norm", false)] {
            let tensor = written.weights.get_mut(&name(word)).unwrap();
            *tensor = Tensor::of_f32(&tensor.shape.clone(), &rescaled(&tensor.values(), grows));
        }
    }
    let folder = written.written();
    let mut beside = Checkpoint::read(&root().join("tests/fixtures/ahead/gemma4_assistant"));
    for layer in 0..4 {
        let tensor = beside.weights.get_mut(&format!("model.layers.{layer}.self_attn.q_norm.weight")).unwrap();
        *tensor = Tensor::of_f32(&tensor.shape.clone(), &rescaled(&tensor.values(), false));
    }
    let beside = beside.written();
    let tokens: Vec<_> = (0..40).map(|at| TokenId(300 + 7 * at)).collect();
    let drafts: Vec<_> = [(kv, vec![]), (kv, vec![3]), (KvType::F32, vec![])]
        .into_iter()
        .map(|(kv, cuts)| {
            let mut model = Assisted::of(folder.path(), beside.path(), cuts, kv.into());
            model.go_on(&tokens, 0);
            model.draft(TokenId(400), &model.hidden).0
        })
        .collect();
    assert_near(&drafts[1], &drafts[0], F32_CACHE, "two stages");
    // As near to floats as eight bits are.
    assert_near(&drafts[0], &drafts[2], 0.05, "eight bits");
}

/// Norms of heads whose elements are scaled by powers of two, both that are rotated together alike.
fn rescaled(norm: &[f32], grows: bool) -> Vec<f32> {
    let half = norm.len() / 2;
    let by = |at: usize| [-4, -2, 0, 2, 4][at % half * 7 % 5] * if grows { 1 } else { -1 };
    norm.iter().enumerate().map(|(at, x)| x * 2f32.powi(by(at))).collect()
}

/// Batches that are none of an assistant's, and assistants of other models, are refused.
#[test]
fn what_no_assistant_computes_is_refused() {
    let mut model = Assisted::load("gemma4_assistant", vec![2], KvType::F32.into());
    model.go_on(&[TokenId(5), TokenId(6), TokenId(7)], 0);
    let (cancel, hidden) = (CancelToken::new(), model.hidden.repeat(2));
    let width = model.hidden.len();
    let step = |segments: &[Segment], hidden: &[f32], taps: &[usize]| {
        let tokens = vec![TokenId(8); segments.iter().map(|segment| segment.rows).sum()];
        let batch = Batch::new(segments, &tokens).hidden(hidden).taps(taps);
        model.assistant.forward(&batch, &mut Reply::new(), &StepCx::new(&cancel))
    };
    let row = |seq, start, rows| Segment::new(seq, start, rows).tap(0..1);
    step(&[row(model.seq, 3, 1)], &hidden[..width], &[4]).unwrap();
    for (segments, n, tap) in [
        (vec![row(model.seq, 2, 1)], width, 4),
        (vec![row(model.seq, 4, 1)], width, 4),
        (vec![row(model.seq, 0, 1)], width, 4),
        (vec![row(model.seq, 3, 2)], 2 * width, 4),
        (vec![row(SeqId(77), 3, 1)], width, 4),
        (vec![row(model.seq, 3, 1)], width - 1, 4),
        (vec![row(model.seq, 3, 1)], width, 0),
    ] {
        let error = step(&segments, &hidden[..n], &[tap]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert!(model.assistant.open(SeqId(9), &[]).is_err() && model.assistant.truncate(model.seq, 0).is_err());
    let bare = [row(model.seq, 3, 1)];
    let bare = Batch::new(&bare, &[TokenId(8)]);
    assert!(model.assistant.forward(&bare, &mut Reply::new(), &StepCx::new(&cancel)).is_err());

    let checkpoint = open_checkpoint(root().join("tests/fixtures/ahead/gemma4_assistant")).unwrap();
    let (own, last) = (&model.stages.arch, model.stages.shards.last().unwrap());
    let load = |arch: ArchSpec| {
        let n = arch.n_layers();
        let spec = ShardSpec::new(Arc::new(arch), 0..n, 64, 4, KvType::F32)?;
        let target = open_checkpoint(path("gemma4"))?;
        last.load_ahead(&spec, &*checkpoint, &*target, &LoadCx::new(&cancel, &|| ())).map(drop)
    };
    let changed = |change: &dyn Fn(&mut ArchSpec)| {
        let mut arch = own.assistant_in(&*checkpoint).unwrap().unwrap();
        change(&mut arch);
        load(arch).err().map(|error| error.kind())
    };
    let source = |arch: &mut ArchSpec, layer: usize| {
        if let Mixer::Attention(attention) = &mut arch.layers[0].mixer {
            attention.kv_of = Some(layer);
        }
    };
    assert_eq!(changed(&|_| ()), None);
    // Not in the last stage; of other sizes; not there; a layer that has none.
    assert_eq!(changed(&|arch| source(arch, 1)), Some(ErrorKind::PlacementInvalid));
    for layer in [2, 77, 4] {
        assert_eq!(changed(&|arch| source(arch, layer)), Some(ErrorKind::InvalidArgument), "{layer}");
    }
    let own_keys = |arch: &mut ArchSpec| {
        if let Mixer::Attention(attention) = &mut arch.layers[1].mixer {
            attention.kv_of = None;
        }
    };
    assert_eq!(changed(&own_keys), Some(ErrorKind::ConfigInvalid));
    for name in ["gemma3", "llama", "gemma3n"] {
        let arch = ArchSpec::from_checkpoint(&*open_checkpoint(path(name)).unwrap()).unwrap();
        assert_eq!(arch.assistant_in(&*checkpoint).err().unwrap().kind(), ErrorKind::ConfigInvalid, "{name}");
    }
    // By itself it is no model, and a model is no assistant.
    let alone = ArchSpec::from_checkpoint(&*checkpoint).err().unwrap();
    assert_eq!(alone.kind(), ErrorKind::ArchUnsupported);
    assert!(alone.hint().is_some_and(|hint| hint.contains("draft model")), "{alone}");
    assert!(own.assistant_in(&*open_checkpoint(path("gemma4")).unwrap()).unwrap().is_none());
}
