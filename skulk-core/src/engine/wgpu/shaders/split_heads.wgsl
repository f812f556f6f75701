// Copy of each 2 * head_dim elements the first half to one buffer, the second to the other.
//
// One thread an element of a result: groups (ceil(width / 64), rows, 1).

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> first: array<f32>;
@group(0) @binding(2) var<storage, read_write> second: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= p.width {
        return;
    }
    let source = id.y * p.x_stride + id.x + id.x / p.head_dim * p.head_dim;
    let to = id.y * p.out_stride + id.x;
    first[to] = x[source];
    second[to] = x[source + p.head_dim];
}
