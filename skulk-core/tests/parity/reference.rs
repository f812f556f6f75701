//! Checkpoints of plain types against transformers in float32: logits, greedy text, hidden states.
//!
//! Weights are used as stored (bf16 and f16 widen to f32 exactly) and all arithmetic is f32, so with
//! an f32 cache only the order of summation differs: over widths of a few hundred and a handful of
//! layers that is some 1e-6 of the largest value, and 1e-4 leaves room for wider and deeper models.
//! With the f16 cache keys and values are rounded to 11 bits, 5e-4 each: 1e-2.
//!
//! Where activations are rounded to bf16 for weights of that type, each is off by up to 2⁻⁹ of itself,
//! 2e-3. Errors are independent, and sums over hundreds of them are off by less of the largest value:
//! 1.1e-3 for logits, 1.6e-3 for hidden states were measured. Twice 2⁻⁹ is allowed.
#![allow(clippy::disallowed_methods, reason = "nothing here depends on last bits")]

use std::path::Path;

use serde_json::Value;
use skulk::arch::ArchSpec;
use skulk::{DType, ErrorKind, KvType, Precision, open_checkpoint};

use crate::fixtures::{self, checkpoints, chosen, copied, ids, json, sample};
use super::splits::few;
use super::stages::{Setup, Stages, takes_options};
use crate::support::mlx_layout::Checkpoint;

/// Relative to the largest magnitude among what is compared.
pub(super) const F32_CACHE: f32 = 1e-4;
const F16_CACHE: f32 = 1e-2;
const BF16_ACTIVATIONS: f32 = 4e-3;
/// Activations are rounded to 15 bits: each is off by at most 1/65,024 of its block's largest, which is as much again as
/// a hundred roundings of f32. Ten times the bound for f32 leaves room for as many layers.
pub(super) const EXACT: f32 = 1e-3;
/// Absolute, per logit: activations are rounded to 8 bits. llama.cpp, which rounds likewise, differs
/// by up to 1.19 from float32 on Gemma 3 270M Q4_K_M.
const QUANTISED: f32 = 1.2;

fn is_quantised(path: &Path) -> bool {
    has(path, DType::is_quantised)
}

fn has(path: &Path, which: impl Fn(DType) -> bool) -> bool {
    open_checkpoint(path).unwrap().tensors().iter().any(|t| which(t.dtype))
}

/// The context of the prompts, whose positions are rotated in as in short ones.
pub(super) fn short(path: &Path, setup: &Setup) -> Setup {
    let arch = ArchSpec::from_checkpoint(&*open_checkpoint(path).unwrap());
    let short = arch.ok().and_then(|arch| arch.short_context());
    Setup { context: setup.context.min(short.unwrap_or(usize::MAX)), ..setup.clone() }
}

/// The checkpoint as stages, or `None` when its family is one that this version must refuse.
fn supported(path: &Path, setup: &Setup) -> Option<Stages> {
    match Stages::load(path, &short(path, setup)) {
        Ok(stages) => Some(stages),
        Err(error) if super::ENGINE == "wgpu" && has(path, DType::has_scales_beside) => {
            assert_eq!(error.kind(), ErrorKind::DTypeUnsupported, "{}: {error}", path.display());
            None
        }
        Err(error) => {
            // Those of the repository are of families that run; only further ones may be refused.
            assert!(!path.starts_with(fixtures::path("")), "{}: {error}", path.display());
            assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{}: {error}", path.display());
            assert!(error.hint().is_some());
            println!("{}: {error}", path.display());
            None
        }
    }
}

/// Whether rounding of activations makes rows see other positions: of those that score nearly alike, the references' models
/// have some in most rows, and a row that sees another one is off by more than rounding is. So is one that takes other
/// experts, which no prompt of the repository's fixtures makes it do; of further ones nobody knows.
fn jumps(path: &Path, precision: Precision) -> bool {
    let is_further = !path.starts_with(fixtures::path(""));
    precision == Precision::Bf16
        && (fixtures::chooses_positions(path) || is_further && fixtures::has_routers(path))
}

