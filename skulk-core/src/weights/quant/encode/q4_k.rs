//! Which `Q4_K` block comes close to 256 numbers?
//!
//! Eight parts of 32 values. A value is `d · scale · code - dmin · min`: half floats `d` and `dmin` for
//! the block, 6-bit `scale` and `min` for the part, a 4-bit code of its own. Layout: `block_q4_K` of
//! llama.cpp's `ggml-common.h`.
//!
//! A straight line is fitted to each part over several spacings of the codes, by least squares; then
//! scales are chosen by the error that they leave once they are rounded.

use half::f16;

use super::halves;
use super::lanes::{self, code, inverse, inverses, lanes};

const ELEMENTS: usize = 256;
const BYTES: usize = 144;
const PARTS: usize = 8;
const PART: usize = 32;

/// The largest code, and the largest scale.
const TOP_CODE: f32 = 15.0;
const TOP_SCALE: f32 = 63.0;

/// Spacings to try: how many steps a part's values span.
const SPANS: [f32; 6] = [14.0, 14.4, 14.8, 15.2, 15.6, 16.0];
/// Where such a span lies among the codes: at the lowest, in the middle, at the highest.
const PLACES: [f32; 3] = [0.0, 0.5, 1.0];
/// How often codes and line are fitted to each other after that.
const ROUNDS: usize = 2;
/// The largest scale of the block, to try: half floats are so coarse that it matters.
const LARGEST_SCALES: [f32; 3] = [63.0, 62.0, 61.0];

/// Half the smallest half float: less than this, steps are zero.
const NOTHING: f32 = 1.0 / (1 << 25) as f32;
/// Of a part's sum of squares: below it, the error of a fit is the arithmetic's.
const NOISE: f32 = 4e-6;

type Lanes = lanes::Lanes<PARTS>;

pub(super) fn encode(values: &[f32; ELEMENTS], len: usize, out: &mut [u8; BYTES]) {
    let block = Block::new(values, len);
    let fit = block.fit();
    let largest = |lanes: Lanes| lanes.into_iter().fold(0.0_f32, f32::max);
    let largest_step = largest(fit.step);
    let largest_min = largest(block.mins(&fit.step, &fit.middle));

    let mut best = Scales::zero();
    for top in LARGEST_SCALES {
        let first = block.scales(&fit, halves::above(largest_step / top), halves::above(largest_min / top));
        let (d, dmin) = block.halves(&first);
        let second = block.scales(&fit, d, dmin);
        for scales in [first, second] {
            if scales.error < best.error {
                best = scales;
            }
        }
    }
    block.write(&best, out);
}

/// Values with the parts side by side: lane `j` of row `i` is value `32 j + i`.
struct Block {
    /// How far values lie above their part's floor; zero where there is none.
    height: [Lanes; PART],
    /// One for a value, zero where there is none.
    weight: [Lanes; PART],
    /// The smallest value, zero if that is positive: a minimum cannot be subtracted there.
    floor: Lanes,
    /// From the floor to the largest value.
    span: Lanes,
    /// Values that there are, at least one.
    count: Lanes,
    /// Their mean.
    mean: Lanes,
    /// Sums of the heights, and of their squares.
    heights: Lanes,
    squares: Lanes,
}

/// A part's straight line, without its minimum: that follows by [`Block::min`].
struct Fit {
    step: Lanes,
    /// The mean code.
    middle: Lanes,
    error: Lanes,
}

/// What a block stores besides its codes, and the error that it leaves.
struct Scales {
    d: f16,
    dmin: f16,
    scale: Lanes,
    min: Lanes,
    error: f32,
}

/// Sums over a part of codes, of their squares and of their products with heights.
struct Totals {
    codes: Lanes,
    squares: Lanes,
    products: Lanes,
}

impl Scales {
    fn zero() -> Self {
        Self { d: f16::ZERO, dmin: f16::ZERO, scale: [0.0; PARTS], min: [0.0; PARTS], error: f32::INFINITY }
    }

    fn steps(&self) -> Lanes {
        lanes(|j| self.d.to_f32() * self.scale[j])
    }

    fn mins(&self) -> Lanes {
        lanes(|j| self.dmin.to_f32() * self.min[j])
    }
}

