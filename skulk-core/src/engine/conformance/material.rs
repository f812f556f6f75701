//! What do operations work on? Seeded numbers, and weights of every stored type in a file.

use std::io::Write;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::arch::{AttentionSpec, LatentSpec, Window};
use crate::engine::{KvType, KvTypes};
use crate::weights::quant::{dequantise, from_interleaved};
use crate::weights::{DType, MappedFile, Region, TensorInfo};

/// Reproducible numbers.
pub(in crate::engine) struct Numbers(ChaCha8Rng);

impl Numbers {
    pub(in crate::engine) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Evenly spread over -1 to 1.
    pub(in crate::engine) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.0.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.next_u32() as usize % end
    }
}

/// A matrix `[out, in]` of random weights: as stored, and the values it stores.
pub(in crate::engine) struct Weights {
    pub(in crate::engine) region: Region,
    pub(in crate::engine) values: Vec<f64>,
}

impl Weights {
    /// `shift`: bytes before the weights in their file, hence their alignment.
    pub(in crate::engine) fn new(
        numbers: &mut Numbers,
        dtype: DType,
        [n_out, n_in]: [usize; 2],
        shift: usize,
    ) -> Self {
        Self::padded(numbers, dtype, [n_out, n_in, n_in], shift)
    }

    /// Likewise, in rows of `stored_in` elements, of which the last count for nothing.
    pub(in crate::engine) fn padded(
        numbers: &mut Numbers,
        dtype: DType,
        [n_out, n_in, stored_in]: [usize; 3],
        shift: usize,
    ) -> Self {
        if dtype.is_affine() {
            return affine(numbers, dtype, [n_out, n_in], shift);
        }
        if dtype.is_for_cpus() && !dtype.has_scales_beside() {
            return of_blocks(numbers, dtype, [n_out, n_in, stored_in], shift);
        }
        match dtype {
            DType::FP4 | DType::NVFP4 => return small_floats(numbers, dtype, [n_out, n_in], shift),
            DType::FP8 => return with_blocks(numbers, [n_out, n_in], shift),
            _ => {}
        }
        let floats = numbers.floats(n_out * stored_in);
        let (bytes, values) = stored(dtype, &floats, [n_out, stored_in]);
        let values: Vec<f32> = values.chunks(stored_in).flat_map(|row| row[..n_in].to_vec()).collect();
        let region = region(&format!("{dtype} weights"), dtype, [n_out, n_in], &bytes, shift);
        Self { region, values: wide(&values) }
    }
}

/// Integers of so many bits, lowest first, with scales of either sign and biases beside them: one of each for groups of
/// any length that there is, in any type of floats.
fn affine(numbers: &mut Numbers, dtype: DType, [n_out, n_in]: [usize; 2], shift: usize) -> Weights {
    let bits = dtype.block_bytes() / 4;
    let lengths: Vec<usize> = [32, 64, 128].into_iter().filter(|len| n_in.is_multiple_of(*len)).collect();
    let (group, most) = (lengths[numbers.below(lengths.len())], (1 << bits) - 1);
    let floats = [DType::F32, DType::F16, DType::BF16][numbers.below(3)];
    let integers: Vec<usize> = (0..n_out * n_in).map(|_| numbers.below(most + 1)).collect();
    let mut bytes = vec![0u8; integers.len() * bits / 8];
    for (i, integer) in integers.iter().enumerate() {
        for bit in 0..bits {
            let at = i * bits + bit;
            bytes[at / 8] |= ((integer >> bit & 1) as u8) << (at % 8);
        }
    }
    let mut beside = |most: f32| {
        let values: Vec<f32> = numbers.floats(n_out * n_in / group).iter().map(|x| x * most).collect();
        let (bytes, values) = stored_floats(floats, &values);
        (region("beside", floats, [n_out, n_in / group], &bytes, 2 * shift), values)
    };
    let ((scales, scale), (biases, bias)) = (beside(1.0 / most as f32), beside(0.5));
    let value = |(i, integer): (usize, &usize)| {
        f64::from(scale[i / group]) * *integer as f64 + f64::from(bias[i / group])
    };
    let values = integers.iter().enumerate().map(value).collect();
    let region = region(&format!("{dtype} weights"), dtype, [n_out, n_in], &bytes, shift);
    Weights { region: region.with_groups(scales, Some(biases)), values }
}

