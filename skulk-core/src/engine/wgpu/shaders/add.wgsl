// Add: x += y.
//
// One thread an element: groups (ceil(width / 64), rows, 1).

struct Params { rows: u32, width: u32, y_stride: u32, x_stride: u32 }

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(1) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x < p.width {
        x[id.y * p.x_stride + id.x] += y[id.y * p.y_stride + id.x];
    }
}
