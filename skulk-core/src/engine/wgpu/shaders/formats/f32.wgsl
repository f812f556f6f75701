// Which weights do F32 rows hold? Plain numbers, at positions that are multiples of four.

fn number(row: u32, i: u32) -> f32 {
    return bitcast<f32>(weights[(row >> 2u) + i]);
}

fn whole16(row: u32, at: u32) -> mat4x4<f32> {
    let first = row + 4u * at;
    return mat4x4<f32>(
        bitcast<vec4<f32>>(aligned_words(first)),
        bitcast<vec4<f32>>(aligned_words(first + 16u)),
        bitcast<vec4<f32>>(aligned_words(first + 32u)),
        bitcast<vec4<f32>>(aligned_words(first + 48u)),
    );
}
