// RMS norm: out = x / sqrt(mean(x^2) + eps) * weight, row by row; if ADD, out += that.
//
// After sum.wgsl. Constants: THREADS, ADD. One workgroup a row: groups (rows, 1, 1).

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    var squares = 0.0;
    for (var i = thread; i < p.width; i += THREADS) {
        let value = x[row * p.x_stride + i];
        squares += value * value;
    }
    let factor = 1.0 / sqrt(sum_of_threads(thread, squares) / f32(p.width) + p.eps);
    for (var i = thread; i < p.width; i += THREADS) {
        let normed = x[row * p.x_stride + i] * factor * weight[i];
        if ADD != 0u {
            out[row * p.out_stride + i] += normed;
        } else {
            out[row * p.out_stride + i] = normed;
        }
    }
}
