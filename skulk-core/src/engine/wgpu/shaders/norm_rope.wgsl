// Norm and rotate heads in place: RMS norm with a weight if NORM, then 2 * half elements by the row's angles, those
// from p.plain on.
//
// After sum.wgsl. Constants: THREADS; NORM, of heads where p.plain is 0; PAIRS, 0 = element i turns with i + half, 1 = 2i with 2i + 1.
// x is [row, head, head_dim]; a row of angles has `half` cosines, then `half` sines.
// One workgroup a head of a row: groups (n_heads, rows, 1).

@group(0) @binding(0) var<storage, read> angles: array<f32>;
@group(0) @binding(1) var<storage, read> norm_weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

// The two elements of pair i; those after the rotated ones go in pairs of neighbours.
fn pair(i: u32) -> vec2u {
    if PAIRS == 0u && i < p.half {
        return p.plain + vec2u(i, i + p.half);
    }
    return p.plain + vec2u(2u * i, 2u * i + 1u);
}

// In both passes a thread has the same pairs, so that no thread reads what another one writes.
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let head = group.y * p.x_stride + group.x * p.head_dim;
    let n_pairs = (p.head_dim - p.plain) / 2u;
    var factor = 1.0;
    if NORM != 0u {
        var squares = 0.0;
        for (var i = thread; i < n_pairs; i += THREADS) {
            let at = pair(i);
            let a = x[head + at.x];
            let b = x[head + at.y];
            squares += a * a + b * b;
        }
        factor = 1.0 / sqrt(sum_of_threads(thread, squares) / f32(p.head_dim) + p.eps);
    }
    for (var i = thread; i < n_pairs; i += THREADS) {
        let at = pair(i);
        var a = x[head + at.x];
        var b = x[head + at.y];
        if NORM != 0u {
            a = a * factor * norm_weight[at.x];
            b = b * factor * norm_weight[at.y];
        }
        if i < p.half {
            let cosine = angles[group.y * p.angles_stride + i];
            let sine = angles[group.y * p.angles_stride + p.half + i];
            x[head + at.x] = a * cosine - b * sine;
            x[head + at.y] = b * cosine + a * sine;
        } else {
            x[head + at.x] = a;
            x[head + at.y] = b;
        }
    }
}
