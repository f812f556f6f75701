// What do the gates of experts let through? Both projections of each place's expert, for a few places.
//
// out[place][o] = activation(g) * u, where g = x[place / x_div] · G[routes[place] * n_out + o] + bias, and u likewise; both are
// times the place's share if ON_INPUT. After: constants ROWS = 1, SUMS = 2, OUTPUTS (4), THREADS, OPERATION; math.wgsl,
// activation.wgsl, a reduce_*.wgsl; of both matrices a format, several/weights.wgsl and dots.wgsl. With
// n = ceil(n_out / OUTPUTS), dispatch (any x, y with x * y >= n, places).

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> gate_bias: array<f32>;
@group(0) @binding(4) var<storage, read> up_bias: array<f32>;
@group(0) @binding(5) var<storage, read> routes: array<u32>;
@group(0) @binding(6) var<storage, read> shares: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

fn put(place: u32, o: u32, gate_sum: f32, up_sum: f32) {
    if (o >= p.n_out) {
        return;
    }
    var gate = gate_sum;
    var up = up_sum;
    if (p.has_bias != 0u) {
        gate += gate_bias[routes[place] * p.n_out + o];
        up += up_bias[routes[place] * p.n_out + o];
    }
    if (ON_INPUT != 0u) {
        gate *= shares[place];
        up *= shares[place];
    }
    out[place * p.out_stride + o] = gated(gate, up);
}

@compute @workgroup_size(THREADS)
fn main(me: Place, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let o = OUTPUTS * (group.x + group.y * groups.x);
    if (o >= p.n_out) {
        return;
    }
    let place = group.z;
    let first = routes[place] * p.n_out;
    var gates: array<vec4<f32>, ROWS>;
    var ups: array<vec4<f32>, ROWS>;
    dots_0(me.thread, first + o, first + p.n_out - 1u, place / p.x_div, 1u, &gates);
    dots_1(me.thread, first + o, first + p.n_out - 1u, place / p.x_div, 1u, &ups);
    var sums: array<vec4<f32>, SUMS>;
    sums[0] = gates[0];
    sums[1] = ups[0];
    reduce(me, &sums);
    if (me.thread == 0u) {
        let gate = total(me, 0u);
        let up = total(me, 1u);
        put(place, o, gate.x, up.x);
        put(place, o + 1u, gate.y, up.y);
        put(place, o + 2u, gate.z, up.z);
        put(place, o + 3u, gate.w, up.w);
    }
}
