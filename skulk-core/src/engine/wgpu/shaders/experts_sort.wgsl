// Which places does each expert have? order = the places sorted by expert, those of one expert rising;
// expert e's are order[starts[e]..starts[e + 1]].
//
// One workgroup: dispatch (1, 1, 1). Up to 512 experts.

@group(0) @binding(0) var<storage, read> routes: array<u32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> starts: array<u32>;

const SORT_THREADS = 256u;
// By expert: how many places it has, and where its next one goes.
var<workgroup> counts: array<atomic<u32>, 512>;
var<workgroup> nexts: array<atomic<u32>, 512>;
// The experts of the places at hand.
var<workgroup> block: array<u32, SORT_THREADS>;

@compute @workgroup_size(SORT_THREADS)
fn main(@builtin(local_invocation_index) thread: u32) {
    for (var e = thread; e < 512u; e += SORT_THREADS) {
        atomicStore(&counts[e], 0u);
    }
    workgroupBarrier();
    for (var i = thread; i < p.n_places; i += SORT_THREADS) {
        atomicAdd(&counts[routes[i]], 1u);
    }
    workgroupBarrier();
    for (var e = thread; e <= p.n_experts; e += SORT_THREADS) {
        var start = 0u;
        for (var before = 0u; before < e; before++) {
            start += atomicLoad(&counts[before]);
        }
        starts[e] = start;
        if (e < p.n_experts) {
            atomicStore(&nexts[e], start);
        }
    }
    // 256 places at a time: each goes behind those before it that have the same expert.
    for (var first = 0u; first < p.n_places; first += SORT_THREADS) {
        let place = first + thread;
        var expert = 0u;
        if (place < p.n_places) {
            expert = routes[place];
        }
        block[thread] = expert;
        workgroupBarrier();
        if (place < p.n_places) {
            var at = atomicLoad(&nexts[expert]);
            for (var before = 0u; before < thread; before++) {
                at += u32(block[before] == expert);
            }
            order[at] = place;
        }
        workgroupBarrier();
        if (place < p.n_places) {
            atomicAdd(&nexts[expert], 1u);
        }
    }
}