pub(super) fn compare(path: &Path, reference: &Value, setup: &Setup, relative: f32) {
    let Some(stages) = supported(path, setup) else { return };
    let rounds_to_8_bits = is_quantised(path) && setup.precision != Precision::Exact;
    for (i, prompt) in chosen(few(1), reference["prompts"].as_array().unwrap().iter().enumerate()) {
        let name = format!("{} {}", path.display(), prompt["name"]);
        let tokens = ids(&prompt["ids"]);
        let seq = stages.open(i as u64);
        let rows = stages.prompt(seq, &tokens, prompt["logits"].as_array().unwrap().len());
        let mut tolerance = 0.0f32;
        for (row, expected) in rows.iter().zip(prompt["logits"].as_array().unwrap()) {
            let top = expected["top20"].as_array().unwrap();
            let value = |pair: &Value| (pair[0].as_u64().unwrap() as usize, pair[1].as_f64().unwrap() as f32);
            let largest = top.iter().map(|p| value(p).1.abs()).fold(0.0, f32::max);
            tolerance = tolerance.max(if rounds_to_8_bits { QUANTISED } else { relative * largest });
            let mut worst = 0.0f32;
            for pair in top {
                let (id, expected) = value(pair);
                worst = worst.max((row[id] - expected).abs());
            }
            assert!(worst <= tolerance, "{name}: logits differ by {worst}, allowed {tolerance}");
            let sum: f64 = row.iter().map(|&l| f64::from(l).exp()).sum();
            let found = sum.ln() as f32;
            let expected = expected["logsumexp"].as_f64().unwrap() as f32;
            assert!(
                (found - expected).abs() <= tolerance,
                "{name}: log-sum-exp {found}, expected {expected}"
            );
        }
        let greedy = &prompt["greedy"];
        let expected = ids(&greedy["ids"]);
        // Steps are alike, and take an emulated GPU a tenth of a second.
        let steps = if super::is_emulated() { sample(8, 0..expected.len()).len() } else { expected.len() };
        let found = stages.greedy(seq, tokens.len(), rows.last().unwrap().clone(), steps);
        for (step, ((found, _), expected)) in found.iter().zip(&expected).enumerate() {
            if found != expected {
                // Two candidates closer than both can be off may change places; the texts part there.
                let margin = greedy["margin"][step].as_f64().unwrap() as f32;
                assert!(
                    margin <= 2.0 * tolerance,
                    "{name}: step {step} took {found}, expected {expected} by {margin}"
                );
                println!("{name}: parts at step {step}, where the margin is {margin}");
                break;
            }
        }
    }
}

#[test]
fn logits_and_greedy_text() {
    for path in checkpoints() {
        let reference = json(&path.join("reference.json"));
        if !reference["prompts"].is_array() {
            continue;
        }
        compare(&path, &reference, &Setup { kv: KvType::F32.into(), ..Setup::default() }, F32_CACHE);
        compare(&path, &reference, &Setup { kv: KvType::F16.into(), ..Setup::default() }, F16_CACHE);
    }
}

#[test]
fn hidden_states_after_every_layer() {
    hidden_states(Precision::Fast, F32_CACHE);
}

/// Quantised weights are computed with as they are, not only nearly so.
#[test]
fn quantised_weights_at_full_precision() {
    let setup = Setup { kv: KvType::F32.into(), precision: Precision::Exact, ..Setup::default() };
    let mut models = 0;
    for path in checkpoints().into_iter().filter(|path| is_quantised(path)) {
        let reference = json(&path.join("reference.json"));
        if reference["prompts"].is_array() {
            compare(&path, &reference, &setup, EXACT);
            models += 1;
        }
    }
    assert!(models >= 4, "{models}");
    hidden_states(Precision::Exact, EXACT);
}

/// Near the reference, and really rounded where the engine can.
#[test]
fn activations_in_bf16() {
    if !takes_options(super::ENGINE) {
        return;
    }
    let setup = |precision| Setup { kv: KvType::F32.into(), precision, ..Setup::default() };
    for path in checkpoints() {
        let reference = json(&path.join("reference.json"));
        if !reference["prompts"].is_array() || supported(&path, &Setup::default()).is_none() {
            continue;
        }
        if !jumps(&path, Precision::Bf16) {
            compare(&path, &reference, &setup(Precision::Bf16), BF16_ACTIVATIONS);
        }
        let tokens = ids(&reference["prompts"][0]["ids"]);
        let [rounded, fast] = [Precision::Bf16, Precision::Fast].map(|precision| {
            let stages = Stages::load(&path, &short(&path, &setup(precision))).unwrap();
            stages.feed(stages.open(0), 0, &tokens).concat()
        });
        let checkpoint = open_checkpoint(&path).unwrap();
        // Scales are no weights.
        let is_matrix = |name: &str, shape: &[usize]| shape.len() > 1 && name.ends_with(".weight");
        let tensors = checkpoint.tensors().iter();
        let has_bf16 = tensors.filter(|t| is_matrix(&t.name, &t.shape)).any(|t| t.dtype == DType::BF16);
        let rounds = super::ENGINE == "cpu" && has_bf16;
        assert_eq!(rounded != fast, rounds, "{}", path.display());
    }
    hidden_states(Precision::Bf16, BF16_ACTIVATIONS);
}

