//! Do experts give the same however a file keeps them, and is a layer without one of them refused?
//!
//! A small Qwen3-MoE of random weights, written twice: stacked in a GGUF file and each expert in
//! tensors of its own in a Hugging Face folder. And the mixtral fixture, rewritten as a GGUF file.

use std::path::Path;

use serde_json::{Value, json};
use skulk::arch::ArchSpec;
use skulk::{EngineOptions, ErrorKind, KvType, TokenId, open_checkpoint};

use super::stages::{Setup, Stages, assert_near};
use crate::bad_input::expect;
use crate::support::gguf_writer::GgufWriter;
use crate::support::safetensors_writer as safetensors;

const HIDDEN: usize = 32;
const WIDTH: usize = 24;
const VOCAB: usize = 48;
const N_EXPERTS: usize = 6;
const N_USED: usize = 3;
/// The same, for files.
const COUNTS: Option<[usize; 2]> = Some([N_EXPERTS, N_USED]);
const LAYERS: usize = 2;
const KV_WIDTH: usize = 16;

/// Name in a GGUF file, name in a folder, shape; experts are stacked.
type Weight = (String, String, Vec<usize>, Vec<f32>);

fn weights() -> Vec<Weight> {
    let mut state = 1u64;
    let mut weight = |gguf: String, folder: String, shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * if shape.len() > 1 { 0.6 } else { 2.0 }
        });
        (gguf, folder, shape.to_vec(), values.collect())
    };
    let mut all = Vec::new();
    for (gguf, folder, shape) in
        [("token_embd", "embed_tokens", [VOCAB, HIDDEN].as_slice()), ("output_norm", "norm", &[HIDDEN])]
    {
        all.push(weight(format!("{gguf}.weight"), format!("model.{folder}.weight"), shape));
    }
    let roles: [(&str, &str, &[usize]); 12] = [
        ("attn_norm", "input_layernorm", &[HIDDEN]),
        ("attn_q", "self_attn.q_proj", &[2 * KV_WIDTH, HIDDEN]),
        ("attn_k", "self_attn.k_proj", &[KV_WIDTH, HIDDEN]),
        ("attn_v", "self_attn.v_proj", &[KV_WIDTH, HIDDEN]),
        ("attn_output", "self_attn.o_proj", &[HIDDEN, 2 * KV_WIDTH]),
        ("attn_q_norm", "self_attn.q_norm", &[KV_WIDTH]),
        ("attn_k_norm", "self_attn.k_norm", &[KV_WIDTH]),
        ("ffn_norm", "post_attention_layernorm", &[HIDDEN]),
        ("ffn_gate_inp", "mlp.gate", &[N_EXPERTS, HIDDEN]),
        ("ffn_gate_exps", "gate_proj", &[N_EXPERTS, WIDTH, HIDDEN]),
        ("ffn_up_exps", "up_proj", &[N_EXPERTS, WIDTH, HIDDEN]),
        ("ffn_down_exps", "down_proj", &[N_EXPERTS, HIDDEN, WIDTH]),
    ];
    for layer in 0..LAYERS {
        for (gguf, folder, shape) in roles {
            let folder = format!("model.layers.{layer}.{folder}.weight");
            all.push(weight(format!("blk.{layer}.{gguf}.weight"), folder, shape));
        }
    }
    all
}

/// Of each layer the first expert alone, as a dense block.
fn dense(weights: Vec<Weight>) -> Vec<Weight> {
    let kept = weights.into_iter().filter(|w| !w.0.contains("ffn_gate_inp"));
    kept.map(|(gguf, folder, mut shape, mut values)| {
        if shape.len() < 3 {
            return (gguf, folder, shape, values);
        }
        values.truncate(WIDTH * HIDDEN);
        shape.remove(0);
        (gguf.replace("_exps", ""), in_block(&folder, "mlp"), shape, values)
    })
    .collect()
}

/// The name of a layer's projection when it lies in this part of the layer.
fn in_block(name: &str, block: &str) -> String {
    let (layer, role) = name.strip_suffix(".weight").unwrap().rsplit_once('.').unwrap();
    format!("{layer}.{block}.{role}.weight")
}

