// How are stored bytes read as numbers? What the formats share; `weights` is the chunk's array<u32>.
//
// Positions are bytes of the chunk. Those that may lie at any even byte are read by the `_at`
// functions, which may touch one word beyond.

const BYTE_SHIFTS = vec4<u32>(0u, 8u, 16u, 24u);

// The byte at any position.
fn byte_at(at: u32) -> u32 {
    return (weights[at >> 2u] >> (8u * (at & 3u))) & 255u;
}

// The half-precision number at an even position. The conversion is exact, of subnormal ones too.
fn half_at(at: u32) -> f32 {
    return unpack2x16float(weights[at >> 2u] >> (8u * (at & 2u))).x;
}

// The four bytes at an even position.
fn word_at(at: u32) -> u32 {
    let i = at >> 2u;
    let low = weights[i];
    return select(low, (low >> 16u) | (weights[i + 1u] << 16u), (at & 2u) != 0u);
}

// The sixteen bytes at an even position.
fn words_at(at: u32) -> vec4<u32> {
    let i = at >> 2u;
    let low = vec4<u32>(weights[i], weights[i + 1u], weights[i + 2u], weights[i + 3u]);
    let next = vec4<u32>(low.yzw, weights[i + 4u]);
    return select(low, (low >> vec4<u32>(16u)) | (next << vec4<u32>(16u)), (at & 2u) != 0u);
}

// The sixteen bytes at a position that is a multiple of four.
fn aligned_words(at: u32) -> vec4<u32> {
    let i = at >> 2u;
    return vec4<u32>(weights[i], weights[i + 1u], weights[i + 2u], weights[i + 3u]);
}

// The four bytes of a word, lowest first, as unsigned and as signed numbers.
fn unsigned_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(word) >> BYTE_SHIFTS) & vec4<u32>(255u));
}

fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << BYTE_SHIFTS.wzyx) >> vec4<u32>(24u));
}

// A byte as a signed number: a scale.
fn signed_byte(byte: u32) -> f32 {
    return f32(bitcast<i32>(byte << 24u) >> 24u);
}

// A bit of each byte: bits 4k..4k + 4 of the lower sixteen become the lowest of the bytes of word k.
fn spread_bits(bits: u32) -> vec4<u32> {
    let four = (vec4<u32>(bits) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
    return (four * 0x00204081u) & vec4<u32>(0x01010101u);
}

// The weights (byte - zero) * scale of sixteen unsigned bytes.
fn centred(q: vec4<u32>, zero: f32, scale: f32) -> mat4x4<f32> {
    return mat4x4<f32>(
        (unsigned_bytes(q.x) - zero) * scale,
        (unsigned_bytes(q.y) - zero) * scale,
        (unsigned_bytes(q.z) - zero) * scale,
        (unsigned_bytes(q.w) - zero) * scale,
    );
}

// The weights byte * scale + low of sixteen unsigned bytes.
fn shifted(q: vec4<u32>, scale: f32, low: f32) -> mat4x4<f32> {
    return mat4x4<f32>(
        unsigned_bytes(q.x) * scale + low,
        unsigned_bytes(q.y) * scale + low,
        unsigned_bytes(q.z) * scale + low,
        unsigned_bytes(q.w) * scale + low,
    );
}

// The weights byte * scale of sixteen signed bytes.
fn signed_weights(q: vec4<u32>, scale: f32) -> mat4x4<f32> {
    return mat4x4<f32>(
        signed_bytes(q.x) * scale,
        signed_bytes(q.y) * scale,
        signed_bytes(q.z) * scale,
        signed_bytes(q.w) * scale,
    );
}

// Of a Q4_K or Q5_K block, the scale and the minimum of its j-th 32 elements.
fn scale_and_minimum(block: u32, j: u32) -> vec2<f32> {
    let head = aligned_words(block);
    // Byte i of the three words has scale i, minimum i, and the lower bits of both i + 4.
    let i = head.yzw >> vec3<u32>(8u * (j & 3u));
    let few = i.xy & vec2<u32>(63u);
    let many = (vec2<u32>(i.z, i.z >> 4u) & vec2<u32>(15u)) | ((i.xy >> vec2<u32>(2u)) & vec2<u32>(48u));
    return unpack2x16float(head.x) * vec2<f32>(select(few, many, j > 3u));
}