/// Blocks of any bytes, but for their scales: what they mean is compared with gguf-py's numbers elsewhere.
fn of_blocks(
    numbers: &mut Numbers,
    dtype: DType,
    [n_out, n_in, stored_in]: [usize; 3],
    shift: usize,
) -> Weights {
    let mut bytes: Vec<u8> =
        (0..dtype.row_bytes(stored_in).unwrap() * n_out).map(|_| numbers.below(256) as u8).collect();
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        let scale = f16::from_f32([0.01, -0.02, 0.03][numbers.below(3)]).to_le_bytes();
        match dtype {
            DType::MXFP4 => block[0] = 120 + numbers.below(5) as u8,
            DType::TQ2_0 => block[64..].copy_from_slice(&scale),
            DType::TQ1_0 => block[52..].copy_from_slice(&scale),
            // Its upper half byte is the scale's sign and exponent.
            DType::IQ1_M => block[55] = block[55] & 15 | 0x10,
            dtype if dtype == DType::IQ4_XS || dtype.is_of_codebook() => {
                block[..2].copy_from_slice(&f16::from_f32(0.001).to_le_bytes())
            }
            _ => block[..2].copy_from_slice(&scale),
        }
    }
    let mut values = vec![0.0; n_out * stored_in];
    dequantise(dtype, &bytes, &mut values);
    let values: Vec<f32> = values.chunks(stored_in).flat_map(|row| row[..n_in].to_vec()).collect();
    let region = region(&format!("{dtype} weights"), dtype, [n_out, n_in], &bytes, shift);
    Weights { region, values: wide(&values) }
}

/// 8-bit floats with a scale for each block of 3 rows and 32 elements, of any type of floats.
fn with_blocks(numbers: &mut Numbers, [n_out, n_in]: [usize; 2], shift: usize) -> Weights {
    const BLOCK: [usize; 2] = [3, 32];
    let floats = [DType::F32, DType::F16, DType::BF16][numbers.below(3)];
    let bytes: Vec<u8> =
        (0..n_out * n_in).map(|_| numbers.below(0x40) as u8 | (numbers.below(2) << 7) as u8).collect();
    let blocks = [n_out.div_ceil(BLOCK[0]), n_in.div_ceil(BLOCK[1])];
    let scales: Vec<f32> = numbers.floats(blocks[0] * blocks[1]).iter().map(|x| x * 0.5).collect();
    let (stored, scales) = stored_floats(floats, &scales);
    let mut elements = vec![0.0; bytes.len()];
    dequantise(DType::FP8, &bytes, &mut elements);
    let scale = |i: usize| f64::from(scales[i / n_in / BLOCK[0] * blocks[1] + i % n_in / BLOCK[1]]);
    let values = elements.iter().enumerate().map(|(i, x)| f64::from(*x) * scale(i)).collect();
    let scales = region("beside", floats, blocks, &stored, 2 * shift);
    let region = region("FP8 weights", DType::FP8, [n_out, n_in], &bytes, shift);
    Weights { region: region.with_blocks(scales, BLOCK), values }
}

/// 4-bit floats, of which the lower half of a byte comes first, with a power of two for every 32 of them, or one and a half
/// times that for every 16.
fn small_floats(numbers: &mut Numbers, dtype: DType, [n_out, n_in]: [usize; 2], shift: usize) -> Weights {
    const SIZES: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let halves: Vec<usize> = (0..n_out * n_in).map(|_| numbers.below(16)).collect();
    let (group, of_scales, factor) =
        if dtype == DType::FP4 { (32, DType::E8M0, 1.0) } else { (16, DType::E4M3, 1.5) };
    let exponents: Vec<usize> = (0..n_out * n_in / group).map(|_| numbers.below(5)).collect();
    let value = |(i, half): (usize, &usize)| {
        let size = SIZES[half % 8] * factor * 2f64.powi(exponents[i / group] as i32 - 7);
        if *half < 8 { size } else { -size }
    };
    let values = halves.iter().enumerate().map(value).collect();
    let bytes: Vec<u8> = halves.chunks(2).map(|two| (two[0] | two[1] << 4) as u8).collect();
    // The first is below the smallest with an exponent of its own.
    let scale = |exponent: &usize| match of_scales {
        DType::E8M0 => 120 + *exponent as u8,
        _ => [6, 12, 20, 28, 36][*exponent],
    };
    let scales: Vec<u8> = exponents.iter().map(scale).collect();
    let scales = region("beside", of_scales, [n_out, n_in / group], &scales, 2 * shift);
    let region = region("4-bit floats", dtype, [n_out, n_in], &bytes, shift);
    Weights { region: region.with_groups(scales, None), values }
}

