// Blend rows: out += sum over j of (plus + sum over n of weights[j][n] * by[n]) * from[j], by row.
//
// Constant: FROM, how many of the first four operands there are. Weights begin at p.first. One thread an element:
// groups (ceil(width / 64), rows, 1).

@group(0) @binding(0) var<storage, read> from_0: array<f32>;
@group(0) @binding(1) var<storage, read> from_1: array<f32>;
@group(0) @binding(2) var<storage, read> from_2: array<f32>;
@group(0) @binding(3) var<storage, read> from_3: array<f32>;
@group(0) @binding(4) var<storage, read> by: array<f32>;
@group(0) @binding(5) var<storage, read> weights: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

// What a row takes of its number j.
fn share(row: u32, j: u32) -> f32 {
    var sum = p.plus;
    for (var n = 0u; n < p.n; n++) {
        sum += weights[p.first + j * p.n + n] * by[row * p.by_stride + n];
    }
    return sum;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= p.width {
        return;
    }
    let row = id.y;
    let at = row * p.x_stride + id.x;
    var sum = share(row, 0u) * from_0[at];
    if FROM > 1u {
        sum += share(row, 1u) * from_1[at];
    }
    if FROM > 2u {
        sum += share(row, 2u) * from_2[at];
    }
    if FROM > 3u {
        sum += share(row, 3u) * from_3[at];
    }
    out[row * p.out_stride + id.x] += sum;
}
