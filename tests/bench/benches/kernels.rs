//! How fast is each operation of the CPU engine by itself?
//!
//! `cargo bench -p skulk-bench --bench kernels -- [FILTER]`. Rates are bytes of stored
//! weights or of cache a second where memory is what limits, multiplications and additions a second
//! where arithmetic does. Numbers are made up; no operation's time depends on them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, run by hand")]

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use skulk::internals::{Operations, Run, matrix};
use skulk::{DType, KvType, MappedFile, Memory, Precision};
use tempfile::NamedTempFile;

const DTYPES: [DType; 16] = [
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q2_K,
    DType::Q4_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::BF16,
    DType::Affine4,
    DType::Affine6,
    DType::Affine8,
    DType::FP4,
    DType::NVFP4,
];
/// Output rows of the head and of a feed-forward block of Gemma 3 270M.
const HEAD: usize = 262_144;
const FFN: usize = 2048;
const ROWS: [usize; 6] = [1, 2, 4, 8, 16, 256];
/// Outputs and elements of a row in models of 7 billion weights.
const WIDE: usize = 4096;
/// Query heads, key/value heads, elements of a head: Gemma 3 270M, and Qwen3 30B-A3B.
const HEADS: [[usize; 3]; 2] = [[4, 1, 256], [32, 4, 128]];

/// Its width, or for types with blocks of 256 the next multiple of these.
fn width(dtype: DType) -> usize {
    640usize.next_multiple_of(dtype.block_len())
}

/// Bytes of a row, with its scales, or scales and biases of groups of 64, where these are beside it.
fn stored_bytes(dtype: DType, n_in: usize) -> u64 {
    let beside = match dtype {
        DType::FP4 => n_in / 32,
        DType::NVFP4 => n_in / 16,
        dtype if dtype.is_affine() => 2 * 2 * n_in / 64,
        _ => 0,
    };
    (dtype.row_bytes(n_in).unwrap() + beside) as u64
}

/// A file from which a matrix of any type can be mapped: as half-precision scales and as bfloat16
/// its numbers are small.
fn weights() -> NamedTempFile {
    let largest = DTYPES.iter().filter_map(|dtype| dtype.row_bytes(width(*dtype))).max().unwrap() * HEAD;
    let mut state = 1u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        0x2c + (state >> 28) as u8
    };
    let part: Vec<u8> = (0..1 << 20).map(|_| byte()).collect();
    let mut file = NamedTempFile::new().unwrap();
    for _ in 0..largest.div_ceil(part.len()) {
        file.write_all(&part).unwrap();
    }
    file
}

struct Bench {
    criterion: Criterion,
    operations: Operations,
    name: &'static str,
}

impl Bench {
    fn run(&mut self, name: &str, throughput: Option<Throughput>, prepare: impl Fn(&Operations) -> Run<'_>) {
        let mut group = self.criterion.benchmark_group(self.name);
        if let Some(throughput) = throughput {
            group.throughput(throughput);
        }
        // Prepared once, and only if the filter lets it run.
        let mut prepared = None;
        group.bench_function(name, |bencher| {
            let run = prepared.get_or_insert_with(|| prepare(&self.operations));
            bencher.iter(|| run().unwrap());
        });
        group.finish();
    }
}

fn products(bench: &mut Bench, file: &MappedFile, dtypes: &[DType]) {
    for &dtype in dtypes {
        let n_in = width(dtype);
        let shapes = [
            ("head", [HEAD, n_in], &ROWS[..4]),
            ("ffn", [FFN, n_in], &ROWS),
            ("wide", [WIDE, WIDE], &ROWS[5..]),
        ];
        for (shape, [n_out, n_in], rows) in shapes {
            for &rows in rows {
                let throughput = match rows {
                    1 => Throughput::Bytes(stored_bytes(dtype, n_in) * n_out as u64),
                    _ => Throughput::Elements((2 * n_in * n_out * rows) as u64),
                };
                for memory in [Memory::Mapped, Memory::Resident] {
                    let name = format!("product/{dtype}/{shape} {n_out}x{n_in}/{rows} rows, {memory}");
                    bench.run(&name, Some(throughput.clone()), |operations| {
                        let matrix = matrix(file, dtype, [n_out, n_in], memory).unwrap();
                        operations.linear(matrix, rows).unwrap()
                    });
                }
            }
        }
    }
}