impl Block {
    fn new(values: &[f32; ELEMENTS], len: usize) -> Self {
        let mut block = Self {
            height: [[0.0; PARTS]; PART],
            weight: [[0.0; PARTS]; PART],
            floor: [0.0; PARTS],
            span: [0.0; PARTS],
            count: [0.0; PARTS],
            mean: [0.0; PARTS],
            heights: [0.0; PARTS],
            squares: [0.0; PARTS],
        };
        for (j, values) in values.chunks_exact(PART).enumerate() {
            let count = len.saturating_sub(j * PART).min(PART);
            let values = &values[..count];
            let floor = values.iter().fold(0.0_f32, |a, &b| a.min(b));
            let largest = values.iter().fold(f32::MIN, |a, &b| a.max(b));
            for (i, x) in values.iter().enumerate() {
                block.height[i][j] = x - floor;
                block.weight[i][j] = 1.0;
            }
            block.floor[j] = floor;
            block.span[j] = (largest - floor).max(0.0);
            block.count[j] = count.max(1) as f32;
        }
        for height in &block.height {
            block.heights = lanes(|j| block.heights[j] + height[j]);
            block.squares = lanes(|j| block.squares[j] + height[j] * height[j]);
        }
        block.mean = lanes(|j| block.heights[j] / block.count[j] + block.floor[j]);
        block
    }

    /// The minimum that fits best with a step, given the mean code.
    #[inline(always)]
    fn min(&self, j: usize, step: f32, middle: f32) -> f32 {
        let min = step * middle - self.mean[j];
        if min > 0.0 { min } else { 0.0 }
    }

    fn mins(&self, steps: &Lanes, middles: &Lanes) -> Lanes {
        lanes(|j| self.min(j, steps[j], middles[j]))
    }

    /// The line that leaves the least error of those tried, for each part.
    fn fit(&self) -> Fit {
        let mut best = Fit { step: [0.0; PARTS], middle: [0.0; PARTS], error: [f32::INFINITY; PARTS] };
        // The span that most parts of few different values need is the first, and stays on a tie.
        let places = SPANS.iter().flat_map(|&span| PLACES.map(|place| (span, place)));
        for (span, place) in [(TOP_CODE, 0.0)].into_iter().chain(places) {
            let per_step = lanes(|j| if self.span[j] < NOTHING { 0.0 } else { span / self.span[j] });
            best.keep(&self.refit(&self.totals(&per_step, &[(TOP_CODE - span) * place; PARTS])));
        }
        for _ in 0..ROUNDS {
            let mins = self.mins(&best.step, &best.middle);
            best.keep(&self.refit(&self.totals_of(&best.step, &mins)));
        }
        best
    }

    /// Codes of heights are `height · per_step + first`, rounded.
    fn totals(&self, per_step: &Lanes, first: &Lanes) -> Totals {
        let (mut codes, mut squares, mut products) = ([0.0; PARTS], [0.0; PARTS], [0.0; PARTS]);
        for (height, weight) in self.height.iter().zip(&self.weight) {
            for j in 0..PARTS {
                let code = code(height[j] * per_step[j] + first[j], 0.0, TOP_CODE) * weight[j];
                codes[j] += code;
                squares[j] += code * code;
                products[j] += code * height[j];
            }
        }
        Totals { codes, squares, products }
    }

    fn totals_of(&self, steps: &Lanes, mins: &Lanes) -> Totals {
        let per_step = inverses(steps);
        self.totals(&per_step, &lanes(|j| (self.floor[j] + mins[j]) * per_step[j]))
    }

    /// The least squares line through values over their codes, its minimum not below zero.
    fn refit(&self, totals: &Totals) -> Fit {
        let mut fit = Fit { step: [0.0; PARTS], middle: [0.0; PARTS], error: [0.0; PARTS] };
        for j in 0..PARTS {
            let (n, codes, squares) = (self.count[j], totals.codes[j], totals.squares[j]);
            let middle = codes / n;
            let determinant = n * squares - codes * codes;
            let free = (n * totals.products[j] - self.heights[j] * codes) * inverse(determinant);
            let through_zero = (totals.products[j] + self.floor[j] * codes) * inverse(squares);
            let is_free = determinant > 0.0 && free * middle >= self.mean[j];
            let step = if is_free { free } else { through_zero };
            let start = -self.min(j, step, middle) - self.floor[j];
            let error = self.squares[j] - 2.0 * (step * totals.products[j] + start * self.heights[j])
                + step * step * squares
                + 2.0 * step * start * codes
                + start * start * n;
            let noise = NOISE * self.squares[j];
            let error = if error > noise { error } else { noise };
            fit.step[j] = step;
            fit.middle[j] = middle;
            fit.error[j] = if step < 0.0 { f32::INFINITY } else { error };
        }
        fit
    }

