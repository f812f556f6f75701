// What do the experts of each row make together? For a few places.
//
// out[row][o] = the sum of share · (x[place] · W[routes[place] * n_out + o] + bias) over the row's x_div places, of which
// shares count if `weighted`. Threads have parts of all places. After: constants ROWS = 1, SUMS = 1, OUTPUTS (4), THREADS;
// a format, dots.wgsl, put.wgsl, a reduce_*.wgsl. With n = ceil(n_out / OUTPUTS), dispatch (any x, y with x * y >= n, rows).

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> routes: array<u32>;
@group(0) @binding(3) var<storage, read> shares: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

fn share(place: u32) -> f32 {
    if (p.weighted == 0u) {
        return 1.0;
    }
    return shares[place];
}

fn put(row: u32, o: u32, sum: f32) {
    if (o >= p.n_out) {
        return;
    }
    var v = sum;
    if (p.has_bias != 0u) {
        for (var place = row * p.x_div; place < (row + 1u) * p.x_div; place++) {
            v += share(place) * bias[routes[place] * p.n_out + o];
        }
    }
    out[row * p.out_stride + o] = v;
}

@compute @workgroup_size(THREADS)
fn main(me: Place, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let o = OUTPUTS * (group.x + group.y * groups.x);
    if (o >= p.n_out) {
        return;
    }
    let row = group.z;
    var sums: array<vec4<f32>, SUMS>;
    // Groups of 16 elements of all places, behind each other.
    let n_groups = (p.n_in + 15u) / 16u;
    for (var i = me.thread; i < p.x_div * n_groups; i += THREADS) {
        let place = row * p.x_div + i / n_groups;
        let at = 16u * (i % n_groups);
        let v = x16(place * p.x_stride, at);
        let first = routes[place] * p.n_out;
        var own: vec4<f32>;
        for (var j = 0u; j < OUTPUTS; j++) {
            own[j] = dot16(weights16((first + min(o + j, p.n_out - 1u)) * p.row_bytes, at), v);
        }
        sums[0] += share(place) * own;
    }
    reduce(me, &sums);
    if (me.thread == 0u) {
        put_all(row, o, total(me, 0u));
    }
}
