//! Which bits do exponentials, logarithms and powers have? The same on every machine.
//!
//! The standard library's are the platform's: those of Linux, macOS and Windows differ in last places. What a
//! result depends on is computed with these instead, which are portable code of the crate `libm`. Its few parts
//! for single instruction sets are square roots, roundings and fused multiply-adds, which have one result
//! everywhere. Vectors of numbers have [kernels](crate::engine::cpu) of their own.

pub(crate) use libm::{erf, exp, log as ln, pow};

/// `e^x`.
pub(crate) fn exp_f32(x: f32) -> f32 {
    libm::exp(f64::from(x)) as f32
}

/// Sine and cosine of an angle in radians: the platform's, which may differ in the last place from another's.
#[allow(clippy::disallowed_methods, reason = "the one exception")]
pub(crate) fn sin_cos(x: f32) -> (f32, f32) {
    x.sin_cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected bits are of the numbers nearest to mpmath's results with 300 bits. The functions may be a unit in the
    // last place off these elsewhere, as erf is at -0.75; it is then the same unit on every machine.

    #[test]
    fn weights_of_tokens_and_experts_have_known_bits() {
        for (x, wide, narrow) in [
            (-0.5, 0x3fe3_68b2_fc6f_960a, 0x3f1b_4598),
            (-1.0, 0x3fd7_8b56_362c_ef38, 0x3ebc_5ab2),
            (-3.25, 0x3fa3_da36_8521_902d, 0x3d1e_d1b4),
            (-7.0, 0x3f4d_e16b_9c24_a98f, 0x3a6f_0b5d),
            (-12.75, 0x3ec8_58af_84b7_4310, 0x3642_c57c),
            (-20.0, 0x3e21_b486_55f3_7267, 0x310d_a433),
        ] {
            assert_eq!(exp(f64::from(x)).to_bits(), wide, "{x}");
            assert_eq!(exp_f32(x).to_bits(), narrow, "{x}");
        }
    }

    #[test]
    fn normalisers_frequencies_and_activations_have_known_bits() {
        assert_eq!(
            [0.05, 2.0, 10.0, 1234.5, 1e-12].map(|x| ln(x).to_bits()),
            [
                0xc007_f742_7b73_e391,
                0x3fe6_2e42_fefa_39ef,
                0x4002_6bb1_bbb5_5516,
                0x401c_7943_6f81_8745,
                0xc03b_a18a_998f_ffa0,
            ]
        );
        for (theta, dim, bits) in [
            (1e4, 64, [0x3f3f_f911, 0x3e08_8d77, 0x3c23_d70a, 0x390b_d472]),
            (1e6, 256, [0x3f65_ced3, 0x3ef0_843c, 0x3a83_126f, 0x3595_83da]),
            (5e5, 128, [0x3f50_8ac1, 0x3e73_c461, 0x3ab9_5d22, 0x3624_c2ff]),
        ] {
            let of = |pair: i32| pow(theta, f64::from(-2 * pair) / f64::from(dim)) as f32;
            assert_eq!([1, 7, dim / 4, dim / 2 - 1].map(|pair| of(pair).to_bits()), bits, "{theta}");
        }
        assert_eq!(
            [0.1, 0.5, 1.0, 2.0].map(|x| erf(x).to_bits()),
            [0x3fbc_ca5e_a24f_b334, 0x3fe0_a7ef_5c18_edd2, 0x3fea_f767_a741_088b, 0x3fef_d9ae_1427_95e3,]
        );
    }
}
