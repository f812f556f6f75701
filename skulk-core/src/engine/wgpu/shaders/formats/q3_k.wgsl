// Which weights do Q3_K blocks hold? 110 bytes for 256: 32 bytes of third bits; 64 of 2-bit integers;
// sixteen 6-bit scales; f16 scale of the scales.
//
// Integers lie as in Q2_K. Scale j has its lower bits in byte j % 8 (upper half from 8 on), its upper
// ones in byte 8 + j % 4.

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    let block = row + 110u * (at >> 8u);
    let j = (at >> 4u) & 15u;
    let low = (byte_at(block + 96u + (j & 7u)) >> ((j & 8u) >> 1u)) & 15u;
    let high = (byte_at(block + 104u + (j & 3u)) >> ((j >> 2u) << 1u)) & 3u;
    let scale = half_at(block + 108u) * (f32(low | (high << 4u)) - 32.0);
    let two = words_at(block + 32u + 32u * (j >> 3u) + 16u * (j & 1u)) >> vec4<u32>(j & 6u);
    let third = words_at(block + 16u * (j & 1u)) >> vec4<u32>(j >> 1u);
    let q = (two & vec4<u32>(0x03030303u)) | ((third & vec4<u32>(0x01010101u)) << vec4<u32>(2u));
    return centred(q, 4.0, scale);
}
