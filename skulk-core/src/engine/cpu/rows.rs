//! What does the CPU compute with a row and no vector instructions of its own? Norms around the mean.

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
