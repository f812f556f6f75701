// Which weights do Q5_K blocks hold? 176 bytes for 256: as Q4_K, with 32 bytes of fifth bits before the
// nibbles: bit j of them for elements 32j on.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 176u * (at >> 8u);
    let j = (at >> 5u) & 7u;
    let scales = scale_and_minimum(block, j);
    let low = aligned_words(block + 48u + 32u * (j >> 1u) + (at & 16u)) >> vec4<u32>(4u * (j & 1u));
    let fifth = aligned_words(block + 16u + (at & 16u)) >> vec4<u32>(j);
    let q = (low & vec4<u32>(0x0f0f0f0fu)) | ((fifth & vec4<u32>(0x01010101u)) << vec4<u32>(4u));
    return shifted(q, scales.x, -scales.y);
}
