//! Is the same model the same in every format?

use serde_json::json;

use super::gguf_writer::GgufWriter;
use super::*;
use crate::arch::RopeScaling;
use crate::weights::quant::to_f32;

/// Names in GGUF files, and what Hugging Face's end with in the families that are converted here.
const ROLES: [(&str, &[&str]); 13] = [
    ("attn_norm", &["input_layernorm"]),
    ("attn_q", &["self_attn.q_proj"]),
    ("attn_k", &["self_attn.k_proj"]),
    ("attn_v", &["self_attn.v_proj"]),
    ("attn_output", &["self_attn.o_proj"]),
    ("attn_q_norm", &["self_attn.q_norm"]),
    ("attn_k_norm", &["self_attn.k_norm"]),
    ("ffn_gate", &["mlp.gate_proj"]),
    ("ffn_up", &["mlp.up_proj"]),
    ("ffn_down", &["mlp.down_proj"]),
    ("ffn_gate_inp", &["block_sparse_moe.gate", "mlp.gate"]),
    ("ffn_norm", &["pre_feedforward_layernorm"]),
    ("post_ffw_norm", &["post_feedforward_layernorm"]),
];
const STACKS: [(&str, [&str; 2]); 3] = [
    ("ffn_gate_exps", ["block_sparse_moe.experts.{}.w1", "mlp.experts.{}.gate_proj"]),
    ("ffn_up_exps", ["block_sparse_moe.experts.{}.w3", "mlp.experts.{}.up_proj"]),
    ("ffn_down_exps", ["block_sparse_moe.experts.{}.w2", "mlp.experts.{}.down_proj"]),
];

