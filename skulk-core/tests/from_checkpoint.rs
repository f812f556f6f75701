//! Does a checkpoint tell its own card? Models of every kind, and damaged ones.

use std::path::{Path, PathBuf};

use crate::fixtures;
use crate::support::gguf_writer::{GgufWriter, types};
use crate::support::mlx_layout::Checkpoint;
use crate::support::safetensors_writer::{self, write};
use serde_json::{Value, json};
use skulk::card::{
    ModelTask, OutputParser, Profile, ReasoningCardConfig, ReasoningEffort, ReasoningFormat, ToolCallFormat,
};
use skulk::{ErrorKind, ModelCard};

const OWN: [&str; 5] =
    ["skulk-candle-cuda", "skulk-candle-metal", "skulk-wgpu", "skulk-cpu", "skulk-candle-cpu"];
const LLAMA_CPP: [&str; 4] = ["llama_cpp-vulkan", "llama_cpp-rocm", "llama_cpp-cuda", "llama_cpp-cpu"];

fn card(path: impl AsRef<Path>) -> ModelCard {
    let card = ModelCard::from_checkpoint(path).unwrap();
    // What is written can be read again.
    let mut read = ModelCard::from_toml(&card.to_toml().unwrap()).unwrap();
    read.is_custom = true;
    assert_eq!(read, card);
    card
}

#[track_caller]
fn assert_error(path: &Path, kind: ErrorKind, parts: &[&str]) {
    crate::weights::assert_error(ModelCard::from_checkpoint(path), kind, parts);
}

fn json_file(folder: &Path, name: &str, value: &Value) {
    write(folder, name, value.to_string().as_bytes());
}

/// A folder that holds a model of two layers, as far as cards go, with these fields in its configuration.
fn folder(name: &str, config: Value) -> (tempfile::TempDir, std::path::PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join(name);
    std::fs::create_dir(&path).unwrap();
    let mut fields = json!({ "num_hidden_layers": 2, "hidden_size": 64, "model_type": "qwen3" });
    fields.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    json_file(&path, "config.json", &fields);
    write(&path, "model.safetensors", &safetensors_writer::small());
    (parent, path)
}

/// A GGUF file of one layer that this library can run.
fn gguf() -> GgufWriter {
    let zeros = |n: u64| vec![0.0; n as usize];
    let header = GgufWriter::new()
        .str("general.architecture", "llama")
        .str("general.name", "Tiny Llama ")
        .u32("general.file_type", 0)
        .u32("llama.block_count", 1)
        .u32("llama.embedding_length", 32)
        .u32("llama.feed_forward_length", 64)
        .u32("llama.context_length", 128)
        .u32("llama.attention.head_count", 2)
        .u32("llama.attention.head_count_kv", 1)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .str("tokenizer.chat_template", "{% if tools %}{{ tools }}{% endif %}");
    let tensors: [(&str, &[u64]); 11] = [
        ("token_embd.weight", &[8, 32]),
        ("output_norm.weight", &[32]),
        ("blk.0.attn_norm.weight", &[32]),
        ("blk.0.attn_q.weight", &[32, 32]),
        ("blk.0.attn_k.weight", &[16, 32]),
        ("blk.0.attn_v.weight", &[16, 32]),
        ("blk.0.attn_output.weight", &[32, 32]),
        ("blk.0.ffn_norm.weight", &[32]),
        ("blk.0.ffn_gate.weight", &[64, 32]),
        ("blk.0.ffn_up.weight", &[64, 32]),
        ("blk.0.ffn_down.weight", &[32, 64]),
    ];
    tensors
        .iter()
        .fold(header, |file, (name, shape)| file.tensor_f32(name, shape, &zeros(shape.iter().product())))
}

/// A valid header of another quantisation than this library reads.
fn gguf_unreadable() -> GgufWriter {
    GgufWriter::new()
        .str("general.architecture", "qwen3moe")
        .u32("general.file_type", 19)
        .u32("qwen3moe.block_count", 3)
        .u32("qwen3moe.embedding_length", 64)
        .i32s("qwen3moe.attention.head_count_kv", &[2, 2, 4])
        .tensor("token_embd.weight", types::Q8_1, &[1, 32], &[0; 36])
}

