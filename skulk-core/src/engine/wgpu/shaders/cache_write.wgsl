// Write rows of keys and values into their sequences' pages.
//
// Constants: HEAD_DIM, even; HALF, 1 = a word holds two f16 (the first in its low half), 0 = an f32.
// With WORDS = HEAD_DIM words a head, or half of that: keys are [page][kv head][word][slot], values are
// [page][kv head][slot][word], with PAGE slots. Rows are [row, kv head, HEAD_DIM]; of each, the table has
// page * PAGE + slot.
// A thread has a pair of a row's elements: groups (ceil(n_kv * HEAD_DIM / 16), ceil(rows / 8), 1).

// Bits of f32, as no arithmetic is to touch them.
@group(0) @binding(0) var<storage, read> k: array<u32>;
@group(0) @binding(1) var<storage, read> v: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<u32>;

const PAGE = 64u;
const PAIRS = HEAD_DIM / 2u;

// The f16 nearest to an f32, to even where two are.
fn half_bits(x: u32) -> u32 {
    let sign = (x >> 16u) & 0x8000u;
    let size = x & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u | ((size >> 13u) & 0x3ffu);
    }
    if size >= 0x47800000u {
        return sign | 0x7c00u;
    }
    if size >= 0x38800000u {
        // The exponent's bias is 112 less; a mantissa that overflows goes up into the exponent.
        return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
    }
    if size < 0x33000000u {
        return sign;
    }
    // Subnormal: a multiple of 2^-24.
    let shift = 126u - (size >> 23u);
    let mantissa = (size & 0x7fffffu) | 0x800000u;
    return sign | ((mantissa + (1u << (shift - 1u)) - 1u + ((mantissa >> shift) & 1u)) >> shift);
}

fn packed(a: u32, b: u32) -> u32 {
    return half_bits(a) | (half_bits(b) << 16u);
}

// Groups of 8 pairs by 8 rows reach 32 bytes in a row of both layouts.
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if id.x >= p.n_kv * PAIRS || id.y >= p.rows {
        return;
    }
    let kv = id.x / PAIRS;
    let pair = id.x % PAIRS;
    let page = table[p.slots + id.y] / PAGE;
    let slot = table[p.slots + id.y] % PAGE;
    let k_at = id.y * p.k_stride + 2u * id.x;
    let v_at = id.y * p.v_stride + 2u * id.x;
    // Pairs of keys before this one's, and of values.
    let key = (page * p.n_kv * PAIRS + id.x) * PAGE;
    let value = ((page * p.n_kv + kv) * PAGE + slot) * PAIRS + pair;
    if HALF != 0u {
        keys[key + slot] = packed(k[k_at], k[k_at + 1u]);
        values[value] = packed(v[v_at], v[v_at + 1u]);
    } else {
        keys[2u * key + slot] = k[k_at];
        keys[2u * key + PAGE + slot] = k[k_at + 1u];
        values[2u * value] = v[v_at];
        values[2u * value + 1u] = v[v_at + 1u];
    }
}
