// Which weights do F16 rows hold? Half-precision numbers, at even positions.

// 0 beyond the row.
fn element(row: u32, i: u32) -> f32 {
    let v = half_at(row + 2u * min(i, p.n_in - 1u));
    return select(0.0, v, i < p.n_in);
}

fn four(row: u32, i: u32) -> vec4<f32> {
    return vec4<f32>(element(row, i), element(row, i + 1u), element(row, i + 2u), element(row, i + 3u));
}

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    if (at + 16u > p.n_in) {
        return mat4x4<f32>(four(row, at), four(row, at + 4u), four(row, at + 8u), four(row, at + 12u));
    }
    let a = words_at(row + 2u * at);
    let b = words_at(row + 2u * at + 16u);
    return mat4x4<f32>(
        vec4<f32>(unpack2x16float(a.x), unpack2x16float(a.y)),
        vec4<f32>(unpack2x16float(a.z), unpack2x16float(a.w)),
        vec4<f32>(unpack2x16float(b.x), unpack2x16float(b.y)),
        vec4<f32>(unpack2x16float(b.z), unpack2x16float(b.w)),
    );
}
