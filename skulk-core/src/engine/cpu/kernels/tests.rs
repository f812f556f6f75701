//! Does every instruction set compute what the portable code does, bit for bit, and that what it should?
//!
//! Arrays end exactly where what is said to be read or written ends, so that tools that watch memory
//! see what goes beyond.

mod affine;
mod compact;
mod dense;
mod gather;
mod nearest;
mod operations;
mod parts;
mod products;
mod rounding;
mod rows;
mod scaled;
mod screen;
mod small;
mod special;
mod stored;

pub(super) use operations::{Operands, operations};

use super::{Kernels, LANES, portable};

/// What kernels offer to tests only.
pub(super) struct Tested {
    pub(super) exp: unsafe fn(&mut [f32; LANES]),
    pub(super) operations: unsafe fn(&Operands) -> Vec<u32>,
    /// Activations of two digits are stored as numbers of 16 bits.
    pub(super) words: bool,
}

/// Half a unit in the last place of 1: what one rounding may be off, relative to its result.
const EPSILON: f64 = 1.0 / (1 << 24) as f64;

/// Reproducible numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    /// Evenly spread over -1 to 1.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, n: usize) -> Box<[f32]> {
        (0..n).map(|_| self.float()).collect()
    }
}

/// Bytes that begin at an odd address where `offset` says so, and end where their memory does.
struct Bytes {
    memory: Box<[u8]>,
    offset: usize,
}

impl Bytes {
    fn new(bytes: &[u8], offset: usize) -> Self {
        let mut memory = vec![0; offset];
        memory.extend_from_slice(bytes);
        Self { memory: memory.into_boxed_slice(), offset }
    }

    fn as_ptr(&self) -> *const u8 {
        self.memory[self.offset..].as_ptr()
    }
}

/// What lies between rows of results.
const GAP: f32 = 7.0;

/// Rows of results, between which nothing may be written.
#[track_caller]
fn without_gaps(out: &[f32], n_out: usize, stride: usize) -> Vec<f32> {
    let (results, gaps): (Vec<_>, Vec<_>) = out.iter().enumerate().partition(|(i, _)| i % stride < n_out);
    assert!(gaps.into_iter().all(|(_, gap)| *gap == GAP), "written between rows");
    results.into_iter().map(|(_, result)| *result).collect()
}

/// The instruction sets of this machine but for the portable one.
fn others() -> impl Iterator<Item = &'static Kernels> {
    Kernels::all().filter(|kernels| kernels.name != portable::KERNELS.name)
}

/// Whether results are the same in every bit; what is not a number may differ in which it is.
#[track_caller]
fn assert_same(actual: &[f32], expected: &[f32], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: lengths");
    for (i, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!(
            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            "{what}: element {i} is {a:e}, not {b:e}"
        );
    }
}

#[track_caller]
fn assert_near(actual: f32, expected: f64, bound: f64, what: &str) {
    let off = (f64::from(actual) - expected).abs();
    assert!(off <= bound, "{what}: {actual:e} is {off:e} off {expected:e}, more than {bound:e}");
}

#[test]
fn the_best_instruction_set_comes_first_and_the_portable_one_last() {
    let names: Vec<_> = Kernels::all().map(|kernels| kernels.name).collect();
    eprintln!("instruction sets tested: {names:?}");
    assert_eq!(names.first(), Some(&Kernels::detect().name));
    assert_eq!(names.last(), Some(&"portable"));
}
