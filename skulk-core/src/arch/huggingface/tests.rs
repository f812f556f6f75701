//! Are configurations read as they are meant, and impossible ones refused?

use serde_json::json;

use super::*;
use crate::arch::{ExpertGroups, RopeScaling};
use crate::error::ErrorKind;

/// A fixture's configuration where fields have other values, given as `section.field`.
fn configured(model: &str, fields: &[(&str, Value)]) -> Value {
    let file = format!("{}/../tests/fixtures/models/{model}/config.json", env!("CARGO_MANIFEST_DIR"));
    let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for (field, value) in fields {
        let place = field.split('.').fold(&mut config, |place, key| &mut place[key]);
        *place = value.clone();
    }
    config
}

/// What that describes.
fn described(model: &str, fields: &[(&str, Value)]) -> Result<ArchSpec> {
    let spec = spec(&configured(model, fields), &"config.json".into(), String::new())?;
    spec.check()?;
    Ok(spec)
}

/// What a folder of this configuration is that has tensors of these names, each another.
fn stored(config: &Value, names: &[&str]) -> ArchSpec {
    let folder = tempfile::tempdir().unwrap();
    let entry = |at: usize| json!({ "dtype": "F32", "shape": [1], "data_offsets": [4 * at, 4 * at + 4] });
    let header = names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), entry(at))).collect();
    let header = Value::Object(header).to_string();
    let length = (header.len() as u64).to_le_bytes();
    let weights: Vec<u8> = (0..names.len()).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let file = [&length[..], header.as_bytes(), &weights].concat();
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    ArchSpec::from_checkpoint(&*crate::weights::open_checkpoint(folder.path()).unwrap()).unwrap()
}

/// A head that is stored and another matrix than the table is used, whatever is said.
#[test]
fn heads_that_are_stored_are_used() {
    const TIED: &str = "tie_word_embeddings";
    let [table, head] = ["model.embed_tokens.weight", "lm_head.weight"];
    for model in ["ministral3", "gemma3", "smollm3"] {
        let is_tied =
            |said: Value, names: &[&str]| stored(&configured(model, &[(TIED, said)]), names).tied_embeddings;
        for said in [Value::Null, json!(true)] {
            let found = [&[table][..], &[table, head]].map(|names| is_tied(said.clone(), names));
            assert_eq!(found, [true, false], "{model}, {said}");
        }
        assert!(!is_tied(json!(false), &[table]), "{model}");
    }
    let text = configured("ministral3", &[(TIED, Value::Null)]);
    let names = ["language_model.model.embed_tokens.weight", "language_model.lm_head.weight"];
    for said in [Value::Null, json!(true)] {
        let mut config = json!({ "model_type": "mistral3", "text_config": text, TIED: said });
        let found = [&names[..1], &names].map(|names| stored(&config, names).tied_embeddings);
        assert_eq!(found, [true, false], "{said}");
        config["text_config"][TIED] = json!(true);
        assert!(stored(&config, &names[..1]).tied_embeddings);
    }
}

/// Models that transformers saves without their heads, as embeddings of texts, have no word before their tensors' names.
#[test]
fn decoders_by_themselves_have_no_prefix() {
    let config = configured("qwen3_vl", &[]);
    for (table, norm) in [
        ("embed_tokens.weight", "norm.weight"),
        ("model.embed_tokens.weight", "model.norm.weight"),
        ("norm.weight", "model.norm.weight"),
    ] {
        assert_eq!(stored(&config, &[table]).names.output_norm(), norm);
    }
}

/// As in transformers, whose Gemma 3 has neither biases in feed-forward blocks nor heads that are rotated in part.
#[test]
fn gemma_3_has_no_variants() {
    for (field, value) in [("mlp_bias", json!(true)), ("partial_rotary_factor", json!(0.5))] {
        for (model, counts) in [("gemma3", false), ("llama", true)] {
            let plain = described(model, &[]).unwrap();
            let changed = described(model, &[(field, value.clone())]).unwrap();
            assert_eq!(changed != plain, counts, "{model} {field}");
        }
    }
}

