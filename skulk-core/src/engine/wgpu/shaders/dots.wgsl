// What are the products of up to ROWS rows of x with OUTPUTS (4) neighbouring rows of weights?
//
// Thread t of THREADS takes the 16-element groups t, t + THREADS and so on; a reduce_*.wgsl adds the
// threads' sums up.

// 16 consecutive elements of a row of x that begins at vec4 `row`. No vec4 beyond the row is read: it
// might hold what is not finite, and weights there are 0.
fn x16(row: u32, at: u32) -> mat4x4<f32> {
    let i = at >> 2u;
    let last = (p.n_in - 1u) >> 2u;
    return mat4x4<f32>(
        x[row + i],
        x[row + min(i + 1u, last)],
        x[row + min(i + 2u, last)],
        x[row + min(i + 3u, last)],
    );
}

fn dot16(a: mat4x4<f32>, b: mat4x4<f32>) -> f32 {
    let s = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
    return (s.x + s.y) + (s.z + s.w);
}

// Adds this thread's share to `sums`: by row of x, a component an output. Weights: the chunk's rows from
// `first` on, none beyond `last`. x: `x_rows` rows (at least 1) from row `x_first` on.
fn dots(
    thread: u32,
    first: u32,
    last: u32,
    x_first: u32,
    x_rows: u32,
    sums: ptr<function, array<vec4<f32>, ROWS>>,
) {
    let row0 = first * p.row_bytes;
    let row1 = min(first + 1u, last) * p.row_bytes;
    let row2 = min(first + 2u, last) * p.row_bytes;
    let row3 = min(first + 3u, last) * p.row_bytes;
    for (var at = 16u * thread; at < p.n_in; at += 16u * THREADS) {
        let w0 = weights16(row0, at);
        let w1 = weights16(row1, at);
        let w2 = weights16(row2, at);
        let w3 = weights16(row3, at);
        for (var r = 0u; r < ROWS; r++) {
            let v = x16((x_first + min(r, x_rows - 1u)) * p.x_stride, at);
            (*sums)[r] += vec4<f32>(dot16(w0, v), dot16(w1, v), dot16(w2, v), dot16(w3, v));
        }
    }
}
