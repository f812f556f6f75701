// Heads times the sigmoids of their gates, in place.
//
// After math.wgsl. x is [row, head, head_dim]; gates are [row, head]. One thread an element: groups
// (ceil(width / 64), rows, 1).

@group(0) @binding(0) var<storage, read> gates: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= p.width {
        return;
    }
    x[id.y * p.x_stride + id.x] /= 1.0 + exp_of(-gates[id.y * p.gates_stride + id.x / p.head_dim]);
}
