//! Does every single operation give the portable one's bits?
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use super::super::rounding::{bf16_words, round_bf16};
use super::super::simd::{BLOCK, LANES, Rows, Simd};
use super::super::{Kernels, portable};
use super::{Numbers, others};

/// Activation rows by which packed columns are multiplied.
const ROWS: usize = 5;

/// What operations are tried on.
pub(in super::super) struct Operands {
    floats: [[f32; LANES]; 3],
    integers: [[i32; LANES]; 2],
    /// 32 bytes for each row.
    bytes: [[u8; 32]; LANES],
    /// 32 bytes of each activation row.
    digits: [[i8; 32]; ROWS],
    activations: [f32; BLOCK],
    shift: u32,
}

/// `sum` and the products of `N` activation rows with packed columns, which are signed bytes or what
/// makes them unsigned ones.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
unsafe fn multiplied<S: Simd, const N: usize>(
    sum: S::I,
    packed: &[i32; 8 * LANES],
    digits: &[[i8; 32]; ROWS],
    columns: Range<usize>,
) -> [S::I; N] {
    let mut sums = [sum; N];
    for (sum, digits) in sums.iter_mut().zip(digits) {
        let digits = &digits[4 * columns.start..4 * columns.end];
        let shift = if S::SIGNED_WIDE { 0 } else { 128 };
        *sum = S::iadd(*sum, S::isplat(digits.iter().map(|&x| -shift * i32::from(x)).sum()));
    }
    let x = digits.as_ptr().cast::<i8>().add(4 * columns.start);
    S::dot_packed::<true, N>(&mut sums, packed[columns.start * LANES..].as_ptr(), columns.len(), x, 32);
    sums
}

/// Results of all operations, one after the other.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(in super::super) unsafe fn operations<S: Simd>(input: &Operands) -> Vec<u32> {
    let mut out = Vec::new();
    macro_rules! numbers {
        ($($x:expr),* $(,)?) => {$({
            let mut lanes = [0f32; LANES];
            S::store(lanes.as_mut_ptr(), $x);
            out.extend(lanes.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }));
        })*};
    }
    macro_rules! integers {
        ($($x:expr),* $(,)?) => {$({
            let mut lanes = [0i32; LANES];
            S::istore(lanes.as_mut_ptr(), $x);
            out.extend(lanes.iter().map(|&x| x as u32));
        })*};
    }
    let [a, b, c] = [0, 1, 2].map(|i| input.floats[i].as_ptr());
    let (a, b, c) = (S::load(a), S::load(b), S::load(c));
    numbers!(S::zero(), S::splat(input.floats[0][5]), S::add(a, b), S::sub(a, b), S::mul(a, b));
    numbers!(S::div(a, b), S::fma(a, b, c), S::max(a, b), S::min(a, b), S::abs(a));
    integers!(S::round(a), S::round(b));
    let sum = |x: f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
    out.extend([sum(S::sum(a)), sum(S::largest(a, b)), sum(S::largest(b, a))]);
    let mut many = [a; LANES];
    for (i, x) in many.iter_mut().enumerate() {
        *x = S::fma(S::splat(i as f32), b, c);
    }
    numbers!(S::sums(&many));
    out.extend([S::not_below(a, b), S::not_below(b, a), S::not_below(c, c)]);
    for n in 0..LANES {
        let mut lanes = [7f32; LANES];
        S::store_part(lanes.as_mut_ptr(), n, S::load_part(input.floats[2].as_ptr(), n));
        numbers!(S::load(lanes.as_ptr()), S::load_part(input.floats[2].as_ptr(), n));
    }
    let mut halves = [0u16; LANES];
    S::store_f16(halves.as_mut_ptr(), a);
    numbers!(S::load_f16(halves.as_ptr()));
    let stored = input.bytes[3].as_ptr().cast::<u16>();
    numbers!(S::load_f16(stored), S::load_bf16(stored));

    let (i, j, n) = (S::iload(input.integers[0].as_ptr()), S::iload(input.integers[1].as_ptr()), input.shift);
    integers!(i, S::isplat(input.integers[0][2]), S::iadd(i, j), S::imul(i, j), S::iand(i, j), S::ior(i, j));
    integers!(S::ishl(i, n), S::ishr(i, n), S::isar(i, n));
    numbers!(S::to_f32(i), S::half(i), S::half(S::ishr(i, 16)), S::as_f32(i));
    numbers!(S::exp2i(S::iadd(S::isar(i, 25), S::isplat(1))));
    let mut bytes = [0i8; LANES];
    S::store_i8(bytes.as_mut_ptr(), i);
    out.extend(bytes.map(|x| x as u32));
    S::store_upper(halves.as_mut_ptr(), i);
    out.extend(halves.map(u32::from));
    integers!(S::load_i8(input.bytes[5].as_ptr().cast()));

    let rows = Rows::new(input.bytes.as_ptr().cast(), 32);
    integers!(S::gather(&rows, 0), S::gather(&rows, 28));
    let digits = input.digits[0].as_ptr();
    // The widest weights are unsigned where weights are; less what made them so.
    let flip = if S::SIGNED_WIDE { 0 } else { 128 };
    let sum: i32 = input.digits[0][..4].iter().map(|&x| i32::from(x)).sum();
    let less = S::isplat(sum * -i32::from(flip));
    for offset in [0, 3, 16] {
        for column in S::columns(&rows, offset) {
            let low = S::iand(column, S::isplat(0x3f3f_3f3f));
            integers!(
                column,
                S::bytes_sub(column, 200),
                S::ixor(column, j),
                S::dot4::<false>(i, low, digits)
            );
            let wide = S::ixor(column, S::isplat(i32::from_le_bytes([flip; 4])));
            integers!(S::dot4::<true>(S::iadd(i, less), wide, digits));
        }
    }
    // Weights from 2^-31 to 2: products and sums of numbers that small differ, as stated.
    let weights = S::ior(S::iand(i, S::isplat(0x8fff_8fff_u32 as i32)), S::isplat(0x3000_3000));
    let mut words = vec![0; bf16_words::<S>(BLOCK)];
    round_bf16::<S>(&input.activations, &mut words);
    numbers!(S::dot2(c, weights, words.as_ptr()), S::dot2(S::zero(), weights, words.as_ptr()));
    let [a, b, c, d] = S::columns(&rows, 0);
    let [e, f, g, h] = S::columns(&rows, 16);
    let mut packed = [0; 8 * LANES];
    for (k, column) in S::ordered([a, b, c, d, e, f, g, h]).into_iter().enumerate() {
        let wide = S::ixor(column, S::isplat(i32::from_le_bytes([flip; 4])));
        S::istore(packed[k * LANES..].as_mut_ptr(), wide);
    }
    for columns in [0..4, 4..8, 0..8] {
        macro_rules! rows {
            ($($n:literal)*) => {$(
                for sums in multiplied::<S, $n>(i, &packed, &input.digits, columns.clone()) {
                    integers!(sums);
                }
            )*};
        }
        rows!(1 2 3 4 5);
    }
    S::prefetch(std::ptr::null());
    out
}

