// Which weights do Q4_K blocks hold? 144 bytes for 256: f16 scales of scales and of minima; eight of
// each in 6 bits; nibbles, 32 low ones then 32 high ones.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 144u * (at >> 8u);
    let j = (at >> 5u) & 7u;
    let head = aligned_words(block);
    let d = unpack2x16float(head.x);
    // Byte i of the three words has scale i, minimum i, and the lower bits of both i + 4.
    let i = head.yzw >> vec3<u32>(8u * (j & 3u));
    let few = i.xy & vec2<u32>(63u);
    let many = (vec2<u32>(i.z, i.z >> 4u) & vec2<u32>(15u)) | ((i.xy >> vec2<u32>(2u)) & vec2<u32>(48u));
    let scales = d * vec2<f32>(select(few, many, j > 3u));
    let q = aligned_words(block + 16u + 32u * (j >> 1u) + (at & 16u)) >> vec4<u32>(4u * (j & 1u));
    return shifted(q & vec4<u32>(0x0f0f0f0fu), scales.x, -scales.y);
}
