// Helper: a head in workgroup memory, and its rotation by Hadamard matrices.
//
// Constants: HEAD_DIM, even; THREADS. The matrices are as large as powers of two that divide HEAD_DIM, up to
// 256: symmetric, and their own inverses.

const ROTATED = min(HEAD_DIM & ~(HEAD_DIM - 1u), 256u);

var<workgroup> head: array<f32, HEAD_DIM>;

// Rotates what the threads have put into `head`; `factor` is 1 / sqrt(ROTATED). Every thread calls it.
fn rotate(thread: u32, factor: f32) {
    for (var bit = 1u; bit < ROTATED; bit *= 2u) {
        workgroupBarrier();
        for (var i = thread; i < HEAD_DIM / 2u; i += THREADS) {
            let at = i / bit * 2u * bit + i % bit;
            let a = head[at];
            let b = head[at + bit];
            head[at] = a + b;
            head[at + bit] = a - b;
        }
    }
    workgroupBarrier();
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        head[i] *= factor;
    }
    workgroupBarrier();
}