#[test]
fn trained_models_tell_their_cards() {
    let llama = card(fixtures::path("llama"));
    assert_eq!(llama.model_id, "llama");
    assert_eq!((llama.n_layers, llama.hidden_size, llama.num_key_value_heads), (4, 256, Some(2)));
    assert_eq!((llama.context_length, llama.supports_tensor), (1024, true));
    assert_eq!((llama.family.as_str(), llama.quantization.as_str()), ("llama", "bf16"));
    assert_eq!(llama.tasks, [ModelTask::TextGeneration]);
    assert_eq!(llama.capabilities, ["text"]);
    assert_eq!(llama.storage_size.in_bytes, 5_775_872);
    assert!(llama.is_custom && llama.trust_remote_code && llama.gguf_file.is_none());
    assert_eq!(llama.placement.backend_preference, [&OWN[..], &["mlx"]].concat());
    assert!(llama.reasoning.is_none() && llama.tooling.is_none() && llama.vision.is_none());

    let gemma = card(fixtures::path("gemma3"));
    assert_eq!((gemma.family.as_str(), gemma.n_layers, gemma.num_key_value_heads), ("gemma", 6, Some(1)));
    assert!(!gemma.supports_tensor);
    assert!(gemma.placement.compatible_backends.contains("skulk-wgpu"));

    let mixtral = card(fixtures::path("mixtral"));
    assert_eq!((mixtral.family.as_str(), mixtral.n_layers), ("mixtral", 3));
    let index = fixtures::path("mixtral").join("model.safetensors.index.json");
    assert_eq!(mixtral.storage_size.in_bytes, fixtures::json(&index)["metadata"]["total_size"]);
    assert!(mixtral.placement.compatible_backends.contains("skulk-cpu"));

    let next = card(fixtures::path("qwen3_next")).placement.compatible_backends;
    assert!(["skulk-cpu", "skulk-candle-cuda", "skulk-candle-cpu"].iter().all(|tag| next.contains(*tag)));

    let mut file = card(fixtures::path("llama").join("model.safetensors"));
    file.model_id.clone_from(&llama.model_id);
    assert_eq!(file, llama);
}

#[test]
fn every_checkpoint_that_is_tested_with_tells_its_card() {
    for folder in fixtures::checkpoints() {
        let card = card(&folder);
        let name = folder.display();
        assert!(card.n_layers > 0 && card.hidden_size > 0 && card.storage_size.in_bytes > 0, "{name}");
        assert!(!card.family.is_empty() && card.capabilities.contains(&"text".to_owned()), "{name}");
        let other = if folder.join("config.json").exists() { "mlx" } else { LLAMA_CPP[3] };
        assert!(card.placement.compatible_backends.contains(other), "{name}");
        // A card and its checkpoint agree on who runs it.
        #[cfg(feature = "generate")]
        let runs = skulk::Model::open(&folder, &skulk::LoadOptions::default()).is_ok();
        #[cfg(feature = "generate")]
        assert_eq!(card.placement.compatible_backends.contains("skulk-cpu"), runs, "{name}");
    }
}

#[test]
fn the_real_model_tells_its_card() {
    let Some(path) = fixtures::gemma() else { return };
    let card = card(path);
    assert_eq!((card.family.as_str(), card.quantization.as_str()), ("gemma", "Q4_K_M"));
    assert_eq!((card.n_layers, card.hidden_size, card.num_key_value_heads), (18, 640, Some(1)));
    assert_eq!(card.context_length, 32_768);
    assert_eq!(card.base_model, "Gemma 3 270m");
    assert_eq!(card.placement.backend_preference, [&OWN[..], &LLAMA_CPP[..]].concat());
}

#[test]
fn quantisations_are_labelled_as_in_published_cards() {
    let label = |config: Value| {
        let (_parent, path) = folder("m", config);
        card(path).quantization
    };
    assert_eq!(label(json!({ "quantization": { "group_size": 64, "bits": 4 } })), "4bit");
    assert_eq!(label(json!({ "quantization": { "group_size": 32, "bits": 8, "mode": "affine" } })), "8bit");
    assert_eq!(label(json!({ "quantization": { "group_size": 32, "bits": 4, "mode": "mxfp4" } })), "MXFP4");
    let mixed = json!({ "bits": 4, "mode": "mxfp4", "lm_head": { "group_size": 64, "bits": 8 } });
    assert_eq!(label(json!({ "quantization": mixed })), "MXFP4-Q8");
    assert_eq!(label(json!({ "quantization": null, "quantization_config": { "bits": 6 } })), "6bit");
    assert_eq!(label(json!({ "quantization_config": { "quant_method": "mxfp4" } })), "MXFP4");
    assert_eq!(label(json!({ "quantization_config": { "quant_method": "fp8" } })), "fp8");
    let four = json!({ "quant_method": "bitsandbytes", "load_in_4bit": true });
    assert_eq!(label(json!({ "quantization_config": four })), "4bit");
    assert_eq!(label(json!({})), "bf16", "most bytes of the file are");
}

