// Which weights do Q4_0 blocks hold? 18 bytes for 32: f16 scale; 16 bytes of nibbles, low ones first.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 18u * (at >> 5u);
    let q = words_at(block + 2u) >> vec4<u32>((at & 16u) >> 2u);
    return centred(q & vec4<u32>(0x0f0f0f0fu), 8.0, half_at(block));
}
