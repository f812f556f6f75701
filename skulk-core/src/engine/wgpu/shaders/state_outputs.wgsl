// Norm and gate what was read of states: RMS norm of p.width elements at a time, times an activation of gates.
//
// Constants: GATE, 0 = SiLU behind the norm, 1 = sigmoid behind it, 2 = SiLU before it; THREADS. After math.wgsl
// and sum.wgsl. Gates of a key head, p.of_key of them, lie together. Weights are those of p.weights elements, then
// again of as many. One workgroup a norm of a row: groups (norms, rows, 1).

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gates: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

fn activated(row: u32, i: u32) -> f32 {
    let gate = gates[row * p.gates_stride + p.gate + i / p.of_key * p.gate_step + i % p.of_key];
    let share = 1.0 / (1.0 + exp_of(-gate));
    return select(gate * share, share, GATE == 1u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let row = group.y;
    let end = (group.x + 1u) * p.width;
    var squares = 0.0;
    for (var i = group.x * p.width + thread; i < end; i += THREADS) {
        var value = x[row * p.x_stride + i];
        if GATE == 2u {
            value *= activated(row, i);
        }
        squares += value * value;
    }
    let factor = 1.0 / sqrt(sum_of_threads(thread, squares) / f32(p.width) + p.eps);
    for (var i = group.x * p.width + thread; i < end; i += THREADS) {
        out[row * p.out_stride + i] = x[row * p.x_stride + i] * activated(row, i) * factor * weight[i % p.weights];
    }
}
