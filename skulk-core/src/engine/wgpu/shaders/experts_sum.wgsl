// What do a row's experts give together? out[row] = sum of weights[place] * y[place] over the row's
// places, in order.
//
// A thread has four elements: dispatch (ceil(n_in / 256), rows, 1).

@group(0) @binding(0) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (4u * id.x >= p.n_in) {
        return;
    }
    let first = id.y * p.n_used;
    var sum = vec4<f32>();
    for (var place = first; place < first + p.n_used; place++) {
        sum += select(1.0, weights[place], p.weighted != 0u) * y[place * p.y_stride + id.x];
    }
    out[id.y * p.out_stride + id.x] = sum;
}
