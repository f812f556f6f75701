// Which weights do linear Q6_K blocks hold? LARQL's: the parts of Q6_K, all in the order of the
// elements: a byte of nibbles has two neighbours, a byte of pairs four, the first lowest.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 210u * (at >> 8u);
    let j = (at >> 4u) & 15u;
    let scale = half_at(block + 208u) * signed_byte(byte_at(block + 192u + j));
    // Two bytes of nibbles to four bytes.
    let a = word_at(block + 8u * j);
    let b = word_at(block + 8u * j + 4u);
    let two = vec4<u32>(a & 0xffffu, a >> 16u, b & 0xffffu, b >> 16u);
    let spread = (two | (two << vec4<u32>(8u))) & vec4<u32>(0x00ff00ffu);
    let low = (spread | (spread << vec4<u32>(4u))) & vec4<u32>(0x0f0f0f0fu);
    // A byte of pairs to four bytes.
    let one = (vec4<u32>(word_at(block + 128u + 4u * j)) >> BYTE_SHIFTS) & vec4<u32>(255u);
    let pairs = (one | (one << vec4<u32>(12u))) & vec4<u32>(0x000f000fu);
    let high = (pairs | (pairs << vec4<u32>(6u))) & vec4<u32>(0x03030303u);
    return centred(low | (high << vec4<u32>(4u)), 32.0, scale);
}
