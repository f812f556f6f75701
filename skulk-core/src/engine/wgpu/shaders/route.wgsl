// Which experts does a row take, and how much of each? The n_used best, best first, equal ones by index. The host's
// version is `select` in engine/routes.rs.
//
// Constants: N_EXPERTS, up to 512; N_USED of them for each row; N_GROUPS that they are in, of which GROUPS_USED count;
// SIGMOID, 1 = each has one, else a softmax over all; CORRECTED, 1 = something is added to what is chosen by; SCALED, 1 =
// weights are multiplied by expert; NORMALISE, 1 = weights are divided by their sum. As parameters they would be the same at
// each dispatch, and drivers that make kernels anew for parameters would do so at each.
//
// A workgroup a row: dispatch (rows, 1, 1).

@group(0) @binding(0) var<storage, read> logits: array<f32>;
// By expert, if CORRECTED.
@group(0) @binding(1) var<storage, read> correction: array<f32>;
// By expert, if SCALED.
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read_write> routes: array<u32>;
@group(0) @binding(4) var<storage, read_write> shares: array<f32>;

const ROUTE_THREADS = 64u;
// Experts this far behind the first have probability 0, and are equal.
const NOTHING = -104.0;
// What experts are chosen by, and what they weigh before weights are divided by the sum.
var<workgroup> choice: array<f32, N_EXPERTS>;
var<workgroup> power: array<f32, N_EXPERTS>;
// By group: the sum of its two best; by expert: whether it can be taken.
var<workgroup> best_two: array<f32, N_EXPERTS>;
var<workgroup> open: array<u32, N_EXPERTS>;
// The weights of those taken, and which these are.
var<workgroup> taken: array<f32, N_EXPERTS>;
var<workgroup> experts: array<u32, N_EXPERTS>;

fn magnitude(x: f32) -> u32 {
    return bitcast<u32>(x) & 0x7fffffffu;
}

@compute @workgroup_size(ROUTE_THREADS)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) group: vec3<u32>) {
    for (var e = thread; e < N_EXPERTS; e += ROUTE_THREADS) {
        choice[e] = logits[group.x * p.stride + e];
    }
    workgroupBarrier();
    // Each thread finds the largest one. A row with what is not a number is broken, and where there is a softmax, one
    // without any finite largest one.
    var most = choice[0];
    var broken = magnitude(most) > 0x7f800000u;
    for (var e = 1u; e < N_EXPERTS; e++) {
        most = max(most, choice[e]);
        broken = broken || magnitude(choice[e]) > 0x7f800000u;
    }
    broken = broken || (SIGMOID == 0u && magnitude(most) >= 0x7f800000u);
    workgroupBarrier();
    for (var e = thread; e < N_EXPERTS; e += ROUTE_THREADS) {
        // Experts of a broken row are equal.
        var score = 0.0;
        if (!broken && SIGMOID != 0u) {
            power[e] = 1.0 / (1.0 + exp(-clamp(choice[e], -80.0, 80.0)));
            // Sigmoids of large ones are equal: where nothing is added to them, these choose.
            score = choice[e];
        } else {
            if (!broken) {
                score = max(choice[e] - most, NOTHING);
            }
            power[e] = select(exp(score), 0.0, score == NOTHING);
        }
        choice[e] = score;
        open[e] = 1u;
    }
    workgroupBarrier();
    // The sum of probabilities, where there is a softmax.
    var total = 1.0;
    if (SIGMOID == 0u) {
        total = 0.0;
        for (var e = 0u; e < N_EXPERTS; e++) {
            total += power[e];
        }
    }
    // Sums of groups are of weights, not of what a softmax makes them of.
    if ((CORRECTED != 0u || N_GROUPS > 1u) && !broken) {
        for (var e = thread; e < N_EXPERTS; e += ROUTE_THREADS) {
            var by = power[e] / total;
            if (CORRECTED != 0u) {
                by += correction[e];
            }
            choice[e] = by;
        }
    }
    workgroupBarrier();
    if (N_GROUPS > 1u) {
        let of_group = N_EXPERTS / N_GROUPS;
        for (var g = thread; g < N_GROUPS; g += ROUTE_THREADS) {
            var first = max(choice[g * of_group], choice[g * of_group + 1u]);
            var second = min(choice[g * of_group], choice[g * of_group + 1u]);
            for (var e = g * of_group + 2u; e < (g + 1u) * of_group; e++) {
                second = max(second, min(first, choice[e]));
                first = max(first, choice[e]);
            }
            best_two[g] = first + second;
        }
        workgroupBarrier();
        for (var e = thread; e < N_EXPERTS; e += ROUTE_THREADS) {
            let own = e / of_group;
            var place = 0u;
            for (var g = 0u; g < N_GROUPS; g++) {
                place += u32(best_two[g] > best_two[own] || (best_two[g] == best_two[own] && g < own));
            }
            open[e] = u32(place < GROUPS_USED);
        }
    }
    workgroupBarrier();
    // An expert's place is how many come before it.
    let first = group.x * N_USED;
    for (var e = thread; e < N_EXPERTS; e += ROUTE_THREADS) {
        let d = choice[e];
        var place = 0u;
        for (var i = 0u; i < N_EXPERTS; i++) {
            place += open[i] * u32(choice[i] > d || (choice[i] == d && i < e));
        }
        if (open[e] != 0u && place < N_USED) {
            taken[place] = power[e] / total;
            experts[place] = e;
            routes[first + place] = e;
        }
    }
    workgroupBarrier();
    var sum = 1.0;
    if (NORMALISE != 0u) {
        // All may be too small to be numbers.
        sum = 1e-20;
        for (var i = 0u; i < N_USED; i++) {
            sum += taken[i];
        }
    }
    for (var i = thread; i < N_USED; i += ROUTE_THREADS) {
        var share = taken[i] / sum * p.scale;
        if (SCALED != 0u) {
            share *= scales[experts[i]];
        }
        if (broken) {
            // Not a number, which a constant could not be.
            share = bitcast<f32>(0x7fc00000u | N_EXPERTS);
        }
        shares[first + i] = share;
    }
}
