// What are the products of a few rows of x with a matrix? out[r][first_row + o] = x[r] · W[o] + bias.
//
// After: constants ROWS (1, 2, 4, 8), OUTPUTS (4), THREADS (32, 64, 128); product.wgsl, a format, dots.wgsl, a
// reduce_*.wgsl. A workgroup has OUTPUTS outputs of ROWS rows. With
// n = ceil(n_rows / OUTPUTS), dispatch (any x, y with x * y >= n, ceil(rows / ROWS)).

// Writes an output of the chunk.
fn put(row: u32, o: u32, sum: f32) {
    if (o >= p.n_rows) {
        return;
    }
    var v = sum;
    if (p.has_bias != 0u) {
        v += bias[p.first_row + o];
    }
    out[row * p.out_stride + p.first_row + o] = v;
}

@compute @workgroup_size(THREADS)
fn main(me: Place, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let first = OUTPUTS * (group.x + group.y * groups.x);
    if (first >= p.n_rows) {
        return;
    }
    let row = ROWS * group.z;
    let rows = min(ROWS, p.rows - ROWS * group.z);
    var sums: array<vec4<f32>, ROWS>;
    dots(me.thread, first, p.n_rows - 1u, row, rows, &sums);
    reduce(me, &sums);
    if (me.thread < rows) {
        put_all(row + me.thread, first, total(me, me.thread));
    }
}
