// What does a gate let through of a few rows' products? out[r][o] = activation(x[r] · G[o]) · (x[r] · U[o]), with matrices
// of one shape.
//
// After: constants ROWS (1, 2, 4, 8), OUTPUTS (4), THREADS, OPERATION; math.wgsl, activation.wgsl, a reduce_*.wgsl; of both
// matrices a format, several/weights.wgsl and dots.wgsl. Dispatch as products.wgsl of the first matrix alone.

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

fn put(row: u32, o: u32, gate: f32, up: f32) {
    if (o < p.n_rows_0) {
        out[row * ((p.n_rows_0 + 3u) & ~3u) + o] = gated(gate, up);
    }
}

@compute @workgroup_size(THREADS)
fn main(me: Place, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let first = OUTPUTS * (group.x + group.y * groups.x);
    if (first >= p.n_rows_0) {
        return;
    }
    let row = ROWS * group.z;
    let rows = min(ROWS, p.rows - row);
    var gates: array<vec4<f32>, ROWS>;
    var ups: array<vec4<f32>, ROWS>;
    dots_0(me.thread, first, p.n_rows_0 - 1u, row, rows, &gates);
    dots_1(me.thread, first, p.n_rows_0 - 1u, row, rows, &ups);
    var sums: array<vec4<f32>, SUMS>;
    for (var r = 0u; r < ROWS; r++) {
        sums[r] = gates[r];
        sums[ROWS + r] = ups[r];
    }
    reduce(me, &sums);
    if (me.thread < rows) {
        let gate = total(me, me.thread);
        let up = total(me, ROWS + me.thread);
        put(row + me.thread, first, gate.x, up.x);
        put(row + me.thread, first + 1u, gate.y, up.y);
        put(row + me.thread, first + 2u, gate.z, up.z);
        put(row + me.thread, first + 3u, gate.w, up.w);
    }
}