#[test]
fn models_that_mlx_quantised_run_on_mlx_and_on_the_cpu() {
    let backends = |path: PathBuf| card(path).placement.compatible_backends.into_iter().collect::<Vec<_>>();
    assert_eq!(backends(fixtures::path("llama_mlx")), ["mlx", "skulk-cpu"]);
    let folder = fixtures::path("qwen3_moe_mlx");
    assert_eq!(backends(folder.clone()), ["mlx", "skulk-cpu"]);
    let card = card(folder.clone());
    assert_eq!(card.quantization, "4bit");
    // Words, scales and biases.
    let index = fixtures::json(&folder.join("model.safetensors.index.json"));
    assert_eq!(card.storage_size.in_bytes, index["metadata"]["total_size"]);
    // Small floats are counted with their scales.
    for (model, label, backends) in [
        ("gpt_oss_mlx", "MXFP4-Q8", &["mlx", "skulk-cpu"][..]),
        ("gpt_oss_mxfp4", "MXFP4", &["mlx", "skulk-cpu"]),
    ] {
        let card = self::card(fixtures::path(model));
        let found: Vec<_> = card.placement.compatible_backends.iter().map(String::as_str).collect();
        assert_eq!((card.quantization.as_str(), &found[..]), (label, backends), "{model}");
    }
    // So is FP8, which MLX does not read as it is.
    let folder = Checkpoint::read(&fixtures::path("llama")).in_fp8("blocks")[0].written();
    let card = self::card(folder.path());
    assert_eq!(card.quantization, "fp8");
    assert!(card.placement.compatible_backends.contains("skulk-cpu"));
    assert!(!card.placement.compatible_backends.contains("skulk-wgpu"));
    // Of words that are not there, nobody here runs anything.
    let (_parent, path) =
        self::folder("m", json!({ "quantization": { "group_size": 64, "bits": 4, "mode": "mxfp4" } }));
    assert_eq!(backends(path), ["mlx"]);
}

/// Every engine has every operation; some types of numbers only `cpu` multiplies.
#[test]
fn engines_are_named_that_have_the_operations() {
    let own = |model: &str| {
        let backends = card(fixtures::path(model)).placement.compatible_backends;
        OWN.into_iter().filter(|tag| backends.contains(*tag)).collect::<Vec<_>>()
    };
    for model in ["deepseek_v3", "deepseek_v32", "gemma3n", "qwen3_next", "kimi_linear", "nemotron_h"] {
        assert_eq!(own(model), OWN, "{model}");
    }
    assert_eq!(own("gpt_oss_mxfp4"), ["skulk-cpu"]);
}

#[test]
fn ids_and_bases_come_from_names() {
    let (parent, path) = folder("acme--Tiny-1B", json!({ "_name_or_path": "meta/Tiny-Base" }));
    let found = card(&path);
    assert_eq!((found.model_id.as_str(), found.base_model.as_str()), ("acme/Tiny-1B", "Tiny-Base"));
    let snapshots = parent.path().join("models--acme--m/snapshots");
    std::fs::create_dir_all(&snapshots).unwrap();
    std::fs::rename(&path, snapshots.join("0123")).unwrap();
    assert_eq!(card(snapshots.join("0123")).model_id, "acme/m");
}

#[test]
fn eyes_are_found_where_there_is_a_tower_and_a_token() {
    let tower = json!({
        "model_type": "qwen3_vl",
        "vision_config": { "model_type": "v" },
        "image_token_id": 5,
        "text_config": { "num_hidden_layers": 7, "num_key_value_heads": 2 },
    });
    let (_parent, path) = folder("acme--eyes", tower);
    let found = card(path);
    let vision = found.vision.unwrap();
    assert_eq!((vision.image_token_id, vision.model_type.as_str()), (Some(5), "qwen3_vl"));
    assert_eq!(vision.weights_repo, "acme/eyes");
    assert_eq!((found.n_layers, found.num_key_value_heads), (7, Some(2)));
    assert_eq!(found.capabilities, ["text", "vision"]);
}

