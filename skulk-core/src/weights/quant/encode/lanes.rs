//! How are the parts of a block worked on at once? One part a lane, in loops that the compiler turns into vector code.
//!
//! Every lane is computed alone and in order, so that the width of the machine's vectors changes no result.

/// One number for each part of a block.
pub(super) type Lanes<const N: usize> = [f32; N];

/// Lanes from what is true of each.
#[inline(always)]
pub(super) fn lanes<const N: usize>(mut lane: impl FnMut(usize) -> f32) -> Lanes<N> {
    // A loop of its own: the standard library's calls `lane` through functions that need not be inlined.
    let mut lanes = [0.0; N];
    for (j, value) in lanes.iter_mut().enumerate() {
        *value = lane(j);
    }
    lanes
}

/// The nearest integer within bounds, ties to even; the lower bound where `x` is no number. Bounds
/// are integers below 2²² in magnitude.
#[inline(always)]
pub(super) fn code(x: f32, low: f32, high: f32) -> f32 {
    // Beyond 2²³ a number has no bits for a fraction, and the addition rounds.
    const NO_FRACTION: f32 = 12_582_912.0;
    // Comparisons as one instruction has them; those of the standard library look for NaN.
    let x = if x > low { x } else { low };
    let x = if x < high { x } else { high };
    (x + NO_FRACTION) - NO_FRACTION
}

/// `1 / x`, or zero for zero: what is measured in steps of zero is zero steps.
#[inline(always)]
pub(super) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Likewise, of every lane.
#[inline(always)]
pub(super) fn inverses<const N: usize>(x: &Lanes<N>) -> Lanes<N> {
    lanes(|j| inverse(x[j]))
}
