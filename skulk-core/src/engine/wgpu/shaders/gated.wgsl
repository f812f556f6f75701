// Gate: gate = activation(gate) * up.
//
// After math.wgsl. Constant: ACTIVATION, 0 = SiLU, 1 = GELU by tanh, 2 = GELU by erf.
// One thread an element: groups (ceil(width / 64), rows, 1).

struct Params { rows: u32, width: u32, up_stride: u32, gate_stride: u32 }

@group(0) @binding(0) var<storage, read> up: array<f32>;
@group(0) @binding(1) var<storage, read_write> gate: array<f32>;
@group(1) @binding(0) var<uniform> p: Params;

fn activation(x: f32) -> f32 {
    if ACTIVATION == 0u {
        return x / (1.0 + exp_of(-x));
    }
    if ACTIVATION == 1u {
        // (1 + tanh u) / 2 is the sigmoid of 2u, which has reached its limits at 20.
        let y = clamp(x, -20.0, 20.0);
        return x / (1.0 + exp_of(-1.59576912 * (y + 0.044715 * y * y * y)));
    }
    return 0.5 * x * (1.0 + erf_of(x * 0.70710678));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x < p.width {
        let at = id.y * p.gate_stride + id.x;
        gate[at] = activation(gate[at]) * up[id.y * p.up_stride + id.x];
    }
}
