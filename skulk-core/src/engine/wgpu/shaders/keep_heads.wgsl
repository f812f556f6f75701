// Norm and rotate heads, queries in place; keys and values go into their sequences' pages, as floats. This is what
// norm_rope.wgsl and cache_write.wgsl do one after the other.
//
// After sum.wgsl, kept.wgsl and half.wgsl. Constants: THREADS; HEAD_DIM, even, and KEPT_DIM, the same; KEYS and VALUES,
// their kinds; NORM of queries and keys, and VALUE_NORM; PAIRS as in norm_rope.wgsl. Rows are [row, head, HEAD_DIM]; of
// each, the table has page * PAGE + slot. One workgroup a head of a row, those of queries first, then of keys, then of
// values: groups (n_heads + 2 * n_kv, rows, 1).

// Bits of f32, as no arithmetic is to touch values that are not normed.
@group(0) @binding(0) var<storage, read> k: array<u32>;
@group(0) @binding(1) var<storage, read> v: array<u32>;
@group(0) @binding(2) var<storage, read> q_angles: array<f32>;
@group(0) @binding(3) var<storage, read> k_angles: array<f32>;
@group(0) @binding(4) var<storage, read> q_weight: array<f32>;
@group(0) @binding(5) var<storage, read> k_weight: array<f32>;
@group(0) @binding(6) var<storage, read> v_weight: array<f32>;
@group(0) @binding(7) var<storage, read> table: array<u32>;
@group(0) @binding(8) var<storage, read_write> q: array<u32>;
@group(0) @binding(9) var<storage, read_write> keys: array<u32>;
@group(0) @binding(10) var<storage, read_write> values: array<u32>;

const N_PAIRS = HEAD_DIM / 2u;

var<workgroup> head: array<u32, HEAD_DIM>;

fn number(i: u32) -> f32 {
    return bitcast<f32>(head[i]);
}

// The two elements of pair i, as in norm_rope.wgsl.
fn pair(i: u32) -> vec2u {
    if PAIRS == 0u && i < p.half {
        return vec2u(i, i + p.half);
    }
    return vec2u(2u * i, 2u * i + 1u);
}

// The factor of the head's norm.
fn norm(thread: u32) -> f32 {
    var squares = 0.0;
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        squares += number(i) * number(i);
    }
    return 1.0 / sqrt(sum_of_threads(thread, squares) / f32(HEAD_DIM) + p.eps);
}

fn rotate(thread: u32, row: u32, is_query: bool) {
    for (var i = thread; i < p.half; i += THREADS) {
        let at = pair(i);
        let a = number(at.x);
        let b = number(at.y);
        let turn = row * p.angles_stride + i;
        let cosine = select(k_angles[turn], q_angles[turn], is_query);
        let sine = select(k_angles[turn + p.half], q_angles[turn + p.half], is_query);
        head[at.x] = bitcast<u32>(a * cosine - b * sine);
        head[at.y] = bitcast<u32>(b * cosine + a * sine);
    }
}

fn packed(kind: u32, pair: u32) -> u32 {
    return word_of(kind, head[2u * pair], head[2u * pair + 1u]);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let row = group.y;
    let is_query = group.x < p.n_heads;
    let is_key = !is_query && group.x < p.n_heads + p.n_kv;
    // Of values, the head's number among them; of queries and keys likewise.
    let own = group.x - select(select(p.n_heads + p.n_kv, p.n_heads, is_key), 0u, is_query);
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        if is_query {
            head[i] = q[row * p.q_stride + own * HEAD_DIM + i];
        } else if is_key {
            head[i] = k[row * p.k_stride + own * HEAD_DIM + i];
        } else {
            head[i] = v[row * p.v_stride + own * HEAD_DIM + i];
        }
    }
    workgroupBarrier();
    if is_query || is_key {
        if NORM != 0u {
            let factor = norm(thread);
            for (var i = thread; i < HEAD_DIM; i += THREADS) {
                head[i] = bitcast<u32>(number(i) * factor * select(k_weight[i], q_weight[i], is_query));
            }
            workgroupBarrier();
        }
        rotate(thread, row, is_query);
        workgroupBarrier();
    } else if VALUE_NORM != 0u {
        let factor = norm(thread);
        for (var i = thread; i < HEAD_DIM; i += THREADS) {
            head[i] = bitcast<u32>(number(i) * factor * v_weight[i]);
        }
        workgroupBarrier();
    }
    if is_query {
        for (var i = thread; i < HEAD_DIM; i += THREADS) {
            q[row * p.q_stride + own * HEAD_DIM + i] = head[i];
        }
        return;
    }
    let slot = table[p.slots + row] % PAGE;
    let kept = table[p.slots + row] / PAGE * p.n_kv + own;
    if is_key {
        let key = kept * head_words(KEYS) + slot;
        for (var i = thread; i < N_PAIRS; i += THREADS) {
            if KEYS == F32 {
                keys[key + 2u * i * PAGE] = head[2u * i];
                keys[key + (2u * i + 1u) * PAGE] = head[2u * i + 1u];
            } else {
                keys[key + i * PAGE] = packed(KEYS, i);
            }
        }
        return;
    }
    let value = kept * head_words(VALUES) + slot * slot_words(VALUES);
    for (var i = thread; i < N_PAIRS; i += THREADS) {
        if VALUES == F32 {
            values[value + 2u * i] = head[2u * i];
            values[value + 2u * i + 1u] = head[2u * i + 1u];
        } else {
            values[value + i] = packed(VALUES, i);
        }
    }
}