    /// The best scale and minimum of each part in given units: the nearest ones to the fit, and
    /// those that go with the next scales.
    fn scales(&self, fit: &Fit, d: f16, dmin: f16) -> Scales {
        let (unit, min_unit) = (d.to_f32(), dmin.to_f32());
        let (per_unit, per_min_unit) = (inverse(unit), inverse(min_unit));
        let (mut scale, mut min, mut error) = ([0.0; PARTS], [0.0; PARTS], [f32::INFINITY; PARTS]);
        for change in [0.0, -1.0, 1.0] {
            let scales: Lanes = lanes(|j| code(fit.step[j] * per_unit + change, 0.0, TOP_SCALE));
            let steps = lanes(|j| scales[j] * unit);
            let mins = self.mins(&steps, &fit.middle);
            let mins: Lanes = lanes(|j| code(mins[j] * per_min_unit, 0.0, TOP_SCALE));
            let errors = self.error(&steps, &lanes(|j| mins[j] * min_unit));
            for j in 0..PARTS {
                let is_better = errors[j] < error[j];
                scale[j] = if is_better { scales[j] } else { scale[j] };
                min[j] = if is_better { mins[j] } else { min[j] };
                error[j] = if is_better { errors[j] } else { error[j] };
            }
        }
        Scales { d, dmin, scale, min, error: error.iter().sum() }
    }

    /// The sum of squared differences that a step and a minimum leave in each part.
    fn error(&self, steps: &Lanes, mins: &Lanes) -> Lanes {
        let per_step = inverses(steps);
        let start: Lanes = lanes(|j| self.floor[j] + mins[j]);
        let mut error = [0.0; PARTS];
        for (height, weight) in self.height.iter().zip(&self.weight) {
            for j in 0..PARTS {
                let above_min = height[j] + start[j];
                let difference = above_min - code(above_min * per_step[j], 0.0, TOP_CODE) * steps[j];
                error[j] += difference * difference * weight[j];
            }
        }
        error
    }

    /// The units that fit best with all codes, scales and minimums, by least squares.
    fn halves(&self, scales: &Scales) -> (f16, f16) {
        let totals = self.totals_of(&scales.steps(), &scales.mins());
        // With `a = scale · code` and `b = min`, over the block: of a², ab, b², ax and bx.
        let (mut aa, mut ab, mut bb, mut ax, mut bx) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for j in 0..PARTS {
            let wide = |x: [f32; PARTS]| f64::from(x[j]);
            let (scale, min, codes, count) =
                (wide(scales.scale), wide(scales.min), wide(totals.codes), wide(self.count));
            aa += scale * scale * wide(totals.squares);
            ab += scale * min * codes;
            bb += min * min * count;
            ax += scale * (wide(totals.products) + wide(self.floor) * codes);
            bx += min * wide(self.mean) * count;
        }
        let determinant = aa * bb - ab * ab;
        let (d, dmin) = if determinant > 1e-6 * aa * bb {
            ((ax * bb - ab * bx) / determinant, (ax * ab - aa * bx) / determinant)
        } else {
            let d = if aa > 0.0 { (ax + ab * scales.dmin.to_f64()) / aa } else { 0.0 };
            (d, if bb > 0.0 { (ab * d - bx) / bb } else { 0.0 })
        };
        (halves::nearest(d as f32), halves::nearest(dmin as f32))
    }

    fn write(&self, scales: &Scales, out: &mut [u8; BYTES]) {
        let (units, rest) = out.split_at_mut(4);
        let (packed, codes) = rest.split_at_mut(12);
        units[..2].copy_from_slice(&scales.d.to_le_bytes());
        units[2..].copy_from_slice(&scales.dmin.to_le_bytes());
        // Six bits each of the first four parts; below their upper two bits, those of the others
        // lie in four and two.
        for j in 0..PARTS / 2 {
            let (scale, min) = (scales.scale[j] as u8, scales.min[j] as u8);
            let (scale4, min4) = (scales.scale[j + 4] as u8, scales.min[j + 4] as u8);
            packed[j] = scale | scale4 >> 4 << 6;
            packed[j + 4] = min | min4 >> 4 << 6;
            packed[j + 8] = scale4 & 15 | min4 << 4;
        }
        let (steps, mins) = (scales.steps(), scales.mins());
        let per_step = inverses(&steps);
        for (i, (height, weight)) in self.height.iter().zip(&self.weight).enumerate() {
            let code: Lanes = lanes(|j| {
                let x = (height[j] + self.floor[j]) * weight[j];
                code((x + mins[j]) * per_step[j], 0.0, TOP_CODE)
            });
            for pair in 0..PARTS / 2 {
                codes[PART * pair + i] = code[2 * pair] as u8 | (code[2 * pair + 1] as u8) << 4;
            }
        }
    }
}

impl Fit {
    /// The better of two, part by part.
    fn keep(&mut self, other: &Fit) {
        for j in 0..PARTS {
            let is_better = other.error[j] < self.error[j];
            self.step[j] = if is_better { other.step[j] } else { self.step[j] };
            self.middle[j] = if is_better { other.middle[j] } else { self.middle[j] };
            self.error[j] = if is_better { other.error[j] } else { self.error[j] };
        }
    }
}
