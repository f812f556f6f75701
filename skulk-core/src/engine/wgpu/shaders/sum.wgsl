// Helper: the sum of a number of each thread of the workgroup. Constant: THREADS, a power of two.

var<workgroup> sum_parts: array<f32, THREADS>;

// Every thread gets the sum. Every thread calls it.
fn sum_of_threads(thread: u32, x: f32) -> f32 {
    // Those of a sum before may still be read.
    workgroupBarrier();
    sum_parts[thread] = x;
    workgroupBarrier();
    for (var n = THREADS / 2u; n > 0u; n /= 2u) {
        if thread < n {
            sum_parts[thread] += sum_parts[thread + n];
        }
        workgroupBarrier();
    }
    return sum_parts[0];
}
