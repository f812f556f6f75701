// What do positions score with rows? Of each head the product of query and key where it is above 0, times the head's
// number, added up.
//
// Constants: HEAD_DIM, a multiple of 4; KEPT_DIM; KEYS, their kind; TOGETHER, heads at a time. After kept.wgsl,
// keys.wgsl and choosers.wgsl. The key is the elements from p.first on of what is kept of a position. Where keys are
// quantised, queries come rotated as they are. Rows are those from p.from_row on of the table; out is
// [row, p.out_stride]. A thread has a position: groups (ceil(positions / 64), rows, 1).

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

const FOURS = HEAD_DIM / 4u;
var<workgroup> queries: array<vec4f, TOGETHER * FOURS>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let chooser = chooser_at(p.from_row + group.y);
    let position = group.x * 64u + thread;
    var head = 0u;
    let slot = position % PAGE;
    let seen = position < chooser.positions;
    if seen {
        head = page_for(chooser, position) * head_words(KEYS);
    }
    var sum = 0.0;
    for (var first = 0u; first < p.n_heads; first += TOGETHER) {
        workgroupBarrier();
        for (var i = thread; i < TOGETHER * FOURS; i += 64u) {
            var four = vec4f(0.0);
            if first + i / FOURS < p.n_heads {
                let at = chooser.row * p.q_stride + first * HEAD_DIM + 4u * i;
                four = vec4f(q[at], q[at + 1u], q[at + 2u], q[at + 3u]);
            }
            queries[i] = four;
        }
        workgroupBarrier();
        if seen {
            var products: array<f32, TOGETHER>;
            for (var i = 0u; i < FOURS; i++) {
                let element = p.first + 4u * i;
                let key = key_four(head, element, slot) * key_scale(head, element, slot);
                for (var n = 0u; n < TOGETHER; n++) {
                    products[n] += dot(queries[n * FOURS + i], key);
                }
            }
            for (var n = 0u; n < min(TOGETHER, p.n_heads - first); n++) {
                sum += weights[chooser.row * p.weights_stride + first + n] * max(products[n], 0.0);
            }
        }
    }
    if seen {
        out[group.y * p.out_stride + position] = sum;
    }
}
