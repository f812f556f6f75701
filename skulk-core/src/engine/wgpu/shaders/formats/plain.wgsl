// Helper: the rows of formats of plain numbers, which may end within 16 elements. A format says how a number
// of a row is read (`number`), and 16 of them (`whole16`). Weights beyond the row are 0.

fn element(row: u32, i: u32) -> f32 {
    return select(0.0, number(row, min(i, p.n_in - 1u)), i < p.n_in);
}

fn four(row: u32, i: u32) -> vec4<f32> {
    return vec4<f32>(element(row, i), element(row, i + 1u), element(row, i + 2u), element(row, i + 3u));
}

fn weights16(row: u32, at: u32) -> mat4x4<f32> {
    if (at + 16u > p.n_in) {
        return mat4x4<f32>(four(row, at), four(row, at + 4u), four(row, at + 8u), four(row, at + 12u));
    }
    return whole16(row, at);
}
