//! Which vector operations must an instruction set offer? The kernels are written once against these.
//!
//! All vectors have 16 lanes, whatever the registers' width: narrower machines use several. The
//! operations of one kind have the same result on every machine, bit for bit (fused multiply-add
//! rounds once everywhere, conversions round to nearest even, sums across lanes are taken in one
//! order), so that the portable implementation is the oracle of the others. There is one exception, of
//! no consequence to a model: [`Simd::dot2`] on numbers below 2^-126.
//!
//! # Safety
//! Every function may be called only on a machine that has the implementation's instructions, and
//! with pointers that are valid for what the function says it reads or writes; alignment is not
//! required of any.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

/// Lanes of a vector, and weight rows that are worked on together.
pub(crate) const LANES: usize = 16;
/// Elements of a block: each has its own scale in the activations.
pub(crate) const BLOCK: usize = 32;

/// [`Simd::dot2`] with widened activations.
#[inline(always)]
pub(super) unsafe fn two_steps<S: Simd>(sum: S::F, weights: S::I, x: *const u32) -> S::F {
    let upper = S::as_f32(S::iand(weights, S::isplat(0xffff_0000_u32 as i32)));
    let sum = S::fma(upper, S::load(x.cast()), sum);
    S::fma(S::as_f32(S::ishl(weights, 16)), S::load(x.add(LANES).cast()), sum)
}

/// A block's columns, each as [`Simd::weights`] takes it apart.
pub(super) type Weights<S> = [[<S as Simd>::I; 2]; 8];

