// How do states go on? Through all rows of a run, one by one; what each row reads goes to out.
//
// Constants: KEY_DIM; VALUE_DIM; PARTS, a power of two up to 16; REPLACES, 1 = what is known under a key is
// replaced, else values are added; OF_ELEMENTS, 1 = what is left of a state is by element of its key, else one
// number; SKIP, 1 = what is read has a share of the value in it. After runs.wgsl.
//
// A head's state is tiles of 16 values, [KEY_DIM][16]. A workgroup has a tile of a head; a thread has a value, and
// of the key every PARTS-th element, whose state stays in its registers. With S what is left of the state, k, q and
// v the row's, and d = (v - Sk) * share, the new state is S + k d, and what is read of it Sq + (kq) d: a row takes
// one round of sums.
// Rows are [queries][keys][values][left][shares]. Groups (heads * tiles of a head, runs, 1).

@group(0) @binding(0) var<storage, read> rows: array<f32>;
@group(0) @binding(1) var<storage, read> skip: array<f32>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> states: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

const TILE = 16u;
const THREADS = TILE * PARTS;
const TILES = (VALUE_DIM + TILE - 1u) / TILE;
// Elements of a key that a thread has.
const OWN = (KEY_DIM + PARTS - 1u) / PARTS;

// Sk, Sq and kq of each thread's elements, of this row and the one before: a row needs one barrier.
var<workgroup> sums: array<vec4f, 2u * THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let run = run_at(group.y);
    let head = group.x / TILES;
    let lane = thread % TILE;
    let part = thread / TILE;
    let column = group.x % TILES * TILE + lane;
    var key_head = head / (p.n_heads / p.n_key_heads);
    if p.in_turn != 0u {
        key_head = head % p.n_key_heads;
    }
    let keys = p.n_key_heads * KEY_DIM;
    let of_left = select(head, head * KEY_DIM, OF_ELEMENTS != 0u);
    let tile = group.x * KEY_DIM * TILE + lane;

    var state: array<f32, OWN>;
    if run.before != NONE {
        for (var n = 0u; n < OWN; n++) {
            let i = n * PARTS + part;
            if i < KEY_DIM {
                state[n] = states[run.before * p.state_len + tile + i * TILE];
            }
        }
    }
    for (var row = 0u; row < run.rows; row++) {
        let first = (run.row + row) * p.row_stride;
        let query = first + key_head * KEY_DIM;
        let key = query + keys;
        let left = first + 2u * keys + p.n_heads * VALUE_DIM + of_left;
        var own = vec4f(0.0);
        for (var n = 0u; n < OWN; n++) {
            let i = n * PARTS + part;
            if i < KEY_DIM {
                let old = state[n] * rows[left + select(0u, i, OF_ELEMENTS != 0u)];
                state[n] = old;
                let k = rows[key + i];
                let q = rows[query + i];
                own += vec4f(old * k, old * q, k * q, 0.0);
            }
        }
        let round = row % 2u * THREADS;
        sums[round + thread] = own;
        workgroupBarrier();
        var all = vec4f(0.0);
        for (var n = 0u; n < PARTS; n++) {
            all += sums[round + n * TILE + lane];
        }
        var value = 0.0;
        if column < VALUE_DIM {
            value = rows[first + 2u * keys + head * VALUE_DIM + column];
        }
        var news = value;
        if REPLACES != 0u {
            news -= all.x;
        }
        news *= rows[first + p.shares + head];
        for (var n = 0u; n < OWN; n++) {
            let i = n * PARTS + part;
            if i < KEY_DIM {
                state[n] += rows[key + i] * news;
            }
        }
        if part == 0u && column < VALUE_DIM {
            var read = all.y + news * all.z;
            if SKIP != 0u {
                read += skip[head] * value;
            }
            out[(run.row + row) * p.out_stride + head * VALUE_DIM + column] = read;
        }
        if row + 1u == run.mark_rows {
            for (var n = 0u; n < OWN; n++) {
                let i = n * PARTS + part;
                if i < KEY_DIM {
                    states[run.mark * p.state_len + tile + i * TILE] = state[n];
                }
            }
        }
    }
    for (var n = 0u; n < OWN; n++) {
        let i = n * PARTS + part;
        if i < KEY_DIM {
            states[run.behind * p.state_len + tile + i * TILE] = state[n];
        }
    }
}
