//! Is all of the model in the folder, where readers and slices look for it?

use std::path::{Path, PathBuf};

use skulk::browse::{DescribeOptions, VindexBrowser, WalkOptions};
use skulk::extract::{ExtractOptions, VindexStorage};
use skulk::vindex::{LayerHeader, SliceOptions, SlicePreset, VerifyOptions, verify_vindex};
use skulk::{Checkpoint, DType, ErrorKind, ModelCard, TokenId, VindexReader, open_checkpoint};

use super::{extract, extracted, scratch};
use crate::support::gguf_writer::{GgufWriter, types};
use crate::vindex::folders::source;
use crate::vindex::generation::{apart, logits_of};
use crate::vindex::{change, copied, fixtures, origin, values};

fn q4k() -> ExtractOptions {
    ExtractOptions::default().storage(VindexStorage::Q4K).threads(2)
}

fn fixture(path: &str) -> PathBuf {
    fixtures::root().join("tests/fixtures").join(path)
}

/// Every tensor, the transposed ones among them, but for what its blocks round. What is stored behind a transposed
/// matrix, to whole blocks of it, is zeros.
#[test]
fn tensors_are_the_sources() {
    for (from, options) in [
        (origin(), q4k().feature_major_down(true)),
        (origin(), q4k().feature_major_down(true).down_q4k(true).gate_vectors(false)),
        (fixture("models/mixtral"), q4k()),
    ] {
        let origin = open_checkpoint(&from).unwrap();
        let (_folder, folder) = extracted(&from, options.clone());
        let vindex = VindexReader::open(folder).unwrap();
        let mut transposed = 0;
        for tensor in vindex.tensors() {
            let region = vindex.region(&tensor.name).unwrap();
            let (found, expected) = (values(&region), source(&*origin, &tensor.name));
            let width = region.row_len();
            if tensor.name.contains("down_features") {
                transposed += 1;
                assert_eq!(region.rows(), (expected.len() / width).next_multiple_of(256));
                assert!(found[expected.len()..].iter().all(|x| *x == 0.0), "{}", tensor.name);
            } else {
                assert_eq!(found.len(), expected.len(), "{}", tensor.name);
            }
            // The encoder weighs all errors of a block, so that single ones may be large.
            let limit = match tensor.dtype {
                DType::Q4_K => 0.1,
                DType::Q6_K_Linear => 0.03,
                DType::F16 => 1e-3,
                _ => 0.0,
            };
            let off = apart(&found[..expected.len()], &expected);
            assert!(off <= limit, "{}: {off}, more than {limit}", tensor.name);
        }
        assert_eq!(transposed, if options.feature_major_down { 2 } else { 0 });
    }
}

#[test]
fn folders_are_sound() {
    let checks = VerifyOptions::default().hashes(true).values(true).threads(2);
    for from in [origin(), fixture("models/mixtral"), fixture("models/gemma3")] {
        for &storage in VindexStorage::ALL {
            let (_folder, folder) = extracted(&from, ExtractOptions::default().storage(storage).threads(2));
            let report = verify_vindex(&folder, &checks).unwrap();
            assert!(report.is_sound(), "{report}");
            // LARQL would lose the context.
            let [card, origin] = [&folder, &from].map(|path| ModelCard::from_checkpoint(path).unwrap());
            assert!(origin.context_length > 0);
            assert_eq!(card.context_length, origin.context_length);
        }
    }
}

/// The index says how the model is computed: its hash is beside the others'.
#[test]
fn an_edited_index_is_found() {
    let (_folder, folder) = extracted(&origin(), ExtractOptions::default().threads(2));
    let path = folder.join("index.json");
    let mut index = fixtures::json(&path);
    index["skulk"]["config"]["rms_norm_eps"] = 0.5.into();
    std::fs::write(&path, serde_json::to_vec_pretty(&index).unwrap()).unwrap();
    let report = verify_vindex(&folder, &VerifyOptions::default()).unwrap();
    let problems: Vec<_> = report.problems.iter().map(|p| p.file.as_str()).collect();
    assert!(!problems.is_empty() && problems.iter().all(|file| *file == "index.json"), "{report}");
}

