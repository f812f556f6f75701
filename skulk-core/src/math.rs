//! Which bits do exponentials, logarithms, powers and sines have? The same on every machine.
//!
//! The standard library's are the platform's: those of Linux, macOS and Windows differ in last places. What a
//! result depends on is computed with these instead, which are portable code of the crate `libm`. Its few parts
//! for single instruction sets are square roots, roundings and fused multiply-adds, which have one result
//! everywhere. Vectors of numbers have [kernels](crate::engine::cpu) of their own.

pub(crate) use libm::{erf, log as ln, pow};

/// `e^x`, less than a unit in the last place off; 0 below -708. A whole vocabulary's weights are computed with it: a
/// third of the time of `libm`'s.
pub(crate) fn exp(x: f64) -> f64 {
    /// Adding and subtracting it rounds to a whole number.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// ln 2 in two parts, of which the first times a whole number is exact.
    const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    /// 1/13!, 1/12!, … 1/2!.
    const TERMS: [f64; 12] = [
        1.605_904_383_682_161_3e-10,
        2.087_675_698_786_81e-9,
        2.505_210_838_544_172e-8,
        2.755_731_922_398_589e-7,
        2.755_731_922_398_589_3e-6,
        2.480_158_730_158_73e-5,
        1.984_126_984_126_984e-4,
        1.388_888_888_888_889e-3,
        8.333_333_333_333_333e-3,
        4.166_666_666_666_666_4e-2,
        1.666_666_666_666_666_6e-1,
        0.5,
    ];
    if !(-708.0..=709.0).contains(&x) {
        return if x.is_nan() {
            x
        } else if x < 0.0 {
            0.0
        } else {
            libm::exp(x)
        };
    }
    let power = (x * std::f64::consts::LOG2_E + ROUND) - ROUND;
    let r = (x - power * LN_2[0]) - power * LN_2[1];
    let sum = TERMS.iter().fold(0.0, |sum, term| sum * r + term);
    (1.0 + (r + r * r * sum)) * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

/// `e^x`.
pub(crate) fn exp_f32(x: f32) -> f32 {
    exp(f64::from(x)) as f32
}

/// `1 / (1 + e^-x)`.
pub(crate) fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + exp(-f64::from(x)))) as f32
}

/// Below which number this share of normally spread ones is, whose mean is 0 and variance 1; from -10 to 10.
pub(crate) fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-10.0, 10.0);
    // Each time the interval halves.
    for _ in 0..64 {
        let middle: f64 = 0.5 * (low + high);
        let below = 0.5 * (1.0 + erf(middle * std::f64::consts::FRAC_1_SQRT_2));
        if below < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Half of π in three parts, of which the first two have 30 bits: quarter turns of angles below [`LARGE`] times
/// these are exact.
const HALF_PI: [f64; 3] = [1.570796325802803, 9.920935791635221e-10, 5.170182981794105e-19];
const LARGE: f32 = 8_388_608.0;

/// Sine and cosine of an angle in radians, at most 0.57 units in the last place off.
///
/// The polynomials on [-π/4, π/4] are those of Arm's Optimized Routines, which glibc uses, too: the results are
/// glibc's. `libm` has others, which are a little closer and would part from texts of programs that use glibc's.
pub(crate) fn sin_cos(x: f32) -> (f32, f32) {
    if x.abs() >= LARGE {
        let (sin, cos) = libm::sincos(f64::from(x));
        return (sin as f32, cos as f32);
    }
    let x = f64::from(x);
    let quarter = (x * std::f64::consts::FRAC_2_PI).round();
    let r = HALF_PI.iter().fold(x, |r, part| r - quarter * part);
    let (r2, r3, r4) = (r * r, r * (r * r), (r * r) * (r * r));
    let sin =
        (r + r3 * -0.16666654943701084) + (r3 * r2) * (0.008332178146138854 + r2 * -0.00019517298981385725);
    let cos = ((1.0 + r2 * -0.49999999725108224) + r4 * 0.041666623324344516)
        + (r4 * r2) * (-0.001388676379437604 + r2 * 2.4390450703564542e-05);
    let (sin, cos) = (sin as f32, cos as f32);
    match quarter as i64 & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
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
    fn exponentials_are_close_everywhere() {
        for i in -70_900..70_900 {
            let x = f64::from(i) * 1e-2 + 1e-6;
            let (found, near) = (exp(x), libm::exp(x));
            let place = near.next_up() - near;
            // libm's is off by less than one, too.
            assert!((found - near).abs() <= 2.0 * place || x < -707.9 && found < 1e-300, "{x}");
        }
        assert_eq!([0.0, f64::NEG_INFINITY, f64::INFINITY].map(exp), [1.0, 0.0, f64::INFINITY]);
        assert!(exp(f64::NAN).is_nan());
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

    /// Those of Python's `statistics`.
    #[test]
    fn quantiles_are_close() {
        for (share, expected) in [
            (0.5, 0.0),
            (0.95, 1.644_853_626_951_471_5),
            (0.05, -1.644_853_626_951_471_5),
            (0.99, 2.326_347_874_040_840_8),
        ] {
            assert!((normal_quantile(share) - expected).abs() < 1e-14, "{share}");
        }
        assert!([0.0, 1e-300, 1.0 - 1e-16, 1.0].map(normal_quantile).iter().all(|x| x.abs() <= 10.0));
    }

    #[test]
    fn sines_have_known_bits_and_are_close_everywhere() {
        // glibc 2.36's, some of which are not the nearest number; the last two are mpmath's.
        for (x, sin, cos) in [
            (0.0, 0x0000_0000, 0x3f80_0000),
            (1e-5, 0x3727_c5ac, 0x3f80_0000),
            (0.5, 0x3ef5_7744, 0x3f60_a940),
            (1.0, 0x3f57_6aa4, 0x3f0a_5140),
            (-2.5, 0xbf19_3578, 0xbf4d_17bf),
            (116.0, 0x3e72_575d, 0xbf78_ba44),
            (1_410.756_1, 0xbe38_55f2, 0xbf7b_d164),
            (1_862.457_9, 0x3ef8_683b, 0xbf5f_d9f9),
            (4_095.0, 0xbf7f_7136, 0xbd87_1e6c),
            (99_999.25, 0x3f35_158d, 0xbf34_f458),
            (1e8, 0x3f6e_7fe5, 0xbeba_0d9c),
            (-3e20, 0xbf56_6988, 0xbf0b_de85),
        ] {
            let (s, c) = sin_cos(x);
            assert_eq!((s.to_bits(), c.to_bits()), (sin, cos), "{x}");
        }
        let close = |found: f32, wide: f64| {
            let nearest = (wide as f32).abs();
            (f64::from(found) - wide).abs() <= 0.57 * f64::from(nearest.next_up() - nearest)
        };
        for bits in (0x3900_0000..LARGE.to_bits()).step_by(9_973) {
            for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                let ((s, c), (sin, cos)) = (sin_cos(x), libm::sincos(f64::from(x)));
                assert!(close(s, sin) && close(c, cos), "{x}");
            }
        }
        assert!(sin_cos(f32::INFINITY).0.is_nan() && sin_cos(f32::NAN).1.is_nan());
    }
}
