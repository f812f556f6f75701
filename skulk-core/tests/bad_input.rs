//! Is every bad input a typed error that says what is wrong, where, and what to do?

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use skulk::ErrorKind::{
    ArchUnsupported, CheckpointInvalid, CheckpointTruncated, ConfigInvalid, ContextOverflow,
    DTypeUnsupported, FileNotFound, InvalidArgument, PlacementInvalid, TensorMissing, TensorShape,
    TokenizerInvalid,
};
use skulk::arch::{Activation, ArchSpec, RopeScaling, Window};
use skulk::engine::{KvType, ShardSpec};
use skulk::{
    ByteSize, CancelToken, ContextDetail, EngineId, EngineOptions, Error, ErrorKind, GenerateOptions,
    LoadOptions, Model, Placement, Prompt, Sampling, ShapeDetail, Stage, TokenId, open_checkpoint,
};

use crate::fixtures::{self, copied};
use crate::generate::common::{model, one_thread, path, threads};
use crate::parity::cpu::stages::load_shard;
use crate::support::gguf_writer::{GgufWriter, types};

/// Of this kind, with all `names` in its message or context, and with something to do about it.
pub(crate) fn expect(what: &str, error: &Error, kind: ErrorKind, names: &[&str]) {
    assert_eq!(error.kind(), kind, "{what}: {error}");
    let context: String = error.context().iter().map(|(key, value)| format!(" {key}: {value}")).collect();
    let said = format!("{}{context}", error.message());
    for name in names {
        assert!(said.contains(name), "{what}: no `{name}` in {error}");
    }
    if kind != InvalidArgument {
        assert!(error.hint().is_some_and(|h| !h.is_empty()), "{what}: no hint in {error}");
    }
}

#[test]
fn load_options() {
    let huge = 1_000_000_000;
    let counts = |text: &str| text.parse::<Placement>().unwrap();
    let cpu = skulk::engines::cpu(&EngineOptions::default().threads(1)).unwrap();
    let with = one_thread;
    let cases: &[(LoadOptions, ErrorKind, &[&str])] = &[
        (threads(0), InvalidArgument, &["threads", "found 0"]),
        (threads(huge), InvalidArgument, &["threads", "1000000000"]),
        (with().stages(0), PlacementInvalid, &["stages", "found 0"]),
        (with().stages(5), PlacementInvalid, &["4", "found 5"]),
        (with().stages(usize::MAX), PlacementInvalid, &["stages"]),
        (with().stages(2).placement(counts("cpu=4")), InvalidArgument, &["placement", "stages"]),
        (with().engine_name("cpu").placement(counts("cpu=4")), InvalidArgument, &["placement", "engine"]),
        (with().placement(counts("cpu=3,candle-cpu=2")), PlacementInvalid, &["4", "found 5"]),
        (with().placement(counts("cpu=3,abacus=1")), PlacementInvalid, &["engine", "abacus"]),
        // An engine that the options lack.
        (with().engine(cpu).placement(counts("cpu=3,candle-cpu=1")), PlacementInvalid, &["candle-cpu"]),
        (with().engine_name("abacus"), PlacementInvalid, &["abacus"]),
        (with().context(0), InvalidArgument, &["context", "found 0"]),
        (with().context(1025), InvalidArgument, &["context", "1024", "1025"]),
        (with().prefill_chunk(0), InvalidArgument, &["prefill", "found 0"]),
    ];
    for (options, kind, names) in cases {
        expect(&names.join(", "), &Model::open(path("llama"), options).unwrap_err(), *kind, names);
    }
    // Larger than any prompt is no harm.
    Model::open(path("llama"), &with().prefill_chunk(usize::MAX)).unwrap();
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "placements of one stage")]
fn placements() {
    let stages = |engine: &str, layers: &[std::ops::Range<usize>]| {
        let engine = EngineId::new(engine);
        layers.iter().map(|l| Stage::new(&engine, l.clone())).collect::<Vec<_>>()
    };
    for (what, layers) in
        [("gap", vec![0..1, 2..4]), ("overlap", vec![0..3, 2..4]), ("short", vec![0..3]), ("none", vec![])]
    {
        let error = Placement::new(stages("cpu", &layers), 4).unwrap_err();
        expect(what, &error, PlacementInvalid, &["expected", "found"]);
    }
    let checkpoint = open_checkpoint(path("llama")).unwrap();
    for (what, engine, n_layers, names) in [
        ("unknown engine", "abacus", 4, &["abacus"][..]),
        ("another model's placement", "cpu", 5, &["4", "5"]),
    ] {
        let placement = Placement::new(stages(engine, &[0..n_layers]), n_layers).unwrap();
        let error = Model::load(&*checkpoint, &placement, &one_thread()).unwrap_err();
        expect(what, &error, PlacementInvalid, names);
    }
}

