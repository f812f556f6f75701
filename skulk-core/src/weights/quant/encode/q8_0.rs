//! Which `Q8_0` block comes close to 32 numbers? A half float, then 32 signed bytes counted in it.

use super::halves;
use super::lanes::{code, inverse};

const ELEMENTS: usize = 32;
const BYTES: usize = 34;

/// Values are counted in the scale as it is stored, so that its rounding is not added to theirs.
pub(super) fn encode(values: &[f32; ELEMENTS], _: usize, out: &mut [u8; BYTES]) {
    let largest = values.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let near = halves::nearest(largest / 127.0);
    // Among the small ones, half floats are so far apart that the largest value may not be reached.
    let d = if largest > 127.5 * near.to_f32() { halves::above(largest / 127.0) } else { near };
    let per_step = inverse(d.to_f32());
    let (scale, codes) = out.split_at_mut(2);
    scale.copy_from_slice(&d.to_le_bytes());
    for (x, out) in values.iter().zip(codes) {
        *out = code(x * per_step, -127.0, 127.0) as i8 as u8;
    }
}
