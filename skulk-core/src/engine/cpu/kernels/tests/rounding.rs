//! Are activations rounded as stated, and the same way everywhere?

use super::super::rounding::{Activations, group};
use super::super::simd::BASE;
use super::super::{BLOCK, Form, Kernels, ProductScratch, portable};
use super::{Numbers, assert_near, assert_same, others};
use crate::engine::Precision;
use crate::engine::cpu::pool::Pool;

/// Rounded rows, each array ending where it should.
pub(super) struct Rows {
    pub(super) rows: usize,
    pub(super) blocks: usize,
    exact: bool,
    words: bool,
    digits: Vec<i8>,
    scale: Vec<f32>,
    sum: Vec<i32>,
    scaled_sum: Vec<f32>,
    half_sum: Vec<i32>,
    scaled_half_sum: Vec<f32>,
    start: Activations,
}

impl Rows {
    fn empty(rows: usize, blocks: usize, exact: bool, words: bool) -> Self {
        let (n, width) = (rows * blocks, if exact { 2 * BLOCK } else { BLOCK });
        let (mut digits, mut sum, mut half_sum) = (vec![-128; n * width], vec![0; n], vec![0; 2 * n]);
        let [mut scale, mut scaled_sum, mut scaled_half_sum] = [n, n, 2 * n].map(|n| vec![f32::NAN; n]);
        let start = Activations {
            digits: digits.as_mut_ptr(),
            scale: scale.as_mut_ptr(),
            sum: sum.as_mut_ptr(),
            scaled_sum: scaled_sum.as_mut_ptr(),
            half_sum: half_sum.as_mut_ptr(),
            scaled_half_sum: scaled_half_sum.as_mut_ptr(),
        };
        Self { rows, blocks, exact, words, digits, scale, sum, scaled_sum, half_sum, scaled_half_sum, start }
    }

    pub(super) fn new(kernels: &Kernels, x: &[f32], rows: usize, exact: bool) -> Self {
        let blocks = x.len() / rows / BLOCK;
        let rounded = Self::empty(rows, blocks, exact, exact && kernels.tested.words);
        for row in 0..rows {
            // SAFETY: all arrays have room for the row, and the machine has the instructions.
            unsafe {
                let x = x[row * blocks * BLOCK..].as_ptr();
                (kernels.round[usize::from(exact)])(x, blocks, rounded.from(row), 1);
            }
        }
        rounded
    }

    /// The rows from `row` on.
    pub(super) fn from(&self, row: usize) -> Activations {
        assert!(row <= self.rows);
        // SAFETY: there are so many rows.
        unsafe { self.start.skip(row * self.blocks, self.exact) }
    }

    /// So many of them from `row` on, grouped by so many, with these digits.
    pub(super) fn grouped(&self, row: usize, (rows, of): (usize, usize), digits: *mut i8) -> Self {
        let x = Activations { digits, ..self.from(row) };
        let grouped = Self::empty(rows, self.blocks, self.exact, self.words);
        for first in (0..rows).step_by(of) {
            let at = first * self.blocks;
            // SAFETY: both have these rows.
            unsafe {
                let (from, to) = (x.skip(at, self.exact), grouped.start.skip(at, self.exact));
                group(from, to, of.min(rows - first), self.blocks, self.exact);
            }
        }
        grouped
    }

    /// Their integers in pairs, from `row` on.
    pub(super) fn paired(&self, kernels: &Kernels, row: usize) -> Vec<i8> {
        let width = if self.exact { 2 * BLOCK } else { BLOCK };
        let own = &self.digits[row * self.blocks * width..];
        let mut pairs = vec![0; own.len()];
        // SAFETY: rows are whole blocks, and the machine has the instructions.
        unsafe { (kernels.pair[usize::from(self.exact)])(own, &mut pairs) };
        pairs
    }

