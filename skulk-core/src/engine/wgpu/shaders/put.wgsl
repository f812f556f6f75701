// Helper: where do four sums go? To neighbouring outputs of a row, each by its kernel's `put`.
fn put_all(row: u32, o: u32, s: vec4<f32>) {
    put(row, o, s.x);
    put(row, o + 1u, s.y);
    put(row, o + 2u, s.z);
    put(row, o + 3u, s.w);
}