fn attention(bench: &mut Bench) {
    let kinds = [KvType::F16, KvType::BF16];
    for (heads, kv) in HEADS.into_iter().flat_map(|heads| kinds.map(|kv| (heads, kv))) {
        let [n_heads, n_kv_heads, head_dim] = heads;
        let what = format!("{n_heads} of {n_kv_heads} heads of {head_dim} in {kv}");
        let start = 2048;
        let bytes = 2 * 2 * (start + 1) * n_kv_heads * head_dim;
        bench.run(
            &format!("attention/decode at {start}/{what}"),
            Some(Throughput::Bytes(bytes as u64)),
            |operations| operations.attention(kv, heads, start, 1).unwrap(),
        );
        let rows = 256;
        let pairs = rows * start + rows * (rows + 1) / 2;
        bench.run(
            &format!("attention/prefill {rows} at {start}/{what}"),
            Some(Throughput::Elements((4 * pairs * n_heads * head_dim) as u64)),
            |operations| operations.attention(kv, heads, start, rows).unwrap(),
        );
    }
}

fn between_products(bench: &mut Bench) {
    for rows in [1, 256] {
        let elements = |width: usize| Some(Throughput::Elements((rows * width) as u64));
        let (hidden, heads) = (640, [4, 256]);
        bench.run(&format!("rows/rms norm {hidden}/{rows} rows"), elements(hidden), |operations| {
            operations.rms_norm(rows, hidden).unwrap()
        });
        bench.run(&format!("rows/add {hidden}/{rows} rows"), elements(hidden), |operations| {
            operations.add(rows, hidden).unwrap()
        });
        bench.run(&format!("rows/gated {FFN}/{rows} rows"), elements(FFN), |operations| {
            operations.gated(rows, FFN).unwrap()
        });
        bench.run(&format!("rows/norm and rope 4x256/{rows} rows"), elements(4 * 256), |operations| {
            operations.norm_rope(rows, heads).unwrap()
        });
    }
}

/// What the features of a layer write: embeddings in bfloat16 and down projections of about the sizes that
/// Gemma 3 270M has, of numbers that are spread like normal ones.
fn nearest(bench: &mut Bench) {
    const WIDTH: usize = 640;
    const K: usize = 10;
    let (computed, runs) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let throughput = Throughput::Elements((2 * FFN * HEAD * WIDTH) as u64);
    let name = format!("nearest/{HEAD}x{WIDTH}/{FFN} queries");
    bench.run(&name, Some(throughput), |operations| {
        let mut state = 1u64;
        let mut normal = |deviation: f32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let sum: f32 = state.to_be_bytes()[..4].iter().map(|byte| f32::from(*byte)).sum();
            (sum - 510.0) / 147.8 * deviation
        };
        let mut file = NamedTempFile::new().unwrap();
        let mut row = Vec::with_capacity(2 * WIDTH);
        for _ in 0..HEAD {
            row.clear();
            row.extend(
                (0..WIDTH).flat_map(|_| (normal(0.05).to_bits() >> 16).to_le_bytes().into_iter().take(2)),
            );
            file.write_all(&row).unwrap();
        }
        let table =
            matrix(&MappedFile::open(file.path()).unwrap(), DType::BF16, [HEAD, WIDTH], Memory::Mapped)
                .unwrap();
        let queries: Vec<f32> = (0..FFN * WIDTH).map(|_| normal(0.02)).collect();
        let start = Instant::now();
        let mut run = operations.nearest(&table, queries, K, Rc::clone(&computed)).unwrap();
        println!("copied in {:.2} s", start.elapsed().as_secs_f64());
        let runs = Rc::clone(&runs);
        Box::new(move || {
            runs.set(runs.get() + 1);
            run()
        })
    });
    if runs.get() > 0 {
        println!("{} products of a query computed exactly", computed.get() / runs.get() / FFN as u64);
    }
}

fn main() {
    let file = weights();
    let file = MappedFile::open(file.path()).unwrap();
    let threads = std::thread::available_parallelism().unwrap().get();
    let criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args();
    let operations = Operations::new(threads, Precision::Fast).unwrap();
    println!("{threads} threads, {}", operations.instruction_set());
    let mut bench = Bench { criterion, operations, name: "fast" };
    bench.run("dispatch", None, |operations| operations.nothing());
    products(&mut bench, &file, &DTYPES);
    attention(&mut bench);
    between_products(&mut bench);
    nearest(&mut bench);
    bench.operations = Operations::new(threads, Precision::Exact).unwrap();
    bench.name = "exact";
    products(&mut bench, &file, &DTYPES);
    bench.operations = Operations::new(threads, Precision::Bf16).unwrap();
    bench.name = "bf16";
    products(&mut bench, &file, &[DType::BF16]);
    bench.criterion.final_summary();
}
