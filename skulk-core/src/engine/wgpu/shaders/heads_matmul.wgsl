// What are the products of many rows' heads with matrices of the heads?
//
// As heads_matvec.wgsl. After: a format, tiles.wgsl. A workgroup has 64 outputs of 64 rows of a head: dispatch
// (ceil(n_out / 64), heads of the chunk, ceil(rows / 64)).

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

// Rows are counted as they lie in x.
fn x_row_of(row: u32) -> u32 {
    return row;
}

fn out_row_of(row: u32) -> u32 {
    return row % p.rows;
}

fn bias_of(tile: Tile, o: u32) -> f32 {
    return 0.0;
}

@compute @workgroup_size(TILE_THREADS)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let head = p.first_row / p.n_out + group.y;
    let o = TILE * group.x;
    let row = TILE * group.z;
    if (row >= p.rows || o >= p.n_out) {
        return;
    }
    let outputs = min(TILE, p.n_out - o);
    let column = head * p.to_head + o;
    multiply(thread, Tile(head * p.rows + row, min(TILE, p.rows - row), group.y * p.n_out + o, outputs, column));
}
