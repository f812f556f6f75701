//! Which half float serves as the scale of a block?

use half::f16;

use super::LARGEST_HALF;

/// The nearest one to a scale that is not negative; the largest where there is none as large.
pub(super) fn nearest(scale: f32) -> f16 {
    f16::from_f32(scale.clamp(0.0, LARGEST_HALF))
}

/// The smallest one that is no less than a scale that is not negative, so that codes counted in it
/// never leave their range.
pub(super) fn above(scale: f32) -> f16 {
    let near = nearest(scale);
    if near.to_f32() < scale && near < f16::MAX { f16::from_bits(near.to_bits() + 1) } else { near }
}
