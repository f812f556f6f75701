// What are the products of each place's row of x with the matrix of its expert? For a few places.
//
// out[place][o] = x[place / x_div] · W[routes[place] * n_out + o] + bias, a place being a row and a slot. After:
// constants ROWS = 1, OUTPUTS (4), THREADS (32, 64, 128); a format, dots.wgsl, a reduce_*.wgsl. With n = ceil(n_out / OUTPUTS), dispatch (any x, y with x * y >= n, places). Places
// whose expert is in another chunk are left alone.

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> routes: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

fn put(place: u32, o: u32, sum: f32) {
    if (o >= p.n_out) {
        return;
    }
    var v = sum;
    if (p.has_bias != 0u) {
        v += bias[routes[place] * p.n_out + o];
    }
    out[place * p.out_stride + o] = v;
}

@compute @workgroup_size(THREADS)
fn main(me: Place, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let o = OUTPUTS * (group.x + group.y * groups.x);
    let place = group.z;
    let stacked = routes[place] * p.n_out;
    if (o >= p.n_out || stacked < p.first_row || stacked - p.first_row >= p.n_rows) {
        return;
    }
    let expert = stacked - p.first_row;
    var sums: array<vec4<f32>, ROWS>;
    dots(me.thread, expert + o, expert + p.n_out - 1u, place / p.x_div, 1u, &sums);
    reduce(me, &sums);
    if (me.thread == 0u) {
        put_all(place, o, total(me, 0u));
    }
}
