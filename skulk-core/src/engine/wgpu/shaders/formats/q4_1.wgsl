// Which weights do Q4_1 blocks hold? 20 bytes for 32: f16 scale and minimum; nibbles as in Q4_0.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 20u * (at >> 5u);
    let scales = unpack2x16float(weights[block >> 2u]);
    let q = aligned_words(block + 4u) >> vec4<u32>((at & 16u) >> 2u);
    return shifted(q & vec4<u32>(0x0f0f0f0fu), scales.x, scales.y);
}