/// Operations of an expression each: how they are inlined, then `name(arguments) -> result = expression;`.
macro_rules! operations {
    ($inline:meta: $($(#[$doc:meta])* $name:ident($($arg:tt: $type:ty),*) $(-> $result:ty)? = $value:expr;)*) => {$(
        $(#[$doc])*
        #[$inline]
        unsafe fn $name($($arg: $type),*) $(-> $result)? {
            $value
        }
    )*};
}
pub(super) use operations;

/// Eight columns, each from its number.
macro_rules! each_column {
    (|$k:ident| $column:expr) => {
        each_column!(|$k| $column, 0 1 2 3 4 5 6 7)
    };
    (|$k:ident| $column:expr, $($n:literal)*) => {
        [$({
            let $k = $n;
            $column
        }),*]
    };
}
pub(super) use each_column;

/// Where a tile's 16 rows begin: four addresses and a distance, as machines can add them up in an
/// instruction's operand, where sixteen addresses would not fit into registers.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    fours: [*const u8; 4],
    distance: usize,
    /// They are a woven tile's.
    woven: bool,
}

impl Rows {
    /// Rows that are `distance` bytes apart.
    #[inline(always)]
    pub(super) fn new(first: *const u8, distance: usize) -> Self {
        let four = |n: usize| first.wrapping_add(4 * n * distance);
        // Not mapped: the calls that `map` consists of are not always inlined.
        Self { fours: [four(0), four(1), four(2), four(3)], distance, woven: false }
    }

    /// The rows of a woven tile, as `weights/woven.rs` has them.
    #[inline(always)]
    pub(super) fn woven(tile: *const u8) -> Self {
        Self { fours: [tile; 4], distance: 0, woven: true }
    }

    /// Where all rows' numbers at `offset` of a woven tile's stored bytes are, side by side; `None`: each row has its own.
    #[inline(always)]
    pub(super) fn together(&self, offset: usize) -> Option<*const u8> {
        self.woven.then(|| self.fours[0].wrapping_add(LANES * offset))
    }

    #[inline(always)]
    pub(super) fn row(&self, i: usize) -> *const u8 {
        self.fours[i / 4].wrapping_add(i % 4 * self.distance)
    }
}

#[allow(clippy::missing_safety_doc, reason = "the module says it once for all")]
pub(super) trait Simd: Copy + 'static {
    /// 16 numbers.
    type F: Copy;
    /// 16 integers, 16 times four bytes, or 16 pairs of bfloat16 numbers.
    type I: Copy;

    /// [`dot4`](Self::dot4) takes signed weights; elsewhere they are unsigned and the caller
    /// corrects for what was added to make them so.
    const SIGNED: bool;
    /// The same of weights that need all eight bits.
    const SIGNED_WIDE: bool = Self::SIGNED;
    /// Activation rows by which a block is multiplied at a time as it comes out of memory.
    const TOGETHER: usize = 1;
    /// Two to eight rows have kernels of their own, of two digits two to four, as a single one has: their sums stay in
    /// registers.
    const FEW: bool = false;
    /// Kernels of up to so many activation rows are compiled for woven weight rows and for others, and take the blocks that
    /// share bytes behind each other. Blocks whose number is not known, and code for rows that lie otherwise, would send
    /// weights to memory and back. With more rows that is a smaller part of the time; which types gain by it, `direct` says.
    const APART: usize = 0;
    /// Types may be [foreseen](super::format::Format::FORESEEN).
    const FORESEES: bool = false;
    /// A single row has a kernel of its own.
    const ALONE: bool = true;
    /// Activation rows from which on tiles are packed.
    const MANY: usize = 17;
    /// Activations of two digits are stored as numbers of 16 bits.
    const WORDS: bool = false;
    /// Queries that one pass over a packed tile serves.
    const ROWS: usize;
    /// Activation rows that one pass over a packed tile serves: their sums and totals have room in registers.
    const GROUP: usize = Self::ROWS;
    /// The same for the rows that are then left over; single ones are the last.
    const TAIL: usize = 4;
    /// [`dot2`](Self::dot2) takes activations widened to f32, those that meet the weights in upper bits
    /// first; elsewhere in bfloat16, in their order.
    const WIDENED: bool = true;
    /// Running sums of products with floats that fit into registers beside what they take: 16 or 4.
    const SUMS: usize = 4;

    // Numbers.
    unsafe fn zero() -> Self::F;
    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    /// The first `n` < 16 elements; zeros behind them.
    unsafe fn load_part(p: *const f32, n: usize) -> Self::F;
    unsafe fn load_f16(p: *const u16) -> Self::F;
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    unsafe fn store(p: *mut f32, x: Self::F);
    /// The first `n` < 16 elements.
    unsafe fn store_part(p: *mut f32, n: usize, x: Self::F);
    unsafe fn store_f16(p: *mut u16, x: Self::F);
    /// Stores a whole line of the cache, at its beginning, past the cache where the machine can. Others see it once
    /// [`streamed`](Self::streamed) was called.
    #[inline(always)]
    unsafe fn stream(p: *mut f32, x: Self::F) {
        // SAFETY: the contract is the same.
        unsafe { Self::store(p, x) }
    }
    #[inline(always)]
    unsafe fn streamed() {}
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger of each pair; `b` where `a` is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    /// Rounded to the nearest integer, ties to even; `i32::MIN` where that does not fit.
    unsafe fn round(a: Self::F) -> Self::I;
    /// `2^n` for n from -126 to 127.
    unsafe fn exp2i(n: Self::I) -> Self::F;
    /// Lane i and i + 8, then i + 4, i + 2, i + 1.
    unsafe fn sum(x: Self::F) -> f32;
    /// The largest absolute value of both; not a number where one of them is not.
    unsafe fn largest(a: Self::F, b: Self::F) -> f32;
    /// Lane i of the result is [`sum`](Self::sum) of vector i, in every bit.
    unsafe fn sums(x: &[Self::F; LANES]) -> Self::F;
    /// Bit i is set where lane i of `a` is not below that of `b`, as where one of them is not a number.
    unsafe fn not_below(a: Self::F, b: Self::F) -> u32;

    // Integers.
    unsafe fn isplat(x: i32) -> Self::I;
    unsafe fn iload(p: *const i32) -> Self::I;
    unsafe fn istore(p: *mut i32, x: Self::I);
    /// Four bytes from `offset` of each row.
    unsafe fn gather(rows: &Rows, offset: usize) -> Self::I;
    unsafe fn iadd(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn imul(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn iand(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn ior(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn ishl(a: Self::I, n: u32) -> Self::I;
    /// Shifts zeros in.
    unsafe fn ishr(a: Self::I, n: u32) -> Self::I;
    /// Shifts the sign in.
    unsafe fn isar(a: Self::I, n: u32) -> Self::I;
    unsafe fn to_f32(a: Self::I) -> Self::F;
    /// Half-precision numbers in the lower 16 bits of each lane.
    unsafe fn half(a: Self::I) -> Self::F;
    /// The lanes' bits as numbers.
    unsafe fn as_f32(a: Self::I) -> Self::F;
    /// 16 signed bytes.
    unsafe fn load_i8(p: *const i8) -> Self::I;
    /// The upper halves of integers: of numbers, what they have in common with those in bfloat16.
    unsafe fn store_upper(p: *mut u16, a: Self::I);
    /// Integers from -128 to 127 as bytes.
    unsafe fn store_i8(p: *mut i8, a: Self::I);
    /// The same of a block's halves, and the sum of each.
    #[inline(always)]
    unsafe fn store_block(p: *mut i8, halves: [Self::I; 2]) -> [i32; 2] {
        Self::store_i8(p, halves[0]);
        Self::store_i8(p.add(LANES), halves[1]);
        integer_sums::<Self>(halves)
    }

    /// Subtracts `n` from each byte.
    unsafe fn bytes_sub(a: Self::I, n: u8) -> Self::I;
    unsafe fn ixor(a: Self::I, b: Self::I) -> Self::I;
    /// 16 bytes from `offset` of each row, as columns: lane r of column k has bytes `4k..4k + 4` of row r.
    unsafe fn columns(rows: &Rows, offset: usize) -> [Self::I; 4];
    /// 64 bytes from `offset` of each row likewise. Where registers allow it each row's are read at once: of rows that are
    /// a large power of two apart, few lines stay in the nearest cache until they are read again.
    #[inline(always)]
    unsafe fn line(rows: &Rows, offset: usize) -> [Self::I; LANES] {
        // SAFETY: the contract is the same.
        let [a, b, c, d] = unsafe {
            [
                Self::columns(rows, offset),
                Self::columns(rows, offset + 16),
                Self::columns(rows, offset + 32),
                Self::columns(rows, offset + 48),
            ]
        };
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3]]
    }
    /// Every byte shifted right by `n`, and of that the bits of `mask`, which is below 2 to the power `8 - n`.
    #[inline(always)]
    unsafe fn bits(x: Self::I, n: u32, mask: u8) -> Self::I {
        // SAFETY: the caller has the instructions.
        unsafe { Self::iand(Self::ishr(x, n), Self::isplat(i32::from_le_bytes([mask; 4]))) }
    }
    /// Every byte's lower bits, of which there are `N`, with upper ones before them. Bytes of `lower` are below 2 to the power
    /// `N`, those of `upper` below 2 to the power `8 - N`.
    #[inline(always)]
    unsafe fn joined<const N: u32>(lower: Self::I, upper: Self::I) -> Self::I {
        // SAFETY: the caller has the instructions.
        unsafe { Self::ior(lower, Self::ishl(upper, N)) }
    }
    /// Each nibble in a byte of its own, in their order: two columns of each.
    #[inline(always)]
    unsafe fn in_order(nibbles: &[Self::I; 4]) -> [Self::I; 8] {
        each_column!(|k| {
            // SAFETY: the caller has the instructions.
            unsafe {
                let two = Self::iand(Self::ishr(nibbles[k / 2], k as u32 % 2 * 16), Self::isplat(0xffff));
                let two = Self::iand(Self::ior(two, Self::ishl(two, 8)), Self::isplat(0x00ff_00ff));
                Self::iand(Self::ior(two, Self::ishl(two, 4)), Self::isplat(0x0f0f_0f0f))
            }
        })
    }
    /// What a table has for each byte, which is below 16.
    unsafe fn looked_up(table: &[i8; 16], a: Self::I) -> Self::I;
    /// Copies 16 bytes in another order: which of them comes first, and so on.
    unsafe fn reorder(p: *const i8, order: &[i8; 16], to: *mut i8);
    /// Adds 0x10 to byte i of column k where bit `4k + i` of the lane is set; it is below 0x10 before.
    #[inline(always)]
    unsafe fn add_fifth_bits(columns: [Self::I; 8], bits: Self::I) -> [Self::I; 8] {
        let mut columns = columns;
        let mut k = 0;
        while k < 8 {
            // SAFETY: the caller has the instructions.
            unsafe {
                // Four bits, each to bit 4 of a byte of its own.
                let four = Self::iand(Self::ishr(bits, 4 * k as u32), Self::isplat(15));
                let spread = Self::imul(four, Self::isplat(1 << 4 | 1 << 11 | 1 << 18 | 1 << 25));
                columns[k] = Self::ior(columns[k], Self::iand(spread, Self::isplat(0x1010_1010)));
            }
            k += 1;
        }
        columns
    }
    /// Adds to each lane the product of its four bytes with those at `x`, which are signed and not
    /// -128. `WIDE`: weights may need all eight bits; otherwise they are from 0 to 63 (or signed).
    unsafe fn dot4<const WIDE: bool>(sum: Self::I, weights: Self::I, x: *const i8) -> Self::I;
    /// A block's columns as [`dot_rows`](Self::dot_rows) wants them or, where `EXACT`, [`dot_exact`](Self::dot_exact);
    /// weights are of so many bits.
    #[inline(always)]
    unsafe fn weights<const EXACT: bool>(columns: [Self::I; 8], bits: u32) -> Weights<Self> {
        let _ = bits;
        each_column!(|k| [columns[k]; 2])
    }
    /// Adds to the sums of `N` activation rows what [`dot4`](Self::dot4) adds for each of columns `FROM..TO`. The
    /// block's bytes of the first row are at `x`, the next row's `distance` further on.
    #[inline(always)]
    unsafe fn dot_rows<const FROM: usize, const TO: usize, const N: usize>(
        sums: &mut [Self::I; N],
        weights: &Weights<Self>,
        bits: u32,
        x: *const i8,
        distance: usize,
    ) {
        // SAFETY: the contract is the same.
        unsafe { dot_block::<Self, FROM, TO, N>(sums, weights, bits, x, distance) }
    }
    /// Stores half a block of integers of two digits where [`dot_exact`](Self::dot_exact) expects them; the block
    /// begins at `p`.
    #[inline(always)]
    unsafe fn store_exact(p: *mut i8, half: usize, upper: Self::I, lower: Self::I) {
        // SAFETY: the contract is the same.
        unsafe { store_digits::<Self>(p, half, upper, lower) }
    }
    /// As [`dot_rows`](Self::dot_rows), with activations of two digits.
    #[inline(always)]
    unsafe fn dot_exact<const FROM: usize, const TO: usize, const N: usize>(
        sums: &mut [Self::I; N],
        weights: &Weights<Self>,
        bits: u32,
        x: *const i8,
        distance: usize,
    ) {
        // SAFETY: the contract is the same.
        unsafe { dot_digits::<Self, FROM, TO, N>(sums, weights, bits, x, distance) }
    }
    /// As [`dot_packed`](Self::dot_packed), with activations of two digits: so many columns from the first of those
    /// on; the block begins at `x`.
    #[inline(always)]
    unsafe fn dot_packed_exact<const WIDE: bool, const N: usize>(
        sums: &mut [Self::I; N],
        packed: *const i32,
        (first, columns): (usize, usize),
        x: *const i8,
        distance: usize,
    ) {
        // SAFETY: the contract is the same.
        unsafe { dot_packed_digits::<Self, WIDE, N>(sums, packed, (first, columns), x, distance) }
    }
    /// Columns of a block in the order in which [`dot_packed`](Self::dot_packed) wants them packed.
    #[inline(always)]
    unsafe fn ordered(columns: [Self::I; 8]) -> [Self::I; 8] {
        columns
    }
    /// Adds to the sums of `N` activation rows what [`dot4`](Self::dot4) adds for each of `columns`
    /// packed columns, which are the first or the last four of a block or all eight. A row's bytes are
    /// at `x`, the next row's `distance` further on.
    #[inline(always)]
    unsafe fn dot_packed<const WIDE: bool, const N: usize>(
        sums: &mut [Self::I; N],
        packed: *const i32,
        columns: usize,
        x: *const i8,
        distance: usize,
    ) {
        // SAFETY: the contract is the same.
        unsafe { dot_columns::<Self, WIDE, N>(sums, packed, columns, x, distance) }
    }
    /// Adds to each lane the products of its two bfloat16 weights with activations, 32 of which are at
    /// `x`: of the weights in the upper bits, then of the others, each with one fused multiply-add.
    ///
    /// The instruction for this takes numbers below 2^-126, the smallest normal one, for zeros, in
    /// weights as in sums, and so does the portable code. The others count them, as leaving them out
    /// would cost more than the products: a sum is then off by less than 2^-126 for each of its steps,
    /// and by what such weights contribute. Activations that small are zeros everywhere.
    #[inline(always)]
    unsafe fn dot2(sum: Self::F, weights: Self::I, x: *const u32) -> Self::F {
        // SAFETY: the caller has the instructions.
        unsafe { two_steps::<Self>(sum, weights, x) }
    }
    /// Adds to each lane the products of two pairs of bfloat16 numbers: of those in the upper bits, then of the others, each
    /// with one fused multiply-add. The caller sees to it that no product or sum is below 2^-126, but for zeros, and calls it
    /// only where pairs are not [`WIDENED`](Self::WIDENED).
    #[inline(always)]
    unsafe fn dot_pairs(sum: Self::F, a: Self::I, b: Self::I) -> Self::F {
        let upper = Self::isplat(0xffff_0000_u32 as i32);
        let sum = Self::fma(Self::as_f32(Self::iand(a, upper)), Self::as_f32(Self::iand(b, upper)), sum);
        Self::fma(Self::as_f32(Self::ishl(a, 16)), Self::as_f32(Self::ishl(b, 16)), sum)
    }
    /// Asks for the cache line at `p`, which need not be valid.
    unsafe fn prefetch(p: *const u8);
}

/// What the lower digit's place is worth in the upper one's.
pub(super) const BASE: i32 = 255;

/// What sums of upper digits are with `sums`, to which those of lower ones have been added or will be.
#[inline(always)]
unsafe fn next_digit<S: Simd, const N: usize>(totals: &mut [S::I; N], sums: &[S::I; N]) {
    let mut n = 0;
    while n < N {
        totals[n] = S::iadd(S::imul(totals[n], S::isplat(BASE)), sums[n]);
        n += 1;
    }
}

/// [`Simd::dot_packed`], a column at a time.
#[inline(always)]
pub(super) unsafe fn dot_columns<S: Simd, const WIDE: bool, const N: usize>(
    sums: &mut [S::I; N],
    packed: *const i32,
    columns: usize,
    x: *const i8,
    distance: usize,
) {
    for k in 0..columns {
        let column = S::iload(packed.add(k * LANES));
        for (n, sum) in sums.iter_mut().enumerate() {
            *sum = S::dot4::<WIDE>(*sum, column, x.add(n * distance + 4 * k));
        }
    }
}

/// [`Simd::dot_rows`], a column at a time.
#[inline(always)]
pub(super) unsafe fn dot_block<S: Simd, const FROM: usize, const TO: usize, const N: usize>(
    sums: &mut [S::I; N],
    weights: &Weights<S>,
    bits: u32,
    x: *const i8,
    distance: usize,
) {
    let mut k = FROM;
    while k < TO {
        let mut n = 0;
        while n < N {
            let x = x.add(n * distance + 4 * k);
            sums[n] = if bits == 8 {
                S::dot4::<true>(sums[n], weights[k][0], x)
            } else {
                S::dot4::<false>(sums[n], weights[k][0], x)
            };
            n += 1;
        }
        k += 1;
    }
}

/// Sums of integers that are below 2^24 in all: exact.
#[inline(always)]
pub(super) unsafe fn integer_sums<S: Simd>(halves: [S::I; 2]) -> [i32; 2] {
    let [first, second] = halves;
    [S::sum(S::to_f32(first)) as i32, S::sum(S::to_f32(second)) as i32]
}

/// [`Simd::store_exact`]: the block's upper digits, then its lower ones.
#[inline(always)]
pub(super) unsafe fn store_digits<S: Simd>(p: *mut i8, half: usize, upper: S::I, lower: S::I) {
    S::store_i8(p.add(half * LANES), upper);
    S::store_i8(p.add(BLOCK + half * LANES), lower);
}

/// [`Simd::dot_exact`], a digit at a time.
#[inline(always)]
pub(super) unsafe fn dot_digits<S: Simd, const FROM: usize, const TO: usize, const N: usize>(
    sums: &mut [S::I; N],
    weights: &Weights<S>,
    bits: u32,
    x: *const i8,
    distance: usize,
) {
    let mut totals = [S::isplat(0); N];
    S::dot_rows::<FROM, TO, N>(&mut totals, weights, bits, x, distance);
    if N <= 2 {
        // Sums of few rows do not wait for each other.
        S::dot_rows::<FROM, TO, N>(sums, weights, bits, x.add(BLOCK), distance);
        next_digit::<S, N>(&mut totals, sums);
    } else {
        next_digit::<S, N>(&mut totals, sums);
        S::dot_rows::<FROM, TO, N>(&mut totals, weights, bits, x.add(BLOCK), distance);
    }
    *sums = totals;
}

/// [`Simd::dot_packed_exact`], a digit at a time.
#[inline(always)]
pub(super) unsafe fn dot_packed_digits<S: Simd, const WIDE: bool, const N: usize>(
    sums: &mut [S::I; N],
    packed: *const i32,
    (first, columns): (usize, usize),
    x: *const i8,
    distance: usize,
) {
    let (x, mut totals) = (x.add(4 * first), [S::isplat(0); N]);
    S::dot_packed::<WIDE, N>(&mut totals, packed, columns, x, distance);
    next_digit::<S, N>(&mut totals, sums);
    S::dot_packed::<WIDE, N>(&mut totals, packed, columns, x.add(BLOCK), distance);
    *sums = totals;
}