#[test]
fn chat_templates_tell_of_reasoning_and_tools_wherever_they_stand() {
    let thinks = "{% if tools %}{% endif %}{% if enable_thinking %}<think>{% endif %}";
    let places: [(&str, String); 4] = [
        ("chat_template.jinja", thinks.to_owned()),
        ("chat_template.json", json!({ "chat_template": thinks }).to_string()),
        ("tokenizer_config.json", json!({ "chat_template": thinks }).to_string()),
        (
            "tokenizer_config.json",
            json!({ "chat_template": [{ "name": "default", "template": thinks }] }).to_string(),
        ),
    ];
    for (name, text) in places {
        let (_parent, path) = folder("m", json!({}));
        write(&path, name, text.as_bytes());
        let found = card(path);
        let mut reasoning = ReasoningCardConfig::default();
        reasoning.supports_toggle = Some(true);
        reasoning.format = Some(ReasoningFormat::TokenDelimited);
        reasoning.default_effort = Some(ReasoningEffort::Medium);
        reasoning.disabled_effort = Some(ReasoningEffort::None);
        assert_eq!(found.reasoning, Some(reasoning), "{name}");
        assert_eq!(found.tooling.as_ref().unwrap().supports_tool_calling, Some(true), "{name}");
        assert_eq!(found.capabilities, ["text", "thinking", "thinking_toggle"], "{name}");
    }
}

#[test]
fn a_template_without_reasoning_corrects_the_rule_of_the_family() {
    let resolve = |template: Option<&str>| -> (ModelCard, Profile) {
        let (_parent, path) = folder("Qwen3-4B-Instruct-2507", json!({}));
        if let Some(text) = template {
            write(&path, "chat_template.jinja", text.as_bytes());
        }
        let card = card(path);
        let profile = card.profile();
        (card, profile)
    };
    let (_, by_rule) = resolve(None);
    assert!(by_rule.supports_thinking_toggle);
    let (card, profile) = resolve(Some("{{ messages[0].content }}"));
    assert_eq!(profile.thinking_format, ReasoningFormat::None);
    assert!(!profile.supports_thinking_toggle);
    assert_eq!(card.capabilities, ["text"]);
    let (card, profile) = resolve(Some("{{ '<think>' }}"));
    assert_eq!(profile.thinking_format, ReasoningFormat::TokenDelimited);
    assert!(!profile.supports_thinking_toggle);
    assert_eq!(card.capabilities, ["text", "thinking"]);
}

#[test]
fn families_with_formats_of_their_own_say_so_whatever_they_are_called() {
    let profile = |model_type: &str| {
        let (_parent, path) = folder("m", json!({ "model_type": model_type }));
        let card = card(path);
        (card.profile(), card.family)
    };
    let (gemma, family) = profile("gemma4_text");
    assert_eq!((gemma.output_parser, family.as_str()), (OutputParser::Gemma4, "gemma"));
    assert_eq!(gemma.thinking_format, ReasoningFormat::ChannelDelimited);
    let (harmony, family) = profile("gpt_oss");
    assert_eq!((harmony.tool_call_format, family.as_str()), (ToolCallFormat::GptOss, "gpt-oss"));
    assert!(harmony.supports_thinking && !harmony.supports_thinking_toggle);
    let (dsml, family) = profile("deepseek_v32");
    assert_eq!((dsml.output_parser, family.as_str()), (OutputParser::DeepseekV32, "deepseek"));
}

#[test]
fn gguf_files_tell_their_cards() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tiny-chat.gguf", &gguf().build());
    let path = folder.path().join("tiny-chat.gguf");
    let found = card(&path);
    assert_eq!((found.model_id.as_str(), found.base_model.as_str()), ("tiny-chat", "Tiny Llama"));
    assert_eq!((found.n_layers, found.hidden_size, found.num_key_value_heads), (1, 32, Some(1)));
    assert_eq!((found.context_length, found.quantization.as_str()), (128, "F32"));
    assert_eq!(found.gguf_file.as_deref(), Some("tiny-chat.gguf"));
    assert_eq!(found.storage_size.in_bytes, path.metadata().unwrap().len());
    assert!(!found.trust_remote_code && !found.supports_tensor && found.is_custom);
    assert_eq!(found.tooling.unwrap().supports_tool_calling, Some(true));
    assert_eq!(found.placement.backend_preference, [&OWN[..], &LLAMA_CPP[..]].concat());
    assert_eq!(found.placement.compatible_backends.len(), 9);
}

