// What are the products of a few rows of one x with several matrices?
//
// After: constants ROWS (1, 2, 4, 8), OUTPUTS (4), THREADS; a reduce_*.wgsl; of each matrix a format and several/product.wgsl;
// `compute`, which calls the one whose workgroup it is. With n = the sum of ceil(n_rows / OUTPUTS) over matrices, dispatch
// (any x, y with x * y >= n, ceil(rows / ROWS)).

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;

@compute @workgroup_size(THREADS)
fn main(me: Place, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = ROWS * group.z;
    compute(me, group.x + group.y * groups.x, row, min(ROWS, p.rows - row));
}