/// Layers that use others' keys and values are in one stage with these.
#[test]
fn cuts_that_part_layers() {
    let checkpoint = open_checkpoint(path("gemma4")).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let possible: Vec<_> = (0..=6).filter(|layer| arch.can_cut(*layer)).collect();
    assert_eq!(possible, [0, 1, 2, 6]);
    let error = ShardSpec::new(Arc::clone(&arch), 3..6, 64, 16, KvType::F16).unwrap_err();
    expect("a cut", &error, PlacementInvalid, &["layers", "before layer 3"]);
    assert!(error.hint().unwrap().contains("1 to 2"), "{error}");
    let error = Model::open(path("gemma4"), &one_thread().stages(2)).unwrap_err();
    expect("two stages", &error, PlacementInvalid, &["before layer 3"]);
    Model::open(path("gemma4"), &one_thread().stages(1)).unwrap();
}

/// Experts that loading copies cannot be let go.
#[test]
fn budgets_of_copied_experts() {
    let options = EngineOptions::default().threads(1).ffn_budget(ByteSize(1 << 30));
    let engine = skulk::engines::cpu(&options).unwrap();
    let error = Model::open(path("gpt_oss"), &LoadOptions::default().engine(engine)).unwrap_err();
    expect("a budget", &error, InvalidArgument, &["ffn_budget", "copies", "file"]);
}