    fn integers(&self) -> Vec<i32> {
        let wide = |x: &[i8]| x.iter().map(|&x| i32::from(x)).collect::<Vec<_>>();
        if !self.exact {
            return wide(&self.digits);
        }
        if self.words {
            // Of every four the first and the third, then the others.
            let words = self
                .digits
                .as_chunks::<2>()
                .0
                .iter()
                .map(|word| i32::from(i16::from_le_bytes(word.map(|byte| byte as u8))));
            let words: Vec<i32> = words.collect();
            return words.as_chunks().0.iter().flat_map(|[a, c, b, d]| [*a, *b, *c, *d]).collect();
        }
        let digits = self.digits.chunks_exact(2 * BLOCK).map(|block| block.split_at(BLOCK));
        digits
            .flat_map(|(upper, lower)| wide(upper).into_iter().zip(wide(lower)))
            .map(|(upper, lower)| upper * BASE + lower)
            .collect()
    }

    /// What the integers stand for.
    pub(super) fn values(&self) -> Vec<f64> {
        let integers = self.integers().into_iter().enumerate();
        integers.map(|(i, n)| f64::from(n) * f64::from(self.scale[i / BLOCK])).collect()
    }
}

/// Rows of all kinds: ordinary ones of many sizes, zeros, the tiny and the huge, outliers.
pub(super) fn activations(numbers: &mut Numbers, rows: usize, blocks: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for row in 0..rows {
        let mut x = numbers.floats(blocks * BLOCK);
        match row % 8 {
            1 => x.fill(0.0),
            // Denormals, and what is just too small to count.
            2 => x.iter_mut().for_each(|x| *x *= 1e-40),
            3 => x.iter_mut().for_each(|x| *x *= 0.9e-30),
            4 => x.iter_mut().for_each(|x| *x = x.signum() * 1e30),
            5 => x[BLOCK / 3] = -1e30,
            6 => x.iter_mut().step_by(3).for_each(|x| *x = -0.0),
            _ => x.iter_mut().for_each(|x| *x *= (row as f32 - 3.0).exp2()),
        }
        all.extend(x);
    }
    all
}

#[test]
fn rounding_is_the_same_everywhere_and_as_near_as_stated() {
    let mut numbers = Numbers(2);
    let (rows, blocks) = (40, 3);
    let x = activations(&mut numbers, rows, blocks);
    for exact in [false, true] {
        let oracle = Rows::new(&portable::KERNELS, &x, rows, exact);
        for kernels in others() {
            let rounded = Rows::new(kernels, &x, rows, exact);
            assert_eq!(rounded.integers(), oracle.integers(), "{}", kernels.name);
            assert_eq!(rounded.sum, oracle.sum, "{}", kernels.name);
            assert_eq!(rounded.half_sum, oracle.half_sum, "{}", kernels.name);
            assert_same(&rounded.scale, &oracle.scale, kernels.name);
            assert_same(&rounded.scaled_sum, &oracle.scaled_sum, kernels.name);
            assert_same(&rounded.scaled_half_sum, &oracle.scaled_half_sum, kernels.name);
        }
        assert!(!oracle.digits.contains(&-128));
        let (values, integers) = (oracle.values(), oracle.integers());
        for (block, x) in x.chunks_exact(BLOCK).enumerate() {
            let largest = f64::from(x.iter().fold(0.0f32, |a, b| a.max(b.abs())));
            // The scale and its reciprocal are themselves rounded, hence a hundredth more.
            let bound = 1.01 * if exact { largest / 65_024.0 } else { largest / 254.0 };
            let at = block * BLOCK;
            for (i, &x) in x.iter().enumerate() {
                let bound = if largest < 1e-30 { largest } else { bound };
                assert_near(x, values[at + i], bound, "an activation");
            }
            let sums = [&integers[at..at + BLOCK / 2], &integers[at + BLOCK / 2..at + BLOCK]]
                .map(|half| half.iter().sum::<i32>());
            assert_eq!(oracle.half_sum[2 * block..2 * block + 2], sums);
            assert_eq!(oracle.sum[block], sums[0] + sums[1]);
            let scale = oracle.scale[block];
            assert_eq!(oracle.scaled_sum[block], oracle.sum[block] as f32 * scale);
            for (i, sum) in sums.into_iter().enumerate() {
                assert_eq!(oracle.scaled_half_sum[2 * block + i], sum as f32 * scale);
            }
        }
    }
}

