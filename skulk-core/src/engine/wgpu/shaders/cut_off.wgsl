// Leave of rows what is above most of them: x = max(x - (mean + p.number * deviation), 0), by row.
//
// After moments.wgsl. Constant: THREADS. One workgroup a row: groups (rows, 1, 1).

@group(0) @binding(0) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * p.x_stride;
    let of_row = moments(thread, first);
    let least = of_row.x + p.number * sqrt(of_row.y);
    for (var i = thread; i < p.width; i += THREADS) {
        let above = x[first + i] - least;
        // What is no number stays so.
        x[first + i] = select(above, 0.0, above < 0.0);
    }
}