/// Descriptions and parts of models have public fields: whatever they are changed to, loading says what is wrong.
#[test]
fn changed_descriptions() {
    type Change = fn(&mut ArchSpec);
    let changes: &[(&str, Change)] = &[
        ("layers", |a| a.layers.clear()),
        ("rotary", |a| a.ropes.clear()),
        ("rotary", |a| a.layers[1].attention_mut().unwrap().rope = Some(7)),
        ("rotary", |a| a.ropes[0].dim = 3),
        ("rotary", |a| a.ropes[0].dim = 1 << 20),
        ("theta", |a| a.ropes[0].theta = f64::NAN),
        ("rope factors", |a| a.ropes[0].scaling = RopeScaling::Factors(vec![])),
        ("key/value heads", |a| a.layers[0].attention_mut().unwrap().n_kv_heads = 0),
        ("key/value heads", |a| a.layers[0].attention_mut().unwrap().n_kv_heads = 3),
        ("attention heads", |a| a.layers[0].attention_mut().unwrap().n_heads = usize::MAX),
        ("head dimension", |a| a.layers[0].attention_mut().unwrap().head_dim = 0),
        ("window", |a| a.layers[0].attention_mut().unwrap().window = Some(Window::Sliding(0))),
        ("window", |a| a.layers[0].attention_mut().unwrap().window = Some(Window::Chunk(0))),
        ("scale", |a| a.layers[0].attention_mut().unwrap().scale = f32::INFINITY),
        ("soft-cap", |a| a.final_softcap = Some(0.0)),
        ("hidden size", |a| a.hidden_size = 0),
        ("hidden size", |a| a.hidden_size = usize::MAX),
        ("vocabulary", |a| a.vocab_size = usize::MAX),
        ("width", |a| a.layers[3].ffn.width = 0),
        ("context length", |a| a.context_length = 0),
        ("epsilon", |a| a.norm.eps = f32::NAN),
        ("embedding scale", |a| a.embedding_scale = 0.0),
        ("residual", |a| a.residual_scale = f32::NAN),
        ("logit scale", |a| a.logit_scale = -1.0),
        ("attention factor", |a| a.ropes[0].amplitude = 0.0),
        ("keys and values", |a| a.layers[1].attention_mut().unwrap().kv_of = Some(1)),
        ("keys and values", |a| a.layers[3].attention_mut().unwrap().kv_of = Some(usize::MAX)),
        ("limit", |a| a.layers[0].ffn.activation = Activation::ClampedGlu { alpha: 1.0, limit: 0.0 }),
        ("steepness", |a| {
            a.layers[0].ffn.activation = Activation::ClampedGlu { alpha: f32::NAN, limit: 1.0 }
        }),
    ];
    let checkpoint = open_checkpoint(path("llama")).unwrap();
    let arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
    let sound = ShardSpec::new(Arc::new(arch.clone()), 0..4, 64, 16, KvType::F16).unwrap();
    let engine = skulk::engines::cpu(&EngineOptions::default().threads(1)).unwrap();
    let refused = |spec: &ShardSpec| {
        let loaded = load_shard(&*engine, spec, &*checkpoint);
        let estimated = engine.estimate(spec, &*checkpoint).unwrap_err();
        assert_eq!(loaded.err().unwrap().kind(), estimated.kind());
        estimated
    };
    for (name, change) in changes {
        let mut changed = arch.clone();
        change(&mut changed);
        let mut spec = sound.clone();
        spec.arch = Arc::new(changed);
        let error = refused(&spec);
        expect(name, &error, ConfigInvalid, &[name, "expected", "found"]);
        let made = ShardSpec::new(spec.arch, 0..4, 64, 16, KvType::F16).unwrap_err();
        assert_eq!((made.kind(), made.message()), (error.kind(), error.message()));
    }
    type Part = (&'static str, fn(&mut ShardSpec), ErrorKind);
    let parts: &[Part] = &[
        ("layers", |s| s.layers = 0..5, PlacementInvalid),
        ("layers", |s| s.layers = 5..6, PlacementInvalid),
        ("layers", |s| s.layers = 2..2, PlacementInvalid),
        ("context", |s| s.context = 0, InvalidArgument),
        ("prefill_chunk", |s| s.max_rows = 0, InvalidArgument),
    ];
    for (name, change, kind) in parts {
        let mut spec = sound.clone();
        change(&mut spec);
        expect(name, &refused(&spec), *kind, &[name, "expected", "found"]);
    }
}

/// The same of what Gemma 3n has beside.
#[test]
fn changed_descriptions_of_streams() {
    type Change = fn(&mut ArchSpec);
    let changes: &[(&str, Change)] = &[
        ("residual streams", |a| a.layers.iter_mut().for_each(|l| l.streams.as_mut().unwrap().n = 0)),
        ("residual streams", |a| {
            a.layers.iter_mut().for_each(|l| l.streams.as_mut().unwrap().n = usize::MAX)
        }),
        ("residual streams", |a| a.layers[0].streams = None),
        ("residual streams", |a| a.layers[3].streams.as_mut().unwrap().n = 3),
        ("active residual stream", |a| a.layers[0].streams.as_mut().unwrap().active = 4),
        ("coefficients", |a| a.layers[0].streams.as_mut().unwrap().clip = Some(f32::NAN)),
        ("output", |a| a.layers[0].output_scale = true),
        ("way around attention", |a| a.layers[2].bypass = Some(0)),
        ("way around attention", |a| a.layers[2].bypass = Some(usize::MAX)),
        ("way around attention", |a| a.layers[2].attention_norm = false),
        ("way around attention", |a| a.layers[2].mixer = skulk::arch::Mixer::Nothing),
        ("cut-off", |a| a.layers[0].ffn.cutoff = Some(f32::NAN)),
        ("cut-off", |a| a.layers[0].ffn.activation = Activation::SquaredRelu),
        ("rows of inputs", |a| a.layers[0].input.as_mut().unwrap().rows = 0),
        ("rows of inputs", |a| a.layers[4].input.as_mut().unwrap().rows = 7),
    ];
    let checkpoint = open_checkpoint(path("gemma3n")).unwrap();
    let arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
    let sound = ShardSpec::new(Arc::new(arch.clone()), 0..6, 64, 16, KvType::F16).unwrap();
    let engine = skulk::engines::cpu(&EngineOptions::default().threads(1)).unwrap();
    for (name, change) in changes {
        let mut changed = arch.clone();
        change(&mut changed);
        let mut spec = sound.clone();
        spec.arch = Arc::new(changed);
        let error = load_shard(&*engine, &spec, &*checkpoint).err().unwrap();
        expect(name, &error, ConfigInvalid, &[name, "expected", "found"]);
        assert_eq!(engine.estimate(&spec, &*checkpoint).unwrap_err().message(), error.message());
    }
    // Of gates of which most are cut off none are left out besides.
    let options = EngineOptions::default().threads(1).ffn_top_features(16);
    let engine = skulk::engines::cpu(&options).unwrap();
    let error = load_shard(&*engine, &sound, &*checkpoint).err().unwrap();
    expect("the best features", &error, InvalidArgument, &["ffn_top_features", "cut off"]);
}

#[test]
fn generate_options() {
    let model = model("llama");
    let base = GenerateOptions::default;
    let sampled = |change: fn(Sampling) -> Sampling| base().sampling(change(Sampling::default()));
    let cases: Vec<(&str, GenerateOptions)> = vec![
        ("max_tokens", base().max_tokens(0)),
        ("temperature", sampled(|s| s.temperature(f32::NAN))),
        ("temperature", sampled(|s| s.temperature(-0.5))),
        ("temperature", sampled(|s| s.temperature(f32::INFINITY))),
        ("top_p", sampled(|s| s.top_p(0.0))),
        ("top_p", sampled(|s| s.top_p(1.5))),
        ("top_p", sampled(|s| s.top_p(f32::NAN))),
        ("top_k", sampled(|s| s.top_k(0))),
        ("min_p", sampled(|s| s.min_p(2.0))),
        ("min_p", sampled(|s| s.min_p(f32::NAN))),
        ("repetition_penalty", sampled(|s| s.repetition_penalty(f32::NAN))),
        ("repetition_penalty", sampled(|s| s.repetition_penalty(0.0))),
        ("presence_penalty", sampled(|s| s.presence_penalty(f32::NAN))),
        ("frequency_penalty", sampled(|s| s.frequency_penalty(f32::NEG_INFINITY))),
        ("logit_bias", sampled(|s| s.logit_bias(vec![(TokenId(2048), 1.0)]))),
        ("logit_bias", sampled(|s| s.logit_bias(vec![(TokenId(1), f32::NAN)]))),
        ("logit_bias", sampled(|s| s.logit_bias(vec![(TokenId(1), f32::INFINITY)]))),
        ("stop", base().stop(["fine", ""])),
        ("logprobs", base().logprobs(65)),
        ("logprobs", base().logprobs(usize::MAX)),
    ];
    for (field, options) in cases {
        let error = model.generate("Once", options).err().unwrap();
        expect(field, &error, InvalidArgument, &[&format!("field: {field}"), "expected", "found"]);
    }
    // At the edge of what is allowed.
    for options in [base().logprobs(64), sampled(|s| s.top_k(usize::MAX).temperature(f32::MAX))] {
        model.generate("Once", options.max_tokens(2)).unwrap().output().unwrap();
    }
    let session = model.session().unwrap();
    session.generate("Once", sampled(|s| s.temperature(f32::MIN_POSITIVE)).max_tokens(2)).unwrap();
}

#[test]
fn prompts() {
    let model = Model::open(path("llama"), &one_thread().context(16)).unwrap();
    let session = model.session().unwrap();
    let token = |id| Prompt::Tokens(vec![TokenId(id)]);
    for (prompt, names) in [
        (Prompt::Text(String::new()), ["prompt", "empty"]),
        (Prompt::Append(String::new()), ["prompt", "empty"]),
        (Prompt::Tokens(Vec::new()), ["prompt", "empty"]),
        (token(2048), ["prompt", "2048"]),
        (token(u32::MAX), ["prompt", "2048"]),
    ] {
        let error = session.generate(prompt, GenerateOptions::default()).err().unwrap();
        expect("prompt", &error, InvalidArgument, &names);
    }
    // What has a session of its own follows nothing.
    let (follows, options) = (|| Prompt::Append("Once".into()), GenerateOptions::default());
    let refused = |error| expect("append", &error, InvalidArgument, &["append", "follows"]);
    refused(model.generate(follows(), options.clone()).err().unwrap());
    refused(model.generate_batch([follows()], &options).remove(0).err().unwrap());
    refused(model.tune_speculation([follows()], &options).err().unwrap());
    refused(model.logits(follows(), &CancelToken::new()).err().unwrap());
    refused(model.divergence(&model, follows(), &CancelToken::new()).err().unwrap());
    for (len, max_tokens, needed) in
        [(16, None, 17), (40, None, 41), (10, Some(7), 17), (10, Some(usize::MAX), usize::MAX)]
    {
        let mut options = GenerateOptions::default();
        options.max_tokens = max_tokens;
        let error = session.generate(vec![TokenId(256); len], options).err().unwrap();
        expect("too long", &error, ContextOverflow, &["16", &len.to_string()]);
        let detail = error.detail::<ContextDetail>().unwrap();
        assert_eq!((detail.needed, detail.available), (needed, 16));
    }
    let fits = GenerateOptions::default().max_tokens(1).ignore_eos(true);
    session.generate(vec![TokenId(256); 15], fits).unwrap().output().unwrap();
}

#[test]
fn paths() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| Model::open(path, &one_thread()).unwrap_err();
    let missing = folder.path().join("missing.gguf");
    expect("missing file", &open(&missing), FileNotFound, &["missing.gguf"]);
    let at = folder.path().display().to_string();
    expect("empty folder", &open(folder.path()), FileNotFound, &[&at, "nothing"]);
    let notes = folder.path().join("notes.txt");
    std::fs::write(&notes, "no model").unwrap();
    expect("other folder", &open(folder.path()), FileNotFound, &["notes.txt"]);
    expect("other file", &open(&notes), CheckpointInvalid, &["notes.txt"]);
}

