//! Which `Q6_K` block comes close to 256 numbers?
//!
//! Sixteen parts of 16 values. A value is `d · scale · code`: a half float `d` for the block, a signed
//! 8-bit `scale` for the part, a code from -32 to 31 of its own, stored 32 higher. Layout: `block_q6_K`
//! of llama.cpp's `ggml-common.h`; LARQL's order of the bits is another one, see [`linear`](super::super::linear).
//!
//! Steps are fitted to each part over several spacings of the codes, by least squares; then scales are
//! chosen by the error that they leave once they are rounded.

use half::f16;

use super::halves;
use super::lanes::{self, code, inverse, inverses, lanes};

const ELEMENTS: usize = 256;
const BYTES: usize = 210;
const PARTS: usize = 16;
const PART: usize = 16;

/// Codes, and scales, reach from here to here.
const CODES: (f32, f32) = (-32.0, 31.0);
const SCALES: (f32, f32) = (-128.0, 127.0);

/// Spacings to try: codes that a part's largest value may have. The first one stays on a tie.
const NEAR: [f32; 17] =
    [32.0, 28.0, 28.3, 28.6, 28.9, 29.2, 29.5, 29.8, 30.1, 30.4, 30.7, 31.0, 31.3, 31.6, 31.9, 32.2, 32.5];
/// Wider ones, from which parts gain more, at the price of a coarser `d` for all.
const FAR: [f32; 8] = [24.0, 24.5, 25.0, 25.5, 26.0, 26.5, 27.0, 27.5];
/// The largest scale of the block, once for each: half floats are so coarse that it matters.
const LARGEST_SCALES: [f32; 2] = [128.0, 127.0];

/// Half the smallest half float: less than this, steps are zero.
const NOTHING: f32 = 1.0 / (1 << 25) as f32;
/// Of a part's sum of squares: below it, the error of a fit is the arithmetic's.
const NOISE: f32 = 1e-6;

type Lanes = lanes::Lanes<PARTS>;

/// In the order of llama.cpp.
pub(super) fn encode_interleaved(values: &[f32; ELEMENTS], _: usize, out: &mut [u8; BYTES]) {
    let codes = encode(values, out);
    for (k, code) in codes.iter().enumerate() {
        let (half, part, at) = (k / 128, k % 128 / 32, k % 32);
        out[64 * half + part % 2 * 32 + at] |= (code & 15) << (part / 2 * 4);
        out[128 + 32 * half + at] |= code >> 4 << (2 * part);
    }
}

/// In the order of LARQL.
pub(super) fn encode_linear(values: &[f32; ELEMENTS], _: usize, out: &mut [u8; BYTES]) {
    let codes = encode(values, out);
    for (k, code) in codes.iter().enumerate() {
        out[k / 2] |= (code & 15) << (k % 2 * 4);
        out[128 + k / 4] |= code >> 4 << (k % 4 * 2);
    }
}

/// Writes what both orders share, and clears the place of the codes, which it returns.
///
/// Zeros that pad a row have code zero, whatever the scale, and so no say in it.
fn encode(values: &[f32; ELEMENTS], out: &mut [u8; BYTES]) -> [u8; ELEMENTS] {
    let block = Block::new(values);
    let mut fit = Fit { step: [0.0; PARTS], error: [f32::INFINITY; PARTS] };
    let mut best = Scales { d: f16::ZERO, scale: [0.0; PARTS], error: f32::INFINITY };
    for (spacings, top) in [&NEAR[..], &FAR].into_iter().zip(LARGEST_SCALES) {
        block.fit(spacings, &mut fit);
        let largest = fit.step.iter().fold(0.0, |a: f32, &b| if b.abs() > a.abs() { b } else { a });
        // The largest scale is negative, where there is one more.
        let first = block.scales(&fit, with_sign(halves::above(largest.abs() / top), -largest));
        let second = block.scales(&fit, block.half(&first));
        for scales in [first, second] {
            if scales.error < best.error {
                best = scales;
            }
        }
    }
    let (codes, rest) = out.split_at_mut(BYTES - 2 - PARTS);
    codes.fill(0);
    let (scales, d) = rest.split_at_mut(PARTS);
    for (scale, out) in best.scale.iter().zip(scales) {
        *out = *scale as i8 as u8;
    }
    d.copy_from_slice(&best.d.to_le_bytes());
    block.codes(&best)
}

fn with_sign(half: f16, sign: f32) -> f16 {
    if sign < 0.0 { -half } else { half }
}

/// Values with the parts side by side: lane `j` of row `i` is value `16 j + i`.
struct Block {
    value: [Lanes; PART],
    /// The value of the largest magnitude.
    largest: Lanes,
    /// Sums of squares.
    squares: Lanes,
}

/// The distance of a part's codes, and the error that it leaves.
struct Fit {
    step: Lanes,
    error: Lanes,
}

/// What a block stores besides its codes, and the error that it leaves.
struct Scales {
    d: f16,
    scale: Lanes,
    error: f32,
}

