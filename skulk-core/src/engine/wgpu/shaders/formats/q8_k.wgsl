// Which weights do Q8_K blocks hold? 292 bytes for 256: f32 scale; 256 signed bytes; sums of each 16.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 292u * (at >> 8u);
    let scale = bitcast<f32>(weights[block >> 2u]);
    return signed_weights(aligned_words(block + 4u + (at & 240u)), scale);
}
