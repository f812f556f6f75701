// Attention of spans' query rows over their sequences' pages, without storing scores ("flash attention").
//
// Constants: HEAD_DIM and VALUE_DIM, even; KEPT_DIM; LATENT, 1 = values are the first elements of keys, else they
// are kept beside them; KEYS and VALUES, their kinds; THREADS, at least VALUE_DIM / 2, from PAGE to 256, a power of two;
// T, 4 or 8; SOFTCAP; SINKS. After math.wgsl, kept.wgsl, keys.wgsl and spans.wgsl.
//
// Where keys are quantised, queries come rotated as they are; where values are, so are results.
//
// A workgroup has a tile of T queries, which share a kv head: of a span's queries [row, head of the
// kv head] in this order, those from tile * T on. It goes over the keys in blocks of THREADS positions.
// Queries go in fours, the components of a vector ("quad"). Each span has as many tiles as one of `rows`
// rows, the most: what is too many is empty.
//
// Splits cut the positions from the block of the first one that any query of the span sees, split_len (a
// multiple of THREADS) each; a short span's last ones are empty. With one split the results go to out,
// [row, head, VALUE_DIM]; with more, a query's maximum, sum and unnormalised result go to partials,
// [span][row][head][split][2 + VALUE_DIM], for attend_combine.wgsl.
// With n = n_spans * tiles, groups: (n_kv * n_splits, min(n, 32768), ceil(n / 32768)).

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> keys: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<u32>;
@group(0) @binding(3) var<storage, read> sinks: array<f32>;
@group(0) @binding(4) var<storage, read> table: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
@group(0) @binding(6) var<storage, read_write> partials: array<f32>;

const QUADS = T / 4u;
const PAIRS = VALUE_DIM / 2u;
// In sums over the values a thread has a pair of elements and every LANES-th key.
const LANES = THREADS / PAIRS;
// The score of a key that is not seen.
const UNSEEN = -1e30;

// Scaled queries, [element][quad].
var<workgroup> queries: array<vec4f, HEAD_DIM * QUADS>;
// The block's scores, then weights, [key][quad].
var<workgroup> scores: array<vec4f, THREADS * QUADS>;
var<workgroup> maxima: array<vec4f, 8u * QUADS>;

// One query's element; 0 beyond the last query.
fn query(span: Span, index: u32, kv: u32, element: u32) -> f32 {
    let group = p.n_heads / p.n_kv;
    if index >= span.rows * group {
        return 0.0;
    }
    let head = kv * group + index % group;
    return q[(span.row + index / group) * p.q_stride + head * HEAD_DIM + element] * p.scale;
}

// Where the values of a page and kv head begin.
fn values_of(page: u32, kv: u32) -> u32 {
    return (page * p.n_kv + kv) * head_words(select(VALUES, KEYS, LATENT != 0u));
}

// A pair of elements of a value; its page's and kv head's values begin at word `head`.
fn value_pair(head: u32, slot: u32, pair: u32) -> vec2f {
    if LATENT != 0u {
        return key_pair(head, 2u * pair, slot) * key_scale(head, 2u * pair, slot);
    }
    let n = elements_of_word(VALUES);
    let at = head + slot * slot_words(VALUES) + 2u * pair / n;
    if VALUES == F32 {
        return bitcast<vec2f>(vec2u(values[at], values[at + 1u]));
    }
    if VALUES == F16 || VALUES == BF16 {
        return floats_of(VALUES, values[at]);
    }
    let both = unpack2x16float(values[head + scale_word(VALUES, 2u * pair, slot)]);
    return two_of(VALUES, values[at], 2u * pair % n) * select(both.x, both.y, slot % 2u != 0u);
}

// The oldest position that a query sees.
fn oldest_seen(position: u32) -> u32 {
    if p.chunks != 0u {
        return position / p.window * p.window;
    }
    return select(0u, position + 1u - p.window, p.window != 0u && position >= p.window);
}

