//! How does Python reach the library? The native module `skulk._skulk`: handles, conversions and
//! exceptions; everything that decides anything is in `skulk-core`.

mod cancel;
mod convert;
mod error;
mod generation;
mod model;
mod session;
mod tokenizer;
mod wait;

use pyo3::prelude::*;

/// Native part of `skulk`. Import `skulk` instead.
#[pymodule(gil_used = false)]
mod _skulk {
    use super::*;

    #[pymodule_export]
    use super::{
        cancel::CancelToken,
        error::error_kinds,
        generation::Generation,
        model::{Model, devices},
        session::Session,
        tokenizer::Tokenizer,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        error::add_classes(module)?;
        // What is public, the package `skulk` says.
        module.delattr("__all__")
    }
}
