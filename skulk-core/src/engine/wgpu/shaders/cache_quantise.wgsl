// Write rows of keys, or of values, into their sequences' pages: rotated, and rounded in blocks of 32 elements.
//
// Constants: HEAD_DIM, even; KEPT_DIM, more where rows are a part of keys, whose first element is number p.first;
// KIND, Q8_0 or Q4_0; VALUES, 1 = they are values; THREADS. After kept.wgsl, half.wgsl and hadamard.wgsl. Rows are
// [row, kv head, HEAD_DIM]; of each, the table has page * PAGE + slot. Parts begin at multiples of 32.
// One workgroup a head of a row: groups (n_kv, rows, 1).

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
// Two slots' scales share a word.
@group(0) @binding(2) var<storage, read_write> pages: array<atomic<u32>>;

// a / b rounded once, as devices need not divide; b has 11 bits at most. The halves of the quotient times b
// are exact, and so is what they lack.
fn quotient(a: f32, b: f32) -> f32 {
    let near = a * (1.0 / b);
    let high = bitcast<f32>(bitcast<u32>(near) & 0xfffff000u);
    return near + ((a - high * b) - (near - high) * b) * (1.0 / b);
}

// The largest element of a block by size, the positive one of two; what is no number is larger than all.
fn largest(block: u32) -> f32 {
    var most = 0u;
    for (var i = 32u * block; i < min(32u * block + 32u, HEAD_DIM); i++) {
        let bits = bitcast<u32>(head[i]);
        let size = bits & 0x7fffffffu;
        let before = most & 0x7fffffffu;
        if size > before || (size == before && bits < most) {
            most = bits;
        }
    }
    return bitcast<f32>(most);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    for (var i = thread; i < HEAD_DIM; i += THREADS) {
        head[i] = x[group.y * p.x_stride + group.x * HEAD_DIM + i];
    }
    rotate(thread, p.factor);

    let page = table[p.slots + group.y] / PAGE;
    let slot = table[p.slots + group.y] % PAGE;
    let first = (page * p.n_kv + group.x) * head_words(KIND);
    let n = elements_of_word(KIND);
    // A thread has a word.
    for (var word = thread; word < (HEAD_DIM + n - 1u) / n; word += THREADS) {
        let element = word * n;
        // Of 8 bits from -127 to 127; of 4 bits what is largest becomes -8.
        let most = largest(element / 32u);
        var scale = -0.125 * most;
        var least = -8.0;
        var top = 7.0;
        if KIND == Q8_0 {
            scale = quotient(abs(most), 127.0);
            least = -127.0;
            top = 127.0;
        }
        let bits = half_bits(bitcast<u32>(scale));
        let stored = unpack2x16float(bits).x;
        var inverse = 0.0;
        if stored != 0.0 {
            inverse = quotient(1.0, stored);
        }
        var packed = 0u;
        for (var i = 0u; i < min(n, HEAD_DIM - element); i++) {
            let rounded = i32(round(clamp(head[element + i] * inverse, least, top)));
            packed |= extractBits(bitcast<u32>(rounded), 0u, 32u / n) << (i * (32u / n));
        }
        let place = p.first / n + word;
        var at = place * PAGE + slot;
        if VALUES != 0u {
            at = slot * slot_words(KIND) + place;
        }
        atomicStore(&pages[first + at], packed);
        if element % 32u == 0u {
            let of_scales = first + scale_word(KIND, p.first + element, slot);
            let shift = 16u * (slot % 2u);
            atomicAnd(&pages[of_scales], 0xffff0000u >> shift);
            atomicOr(&pages[of_scales], bits << shift);
        }
    }
}
