// What are the products of a few rows' heads with matrices of the heads?
//
// x is [head, row, n_in]; out[r][head * to_head + o] = x[head][r] · W[head * n_out + o]. After: constants ROWS (1, 2,
// 4, 8), OUTPUTS (4), THREADS; a format, dots.wgsl, a reduce_*.wgsl. A workgroup has OUTPUTS outputs of ROWS rows of a
// head. With n = ceil(n_out / OUTPUTS), dispatch (any x, y with x * y >= n, heads of the chunk * ceil(rows / ROWS)).

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

// Writes an output of the head whose results of a row begin at `first`.
fn put(first: u32, o: u32, sum: f32) {
    if (o < p.n_out) {
        out[first + o] = sum;
    }
}

@compute @workgroup_size(THREADS)
fn main(me: Place, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let o = OUTPUTS * (group.x + group.y * groups.x);
    let of_head = (p.rows + ROWS - 1u) / ROWS;
    let own = group.z / of_head;
    let head = p.first_row / p.n_out + own;
    let row = ROWS * (group.z % of_head);
    if (o >= p.n_out) {
        return;
    }
    let rows = min(ROWS, p.rows - row);
    var sums: array<vec4<f32>, ROWS>;
    dots(me.thread, own * p.n_out + o, own * p.n_out + p.n_out - 1u, head * p.rows + row, rows, &sums);
    reduce(me, &sums);
    if (me.thread < rows) {
        put_all((row + me.thread) * p.out_stride + head * p.to_head, o, total(me, me.thread));
    }
}
