// Combine the splits of attend.wgsl: partials [span][row][head][split][maximum, sum, VALUE_DIM values] into
// out.
//
// Constants: VALUE_DIM, KEPT_DIM, SINKS. After kept.wgsl and spans.wgsl. One workgroup a head of a row: groups
// (n_heads, n_spans * rows, 1).

@group(0) @binding(0) var<storage, read> partials: array<f32>;
@group(0) @binding(1) var<storage, read> sinks: array<f32>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const STRIDE = 2u + VALUE_DIM;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let span = span_at(group.y / p.rows);
    let row = group.y % p.rows;
    if row >= span.rows {
        return;
    }
    let head = group.x;
    let from_split = (group.y * p.n_heads + head) * p.n_splits * STRIDE;
    let to_split = from_split + p.n_splits * STRIDE;
    var most = -1e30;
    if SINKS != 0u {
        most = sinks[head];
    }
    for (var at = from_split; at < to_split; at += STRIDE) {
        most = max(most, partials[at]);
    }
    for (var i = thread; i < VALUE_DIM; i += 64u) {
        var sum = 0.0;
        if SINKS != 0u {
            sum = exp(sinks[head] - most);
        }
        var value = 0.0;
        // A split in which the query sees nothing has zeros.
        for (var at = from_split; at < to_split; at += STRIDE) {
            let weight = exp(partials[at] - most);
            sum += weight * partials[at + 1u];
            value += weight * partials[at + 2u + i];
        }
        out[(span.row + row) * p.out_stride + head * VALUE_DIM + i] = value / sum;
    }
}
