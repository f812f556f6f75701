// Helper: functions of one number, accurate to a few units in the last place on every adapter.

// e^x from -87 to 88, beyond which it stays what it is there: powers of two and the polynomial of
// Cephes' expf.
fn exp_of(x: f32) -> f32 {
    let y = clamp(x, -87.0, 88.0);
    let n = round(y * 1.44269504);
    // ln 2 in two parts; n times the first is exact.
    let r = (y - n * 0.693359375) + n * 2.12194440e-4;
    var s = 1.9875691e-4;
    s = s * r + 1.3981999e-3;
    s = s * r + 8.3334519e-3;
    s = s * r + 4.1665796e-2;
    s = s * r + 1.6666665e-1;
    s = s * r + 5.0000001e-1;
    return (s * (r * r) + r + 1.0) * bitcast<f32>(u32(i32(n) + 127) << 23u);
}

// The exponential's clamp keeps it from overflowing: 1 for whatever is large.
fn tanh_of(x: f32) -> f32 {
    return 1.0 - 2.0 / (exp_of(2.0 * x) + 1.0);
}

// The error function within 5e-7, roundings included (Abramowitz and Stegun 7.1.26).
fn erf_of(x: f32) -> f32 {
    let z = min(abs(x), 9.0);
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let s = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    let y = 1.0 - s * exp_of(-z * z);
    return select(y, -y, x < 0.0);
}
