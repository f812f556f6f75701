// What are the products of many rows of x with a matrix? out[r][first_row + o] = x[r] · W[o] + bias.
//
// After: product.wgsl, a format, tiles.wgsl. A workgroup has 64 rows by 64 outputs:
// dispatch (ceil(rows / 64), ceil(n_rows / 64), 1).

fn x_row_of(row: u32) -> u32 {
    return row;
}

fn out_row_of(row: u32) -> u32 {
    return row;
}

fn bias_of(tile: Tile, o: u32) -> f32 {
    if (p.has_bias == 0u || o >= tile.outputs) {
        return 0.0;
    }
    return bias[tile.column + o];
}

@compute @workgroup_size(TILE_THREADS)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let row = TILE * group.x;
    let o = TILE * group.y;
    if (row >= p.rows || o >= p.n_rows) {
        return;
    }
    let tile = Tile(row, min(TILE, p.rows - row), o, min(TILE, p.n_rows - o), p.first_row + o);
    multiply(thread, tile);
}
