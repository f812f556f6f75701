// Which weights do BF16 rows hold? The upper halves of F32 numbers, at even positions.

// 0 beyond the row.
fn element(row: u32, i: u32) -> f32 {
    let at = row + 2u * min(i, p.n_in - 1u);
    let v = bitcast<f32>((weights[at >> 2u] >> (8u * (at & 2u))) << 16u);
    return select(0.0, v, i < p.n_in);
}

fn four(row: u32, i: u32) -> vec4<f32> {
    return vec4<f32>(element(row, i), element(row, i + 1u), element(row, i + 2u), element(row, i + 3u));
}

// The four numbers in two words.
fn pairs(words: vec2<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>((words.xxyy << vec4<u32>(16u, 0u, 16u, 0u)) & vec4<u32>(0xffff0000u));
}

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    if (at + 16u > p.n_in) {
        return mat4x4<f32>(four(row, at), four(row, at + 4u), four(row, at + 8u), four(row, at + 12u));
    }
    let a = words_at(row + 2u * at);
    let b = words_at(row + 2u * at + 16u);
    return mat4x4<f32>(pairs(a.xy), pairs(a.zw), pairs(b.xy), pairs(b.zw));
}
