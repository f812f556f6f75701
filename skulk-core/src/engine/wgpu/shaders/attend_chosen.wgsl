// Attention of rows to the positions that were chosen for them, as attend.wgsl does to all.
//
// Constants: HEAD_DIM and VALUE_DIM, even; KEPT_DIM; KEYS, their kind; THREADS, at least VALUE_DIM / 2, from 64 to 256,
// a power of two. After kept.wgsl, keys.wgsl and choosers.wgsl. Values are the first elements of keys, and all heads
// share them. A workgroup has four heads of a row, the components of vectors; it goes over the positions in blocks
// of THREADS. Groups (ceil(n_heads / 4), rows, 1).

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> keys: array<u32>;
@group(0) @binding(2) var<storage, read> positions: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

const PAIRS = VALUE_DIM / 2u;
const LANES = THREADS / PAIRS;

var<workgroup> queries: array<vec4f, HEAD_DIM>;
// The block's scores, then weights; and where its keys are: page * PAGE + slot.
var<workgroup> scores: array<vec4f, THREADS>;
var<workgroup> places: array<u32, THREADS>;
var<workgroup> maxima: array<vec4f, 8>;

fn query(row: u32, head: u32, element: u32) -> f32 {
    if head >= p.n_heads {
        return 0.0;
    }
    return q[row * p.q_stride + head * HEAD_DIM + element] * p.scale;
}

// The sum of what threads first, first + step, … below end have. Every thread calls it.
fn fold(thread: u32, x: vec4f, first: u32, step: u32, end: u32) -> vec4f {
    workgroupBarrier();
    scores[thread] = x;
    workgroupBarrier();
    var sum = vec4f(0.0);
    for (var i = first; i < end; i += step) {
        sum += scores[i];
    }
    return sum;
}

fn write(row: u32, head: u32, pair: u32, result: vec2f) {
    if head < p.n_heads {
        let at = row * p.out_stride + head * VALUE_DIM + 2u * pair;
        out[at] = result.x;
        out[at + 1u] = result.y;
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let chooser = chooser_at(group.y);
    let head = 4u * group.x;
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        queries[i] = vec4f(
            query(chooser.row, head, i),
            query(chooser.row, head + 1u, i),
            query(chooser.row, head + 2u, i),
            query(chooser.row, head + 3u, i),
        );
    }
    workgroupBarrier();

    let pair = thread % PAIRS;
    let lane = thread / PAIRS;
    var even = vec4f(0.0);
    var odd = vec4f(0.0);
    var sum = vec4f(0.0);
    var maximum = vec4f(-1e30);
    for (var block = 0u; block < p.most; block += THREADS) {
        let end = min(THREADS, p.most - block);
        var score = vec4f(-1e30);
        if thread < end {
            let position = positions[group.y * p.most + block + thread];
            let page = page_for(chooser, position);
            let slot = position % PAGE;
            let key = page * head_words(KEYS);
            var product = vec4f(0.0);
            for (var i = 0u; i < HEAD_DIM; i += 2u) {
                let two = key_pair(key, i, slot) * key_scale(key, i, slot);
                product += queries[i] * two.x + queries[i + 1u] * two.y;
            }
            score = product;
            places[thread] = page * PAGE + slot;
        }
        scores[thread] = score;
        workgroupBarrier();
        if thread < 8u {
            var most = vec4f(-1e30);
            for (var i = thread; i < THREADS; i += 8u) {
                most = max(most, scores[i]);
            }
            maxima[thread] = most;
        }
        workgroupBarrier();
        var most = maximum;
        for (var i = 0u; i < 8u; i++) {
            most = max(most, maxima[i]);
        }
        let rescale = exp(maximum - most);
        let weight = select(vec4f(0.0), exp(score - most), thread < end);
        scores[thread] = weight;
        sum = sum * rescale + weight;
        even *= rescale;
        odd *= rescale;
        maximum = most;
        workgroupBarrier();
        for (var key = lane; key < end && lane < LANES; key += LANES) {
            let first = places[key] / PAGE * head_words(KEYS);
            let slot = places[key] % PAGE;
            let value = key_pair(first, 2u * pair, slot) * key_scale(first, 2u * pair, slot);
            even += scores[key] * value.x;
            odd += scores[key] * value.y;
        }
        workgroupBarrier();
    }
    sum = fold(thread, sum, 0u, 1u, THREADS);
    if LANES > 1u {
        even = fold(thread, even, pair, PAIRS, LANES * PAIRS);
        odd = fold(thread, odd, pair, PAIRS, LANES * PAIRS);
    }
    if lane == 0u {
        even /= sum;
        odd /= sum;
        write(chooser.row, head, pair, vec2f(even.x, odd.x));
        write(chooser.row, head + 1u, pair, vec2f(even.y, odd.y));
        write(chooser.row, head + 2u, pair, vec2f(even.z, odd.z));
        write(chooser.row, head + 3u, pair, vec2f(even.w, odd.w));
    }
}
