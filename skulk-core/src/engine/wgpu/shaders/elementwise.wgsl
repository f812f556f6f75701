// One element at a time: x becomes a function of x and y.
//
// After math.wgsl. Constant: OPERATION, whose numbers are kernels.rs' `Elementwise`.
// One thread an element: groups (ceil(width / 64), rows, 1).

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

// SiLU, GELU by tanh, GELU by erf; SiLU that is bounded; ReLU squared.
fn activation(x: f32) -> f32 {
    if OPERATION == 0u || OPERATION == 5u {
        return x / (1.0 + exp_of(-x));
    }
    if OPERATION == 1u {
        // (1 + tanh u) / 2 is the sigmoid of 2u, which has reached its limits at 20.
        let y = clamp(x, -20.0, 20.0);
        return x / (1.0 + exp_of(-1.59576912 * (y + 0.044715 * y * y * y)));
    }
    return 0.5 * x * (1.0 + erf_of(x * 0.70710678));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= p.width {
        return;
    }
    let at = id.y * p.x_stride + id.x;
    let y_at = id.y * p.y_stride + id.x;
    if OPERATION <= 2u {
        x[at] = activation(x[at]) * y[y_at];
    } else if OPERATION == 3u {
        x[at] += p.number * y[y_at];
    } else if OPERATION == 4u {
        x[at] = p.number * tanh_of(x[at] / p.number);
    } else if OPERATION == 9u {
        // y has one number a row.
        x[at] *= y[id.y * p.y_stride];
    } else if OPERATION == 10u {
        x[at] *= y[y_at];
    } else if OPERATION == 7u {
        x[at] *= p.number;
    } else if OPERATION == 8u {
        let positive = max(x[at], 0.0);
        x[at] = positive * positive;
    } else if OPERATION == 6u {
        let gate = min(x[at], p.number);
        x[at] = gate / (1.0 + exp_of(-p.alpha * gate)) * (clamp(y[y_at], -p.number, p.number) + 1.0);
    } else {
        x[at] = min(activation(x[at]), p.number) * clamp(y[y_at], -p.number, p.number);
    }
}
