// Choose the positions of the largest scores, of equal ones the first, and list them from first to last.
//
// After kept.wgsl and choosers.wgsl. Scores are of rows from p.from_row on, [row, p.out_stride]; a row's positions,
// p.most of them, go to its place among all rows of the table. One workgroup a row: groups (rows, 1, 1).

@group(0) @binding(0) var<storage, read> scores: array<f32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> positions: array<u32>;

const THREADS = 256u;

var<workgroup> counts: array<atomic<u32>, 256>;
// The bits found so far of the least score that is taken, and how many of those that begin so.
var<workgroup> prefix: u32;
var<workgroup> wanted: u32;
// Of each thread, and those before it: scores that are larger than the least one, then equal ones.
var<workgroup> before: array<vec2u, THREADS>;

// Numbers that are ordered as scores are; zeros of both signs are equal.
fn ordered(score: f32) -> u32 {
    let bits = bitcast<u32>(score);
    if (bits & 0x7fffffffu) == 0u {
        return 0x80000000u;
    }
    return bits ^ select(0x80000000u, 0xffffffffu, (bits & 0x80000000u) != 0u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let n = chooser_at(p.from_row + group.x).positions;
    let first = group.x * p.out_stride;
    if thread == 0u {
        prefix = 0u;
        wanted = p.most;
    }
    // Eight bits of the least score at a time, from the highest on.
    var known = 0u;
    for (var shift = 32u; shift > 0u;) {
        shift -= 8u;
        atomicStore(&counts[thread], 0u);
        workgroupBarrier();
        for (var i = thread; i < n; i += THREADS) {
            let key = ordered(scores[first + i]);
            if (key & known) == prefix {
                atomicAdd(&counts[(key >> shift) & 255u], 1u);
            }
        }
        workgroupBarrier();
        if thread == 0u {
            var left = wanted;
            var bits = 255u;
            for (; bits > 0u; bits--) {
                let count = atomicLoad(&counts[bits]);
                if count >= left {
                    break;
                }
                left -= count;
            }
            wanted = left;
            prefix |= bits << shift;
        }
        workgroupBarrier();
        known |= 255u << shift;
    }
    let least = prefix;
    let equal = wanted;

    var taken = vec2u(0u);
    let to = (p.from_row + group.x) * p.most;
    for (var block = 0u; block < n; block += THREADS) {
        let i = block + thread;
        var own = vec2u(0u);
        if i < n {
            let key = ordered(scores[first + i]);
            own = vec2u(u32(key > least), u32(key == least));
        }
        before[thread] = own;
        workgroupBarrier();
        for (var step = 1u; step < THREADS; step *= 2u) {
            var sum = before[thread];
            if thread >= step {
                sum += before[thread - step];
            }
            workgroupBarrier();
            before[thread] = sum;
            workgroupBarrier();
        }
        let here = taken + before[thread] - own;
        if own.x == 1u || (own.y == 1u && here.y < equal) {
            positions[to + here.x + min(here.y, equal)] = i;
        }
        taken += before[THREADS - 1u];
        workgroupBarrier();
    }
}
