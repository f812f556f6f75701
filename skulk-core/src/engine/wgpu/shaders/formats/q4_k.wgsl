// Which weights do Q4_K blocks hold? 144 bytes for 256: f16 scales of scales and of minima; eight of
// each in 6 bits; nibbles, 32 low ones then 32 high ones.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 144u * (at >> 8u);
    let j = (at >> 5u) & 7u;
    let scales = scale_and_minimum(block, j);
    let q = aligned_words(block + 16u + 32u * (j >> 1u) + (at & 16u)) >> vec4<u32>(4u * (j & 1u));
    return shifted(q & vec4<u32>(0x0f0f0f0fu), scales.x, -scales.y);
}
