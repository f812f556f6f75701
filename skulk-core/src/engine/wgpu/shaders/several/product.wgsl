// What are the products of a few rows of x with one of a kernel's matrices? out[r][o] = x[r] · W[o] + bias.
//
// Each matrix has a copy of this, of dots.wgsl and of put.wgsl, in which names end with its number. After: biased.wgsl or
// plain.wgsl.

@group(0) @binding(WEIGHTS) var<storage, read> weights: array<u32>;
@group(0) @binding(OUT) var<storage, read_write> out: array<f32>;

fn put(row: u32, o: u32, sum: f32) {
    if (o < p.n_rows) {
        // Rows begin at multiples of four floats.
        out[row * ((p.n_rows + 3u) & ~3u) + o] = sum + bias_of(o);
    }
}

// Computes the outputs of workgroup `index` of this matrix.
fn part(me: Place, index: u32, row: u32, rows: u32) {
    let first = OUTPUTS * index;
    var sums: array<vec4<f32>, ROWS>;
    dots(me.thread, first, p.n_rows - 1u, row, rows, &sums);
    reduce(me, &sums);
    if (me.thread < rows) {
        put_all(row + me.thread, first, total(me, me.thread));
    }
}