#[test]
fn every_operation_gives_the_portable_bits() {
    let special = [
        f32::NAN,
        -0.0,
        0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        1e-45,
        -1e-40,
        0.5,
        1.5,
        2.5,
        -2.5,
        2147483648.0,
        2147483520.0,
        -2147483648.0,
        4294967296.0,
        -3e9,
        65504.0,
        65520.0,
        6e-8,
        3e-8,
        1.0,
    ];
    let mut numbers = Numbers(15);
    for round in 0..300u32 {
        let kind = round % 3;
        let float = |numbers: &mut Numbers| match kind {
            0 => numbers.float() * 100.0,
            1 => f32::from_bits(numbers.next() as u32),
            _ => special[numbers.next() as usize % special.len()],
        };
        let byte = |numbers: &mut Numbers| match kind {
            0 => numbers.next() as u8,
            1 => [0, 127, 128, 255][numbers.next() as usize % 4],
            _ => [0u8, 255][(round / 3 % 2) as usize],
        };
        let digit = |numbers: &mut Numbers| match kind {
            0 => (numbers.next() as i8).max(-127),
            _ => [-127, 127][if kind == 1 { numbers.next() as usize % 2 } else { (round / 6 % 2) as usize }],
        };
        let input = Operands {
            floats: [0; 3].map(|_| [0; LANES].map(|_| float(&mut numbers))),
            integers: [0; 2].map(|_| [0; LANES].map(|_| numbers.next() as i32)),
            bytes: [0; LANES].map(|_| [0; 32].map(|_| byte(&mut numbers))),
            digits: [0; ROWS].map(|_| [0; 32].map(|_| digit(&mut numbers))),
            activations: [0; BLOCK].map(|_| numbers.float()),
            shift: round % 25,
        };
        // SAFETY: the machine has the instructions, as of every set that is listed.
        let results = |kernels: &Kernels| unsafe { (kernels.tested.operations)(&input) };
        let oracle = results(&portable::KERNELS);
        for kernels in others() {
            let results = results(kernels);
            assert_eq!(results.len(), oracle.len());
            let same = results.iter().zip(&oracle).take_while(|(a, b)| a == b).count();
            assert_eq!(same, oracle.len(), "{}, round {round}: first difference", kernels.name);
        }
    }
}
