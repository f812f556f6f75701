// Take heads apart that have weights of their own: of each head the elements that its weights take, head by head, and
// those behind them into its result.
//
// x is [row, head, p.n_in + p.behind]; heads becomes [head, row, p.in_stride], with zeros behind p.n_in; a head of
// out has p.n_out elements in front of those behind. One thread an element: groups (ceil(most / 64), rows, n_heads),
// most being the larger one of what a head has of x and p.in_stride.

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> heads: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let i = id.x;
    let own = p.n_in + p.behind;
    var value = 0.0;
    if i < own {
        value = x[id.y * p.x_stride + id.z * own + i];
    }
    if i < p.in_stride {
        heads[(id.z * groups.y + id.y) * p.in_stride + i] = select(0.0, value, i < p.n_in);
    }
    if i >= p.n_in && i < own {
        out[id.y * p.out_stride + id.z * (p.n_out + p.behind) + p.n_out + i - p.n_in] = value;
    }
}