/// A copy of a fixture with one file changed.
fn broken(name: &str, file: &str, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) -> Error {
    let folder = copied(&path(name));
    let path = folder.path().join(file);
    match change(std::fs::read(&path).unwrap()) {
        Some(bytes) => std::fs::write(&path, bytes).unwrap(),
        None => std::fs::remove_file(&path).unwrap(),
    }
    let loaded = Model::open(folder.path(), &one_thread());
    loaded.err().unwrap_or_else(|| panic!("{name} with a broken {file} loads"))
}

/// A file of JSON, changed.
fn json_changed(bytes: &[u8], change: impl FnOnce(&mut Map<String, Value>)) -> Vec<u8> {
    let mut file: Map<String, Value> = serde_json::from_slice(bytes).unwrap();
    change(&mut file);
    serde_json::to_vec(&file).unwrap()
}

/// A copy of a fixture with one field of its config.json set; `null` removes it.
fn configured(name: &str, field: &str, value: &Value) -> Error {
    broken(name, "config.json", |bytes| {
        Some(json_changed(&bytes, |config| match value {
            Value::Null => drop(config.remove(field).unwrap()),
            value => drop(config.insert(field.into(), value.clone())),
        }))
    })
}

#[test]
fn configurations() {
    let rope = |kind: &str| json!({"rope_theta": 1e4, "rope_type": kind});
    let cases = [
        ("model_type", Value::Null, ConfigInvalid, "model_type"),
        ("model_type", json!("mamba"), ArchUnsupported, "mamba"),
        ("model_type", json!(7), ConfigInvalid, "model_type"),
        ("hidden_act", json!("relu6"), ArchUnsupported, "relu6"),
        ("rope_parameters", rope("axial"), ArchUnsupported, "axial"),
        ("rope_parameters", rope("yarn"), ConfigInvalid, "rope_parameters.factor"),
        ("rope_parameters", rope("linear"), ConfigInvalid, "rope_parameters.factor"),
        ("rope_parameters", json!([1]), ConfigInvalid, "rope_parameters"),
        ("rope_parameters", json!({"rope_theta": -1.0}), ConfigInvalid, "theta"),
        ("hidden_size", Value::Null, ConfigInvalid, "hidden_size"),
        ("hidden_size", json!("wide"), ConfigInvalid, "hidden_size"),
        ("hidden_size", json!(-1), ConfigInvalid, "hidden_size"),
        ("hidden_size", json!(0), ConfigInvalid, "hidden size"),
        ("hidden_size", json!(u64::MAX), ConfigInvalid, "hidden size"),
        ("hidden_size", json!(255), TensorShape, "embed_tokens"),
        ("num_hidden_layers", json!(1_000_000_000), ConfigInvalid, "num_hidden_layers"),
        ("num_hidden_layers", json!(0), ConfigInvalid, "layers"),
        ("num_hidden_layers", json!(5), TensorMissing, "layers.4."),
        ("num_attention_heads", json!(0), ConfigInvalid, "attention heads"),
        ("num_attention_heads", json!(3), ConfigInvalid, "key/value heads"),
        ("num_key_value_heads", json!(3), ConfigInvalid, "key/value heads"),
        ("num_key_value_heads", json!(0), ConfigInvalid, "key/value heads"),
        ("head_dim", json!(63), ConfigInvalid, "rotary dimension"),
        ("head_dim", json!(1u64 << 40), ConfigInvalid, "head dimension"),
        ("head_dim", json!(32), TensorShape, "q_proj"),
        ("intermediate_size", json!(1 << 28), TensorShape, "mlp"),
        ("vocab_size", json!(2049), TensorShape, "embed_tokens"),
        ("vocab_size", json!(1024), TensorShape, "embed_tokens"),
        ("max_position_embeddings", json!(0), ConfigInvalid, "context"),
        ("rms_norm_eps", json!(-1.0), ConfigInvalid, "norm"),
        ("tie_word_embeddings", json!(false), TensorMissing, "lm_head"),
        ("attention_bias", json!(true), TensorMissing, "bias"),
    ];
    for (field, value, kind, name) in cases {
        let error = configured("llama", field, &value);
        expect(&format!("{field} = {value}"), &error, kind, &[name]);
        assert!(error.context().iter().any(|(key, _)| *key == "file"), "{field} = {value}: {error}");
    }
    for (field, value, names) in [
        ("layer_types", json!(["sliding_attention"]), &["layer_types", "config.json"][..]),
        ("sliding_window", json!(0), &["window"]),
    ] {
        expect(field, &configured("gemma3", field, &value), ConfigInvalid, names);
    }
    let heads = |layer: &str, field: &str| json!({ layer: { field: 128 } });
    for (name, field, value, kind, found) in [
        ("gpt_oss", "swiglu_limit", json!(0), ConfigInvalid, "limit"),
        ("gpt_oss", "attention_bias", json!("yes"), ConfigInvalid, "attention_bias"),
        ("gpt_oss", "num_local_experts", Value::Null, ConfigInvalid, "num_experts"),
        ("gpt_oss", "num_local_experts", json!(5), TensorShape, "router"),
        ("gpt_oss", "intermediate_size", json!(129), TensorShape, "gate_up_proj"),
        ("gemma4", "num_kv_shared_layers", json!(6), ConfigInvalid, "num_kv_shared_layers"),
        ("gemma4", "num_kv_shared_layers", json!(5), ConfigInvalid, "num_kv_shared_layers"),
        ("gemma4", "num_kv_shared_layers", json!(1), TensorMissing, "layers.4."),
        ("gemma4", "hidden_size_per_layer_input", json!(34), TensorShape, "embed_tokens_per_layer"),
        ("gemma4", "hidden_size_per_layer_input", json!(33), ConfigInvalid, "inputs to layers"),
        ("gemma4", "vocab_size_per_layer_input", json!(7), ArchUnsupported, "vocab_size_per_layer_input"),
        ("gemma4", "use_bidirectional_attention", json!("all"), ArchUnsupported, "all"),
        ("gemma4", "per_layer_config", heads("2", "head_dim"), ConfigInvalid, "per_layer_config"),
        ("gemma4", "per_layer_config", heads("2", "rank"), ArchUnsupported, "rank"),
        ("gemma4", "per_layer_config", json!({ "2": 128 }), ConfigInvalid, "2"),
        ("gemma3n", "altup_num_inputs", json!(0), ConfigInvalid, "residual streams"),
        ("gemma3n", "altup_num_inputs", json!(1), ConfigInvalid, "residual streams"),
        ("gemma3n", "altup_num_inputs", json!(3), TensorShape, "altup.prediction_coefs"),
        ("gemma3n", "altup_num_inputs", json!(5), TensorMissing, "altup_projections.3"),
        ("gemma3n", "altup_active_idx", json!(4), ConfigInvalid, "active residual stream"),
        ("gemma3n", "laurel_rank", json!(17), TensorShape, "laurel.linear_left"),
        (
            "gemma3n",
            "activation_sparsity_pattern",
            json!([0.5]),
            ConfigInvalid,
            "activation_sparsity_pattern",
        ),
        ("gemma3n", "intermediate_size", json!([128]), ConfigInvalid, "intermediate_size"),
        ("gemma3n", "intermediate_size", json!([128, 128, 128, 128, 128, 127]), TensorShape, "layers.5.mlp"),
        ("gemma3n", "num_kv_shared_layers", json!(1), TensorMissing, "layers.4."),
        ("gemma3n", "vocab_size_per_layer_input", json!(2049), TensorShape, "embed_tokens_per_layer"),
        ("gemma4_moe", "num_experts", Value::Null, ConfigInvalid, "num_experts"),
        ("gemma4_moe", "top_k_experts", json!(9), ConfigInvalid, "experts for each row"),
        ("gemma4_moe", "moe_intermediate_size", json!(127), TensorShape, "gate_up_proj"),
    ] {
        expect(&format!("{name}, {field} = {value}"), &configured(name, field, &value), kind, &[found]);
    }
    for (what, text) in [("no JSON", "{"), ("no object", "[]"), ("empty", "")] {
        let error = broken("llama", "config.json", |_| Some(text.into()));
        expect(what, &error, ConfigInvalid, &["config.json"]);
    }
    let error = broken("llama", "config.json", |_| None);
    expect("no config.json", &error, FileNotFound, &["config.json"]);
}