#[test]
fn files_that_only_other_software_reads_tell_their_cards_too() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "m.gguf", &gguf_unreadable().build());
    for path in [folder.path().join("m.gguf"), folder.path().to_owned()] {
        let found = card(&path);
        assert_eq!((found.family.as_str(), found.n_layers, found.hidden_size), ("qwen", 3, 64));
        assert_eq!(found.num_key_value_heads, None, "one number for each layer is none for all");
        assert_eq!(found.quantization, "IQ2_XXS");
        assert_eq!(found.placement.backend_preference, LLAMA_CPP);
    }
}

#[test]
fn of_several_quantisations_the_references_choice_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("acme--tiny-GGUF");
    std::fs::create_dir_all(path.join("big")).unwrap();
    for name in ["tiny-BF16.gguf", "tiny-Q8_0.gguf", "mmproj-F16.gguf", "big/tiny-Q4_K_M.gguf"] {
        write(&path, name, &gguf().build());
    }
    let found = card(&path);
    assert_eq!(found.gguf_file.as_deref(), Some("big/tiny-Q4_K_M.gguf"));
    assert_eq!((found.model_id.as_str(), found.quantization.as_str()), ("acme/tiny-GGUF", "Q4_K_M"));
    // There is a projector, of which nothing else is known.
    assert_eq!(found.vision.unwrap().weights_repo, "acme/tiny-GGUF");
    assert_eq!(found.capabilities, ["text", "vision"]);

    // What the folder's configuration says goes before the header, if a card can be made from it.
    json_file(&path, "config.json", &json!({ "n_layers": 9, "hidden_size": 640, "model_type": "qwen3" }));
    write(&path, "chat_template.jinja", b"{{ '<think>' }}");
    let found = card(&path);
    assert_eq!((found.n_layers, found.hidden_size, found.num_key_value_heads), (9, 640, None));
    assert_eq!(found.family, "qwen");
    assert!(found.reasoning.is_none(), "the file has a template of its own");
    for useless in ["{ broken", r#"{ "hidden_size": 640 }"#, r#"{ "n_layers": 9 }"#] {
        write(&path, "config.json", useless.as_bytes());
        assert_eq!(card(&path).n_layers, 1, "{useless}");
    }
}

#[test]
fn split_sets_are_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let other = GgufWriter::new().split(1, 2, 12).tensor_f32("extra", &[4], &[0.0; 4]);
    write(path, "m-Q6_K-00001-of-00002.gguf", &gguf().split(0, 2, 12).build());
    write(path, "m-Q6_K-00002-of-00002.gguf", &other.build());
    let sizes = ["m-Q6_K-00001-of-00002.gguf", "m-Q6_K-00002-of-00002.gguf"]
        .map(|name| path.join(name).metadata().unwrap().len());
    for any in
        [path.to_owned(), path.join("m-Q6_K-00001-of-00002.gguf"), path.join("m-Q6_K-00002-of-00002.gguf")]
    {
        let found = card(&any);
        assert_eq!(found.gguf_file.as_deref(), Some("m-Q6_K-00001-of-00002.gguf"));
        assert_eq!(found.storage_size.in_bytes, sizes[0] + sizes[1]);
        assert_eq!((found.n_layers, found.quantization.as_str()), (1, "Q6_K"));
    }
    assert_eq!(card(path.join("m-Q6_K-00002-of-00002.gguf")).model_id, "m-Q6_K");

    std::fs::remove_file(path.join("m-Q6_K-00002-of-00002.gguf")).unwrap();
    assert_error(path, ErrorKind::FileNotFound, &["shard"]);
}