fn write_gguf(path: &Path, weights: &[Weight], experts: Option<[usize; 2]>) {
    let family = if experts.is_some() { "qwen3moe" } else { "qwen3" };
    let mut sizes = vec![
        ("embedding_length", HIDDEN),
        ("block_count", LAYERS),
        ("context_length", 64),
        ("feed_forward_length", if experts.is_some() { 80 } else { WIDTH }),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.key_length", KV_WIDTH),
    ];
    if let Some([n_experts, n_used]) = experts {
        sizes.push(("expert_feed_forward_length", WIDTH));
        sizes.extend([("expert_count", n_experts), ("expert_used_count", n_used)]);
    }
    let mut gguf = GgufWriter::new()
        .str("general.architecture", family)
        .sizes(family, &sizes)
        .f32(&format!("{family}.rope.freq_base"), 1e6)
        .f32(&format!("{family}.attention.layer_norm_rms_epsilon"), 1e-6);
    for (name, _, shape, values) in weights {
        let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        gguf = gguf.tensor_f32(name, &shape, values);
    }
    std::fs::write(path, gguf.build()).unwrap();
}

/// The folder's tensors: experts one by one.
fn apart(weights: &[Weight]) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let mut tensors = Vec::new();
    for (_, name, shape, values) in weights {
        let [_, n_out, n_in] = shape[..] else {
            tensors.push((name.clone(), shape.clone(), bytes(values)));
            continue;
        };
        for (expert, values) in values.chunks(n_out * n_in).enumerate() {
            let name = in_block(name, &format!("mlp.experts.{expert}"));
            tensors.push((name, vec![n_out, n_in], bytes(values)));
        }
    }
    tensors
}

fn write_folder(folder: &Path, tensors: &[(String, Vec<usize>, Vec<u8>)], change: &[(&str, Value)]) {
    let mut config = json!({
        "model_type": "qwen3_moe", "hidden_size": HIDDEN, "vocab_size": VOCAB, "num_hidden_layers": LAYERS,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": KV_WIDTH, "intermediate_size": 80,
        "moe_intermediate_size": WIDTH, "num_experts": N_EXPERTS, "num_experts_per_tok": N_USED,
        "norm_topk_prob": true, "max_position_embeddings": 64, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": true,
    });
    for (field, value) in change {
        config[field] = value.clone();
    }
    safetensors::write(folder, "config.json", config.to_string().as_bytes());
    let tensors: Vec<_> = tensors.iter().map(|(n, s, b)| (n.as_str(), "F32", &s[..], &b[..])).collect();
    safetensors::write(folder, "model.safetensors", &safetensors::file(&tensors));
}

fn logits(path: &Path, tokens: &[TokenId]) -> Vec<f32> {
    let stages = Stages::load(path, &Setup { kv: KvType::F32.into(), ..Setup::default() }).unwrap();
    stages.feed(stages.open(0), 0, tokens).concat()
}

#[test]
fn stacked_and_single_experts_give_the_same() {
    let (folder, weights) = (tempfile::tempdir().unwrap(), weights());
    write_folder(folder.path(), &apart(&weights), &[]);
    let gguf = folder.path().join("stacked.gguf");
    write_gguf(&gguf, &weights, COUNTS);
    let tokens: Vec<_> = (0..40).map(|i| TokenId(i * 31 % VOCAB as u32)).collect();
    let [stacked, single] = [gguf.as_path(), &folder.path().join("model.safetensors")].map(|path| {
        let setup = Setup { kv: KvType::F32.into(), cuts: vec![1], chunk: 16, ..Setup::default() };
        let stages = Stages::load(path, &setup).unwrap();
        let spec = stages.arch.layers[1].ffn.experts.unwrap();
        assert_eq!((spec.n_experts, spec.n_used, spec.normalise), (N_EXPERTS, N_USED, true));
        stages.feed(stages.open(0), 0, &tokens).concat()
    });
    assert!(stacked.iter().all(|x| x.is_finite()) && stacked.iter().any(|x| x.abs() > 0.5));
    // The same numbers, but not at the same alignment, so not always summed in the same order.
    assert_near(&single, &stacked, 1e-5, "the folder");
}

