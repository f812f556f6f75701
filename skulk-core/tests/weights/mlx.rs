//! Are MLX's packed words the numbers that MLX says, and refused where they cannot be?

use std::path::Path;

use serde_json::{Value, json};
use skulk::weights::safetensors::HfCheckpoint;
use skulk::{CancelToken, Checkpoint, DType, ErrorKind, Memory, Region};

use crate::fixtures;
use crate::support::safetensors_writer::{file, folder, write};
use crate::weights::assert_error;

fn dtype(mode: &Value, bits: u64) -> DType {
    let label = if mode == "mxfp4" { "FP4".to_owned() } else { format!("Affine{bits}") };
    DType::ALL.iter().copied().find(|dtype| dtype.label() == label).unwrap()
}

/// The first `n` numbers of a row.
fn row(region: &Region, row: usize, n: usize) -> Vec<f32> {
    let mut out = vec![0.0; region.row_len()];
    region.read_rows(row..row + 1, &mut out).unwrap();
    out.truncate(n);
    out
}

/// `mx.dequantize` in float32, bit for bit.
#[test]
fn numbers_are_those_of_mlx() {
    let mut tensors = 0;
    for model in ["llama_mlx", "llama_mlx_mixed", "qwen3_moe_mlx", "gemma3_mlx", "gpt_oss_mlx"] {
        let checkpoint = HfCheckpoint::open(fixtures::path(model)).unwrap();
        let golden = fixtures::json(&fixtures::path(model).join("dequant.json"));
        for (name, golden) in golden["tensors"].as_object().unwrap() {
            let region = checkpoint.region(name).unwrap();
            assert_eq!(json!(region.shape()), golden["shape"], "{name}");
            assert_eq!(region.dtype(), dtype(&golden["mode"], golden["bits"].as_u64().unwrap()), "{name}");
            let scales = region.scales().unwrap();
            let group = region.row_len() / scales.row_len();
            assert_eq!(json!(group), golden["group_size"], "{name}");
            for (at, key) in [(0, "row0"), (region.rows() - 1, "rowlast")] {
                let expected: Vec<f32> = serde_json::from_value(golden[key].clone()).unwrap();
                assert_eq!(row(&region, at, expected.len()), expected, "{model} {name} {key}");
            }
            tensors += 1;
        }
    }
    assert!(tensors >= 17, "{tensors}");
}

/// Every width and length of groups, of stacks too, wherever they lie.
#[test]
fn rows_are_those_of_mlx() {
    let mut kinds = std::collections::BTreeSet::new();
    for model in ["tiny-llama320", "tiny-mixtral", "tiny-qwen3-moe"] {
        let path = fixtures::root().join("tests/fixtures/mlx").join(model);
        let checkpoint = HfCheckpoint::open(&path).unwrap();
        let golden = HfCheckpoint::open(path.join("rows.safetensors")).unwrap();
        for info in golden.tensors() {
            let expected = golden.region(&info.name).unwrap();
            let whole = checkpoint.region(&info.name).unwrap();
            kinds.insert((whole.dtype().label(), whole.row_len() / whole.scales().unwrap().row_len()));
            let resident = whole.clone().resident(&CancelToken::new()).unwrap();
            let parts = [&resident, resident.scales().unwrap(), resident.biases().unwrap()];
            assert!(parts.iter().all(|part| part.memory() == Memory::Resident));
            for whole in [whole, resident] {
                let apart: Vec<Region> = match whole.shape() {
                    [_, _] => vec![whole.clone()],
                    _ => whole.parts().collect(),
                };
                let bytes = apart.iter().map(Region::stored_bytes).sum::<u64>();
                assert_eq!(bytes, whole.stored_bytes());
                for (i, part) in apart.iter().enumerate() {
                    let width = part.row_len();
                    assert_eq!(row(part, 0, width), row(&expected, 2 * i, width), "{model} {}", info.name);
                    let last = row(part, part.rows() - 1, width);
                    assert_eq!(last, row(&expected, 2 * i + 1, width), "{model} {}", info.name);
                }
            }
        }
    }
    let labels: std::collections::BTreeSet<_> = kinds.iter().map(|(label, _)| *label).collect();
    assert_eq!(labels.len(), 6, "{kinds:?}");
    assert!([32, 64, 128].iter().all(|group| kinds.iter().any(|(_, length)| length == group)), "{kinds:?}");
}

