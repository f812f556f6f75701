//! Does a folder that we write generate what its source does?

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use skulk::extract::{ExtractOptions, VindexStorage};
use skulk::{Checkpoint, DType, TokenId, VindexReader, open_checkpoint};

use super::extracted;
use crate::vindex::generation::{apart, logits_of};
use crate::vindex::{fixtures, origin, pairs, values, write};

/// Checkpoints of the families that run and that vindex folders can hold, and those of the suites.
fn sources() -> Vec<PathBuf> {
    let mut all = fixtures::checkpoints();
    all.extend(pairs().into_iter().map(|(_, source)| source));
    all.retain(|folder| {
        let checkpoint = open_checkpoint(folder);
        let arch = checkpoint.and_then(|c| skulk::arch::ArchSpec::from_checkpoint(&*c));
        arch.is_ok_and(|arch| !["gpt_oss", "gemma4"].contains(&arch.family.as_str()))
    });
    all.dedup();
    all
}

/// Of the last of some tokens that every vocabulary has.
fn logits(path: &Path) -> Vec<f32> {
    logits_of(path, &(0..24).map(|i| TokenId(1 + i * 37 % 500)).collect::<Vec<_>>())
}

fn options(storage: VindexStorage) -> ExtractOptions {
    ExtractOptions::default().storage(storage).threads(2)
}

/// The source with all numbers as f32, in which engines add in the order that they have for f32.
fn wide(source: &Path) -> tempfile::TempDir {
    write::safetensors(&*open_checkpoint(source).unwrap(), source, "", |x| x)
}

#[test]
fn f32_folders_generate_the_same_bit_for_bit() {
    for source in sources() {
        let (_folder, own) = extracted(&source, options(VindexStorage::F32));
        let wide = wide(&source);
        assert!(logits(&own) == logits(wide.path()), "{}", source.display());
    }
}

/// f16 keeps 11 bits of each number; Q4_K is what its own decoded weights give, within what quantised products are
/// off, and loses up to 0.45 of untrained models' logits, as LARQL's folders of them do.
#[test]
fn smaller_folders_generate_what_their_sources_do() {
    for source in sources() {
        let wide = wide(&source);
        let expected = logits(wide.path());
        let (_folder, f16) = extracted(&source, options(VindexStorage::F16));
        let off = apart(&logits(&f16), &expected);
        assert!(off < 2e-3, "{}: {off} at f16", source.display());

        let (_folder, q4k) = extracted(&source, options(VindexStorage::Q4K));
        let found = logits(&q4k);
        let vindex = VindexReader::open(&q4k).unwrap();
        let decoded = write::safetensors(&vindex, &source, "model.", |x| x);
        let off = apart(&found, &logits(decoded.path()));
        assert!(off < 2e-3, "{}: {off} from its own weights", source.display());
        let off = apart(&found, &expected);
        assert!(off < 0.45, "{}: {off} at q4k", source.display());
    }
}

/// A vindex is a checkpoint too: extracted again, at the same or another storage, it is the same.
#[test]
fn folders_are_sources() {
    let source = origin();
    let (_first, f32) = extracted(&source, options(VindexStorage::F32).name("n"));
    for &storage in VindexStorage::ALL {
        let (_a, direct) = extracted(&source, options(storage).name("n"));
        let (_b, again) = extracted(&f32, options(storage).name("n"));
        assert_eq!(super::difference(&super::timeless(&direct), &super::timeless(&again)), None, "{storage}");
    }
    // Blocks are copied as they are.
    let (_c, q4k) = extracted(&source, options(VindexStorage::Q4K).name("n"));
    let (_d, again) = extracted(&q4k, options(VindexStorage::Q4K).name("n"));
    let [first, second] = [&q4k, &again].map(|folder| VindexReader::open(folder).unwrap());
    for tensor in first.tensors().iter().filter(|tensor| tensor.dtype.is_quantised()) {
        let [first, second] = [&first, &second].map(|v| v.region(&tensor.name).unwrap());
        assert!(first.bytes() == second.bytes(), "{}", tensor.name);
    }
}

/// A llama with biases on all projections.
fn with_biases(source: &Path) -> tempfile::TempDir {
    let checkpoint = open_checkpoint(source).unwrap();
    let mut tensors = Vec::new();
    for tensor in checkpoint.tensors() {
        let region = checkpoint.region(&tensor.name).unwrap();
        tensors.push((tensor.name.clone(), region.shape().to_vec(), values(&region)));
        if let Some(projection) = tensor.name.strip_suffix("_proj.weight") {
            let n = region.rows();
            let bias = (0..n).map(|i| ((i * 7 % 31) as f32 - 15.0) / 64.0).collect();
            tensors.push((format!("{projection}_proj.bias"), vec![n], bias));
        }
    }
    let mut config: Value = fixtures::json(&source.join("config.json"));
    config["attention_bias"] = json!(true);
    config["mlp_bias"] = json!(true);
    config["rms_norm_eps"] = json!(1e-3);
    config["rope_parameters"] = json!({ "rope_type": "linear", "factor": 4.0, "rope_theta": 5e5 });
    write::checkpoint(&tensors, &config, source)
}

/// What LARQL's schema loses is kept: biases, norm epsilon, rope scaling, the context's length, stop tokens.
#[test]
fn nothing_of_the_model_is_lost() {
    let source = with_biases(&origin());
    let expected = logits(source.path());
    let plain = wide(&origin());
    assert!(apart(&logits(plain.path()), &expected) > 0.1);
    for (storage, limit) in
        [(VindexStorage::F32, 0.0), (VindexStorage::F16, 2e-3), (VindexStorage::Q4K, 0.45)]
    {
        let (_folder, own) = extracted(source.path(), options(storage));
        let off = apart(&logits(&own), &expected);
        assert!(off <= limit, "{off} at {storage}");
        let [found, origin] = [own.as_path(), source.path()].map(|path| {
            let checkpoint = open_checkpoint(path).unwrap();
            let mut spec = skulk::arch::ArchSpec::from_checkpoint(&*checkpoint).unwrap();
            spec.names =
                skulk::arch::ArchSpec::from_checkpoint(&VindexReader::open(&own).unwrap()).unwrap().names;
            let tokenizer = skulk::Tokenizer::from_checkpoint(&*checkpoint).unwrap();
            (spec, tokenizer.eos_ids().to_vec())
        });
        assert_eq!(found, origin);
        let vindex = VindexReader::open(&own).unwrap();
        let bias = vindex.region("layers.1.mlp.gate_proj.bias").unwrap();
        assert_eq!(bias.dtype() == DType::F16, storage == VindexStorage::F16);
        assert_eq!(values(&bias)[3], (21.0 - 15.0) / 64.0);
    }
}