/// Dense Qwen3 is Qwen3-MoE whose layers are all dense, in both formats.
#[test]
fn dense_qwen3_is_the_other_without_experts() {
    let weights = dense(weights());
    let tokens: Vec<_> = (0..40).map(|i| TokenId(i * 17 % VOCAB as u32)).collect();
    let logits = |path: &Path| logits(path, &tokens);
    let width = ("intermediate_size", json!(WIDTH));
    let folder = |change: &[(&str, Value)]| {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &apart(&weights), change);
        logits(folder.path())
    };
    let without = folder(&[width.clone(), ("mlp_only_layers", json!([0, 1]))]);
    let qwen3 = folder(&[width, ("model_type", json!("qwen3"))]);
    let file = tempfile::NamedTempFile::new().unwrap();
    write_gguf(file.path(), &weights, None);
    assert!(qwen3.iter().all(|x| x.is_finite()) && qwen3.iter().any(|x| x.abs() > 0.5));
    assert_near(&without, &qwen3, 1e-5, "layers without experts");
    assert_near(&logits(file.path()), &qwen3, 1e-5, "the GGUF file");
}

/// Mixtral as converters store it: a llama with stacked experts, the rows of query and key heads
/// permuted from halves to pairs.
#[test]
fn mixtral_in_a_gguf_file_is_the_fixture() {
    const BF16: u32 = 30;
    let fixture = crate::fixtures::path("mixtral");
    let checkpoint = open_checkpoint(&fixture).unwrap();
    let arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
    let spec = &arch.layers[0];
    let (heads, n_experts) = (spec.attention().unwrap(), spec.ffn.experts.unwrap().n_experts);
    let sizes = [
        ("embedding_length", arch.hidden_size),
        ("block_count", arch.n_layers()),
        ("context_length", arch.context_length),
        ("feed_forward_length", spec.ffn.width),
        ("expert_count", n_experts),
        ("expert_used_count", spec.ffn.experts.unwrap().n_used),
        ("attention.head_count", heads.n_heads),
        ("attention.head_count_kv", heads.n_kv_heads),
        ("attention.key_length", heads.head_dim),
    ];
    let mut gguf = GgufWriter::new()
        .str("general.architecture", "llama")
        .sizes("llama", &sizes)
        .f32("llama.rope.freq_base", arch.ropes[0].theta as f32)
        .f32("llama.attention.layer_norm_rms_epsilon", arch.norm.eps);
    let mut put = |name: String, shape: &[usize], bytes: &[u8]| {
        let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        gguf = std::mem::take(&mut gguf).tensor(&format!("{name}.weight"), BF16, &shape, bytes);
    };
    let region = |name: String| checkpoint.region(&format!("{name}.weight")).unwrap();
    for (to, from) in
        [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")]
    {
        let from = region(from.into());
        put(to.into(), from.shape(), from.bytes());
    }
    for layer in 0..arch.n_layers() {
        let from = format!("model.layers.{layer}");
        for (to, from) in [
            ("attn_norm", format!("{from}.input_layernorm")),
            ("attn_q", format!("{from}.self_attn.q_proj")),
            ("attn_k", format!("{from}.self_attn.k_proj")),
            ("attn_v", format!("{from}.self_attn.v_proj")),
            ("attn_output", format!("{from}.self_attn.o_proj")),
            ("ffn_norm", format!("{from}.post_attention_layernorm")),
            ("ffn_gate_inp", format!("{from}.block_sparse_moe.gate")),
        ] {
            let region = region(from);
            let mut bytes = region.bytes().to_vec();
            if matches!(to, "attn_q" | "attn_k") {
                let row = region.row_bytes();
                for (to, from) in
                    bytes.chunks_mut(row * heads.head_dim).zip(region.bytes().chunks(row * heads.head_dim))
                {
                    for (i, to) in to.chunks_mut(row).enumerate() {
                        let at = i / 2 + i % 2 * heads.head_dim / 2;
                        to.copy_from_slice(&from[at * row..][..row]);
                    }
                }
            }
            put(format!("blk.{layer}.{to}"), region.shape(), &bytes);
        }
        for (to, from) in [("gate", "w1"), ("up", "w3"), ("down", "w2")] {
            let experts: Vec<_> = (0..n_experts)
                .map(|e| region(format!("model.layers.{layer}.block_sparse_moe.experts.{e}.{from}")))
                .collect();
            let bytes: Vec<u8> = experts.iter().flat_map(|e| e.bytes().to_vec()).collect();
            put(format!("blk.{layer}.ffn_{to}_exps"), &[&[n_experts], experts[0].shape()].concat(), &bytes);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixtral.gguf");
    std::fs::write(&path, gguf.build()).unwrap();
    let tokens: Vec<_> = (0..60).map(|i| TokenId(i * 37 % 2000)).collect();
    // Permuted heads are summed in another order.
    assert_near(&logits(&path, &tokens), &logits(&fixture, &tokens), 1e-5, "the GGUF file");
}

/// What a shard will take is what it takes, experts included.
#[test]
fn estimates_count_experts() {
    use skulk::engine::ShardSpec;
    let (folder, weights) = (tempfile::tempdir().unwrap(), weights());
    write_folder(folder.path(), &apart(&weights), &[]);
    let gguf = folder.path().join("stacked.gguf");
    write_gguf(&gguf, &weights, COUNTS);
    let engine = super::stages::engine(super::ENGINE, &EngineOptions::default().threads(1)).unwrap();
    for path in [gguf.as_path(), &folder.path().join("model.safetensors")] {
        let checkpoint = open_checkpoint(path).unwrap();
        let arch = std::sync::Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let mut total = 0;
        for layers in [0..1, 1..2] {
            let spec = ShardSpec::new(arch.clone(), layers, 64, 16, KvType::F16).unwrap();
            let estimate = engine.estimate(&spec, &*checkpoint).unwrap();
            let shard = super::stages::load_shard(&*engine, &spec, &*checkpoint).unwrap();
            assert_eq!(estimate.weights, shard.weight_bytes());
            total += estimate.weights.0;
        }
        // Both shards count the tied embedding table.
        let all: u64 = checkpoint.tensors().iter().map(|t| t.len).sum();
        assert_eq!(total, all + (VOCAB * HIDDEN * 4) as u64);
    }
}

/// Scales and biases that lie beside weights are counted with them.
#[test]
fn estimates_count_what_lies_beside() {
    use skulk::engine::ShardSpec;
    if super::ENGINE == "wgpu" {
        return;
    }
    let engine = super::stages::engine(super::ENGINE, &EngineOptions::default().threads(1)).unwrap();
    let of_mlx = ["llama_mlx", "llama_mlx_mixed", "qwen3_moe_mlx", "gemma3_mlx", "gpt_oss_mlx"];
    for model in of_mlx.into_iter().chain(["gpt_oss_mxfp4"]) {
        let checkpoint = open_checkpoint(crate::fixtures::path(model)).unwrap();
        let arch = std::sync::Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let spec = ShardSpec::new(arch.clone(), 0..arch.n_layers(), 64, 16, KvType::F16).unwrap();
        let estimate = engine.estimate(&spec, &*checkpoint).unwrap();
        let shard = super::stages::load_shard(&*engine, &spec, &*checkpoint).unwrap();
        let all: u64 = checkpoint.tensors().iter().map(|t| t.len).sum();
        // Estimates leave biases of outputs out.
        let biases = checkpoint.tensors().iter().filter(|t| t.name.ends_with("bias"));
        let added: u64 = biases.map(|t| t.len).sum();
        assert_eq!((estimate.weights.0 + added, shard.weight_bytes().0), (all, all), "{model}");
    }
}

#[test]
fn dense_layers_between_sparse_ones() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = |change: &[(&str, Value)]| -> Vec<bool> {
        let deeper = [&[("num_hidden_layers", json!(6))], change].concat();
        write_folder(folder.path(), &apart(&weights()), &deeper);
        let checkpoint = open_checkpoint(folder.path()).unwrap();
        let arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
        let widths = arch.layers.iter().map(|l| l.ffn.width).collect::<Vec<_>>();
        let sparse: Vec<_> = arch.layers.iter().map(|l| l.ffn.experts.is_some()).collect();
        assert!(widths.iter().zip(&sparse).all(|(&w, &sparse)| w == if sparse { WIDTH } else { 80 }));
        sparse
    };
    assert_eq!(sparse(&[]), [true; 6]);
    assert_eq!(sparse(&[("mlp_only_layers", json!([0, 3]))]), [false, true, true, false, true, true]);
    assert_eq!(sparse(&[("decoder_sparse_step", json!(2))]), [false, true, false, true, false, true]);
    let both = [("decoder_sparse_step", json!(3)), ("mlp_only_layers", json!([5]))];
    assert_eq!(sparse(&both), [false, false, true, false, false, false]);
}

#[test]
fn what_cannot_be_is_refused() {
    use ErrorKind::{ArchUnsupported, ConfigInvalid, TensorMissing, TensorShape};
    let folder = tempfile::tempdir().unwrap();
    let expect = |what: &str, path: &Path, kind: ErrorKind, name: &str| {
        let error = Stages::load(path, &Setup::default()).err().unwrap();
        expect(what, &error, kind, &[name, "file"]);
    };
    let tensors = apart(&weights());
    for (field, value, kind, name) in [
        ("num_experts_per_tok", json!(0), ConfigInvalid, "experts for each row"),
        ("num_experts_per_tok", json!(7), ConfigInvalid, "expected 1 to 6, found 7"),
        ("num_experts_per_tok", Value::Null, ConfigInvalid, "num_experts_per_tok"),
        ("num_experts", json!(0), ConfigInvalid, "experts"),
        ("num_experts", json!(1u64 << 40), ConfigInvalid, "experts"),
        ("num_experts", Value::Null, ConfigInvalid, "num_local_experts"),
        ("num_experts", json!(7), TensorShape, "layers.0.mlp.gate.weight"),
        ("moe_intermediate_size", json!(25), TensorShape, "layers.0.mlp.experts.0.gate_proj.weight"),
        ("moe_intermediate_size", Value::Null, ConfigInvalid, "moe_intermediate_size"),
        ("decoder_sparse_step", json!(0), ConfigInvalid, "decoder_sparse_step"),
        ("mlp_only_layers", json!(["first"]), ConfigInvalid, "mlp_only_layers"),
        ("mlp_only_layers", json!([1]), TensorMissing, "layers.1.mlp.gate_proj.weight"),
        ("hidden_act", json!("relu6"), ArchUnsupported, "relu6"),
    ] {
        write_folder(folder.path(), &tensors, &[(field, value.clone())]);
        expect(&format!("{field} = {value}"), folder.path(), kind, name);
    }
    for name in ["model.layers.1.mlp.experts.4.up_proj.weight", "model.layers.1.mlp.gate.weight"] {
        let rest: Vec<_> = tensors.iter().filter(|t| t.0 != name).cloned().collect();
        write_folder(folder.path(), &rest, &[]);
        expect("a missing tensor", folder.path(), TensorMissing, name);
    }
    let gguf = folder.path().join("stacked.gguf");
    write_gguf(&gguf, &weights(), Some([N_EXPERTS, N_EXPERTS + 1]));
    expect("too many used", &gguf, ConfigInvalid, "expected 1 to 6, found 7");
    let name = "blk.1.ffn_down_exps.weight";
    let rest: Vec<_> = weights().into_iter().filter(|w| w.0 != name).collect();
    write_gguf(&gguf, &rest, COUNTS);
    expect("a missing stack", &gguf, TensorMissing, name);
    let mut other = weights();
    other.iter_mut().find(|w| w.0 == name).unwrap().2.swap(1, 2);
    write_gguf(&gguf, &other, COUNTS);
    expect("another shape", &gguf, TensorShape, name);
}