/// A model, a field of its configuration, a value that cannot be or is not known, and what the message names.
#[test]
fn impossible_and_unknown_values_are_told() {
    use ErrorKind::{ArchUnsupported, ConfigInvalid};
    let cases = [
        ("phi3", "rope_parameters.short_factor", json!([1.0, 2.0]), ConfigInvalid, "rope factors"),
        ("phi3", "rope_parameters.long_factor", json!(["a"]), ConfigInvalid, "long_factor"),
        ("phi3", "rope_parameters.rope_type", json!("axial"), ArchUnsupported, "axial"),
        ("phi3", "rope_parameters.partial_rotary_factor", json!(1.5), ConfigInvalid, "partial_rotary_factor"),
        ("ministral3", "rope_parameters.factor", json!(0), ConfigInvalid, "factor"),
        (
            "ministral3",
            "rope_parameters.original_max_position_embeddings",
            Value::Null,
            ConfigInvalid,
            "original",
        ),
        ("ministral3", "rope_parameters.rope_theta", json!(1.0), ConfigInvalid, "theta"),
        ("smollm3", "no_rope_layers", json!([1, 1]), ConfigInvalid, "no_rope_layers"),
        ("smollm3", "no_rope_layers", json!([1, 1, 2, 0]), ConfigInvalid, "no_rope_layers"),
        ("nemotron_h", "mlp_bias", json!(true), ArchUnsupported, "mlp_bias"),
        ("nemotron_h", "mamba_hidden_act", json!("gelu"), ArchUnsupported, "mamba_hidden_act"),
        ("nemotron_h", "moe_latent_size", json!(8), ArchUnsupported, "leave it out"),
        ("step3p5", "rope_theta", Value::Null, ConfigInvalid, "rope_theta"),
        ("granite", "logits_scaling", json!(0), ConfigInvalid, "logit scale"),
        ("granite", "residual_multiplier", json!(-1.0), ConfigInvalid, "residual"),
        ("granite", "attention_multiplier", json!(0), ConfigInvalid, "attention scale"),
        ("smollm3", "intermediate_size", json!(0), ConfigInvalid, "width"),
        ("olmo3", "intermediate_size", json!(0), ConfigInvalid, "width"),
        ("glm4_moe", "n_group", json!(3), ConfigInvalid, "groups"),
        ("glm4_moe", "n_group", json!(8), ConfigInvalid, "groups"),
        ("glm4_moe", "topk_group", json!(3), ConfigInvalid, "groups"),
        ("glm4_moe", "num_experts_per_tok", json!(5), ConfigInvalid, "experts for each row"),
        ("glm4_moe", "scoring_func", json!("softmax"), ArchUnsupported, "scoring_func"),
        ("glm4_moe", "n_routed_experts", Value::Null, ConfigInvalid, "n_routed_experts"),
        ("glm4_moe", "routed_scaling_factor", json!(0), ConfigInvalid, "scale"),
        ("deepseek_v3", "kv_lora_rank", Value::Null, ConfigInvalid, "kv_lora_rank"),
        ("deepseek_v3", "kv_lora_rank", json!(0), ConfigInvalid, "latent vector"),
        ("deepseek_v3", "v_head_dim", json!(1 << 20), ConfigInvalid, "elements of values"),
        ("deepseek_v3", "qk_rope_head_dim", json!(7), ConfigInvalid, "rotary dimension"),
        ("deepseek_v3", "topk_method", json!("greedy"), ArchUnsupported, "topk_method"),
        ("deepseek_v3", "moe_layer_freq", json!(2), ArchUnsupported, "moe_layer_freq"),
        ("glm4_moe_lite", "q_lora_rank", json!(0), ConfigInvalid, "latent vector of queries"),
        ("glm4_moe_lite", "mlp_layer_types", json!(["dense"]), ConfigInvalid, "mlp_layer_types"),
        ("glm4_moe_lite", "mlp_layer_types", json!(["dense", "x", "sparse"]), ConfigInvalid, "mlp_layer"),
        ("glm_moe_dsa", "index_topk", json!(0), ConfigInvalid, "positions that a row sees"),
        ("glm_moe_dsa", "index_head_dim", json!(4), ConfigInvalid, "indexer"),
        ("glm_moe_dsa", "q_lora_rank", Value::Null, ConfigInvalid, "indexer"),
        ("glm_moe_dsa", "indexer_types", json!(["full"]), ConfigInvalid, "indexer_types"),
        (
            "glm_moe_dsa",
            "indexer_types",
            json!(["shared", "full", "full", "full"]),
            ConfigInvalid,
            "indexer_types",
        ),
        ("olmo3", "layer_types", json!(["full_attention"]), ConfigInvalid, "layer_types"),
        ("minimax_m2", "scoring_func", json!("softmax"), ArchUnsupported, "scoring_func"),
        ("minimax_m2", "rotary_dim", json!(64), ConfigInvalid, "rotary dimension"),
        ("minimax_m2", "shared_intermediate_size", json!(64), ArchUnsupported, "shared_intermediate_size"),
        ("qwen3_5", "linear_num_key_heads", json!(3), ConfigInvalid, "key heads"),
        ("qwen3_5", "linear_value_head_dim", json!(0), ConfigInvalid, "value dimension"),
        ("qwen3_5", "linear_num_value_heads", Value::Null, ConfigInvalid, "linear_num_value_heads"),
        ("qwen3_5", "layer_types", json!(["full_attention"]), ConfigInvalid, "layer_types"),
        ("qwen3_next", "linear_conv_kernel_dim", json!(9), ConfigInvalid, "convolution"),
        ("qwen3_next", "shared_expert_intermediate_size", Value::Null, ConfigInvalid, "shared_expert"),
        ("granitemoehybrid", "mamba_n_groups", json!(3), ConfigInvalid, "key heads"),
        ("granitemoehybrid", "time_step_limit", json!([1.0]), ConfigInvalid, "time_step_limit"),
        ("granitemoehybrid", "time_step_limit", json!([1.0, 0.5]), ConfigInvalid, "time steps"),
        ("granitemoehybrid", "mamba_proj_bias", json!(true), ArchUnsupported, "mamba_proj_bias"),
        ("granitemoehybrid", "position_embedding_type", json!("alibi"), ArchUnsupported, "position"),
        ("granitemoehybrid", "layer_types", json!(["mamba"]), ConfigInvalid, "layer_types"),
        ("step3p5", "rope_theta", json!([1e6]), ConfigInvalid, "rope_theta"),
        ("step3p5", "layer_types", json!(["full_attention"]), ConfigInvalid, "layer_types"),
        ("step3p5", "layer_types", json!(["a", "lightning", "a", "a"]), ArchUnsupported, "layer_types"),
        ("step3p5", "moe_layers_enum", json!("1,x"), ConfigInvalid, "moe_layers_enum"),
        ("step3p5", "sink", json!(true), ArchUnsupported, "sink"),
        ("step3p5", "swiglu_limits", json!([1.0]), ConfigInvalid, "swiglu_limits"),
        ("kimi_linear", "linear_attn_config.kda_layers", json!([1, 2]), ConfigInvalid, "layer 3"),
        ("kimi_linear", "linear_attn_config.kda_layers", json!([1, 2, 3, 4]), ConfigInvalid, "layer 4"),
        ("kimi_linear", "linear_attn_config.head_dim", json!(0), ConfigInvalid, "key dimension"),
        ("kimi_linear", "mla_use_nope", json!(false), ArchUnsupported, "mla_use_nope"),
        ("kimi_linear", "q_lora_rank", json!(32), ArchUnsupported, "leave it out"),
        ("kimi_linear", "num_experts", Value::Null, ConfigInvalid, "num_experts"),
        ("kimi_linear", "moe_router_activation_func", json!("softmax"), ArchUnsupported, "softmax"),
        ("llama4", "attention_chunk_size", json!(0), ConfigInvalid, "sliding window"),
        ("llama4", "layer_types", json!(["full_attention"]), ConfigInvalid, "layer_types"),
        ("llama4", "no_rope_layers", json!([1]), ConfigInvalid, "no_rope_layers"),
        ("llama4", "moe_layers", json!("1"), ConfigInvalid, "moe_layers"),
        ("llama4", "floor_scale", json!(0), ConfigInvalid, "queries' growth"),
        ("llama4", "attn_temperature_tuning", json!("on"), ConfigInvalid, "attn_temperature_tuning"),
        ("llama4", "intermediate_size_mlp", Value::Null, ConfigInvalid, "intermediate_size_mlp"),
        ("gemma3n", "altup_num_inputs", json!(0), ConfigInvalid, "residual streams"),
        ("gemma3n", "altup_num_inputs", json!(1), ConfigInvalid, "residual streams"),
        ("gemma3n", "altup_num_inputs", json!(1u64 << 40), ConfigInvalid, "residual streams"),
        ("gemma3n", "altup_num_inputs", json!("4"), ConfigInvalid, "altup_num_inputs"),
        ("gemma3n", "altup_active_idx", json!(4), ConfigInvalid, "active residual stream"),
        ("gemma3n", "altup_active_idx", json!(-1), ConfigInvalid, "altup_active_idx"),
        ("gemma3n", "altup_coef_clip", json!(0), ConfigInvalid, "coefficients"),
        ("gemma3n", "altup_coef_clip", json!(-120.0), ConfigInvalid, "coefficients"),
        ("gemma3n", "altup_correct_scale", json!(1), ConfigInvalid, "altup_correct_scale"),
        ("gemma3n", "laurel_rank", json!(0), ConfigInvalid, "way around attention"),
        ("gemma3n", "laurel_rank", json!(1u64 << 40), ConfigInvalid, "way around attention"),
        ("gemma3n", "activation_sparsity_pattern", json!([0.95]), ConfigInvalid, "activation_sparsity"),
        ("gemma3n", "activation_sparsity_pattern", json!(0.95), ConfigInvalid, "activation_sparsity"),
        ("gemma3n", "activation_sparsity_pattern", json!([0, 0, 0, 0, 0, 1]), ConfigInvalid, "found 1"),
        ("gemma3n", "activation_sparsity_pattern", json!([0, 0, 0, 0, 0, -0.5]), ConfigInvalid, "-0.5"),
        ("gemma3n", "activation_sparsity_pattern", json!([0, 0, 0, 0, 0, "x"]), ConfigInvalid, "numbers"),
        ("gemma3n", "intermediate_size", json!([128, 128]), ConfigInvalid, "intermediate_size"),
        ("gemma3n", "intermediate_size", json!([]), ConfigInvalid, "intermediate_size"),
        ("gemma3n", "intermediate_size", json!([1, 2, 3, 4, 5, "6"]), ConfigInvalid, "intermediate_size"),
        ("gemma3n", "intermediate_size", json!([1, 2, 3, 4, 5, 0]), ConfigInvalid, "width"),
        ("llama", "intermediate_size", json!([1, 2, 3, 4]), ConfigInvalid, "intermediate_size"),
        ("gemma3n", "layer_types", json!(["full_attention"]), ConfigInvalid, "layer_types"),
        ("gemma3n", "num_kv_shared_layers", json!(6), ConfigInvalid, "num_kv_shared_layers"),
        ("gemma3n", "num_kv_shared_layers", json!(5), ConfigInvalid, "num_kv_shared_layers"),
        ("gemma3n", "num_kv_shared_layers", Value::Null, ConfigInvalid, "num_kv_shared_layers"),
        ("gemma3n", "vocab_size_per_layer_input", json!(0), ConfigInvalid, "rows of inputs"),
        ("gemma3n", "hidden_size_per_layer_input", json!(33), ConfigInvalid, "inputs to layers"),
        ("gemma3n", "final_logit_softcapping", json!(0), ConfigInvalid, "soft-cap"),
    ];
    for (model, field, value, kind, word) in cases {
        let error = described(model, &[(field, value.clone())]).err();
        let error = error.unwrap_or_else(|| panic!("{model} {field} {value} was accepted"));
        assert_eq!(error.kind(), kind, "{model} {field}: {error}");
        assert!(error.to_string().contains(word) && error.hint().is_some(), "{model} {field}: {error}");
    }
}

