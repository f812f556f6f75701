// One element at a time: x becomes a function of x and y.
//
// After math.wgsl and activation.wgsl. Constant: OPERATION, whose numbers are kernels.rs' `Elementwise`.
// One thread an element: groups (ceil(width / 64), rows, 1).

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= p.width {
        return;
    }
    let at = id.y * p.x_stride + id.x;
    let y_at = id.y * p.y_stride + id.x;
    if OPERATION == 4u {
        x[at] = p.number * tanh_of(x[at] / p.number);
    } else if OPERATION == 9u {
        // y has one number a row.
        x[at] *= y[id.y * p.y_stride];
    } else if OPERATION == 10u {
        x[at] *= y[y_at];
    } else if OPERATION == 7u {
        x[at] *= p.number;
    } else if OPERATION == 8u {
        // There may be no y.
        x[at] = gated(x[at], 0.0);
    } else {
        x[at] = gated(x[at], y[y_at]);
    }
}