/// A GGUF file of a Hugging Face folder, everything in f32, as llama.cpp's converter makes it.
fn converted(folder: &Path) -> Vec<u8> {
    let checkpoint = open(folder);
    let arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
    let (layer, is_gemma) = (&arch.layers[0], arch.family == "gemma3");
    let family = match arch.family.as_str() {
        "mixtral" => "llama",
        "qwen3_moe" => "qwen3moe",
        other => other,
    };
    let attention = layer.attention().unwrap();
    let mut gguf = GgufWriter::new().str("general.architecture", family);
    for (key, value) in [
        ("embedding_length", arch.hidden_size),
        ("block_count", arch.n_layers()),
        ("context_length", arch.context_length),
        ("feed_forward_length", layer.ffn.width),
        ("attention.head_count", attention.n_heads),
        ("attention.head_count_kv", attention.n_kv_heads),
        ("attention.key_length", attention.head_dim),
    ] {
        gguf = gguf.u32(&format!("{family}.{key}"), value as u32);
    }
    if let Some(experts) = layer.ffn.experts {
        gguf = gguf
            .u32(&format!("{family}.expert_count"), experts.n_experts as u32)
            .u32(&format!("{family}.expert_used_count"), experts.n_used as u32);
    }
    if let Some(window) = arch.layers.iter().find_map(|layer| layer.attention()?.window) {
        gguf = gguf.u32(&format!("{family}.attention.sliding_window"), window.size() as u32);
    }
    gguf = gguf
        .f32(&format!("{family}.rope.freq_base"), arch.ropes[0].theta as f32)
        .f32(&format!("{family}.attention.layer_norm_rms_epsilon"), arch.norm.eps);
    let read = |name: &str| {
        let region = checkpoint.region(name).ok()?;
        let mut values = to_f32(&region).unwrap();
        let shape: Vec<u64> = region.shape().iter().map(|&n| n as u64).collect();
        if is_gemma && name.ends_with("norm.weight") {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        Some((shape, values))
    };
    let mut put = |to: &str, (shape, values): (Vec<u64>, Vec<f32>)| {
        gguf = std::mem::take(&mut gguf).tensor_f32(to, &shape, &values);
    };
    for (to, from) in [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
    ] {
        if let Some(found) = read(from).filter(|_| !(to == "output.weight" && arch.tied_embeddings)) {
            put(to, found);
        }
    }
    if let RopeScaling::Llama3 { .. } = arch.ropes[0].scaling {
        let factors = factors(&arch.ropes[0]);
        put("rope_freqs.weight", (vec![factors.len() as u64], factors));
    }
    for layer in 0..arch.n_layers() {
        let base = format!("model.layers.{layer}");
        for (to, from) in ROLES {
            for (from, kind) in from.iter().flat_map(|from| [(from, "weight"), (from, "bias")]) {
                let Some((shape, mut values)) = read(&format!("{base}.{from}.{kind}")) else { continue };
                if family == "llama" && matches!(to, "attn_q" | "attn_k") {
                    let row = if kind == "bias" { 1 } else { arch.hidden_size };
                    values = permuted(&values, row, attention.head_dim);
                }
                put(&format!("blk.{layer}.{to}.{kind}"), (shape, values));
            }
        }
        let post = if is_gemma { "post_attention_norm" } else { "ffn_norm" };
        put(
            &format!("blk.{layer}.{post}.weight"),
            read(&format!("{base}.post_attention_layernorm.weight")).unwrap(),
        );
        for (to, from) in STACKS {
            let experts: Vec<_> = (0..)
                .map_while(|expert: usize| {
                    from.iter().find_map(|from| {
                        read(&format!("{base}.{}.weight", from.replace("{}", &expert.to_string())))
                    })
                })
                .collect();
            if let Some((shape, _)) = experts.first() {
                let shape = [&[experts.len() as u64], &shape[..]].concat();
                let values = experts.iter().flat_map(|(_, values)| values.clone()).collect();
                put(&format!("blk.{layer}.{to}.weight"), (shape, values));
            }
        }
    }
    gguf.build()
}

/// Row `2i` is row `i` of a head, row `2i + 1` is row `i + half`.
fn permuted(values: &[f32], row: usize, head: usize) -> Vec<f32> {
    let at = |to: usize| to / head * head + to % head / 2 + to % 2 * head / 2;
    (0..values.len() / row).flat_map(|to| values[at(to) * row..][..row].to_vec()).collect()
}

/// Divisors that lead to the frequencies of a described scaling.
fn factors(rope: &crate::arch::RopeSpec) -> Vec<f32> {
    let plain = crate::arch::RopeSpec { scaling: RopeScaling::None, ..rope.clone() };
    let (plain, scaled) = (plain.inverse_frequencies(0), rope.inverse_frequencies(0));
    plain.iter().zip(&scaled).map(|(a, b)| a / b).collect()
}

/// The description of the written vindex, but for names and family.
fn plain(arch: &ArchSpec) -> ArchSpec {
    let described = ArchSpec::from_config(
        &json!({"model_type": "llama", "hidden_size": 1, "num_attention_heads": 1, "num_hidden_layers": 1,
            "vocab_size": 1, "intermediate_size": 1, "head_dim": 2}),
        &PathBuf::new(),
    );
    ArchSpec { family: String::new(), names: described.unwrap().names, ..arch.clone() }
}

#[test]
fn a_source_says_what_the_folder_says() {
    for folder in ["models/llama", "models/gemma3", "models/mixtral", "models/stories260K"] {
        let checkpoint = open(&fixture(folder));
        let source = Source::open(&*checkpoint).unwrap();
        let arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
        assert_eq!(plain(source.arch()), plain(&arch), "{folder}");
        assert_eq!(source.arch().family, arch.family);
        let keys = keys(&source);
        assert_eq!(keys.contains(&"lm_head.weight".to_owned()), !arch.tied_embeddings, "{folder}");
        for key in keys {
            let name = if key.starts_with("lm_head") { key.clone() } else { format!("model.{key}") };
            let region = checkpoint.region(&name).unwrap();
            assert_eq!(values(&source, &key), to_f32(&region).unwrap(), "{folder} {key}");
        }
    }
}

#[test]
fn a_gguf_file_is_the_folder_that_it_was_made_from() {
    let temporary = tempfile::tempdir().unwrap();
    let biased = with_biases();
    let scaled = with_config("models/llama", |config| {
        config["rope_parameters"] = json!({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512});
    });
    let folders = [
        fixture("models/llama"),
        fixture("models/stories260K"),
        fixture("models/gemma3"),
        fixture("models/mixtral"),
        biased.path().to_owned(),
        scaled.path().to_owned(),
    ];
    for (at, folder) in folders.iter().enumerate() {
        let path = temporary.path().join(format!("{at}.gguf"));
        std::fs::write(&path, converted(folder)).unwrap();
        let (original, twin) = (open(folder), open(&path));
        let (expected, source) = (Source::open(&*original).unwrap(), Source::open(&*twin).unwrap());
        assert_eq!(plain(source.arch()), plain(expected.arch()), "{folder:?}");
        assert_eq!(source.arch().family, expected.arch().family);
        assert_eq!(keys(&source), keys(&expected));
        for key in keys(&source) {
            let (found, expected) = (values(&source, &key), values(&expected, &key));
            if source.arch().norm.weight_offset > 0.0 && key.contains("norm") {
                // 1 was added, rounded to half an ulp of at most 2^-22, and subtracted.
                let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                assert!(off.fold(0.0, f32::max) <= 1.2e-7 * 4.0, "{folder:?} {key}");
            } else {
                assert_eq!(found, expected, "{folder:?} {key}");
            }
        }
        // The norms' last bit, heads summed in another order, and the factors' rounding.
        let tokens = tokens(24, source.arch().vocab_size);
        let [original, twin, seen] = [
            logits(&*original, &tokens),
            logits(&*twin, &tokens),
            logits(&Written::new(&source, false), &tokens),
        ];
        assert!(difference(&original, &twin) < 1e-4, "{folder:?} {}", difference(&original, &twin));
        assert!(difference(&original, &seen) < 1e-5, "{folder:?} {}", difference(&original, &seen));
    }
}

/// stories260K with biases in attention, which a configuration can ask for.
fn with_biases() -> tempfile::TempDir {
    let folder = with_config("models/stories260K", |config| config["attention_bias"] = json!(true));
    let path = folder.path().join("model.safetensors");
    let file = std::fs::read(&path).unwrap();
    let header_len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&file[8..8 + header_len]).unwrap();
    let mut data = file[8 + header_len..].to_vec();
    for layer in 0..5 {
        for (word, n) in [("q", 64), ("k", 32), ("v", 32), ("o", 64)] {
            let start = data.len();
            let values = (0..n).map(|i| ((i * 13 + layer * 7) % 29) as f32 / 100.0 - 0.1);
            data.extend(values.flat_map(f32::to_le_bytes));
            header[format!("model.layers.{layer}.self_attn.{word}_proj.bias")] =
                json!({"dtype": "F32", "shape": [n], "data_offsets": [start, data.len()]});
        }
    }
    let header = header.to_string().into_bytes();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    std::fs::write(path, file).unwrap();
    folder
}