fn hidden_states(precision: Precision, relative: f32) {
    for path in checkpoints() {
        let reference = json(&path.join("reference.json"));
        let Some(whole) = supported(&path, &Setup::default()) else { continue };
        if is_quantised(&path) != (precision == Precision::Exact) || !reference["prompts"].is_array() {
            continue;
        }
        if jumps(&path, precision) {
            continue;
        }
        let cuts = (1..whole.arch.n_layers()).collect();
        let setup = Setup { cuts, kv: KvType::F32.into(), chunk: 1024, precision, ..Setup::default() };
        let stages = Stages::load(&path, &short(&path, &setup)).unwrap();
        for (i, prompt) in chosen(few(1), reference["prompts"].as_array().unwrap().iter().enumerate()) {
            use skulk::engine::{Logits, Segment};
            let tokens = ids(&prompt["ids"]);
            let segment = Segment::new(stages.open(i as u64), 0, tokens.len()).want_last(Logits::All);
            let replies = stages.batch(&[segment], &tokens);
            let ends = stages.shards.iter().map(|shard| shard.spec().layers.end);
            for (end, reply) in ends.zip(&replies[..replies.len() - 1]) {
                let layer = end - 1;
                let expected = &prompt["hidden"][format!("layer{layer}")];
                // Of several residual streams the reference has the first.
                let row = &reply.hidden().row(tokens.len() - 1).unwrap()[..whole.arch.hidden_size];
                let largest = expected["absmax"].as_f64().unwrap() as f32;
                let near = |found: f32, expected: &Value| {
                    let expected = expected.as_f64().unwrap() as f32;
                    assert!(
                        (found - expected).abs() <= relative * largest,
                        "{} {} layer {layer}: {found}, expected {expected}",
                        path.display(),
                        prompt["name"]
                    );
                };
                near(row.iter().sum::<f32>() / row.len() as f32, &expected["mean"]);
                near(row.iter().fold(0.0, |a, b| a.max(b.abs())), &expected["absmax"]);
                for (found, expected) in row.iter().zip(expected["first8"].as_array().unwrap()) {
                    near(*found, expected);
                }
            }
        }
    }
}

/// What layers write is multiplied by their scalars, which are 1 in the reference: halves halve it in every bit.
#[test]
fn scalars_of_layers() {
    let original = fixtures::path("gemma4");
    let tokens = ids(&json(&original.join("reference.json"))["prompts"][0]["ids"]);
    let hidden = |path: &Path, layer: usize| {
        let stages = Stages::load(path, &Setup { cuts: vec![layer + 1], ..Setup::default() }).unwrap();
        let segment = skulk::engine::Segment::new(stages.open(0), 0, tokens.len());
        let replies = stages.batch(&[segment], &tokens);
        replies[0].hidden().data().to_vec()
    };
    for layer in [0, 1] {
        let folder = copied(&original);
        let file = folder.path().join("model.safetensors");
        let mut bytes = std::fs::read(&file).unwrap();
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let entries: Value = serde_json::from_slice(&bytes[8..header]).unwrap();
        let entry = &entries[format!("model.layers.{layer}.layer_scalar")];
        let at = header + entry["data_offsets"][0].as_u64().unwrap() as usize;
        assert_eq!((&entry["dtype"], &bytes[at..at + 2]), (&"BF16".into(), &[0x80, 0x3f][..]));
        bytes[at..at + 2].copy_from_slice(&[0, 0x3f]);
        std::fs::write(&file, bytes).unwrap();
        let halved: Vec<f32> = hidden(&original, layer).iter().map(|x| x / 2.0).collect();
        assert_eq!(hidden(folder.path(), layer), halved, "layer {layer}");
    }
}

/// What no reference of transformers is here for, by another forward pass that gives transformers' logits elsewhere.
#[test]
fn variants_of_gemma_3n() {
    let (path, setup) = (fixtures::path("gemma3n"), Setup { kv: KvType::F32.into(), ..Setup::default() });
    if supported(&path, &setup).is_none() {
        return;
    }
    let told = json(&fixtures::root().join("tests/fixtures/gemma3n/variants.json"));
    let tokens = ids(&told["ids"]);
    for variant in told["variants"].as_array().unwrap() {
        let mut checkpoint = Checkpoint::read(&path);
        for (field, value) in variant["fields"].as_object().unwrap() {
            checkpoint.config[field] = value.clone();
        }
        let folder = checkpoint.written();
        let stages = Stages::load(folder.path(), &Setup { cuts: vec![1], ..setup.clone() }).unwrap();
        let rows = stages.prompt(stages.open(0), &tokens, 1);
        let top = variant["top20"].as_array().unwrap();
        let largest = top.iter().map(|pair| pair[1].as_f64().unwrap().abs()).fold(0.0, f64::max) as f32;
        for pair in top {
            let (token, expected) = (pair[0].as_u64().unwrap() as usize, pair[1].as_f64().unwrap() as f32);
            let found = rows[0][token];
            let what = format!("{} token {token}: {found}, expected {expected}", variant["fields"]);
            assert!((found - expected).abs() <= F32_CACHE * largest, "{what}");
        }
    }
}

