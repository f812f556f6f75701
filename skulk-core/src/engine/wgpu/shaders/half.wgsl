// Helper: the bits of the f16, or the bfloat16, nearest to an f32, to even where two are, from the f32's bits. After
// kept.wgsl.
fn half_bits(x: u32) -> u32 {
    let sign = (x >> 16u) & 0x8000u;
    let size = x & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u | ((size >> 13u) & 0x3ffu);
    }
    if size >= 0x47800000u {
        return sign | 0x7c00u;
    }
    if size >= 0x38800000u {
        // The exponent's bias is 112 less; a mantissa that overflows goes up into the exponent.
        return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
    }
    if size < 0x33000000u {
        return sign;
    }
    // Subnormal: a multiple of 2^-24.
    let shift = 126u - (size >> 23u);
    let mantissa = (size & 0x7fffffu) | 0x800000u;
    return sign | ((mantissa + (1u << (shift - 1u)) - 1u + ((mantissa >> shift) & 1u)) >> shift);
}

fn bfloat_bits(x: u32) -> u32 {
    if (x & 0x7fffffffu) > 0x7f800000u {
        return (x >> 16u) | 0x40u;
    }
    return (x + 0x7fffu + ((x >> 16u) & 1u)) >> 16u;
}

// The word of two elements, F16 or BF16.
fn word_of(kind: u32, a: u32, b: u32) -> u32 {
    if kind == BF16 {
        return bfloat_bits(a) | (bfloat_bits(b) << 16u);
    }
    return half_bits(a) | (half_bits(b) << 16u);
}
