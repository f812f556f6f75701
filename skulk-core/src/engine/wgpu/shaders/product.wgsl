// What do products with a matrix take? The operands and parameters of matvec.wgsl and matmul.wgsl.

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