/// A mapped tensor; `shift`: bytes before it in its file, hence its alignment.
pub(in crate::engine) fn region(
    name: &str,
    dtype: DType,
    shape: [usize; 2],
    bytes: &[u8],
    shift: usize,
) -> Region {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![0; shift]).unwrap();
    file.write_all(bytes).unwrap();
    let (name, shape, offset, len) = (name.into(), shape.into(), shift as u64, bytes.len() as u64);
    let info = TensorInfo { name, dtype, shape, file: 0, offset, len };
    Region::map(&MappedFile::open(file.path()).unwrap(), &info).unwrap()
}

/// Numbers as a type of floats stores them, and the numbers that it stores.
pub(in crate::engine) fn stored_floats(dtype: DType, floats: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let one = |&x: &f32| match dtype {
        DType::F32 => (x.to_le_bytes().to_vec(), x),
        DType::F16 => (f16::from_f32(x).to_le_bytes().to_vec(), f16::from_f32(x).to_f32()),
        _ => (bf16::from_f32(x).to_le_bytes().to_vec(), bf16::from_f32(x).to_f32()),
    };
    let (bytes, values): (Vec<_>, _) = floats.iter().map(one).unzip();
    (bytes.concat(), values)
}

/// Bytes of a type that come closest to the numbers, and the numbers that those bytes are.
fn stored(dtype: DType, floats: &[f32], shape: [usize; 2]) -> (Vec<u8>, Vec<f32>) {
    let blocks = |dtype| {
        let tensor = Tensor::from_slice(floats, &shape, &Device::Cpu).unwrap();
        let blocks = QTensor::quantize(&tensor, dtype).unwrap();
        let values = blocks.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        (blocks.data().unwrap().into_owned(), values)
    };
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => stored_floats(dtype, floats),
        DType::Q4_0 => blocks(GgmlDType::Q4_0),
        DType::Q4_1 => blocks(GgmlDType::Q4_1),
        DType::Q5_0 => blocks(GgmlDType::Q5_0),
        DType::Q5_1 => blocks(GgmlDType::Q5_1),
        DType::Q8_0 => blocks(GgmlDType::Q8_0),
        DType::Q2_K => blocks(GgmlDType::Q2K),
        DType::Q3_K => blocks(GgmlDType::Q3K),
        DType::Q4_K => blocks(GgmlDType::Q4K),
        DType::Q5_K => blocks(GgmlDType::Q5K),
        DType::Q6_K => blocks(GgmlDType::Q6K),
        DType::Q6_K_Linear => {
            let (bytes, values) = blocks(GgmlDType::Q6K);
            let mut linear = vec![0; bytes.len()];
            from_interleaved(&bytes, &mut linear);
            (linear, values)
        }
        DType::Q8_K => blocks(GgmlDType::Q8K),
        _ => panic!("{dtype} is not made of blocks"),
    }
}

pub(in crate::engine) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// Keys or values of heads of so many elements as a cache keeps them.
pub(in crate::engine) fn kept(kv: KvType, head_dim: usize, x: &[f32]) -> Vec<f64> {
    match kv {
        KvType::F16 => wide(&stored_floats(DType::F16, x).1),
        KvType::BF16 => wide(&stored_floats(DType::BF16, x).1),
        KvType::F32 => wide(x),
        KvType::Q8_0 | KvType::Q4_0 => {
            x.chunks_exact(head_dim).flat_map(|head| quantised(kv, head)).collect()
        }
    }
}

