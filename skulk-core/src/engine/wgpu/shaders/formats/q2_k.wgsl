// Which weights do Q2_K blocks hold? 84 bytes for 256: sixteen bytes of a 4-bit scale and a 4-bit
// minimum each; 64 of 2-bit integers; f16 scale of the scales and of the minima.
//
// A byte's four integers belong to elements that are 32 apart.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 84u * (at >> 8u);
    let j = (at >> 4u) & 15u;
    let both = byte_at(block + j);
    let d = unpack2x16float(weights[(block >> 2u) + 20u]);
    let q = aligned_words(block + 16u + 32u * (j >> 3u) + 16u * (j & 1u)) >> vec4<u32>(j & 6u);
    return shifted(q & vec4<u32>(0x03030303u), d.x * f32(both & 15u), -d.y * f32(both >> 4u));
}
