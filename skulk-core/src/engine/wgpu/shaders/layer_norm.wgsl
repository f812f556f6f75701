// Norm rows around their mean: x = (x - mean) / sqrt(variance + p.number) * weight + bias, in place.
//
// After moments.wgsl. Constant: THREADS. One workgroup a row: groups (rows, 1, 1).

@group(0) @binding(0) var<storage, read> weight: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let first = group.x * p.x_stride;
    let of_row = moments(thread, first);
    let factor = 1.0 / sqrt(of_row.y + p.number);
    for (var i = thread; i < p.width; i += THREADS) {
        x[first + i] = (x[first + i] - of_row.x) * factor * weight[i] + bias[i];
    }
}
