// What are the products of many rows of x with a matrix? out[r][first_row + o] = x[r] · W[o] + bias.
//
// After: formats/bytes.wgsl, a format, tiles.wgsl. A workgroup has 64 rows by 64 outputs: dispatch
// (ceil(rows / 64), ceil(n_rows / 64), 1). Operands and parameters are those of matvec.wgsl.

struct Params {
    n_in: u32,
    row_bytes: u32,
    // The chunk's rows of the matrix.
    first_row: u32,
    n_rows: u32,
    // In vec4.
    x_stride: u32,
    // In floats.
    out_stride: u32,
    // The first row of x and of out, and how many from there.
    x_row: u32,
    rows: u32,
    has_bias: u32,
}

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> p: Params;

fn x_row_of(row: u32) -> u32 {
    return p.x_row + row;
}

fn out_row_of(row: u32) -> u32 {
    return p.x_row + row;
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
