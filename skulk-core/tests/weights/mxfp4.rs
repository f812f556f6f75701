//! Are gpt-oss's blocks the numbers that others read in them, and refused where they cannot be?

use serde_json::json;
use skulk::weights::safetensors::HfCheckpoint;
use skulk::{CancelToken, Checkpoint, DType, ErrorKind, Memory, Region};

use crate::fixtures;
use crate::support::safetensors_writer::{file, folder, write};
use crate::weights::assert_error;

fn row(region: &Region, row: usize) -> Vec<f32> {
    let mut out = vec![0.0; region.row_len()];
    region.read_rows(row..row + 1, &mut out).unwrap();
    out
}

/// MLX took these very blocks over, gates and ups apart; what it makes of some is `mx.dequantize` in float32.
#[test]
fn numbers_are_those_of_mlx() {
    let [blocks, mlx] =
        ["gpt_oss_mxfp4", "gpt_oss_mlx"].map(|model| HfCheckpoint::open(fixtures::path(model)).unwrap());
    let golden = fixtures::json(&fixtures::path("gpt_oss_mlx").join("dequant.json"));
    let golden = &golden["tensors"]["model.layers.1.mlp.experts.gate_proj.weight"];
    let numbers = |key: &str| serde_json::from_value::<Vec<f32>>(golden[key].clone()).unwrap();
    let experts = |layer: usize, name: &str| format!("model.layers.{layer}.mlp.experts.{name}");
    let stack = blocks.region(&experts(1, "gate_up_proj")).unwrap();
    assert_eq!((stack.dtype(), stack.shape()), (DType::FP4, &[4, 256, 256][..]));
    assert_eq!(stack.stored_bytes(), 4 * 256 * 256 / 32 * 17);
    // Of the first and the last expert, gates are every other row.
    assert_eq!(row(&stack, 0)[..64], numbers("row0"));
    assert_eq!(row(&stack, 4 * 256 - 2)[..64], numbers("rowlast"));
    for layer in 0..4 {
        for (name, first, step, of_mlx) in [
            ("gate_up_proj", 0, 2, "gate_proj"),
            ("gate_up_proj", 1, 2, "up_proj"),
            ("down_proj", 0, 1, "down_proj"),
        ] {
            let stack = blocks.region(&experts(layer, name)).unwrap();
            let resident = stack.clone().resident(&CancelToken::new()).unwrap();
            assert_eq!(resident.scales().unwrap().memory(), Memory::Resident);
            let other = mlx.region(&experts(layer, &format!("{of_mlx}.weight"))).unwrap();
            for at in 0..other.rows() {
                assert_eq!(row(&stack, first + step * at), row(&other, at), "{layer} {name} {at}");
                assert_eq!(row(&resident, first + step * at), row(&other, at), "{layer} {name} {at}");
            }
        }
    }
}

type Tensors = Vec<(&'static str, &'static str, Vec<usize>)>;

/// A folder with blocks of 2 experts with 3 rows of 64 numbers, as `change` leaves it.
fn blocks(change: impl FnOnce(&mut Tensors)) -> tempfile::TempDir {
    let mut tensors = vec![("a_blocks", "U8", vec![2, 3, 2, 16]), ("a_scales", "U8", vec![2, 3, 2])];
    change(&mut tensors);
    let size = |dtype: &str| if dtype == "F16" { 2 } else { 1 };
    let bytes: Vec<_> = tensors
        .iter()
        .map(|(_, dtype, shape)| vec![127u8; shape.iter().product::<usize>() * size(dtype)])
        .collect();
    let tensors: Vec<_> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, dtype, shape), bytes)| (*name, *dtype, &**shape, &**bytes))
        .collect();
    let folder = folder();
    let config = json!({ "model_type": "gpt_oss", "quantization_config": { "quant_method": "mxfp4" } });
    write(folder.path(), "config.json", config.to_string().as_bytes());
    write(folder.path(), "model.safetensors", &file(&tensors));
    folder
}

#[test]
fn what_cannot_be_is_refused() {
    let open = |folder: tempfile::TempDir| HfCheckpoint::open(folder.path()).unwrap().region("a");
    let region = open(blocks(|_| ())).unwrap();
    assert_eq!((region.shape(), &row(&region, 5)[..2]), (&[2, 3, 64][..], &[-6.0, 6.0][..]));
    let newer = open(blocks(|tensors| tensors[1].1 = "F8_E8M0")).unwrap();
    assert_eq!(row(&newer, 0), row(&region, 0));
    type Case = (fn(&mut Tensors), ErrorKind, &'static str);
    let cases: [Case; 8] = [
        (|t| drop(t.remove(1)), ErrorKind::TensorMissing, "a_scales"),
        (|t| drop(t.remove(0)), ErrorKind::TensorMissing, "a"),
        (|t| t[1].1 = "F16", ErrorKind::TensorMissing, "a_scales"),
        (|t| t[0].1 = "F16", ErrorKind::TensorMissing, "a"),
        (|t| t[1].2 = vec![2, 3, 1], ErrorKind::TensorShape, "a_scales"),
        (|t| t[1].2 = vec![3, 2, 2], ErrorKind::TensorShape, "a_scales"),
        (|t| t[0].2 = vec![2, 3, 4, 8], ErrorKind::TensorShape, "a_blocks"),
        (|t| t[0].2 = vec![2, 16], ErrorKind::TensorShape, "a_blocks"),
    ];
    for (change, kind, words) in cases {
        assert_error(open(blocks(change)), kind, &[words]);
    }
}

/// What others quantised is refused by the name of what did it; what they left in floats is read.
#[test]
fn other_methods_are_refused_by_name() {
    for method in ["awq", "gptq", "bitsandbytes", "compressed-tensors", "modelopt"] {
        let folder = folder();
        let config = json!({ "model_type": "llama", "quantization_config": { "quant_method": method } });
        write(folder.path(), "config.json", config.to_string().as_bytes());
        let tensors: [(_, _, &[usize], &[u8]); 3] = [
            ("a.qweight", "I32", &[1, 1], &[0; 4]),
            ("b.weight", "F8_E4M3", &[2, 2], &[0; 4]),
            ("norm.weight", "F32", &[1], &[0; 4]),
        ];
        write(folder.path(), "model.safetensors", &file(&tensors));
        let checkpoint = HfCheckpoint::open(folder.path()).unwrap();
        checkpoint.region("norm.weight").unwrap();
        let read = ["compressed-tensors", "modelopt"].contains(&method);
        if read {
            let words = ["b.weight_scale"];
            assert_error(checkpoint.region("b.weight"), ErrorKind::TensorMissing, &words);
        }
        for name in ["a.weight", "b.weight"].into_iter().take(if read { 1 } else { 2 }) {
            let words = [method, "quantization_config.quant_method", name];
            assert_error(checkpoint.region(name), ErrorKind::DTypeUnsupported, &words);
        }
    }
}
