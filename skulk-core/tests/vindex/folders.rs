//! Is every tensor of every folder its source's, and every byte of every file accounted for?

use std::collections::BTreeMap;
use std::path::Path;

use skulk::{Checkpoint, DType, ErrorKind, VindexReader, open_checkpoint};

use crate::vindex::{change_json, copied, expert_names, is_summary, made, pairs, values};

/// LARQL's rounding to f16: what is beyond 11 bits is cut off, and what is below the smallest normal number is zero.
pub(crate) fn cut_to_f16(x: f32) -> f32 {
    let size = f32::from_bits(x.abs().to_bits() & !0x1fff);
    if size < 2f32.powi(-14) { 0.0 } else { size.copysign(x) }
}

/// The source's tensor that a vindex keeps under this name, decoded.
pub(crate) fn source(checkpoint: &dyn Checkpoint, name: &str) -> Vec<f32> {
    let name = name.split('@').next().unwrap();
    let mut parts: Vec<&str> = name.split('.').collect();
    let read = |name: &str| {
        let prefixes = ["model.", "", "model.language_model.", "language_model.model."];
        let known = prefixes.map(|prefix| format!("{prefix}{name}"));
        let known = known.into_iter().find(|name| checkpoint.tensor(name).is_some());
        known.map(|name| checkpoint.region(&name).unwrap())
    };
    if let Some(region) = read(name) {
        return values(&region);
    }
    let in_layer = |rest: &str| read(&format!("layers.{}.{rest}", parts[1]));
    match parts.last() {
        Some(&"gate_vectors") => {
            if let Some(dense) = in_layer("mlp.gate_proj.weight") {
                return values(&dense);
            }
            let layer = parts[1].parse().unwrap();
            let expert = |e: usize| expert_names(layer, e, "gate_proj").iter().find_map(|name| read(name));
            let all: Vec<f32> = (0..).map_while(expert).flat_map(|gate| values(&gate)).collect();
            assert!(!all.is_empty(), "no source of {name}");
            return all;
        }
        Some(&"router_weights") => {
            let names = ["router.proj", "block_sparse_moe.gate", "mlp.gate"];
            let router = names.iter().find_map(|router| in_layer(&format!("{router}.weight")));
            return values(&router.unwrap_or_else(|| panic!("no source of {name}")));
        }
        _ => {}
    }
    if name.ends_with("mlp.down_features.weight") {
        let region = read(&name.replace("features", "proj")).unwrap();
        let (all, rows, width) = (values(&region), region.rows(), region.row_len());
        return (0..width)
            .flat_map(|i| (0..rows).map(|row| all[row * width + i]).collect::<Vec<_>>())
            .collect();
    }
    // Gemma 4's experts are stacked, gate rows before up rows.
    let expert: usize = parts.remove(3).parse().unwrap_or_else(|_| panic!("no source of {name}"));
    let is_down = name.contains("down_proj");
    let stack =
        read(&format!("layers.{}.experts.{}", parts[1], if is_down { "down_proj" } else { "gate_up_proj" }));
    let one = values(&stack.unwrap().parts().nth(expert).unwrap());
    let half = one.len() / 2;
    match () {
        () if is_down => one,
        () if name.contains("gate_proj") => one[..half].to_vec(),
        () => one[half..].to_vec(),
    }
}

/// How far off a stored value may be, beside blocks of 32 (Q4_K) or 16 (Q6_K) elements that span from `min` to
/// `max` within ones of 256 whose largest such spans are known: half a step, what scales in 6 or 8 bits add to it, and
/// what cutting them to f16 does.
fn bound(dtype: DType, block: &[f32]) -> f32 {
    let size = block.iter().fold(0f32, |a, x| a.max(x.abs()));
    match dtype {
        // 15 steps over a span of at most twice the largest; scale and minimum are off by 1/126 of their largest.
        DType::Q4_K => size * 2.0 * (0.5 / 15.0 + 2.0 / 126.0 + 2.0 / 1024.0),
        // 31 steps up to the largest.
        DType::Q6_K_Linear => size * (0.5 / 31.0 + 1.0 / 254.0 + 2.0 / 1024.0) + size / 31.0 * 0.5,
        _ => 0.0,
    }
}