#[test]
fn split_sets_that_only_other_software_reads_are_described_by_their_first_file() {
    let folder = tempfile::tempdir().unwrap();
    let other = GgufWriter::new().split(1, 2, 2).tensor("x", types::Q8_1, &[1, 32], &[0; 36]);
    write(folder.path(), "m-00001-of-00002.gguf", &gguf_unreadable().split(0, 2, 2).build());
    write(folder.path(), "m-00002-of-00002.gguf", &other.build());
    for name in ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"] {
        let found = card(folder.path().join(name));
        assert_eq!((found.n_layers, found.model_id.as_str()), (3, "m"));
        assert_eq!(found.gguf_file.as_deref(), Some("m-00001-of-00002.gguf"));
    }
}

#[test]
fn vindexes_tell_their_cards() {
    let fixtures = fixtures::root().join("tests/fixtures/vindex");
    let found = card(fixtures.join("tiny-llama.browse"));
    assert_eq!((found.model_id.as_str(), found.base_model.as_str()), ("fixtures/tiny-llama", "tiny-llama"));
    assert_eq!((found.n_layers, found.hidden_size, found.num_key_value_heads), (4, 256, Some(2)));
    assert_eq!((found.family.as_str(), found.quantization.as_str()), ("llama", "fp16"));
    assert!(found.placement.compatible_backends.is_empty());

    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("layers")).unwrap();
    let index = std::fs::read(fixtures.join("tiny-gemma4moe.q4k/index.json")).unwrap();
    write(copy.path(), "index.json", &index);
    write(copy.path(), "norms.bin", &[0; 10]);
    write(copy.path(), "tokenizer.json", &[0; 1000]);
    write(copy.path(), "layers/layer_00.weights", &[0; 5]);
    let found = card(copy.path());
    assert_eq!((found.storage_size.in_bytes, found.quantization.as_str()), (15, "Q4_K"));
    assert_eq!(found.profile().output_parser, OutputParser::Gemma4);
}

#[test]
fn damaged_folders_are_typed_errors() {
    let empty = tempfile::tempdir().unwrap();
    assert_error(empty.path(), ErrorKind::FileNotFound, &["none of them"]);
    assert_error(&empty.path().join("nothing"), ErrorKind::FileNotFound, &[]);

    let (_parent, path) = folder("m", json!({}));
    std::fs::remove_file(path.join("config.json")).unwrap();
    assert_error(&path, ErrorKind::FileNotFound, &["config.json"]);
    for (config, parts) in [
        ("{ no JSON", ["config.json", ""]),
        ("{}", ["num_hidden_layers", "config.json"]),
        (r#"{ "n_layers": 1 }"#, ["hidden_size", "config.json"]),
        (r#"{ "n_layers": -1, "hidden_size": 1 }"#, ["n_layers", "found -1"]),
    ] {
        write(&path, "config.json", config.as_bytes());
        assert_error(&path, ErrorKind::ConfigInvalid, &parts);
    }
    write(&path, "config.json", br#"{ "n_layers": 1, "hidden_size": 1 }"#);
    card(&path);
    write(&path, "model.safetensors", &safetensors_writer::small()[..20]);
    assert_error(&path, ErrorKind::CheckpointTruncated, &["model.safetensors"]);

    let vindex = tempfile::tempdir().unwrap();
    write(vindex.path(), "index.json", br#"{ "family": "llama", "num_layers": 2 }"#);
    assert_error(vindex.path(), ErrorKind::ConfigInvalid, &["hidden_size", "index.json"]);
    write(vindex.path(), "index.json", b"[]");
    assert_error(vindex.path(), ErrorKind::ConfigInvalid, &["index.json"]);
}

#[test]
fn damaged_files_are_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let whole = gguf().build();
    for len in [0, 5, 100, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        assert_error(&path, ErrorKind::CheckpointTruncated, &["m.gguf"]);
        assert_error(folder.path(), ErrorKind::CheckpointTruncated, &["m.gguf"]);
    }
    std::fs::write(&path, b"no model at all").unwrap();
    assert_error(&path, ErrorKind::CheckpointInvalid, &["m.gguf"]);
    let llama = || GgufWriter::new().str("general.architecture", "llama");
    for (header, parts) in [
        (GgufWriter::new().u32("llama.block_count", 1), ["general.architecture", "m.gguf"]),
        (llama().u32("llama.block_count", 0), ["llama.block_count", "m.gguf"]),
        (llama().i32("llama.block_count", -3).u32("llama.embedding_length", 4), ["llama.block_count", "-3"]),
    ] {
        std::fs::write(&path, header.build()).unwrap();
        assert_error(&path, ErrorKind::ConfigInvalid, &parts);
    }
}
