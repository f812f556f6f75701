// Helper: how do keys and values lie in a page?
//
// Constant: KEPT_DIM, elements that are kept of a head, even. A page has, of each kv head, PAGE slots with a position each. A slot's elements are
// words of one to eight, the first one in the lowest bits. Of keys, words lie as [word][slot], so that threads
// with a key each read neighbouring ones; of values as [slot][word], so that threads with elements each do.
// Behind the words of all slots lie scales, where elements are quantised: in half precision, two in a word,
// [block of 32 elements][slot].

const PAGE = 64u;

// Kinds of elements, as KvType numbers them.
const F16 = 0u;
const BF16 = 1u;
const F32 = 2u;
const Q8_0 = 3u;
const Q4_0 = 4u;

fn is_quantised(kind: u32) -> bool {
    return kind >= Q8_0;
}

fn elements_of_word(kind: u32) -> u32 {
    switch kind {
        case F32 { return 1u; }
        case F16, BF16 { return 2u; }
        case Q8_0 { return 4u; }
        default { return 8u; }
    }
}

// The two elements of a word, F16 or BF16.
fn floats_of(kind: u32, word: u32) -> vec2f {
    if kind == BF16 {
        return bitcast<vec2f>(vec2u(word << 16u, word & 0xffff0000u));
    }
    return unpack2x16float(word);
}

// Words of a slot.
fn slot_words(kind: u32) -> u32 {
    return (KEPT_DIM + elements_of_word(kind) - 1u) / elements_of_word(kind);
}

// Words of a head's slots with their scales.
fn head_words(kind: u32) -> u32 {
    return PAGE * slot_words(kind) + select(0u, (KEPT_DIM + 31u) / 32u * (PAGE / 2u), is_quantised(kind));
}

// The word of a slot's scale, from the head's first one on: slots of an even number have its lower half.
fn scale_word(kind: u32, element: u32, slot: u32) -> u32 {
    return PAGE * slot_words(kind) + element / 32u * (PAGE / 2u) + slot / 2u;
}
