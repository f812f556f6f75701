//! Against the errors of llama.cpp's quantisers, on inputs described in `tests/fixtures/quantisers/README.md`.

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{dequantise, stored};
use crate::weights::{DType, open_checkpoint};

/// What our error may be of theirs: no more, but for the rounding of sums and of decoders.
const TOLERANCE: f64 = 1.0001;

struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 32) as u32
    }

    fn uniform(&mut self) -> f64 {
        (f64::from(self.word()) + 0.5) / 4_294_967_296.0
    }

    fn normal(&mut self) -> f64 {
        let (a, b) = (self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (TAU * b).cos()
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.word().is_multiple_of(n)
    }

    /// Value `i` of a case.
    fn value(&mut self, case: &str, i: usize) -> f64 {
        match case {
            "normal" => self.normal(),
            "normal_small" | "normal_padded" | "normal_short_rows" => 0.02 * self.normal(),
            "normal_huge" => 1e4 * self.normal(),
            "normal_tiny" => 1e-20 * self.normal(),
            "normal_subnormal_scale" => 1e-5 * self.normal(),
            "normal_offset" | "offset_padded" => 5.0 + self.normal(),
            "normal_negative_offset" => -5.0 + self.normal(),
            "normal_far_offset" => 100.0 + self.normal(),
            "growing_scales" => (1 + (i / 32 % 8).pow(2)) as f64 * self.normal(),
            "cubed" => self.normal().powi(3),
            "uniform" => 2.0 * self.uniform() - 1.0,
            "uniform_positive" => self.uniform(),
            "uniform_negative" => -self.uniform(),
            "laplace" => {
                let x = -0.05 * self.uniform().ln();
                if self.one_in(2) { x } else { -x }
            }
            "outliers" => {
                let x = self.normal();
                if self.one_in(100) { 30.0 * x } else { x }
            }
            "sparse" | "very_sparse" => {
                let x = self.normal();
                if self.one_in(if case == "sparse" { 10 } else { 100 }) { x } else { 0.0 }
            }
            "signs" => [0.3, -0.3][(self.word() % 2) as usize],
            "ternary" => 0.1 * f64::from(self.word() % 3) - 0.1,
            "constant" => 0.7,
            "constant_negative" => -0.7,
            "zero" => 0.0,
            other => panic!("no formula for {other}"),
        }
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

fn goldens() -> Value {
    let file = fixtures().join("quantisers/llamacpp.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Holds our error on some rows against theirs.
fn compare(name: &str, case: &Value, values: &[f32]) {
    let width = case["width"].as_u64().unwrap() as usize;
    assert_eq!(values.len(), width * case["rows"].as_u64().unwrap() as usize, "{name}");
    let squares: f64 = values.iter().map(|&x| f64::from(x).powi(2)).sum();
    let expected = case["sum_of_squares"].as_f64().unwrap();
    assert!((squares - expected).abs() <= 1e-6 * expected, "{name}: the input is another one");
    for (dtype, theirs) in
        [(DType::Q4_K, "Q4_K"), (DType::Q6_K, "Q6_K"), (DType::Q6_K_Linear, "Q6_K"), (DType::Q8_0, "Q8_0")]
    {
        let theirs = case["mse"][theirs].as_f64().unwrap();
        let mut sum = 0.0;
        for row in values.chunks(width) {
            let found = stored(dtype, row);
            sum += row.iter().zip(found).map(|(&x, y)| (f64::from(x) - f64::from(y)).powi(2)).sum::<f64>();
        }
        let ours = sum / values.len() as f64;
        assert!(ours <= theirs * TOLERANCE, "{name} {dtype}: ours {ours:e}, theirs {theirs:e}");
    }
}

#[test]
fn no_less_accurate_than_llama_cpp_on_made_numbers() {
    let goldens = goldens();
    let cases = goldens["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 25);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let len = case["width"].as_u64().unwrap() * case["rows"].as_u64().unwrap();
        let mut random = Random(case["seed"].as_u64().unwrap());
        let values: Vec<f32> = (0..len as usize).map(|i| random.value(name, i) as f32).collect();
        compare(name, case, &values);
    }
}

#[test]
fn no_less_accurate_than_llama_cpp_on_weights() {
    let goldens = goldens();
    let tensors = goldens["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 5);
    for case in tensors {
        let folder = fixtures().join(case["folder"].as_str().unwrap());
        let name = case["tensor"].as_str().unwrap();
        let region = open_checkpoint(&folder).unwrap().region(name).unwrap();
        let len = region.row_len() * case["rows"].as_u64().unwrap() as usize;
        let mut values = vec![0.0; len];
        dequantise(region.dtype(), region.bytes(), &mut values);
        compare(name, case, &values);
    }
}
