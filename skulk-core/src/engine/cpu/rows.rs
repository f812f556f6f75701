//! What does the CPU compute with a row and no vector instructions of its own? Norms around the mean, sizes, and what exceeds
//! the others.

/// Sums that are made at a time.
const SUMS: usize = 16;

/// The sum over a row, in f64 and in one order, whatever instructions there are.
fn sum(x: &[f32], of: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0; SUMS];
    for part in x.chunks(SUMS) {
        sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += of(f64::from(*x)));
    }
    sums.iter().sum()
}

/// `x *= sqrt(mean(like²) / max(mean(x²), least))`.
pub(super) fn match_size(x: &mut [f32], like: &[f32], least: f32) {
    let mean = |x: &[f32]| sum(x, |x| x * x) / x.len().max(1) as f64;
    let factor = (mean(like) / mean(x).max(f64::from(least))).sqrt() as f32;
    x.iter_mut().for_each(|x| *x *= factor);
}

/// `x = max(x - (mean + deviations · deviation), 0)`.
pub(super) fn cut_off(x: &mut [f32], deviations: f32) {
    let n = x.len().max(1) as f64;
    let mean = sum(x, |x| x) / n;
    let variance = sum(x, |x| (x - mean) * (x - mean)) / n;
    let least = (mean + f64::from(deviations) * variance.sqrt()) as f32;
    for x in x {
        // In this order what is not a number stays so.
        let above = *x - least;
        *x = if above < 0.0 { 0.0 } else { above };
    }
}

/// `(x - mean) / sqrt(variance + eps) · weight + bias`, summed in f64 and in order.
pub(super) fn layer_norm(x: &mut [f32], [weight, bias]: [&[f32]; 2], eps: f32) {
    let n = x.len().max(1) as f64;
    let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
    let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (variance + f64::from(eps)).sqrt();
    for ((x, weight), bias) in x.iter_mut().zip(weight).zip(bias) {
        *x = ((f64::from(*x) - mean) * scale) as f32 * weight + bias;
    }
}