/// A head rotated, rounded block by block, and rotated back.
fn quantised(kv: KvType, head: &[f32]) -> Vec<f64> {
    let mut head = head.to_vec();
    // The matrix' signs: how many bits row and column have in common. Sums are halved each time, as engines do, whose
    // rounding decides which integer is the nearest one.
    let n = (1usize << head.len().trailing_zeros()).min(256);
    for block in head.chunks_exact_mut(n) {
        let mut bit = 1;
        while bit < n {
            let before = block.to_vec();
            for (i, x) in block.iter_mut().enumerate() {
                let other = before[i ^ bit];
                *x = if i & bit == 0 { before[i] + other } else { other - before[i] };
            }
            bit *= 2;
        }
        block.iter_mut().for_each(|x| *x *= 1.0 / (n as f32).sqrt());
    }
    let mut kept = Vec::new();
    for block in head.chunks(32) {
        let largest =
            block.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs()).then(a.total_cmp(b))).unwrap();
        let (scale, least, most) = if kv == KvType::Q8_0 {
            (largest.abs() / 127.0, -127.0, 127.0)
        } else {
            (largest / -8.0, -8.0, 7.0)
        };
        let scale = half::f16::from_f32(scale).to_f32();
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let round =
            |x: &f32| f64::from((x * inverse).clamp(least, most).round_ties_even()) * f64::from(scale);
        kept.extend(block.iter().map(round));
    }
    for block in kept.chunks_exact_mut(n) {
        let before = block.to_vec();
        for (i, x) in block.iter_mut().enumerate() {
            let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            *x = before.iter().enumerate().map(|(j, x)| sign(j) * x).sum::<f64>() / (n as f64).sqrt();
        }
    }
    kept
}

pub(in crate::engine) fn attention_spec(
    heads: [usize; 2],
    head_dim: usize,
    window: Option<usize>,
    softcap: Option<f32>,
) -> AttentionSpec {
    AttentionSpec {
        window: window.map(Window::Sliding),
        scale: 2.0 / (head_dim as f32).sqrt(),
        softcap,
        ..AttentionSpec::plain(heads, head_dim)
    }
}

/// Attention to latent vectors of `rank` elements, behind which keys have others.
pub(in crate::engine) fn latent_spec(n_heads: usize, rank: usize, behind: usize) -> AttentionSpec {
    let latent =
        LatentSpec { rank, plain: 8, rotated: behind, value: 8, query_rank: None, eps: 1e-6, index: None };
    AttentionSpec { latent: Some(latent), ..attention_spec([n_heads, 1], rank + behind, None, None) }
}

/// What rows of queries, keys and values have as attention takes them.
pub(in crate::engine) fn widths(spec: &AttentionSpec) -> [usize; 3] {
    let [keys, values] =
        spec.latent.map_or([spec.kv_width(); 2], |latent| [spec.head_dim - latent.rank, latent.rank]);
    [spec.query_width(), keys, values]
}

/// Queries that keys in this type are multiplied by as they are, whether an engine rounds them or not.
pub(in crate::engine) fn queries(keys: KvType, q: Vec<f32>) -> Vec<f32> {
    if keys == KvType::BF16 { stored_floats(DType::BF16, &q).1 } else { q }
}

/// How far results may be off for weights that are rounded to the type of values: by half a bit each, and their sum as much.
pub(in crate::engine) fn off_by_weights(spec: &AttentionSpec, kv: KvTypes) -> f64 {
    let kind = if spec.latent.is_some() { kv.of_latent().values } else { kv.values };
    if kind == KvType::BF16 { 2f64.powi(-8) } else { 0.0 }
}

/// Keys and values as they are kept in these types, whole blocks of each.
pub(in crate::engine) fn both_kept(spec: &AttentionSpec, kv: KvTypes, [k, v]: [&[f32]; 2]) -> [Vec<f64>; 2] {
    match spec.latent {
        None => [kept(kv.keys, spec.head_dim, k), kept(kv.values, spec.head_dim, v)],
        Some(_) => {
            let (KvTypes { keys: kind, .. }, [_, k_width, v_width]) = (kv.of_latent(), widths(spec));
            [kept(kind, k_width, k), kept(kind, v_width, v)]
        }
    }
}
