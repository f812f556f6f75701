// Which weights do Q5_1 blocks hold? 24 bytes for 32: f16 scale and minimum; 32 fifth bits; nibbles as
// in Q4_0.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 24u * (at >> 5u);
    let scales = unpack2x16float(weights[block >> 2u]);
    let high = spread_bits(weights[(block >> 2u) + 1u] >> (at & 16u));
    let low = aligned_words(block + 8u) >> vec4<u32>((at & 16u) >> 2u);
    let q = (low & vec4<u32>(0x0f0f0f0fu)) | (high << vec4<u32>(4u));
    return shifted(q, scales.x, scales.y);
}
