// Soft-cap: x = cap * tanh(x / cap).
//
// After math.wgsl. One thread an element: groups (ceil(width / 64), rows, 1).

struct Params { rows: u32, width: u32, stride: u32, cap: f32 }

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(1) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x < p.width {
        let at = id.y * p.stride + id.x;
        x[at] = p.cap * tanh_of(x[at] / p.cap);
    }
}
