// What is left of states at each row, and what share of its value does it take up?
//
// Constant: SHARES, 1 = shares are sigmoids of projections, else time steps. After math.wgsl. A row of out has,
// from p.first on, what is left by time step, then shares by head; a head has p.of_head time steps.
// One thread a time step: groups (ceil(p.n_steps / 64), rows, 1).

@group(0) @binding(0) var<storage, read> steps: array<f32>;
@group(0) @binding(1) var<storage, read> shares: array<f32>;
@group(0) @binding(2) var<storage, read> step_bias: array<f32>;
@group(0) @binding(3) var<storage, read> decay: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

// ln(1 + e^x). With y = e^-|x| the logarithm of 1 + y is 2 artanh(y / (2 + y)), whose series has terms below a
// ninth of one another: what is added to 1 and lost there counts where y is small.
fn softplus(x: f32) -> f32 {
    let y = exp_of(-abs(x));
    let z = y / (2.0 + y);
    let q = z * z;
    var s = 1.0 / 17.0;
    s = s * q + 1.0 / 15.0;
    s = s * q + 1.0 / 13.0;
    s = s * q + 1.0 / 11.0;
    s = s * q + 1.0 / 9.0;
    s = s * q + 1.0 / 7.0;
    s = s * q + 1.0 / 5.0;
    s = s * q + 1.0 / 3.0;
    s = s * q + 1.0;
    return max(x, 0.0) + 2.0 * z * s;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= p.n_steps {
        return;
    }
    let head = id.x / p.of_head;
    let own = id.x % p.of_head;
    let key_head = head / p.of_key;
    let in_key = head % p.of_key;
    let at = id.y * p.steps_stride + p.step + key_head * p.step_step + in_key * p.of_head + own;
    let step = clamp(softplus(steps[at] + step_bias[id.x]), p.least, p.most);
    let to = id.y * p.out_stride + p.first;
    out[to + id.x] = exp_of(-decay[head] * step);
    if own == 0u {
        var share = step;
        if SHARES != 0u {
            let x = shares[id.y * p.shares_stride + p.share + key_head * p.share_step + in_key];
            share = 1.0 / (1.0 + exp_of(-x));
        }
        out[to + p.n_steps + head] = share;
    }
}