/// Changes the entry of one tensor in a safetensors header; its data stays.
fn with_entry(tensor: &str, change: impl FnOnce(&mut String, &mut Value, u64)) -> Error {
    with_entry_of("llama", tensor, change)
}

fn with_entry_of(model: &str, tensor: &str, change: impl FnOnce(&mut String, &mut Value, u64)) -> Error {
    broken(model, WEIGHTS, |bytes| {
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = json_changed(&bytes[8..8 + len], |entries| {
            let (mut name, mut entry) = entries.remove_entry(tensor).unwrap();
            let elements = entry["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product();
            change(&mut name, &mut entry, elements);
            entries.insert(name, entry);
        });
        Some([&(header.len() as u64).to_le_bytes()[..], &header, &bytes[8 + len..]].concat())
    })
}

const WEIGHTS: &str = "model.safetensors";

#[test]
fn tensors() {
    for tensor in ["model.embed_tokens.weight", "model.layers.2.mlp.up_proj.weight", "model.norm.weight"] {
        let error = with_entry(tensor, |name, _, _| *name = "elsewhere".into());
        expect("missing", &error, TensorMissing, &[tensor, "file"]);

        let error = with_entry(tensor, |_, entry, elements| entry["shape"] = json!([1, elements]));
        expect("flat", &error, TensorShape, &[tensor, "expected", "found"]);
        assert!(error.detail::<ShapeDetail>().is_some(), "{error}");

        // Four halves are one integer of eight bytes.
        let error = with_entry(tensor, |_, entry, elements| {
            entry["shape"] = json!([elements / 4]);
            entry["dtype"] = json!("I64");
        });
        expect("I64", &error, DTypeUnsupported, &[tensor, "I64"]);
    }
    let error = broken("llama", WEIGHTS, |bytes| Some(bytes[..bytes.len() - 100].to_vec()));
    expect("cut off", &error, CheckpointTruncated, &[WEIGHTS]);
}

/// What Gemma 3n has beside other families, of other shapes, and missing.
#[test]
fn tensors_of_streams() {
    let layer = [
        "altup.router_norm.weight",
        "altup.modality_router.weight",
        "altup.prediction_coefs.weight",
        "altup.correction_coefs.weight",
        "altup.correct_output_scale",
        "laurel.linear_left.weight",
        "laurel.linear_right.weight",
        "laurel.post_laurel_norm.weight",
        "per_layer_input_gate.weight",
        "per_layer_projection.weight",
    ];
    let ends = [
        "altup_projections.2.weight",
        "altup_unembed_projections.0.weight",
        "embed_tokens_per_layer.weight",
        "per_layer_model_projection.weight",
        "per_layer_projection_norm.weight",
    ];
    let tensors = layer.iter().map(|name| format!("model.layers.1.{name}"));
    for tensor in tensors.chain(ends.iter().map(|name| format!("model.{name}"))) {
        let error = with_entry_of("gemma3n", &tensor, |name, _, _| *name = "elsewhere".into());
        expect("missing", &error, TensorMissing, &[&tensor, "file"]);
        let error = with_entry_of("gemma3n", &tensor, |_, entry, n| entry["shape"] = json!([n / 2, 1, 2]));
        expect("another shape", &error, TensorShape, &[&tensor, "expected", "found"]);
        let error = with_entry_of("gemma3n", &tensor, |_, entry, n| {
            entry["shape"] = json!([n / 4]);
            entry["dtype"] = json!("I64");
        });
        expect("I64", &error, DTypeUnsupported, &[&tensor, "I64"]);
    }
}

#[test]
fn tokenizers() {
    const FILE: &str = "tokenizer.json";
    for (what, text) in
        [("missing", None), ("empty", Some("")), ("broken", Some("{\"model\":")), ("other", Some("{}"))]
    {
        let error = broken("llama", FILE, |_| text.map(Into::into));
        expect(what, &error, TokenizerInvalid, &[FILE]);
    }
    let error = broken("llama", FILE, |bytes| {
        Some(json_changed(&bytes, |tokenizer| {
            let added = tokenizer["added_tokens"].as_array_mut().unwrap();
            let mut last = added.last().unwrap().clone();
            last["id"] = json!(5000);
            last["content"] = json!("<|more|>");
            added.push(last);
        }))
    });
    expect("larger", &error, TokenizerInvalid, &["2048", "file"]);
}

#[test]
fn gguf_files() {
    let folder = tempfile::tempdir().unwrap();
    let open = |gguf: GgufWriter| {
        let path = folder.path().join("made.gguf");
        std::fs::write(&path, gguf.build()).unwrap();
        Model::open(&path, &one_thread()).unwrap_err()
    };
    let sizes = || {
        GgufWriter::new()
            .str("general.architecture", "llama")
            .u32("llama.embedding_length", 32)
            .u32("llama.block_count", 1)
            .u32("llama.attention.head_count", 2)
            .u32("llama.context_length", 64)
            .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    };
    let embedded = |gguf: GgufWriter| gguf.tensor("token_embd.weight", types::F16, &[4, 32], &[0; 256]);
    let (new, arch, ffn) = (GgufWriter::new, "general.architecture", "llama.feed_forward_length");
    let whole = || sizes().u32(ffn, 64);
    let cases: [(&str, GgufWriter, ErrorKind, &str); 9] = [
        ("no metadata", new(), ConfigInvalid, arch),
        ("unknown", new().str(arch, "rwkv9"), ArchUnsupported, "rwkv9"),
        ("no name", new().u32(arch, 1), ConfigInvalid, arch),
        ("no sizes", new().str(arch, "llama"), ConfigInvalid, "llama.embedding_length"),
        ("no width", sizes(), ConfigInvalid, ffn),
        ("no tensors", whole(), ConfigInvalid, "llama.vocab_size"),
        ("one tensor", embedded(whole()), TensorMissing, "output_norm.weight"),
        ("unused experts", whole().u32("llama.expert_count", 8), ConfigInvalid, "llama.expert_used_count"),
        ("widths of other layers", sizes().i32s(ffn, &[64, 64]), ConfigInvalid, ffn),
    ];
    for (what, gguf, kind, name) in cases {
        expect(what, &open(gguf), kind, &[name, "made.gguf"]);
    }
}

/// What a layer's key-values and tensors say of it must be all that it has, and what belongs together is there together:
/// else logits are others.
#[test]
fn gguf_files_that_lack_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let open = |family: &str, changed: &dyn Fn(&mut Vec<u8>)| {
        let from = fixtures::path("").join(format!("../gguf/families/{family}.gguf"));
        let mut bytes = std::fs::read(from).unwrap();
        changed(&mut bytes);
        let path = folder.path().join("made.gguf");
        std::fs::write(&path, bytes).unwrap();
        Model::open(&path, &one_thread()).map(drop).unwrap_err()
    };
    // The place behind a name, whose length is before it.
    let behind = |bytes: &[u8], name: &str| {
        let whole = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
        let at = bytes.windows(whole.len()).position(|window| window == whole);
        at.unwrap_or_else(|| panic!("no {name}")) + whole.len()
    };
    for (family, name, kind, told) in [
        ("glm4", "blk.0.attn_q.bias", TensorMissing, "blk.0.attn_q.bias"),
        ("glm4", "blk.1.attn_v.bias", TensorMissing, "blk.1.attn_v.bias"),
        ("glm4_moe", "blk.0.attn_q_norm.weight", TensorMissing, "blk.0.attn_q_norm.weight"),
        ("step3p5", "blk.1.attn_q_norm.weight", TensorMissing, "blk.1.attn_q_norm.weight"),
        ("glm4_moe", "blk.2.exp_probs_b.bias", TensorMissing, "blk.2.exp_probs_b.bias"),
        ("gpt_oss_mxfp4", "blk.1.attn_output.bias", TensorMissing, "blk.1.attn_output.bias"),
        ("gpt_oss_mxfp4", "output.weight", TensorMissing, "output.weight"),
        ("olmo3", "output.weight", TensorMissing, "output.weight"),
        ("glm4_moe", "glm4moe.expert_shared_count", CheckpointInvalid, "_shexp.weight"),
        ("phi3", "rope_factors_long.weight", TensorMissing, "rope_factors_long.weight"),
    ] {
        let error = open(family, &|bytes| {
            let end = behind(bytes, name);
            bytes[end - 2] = b'~';
        });
        expect(&format!("{family} without {name}"), &error, kind, &[told, "made.gguf"]);
    }
    let error = open("glm4", &|bytes| {
        let end = behind(bytes, "glm4.block_count");
        // Its type, then its number.
        bytes[end + 4] -= 1;
    });
    expect("a layer more", &error, CheckpointInvalid, &["glm4.block_count", "blk.", "made.gguf"]);
}