/// Hubs have Gemma 3n's text inside a wrapper, with tensors of layers that use others' keys and values, and of pictures.
#[test]
fn gemma_3n_as_hubs_have_it() {
    let path = fixtures::path("gemma3n");
    let mut checkpoint = Checkpoint::read(&path);
    let hub = json(&path.join("config.hub.json"));
    checkpoint.config = serde_json::json!({ "model_type": "gemma3n", "text_config": hub, "vision_config": {} });
    let own = |word: &str| format!("model.layers.2.self_attn.{word}.weight");
    for word in ["k_proj", "v_proj", "k_norm"] {
        let unused = checkpoint.weights[&own(word)].clone();
        checkpoint.weights.insert(own(word).replace("layers.2", "layers.4"), unused);
    }
    let all = std::mem::take(&mut checkpoint.weights).into_iter();
    checkpoint.weights =
        all.map(|(name, tensor)| (name.replacen("model.", "model.language_model.", 1), tensor)).collect();
    let picture = checkpoint.weights["model.language_model.norm.weight"].clone();
    checkpoint.weights.insert("model.vision_tower.norm.weight".into(), picture);
    let folder = checkpoint.written();
    let reference = json(&path.join("reference.json"));
    let setup = Setup { kv: KvType::F32.into(), cuts: vec![2], ..Setup::default() };
    if supported(&path, &setup).is_some() {
        compare(folder.path(), &reference, &setup, F32_CACHE);
    }
}

/// Tokens that the table of inputs to layers lacks have its first row, as if it were theirs.
#[test]
fn tokens_beyond_the_table_of_inputs() {
    const KEPT: usize = 300;
    let path = fixtures::path("gemma3n");
    if supported(&path, &Setup::default()).is_none() {
        return;
    }
    let original = Checkpoint::read(&path);
    let [mut short, mut repeated] = [original.clone(), original];
    short.config["vocab_size_per_layer_input"] = KEPT.into();
    let [cut, filled] = [&mut short, &mut repeated]
        .map(|checkpoint| checkpoint.weights.get_mut("model.embed_tokens_per_layer.weight").unwrap());
    let row = cut.bytes.len() / cut.shape[0];
    cut.shape[0] = KEPT;
    cut.bytes.truncate(KEPT * row);
    let (first, others) = filled.bytes.split_at_mut(KEPT * row);
    others.chunks_exact_mut(row).for_each(|other| other.copy_from_slice(&first[..row]));
    let tokens = ids(&json(&path.join("reference.json"))["prompts"][0]["ids"]);
    assert!(tokens.iter().any(|token| token.0 as usize >= KEPT));
    let logits = |path: &Path| {
        let stages = Stages::load(path, &Setup { cuts: vec![1], ..Setup::default() }).unwrap();
        stages.feed(stages.open(0), 0, &tokens)
    };
    let (whole, cut, filled) = (logits(&path), short.written(), repeated.written());
    assert_eq!(logits(cut.path()), logits(filled.path()));
    assert_ne!(logits(cut.path()), whole);
}

/// Both spellings of a configuration describe the same decoder.
#[test]
fn hub_spelling_means_the_same() {
    for path in checkpoints().iter().filter(|p| p.join("config.hub.json").exists()) {
        let Some(first) = supported(path, &Setup::default()) else { continue };
        let folder = copied(path);
        std::fs::rename(folder.path().join("config.hub.json"), folder.path().join("config.json")).unwrap();
        let second = Stages::load(folder.path(), &Setup::default()).unwrap();
        assert_eq!(first.arch, second.arch, "{}", path.display());
    }
}

/// The fixtures cover what their tolerances are stated for.
#[test]
fn fixtures_are_of_two_plain_types() {
    let types: std::collections::BTreeSet<_> = checkpoints()
        .iter()
        .flat_map(|p| {
            open_checkpoint(p).unwrap().tensors().iter().map(|t| t.dtype.label()).collect::<Vec<_>>()
        })
        .collect();
    assert!(types.contains(DType::F32.label()) && types.contains(DType::BF16.label()), "{types:?}");
}
