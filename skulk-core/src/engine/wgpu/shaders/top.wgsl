// Which are the k largest of each row of logits, and where? Falling; of equal ones the lower index comes
// first. What is not a number above -inf is never listed: (-inf, 0xffffffff) fills the list. k <= 64.
//
// Twice. STAGE = 0: workgroups list the k largest of SLICE (a power of two, 64 to 2048) logits each:
// dispatch (n_slices, rows, 1), results [row][slice][k]. STAGE = 1: a workgroup a row merges these lists:
// dispatch (1, rows, 1), results [row][k].

// The logits, or those of the slices' lists; the indices of these (of no use to the first stage). Logits
// are handled as their bits: compilers take every number for one, and may flush small ones.
@group(0) @binding(0) var<storage, read> from_values: array<u32>;
@group(0) @binding(1) var<storage, read> from_ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> values: array<u32>;
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;

const TOP_THREADS = 256u;
// The second stage keeps 64 entries and merges 448 at a time.
const LIST = 64u;
const MERGED = 448u;
const SIZE = (1u - STAGE) * SLICE + STAGE * (LIST + MERGED);
// Entries: numbers that are ordered as the logits are, and indices.
var<workgroup> keys: array<u32, SIZE>;
var<workgroup> places: array<u32, SIZE>;
var<workgroup> found: atomic<u32>;
var<workgroup> more: u32;

// No logit. It comes after all others.
const NO_KEY = 0u;
const NO_PLACE = 0xffffffffu;

// Rises with the logit; NO_KEY for what is not listed.
fn key_of(bits: u32) -> u32 {
    if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0xff800000u) {
        return NO_KEY;
    }
    // -0 equals 0.
    if (bits == 0x80000000u) {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, bits > 0x80000000u);
}

fn logit_of(key: u32) -> u32 {
    if (key == NO_KEY) {
        return 0xff800000u;
    }
    return select(~key, key & 0x7fffffffu, key >= 0x80000000u);
}

fn comes_before(key: u32, place: u32, i: u32) -> bool {
    return key > keys[i] || (key == keys[i] && place < places[i]);
}

fn enter(i: u32, key: u32, place: u32) {
    keys[i] = key;
    places[i] = select(place, NO_PLACE, key == NO_KEY);
}

// Sorts all entries: a bitonic network. All threads call this together.
fn sort(thread: u32) {
    for (var run = 2u; run <= SIZE; run *= 2u) {
        for (var step = run / 2u; step > 0u; step /= 2u) {
            workgroupBarrier();
            for (var pair = thread; pair < SIZE / 2u; pair += TOP_THREADS) {
                // Bit `step` of the lower entry of a pair is clear, of the upper one set.
                let low = 2u * pair - (pair & (step - 1u));
                let high = low + step;
                // Every other run is sorted the other way round.
                let falling = (low & run) == 0u;
                if (comes_before(keys[high], places[high], low) == falling) {
                    let key = keys[low];
                    let place = places[low];
                    keys[low] = keys[high];
                    places[low] = places[high];
                    keys[high] = key;
                    places[high] = place;
                }
            }
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(TOP_THREADS)
fn main(@builtin(local_invocation_index) thread: u32, @builtin(workgroup_id) group: vec3<u32>) {
    let row = group.y;
    var to = row * p.k;
    if (STAGE == 0u) {
        let slice = group.x;
        to = (row * p.n_slices + slice) * p.k;
        for (var i = thread; i < SIZE; i += TOP_THREADS) {
            let at = slice * SLICE + i;
            var key = NO_KEY;
            if (at < p.n) {
                key = key_of(from_values[row * p.stride + at]);
            }
            enter(i, key, at);
        }
        sort(thread);
    } else {
        // The first of all lists, then the second of all, and so on: once as many as there are lists
        // bring nothing, none of those that follow will.
        let all = p.n_slices * p.k;
        for (var i = thread; i < SIZE; i += TOP_THREADS) {
            enter(i, NO_KEY, NO_PLACE);
        }
        for (var first = 0u; first < all; first += MERGED) {
            if (thread == 0u) {
                atomicStore(&found, 0u);
            }
            workgroupBarrier();
            for (var i = thread; i < MERGED; i += TOP_THREADS) {
                let n = first + i;
                var key = NO_KEY;
                var place = NO_PLACE;
                if (n < all) {
                    let at = (row * p.n_slices + n % p.n_slices) * p.k + n / p.n_slices;
                    key = key_of(from_values[at]);
                    place = from_ids[at];
                }
                enter(LIST + i, key, place);
                if (comes_before(key, place, p.k - 1u)) {
                    atomicStore(&found, 1u);
                }
            }
            workgroupBarrier();
            if (thread == 0u) {
                more = u32(atomicLoad(&found) != 0u || p.n_slices > MERGED);
            }
            if (workgroupUniformLoad(&more) == 0u) {
                break;
            }
            sort(thread);
        }
    }
    if (thread < p.k) {
        values[to + thread] = logit_of(keys[thread]);
        ids[to + thread] = places[thread];
    }
}