#[test]
fn every_tensor_is_its_sources() {
    for (made, origin) in pairs() {
        let (vindex, origin) = (VindexReader::open(&made).unwrap(), open_checkpoint(&origin).unwrap());
        let mut quantised = 0;
        for tensor in vindex.tensors() {
            let what = format!("{}: {}", made.display(), tensor.name);
            let region = vindex.region(&tensor.name).unwrap();
            let layer = || tensor.name.split('.').nth(1).unwrap().parse().unwrap();
            if tensor.name.ends_with("gate_vectors") && is_summary(vindex.index(), layer()) {
                continue;
            }
            let (mut found, expected) = (values(&region), source(&*origin, &tensor.name));
            if tensor.name.ends_with("down_features.weight") {
                // Behind the features are rows of zeros, up to whole blocks of them.
                assert!(found.drain(expected.len()..).all(|x| x == 0.0), "{what}");
            }
            assert_eq!(found.len(), expected.len(), "{what}");
            let width = region.row_len();
            for (i, (found, expected)) in found.chunks(width).zip(expected.chunks(width)).enumerate() {
                match tensor.dtype {
                    DType::F32 => assert!(found == expected, "{what}, row {i}"),
                    DType::F16 => {
                        let cut: Vec<f32> = expected.iter().map(|&x| cut_to_f16(x)).collect();
                        assert!(found == cut, "{what}, row {i}");
                    }
                    dtype => {
                        quantised += 1;
                        for (found, expected) in found.chunks(256).zip(expected.chunks(256)) {
                            let bound = bound(dtype, expected);
                            let off =
                                found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                            assert!(off <= bound, "{what}, row {i}: off by {off}, more than {bound}");
                        }
                    }
                }
            }
        }
        assert_eq!(quantised > 0, made.to_str().unwrap().contains("q4k"), "{}", made.display());
    }
}

/// Tensors cover all bytes of all weight files, but for headers of layer files.
#[test]
fn every_file_is_accounted_for() {
    for (made, _) in pairs() {
        let vindex = VindexReader::open(&made).unwrap();
        let mut covered: BTreeMap<&Path, u64> = vindex.files().iter().map(|f| (f.path(), 0)).collect();
        for tensor in vindex.tensors() {
            *covered.get_mut(vindex.files()[tensor.file].path()).unwrap() += tensor.len;
        }
        for (path, covered) in &covered {
            let header = if path.extension().is_some_and(|e| e == "weights") {
                24 + 32 * vindex.index().moe().unwrap().num_experts as u64
            } else {
                0
            };
            assert_eq!(covered + header, std::fs::metadata(path).unwrap().len(), "{}", path.display());
        }
        for entry in std::fs::read_dir(&made).unwrap() {
            let path = entry.unwrap().path();
            let is_weights = path.extension().is_some_and(|e| e == "bin") && !path.ends_with("down_meta.bin");
            // LARQL writes empty files where a family has none of their tensors in the usual form.
            let is_weights = is_weights && path.metadata().unwrap().len() > 0;
            assert!(!is_weights || covered.contains_key(path.as_path()), "{} is not read", path.display());
        }
    }
}

/// Opening maps nothing, and then each tensor maps its own bytes.
#[test]
fn opens_without_touching_weights() {
    for (made, _) in pairs() {
        let vindex = VindexReader::open(&made).unwrap();
        let mapped = || vindex.files().iter().map(|file| file.mapped()).sum::<u64>();
        assert_eq!(mapped(), 0);
        let mut held = Vec::new();
        let mut expected = 0;
        for tensor in vindex.tensors().iter().take(5) {
            expected += tensor.len;
            held.push(vindex.region(&tensor.name).unwrap());
            assert_eq!(mapped(), expected);
        }
        drop(held);
        assert_eq!(mapped(), 0);
    }
}

