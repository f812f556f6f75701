// One of a kernel's matrices.
@group(0) @binding(WEIGHTS) var<storage, read> weights: array<u32>;
