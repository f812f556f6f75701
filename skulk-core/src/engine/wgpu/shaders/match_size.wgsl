// Make rows as large as others: x *= sqrt(mean(like^2) / max(mean(x^2), least)), by row.
//
// After sum.wgsl. Constant: THREADS. One workgroup a row: groups (rows, 1, 1).

@group(0) @binding(0) var<storage, read> like: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    var of_like = 0.0;
    var of_x = 0.0;
    for (var i = thread; i < p.width; i += THREADS) {
        let a = like[row * p.y_stride + i];
        let b = x[row * p.x_stride + i];
        of_like += a * a;
        of_x += b * b;
    }
    of_like = sum_of_threads(thread, of_like) / f32(p.width);
    of_x = sum_of_threads(thread, of_x) / f32(p.width);
    let factor = sqrt(of_like / max(of_x, p.number));
    for (var i = thread; i < p.width; i += THREADS) {
        x[row * p.x_stride + i] *= factor;
    }
}
