// Add a block's result to the residual stream, norm that for the next block, or both. Together they have the bits that one
// after the other has.
//
// After sum.wgsl. Constants: THREADS; SUM, 0 = nothing is added, 1 = x += scale * y, 2 = x += norm(y); NORM, out = norm(x).
// One workgroup a row: groups (rows, 1, 1). A thread has the same elements throughout.

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> y_weight: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

// What makes a row whose squares add up to that one of length 1.
fn factor(thread: u32, squares: f32, eps: f32) -> f32 {
    return 1.0 / sqrt(sum_of_threads(thread, squares) / f32(p.width) + eps);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let row = group.x;
    var scale = p.scale;
    if SUM == 2u {
        var squares = 0.0;
        for (var i = thread; i < p.width; i += THREADS) {
            let value = y[row * p.y_stride + i];
            squares += value * value;
        }
        scale = factor(thread, squares, p.y_eps);
    }
    if SUM != 0u {
        for (var i = thread; i < p.width; i += THREADS) {
            var added = y[row * p.y_stride + i] * scale;
            if SUM == 2u {
                added *= y_weight[i];
            }
            x[row * p.x_stride + i] += added;
        }
    }
    if NORM != 0u {
        var squares = 0.0;
        for (var i = thread; i < p.width; i += THREADS) {
            let value = x[row * p.x_stride + i];
            squares += value * value;
        }
        let by = factor(thread, squares, p.eps);
        for (var i = thread; i < p.width; i += THREADS) {
            out[row * p.out_stride + i] = x[row * p.x_stride + i] * by * weight[i];
        }
    }
}
