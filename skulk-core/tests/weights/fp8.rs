//! Are matrices in FP8 the numbers that their definition says, and refused where they cannot be?

use serde_json::{Value, json};
use skulk::weights::safetensors::HfCheckpoint;
use skulk::{CancelToken, Checkpoint, DType, ErrorKind, Memory, Region};

use crate::support::safetensors_writer::{file, folder, write};
use crate::support::small_floats::number;
use crate::weights::assert_error;

/// Name, type, shape and bytes of each.
type Tensors = Vec<(&'static str, &'static str, Vec<usize>, Vec<u8>)>;

/// A matrix of 5 by 40 numbers in blocks of 2 by 16, as `change` leaves it.
fn matrix(change: impl FnOnce(&mut Value, &mut Tensors)) -> tempfile::TempDir {
    let scales = (0..9).flat_map(|i| (0.25 * (i + 1) as f32).to_le_bytes()).collect();
    let mut config = json!({
        "model_type": "llama",
        "quantization_config": { "quant_method": "fp8", "weight_block_size": [2, 16] },
    });
    let mut tensors = vec![
        ("a.weight", "F8_E4M3", vec![5, 40], (0..200).map(|i| (i * 7 % 251) as u8).collect()),
        ("a.weight_scale_inv", "F32", vec![3, 3], scales),
    ];
    change(&mut config, &mut tensors);
    let tensors: Vec<_> =
        tensors.iter().map(|(name, dtype, shape, bytes)| (*name, *dtype, &**shape, &**bytes)).collect();
    let folder = folder();
    write(folder.path(), "config.json", config.to_string().as_bytes());
    write(folder.path(), "model.safetensors", &file(&tensors));
    folder
}

fn open(folder: &tempfile::TempDir) -> skulk::Result<Region> {
    HfCheckpoint::open(folder.path()).unwrap().region("a.weight")
}

/// All numbers, where every scale is what `scale` says of its row and column.
fn check(folder: &tempfile::TempDir, scale: impl Fn(usize, usize) -> f32) {
    let region = open(folder).unwrap();
    assert_eq!((region.dtype(), region.shape()), (DType::FP8, &[5, 40][..]));
    let resident = region.clone().resident(&CancelToken::new()).unwrap();
    assert_eq!(resident.scales().unwrap().memory(), Memory::Resident);
    for region in [region, resident] {
        let mut found = vec![0.0; 200];
        region.read_rows(0..5, &mut found).unwrap();
        for (i, found) in found.into_iter().enumerate() {
            let expected = number((i * 7 % 251) as u8) * scale(i / 40, i % 40);
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{i}: {found}, not {expected}");
        }
    }
}

#[test]
fn numbers_are_those_of_the_definition() {
    let blocks = |row: usize, column: usize| 0.25 * (row / 2 * 3 + column / 16 + 1) as f32;
    let plain = matrix(|_, _| ());
    check(&plain, blocks);
    assert_eq!(open(&plain).unwrap().stored_bytes(), 200 + 36);
    check(&matrix(|_, t| t[1].0 = "a.weight_scale"), blocks);
    // Half of the values have another upper half.
    let bf16 = |i: usize| (0.25 * (i + 1) as f32).to_le_bytes()[2..].to_vec();
    check(&matrix(|_, t| (t[1].1, t[1].3) = ("BF16", (0..9).flat_map(bf16).collect())), blocks);
    let powers = |row: usize, column: usize| 2f32.powi((row / 2 * 3 + column / 16) as i32 - 7);
    check(&matrix(|_, t| (t[1].1, t[1].3) = ("F8_E8M0", (120..129).collect())), powers);
    let one: fn(&mut Tensors) = |t| t[1].3 = 0.5f32.to_le_bytes().to_vec();
    for shape in [vec![], vec![1], vec![1, 1]] {
        check(&matrix(|_, t| (one(t), t[1].2 = shape).1), |_, _| 0.5);
    }
    let rows: Vec<u8> = (0..5).flat_map(|i| (1.5 * i as f32).to_le_bytes()).collect();
    for shape in [vec![5], vec![5, 1]] {
        for method in ["compressed-tensors", "fbgemm_fp8", "modelopt", "fp8"] {
            let folder = matrix(|config, t| {
                config["quantization_config"] = json!({ "quant_method": method });
                (t[1].2, t[1].3) = (shape.clone(), rows.clone());
            });
            check(&folder, |row, _| 1.5 * row as f32);
        }
    }
    let structure = json!({ "group_0": { "weights": { "block_structure": [2, 16], "strategy": "block" } } });
    let groups = json!({ "quant_method": "compressed-tensors", "config_groups": structure });
    check(&matrix(|config, _| config["quantization_config"] = groups), blocks);
}

#[test]
fn what_cannot_be_is_refused() {
    type Case = (fn(&mut Value, &mut Tensors), ErrorKind, &'static str);
    let cases: [Case; 13] = [
        (|_, t| drop(t.remove(1)), ErrorKind::TensorMissing, "a.weight_scale_inv"),
        (|_, t| t[1].1 = "I32", ErrorKind::TensorMissing, "a.weight_scale_inv"),
        (|_, t| t[1].2 = vec![9], ErrorKind::TensorShape, "a.weight_scale_inv"),
        (|_, t| (t[1].2, t[1].3) = (vec![2, 3], vec![0; 24]), ErrorKind::TensorShape, "[3, 3]"),
        (|_, t| (t[1].2, t[1].3) = (vec![0], vec![]), ErrorKind::TensorShape, "a.weight_scale_inv"),
        (|_, t| t[0].2 = vec![1, 5, 40], ErrorKind::TensorShape, "a.weight"),
        (|_, t| t[0].2 = vec![200], ErrorKind::TensorShape, "a.weight"),
        (|_, t| t[0].1 = "F8_E5M2", ErrorKind::DTypeUnsupported, "F8_E5M2"),
        (|c, _| c["quantization_config"] = json!({}), ErrorKind::DTypeUnsupported, "F8_E4M3"),
        (
            |c, _| c["quantization_config"]["weight_block_size"] = json!([2, 8]),
            ErrorKind::DTypeUnsupported,
            "quantization_config.weight_block_size",
        ),
        (
            |c, _| c["quantization_config"]["weight_block_size"] = json!([0, 16]),
            ErrorKind::ConfigInvalid,
            "quantization_config.weight_block_size",
        ),
        (
            |c, _| c["quantization_config"]["weight_block_size"] = json!([u64::MAX, 16, 4]),
            ErrorKind::ConfigInvalid,
            "quantization_config.weight_block_size",
        ),
        (
            |c, _| c["quantization_config"]["weight_block_size"] = json!("128"),
            ErrorKind::ConfigInvalid,
            "quantization_config.weight_block_size",
        ),
    ];
    for (change, kind, words) in cases {
        assert_error(open(&matrix(change)), kind, &[words]);
    }
    // Blocks as large as numbers get.
    let huge = json!([u64::MAX, 1u64 << 63]);
    let whole = matrix(|config, t| {
        config["quantization_config"]["weight_block_size"] = huge;
        (t[1].2, t[1].3) = (vec![1, 1], 0.5f32.to_le_bytes().to_vec());
    });
    check(&whole, |_, _| 0.5);
}
