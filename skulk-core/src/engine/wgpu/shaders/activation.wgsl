// Helper: what do a gate's activation and the other projection make together?
//
// After math.wgsl. Constant: OPERATION, an activation of kernels.rs' `Elementwise`. Of p: `number`, a limit, and `alpha`,
// how steep a sigmoid is.

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

fn gated(x: f32, y: f32) -> f32 {
    if OPERATION <= 2u {
        return activation(x) * y;
    }
    if OPERATION == 8u {
        let positive = max(x, 0.0);
        return positive * positive;
    }
    if OPERATION == 6u {
        let gate = min(x, p.number);
        return gate / (1.0 + exp_of(-p.alpha * gate)) * (clamp(y, -p.number, p.number) + 1.0);
    }
    return min(activation(x), p.number) * clamp(y, -p.number, p.number);
}
