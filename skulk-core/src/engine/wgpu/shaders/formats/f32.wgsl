// Which weights do F32 rows hold? Plain numbers, at positions that are multiples of four.

// 0 beyond the row.
fn element(row: u32, i: u32) -> f32 {
    let v = bitcast<f32>(weights[(row >> 2u) + min(i, p.n_in - 1u)]);
    return select(0.0, v, i < p.n_in);
}

fn four(row: u32, i: u32) -> vec4<f32> {
    return vec4<f32>(element(row, i), element(row, i + 1u), element(row, i + 2u), element(row, i + 3u));
}

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    if (at + 16u > p.n_in) {
        return mat4x4<f32>(four(row, at), four(row, at + 4u), four(row, at + 8u), four(row, at + 12u));
    }
    let first = row + 4u * at;
    return mat4x4<f32>(
        bitcast<vec4<f32>>(aligned_words(first)),
        bitcast<vec4<f32>>(aligned_words(first + 16u)),
        bitcast<vec4<f32>>(aligned_words(first + 32u)),
        bitcast<vec4<f32>>(aligned_words(first + 48u)),
    );
}
