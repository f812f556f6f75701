// What do the sums of all threads of a workgroup add up to? By subgroups, of any size from 4 on.
//
// THREADS threads have SUMS sums each. Needs the SUBGROUP feature; the interface is that of
// reduce_shared.wgsl.

struct Place {
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
}

const MOST = THREADS / 4u;
var<workgroup> parts: array<vec4<f32>, MOST * SUMS>;

// All threads call this together.
fn reduce(me: Place, sums: ptr<function, array<vec4<f32>, SUMS>>) {
    for (var r = 0u; r < SUMS; r++) {
        let sum = subgroupAdd((*sums)[r]);
        if (me.lane == 0u) {
            parts[r * MOST + me.subgroup] = sum;
        }
    }
    workgroupBarrier();
}

// Afterwards, in any thread: sum `r` of all threads.
fn total(me: Place, r: u32) -> vec4<f32> {
    var sum = parts[r * MOST];
    for (var i = 1u; i < me.subgroups; i++) {
        sum += parts[r * MOST + i];
    }
    return sum;
}
