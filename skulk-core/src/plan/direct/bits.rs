//! How many bits has a weight? By the name of a quantisation, as cards and files have it.

/// Bits of a weight where the name says nothing.
const UNKNOWN: f64 = 16.0;
/// Bits that scales add to each weight of fewer than 16 bits.
const SCALES: f64 = 0.5;

/// Bits of a weight, its share of scales among them: of `Q4_K_M`, `IQ3_XXS`, `4bit`, `MXFP4-Q8`, `fp8`, `bf16`.
pub(super) fn per_weight(quantization: &str) -> f64 {
    // The first number that can be bits.
    let numbers = quantization.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    match numbers.into_iter().find(|bits: &u32| (1..=32).contains(bits)) {
        Some(bits @ 1..=8) => f64::from(bits) + SCALES,
        Some(bits) => f64::from(bits),
        None => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::per_weight;

    #[test]
    fn names_say_bits() {
        for (name, bits) in [
            ("Q4_K_M", 4.5),
            ("IQ3_XXS", 3.5),
            ("4bit", 4.5),
            ("MXFP4-Q8", 4.5),
            ("fp8", 8.5),
            ("Q8_0", 8.5),
            ("bf16", 16.0),
            ("fp32", 32.0),
            ("", 16.0),
            ("999bit", 16.0),
        ] {
            assert_eq!(per_weight(name), bits, "{name}");
        }
    }
}