#[test]
fn quantised_rows_come_as_they_are_stored() {
    let checkpoint = open(&fixture("gguf/stories260K-q8_0.gguf"));
    let original = open(&fixture("models/stories260K"));
    let (source, exact) = (Source::open(&*checkpoint).unwrap(), Source::open(&*original).unwrap());
    assert_eq!(plain(source.arch()), plain(exact.arch()));
    for key in keys(&source) {
        let tensor = source.tensor(&key).unwrap();
        let [rows, width] = tensor.shape();
        let expected = values(&exact, &key);
        let [mut found, mut stored] = [vec![0.0; width], vec![0.0; width]];
        for row in 0..rows {
            tensor.rows(row..row + 1, &mut found).unwrap();
            let (dtype, bytes) = tensor.stored_row(row).unwrap();
            crate::weights::quant::dequantise(dtype, bytes, &mut stored);
            assert_eq!(stored, found, "{key}");
            // A scale of 1/127 of a block's largest, itself rounded to a half.
            let expected = &expected[row * width..][..width];
            let most = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= most / 200.0), "{key} {row}");
        }
    }
    let tokens = tokens(24, 512);
    let seen = logits(&Written::new(&source, true), &tokens);
    let expected = logits(&*checkpoint, &tokens);
    // Heads are summed in another order, after which activations may round to the next 64,516th of the largest.
    assert!(difference(&expected, &seen) < 1e-4, "{}", difference(&expected, &seen));
}