#[test]
fn deepseek_scales_scores_where_yarn_stretches() {
    let yarn = json!({
        "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
        "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
    });
    let fields = [("rope_parameters", Value::Null), ("rope_scaling", yarn), ("rope_theta", json!(10000))];
    let spec = described("deepseek_v3", &fields).unwrap();
    // (0.1 · ln 40 + 1)² / √48
    assert!((spec.layers[0].attention().unwrap().scale - 0.270_467).abs() < 1e-6);
    assert_eq!(spec.ropes[0].amplitude, 1.0);
    let plain = described("deepseek_v3", &[]).unwrap();
    assert!((plain.layers[0].attention().unwrap().scale - 0.144_337_57).abs() < 1e-7);
}

/// As transformers does it: the model's own statement, the scaling's, all positions.
#[test]
fn trained_positions_are_stated_in_three_places() {
    const STATED: &str = "original_max_position_embeddings";
    let described = |own: Value, of_scaling: Value| {
        let yarn = json!({"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, STATED: of_scaling});
        let most = ("max_position_embeddings", json!(4096));
        let spec = described("llama", &[most, (STATED, own), ("rope_parameters", yarn)]).unwrap();
        match spec.ropes[0].scaling {
            RopeScaling::Yarn { factor, original_context, .. } => (factor, original_context),
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(described(Value::Null, Value::Null), (4.0, 4096.0));
    assert_eq!(described(Value::Null, json!(1024)), (4.0, 1024.0));
    assert_eq!(described(json!(512), json!(1024)), (4.0, 512.0));
}

/// As transformers does it: hubs' words count beside those of transformers 5, of scalings before them.
#[test]
fn both_spellings_of_rotary_embeddings_go_together() {
    let yarn = json!({ "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256 });
    let hub = [("rope_parameters", Value::Null), ("rope_theta", json!(1e6)), ("rope_scaling", yarn.clone())];
    let expected = described("llama", &hub).unwrap();
    assert!(matches!(expected.ropes[0].scaling, RopeScaling::Yarn { .. }));
    for (parameters, theta) in [
        (json!({ "rope_type": "default", "rope_theta": 1e6 }), Value::Null),
        (json!({ "rope_type": "default" }), json!(1e6)),
        (json!({ "rope_type": "linear", "factor": 2.0, "rope_theta": 1e6 }), Value::Null),
    ] {
        let fields = [("rope_parameters", parameters), ("rope_theta", theta), ("rope_scaling", yarn.clone())];
        assert_eq!(described("llama", &fields).unwrap(), expected);
    }
    let base = [("rope_parameters", json!({ "rope_type": "default" })), ("rope_theta", json!(1e6))];
    for nothing in [Value::Null, json!({})] {
        let fields = [&base[..], &[("rope_scaling", nothing)]].concat();
        let rope = &described("llama", &fields).unwrap().ropes[0];
        assert_eq!((rope.theta, &rope.scaling), (1e6, &RopeScaling::None));
    }
    // Of Gemma 3, scalings are about layers without a window.
    let linear = ("rope_scaling", json!({ "rope_type": "linear", "factor": 8.0 }));
    let spec = described("gemma3", &[linear]).unwrap();
    let scalings: Vec<_> = spec.ropes.iter().map(|rope| (rope.theta, &rope.scaling)).collect();
    assert_eq!(scalings, [(1e6, &RopeScaling::Linear(8.0)), (1e4, &RopeScaling::None)]);
}

/// Dynamic scaling changes what is beyond trained positions, which no context has.
#[test]
fn dynamic_scaling_is_none_within_trained_positions() {
    let scaled = |rope: Value| described("llama", &[("rope_parameters", rope)]).unwrap();
    let plain = scaled(json!({ "rope_type": "default", "rope_theta": 1e4 }));
    assert_eq!(scaled(json!({ "rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4 })), plain);
    let hub =
        [("rope_parameters", Value::Null), ("rope_scaling", json!({ "type": "dynamic", "factor": 2.0 }))];
    assert_eq!(described("llama", &hub).unwrap(), plain);
}

/// As transformers does it: in the section of the rotary embedding, or beside it.
#[test]
fn rope_bases_are_stated_in_two_places() {
    let base = |model: &str, fields: &[(&str, Value)]| described(model, fields).unwrap().ropes[0].theta;
    let beside = |section: Value| {
        [("rope_theta", json!(5e5)), ("rope_parameters", section), ("partial_rotary_factor", json!(0.5))]
    };
    for model in ["qwen3_5", "llama"] {
        assert_eq!(base(model, &beside(json!({"rope_type": "default"}))), 5e5, "{model}");
        assert_eq!(base(model, &beside(json!({"rope_type": "default", "rope_theta": 2e4}))), 2e4, "{model}");
    }
    let in_scaling = json!({"type": "linear", "factor": 2.0, "rope_theta": 3e4});
    let fields =
        [("rope_parameters", Value::Null), ("rope_scaling", in_scaling), ("rope_theta", Value::Null)];
    assert_eq!(base("llama", &fields), 3e4);
}

/// What transformers' own defaults are is left out of what it writes.
#[test]
fn what_is_left_out_is_as_in_transformers() {
    let without = |model: &str, fields: &[&str]| {
        let fields: Vec<_> = fields.iter().map(|field| (*field, Value::Null)).collect();
        described(model, &fields).unwrap()
    };
    let whole = |model: &str| described(model, &[]).unwrap();
    for (model, fields) in [
        ("deepseek_v3", &["n_shared_experts", "routed_scaling_factor"][..]),
        ("deepseek_v32", &["n_shared_experts", "routed_scaling_factor"]),
        ("glm4_moe_lite", &["n_shared_experts", "routed_scaling_factor", "n_group", "topk_group"]),
        ("glm_moe_dsa", &["n_shared_experts", "routed_scaling_factor", "n_group", "topk_group"]),
        ("glm4", &["attention_bias", "rope_parameters.partial_rotary_factor"]),
        ("glm4_moe", &["n_shared_experts", "first_k_dense_replace", "rope_parameters.partial_rotary_factor"]),
        ("qwen3_next", &["rope_parameters.partial_rotary_factor"]),
        ("granitemoehybrid", &["num_local_experts", "position_embedding_type"]),
        ("nemotron_h_moe", &["n_shared_experts", "n_group", "topk_group", "mlp_bias", "mamba_hidden_act"]),
    ] {
        assert_eq!(without(model, fields), whole(model), "{model}");
    }
    let groups = |spec: ArchSpec| spec.layers.iter().find_map(|layer| layer.ffn.experts?.groups);
    let of_eight = Some(ExpertGroups { n_groups: 8, n_used: 4 });
    let many = [("n_routed_experts", json!(16)), ("n_group", Value::Null), ("topk_group", Value::Null)];
    assert_eq!(groups(described("deepseek_v3", &many).unwrap()), of_eight);
    let scale = |spec: ArchSpec| spec.layers.iter().find_map(|layer| Some(layer.ffn.experts?.scale));
    assert_eq!(scale(without("glm4_moe", &["routed_scaling_factor"])), Some(1.0));
}

#[test]
fn queries_may_have_no_latent_vector() {
    let spec = described("deepseek_v3", &[("q_lora_rank", Value::Null)]).unwrap();
    let names: Vec<String> = spec.names.weights(1, &spec.layers[1]).collect();
    assert!(names.contains(&"layers.1.self_attn.q_proj.weight".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("q_a_")));
}

/// Hubs write which layers choose positions as letters, or as how often they do.
#[test]
fn layers_that_choose_are_spelt_in_three_ways() {
    let types = ("indexer_types", Value::Null);
    let listed = described("glm_moe_dsa", &[]).unwrap();
    let letters = ("index_topk_pattern", json!("FFSF"));
    assert_eq!(described("glm_moe_dsa", &[types.clone(), letters]).unwrap(), listed);
    let often = [("index_topk_freq", json!(2)), ("index_skip_topk_offset", json!(2))];
    let spec = described("glm_moe_dsa", &[std::slice::from_ref(&types), &often[..]].concat()).unwrap();
    let of = |spec: &ArchSpec| -> Vec<_> {
        spec.layers.iter().map(|layer| layer.attention().unwrap().latent.unwrap().index.unwrap().of).collect()
    };
    assert_eq!((of(&listed), of(&spec)), (vec![None, None, Some(1), None], vec![None, None, Some(1), None]));
    assert_eq!(of(&described("glm_moe_dsa", &[types]).unwrap()), [None; 4]);
    assert!(!listed.can_cut(2) && listed.can_cut(1) && listed.can_cut(3));
}

/// transformers 5 goes by a wrapper's word, older versions went by its text part's: one of both is enough.
#[test]
fn wrappers_tie_or_their_texts_do() {
    let tied = |of_text: Value, of_root: Value| {
        let fields = [("text_config.tie_word_embeddings", of_text), ("tie_word_embeddings", of_root)];
        described("qwen3_vl", &fields).unwrap().tied_embeddings
    };
    assert!(tied(json!(false), json!(true)) && tied(json!(true), json!(false)));
    assert!(tied(json!(true), Value::Null) && tied(Value::Null, json!(true)));
    assert!(!tied(json!(false), json!(false)) && !tied(Value::Null, json!(false)));
    assert!(!tied(json!(false), Value::Null) && !tied(Value::Null, Value::Null));
}

/// transformers 5 writes of Kimi Linear what hubs have in a section without it.
#[test]
fn states_of_kimi_linear_are_spelt_in_two_ways() {
    let (listed, section) = (described("kimi_linear", &[]).unwrap(), "linear_attn_config");
    assert_eq!(described("kimi_linear", &[(section, Value::Null)]).unwrap(), listed);
    assert_eq!(described("kimi_linear", &[("layer_types", Value::Null)]).unwrap(), listed);
    let fields = [(section, Value::Null), ("layer_types", json!(["linear_attention"]))];
    let error = described("kimi_linear", &fields).unwrap_err();
    assert!(error.to_string().contains("layer_types"), "{error}");
    let fields = [(section, Value::Null), ("linear_num_heads", Value::Null)];
    let error = described("kimi_linear", &fields).unwrap_err();
    assert!(error.to_string().contains(section), "{error}");
}

/// Hubs wrap Gemma 3n's text, and leave out what the published models have.
#[test]
fn gemma_3n_is_described_in_short_too() {
    let file = "config.json".into();
    let text = json!({
        "model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": 16384, "vocab_size": 262400,
        "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2,
    });
    let spec = spec(&json!({ "model_type": "gemma3n", "text_config": text }), &file, String::new()).unwrap();
    spec.check().unwrap();
    let streams = spec.streams().unwrap();
    assert_eq!((streams.n, streams.active, streams.clip, streams.scaled), (4, 0, Some(120.0), true));
    assert_eq!((spec.row_width(), spec.context_length, spec.final_softcap), (8192, 32_768, Some(30.0)));
    let input = spec.inputs().unwrap();
    assert_eq!((input.width, input.rows), (256, 262_144));
    let own: Vec<_> = spec.layers.iter().map(|layer| (layer.ffn.width, layer.bypass)).collect();
    assert_eq!(own, [(16384, Some(64)); 35]);
    let cut = spec.layers.iter().map(|layer| layer.ffn.cutoff).collect::<Vec<_>>();
    assert_eq!((&cut[..10], &cut[10..]), (&[Some(1.644_853_5); 10][..], &[None; 25][..]));
    let attention = |at: usize| spec.layers[at].attention().unwrap();
    assert_eq!((attention(0).window, attention(4).window), (Some(Window::Sliding(512)), None));
    assert_eq!((attention(0).scale, attention(0).head_dim, attention(19).kv_of), (1.0, 256, None));
    // Those of the last layers before of the same kind.
    assert_eq!((attention(20).kv_of, attention(34).kv_of), (Some(18), Some(19)));
    assert!(spec.can_cut(18) && !spec.can_cut(19) && !spec.can_cut(34));
    let never = described("gemma3n", &[("altup_coef_clip", Value::Null)]).unwrap();
    assert_eq!(never.streams().unwrap().clip, None);
}

/// What the published configurations of Gemma 3 say of their texts: the one of 4B, and the one of 27B.
#[test]
fn gemma_3_is_described_in_short_too() {
    let linear = json!({ "factor": 8.0, "rope_type": "linear" });
    let described = |own: Value| {
        let mut text = json!({ "model_type": "gemma3_text", "rope_scaling": linear, "sliding_window": 1024 });
        text.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let config = json!({ "model_type": "gemma3", "text_config": text });
        let spec = spec(&config, &"config.json".into(), String::new()).unwrap();
        spec.check().unwrap();
        spec
    };
    let small =
        described(json!({ "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34 }));
    let large = described(json!({
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "num_attention_heads": 32,
        "num_hidden_layers": 62, "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
    }));
    let heads = |spec: &ArchSpec| {
        let attention = spec.layers[5].attention().unwrap();
        (attention.n_heads, attention.n_kv_heads, attention.head_dim)
    };
    assert_eq!((heads(&small), heads(&large)), ((8, 4, 256), (32, 16, 128)));
    for spec in [small, large] {
        assert_eq!((spec.vocab_size, spec.context_length, spec.tied_embeddings), (262_208, 131_072, true));
        let windows = [0, 5].map(|at| spec.layers[at].attention().unwrap().window);
        assert_eq!(windows, [Some(Window::Sliding(1024)), None]);
        let scalings = spec.ropes.iter().map(|rope| (rope.theta, &rope.scaling)).collect::<Vec<_>>();
        assert_eq!(scalings, [(1e6, &RopeScaling::Linear(8.0)), (1e4, &RopeScaling::None)]);
    }
}

/// As in transformers: layers that do not rotate positions in have one, where windows are switched on.
#[test]
fn windows_of_smollm_3_are_where_positions_are_not_rotated_in() {
    let base = [("layer_types", Value::Null), ("sliding_window", json!(16))];
    let windows = |fields: &[(&str, Value)]| -> Vec<bool> {
        let spec = described("smollm3", &[&base, fields].concat()).unwrap();
        let window = |at: usize| spec.layers[at].attention().unwrap().window;
        (0..4).map(|at| window(at) == Some(Window::Sliding(16))).collect()
    };
    let on = ("use_sliding_window", json!(true));
    let listed = ("no_rope_layers", json!([0, 1, 1, 0]));
    assert_eq!(windows(&[]), [false; 4]);
    assert_eq!(windows(std::slice::from_ref(&on)), [false, false, false, true]);
    assert_eq!(windows(&[on.clone(), listed.clone()]), [true, false, false, true]);
    let [full, sliding] = ["full_attention", "sliding_attention"];
    let types = ("layer_types", json!([full, sliding, full, full]));
    assert_eq!(windows(&[on, listed, types]), [false, true, false, false]);
}

/// Of Granite's hybrids, sizes of states may be left out, or follow from others.
#[test]
fn sizes_of_granites_states_may_be_left_out() {
    let whole = described("granitemoehybrid", &[]).unwrap();
    let state = whole.layers.iter().find_map(LayerSpec::recurrent).unwrap();
    let expand = state.n_heads * state.value_dim / whole.hidden_size;
    for width in [json!("auto"), Value::Null] {
        let fields = [("mamba_d_head", width), ("mamba_expand", json!(expand))];
        assert_eq!(described("granitemoehybrid", &fields).unwrap(), whole);
    }
    let error = described("granitemoehybrid", &[("mamba_d_head", json!("wide"))]).unwrap_err();
    assert!(error.to_string().contains("mamba_d_head"), "{error}");
    let sizes = ["mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_expand", "mamba_n_groups"];
    let attention = ("layer_types", json!(vec!["attention"; whole.n_layers()]));
    let fields: Vec<_> = sizes.map(|size| (size, Value::Null)).into_iter().chain([attention]).collect();
    assert!(!described("granitemoehybrid", &fields).unwrap().has_states());
}

/// As in transformers: the last layers have one, of models with experts all layers.
#[test]
fn windows_of_qwen_may_be_switched_on() {
    let windows = |model: &str, fields: &[(&str, Value)]| -> Vec<_> {
        let base = [("layer_types", Value::Null), ("sliding_window", json!(16))];
        let mut spec = described(model, &[&base, fields].concat()).unwrap();
        spec.attentions().map(|attention| attention.window).collect::<Vec<_>>()
    };
    let [on, off] = [true, false].map(|on| ("use_sliding_window", json!(on)));
    let sliding = Some(Window::Sliding(16));
    let from_1 = ("max_window_layers", json!(1));
    for model in ["qwen2", "qwen3"] {
        let of =
            |fields: &[(&str, Value)]| windows("qwen2", &[&[("model_type", json!(model))], fields].concat());
        let n = of(&[]).len();
        assert_eq!(of(&[off.clone(), from_1.clone()]), vec![None; n], "{model}");
        assert_eq!(of(std::slice::from_ref(&on)), vec![None; n], "{model}");
        let found = of(&[on.clone(), from_1.clone()]);
        assert_eq!((found[0], &found[1..]), (None, &vec![sliding; n - 1][..]), "{model}");
        let none = [on.clone(), from_1.clone(), ("sliding_window", Value::Null)];
        assert_eq!(of(&none), vec![None; n], "{model}");
        let types: Vec<_> =
            (0..n).map(|at| ["full_attention", "sliding_attention"][usize::from(at == 0)]).collect();
        let found = of(&[on.clone(), from_1.clone(), ("layer_types", json!(types))]);
        assert_eq!((found[0], &found[1..]), (sliding, &vec![None; n - 1][..]), "{model}");
    }
    let found = windows("qwen3_moe_mlx", &[on, from_1]);
    assert_eq!(found, vec![sliding; found.len()]);
}

/// A list of widths counts layer by layer.
#[test]
fn widths_may_be_listed() {
    let fields = [("intermediate_size", json!([1, 2, 3, 4, 5, 6]))];
    let listed = described("gemma3n", &fields).unwrap();
    assert_eq!(listed.layers.iter().map(|layer| layer.ffn.width).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let one = described("gemma3n", &[("intermediate_size", json!(128))]).unwrap();
    assert_eq!(one, described("gemma3n", &[]).unwrap());
}

/// The 12B model of Gemma 4 is another family with the same layers, but for what it does not have.
#[test]
fn unified_gemma_4_has_no_inputs_to_layers() {
    let unified = [("model_type", json!("gemma4_unified_text"))];
    let expected = described("gemma4", &[("hidden_size_per_layer_input", json!(0))]).unwrap();
    let found = described("gemma4", &unified).unwrap();
    assert_eq!(found.family, "gemma4_unified");
    assert_eq!(ArchSpec { family: expected.family.clone(), ..found }, expected);
    let file = "config.json".into();
    let mut config = json!({ "model_type": "gemma4_unified", "text_config": {
        "model_type": "gemma4_unified_text", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32,
    }});
    let plain = spec(&config, &file, String::new()).unwrap();
    assert_eq!(plain.layers[0].attention().unwrap().window, Some(Window::Sliding(1024)));
    assert_eq!((plain.context_length, plain.input_width()), (262_144, None));
    config["text_config"]["use_bidirectional_attention"] = json!("all");
    let error = spec(&config, &file, String::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{error}");
}

/// Hubs leave lists of Llama 4 empty, or out, and count what transformers switches.
#[test]
fn lists_of_llama_4_may_be_left_out() {
    let listed = described("llama4", &[]).unwrap();
    let fields = [
        ("no_rope_layers", json!([])),
        ("layer_types", Value::Null),
        ("moe_layers", Value::Null),
        ("attn_temperature_tuning", json!(4)),
    ];
    assert_eq!(described("llama4", &fields).unwrap(), listed);
    let fixed = described("llama4", &[("attn_temperature_tuning", json!(false))]).unwrap();
    assert_eq!(fixed.layers[3].attention().unwrap().query_growth, None);
}

/// Lists of Step 3.5 may go on for layers that predict tokens ahead.
#[test]
fn lists_may_be_longer_than_the_model() {
    let longer = [
        (
            "layer_types",
            json!([
                "full_attention",
                "sliding_attention",
                "sliding_attention",
                "full_attention",
                "full_attention"
            ]),
        ),
        ("rope_theta", json!([5e6, 1e4, 1e4, 5e6, 1e4])),
        ("swiglu_limits", json!([0, 0, 0.5, 0.5, null])),
    ];
    assert_eq!(described("step3p5", &longer).unwrap(), described("step3p5", &[]).unwrap());
}
