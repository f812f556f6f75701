// Write rows of one part of keys into their sequences' pages, as floats: of latent vectors, or of what is behind them.
//
// Constants: HEAD_DIM, elements of the part, even; KEPT_DIM; KIND, F16, BF16 or F32. After kept.wgsl and half.wgsl. The
// part's first element is number p.first of a key's, even. Rows are [row, HEAD_DIM]; of each, the table has
// page * PAGE + slot. A thread has a pair of a row's elements: groups (ceil(HEAD_DIM / 16), ceil(rows / 8), 1).

// Bits of f32, as no arithmetic is to touch them.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= HEAD_DIM / 2u || id.y >= p.rows {
        return;
    }
    let slot = table[p.slots + id.y] % PAGE;
    let page = table[p.slots + id.y] / PAGE;
    let source = id.y * p.x_stride + 2u * id.x;
    let element = p.first + 2u * id.x;
    let to = page * head_words(KIND) + element / elements_of_word(KIND) * PAGE + slot;
    if KIND == F32 {
        keys[to] = x[source];
        keys[to + PAGE] = x[source + 1u];
    } else {
        keys[to] = word_of(KIND, x[source], x[source + 1u]);
    }
}