#[test]
fn the_real_gguf_is_seen_as_it_computes() {
    let Some(path) = gemma() else { return };
    let checkpoint = open(&path);
    let source = Source::open(&*checkpoint).unwrap();
    assert_eq!(source.arch().norm.weight_offset, 1.0);
    assert_eq!(source.config()["model_type"], "gemma3_text");
    assert_eq!(source.config()["query_pre_attn_scalar"], 256);
    for (key, name) in [
        ("layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight"),
        ("layers.17.mlp.down_proj.weight", "blk.17.ffn_down.weight"),
    ] {
        let region = checkpoint.region(name).unwrap();
        let tensor = source.tensor(key).unwrap();
        assert_eq!(tensor.stored_row(0), Some((region.dtype(), &region.bytes()[..region.row_bytes()])));
    }
    let norm = to_f32(&checkpoint.region("blk.0.post_ffw_norm.weight").unwrap()).unwrap();
    let found = values(&source, "layers.0.post_feedforward_layernorm.weight");
    assert!(found.iter().zip(&norm).all(|(a, b)| a + 1.0 == *b));
    let tokens = tokens(12, 2000);
    let seen = logits(&Written::new(&source, true), &tokens);
    let expected = logits(&*checkpoint, &tokens);
    // Weights are the same bits; norms are those that the file holds.
    assert!(difference(&expected, &seen) < 1e-5, "{}", difference(&expected, &seen));
}

/// Folders that LARQL made, with what they were made from: the fixture, and those of `SKULK_EXTRA_SUITES`.
pub(in crate::extract) fn vindexes() -> Vec<(PathBuf, PathBuf)> {
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(|folder| PathBuf::from(folder).join("vindex"));
    let mut pairs = Vec::new();
    for root in [Some(fixture("vindex")), extra].into_iter().flatten() {
        for made in std::fs::read_dir(root.join("made")).into_iter().flatten() {
            let made = made.unwrap().path();
            let name = made.file_name().unwrap().to_str().unwrap().split('.').next().unwrap().to_owned();
            pairs.push((made, root.join("source").join(name)));
        }
    }
    pairs
}

#[test]
fn a_vindex_is_seen_as_the_checkpoint_it_was_made_from() {
    let mut compared = 0;
    for (made, original) in vindexes() {
        let (made, original) = (open(&made), open(&original));
        let exact = match Source::open(&*original) {
            Err(error) if error.kind() == ErrorKind::ArchUnsupported => continue,
            exact => exact.unwrap(),
        };
        let source = Source::open(&*made).unwrap();
        for key in keys(&exact) {
            let [rows, width] = exact.shape(&key).unwrap();
            let mut found = vec![0.0; rows * width];
            match source.tensor(&key).and_then(|tensor| tensor.rows(0..rows, &mut found)) {
                // LARQL leaves out what belongs to other levels.
                Err(error) => assert_eq!(error.kind(), ErrorKind::TensorMissing, "{error}"),
                Ok(()) => {
                    // 4 bits and a scale for 32 of them; half floats cut off.
                    let quantised = source.tensor(&key).unwrap().stored_row(0).unwrap().0.is_quantised();
                    let most = if quantised { 0.1 } else { 1e-3 };
                    let expected = values(&exact, &key);
                    assert!(difference(&expected, &found) < most, "{:?} {key}", made.path());
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 20);
}

#[test]
fn nothing_stays_mapped() {
    for path in ["models/mixtral", "mlx/tiny-mixtral", "gguf/stories260K-q8_0.gguf"] {
        let checkpoint = open(&fixture(path));
        let source = Source::open(&*checkpoint).unwrap();
        let mapped = || checkpoint.files().iter().map(MappedFile::mapped).sum::<u64>();
        for key in keys(&source) {
            assert_eq!(mapped(), 0, "{path} {key}");
            let tensor = source.tensor(&key).unwrap();
            assert!(mapped() > 0);
            drop(tensor);
            values(&source, &key);
        }
        assert_eq!(mapped(), 0);
    }
}
