// Helper: what are the elements of a key that is kept in a page? `keys` is bound by who uses this.
//
// Constant: KEYS, their kind. After kept.wgsl.

// Two or four neighbouring elements, the first of which is a word's number `element`, as numbers.
fn two_of(kind: u32, word: u32, element: u32) -> vec2f {
    if kind == Q8_0 {
        return vec2f(vec2i(vec2u(word) << (vec2u(24u, 16u) - 8u * element)) >> vec2u(24u));
    }
    return vec2f(vec2i(vec2u(word) << (vec2u(28u, 24u) - 4u * element)) >> vec2u(28u));
}

fn four_of(kind: u32, word: u32, element: u32) -> vec4f {
    if kind == Q8_0 {
        return vec4f(vec4i(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u));
    }
    return vec4f(vec4i(vec4u(word) << (vec4u(28u, 24u, 20u, 16u) - 4u * element)) >> vec4u(28u));
}

// Two elements of a key, `element` of an even number and the next one, without their scale; its page's and kv
// head's keys begin at word `head`.
fn key_pair(head: u32, element: u32, slot: u32) -> vec2f {
    let n = elements_of_word(KEYS);
    let at = head + element / n * PAGE + slot;
    if KEYS == F32 {
        return bitcast<vec2f>(vec2u(keys[at], keys[at + PAGE]));
    }
    if KEYS == F16 || KEYS == BF16 {
        return floats_of(KEYS, keys[at]);
    }
    return two_of(KEYS, keys[at], element % n);
}

// The same for four elements, the first of which is of a number divided by four.
fn key_four(head: u32, element: u32, slot: u32) -> vec4f {
    if is_quantised(KEYS) {
        let n = elements_of_word(KEYS);
        return four_of(KEYS, keys[head + element / n * PAGE + slot], element % n);
    }
    return vec4f(key_pair(head, element, slot), key_pair(head, element + 2u, slot));
}

// What the elements of a key's block are multiplied by.
fn key_scale(head: u32, element: u32, slot: u32) -> f32 {
    if !is_quantised(KEYS) {
        return 1.0;
    }
    let both = unpack2x16float(keys[head + scale_word(KEYS, element, slot)]);
    return select(both.x, both.y, slot % 2u != 0u);
}
