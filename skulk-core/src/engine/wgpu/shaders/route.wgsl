// Which experts does a row take, and how much of each? The n_used most probable by a softmax over all,
// most probable first, equal ones by index. The host's version is `select` in engine/routes.rs.
//
// A workgroup a row: dispatch (rows, 1, 1). Up to 512 experts.

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> routes: array<u32>;
@group(0) @binding(2) var<storage, read_write> shares: array<f32>;

const ROUTE_THREADS = 64u;
// Experts this far behind the first have probability 0, and are equal.
const NOTHING = -104.0;
// Logits, as distances from the largest one, and their exponentials.
var<workgroup> distance: array<f32, 512>;
var<workgroup> power: array<f32, 512>;
// The probabilities of those taken.
var<workgroup> taken: array<f32, 512>;

fn magnitude(x: f32) -> u32 {
    return bitcast<u32>(x) & 0x7fffffffu;
}

@compute @workgroup_size(ROUTE_THREADS)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let n = p.n_experts;
    for (var e = thread; e < n; e += ROUTE_THREADS) {
        distance[e] = logits[group.x * p.stride + e];
    }
    workgroupBarrier();
    // Each thread finds the largest one. A row with what is not a number, or without any finite largest
    // one, is broken.
    var most = distance[0];
    var broken = magnitude(most) > 0x7f800000u;
    for (var e = 1u; e < n; e++) {
        most = max(most, distance[e]);
        broken = broken || magnitude(distance[e]) > 0x7f800000u;
    }
    broken = broken || magnitude(most) >= 0x7f800000u;
    workgroupBarrier();
    for (var e = thread; e < n; e += ROUTE_THREADS) {
        // Experts of a broken row are equal.
        var d = 0.0;
        if (!broken) {
            d = max(distance[e] - most, NOTHING);
        }
        distance[e] = d;
        power[e] = select(exp(d), 0.0, d == NOTHING);
    }
    workgroupBarrier();
    // An expert's place is how many come before it.
    let first = group.x * p.n_used;
    for (var e = thread; e < n; e += ROUTE_THREADS) {
        let d = distance[e];
        var place = 0u;
        var sum = 0.0;
        for (var i = 0u; i < n; i++) {
            place += u32(distance[i] > d || (distance[i] == d && i < e));
            sum += power[i];
        }
        if (place < p.n_used) {
            taken[place] = power[e] / sum;
            routes[first + place] = e;
        }
    }
    workgroupBarrier();
    var sum = 1.0;
    if (p.normalise != 0u) {
        sum = 0.0;
        for (var i = 0u; i < p.n_used; i++) {
            sum += taken[i];
        }
    }
    for (var i = thread; i < p.n_used; i += ROUTE_THREADS) {
        var share = taken[i] / sum;
        if (broken) {
            // Not a number, which a constant could not be.
            share = bitcast<f32>(0x7fc00000u | n);
        }
        shares[first + i] = share;
    }
}
