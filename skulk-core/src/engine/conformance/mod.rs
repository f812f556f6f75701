//! Does a backend compute what its operations promise? One suite for every backend.
//!
//! Results are held against [`oracle`]'s f64 formulas. Tolerances, by what separates f32 from them:
//! - dense products: `n · 2⁻²⁴ · Σ|w·x|`, the bound for any order of n f32 additions;
//! - quantised products: kernels round activations to 8 bits, so each is off by up to 1/254 of the
//!   row's largest; errors are independent, their sum has a standard deviation of `‖w‖ / √3` of
//!   that, and five times `‖w‖` is eight deviations;
//! - products with bfloat16 weights, where activations are rounded to that type too: each is off by up
//!   to 2⁻⁹ of itself, and five times `‖w·x‖` of that is likewise eight deviations;
//! - the rest: stated where it is checked, as multiples of f32's precision of 6e-8.
//!
//! Where [`Backend::EXACT_ROWS`] holds, rows computed together and apart must agree in every bit.

mod attention;
mod chosen;
mod experts;
mod features;
mod latent;
mod material;
mod operations;
pub(super) mod oracle;
mod states;
mod streams;

pub(super) use attention::{attention, turned};
pub(super) use chosen::chosen;
pub(super) use experts::{experts, routing};
pub(super) use features::top_features;
pub(super) use latent::heads_with_weights;
#[cfg(feature = "wgpu")]
pub(super) use material::Weights;
#[cfg(feature = "wgpu")]
pub(super) use material::kept;
pub(super) use material::{
    Numbers, attention_spec, both_kept, latent_spec, off_by_weights, queries, region, stored_floats, wide,
    widths,
};
pub(super) use operations::{
    elementwise, embed, gate_heads, gated_block, linear, moves_rows, norm_rope, padded_rows,
    products_of_results, results_narrower_than_buffers, rms_norm, sums_and_norms,
};
pub(super) use states::{large_state_cases, state_cases, states};
pub(super) use streams::streams;

use super::backend::Backend;
use crate::weights::DType;

/// Makes one test of each part of the suite for a backend.
macro_rules! conformance {
    ($backend:expr; $($part:ident),*) => {$(
        #[test]
        fn $part() {
            use $crate::engine::backend::Backend as _;
            let backend = $backend;
            let never = $crate::CancelToken::new();
            let part = || {
                $crate::engine::conformance::$part(&backend);
                Ok(())
            };
            backend.run(&$crate::engine::StepCx::new(&never), part).unwrap();
        }
    )*};
    ($backend:expr) => {
        $crate::engine::conformance::conformance!(
            $backend;
            moves_rows, embed, rms_norm, sums_and_norms, elementwise, linear, padded_rows, products_of_results,
            gated_block, norm_rope, results_narrower_than_buffers, attention, turned, gate_heads, heads_with_weights, chosen, states, streams, routing,
            experts
        );
    };
}
pub(super) use conformance;

/// What the suite has to know of a backend beside its operations.
pub(super) trait Rounds: Backend {
    /// Whether activations are rounded to 8 bits for quantised weights.
    fn rounds_to_8_bits(&self) -> bool {
        true
    }

    /// The types that it computes with; others it refuses.
    fn types(&self) -> Vec<DType> {
        DType::ALL.iter().copied().filter(|dtype| dtype.is_weight()).collect()
    }

    /// Whether the processor computes what is made for a GPU. Long cases are shorter then.
    fn is_emulated(&self) -> bool {
        false
    }

    /// Whether activations are rounded to bfloat16 for weights of that type.
    fn rounds_to_bf16(&self) -> bool {
        false
    }

    /// Whether weights of latent vectors in bfloat16 are rounded to it, too.
    fn rounds_latent_weights(&self) -> bool {
        false
    }
}

/// A buffer with these rows.
fn filled<B: Backend>(b: &B, s: &mut B::Stream, width: usize, values: &[f32]) -> B::Buffer {
    let mut buffer = b.buffer(values.len() / width, width).unwrap();
    b.write(s, values, &mut buffer).unwrap();
    buffer
}

/// The first `len` values of a buffer.
fn values<B: Backend>(b: &B, s: &mut B::Stream, buffer: &B::Buffer, len: usize) -> Vec<f32> {
    let mut values = vec![f32::NAN; len];
    b.read(s, buffer, &mut values).unwrap();
    values
}

/// Every value is within its tolerance.
fn check(found: &[f32], expected: &[f64], tolerance: impl Fn(usize) -> f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let (error, most) = ((f64::from(found) - expected).abs(), tolerance(i));
        assert!(error <= most, "{what}: value {i} is {found}, expected {expected} ± {most}");
    }
}

/// Rows computed together and apart agree as far as the backend promises.
fn check_same<B: Backend>(together: &[f32], apart: &[f32], what: &str) {
    let same = together.iter().zip(apart).all(|(a, b)| a.to_bits() == b.to_bits());
    assert!(same || !B::EXACT_ROWS, "{what}: a row's bits depend on other rows");
}