/// Files, tensors that they hold, and some that they lack with the file and slice that the error names.
type Slice<'a> = (&'a [&'a str], &'a [&'a str], &'a [(&'a str, &'a str, &'a str)]);

/// Files of LARQL's slices, and tensors that each has and lacks, with what the error says.
#[test]
fn slices_say_what_they_lack() {
    let attn =
        ["attn_weights_q4k.bin", "attn_weights_q4k_manifest.json", "norms.bin", "weight_manifest.json"];
    let client = [&attn[..], &["embeddings.bin"]].concat();
    let browse = ["embeddings.bin", "gate_vectors.bin", "down_meta.bin"];
    let server = [
        "embeddings.bin",
        "norms.bin",
        "gate_vectors.bin",
        "weight_manifest.json",
        "interleaved_q4k.bin",
        "interleaved_q4k_manifest.json",
    ];
    let (q, up, gate) =
        ("layers.0.self_attn.q_proj.weight", "layers.1.mlp.up_proj.weight", "layers.0.mlp.gate_proj.weight");
    let (embedding, head, norm) = ("embed_tokens.weight", "lm_head.weight", "norm.weight");
    let cases: [Slice<'_>; 5] = [
        (
            &attn,
            &[q, norm],
            &[(embedding, "embeddings.bin", "client"), (head, "lm_head_q4.bin", "slices full")],
        ),
        (
            &client,
            &[q, norm, embedding],
            &[
                (up, "interleaved_q4k.bin", "expert-server"),
                (head, "lm_head_q4.bin", "full, client and embed"),
            ],
        ),
        (
            &["embeddings.bin"],
            &[embedding],
            &[(q, "attn_weights_q4k.bin", "attn"), (norm, "norms.bin", "server")],
        ),
        (
            &browse,
            &[embedding, gate],
            &[(up, "interleaved_q4k.bin", "inference"), (head, "lm_head_q4.bin", "full, client and embed")],
        ),
        (&server, &[embedding, gate, up, norm], &[(q, "attn_weights_q4k.bin", "attn")]),
    ];
    for (files, has, lacks) in cases {
        let slice = tempfile::tempdir().unwrap();
        for file in files.iter().chain(&["index.json"]) {
            std::fs::write(slice.path().join(file), std::fs::read(made().join(file)).unwrap()).unwrap();
        }
        let vindex = VindexReader::open(slice.path()).unwrap();
        for name in has {
            vindex.region(name).unwrap();
        }
        for (name, file, slices) in lacks {
            let error = vindex.region(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TensorMissing, "{error}");
            let text = error.to_string();
            assert!(text.contains(file) && text.contains(slices) && text.contains(name), "{text}");
        }
        let error = skulk::Model::open(slice.path(), &skulk::LoadOptions::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TensorMissing | ErrorKind::TokenizerInvalid), "{error}");
    }
}

/// What is missing is named so that one knows what to do, whoever asks for it.
#[test]
fn missing_tensors_are_named_for_who_asks() {
    let error = |folder: &Path, name: &str| {
        let error = VindexReader::open(folder).unwrap().region(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TensorMissing, "{error}");
        format!("{error}; {}", error.hint().unwrap())
    };
    for name in ["nope", "model.norm.weight"] {
        let text = error(&made(), name);
        assert!(text.contains("list the tensors") && !text.contains("part:"), "{text}");
    }
    let folder = copied(&made());
    for (manifest, name) in [
        ("attn_weights_q4k_manifest.json", "layers.0.self_attn.q_proj.weight"),
        ("interleaved_q4k_manifest.json", "layers.1.mlp.down_proj.weight"),
        ("weight_manifest.json", "norm.weight"),
    ] {
        change_json(folder.path(), manifest, |list| {
            list.as_array_mut().unwrap().retain(|entry| entry["key"] != name);
        });
        let text = error(folder.path(), name);
        assert!(text.contains(&format!("the tensor in {manifest}")) && !text.contains("list the"), "{text}");
    }
    // Floats of a low level.
    let folder = copied(&made());
    for name in ["interleaved_q4k.bin", "interleaved_q4k_manifest.json"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    change_json(folder.path(), "index.json", |index| {
        index["quant"] = "none".into();
        index["extract_level"] = "attention".into();
    });
    let text = error(folder.path(), "layers.0.mlp.down_proj.weight");
    assert!(text.contains("down_weights.bin") && text.contains("level attention"), "{text}");
    // Experts that LARQL leaves out.
    change_json(folder.path(), "index.json", |index| {
        index["quant"] = "q4k".into();
        index["extract_level"] = "inference".into();
        index["model_config"]["moe"] = serde_json::json!({"num_experts": 2, "top_k": 1});
    });
    let text = error(folder.path(), "layers.0.block_sparse_moe.experts.1.w2.weight");
    assert!(text.contains("LARQL does not store") && !text.contains("slice"), "{text}");
}

#[test]
fn an_index_without_heads_says_so() {
    let folder = copied(&made());
    change_json(folder.path(), "index.json", |index| index["model_config"] = serde_json::Value::Null);
    let vindex = VindexReader::open(folder.path()).unwrap();
    let error = skulk::arch::ArchSpec::from_checkpoint(&vindex).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
    assert!(error.to_string().contains("field: model_config"), "{error}");
    assert!(!error.hint().unwrap().contains("config.json"), "{error:?}");
}

#[test]
fn fields_of_an_index_that_are_wrong_are_named() {
    let wrong = [
        ("extract_level", serde_json::Value::Null),
        ("layer_bands", serde_json::json!(true)),
        ("layers[0].offset", serde_json::json!(-1)),
        ("model_config.head_dim", serde_json::json!("x")),
    ];
    for (field, value) in wrong {
        let folder = copied(&made());
        change_json(folder.path(), "index.json", |index| {
            let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
            match index.pointer_mut(&pointer) {
                Some(place) => *place = value.clone(),
                None => index[field] = value.clone(),
            }
        });
        let error = VindexReader::open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{field}");
        assert!(error.context().contains(&("field", field.to_owned())), "{field}: {error}");
    }
}

/// A head that a slice lacks is missing, not tied; gate vectors stand in where nothing else is the gate.
#[test]
fn a_missing_head_is_not_a_tied_one() {
    let slice = copied(&made());
    std::fs::remove_file(slice.path().join("lm_head_q4.bin")).unwrap();
    let vindex = open_checkpoint(slice.path()).unwrap();
    assert!(!skulk::arch::ArchSpec::from_checkpoint(&*vindex).unwrap().tied_embeddings);
    let error = skulk::Model::open(slice.path(), &skulk::LoadOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TensorMissing);
    assert!(error.to_string().contains("lm_head_q4.bin"), "{error}");
}