/// Who asks for what is not there is told why not.
#[test]
fn what_is_not_there_is_explained() {
    let (_folder, folder) = extracted(&origin(), ExtractOptions::default().feature_tokens(0).threads(2));
    let (_tied, tied) = extracted(&fixture("models/gemma3"), ExtractOptions::default().threads(2));
    let (_mixture, mixture) = extracted(&fixture("models/mixtral"), q4k());
    let expect = |error: skulk::Error, kind: ErrorKind, words: &[&str]| {
        let text = format!("{error}");
        assert_eq!(error.kind(), kind, "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(error.context().iter().filter(|(key, _)| *key == "file").count(), 1, "{text}");
    };
    let missing = |path: &Path, name: &str| VindexReader::open(path).unwrap().region(name).unwrap_err();
    for name in ["nope", "", "model.layers.0.mlp.up_proj.weight"] {
        expect(missing(&folder, name), ErrorKind::TensorMissing, &["no vindex has", "`model.`"]);
    }
    let behind = missing(&folder, "layers.99.mlp.up_proj.weight");
    expect(behind, ErrorKind::TensorMissing, &["weight_manifest.json", "no entry"]);
    expect(missing(&tied, "lm_head.weight"), ErrorKind::TensorMissing, &["no head", "embed_tokens.weight"]);
    let browse = VindexBrowser::open(&folder, 1).unwrap();
    expect(
        browse.feature(0, 0).unwrap_err(),
        ErrorKind::FileNotFound,
        &["without tokens of features", "`feature_tokens`"],
    );
    let slice = scratch();
    // Folders above a slice are made.
    let (server, attn) = (slice.path().join("new/server"), slice.path().join("new/attn"));
    let reader = VindexReader::open(&mixture).unwrap();
    for (target, preset) in [(&server, SlicePreset::ExpertServer), (&attn, SlicePreset::Attn)] {
        reader.slice(target, &SliceOptions::default().preset(preset)).unwrap();
        let gates = VindexReader::open(target).unwrap().gates(0).unwrap_err();
        let words = ["gate_vectors.bin", preset.as_str(), "full, server and browse"];
        expect(gates, ErrorKind::TensorMissing, &words);
    }
    let attn = VindexBrowser::open(attn, 1).unwrap();
    expect(
        attn.walk("a", &WalkOptions::default()).unwrap_err(),
        ErrorKind::TokenizerInvalid,
        &["tokenizer.json", "client", "part: tokenizer"],
    );
    // Other files than those of slices may be gone.
    std::fs::remove_file(folder.join("up_weights.bin")).unwrap();
    expect(
        missing(&folder, "layers.0.mlp.up_proj.weight"),
        ErrorKind::TensorMissing,
        &["lacks that file", "incomplete"],
    );
    std::fs::remove_file(folder.join("weight_manifest.json")).unwrap();
    expect(missing(&folder, "norm.weight"), ErrorKind::TensorMissing, &["lacks the weight_manifest.json"]);
    let error = extract(&folder, ExtractOptions::default(), &slice.path().join("v")).unwrap_err();
    expect(error, ErrorKind::TensorMissing, &["weight_manifest.json"]);
    let nan = DescribeOptions::default().min_score(f32::NAN);
    let error = VindexBrowser::open(&tied, 1).unwrap().describe("a", &nan).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// A layer's gates are one matrix, whoever has them: experts' behind each other, quantised ones where there are no
/// others.
#[test]
fn gates_are_one_matrix() {
    for (from, options, prefix) in [
        (origin(), q4k(), "mlp.gate_proj"),
        (origin(), q4k().gate_vectors(false), "mlp.gate_proj"),
        (fixture("models/mixtral"), ExtractOptions::default(), "block_sparse_moe.experts.E.w1"),
        (fixture("models/mixtral"), q4k(), "block_sparse_moe.experts.E.w1"),
    ] {
        let origin = open_checkpoint(&from).unwrap();
        let (_folder, folder) = extracted(&from, options.clone());
        let vindex = VindexReader::open(folder).unwrap();
        for entry in &vindex.index().layers {
            let region = vindex.gates(entry.layer).unwrap();
            assert_eq!(region.shape(), [entry.num_features, vindex.index().hidden_size]);
            assert_eq!(region.dtype() == DType::Q4_K, !options.gate_vectors);
            let expected: Vec<f32> = (0..entry.num_experts.unwrap_or(1))
                .flat_map(|expert| {
                    let name = prefix.replace('E', &expert.to_string());
                    source(&*origin, &format!("layers.{}.{name}.weight", entry.layer))
                })
                .collect();
            let off = apart(&values(&region), &expected);
            assert!(off < if options.gate_vectors { 1e-3 } else { 0.1 }, "{off}");
        }
        let error = vindex.gates(vindex.index().num_layers).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

/// Files in `layers/` may be missing, or lack experts: who asks is told which file it was.
#[test]
fn layer_files_may_be_missing() {
    let (_folder, whole) = extracted(&fixture("models/mixtral"), q4k());
    let experts = VindexReader::open(&whole).unwrap().index().moe().unwrap().num_experts;
    let of_layer = |vindex: &VindexReader| {
        let absent = vindex.absent().filter(|(_, file)| *file == "layers/layer_01.weights");
        absent.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let slice = copied(&whole);
    let path = slice.path().join("layers/layer_01.weights");
    // The table's entry of expert 1.
    change(slice.path(), "layers/layer_01.weights", |bytes| bytes[24 + 32..24 + 64].fill(0));
    let vindex = VindexReader::open(slice.path()).unwrap();
    assert_eq!(of_layer(&vindex).len(), 3);
    vindex.region("layers.1.block_sparse_moe.experts.0.w2.weight").unwrap();
    std::fs::remove_file(&path).unwrap();
    let vindex = VindexReader::open(slice.path()).unwrap();
    let absent = of_layer(&vindex);
    assert_eq!(absent.len(), 3 * experts);
    for name in &absent {
        let error = vindex.region(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TensorMissing, "{error}");
        assert!(error.to_string().contains("layers/layer_01.weights"), "{error}");
    }
    assert_eq!(vindex.gates(1).unwrap().dtype(), DType::F16);
}

/// Rows of gate and up may be padded, and then are told from ones that run across blocks by their length.
#[test]
fn padded_rows_are_told_by_their_length() {
    let header = |hidden: u32, gate_up: u64, down: u64| {
        let mut bytes = b"LYRW".to_vec();
        [1, 4, 1, 128, hidden].into_iter().for_each(|n: u32| bytes.extend(n.to_le_bytes()));
        [56, gate_up, 56 + gate_up, down].into_iter().for_each(|n: u64| bytes.extend(n.to_le_bytes()));
        LayerHeader::parse(&bytes, 56 + gate_up + down, Path::new("layer_00.weights"))
    };
    let (padded, across, down) = (256 * 2 * 144, 256 * 320 / 256 * 144, 320 * 144);
    assert!(!header(320, padded, down).unwrap().entries[0].is_absent());
    assert!(header(320, 0, 0).unwrap().entries[0].is_absent());
    assert_eq!(header(320, across, down).unwrap_err().kind(), ErrorKind::DTypeUnsupported);
    for (gate_up, down) in [(padded, 0), (0, down), (padded - 144, down), (padded, down + 144)] {
        assert_eq!(header(320, gate_up, down).unwrap_err().kind(), ErrorKind::CheckpointInvalid);
    }
    // Where rows are whole blocks, both are the same.
    header(512, padded, 512 * 144).unwrap();
}

/// A layer without experts has one block in its file.
#[test]
fn dense_layers_have_one_entry() {
    let (_folder, whole) = extracted(&origin(), q4k());
    let path = whole.join("layers/layer_00.weights");
    let mut bytes = std::fs::read(&path).unwrap();
    let entry = bytes[24..56].to_vec();
    bytes[12] = 2;
    bytes.splice(56..56, entry);
    for at in [24, 40, 56, 72] {
        let offset = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        bytes[at..at + 8].copy_from_slice(&(offset + 32).to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    let error = VindexReader::open(&whole).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CheckpointInvalid, "{error}");
    assert!(error.to_string().contains("layer_00.weights"), "{error}");
}

/// Checkpoints of MLX and GGUF, whose numbers and names are others: the first gives the logits that MLX has, the
/// second its own.
#[test]
fn other_formats_become_the_same_model() {
    for name in ["mlx/tiny-llama320", "mlx/tiny-mixtral", "mlx/tiny-qwen3-moe"] {
        let golden = fixtures::json(&fixture(name).join("logits.json"));
        let expected: Vec<f32> = serde_json::from_value(golden["logits"].clone()).unwrap();
        for (storage, limit) in
            [(VindexStorage::F32, 1e-4), (VindexStorage::F16, 2e-3), (VindexStorage::Q4K, 0.45)]
        {
            let options = ExtractOptions::default().storage(storage).threads(2);
            let (_folder, folder) = extracted(&fixture(name), options);
            let found = logits_of(&folder, &fixtures::ids(&golden["tokens"]));
            let off = apart(&found[found.len() - expected.len()..], &expected);
            assert!(off < limit, "{name} at {storage}: {off}");
        }
    }
    let gguf = fixture("gguf/stories260K-q8_0.gguf");
    let tokens: Vec<_> = (0..24).map(|i| TokenId(1 + i * 37 % 500)).collect();
    let expected = logits_of(&gguf, &tokens);
    for (storage, limit) in
        [(VindexStorage::F32, 2e-3), (VindexStorage::F16, 2e-3), (VindexStorage::Q4K, 0.45)]
    {
        let (_folder, folder) = extracted(&gguf, ExtractOptions::default().storage(storage).threads(2));
        let off = apart(&logits_of(&folder, &tokens), &expected);
        assert!(off < limit, "GGUF at {storage}: {off}");
        let text = "Once upon a time";
        let [a, b] = [gguf.as_path(), &folder].map(|path| {
            let checkpoint = open_checkpoint(path).unwrap();
            skulk::Tokenizer::from_checkpoint(&*checkpoint).unwrap().encode(text, true).unwrap()
        });
        assert_eq!(a, b);
    }
}

/// Elements of a block of Q6_K as llama.cpp has it (`dequantize_row_q6_K` of `ggml-quants.c`).
fn q6_k(block: &[u8]) -> Vec<f32> {
    let d = half::f16::from_le_bytes([block[208], block[209]]).to_f32();
    let mut values = vec![0.0; 256];
    for half in 0..2 {
        let (low, high) = (&block[64 * half..], &block[128 + 32 * half..]);
        let scale = |i: usize| f32::from(block[192 + 8 * half + i] as i8);
        for l in 0..32 {
            let parts = [low[l] & 15, low[l + 32] & 15, low[l] >> 4, low[l + 32] >> 4];
            for (part, low) in parts.into_iter().enumerate() {
                let q = f32::from(low | (high[l] >> (2 * part) & 3) << 4) - 32.0;
                values[128 * half + 32 * part + l] = d * scale(l / 16 + 2 * part) * q;
            }
        }
    }
    values
}

/// Blocks of a GGUF file that are of the wanted type are not quantised again: Q4_K is copied, the rows of query and key
/// heads put in order, and Q6_K has its bits put in order.
#[test]
fn blocks_are_taken_as_they_are() {
    const Q6_K: u32 = 14;
    const N: usize = 256;
    let mut state = 7u64;
    let mut blocks = |kind: u32, rows: usize| -> Vec<u8> {
        let (bytes, scales): (usize, &[usize]) = if kind == Q6_K { (210, &[208]) } else { (144, &[0, 2]) };
        let mut all: Vec<u8> = (0..rows * bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as u8
            })
            .collect();
        for block in all.chunks_mut(bytes) {
            for &at in scales {
                block[at..at + 2].copy_from_slice(&half::f16::from_f32(0.002).to_le_bytes());
            }
        }
        all
    };
    let mut gguf = GgufWriter::new().str("general.architecture", "llama");
    for (key, value) in [
        ("embedding_length", N),
        ("block_count", 1),
        ("context_length", 64),
        ("feed_forward_length", N),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ] {
        gguf = gguf.u32(&format!("llama.{key}"), value as u32);
    }
    let tokens: Vec<String> =
        (0..64).map(|i| if i == 0 { "<unk>".into() } else { format!("t{i}") }).collect();
    let kinds: Vec<i32> = (0..64).map(|i| if i == 0 { 2 } else { 1 }).collect();
    gguf = gguf
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .str("tokenizer.ggml.model", "llama")
        .strs("tokenizer.ggml.tokens", &tokens)
        .f32s("tokenizer.ggml.scores", &[0.0; 64])
        .i32s("tokenizer.ggml.token_type", &kinds);
    for name in ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"] {
        gguf = gguf.tensor_f32(&format!("{name}.weight"), &[N as u64], &[1.0; N]);
    }
    let mut stored = std::collections::BTreeMap::new();
    for (name, kind, rows) in [
        ("token_embd", types::Q4_K, 64),
        ("output", types::Q4_K, 64),
        ("blk.0.attn_q", types::Q4_K, N),
        ("blk.0.attn_k", types::Q4_K, N / 2),
        ("blk.0.attn_v", Q6_K, N / 2),
        ("blk.0.attn_output", types::Q4_K, N),
        ("blk.0.ffn_gate", types::Q4_K, N),
        ("blk.0.ffn_up", types::Q4_K, N),
        ("blk.0.ffn_down", Q6_K, N),
    ] {
        let bytes = blocks(kind, rows);
        gguf = gguf.tensor(&format!("{name}.weight"), kind, &[rows as u64, N as u64], &bytes);
        stored.insert(name, bytes);
    }
    let folder = scratch();
    let path = folder.path().join("blocks.gguf");
    std::fs::write(&path, gguf.build()).unwrap();
    let (_folder, own) = extracted(&path, q4k());
    let vindex = VindexReader::open(own).unwrap();
    for (name, from) in [
        ("lm_head", "output"),
        ("layers.0.self_attn.q_proj", "blk.0.attn_q"),
        ("layers.0.self_attn.k_proj", "blk.0.attn_k"),
        ("layers.0.self_attn.v_proj", "blk.0.attn_v"),
        ("layers.0.self_attn.o_proj", "blk.0.attn_output"),
        ("layers.0.mlp.gate_proj", "blk.0.ffn_gate"),
        ("layers.0.mlp.up_proj", "blk.0.ffn_up"),
        ("layers.0.mlp.down_proj", "blk.0.ffn_down"),
    ] {
        let region = vindex.region(&format!("{name}.weight")).unwrap();
        let row_bytes = region.row_bytes();
        let is_paired = name.ends_with("q_proj") || name.ends_with("k_proj");
        for (row, found) in region.bytes().chunks_exact(row_bytes).enumerate() {
            // Heads of 64 rows, the two halves of which are interleaved in the file.
            let at = row % 64;
            let row = if is_paired { row - at + at % 32 * 2 + at / 32 } else { row };
            let expected = &stored[from][row * row_bytes..][..row_bytes];
            match region.dtype() {
                DType::Q4_K => assert!(found == expected, "{name}, row {row}"),
                _ => assert!(
                    crate::vindex::decode(region.dtype(), found, N) == q6_k(expected),
                    "{name}, row {row}"
                ),
            }
        }
    }
}
