//! Does the engine keep to the suite, and do its failures say what is wrong?

use candle_core::Error as CandleError;

use super::*;
use crate::engine::conformance::{Rounds, conformance};
use crate::error::ErrorKind;
use crate::weights::DType;

impl Rounds for Tensors {
    fn rounds_to_8_bits(&self) -> bool {
        !self.precise
    }

    fn types(&self) -> Vec<DType> {
        DType::ALL
            .iter()
            .copied()
            .filter(|dtype| dtype.is_weight() && (self.precise || !dtype.is_for_cpus()))
            .collect()
    }
}

conformance!(Tensors::cpu(2).unwrap());

/// Products as on GPUs: of blocks, with rounded activations.
mod rounding {
    use super::*;
    conformance!(Tensors { precise: false, ..Tensors::cpu(1).unwrap() }; linear, padded_rows, products_of_results, experts);
}

#[test]
fn failures_are_typed_and_keep_their_cause() {
    let exhausted = CandleError::Msg("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")".into());
    assert_eq!(failed(exhausted).kind(), ErrorKind::OutOfMemory);

    let b = Tensors::cpu(1).unwrap();
    let (mut x, empty) = (b.buffer(2, 4).unwrap(), b.buffer(2, 4).unwrap());
    b.write(&mut (), &[1.0; 8], &mut x).unwrap();
    let weight = b.vector(vec![1.0; 3]).unwrap();
    let failures = [
        b.read(&mut (), &empty, &mut [0.0; 4]),
        b.read(&mut (), &x, &mut [0.0; 5]),
        b.write(&mut (), &[1.0; 5], &mut x),
        b.add(&mut (), &mut x, &empty, 1.0, 2),
        b.softcap(&mut (), &mut x, 1.0, 3),
        b.rms_norm(&mut (), &x, &weight, 1e-6, 2, &mut b.buffer(2, 4).unwrap()),
        b.gather(&mut (), &x, &[2], &mut b.buffer(2, 4).unwrap()),
    ];
    for failure in failures {
        let error = failure.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::EngineFailed);
        assert!(std::error::Error::source(&error).is_some(), "{error}");
    }
    // A failed operation leaves its operands as they were.
    let mut kept = [0.0; 8];
    b.read(&mut (), &x, &mut kept).unwrap();
    assert_eq!(kept, [1.0; 8]);
}
