// Which weights do BF16 rows hold? The upper halves of F32 numbers, at even positions.

fn number(row: u32, i: u32) -> f32 {
    let at = row + 2u * i;
    return bitcast<f32>((weights[at >> 2u] >> (8u * (at & 2u))) << 16u);
}

// The four numbers in two words.
fn pairs(words: vec2<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>((words.xxyy << vec4<u32>(16u, 0u, 16u, 0u)) & vec4<u32>(0xffff0000u));
}

fn whole16(row: u32, at: u32) -> mat4x4<f32> {
    let a = words_at(row + 2u * at);
    let b = words_at(row + 2u * at + 16u);
    return mat4x4<f32>(pairs(a.xy), pairs(a.zw), pairs(b.xy), pairs(b.zw));
}