#[test]
fn rows_are_rounded_into_their_groups() {
    let (mut numbers, pool) = (Numbers(5), Pool::new(2).unwrap());
    for (exact, precision) in [(false, Precision::Fast), (true, Precision::Exact)] {
        // The last group has fewer rows, rows need not be whole blocks, and two threads may share a group.
        for (rows, n_in, of) in [(21, 1504usize, 8), (37, 1008, 16), (16, 1024, 8), (3, 40, 16)] {
            let blocks = n_in.div_ceil(BLOCK);
            let x = &activations(&mut numbers, rows, blocks)[..rows * n_in];
            for kernels in others().chain([&portable::KERNELS]) {
                let all = |found: Activations| {
                    let n = rows * blocks;
                    // SAFETY: the scratch memory has so many blocks.
                    unsafe {
                        let digits =
                            std::slice::from_raw_parts(found.digits, n * BLOCK * (1 + usize::from(exact)));
                        let words = [
                            std::slice::from_raw_parts(found.scale.cast::<u32>(), n),
                            std::slice::from_raw_parts(found.sum.cast(), n),
                            std::slice::from_raw_parts(found.scaled_sum.cast(), n),
                            std::slice::from_raw_parts(found.half_sum.cast(), 2 * n),
                            std::slice::from_raw_parts(found.scaled_half_sum.cast(), 2 * n),
                        ];
                        (digits.to_vec(), words.map(<[u32]>::to_vec))
                    }
                };
                let mut scratch = ProductScratch::new(rows, n_in, precision);
                scratch.round(kernels, &pool, (x, n_in), exact, Form::Ordered);
                let ordered = scratch.activations(0, n_in, exact);
                scratch.group(&pool, ordered, (&(0..rows), of), (x.len(), n_in), (exact, false));
                let copied = all(scratch.grouped(0, n_in, (exact, false)));

                let mut scratch = ProductScratch::new(rows, n_in, precision);
                scratch.round(kernels, &pool, (x, n_in), exact, Form::Grouped(of));
                let rounded = all(scratch.grouped(0, n_in, (exact, false)));
                assert_eq!(rounded, copied, "{}, {rows} rows of {n_in} by {of}", kernels.name);
            }
        }
    }
}

#[test]
fn keys_in_bfloat16_are_the_nearest_ones() {
    let mut x = Numbers(9).floats(70).to_vec();
    // Between two numbers, to even; too large; none; at the least that is kept, and below it.
    let (least, below) = (2f32.powi(-56), 2f32.powi(-56) * 0.998);
    let special =
        [1.0 + 2f32.powi(-8), 1.0 + 3.0 * 2f32.powi(-8), f32::MAX, f32::INFINITY, f32::NAN, least, below];
    x.extend(special.iter().flat_map(|x| [*x, -x]));
    for kernels in Kernels::all() {
        let mut bits = vec![0xaaaa; x.len()];
        kernels.round_pairs(&x, &mut bits);
        for (x, bits) in x.iter().zip(bits) {
            let found = half::bf16::from_bits(bits);
            let expected =
                if x.abs() < least { 0f32.copysign(*x) } else { half::bf16::from_f32(*x).to_f32() };
            let same = found.to_f32().to_bits() == expected.to_bits() || found.is_nan() && x.is_nan();
            assert!(same, "{}: {found} for {x}", kernels.name);
        }
    }
}

#[test]
fn what_is_no_number_stays_none() {
    for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in 0..BLOCK {
            let mut x = Numbers(3).floats(BLOCK);
            x[at] = value;
            for exact in [false, true] {
                for kernels in Kernels::all() {
                    let rounded = Rows::new(kernels, &x, 1, exact);
                    assert!(rounded.scale[0].is_nan(), "{}: {value} at {at}", kernels.name);
                    let values = rounded.values();
                    assert!(values.iter().any(|x| x.is_nan()), "{}: {value} at {at}", kernels.name);
                }
            }
        }
    }
}
