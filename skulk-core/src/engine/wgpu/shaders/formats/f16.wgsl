// Which weights do F16 rows hold? Half-precision numbers, at even positions.

fn number(row: u32, i: u32) -> f32 {
    return half_at(row + 2u * i);
}

fn whole16(row: u32, at: u32) -> mat4x4<f32> {
    let a = words_at(row + 2u * at);
    let b = words_at(row + 2u * at + 16u);
    return mat4x4<f32>(
        vec4<f32>(unpack2x16float(a.x), unpack2x16float(a.y)),
        vec4<f32>(unpack2x16float(a.z), unpack2x16float(a.w)),
        vec4<f32>(unpack2x16float(b.x), unpack2x16float(b.y)),
        vec4<f32>(unpack2x16float(b.z), unpack2x16float(b.w)),
    );
}