/// Sums over a part of squared codes, and of their products with values.
struct Totals {
    squares: Lanes,
    products: Lanes,
}

impl Scales {
    fn steps(&self) -> Lanes {
        lanes(|j| self.d.to_f32() * self.scale[j])
    }
}

impl Block {
    fn new(values: &[f32; ELEMENTS]) -> Self {
        let mut block = Self { value: [[0.0; PARTS]; PART], largest: [0.0; PARTS], squares: [0.0; PARTS] };
        for (j, values) in values.chunks_exact(PART).enumerate() {
            for (value, x) in block.value.iter_mut().zip(values) {
                value[j] = *x;
            }
        }
        for value in &block.value {
            let largest = block.largest;
            block.largest = lanes(|j| if value[j].abs() > largest[j].abs() { value[j] } else { largest[j] });
            block.squares = lanes(|j| block.squares[j] + value[j] * value[j]);
        }
        block
    }

    /// Improves each part's step to the one that leaves the least error of those tried.
    fn fit(&self, spacings: &[f32], best: &mut Fit) {
        for code in spacings {
            let is_nothing = |j: usize| self.largest[j].abs() < NOTHING;
            best.keep(
                &self.refit(&self.totals(&lanes(
                    |j| {
                        if is_nothing(j) { 0.0 } else { -code / self.largest[j] }
                    },
                ))),
            );
        }
        best.keep(&self.refit(&self.totals(&inverses(&best.step))));
    }

    fn totals(&self, per_step: &Lanes) -> Totals {
        let mut totals = Totals { squares: [0.0; PARTS], products: [0.0; PARTS] };
        for value in &self.value {
            for j in 0..PARTS {
                let code = code(value[j] * per_step[j], CODES.0, CODES.1);
                totals.squares[j] += code * code;
                totals.products[j] += code * value[j];
            }
        }
        totals
    }

    /// The least squares step.
    fn refit(&self, totals: &Totals) -> Fit {
        let step = lanes(|j| totals.products[j] * inverse(totals.squares[j]));
        let error = lanes(|j| {
            let error = self.squares[j] - step[j] * totals.products[j];
            let noise = NOISE * self.squares[j];
            if error > noise { error } else { noise }
        });
        Fit { step, error }
    }

    /// The best scale of each part in a given unit: the nearest to the fit, or one beside it.
    fn scales(&self, fit: &Fit, d: f16) -> Scales {
        let unit = d.to_f32();
        let per_unit = inverse(unit);
        let (mut scale, mut error) = ([0.0; PARTS], [f32::INFINITY; PARTS]);
        for change in [0.0, -1.0, 1.0, -2.0, 2.0, 3.0, -3.0] {
            let scales: Lanes = lanes(|j| code(fit.step[j] * per_unit + change, SCALES.0, SCALES.1));
            let errors = self.error(&lanes(|j| scales[j] * unit));
            for j in 0..PARTS {
                let is_better = errors[j] < error[j];
                scale[j] = if is_better { scales[j] } else { scale[j] };
                error[j] = if is_better { errors[j] } else { error[j] };
            }
        }
        Scales { d, scale, error: error.iter().sum() }
    }

    /// The sum of squared differences that a step leaves in each part.
    fn error(&self, steps: &Lanes) -> Lanes {
        let per_step = inverses(steps);
        let mut error = [0.0; PARTS];
        for value in &self.value {
            for j in 0..PARTS {
                let difference = value[j] - code(value[j] * per_step[j], CODES.0, CODES.1) * steps[j];
                error[j] += difference * difference;
            }
        }
        error
    }

    /// The unit that fits best with all codes and scales, by least squares.
    fn half(&self, scales: &Scales) -> f16 {
        let totals = self.totals(&inverses(&scales.steps()));
        let (mut squares, mut products) = (0.0, 0.0);
        for j in 0..PARTS {
            squares += scales.scale[j] * scales.scale[j] * totals.squares[j];
            products += scales.scale[j] * totals.products[j];
        }
        let d = products * inverse(squares);
        with_sign(halves::nearest(d.abs()), d)
    }

    /// As they are stored: 32 higher.
    fn codes(&self, scales: &Scales) -> [u8; ELEMENTS] {
        let per_step = inverses(&scales.steps());
        let mut codes = [0; ELEMENTS];
        for (i, value) in self.value.iter().enumerate() {
            let row: Lanes = lanes(|j| code(value[j] * per_step[j], CODES.0, CODES.1) - CODES.0);
            for (j, code) in row.iter().enumerate() {
                codes[PART * j + i] = *code as u8;
            }
        }
        codes
    }
}

impl Fit {
    /// The better of two, part by part.
    fn keep(&mut self, other: &Fit) {
        for j in 0..PARTS {
            let is_better = other.error[j] < self.error[j];
            self.step[j] = if is_better { other.step[j] } else { self.step[j] };
            self.error[j] = if is_better { other.error[j] } else { self.error[j] };
        }
    }
}
