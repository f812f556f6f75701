// Gather: row i of out = row from[base + i] of x, bit by bit, from element `behind` on.
//
// One thread an element: groups (ceil(width / 64), rows, 1).

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> rows_from: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x < p.width {
        out[id.y * p.out_stride + p.behind + id.x] = x[rows_from[p.base + id.y] * p.x_stride + id.x];
    }
}