// Capped scores, UNSEEN for queries (by their positions) that do not see the key.
fn seen(score: vec4f, key: u32, positions: vec4u) -> vec4f {
    var capped = score;
    if SOFTCAP != 0u {
        let x = score / p.cap;
        capped = p.cap * vec4f(tanh_of(x.x), tanh_of(x.y), tanh_of(x.z), tanh_of(x.w));
    }
    var recent = (vec4u(key + p.window) > positions) | vec4<bool>(p.window == 0u);
    if p.chunks != 0u {
        recent = vec4u(key) >= positions / p.window * p.window;
    }
    return select(vec4f(UNSEEN), capped, (vec4u(key) <= positions) & recent);
}

fn weights(score: vec4f, maximum: vec4f) -> vec4f {
    return select(exp(score - maximum), vec4f(0.0), score == vec4f(UNSEEN));
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

// Writes a pair of elements of one query's result.
fn write(span: Span, index: u32, kv: u32, split: u32, pair: u32, result: vec2f, maximum: f32, sum: f32) {
    let group = p.n_heads / p.n_kv;
    if index >= span.rows * group {
        return;
    }
    let row = index / group;
    let head = kv * group + index % group;
    if p.n_splits > 1u {
        let at = (((span.index * p.rows + row) * p.n_heads + head) * p.n_splits + split) * (2u + VALUE_DIM);
        if pair == 0u {
            partials[at] = maximum;
            partials[at + 1u] = sum;
        }
        partials[at + 2u + 2u * pair] = result.x;
        partials[at + 3u + 2u * pair] = result.y;
        return;
    }
    var factor = 1.0 / sum;
    if SINKS != 0u {
        let most = max(maximum, sinks[head]);
        let rescale = exp(maximum - most);
        factor = rescale / (sum * rescale + exp(sinks[head] - most));
    }
    let at = (span.row + row) * p.out_stride + head * VALUE_DIM + 2u * pair;
    out[at] = result.x * factor;
    out[at + 1u] = result.y * factor;
}

fn write_quad(
    span: Span, index: u32, kv: u32, split: u32, pair: u32,
    even: vec4f, odd: vec4f, maximum: vec4f, sum: vec4f,
) {
    write(span, index, kv, split, pair, vec2f(even.x, odd.x), maximum.x, sum.x);
    write(span, index + 1u, kv, split, pair, vec2f(even.y, odd.y), maximum.y, sum.y);
    write(span, index + 2u, kv, split, pair, vec2f(even.z, odd.z), maximum.z, sum.z);
    write(span, index + 3u, kv, split, pair, vec2f(even.w, odd.w), maximum.w, sum.w);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) thread: u32) {
    let kv = id.x % p.n_kv;
    let split = id.x / p.n_kv;
    let group = p.n_heads / p.n_kv;
    let tiles = (p.rows * group + T - 1u) / T;
    let place = id.y + id.z * 32768u;
    if place >= p.n_spans * tiles {
        return;
    }
    let span = span_at(place / tiles);
    let first = place % tiles * T;
    if first >= span.rows * group {
        return;
    }

    for (var i = thread; i < HEAD_DIM * QUADS; i += THREADS) {
        let element = i % HEAD_DIM;
        let quad = i / HEAD_DIM;
        let index = first + 4u * quad;
        queries[element * QUADS + quad] = vec4f(
            query(span, index, kv, element),
            query(span, index + 1u, kv, element),
            query(span, index + 2u, kv, element),
            query(span, index + 3u, kv, element),
        );
    }
    workgroupBarrier();

    // The queries' positions, and the positions that this workgroup is for: those any query sees, of
    // this split.
    let positions_0 = span.start + (first + vec4u(0u, 1u, 2u, 3u)) / group;
    let positions_1 = span.start + (first + vec4u(4u, 5u, 6u, 7u)) / group;
    var from_position = oldest_seen(span.start + first / group);
    var to_position = span.start + (min(first + T, span.rows * group) - 1u) / group + 1u;
    if p.n_splits > 1u {
        let base = oldest_seen(span.start) / THREADS * THREADS + split * p.split_len;
        from_position = max(from_position, base);
        to_position = min(to_position, base + p.split_len);
    }

    // A quad's results so far: its two elements of this thread (even, odd), their maxima, and the sums
    // of the weights of this thread's keys. The second quad's are unused where T is 4.
    let pair = thread % PAIRS;
    let lane = thread / PAIRS;
    var even_0 = vec4f(0.0);
    var odd_0 = vec4f(0.0);
    var sum_0 = vec4f(0.0);
    var maximum_0 = vec4f(UNSEEN);
    var even_1 = vec4f(0.0);
    var odd_1 = vec4f(0.0);
    var sum_1 = vec4f(0.0);
    var maximum_1 = vec4f(UNSEEN);

    var block = from_position / THREADS * THREADS;
    if from_position >= to_position {
        block = to_position;
    }
    // The page of this thread's key is looked up a block ahead.
    var next_page = page_of(span, clamp(block + thread, from_position, to_position - 1u));
    for (; block < to_position; block += THREADS) {
        let page = next_page;
        next_page = page_of(span, min(block + THREADS + thread, to_position - 1u));
        let begin = max(from_position, block) - block;
        let end = min(to_position - block, THREADS);

        // A thread has a key.
        var score_0 = vec4f(UNSEEN);
        var score_1 = vec4f(UNSEEN);
        if thread >= begin && thread < end {
            var dot_0 = vec4f(0.0);
            var dot_1 = vec4f(0.0);
            let head = (page * p.n_kv + kv) * head_words(KEYS);
            let slot = thread % PAGE;
            // By blocks, which share scales.
            for (var of_block = 0u; of_block < HEAD_DIM; of_block += 32u) {
                let stop = min(of_block + 32u, HEAD_DIM);
                var part_0 = vec4f(0.0);
                var part_1 = vec4f(0.0);
                var i = of_block;
                // By eights, for as many reads to be under way.
                for (; i + 8u <= stop; i += 8u) {
                    let a = key_four(head, i, slot);
                    let b = key_four(head, i + 4u, slot);
                    let at = i * QUADS;
                    part_0 += queries[at] * a.x + queries[at + QUADS] * a.y
                        + queries[at + 2u * QUADS] * a.z + queries[at + 3u * QUADS] * a.w;
                    part_0 += queries[at + 4u * QUADS] * b.x + queries[at + 5u * QUADS] * b.y
                        + queries[at + 6u * QUADS] * b.z + queries[at + 7u * QUADS] * b.w;
                    if T > 4u {
                        part_1 += queries[at + 1u] * a.x + queries[at + 3u] * a.y
                            + queries[at + 5u] * a.z + queries[at + 7u] * a.w;
                        part_1 += queries[at + 9u] * b.x + queries[at + 11u] * b.y
                            + queries[at + 13u] * b.z + queries[at + 15u] * b.w;
                    }
                }
                for (; i < stop; i += 2u) {
                    let a = key_pair(head, i, slot);
                    let at = i * QUADS;
                    part_0 += queries[at] * a.x + queries[at + QUADS] * a.y;
                    if T > 4u {
                        part_1 += queries[at + 1u] * a.x + queries[at + 3u] * a.y;
                    }
                }
                let scale = key_scale(head, of_block, slot);
                dot_0 += part_0 * scale;
                dot_1 += part_1 * scale;
            }
            score_0 = seen(dot_0, block + thread, positions_0);
            score_1 = seen(dot_1, block + thread, positions_1);
        }
        scores[thread * QUADS] = score_0;
        if T > 4u {
            scores[thread * QUADS + 1u] = score_1;
        }
        workgroupBarrier();

        // The block's maxima: eight threads a quad first.
        if thread < 8u * QUADS {
            var most = vec4f(UNSEEN);
            for (var i = thread; i < THREADS * QUADS; i += 8u * QUADS) {
                most = max(most, scores[i]);
            }
            maxima[thread] = most;
        }
        workgroupBarrier();
        var most_0 = maximum_0;
        var most_1 = maximum_1;
        for (var i = 0u; i < 8u * QUADS; i += QUADS) {
            most_0 = max(most_0, maxima[i]);
            if T > 4u {
                most_1 = max(most_1, maxima[i + 1u]);
            }
        }

        // What there is so far is rescaled to the new maxima.
        let rescale_0 = exp(maximum_0 - most_0);
        let weight_0 = weights(score_0, most_0);
        scores[thread * QUADS] = weight_0;
        sum_0 = sum_0 * rescale_0 + weight_0;
        even_0 *= rescale_0;
        odd_0 *= rescale_0;
        maximum_0 = most_0;
        if T > 4u {
            let rescale_1 = exp(maximum_1 - most_1);
            let weight_1 = weights(score_1, most_1);
            scores[thread * QUADS + 1u] = weight_1;
            sum_1 = sum_1 * rescale_1 + weight_1;
            even_1 *= rescale_1;
            odd_1 *= rescale_1;
            maximum_1 = most_1;
        }
        workgroupBarrier();

        // A thread has a pair of the values' elements, and of each page every LANES-th key.
        for (var of_page = 0u; of_page < end && lane < LANES; of_page += PAGE) {
            if of_page + PAGE <= begin {
                continue;
            }
            var its_page = page;
            if THREADS > PAGE {
                its_page = page_of(span, block + of_page);
            }
            let head = values_of(its_page, kv);
            let stop = min(end, of_page + PAGE);
            var key = max(begin, of_page) + lane;
            for (; key + 3u * LANES < stop; key += 4u * LANES) {
                let slot = key - of_page;
                let a = value_pair(head, slot, pair);
                let b = value_pair(head, slot + LANES, pair);
                let c = value_pair(head, slot + 2u * LANES, pair);
                let d = value_pair(head, slot + 3u * LANES, pair);
                let at = key * QUADS;
                const STEP = LANES * QUADS;
                let a_0 = scores[at];
                let b_0 = scores[at + STEP];
                let c_0 = scores[at + 2u * STEP];
                let d_0 = scores[at + 3u * STEP];
                even_0 += a_0 * a.x + b_0 * b.x + c_0 * c.x + d_0 * d.x;
                odd_0 += a_0 * a.y + b_0 * b.y + c_0 * c.y + d_0 * d.y;
                if T > 4u {
                    let a_1 = scores[at + 1u];
                    let b_1 = scores[at + STEP + 1u];
                    let c_1 = scores[at + 2u * STEP + 1u];
                    let d_1 = scores[at + 3u * STEP + 1u];
                    even_1 += a_1 * a.x + b_1 * b.x + c_1 * c.x + d_1 * d.x;
                    odd_1 += a_1 * a.y + b_1 * b.y + c_1 * c.y + d_1 * d.y;
                }
            }
            for (; key < stop; key += LANES) {
                let a = value_pair(head, key - of_page, pair);
                even_0 += scores[key * QUADS] * a.x;
                odd_0 += scores[key * QUADS] * a.y;
                if T > 4u {
                    even_1 += scores[key * QUADS + 1u] * a.x;
                    odd_1 += scores[key * QUADS + 1u] * a.y;
                }
            }
        }
        workgroupBarrier();
    }

    sum_0 = fold(thread, sum_0, 0u, 1u, THREADS);
    if T > 4u {
        sum_1 = fold(thread, sum_1, 0u, 1u, THREADS);
    }
    if LANES > 1u {
        even_0 = fold(thread, even_0, pair, PAIRS, LANES * PAIRS);
        odd_0 = fold(thread, odd_0, pair, PAIRS, LANES * PAIRS);
        if T > 4u {
            even_1 = fold(thread, even_1, pair, PAIRS, LANES * PAIRS);
            odd_1 = fold(thread, odd_1, pair, PAIRS, LANES * PAIRS);
        }
    }
    if lane == 0u {
        write_quad(span, first, kv, split, pair, even_0, odd_0, maximum_0, sum_0);
        if T > 4u {
            write_quad(span, first + 4u, kv, split, pair, even_1, odd_1, maximum_1, sum_1);
        }
    }
}
