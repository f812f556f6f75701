// Which rows of a table do tokens select? out[r] = scale * table[tokens[token_base + r]].
//
// After: a format. Groups of 64: x over the 16-element groups of a row, y over the
// tokens: dispatch (ceil(n_in / 1024), rows, 1). Tokens of other chunks are left alone.

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

fn put(at: u32, row: u32, v: vec4<f32>) {
    let to = row * p.out_stride + at;
    if (at < p.n_in) { out[to] = p.scale * v.x; }
    if (at + 1u < p.n_in) { out[to + 1u] = p.scale * v.y; }
    if (at + 2u < p.n_in) { out[to + 2u] = p.scale * v.z; }
    if (at + 3u < p.n_in) { out[to + 3u] = p.scale * v.w; }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let at = 16u * id.x;
    if (at >= p.n_in || id.y >= p.rows) {
        return;
    }
    let token = tokens[p.token_base + id.y];
    if (token < p.first_row || token - p.first_row >= p.n_rows) {
        return;
    }
    let w = weights16((token - p.first_row) * p.row_bytes, at);
    put(at, id.y, w[0]);
    put(at + 4u, id.y, w[1]);
    put(at + 8u, id.y, w[2]);
    put(at + 12u, id.y, w[3]);
}
