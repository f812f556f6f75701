// Which weights do Q6_K blocks hold? 210 bytes for 256: 128 bytes of nibbles; 64 of pairs of upper bits;
// sixteen signed scales; f16 scale of the scales.
//
// By halves of 128 elements: a nibble byte has elements that are 64 apart, a byte of pairs four that
// are 32 apart.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 210u * (at >> 8u);
    let j = (at >> 4u) & 15u;
    let scale = half_at(block + 208u) * signed_byte(byte_at(block + 192u + j));
    let low = words_at(block + 64u * (j >> 3u) + 16u * (j & 3u)) >> vec4<u32>(j & 4u);
    let high = words_at(block + 128u + 32u * (j >> 3u) + 16u * (j & 1u)) >> vec4<u32>(j & 6u);
    let q = (low & vec4<u32>(0x0f0f0f0fu)) | ((high & vec4<u32>(0x03030303u)) << vec4<u32>(4u));
    return centred(q, 32.0, scale);
}
