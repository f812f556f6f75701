// Helper: mean and variance of p.width elements of `x`. After sum.wgsl. Constant: THREADS.

// Every thread gets them. Every thread calls it.
fn moments(thread: u32, first: u32) -> vec2f {
    var sum = 0.0;
    for (var i = thread; i < p.width; i += THREADS) {
        sum += x[first + i];
    }
    let mean = sum_of_threads(thread, sum) / f32(p.width);
    var squares = 0.0;
    for (var i = thread; i < p.width; i += THREADS) {
        let off = x[first + i] - mean;
        squares += off * off;
    }
    return vec2f(mean, sum_of_threads(thread, squares) / f32(p.width));
}