/// All numbers of small floats, of whole matrices and of a stack's.
#[test]
fn small_floats_are_those_of_mlx() {
    let path = fixtures::root().join("tests/fixtures/mlx/modes");
    let checkpoint = HfCheckpoint::open(&path).unwrap();
    let golden = HfCheckpoint::open(path.join("rows.safetensors")).unwrap();
    assert_eq!(golden.tensors().len(), 10);
    for info in golden.tensors() {
        let (expected, found) = (golden.region(&info.name).unwrap(), checkpoint.region(&info.name).unwrap());
        let (label, group) = match info.name.split_once('.').unwrap().0 {
            "mxfp4" => ("FP4", 32),
            "mxfp8" => ("FP8", 32),
            _ => ("NVFP4", 16),
        };
        assert_eq!((found.dtype().label(), found.shape()), (label, expected.shape()));
        assert_eq!(found.row_len() / found.scales().unwrap().row_len(), group);
        let resident = found.clone().resident(&CancelToken::new()).unwrap();
        let apart: Vec<Region> =
            if found.shape().len() == 3 { found.parts().collect() } else { vec![found.clone()] };
        let apart = apart.iter().flat_map(|part| (0..part.rows()).map(move |at| (part, at)));
        for (at, (part, own)) in apart.enumerate() {
            let width = found.row_len();
            let numbers = row(&expected, at, width);
            assert_eq!(row(&found, at, width), numbers, "{}", info.name);
            assert_eq!(row(&resident, at, width), numbers, "{}", info.name);
            assert_eq!(row(part, own, width), numbers, "{}", info.name);
        }
    }
}

/// Name, type and shape of each.
type Tensors = Vec<(&'static str, &'static str, Vec<usize>)>;
type Change = fn(&mut Value, &mut Tensors);

/// A folder with one module of 3 rows of 64 numbers in 4 bits, groups of 32, as `change` leaves it.
fn module(change: impl FnOnce(&mut Value, &mut Tensors)) -> tempfile::TempDir {
    let mut config = json!({ "model_type": "llama", "quantization": { "group_size": 32, "bits": 4 } });
    let mut tensors = vec![
        ("a.weight", "U32", vec![3, 8]),
        ("a.scales", "F16", vec![3, 2]),
        ("a.biases", "F16", vec![3, 2]),
    ];
    change(&mut config, &mut tensors);
    let size = |dtype: &str| match dtype {
        "U8" | "F8_E4M3" | "F8_E8M0" => 1,
        "F16" | "BF16" => 2,
        _ => 4,
    };
    let bytes: Vec<_> = tensors
        .iter()
        .map(|(_, dtype, shape)| vec![7u8; shape.iter().product::<usize>() * size(dtype)])
        .collect();
    let tensors: Vec<_> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, dtype, shape), bytes)| (*name, *dtype, &**shape, &**bytes))
        .collect();
    let folder = folder();
    write(folder.path(), "config.json", config.to_string().as_bytes());
    write(folder.path(), "model.safetensors", &file(&tensors));
    folder
}

fn open(folder: &Path) -> skulk::Result<Region> {
    HfCheckpoint::open(folder).unwrap().region("a.weight")
}

