// What are the products of each place's row of x with the matrix of its expert? For many places.
//
// out[place][o] = x[place / x_div] · W[expert * n_out + o] + bias, by expert: its places are
// order[starts[expert]..starts[expert + 1]], from experts_sort.wgsl. After: a format,
// tiles.wgsl. A workgroup has 64 outputs of 64 places of an expert: dispatch (ceil(n_out / 64), experts
// in the chunk, ceil(places / 64)); those beyond their expert's places end at once.

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read> starts: array<u32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

// Rows are counted as they lie in `order`.
fn x_row_of(row: u32) -> u32 {
    return order[row] / p.x_div;
}

fn out_row_of(row: u32) -> u32 {
    return order[row];
}

fn bias_of(tile: Tile, o: u32) -> f32 {
    if (p.has_bias == 0u || o >= tile.outputs) {
        return 0.0;
    }
    return bias[p.first_row + tile.weights_row + o];
}

@compute @workgroup_size(TILE_THREADS)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let expert = p.first_row / p.n_out + group.y;
    let o = TILE * group.x;
    let row = starts[expert] + TILE * group.z;
    let end = starts[expert + 1u];
    if (row >= end || o >= p.n_out || group.y * p.n_out >= p.n_rows) {
        return;
    }
    let tile = Tile(row, min(TILE, end - row), group.y * p.n_out + o, min(TILE, p.n_out - o), o);
    multiply(thread, tile);
}
