// Which weights do Q8_0 blocks hold? 34 bytes for 32: f16 scale; 32 signed bytes.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 34u * (at >> 5u);
    return signed_weights(words_at(block + 2u + (at & 16u)), half_at(block));
}