#[test]
fn what_configurations_say_counts() {
    for change in [
        json!({}),
        json!({ "mode": "affine" }),
        json!({ "mode": "mxfp4", "a": { "group_size": 32, "bits": 4 } }),
    ] {
        let folder = module(|config, _| {
            config["quantization"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        });
        let region = open(folder.path()).unwrap();
        assert_eq!((region.dtype(), region.shape()), (DType::Affine4, &[3, 64][..]));
        assert_eq!(region.stored_bytes(), 3 * (32 + 2 * 4));
    }
    // Of one module something else is said, which its words may be, too; whether the model has such a matrix shows later.
    let own = |bits: u64, group: u64| {
        module(move |config, _| config["quantization"]["a"] = json!({ "group_size": group, "bits": bits }))
    };
    let region = open(own(2, 64).path()).unwrap();
    assert_eq!((region.dtype(), region.shape()), (DType::Affine2, &[3, 128][..]));
    assert_error(open(own(2, 128).path()), ErrorKind::TensorShape, &["a.scales", "[3, 2]", "2 bits"]);
}

#[test]
fn what_cannot_be_is_refused_field_by_field() {
    let config =
        |key: &'static str, value: Value| module(move |config, _| config["quantization"][key] = value);
    for (key, value, kind, words) in [
        ("bits", json!(7), ErrorKind::ConfigInvalid, "quantization.a.bits"),
        ("bits", json!(1), ErrorKind::ConfigInvalid, "quantization.a.bits"),
        ("bits", json!(u64::MAX), ErrorKind::ConfigInvalid, "quantization.a.bits"),
        ("bits", json!("4"), ErrorKind::ConfigInvalid, "quantization.a.bits"),
        ("bits", Value::Null, ErrorKind::ConfigInvalid, "quantization.a.bits"),
        ("group_size", json!(16), ErrorKind::ConfigInvalid, "quantization.a.group_size"),
        ("group_size", json!(0), ErrorKind::ConfigInvalid, "quantization.a.group_size"),
        ("mode", json!("nvfp8"), ErrorKind::DTypeUnsupported, "quantization.a.mode"),
        ("mode", json!("mxfp4"), ErrorKind::TensorMissing, "a.scales"),
        ("mode", json!(4), ErrorKind::DTypeUnsupported, "quantization.a.mode"),
        ("bits", json!(8), ErrorKind::TensorShape, "a.scales"),
        ("bits", json!(3), ErrorKind::TensorShape, "a.weight"),
        ("group_size", json!(64), ErrorKind::TensorShape, "a.scales"),
        ("group_size", json!(128), ErrorKind::TensorShape, "a.weight"),
    ] {
        assert_error(open(config(key, value).path()), kind, &[words]);
    }
    let tensors = |change: fn(&mut Tensors)| module(move |_, tensors| change(tensors));
    type Case = (fn(&mut Tensors), ErrorKind, &'static str);
    let cases: [Case; 9] = [
        (|t| drop(t.remove(1)), ErrorKind::TensorMissing, "a.scales"),
        (|t| drop(t.remove(2)), ErrorKind::TensorMissing, "a.biases"),
        (|t| t[2].2 = vec![3, 1], ErrorKind::TensorShape, "a.biases"),
        (|t| t[1].2 = vec![2, 3], ErrorKind::TensorShape, "a.scales"),
        (|t| t[0].2 = vec![24], ErrorKind::TensorShape, "a.weight"),
        (|t| t[0].2 = vec![1, 1, 3, 8], ErrorKind::TensorShape, "a.weight"),
        (|t| t[0].2 = vec![3, 0], ErrorKind::TensorShape, "a.weight"),
        (|t| t[1].1 = "BF16", ErrorKind::DTypeUnsupported, "BF16 and F16"),
        (|t| t[1].1 = "U8", ErrorKind::TensorMissing, "a.scales"),
    ];
    for (change, kind, words) in cases {
        assert_error(open(tensors(change).path()), kind, &[words]);
    }
    // Words that no quantisation explains stay what they are.
    let folder = module(|config, _| drop(config.as_object_mut().unwrap().remove("quantization")));
    assert_error(open(folder.path()), ErrorKind::DTypeUnsupported, &["U32", "a.weight"]);
}

/// Other small floats, by their own numbers.
#[test]
fn other_small_floats_are_refused_where_they_cannot_be() {
    let floats = |mode: &'static str, bits: u64, group: u64, change: Change| {
        module(move |config, tensors| {
            config["quantization"] = json!({ "group_size": group, "bits": bits, "mode": mode });
            tensors[1].1 = "U8";
            tensors[1].2 = vec![3, 256 / bits as usize / group as usize];
            tensors.truncate(2);
            change(config, tensors);
        })
    };
    type Case = (Change, ErrorKind, &'static str);
    for (mode, bits, group, label, stored) in [("mxfp8", 8, 32, "FP8", 33), ("nvfp4", 4, 16, "NVFP4", 36)] {
        let region = open(floats(mode, bits, group, |_, _| ()).path()).unwrap();
        assert_eq!((region.dtype().label(), region.stored_bytes()), (label, 3 * stored));
        assert_eq!(region.shape(), [3, 256 / bits as usize]);
        let newer: Change =
            if mode == "nvfp4" { |_, t| t[1].1 = "F8_E4M3" } else { |_, t| t[1].1 = "F8_E8M0" };
        assert!(open(floats(mode, bits, group, newer).path()).is_ok());
        let cases: [Case; 9] = [
            (|c, _| c["quantization"]["bits"] = json!(6), ErrorKind::ConfigInvalid, "quantization.a.bits"),
            (|c, _| c["quantization"]["group_size"] = json!(64), ErrorKind::ConfigInvalid, "group_size"),
            (
                |c, _| c["quantization"]["a"] = json!({ "mode": "mxfp8" }),
                ErrorKind::ConfigInvalid,
                "quantization.a",
            ),
            (|_, t| drop(t.remove(1)), ErrorKind::TensorMissing, "a.scales"),
            (|_, t| t[1].1 = "BF16", ErrorKind::TensorMissing, "a.scales"),
            (|_, t| t[1].2 = vec![3, 3], ErrorKind::TensorShape, "a.scales"),
            (|_, t| t[0].2 = vec![3, 7], ErrorKind::TensorShape, "a.weight"),
            (
                |c, _| c["quantization"]["global_scale"] = json!(true),
                ErrorKind::DTypeUnsupported,
                "quantization.a.global_scale",
            ),
            (
                |_, t| t.push(("a.global_scale", "F32", vec![1])),
                ErrorKind::DTypeUnsupported,
                "quantization.a.global_scale",
            ),
        ];
        for (at, (change, kind, words)) in cases.into_iter().enumerate() {
            // Of the third case the numbers of all are those of a module in the other mode.
            if at == 2 && mode == "mxfp8" {
                continue;
            }
            assert_error(open(floats(mode, bits, group, change).path()), kind, &[words]);
        }
    }
    // Blocks are of 32 numbers, wherever scales change.
    let odd: Change = |_, t| (t[0].2, t[1].2) = (vec![3, 6], vec![3, 3]);
    assert_error(
        open(floats("nvfp4", 4, 16, odd).path()),
        ErrorKind::TensorShape,
        &["a.weight", "multiple of 32"],
    );
}

/// 4-bit floats have scales of bytes, and no biases.
#[test]
fn small_floats_are_refused_where_they_cannot_be() {
    let floats = |change: Change| {
        module(move |config, tensors| {
            config["quantization"] = json!({ "group_size": 32, "bits": 4, "mode": "mxfp4" });
            tensors[1].1 = "U8";
            tensors.truncate(2);
            change(config, tensors);
        })
    };
    let region = open(floats(|_, _| ()).path()).unwrap();
    assert_eq!(
        (region.dtype().label(), region.shape(), region.stored_bytes()),
        ("FP4", &[3, 64][..], 3 * 34)
    );
    assert!(region.biases().is_none());
    // Every byte is 7: twice 6 by the power that 7 is.
    assert_eq!(row(&region, 2, 2), [6.0 * f32::from_bits(7 << 23), 0.0]);
    type Case = (Change, ErrorKind, &'static str);
    let cases: [Case; 6] = [
        (
            |config, _| config["quantization"]["bits"] = json!(8),
            ErrorKind::ConfigInvalid,
            "quantization.a.bits",
        ),
        (
            |config, _| config["quantization"]["group_size"] = json!(64),
            ErrorKind::ConfigInvalid,
            "group_size",
        ),
        (|_, t| drop(t.remove(1)), ErrorKind::TensorMissing, "a.scales"),
        (|_, t| t[1].1 = "F16", ErrorKind::TensorMissing, "a.scales"),
        (|_, t| t[1].2 = vec![3, 1], ErrorKind::TensorShape, "a.scales"),
        (|_, t| t[0].2 = vec![3, 6], ErrorKind::TensorShape, "a.weight"),
    ];
    for (change, kind, words) in cases {
        assert_error(open(floats(change).path()), kind, &[words]);
    }
}
