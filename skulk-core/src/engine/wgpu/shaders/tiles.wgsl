// What are the products of 64 rows of x with 64 rows of weights? Used by matmul.wgsl and
// experts_matmul.wgsl, which say where rows lie (`x_row_of`, `out_row_of`) and what is added (`bias_of`).
//
// 128 threads. In steps of 16 elements, 64 of them turn a row of weights each into numbers and the
// others copy a row of x. Thread (a, b) of 16 by 8 then has rows b, b + 8 to b + 56 by outputs a, a + 16,
// a + 32 and a + 48. Workgroup memory: 10 KiB.

const TILE = 64u;
const TILE_THREADS = 128u;

struct Tile {
    // The first row, as the kernel counts them, and how many there are: at most 64.
    row: u32,
    rows: u32,
    // The chunk's row of weights that the first output has, and how many outputs there are.
    weights_row: u32,
    outputs: u32,
    // The first output's place in a row of `out`.
    column: u32,
}

// 16 elements are 4 vec4; the fifth keeps neighbouring rows in different banks.
const PITCH = 5u;
var<workgroup> x_tile: array<vec4<f32>, 320>;
var<workgroup> w_tile: array<vec4<f32>, 320>;

// All threads call this together.
fn multiply(thread: u32, tile: Tile) {
    let a = thread & 15u;
    let b = thread >> 4u;
    let line = thread & 63u;
    let loads_weights = thread < 64u;
    let w_row = (tile.weights_row + min(line, tile.outputs - 1u)) * p.row_bytes;
    let x_row = x_row_of(tile.row + min(line, tile.rows - 1u)) * p.x_stride;
    let last = (p.n_in - 1u) >> 2u;
    let many = tile.rows > 32u;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    var s4 = vec4<f32>();
    var s5 = vec4<f32>();
    var s6 = vec4<f32>();
    var s7 = vec4<f32>();
    for (var at = 0u; at < p.n_in; at += 16u) {
        let to = PITCH * line;
        if (loads_weights) {
            let w = weights16(w_row, at);
            w_tile[to] = w[0];
            w_tile[to + 1u] = w[1];
            w_tile[to + 2u] = w[2];
            w_tile[to + 3u] = w[3];
        } else {
            // Beyond the row weights are 0, so any finite numbers will do.
            let i = at >> 2u;
            x_tile[to] = x[x_row + i];
            x_tile[to + 1u] = x[x_row + min(i + 1u, last)];
            x_tile[to + 2u] = x[x_row + min(i + 2u, last)];
            x_tile[to + 3u] = x[x_row + min(i + 3u, last)];
        }
        workgroupBarrier();
        for (var k = 0u; k < 4u; k++) {
            let wi = PITCH * a + k;
            let xi = PITCH * b + k;
            let w = mat4x4<f32>(
                w_tile[wi],
                w_tile[wi + 16u * PITCH],
                w_tile[wi + 32u * PITCH],
                w_tile[wi + 48u * PITCH],
            );
            s0 += x_tile[xi] * w;
            s1 += x_tile[xi + 8u * PITCH] * w;
            s2 += x_tile[xi + 16u * PITCH] * w;
            s3 += x_tile[xi + 24u * PITCH] * w;
            if (many) {
                s4 += x_tile[xi + 32u * PITCH] * w;
                s5 += x_tile[xi + 40u * PITCH] * w;
                s6 += x_tile[xi + 48u * PITCH] * w;
                s7 += x_tile[xi + 56u * PITCH] * w;
            }
        }
        workgroupBarrier();
    }
    let extra = vec4<f32>(
        bias_of(tile, a),
        bias_of(tile, a + 16u),
        bias_of(tile, a + 32u),
        bias_of(tile, a + 48u),
    );
    put_row(tile, b, a, s0 + extra);
    put_row(tile, b + 8u, a, s1 + extra);
    put_row(tile, b + 16u, a, s2 + extra);
    put_row(tile, b + 24u, a, s3 + extra);
    put_row(tile, b + 32u, a, s4 + extra);
    put_row(tile, b + 40u, a, s5 + extra);
    put_row(tile, b + 48u, a, s6 + extra);
    put_row(tile, b + 56u, a, s7 + extra);
}

// Writes what a thread has of a row.
fn put_row(tile: Tile, r: u32, o: u32, sums: vec4<f32>) {
    if (r >= tile.rows) {
        return;
    }
    let to = out_row_of(tile.row + r) * p.out_stride + tile.column + o;
    if (o < tile.outputs) { out[to] = sums.x; }
    if (o + 16u < tile.outputs) { out[to + 16u] = sums.y; }
    if (o + 32u < tile.outputs) { out[to + 32u] = sums.z; }
    if (o + 48u < tile.outputs) { out[to + 48u] = sums.w; }
}
