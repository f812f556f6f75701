// Which weights do Q5_0 blocks hold? 22 bytes for 32: f16 scale; 32 fifth bits; nibbles as in Q4_0.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 22u * (at >> 5u);
    let high = spread_bits(word_at(block + 2u) >> (at & 16u));
    let low = words_at(block + 6u) >> vec4<u32>((at & 16u) >> 2u);
    let q = (low & vec4<u32>(0x0f0f0f0fu)) | (high << vec4<u32>(4u));
    return centred(q, 16.0, half_at(block));
}
