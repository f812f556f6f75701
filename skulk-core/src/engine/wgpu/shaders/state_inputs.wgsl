// What do states get of rows? Queries, keys and values, convolved with the rows before, then SiLU; queries and
// keys as vectors of one length if UNIT.
//
// Constants: KEY_DIM, VALUE_DIM, KEY_HEADS, HEADS; BIAS; UNIT; THREADS. After math.wgsl, sum.wgsl and runs.wgsl.
// Channels are those of queries, of keys, of values, head behind head; out has them first in a row. Behind the
// heads' matrices a state has the inputs of the rows before, [p.taps - 1][CHANNELS], which are written here, too:
// no run reads a state that another one writes. From p.of_rows on the table has each row's run.
// One workgroup a head of a row: groups (2 * KEY_HEADS + HEADS, rows, 1).

@group(0) @binding(0) var<storage, read> queries: array<f32>;
@group(0) @binding(1) var<storage, read> keys: array<f32>;
@group(0) @binding(2) var<storage, read> values: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> table: array<u32>;
@group(0) @binding(6) var<storage, read_write> states: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

const CHANNELS = 2u * KEY_HEADS * KEY_DIM + HEADS * VALUE_DIM;
// Added to the square of a length before it is divided by its root.
const UNIT_EPS = 1e-6;

// Of a head's elements: which product has them, where, and which channel the first one is.
struct Head {
    part: u32,
    at: u32,
    stride: u32,
    channel: u32,
    width: u32,
}

fn head_at(index: u32) -> Head {
    if index < KEY_HEADS {
        return Head(0u, p.query + index * p.query_step, p.query_stride, index * KEY_DIM, KEY_DIM);
    }
    if index < 2u * KEY_HEADS {
        let own = index - KEY_HEADS;
        return Head(1u, p.key + own * p.key_step, p.key_stride, index * KEY_DIM, KEY_DIM);
    }
    let own = index - 2u * KEY_HEADS;
    const OF_KEY = HEADS / KEY_HEADS;
    let at = p.value + own / OF_KEY * p.value_step + own % OF_KEY * VALUE_DIM;
    return Head(2u, at, p.value_stride, 2u * KEY_HEADS * KEY_DIM + own * VALUE_DIM, VALUE_DIM);
}

fn input(head: Head, row: u32, i: u32) -> f32 {
    let at = row * head.stride + head.at + i;
    if head.part == 0u {
        return queries[at];
    }
    if head.part == 1u {
        return keys[at];
    }
    return values[at];
}

// Where a state has a channel's input of the row that is number `at` of those before.
fn kept(state: u32, at: u32, channel: u32) -> u32 {
    return (state + 1u) * p.state_len - (p.taps - 1u - at) * CHANNELS + channel;
}

// Keeps an input for rows behind the first `rows` ones of a run, of which this is number `row`; the first one
// also takes over those of the state before that are still needed.
fn keep(run: Run, state: u32, rows: u32, row: u32, channel: u32, x: f32) {
    let before = p.taps - 1u;
    if row < rows && row + before >= rows {
        states[kept(state, row + before - rows, channel)] = x;
    }
    if row == 0u {
        for (var at = 0u; at + rows < before; at++) {
            var older = 0.0;
            if run.before != NONE {
                older = states[kept(run.before, at + rows, channel)];
            }
            states[kept(state, at, channel)] = older;
        }
    }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let head = head_at(group.x);
    let run = run_at(table[p.of_rows + group.y]);
    let row = group.y - run.row;
    let to = group.y * p.out_stride + head.channel;
    var squares = 0.0;
    for (var i = thread; i < head.width; i += THREADS) {
        let channel = head.channel + i;
        var sum = 0.0;
        if BIAS != 0u {
            sum = bias[channel];
        }
        for (var tap = 0u; tap < p.taps; tap++) {
            let back = p.taps - 1u - tap;
            var x = 0.0;
            if back <= row {
                x = input(head, group.y - back, i);
            } else if run.before != NONE {
                x = states[kept(run.before, tap + row, channel)];
            }
            sum += x * weights[tap * CHANNELS + channel];
        }
        let x = input(head, group.y, i);
        keep(run, run.behind, run.rows, row, channel, x);
        if run.mark_rows > 0u {
            keep(run, run.mark, run.mark_rows, row, channel, x);
        }
        let convolved = sum / (1.0 + exp_of(-sum));
        out[to + i] = convolved;
        squares += convolved * convolved;
    }
    if UNIT != 0u && head.part < 2u {
        var factor = 1.0 / sqrt(sum_of_threads(thread, squares) + UNIT_EPS);
        if head.part == 0u {
            factor /= sqrt(f32(KEY_DIM));
        }
        for (var i = thread; i < head.width; i += THREADS) {
            out[to + i] *= factor;
        }
    }
}
