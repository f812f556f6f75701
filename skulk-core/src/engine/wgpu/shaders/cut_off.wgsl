// Leave of rows what is above most of them: x = max(x - (mean + p.number * deviation), 0), by row.
//
// After sum.wgsl. Constant: THREADS. One workgroup a row: groups (rows, 1, 1).

@group(0) @binding(0) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * p.x_stride;
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
    let deviation = sqrt(sum_of_threads(thread, squares) / f32(p.width));
    let least = mean + p.number * deviation;
    for (var i = thread; i < p.width; i += THREADS) {
        let above = x[first + i] - least;
        // What is no number stays so.
        x[first + i] = select(above, 0.0, above < 0.0);
    }
}
