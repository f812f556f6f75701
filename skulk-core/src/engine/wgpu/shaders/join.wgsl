// Add a block's result to the residual stream, and norm that for the next block: x += scale * y, or the norm of y if NORM;
// out = norm(x).
//
// After sum.wgsl. Constants: THREADS, NORM. One workgroup a row: groups (rows, 1, 1). A thread has the same elements
// throughout.

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> y_weight: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    var scale = p.scale;
    if NORM != 0u {
        var squares = 0.0;
        for (var i = thread; i < p.width; i += THREADS) {
            let value = y[row * p.y_stride + i];
            squares += value * value;
        }
        scale = 1.0 / sqrt(sum_of_threads(thread, squares) / f32(p.width) + p.y_eps);
    }
    var squares = 0.0;
    for (var i = thread; i < p.width; i += THREADS) {
        var added = y[row * p.y_stride + i] * scale;
        if NORM != 0u {
            added *= y_weight[i];
        }
        let value = x[row * p.x_stride + i] + added;
        x[row * p.x_stride + i] = value;
        squares += value * value;
    }
    let factor = 1.0 / sqrt(sum_of_threads(thread, squares) / f32(p.width) + p.eps);
    for (var i = thread; i < p.width; i += THREADS) {
        out[row * p.out_stride + i] = x[row * p.x_stride + i] * factor * weight[i];
    }
}
