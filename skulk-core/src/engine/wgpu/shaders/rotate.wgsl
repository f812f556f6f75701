// Rotate heads, as those of quantised keys and values are.
//
// After hadamard.wgsl. Of each p.of_head elements of a row, those from p.first on are a head. One workgroup a head of
// a row: groups (n_heads, rows, 1).

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        head[i] = x[group.y * p.x_stride + group.x * p.of_head + p.first + i];
    }
    rotate(thread, p.factor);
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        out[group.y * p.out_stride + group.x * p.of_head + p.first + i] = head[i];
    }
}
