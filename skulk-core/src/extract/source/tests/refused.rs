//! What is refused, and is it said why?

use serde_json::json;

use super::gguf_writer::GgufWriter;
use super::*;

fn source_of(gguf: &GgufWriter, check: impl Fn(Result<Source<'_>>)) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), gguf.build()).unwrap();
    check(Source::open(&*open(file.path())));
}

/// A description without layers' weights.
fn tiny(family: &str) -> GgufWriter {
    let mut gguf = GgufWriter::new().str("general.architecture", family);
    for (key, value) in [
        ("embedding_length", 32),
        ("block_count", 2),
        ("context_length", 128),
        ("attention.head_count", 2),
        ("attention.key_length", 16),
    ] {
        gguf = gguf.u32(&format!("{family}.{key}"), value);
    }
    gguf.f32(&format!("{family}.attention.layer_norm_rms_epsilon"), 1e-5).tensor_f32(
        "token_embd.weight",
        &[4, 32],
        &[0.5; 128],
    )
}

fn refused(gguf: &GgufWriter, kind: ErrorKind, word: &str) {
    source_of(gguf, |source| {
        let error = source.err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word) && error.hint().is_some(), "{error}");
    });
}

#[test]
fn what_no_configuration_describes_is_refused() {
    let good = tiny("llama").u32("llama.feed_forward_length", 48);
    source_of(&good, |source| {
        let source = source.unwrap();
        assert_eq!(source.shape("layers.1.mlp.down_proj.weight"), Some([32, 48]));
        // There are no such layers, tensors or experts, and the head is tied.
        for key in [
            "layers.2.mlp.down_proj.weight",
            "layers.1.mlp.gate.weight",
            "layers.1.mlp.experts.0.up_proj.weight",
            "layers.1.self_attn.q_norm.weight",
            "layers.1.self_attn.q_proj.bias",
            "lm_head.weight",
            "model.norm.weight",
            "blk.0.attn_q.weight",
        ] {
            assert_eq!(source.shape(key), None, "{key}");
            assert_eq!(source.tensor(key).err().unwrap().kind(), ErrorKind::TensorMissing);
        }
        assert_eq!(source.shape("norm.weight"), Some([1, 32]));
        let error = source.tensor("norm.weight").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TensorMissing);
        assert!(error.to_string().contains("output_norm.weight"), "{error}");
        let embedding = source.tensor("embed_tokens.weight").unwrap();
        let mut out = vec![0.0; 64];
        embedding.rows(2..4, &mut out).unwrap();
        assert_eq!(out, [0.5; 64]);
        for rows in [2..5, 1..2, 5..7, 0..0, usize::MAX - 1..usize::MAX] {
            let error = embedding.rows(rows.clone(), &mut out).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{rows:?}");
        }
        assert_eq!(embedding.stored_row(4), None);
        assert_eq!(source.tokenizer_files(None).err().unwrap().kind(), ErrorKind::TokenizerInvalid);
    });
    let widths = [48i32, 64].map(i32::to_le_bytes).concat();
    refused(
        &tiny("llama").array("llama.feed_forward_length", 5, 2, &widths),
        ErrorKind::ArchUnsupported,
        "layers",
    );
    let factors: Vec<f32> = (0..8).map(|pair| 1.0 + pair as f32).collect();
    refused(
        &good.clone().tensor_f32("rope_freqs.weight", &[8], &factors),
        ErrorKind::ArchUnsupported,
        "rope_freqs.weight",
    );
    refused(&tiny("mamba").u32("mamba.feed_forward_length", 48), ErrorKind::ArchUnsupported, "mamba");
    // A bias here and none there.
    refused(&good.tensor_f32("blk.1.attn_q.bias", &[32], &[0.0; 32]), ErrorKind::ArchUnsupported, "layers");
}

/// The families that messages and pages name, and no others.
#[test]
fn families_that_are_said_to_be_held_are() {
    let mut held = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(fixture("models")).unwrap() {
        let checkpoint = open(&entry.unwrap().path());
        let family = ArchSpec::from_checkpoint(&*checkpoint).unwrap().family;
        let is_held = config::HELD.contains(&family.as_str());
        match Source::open(&*checkpoint) {
            Ok(_) => drop(held.insert(family.clone())),
            Err(e) => {
                let text = format!("found `{family}`");
                assert!(e.message().contains("llama, mistral") && e.message().contains(&text), "{e}");
            }
        }
        assert_eq!(held.contains(&family), is_held, "{family}");
    }
    assert!(config::HELD.iter().all(|family| held.contains(*family)), "{held:?}");
}

#[test]
fn configurations_say_what_the_file_says() {
    let gguf = tiny("qwen3moe")
        .u32("qwen3moe.feed_forward_length", 96)
        .u32("qwen3moe.expert_feed_forward_length", 24)
        .u32("qwen3moe.expert_count", 4)
        .u32("qwen3moe.expert_used_count", 2)
        .u32("tokenizer.ggml.eos_token_id", 3)
        .str("qwen3moe.rope.scaling.type", "linear")
        .f32("qwen3moe.rope.scaling.factor", 2.5)
        .tensor_f32("output.weight", &[4, 32], &[0.5; 128]);
    source_of(&gguf, |source| {
        let source = source.unwrap();
        assert_eq!(source.shape("layers.0.mlp.experts.3.up_proj.weight"), Some([24, 32]));
        assert_eq!(source.shape("layers.0.mlp.experts.4.up_proj.weight"), None);
        assert_eq!(source.shape("lm_head.weight"), Some([4, 32]));
        let config = source.config();
        assert_eq!(config["eos_token_id"], 3);
        assert_eq!(config["rms_norm_eps"], 1e-5);
        assert_eq!(config["rope_scaling"], json!({"rope_type": "linear", "factor": 2.5}));
        assert_eq!(config["norm_topk_prob"], true);
        assert_eq!(config["intermediate_size"], 96);
        assert_eq!(config["moe_intermediate_size"], 24);
    });
    let gemma = tiny("gemma3")
        .u32("gemma3.feed_forward_length", 48)
        .u32("gemma3.attention.sliding_window", 16)
        .u32("gemma3.attention.sliding_window_pattern", 2)
        .f32("gemma3.final_logit_softcapping", 30.5)
        .f32("gemma3.rope.freq_base_swa", 5000.0);
    source_of(&gemma, |source| {
        let source = source.unwrap();
        assert_eq!(source.config()["layer_types"], json!(["sliding_attention", "full_attention"]));
        assert_eq!(source.config()["rope_local_base_freq"], 5000.0);
        assert_eq!(source.config()["final_logit_softcapping"], 30.5);
        assert_eq!(source.config()["query_pre_attn_scalar"], 16);
    });
}

#[test]
fn of_wrappers_only_the_text_part_is_kept() {
    let text = json_of(&fixture("models/gemma3/config.json"));
    let folder = with_config("models/gemma3", |config| {
        let mut inner = config.take();
        inner.as_object_mut().unwrap().remove("eos_token_id");
        *config = json!({"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 7},
            "eos_token_id": [1, 106], "quantization_config": {"group_size": 64, "bits": 4}});
    });
    let checkpoint = open(folder.path());
    let source = Source::open(&*checkpoint).unwrap();
    assert_eq!(source.config()["model_type"], "gemma3_text");
    assert_eq!(source.config()["eos_token_id"], json!([1, 106]));
    assert_eq!(source.config()["hidden_size"], text["hidden_size"]);
    assert!(source.config().get("vision_config").is_none());
    assert!(source.config().get("quantization_config").is_none());
}
