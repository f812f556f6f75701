// What do the sums of all threads of a workgroup add up to? By workgroup memory alone.
//
// THREADS (a power of two) threads have SUMS sums each.

struct Place {
    @builtin(local_invocation_index) thread: u32,
}

var<workgroup> parts: array<vec4<f32>, THREADS * SUMS>;

// All threads call this together.
fn reduce(me: Place, sums: ptr<function, array<vec4<f32>, SUMS>>) {
    for (var r = 0u; r < SUMS; r++) {
        parts[r * THREADS + me.thread] = (*sums)[r];
    }
    workgroupBarrier();
    for (var n = THREADS / 2u; n > 0u; n /= 2u) {
        if (me.thread < n) {
            for (var r = 0u; r < SUMS; r++) {
                let i = r * THREADS + me.thread;
                parts[i] += parts[i + n];
            }
        }
        workgroupBarrier();
    }
}

// Afterwards, in any thread: sum `r` of all threads.
fn total(me: Place, r: u32) -> vec4<f32> {
    return parts[r * THREADS];
}
