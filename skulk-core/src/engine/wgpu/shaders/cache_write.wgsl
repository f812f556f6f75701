// Write rows of keys and values into their sequences' pages, as floats.
//
// Constants: HEAD_DIM, even, and KEPT_DIM, the same; KEYS and VALUES, their kinds: quantised ones are left to cache_quantise.wgsl.
// After kept.wgsl and half.wgsl. Rows are [row, kv head, HEAD_DIM]; of each, the table has page * PAGE + slot.
// A thread has a pair of a row's elements: groups (ceil(n_kv * HEAD_DIM / 16), ceil(rows / 8), 1).

// Bits of f32, as no arithmetic is to touch them.
@group(0) @binding(0) var<storage, read> k: array<u32>;
@group(0) @binding(1) var<storage, read> v: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<u32>;

const PAIRS = HEAD_DIM / 2u;

// Groups of 8 pairs by 8 rows reach 32 bytes in a row of both layouts.
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= p.n_kv * PAIRS || id.y >= p.rows {
        return;
    }
    let kv = id.x / PAIRS;
    let pair = id.x % PAIRS;
    let slot = table[p.slots + id.y] % PAGE;
    let head = table[p.slots + id.y] / PAGE * p.n_kv + kv;
    let k_at = id.y * p.k_stride + 2u * id.x;
    let v_at = id.y * p.v_stride + 2u * id.x;
    let key = head * head_words(KEYS) + slot;
    let value = head * head_words(VALUES) + slot * slot_words(VALUES);
    if KEYS == F32 {
        keys[key + 2u * pair * PAGE] = k[k_at];
        keys[key + (2u * pair + 1u) * PAGE] = k[k_at + 1u];
    } else if !is_quantised(KEYS) {
        keys[key + pair * PAGE] = word_of(KEYS, k[k_at], k[k_at + 1u]);
    }
    if VALUES == F32 {
        values[value + 2u * pair] = v[v_at];
        values[value + 2u * pair + 1u] = v[v_at + 1u];
    } else if !is_quantised(VALUES) {
        values[value + pair] = word_of(VALUES, v[v_at], v[v_at + 1u]);
    }
}
