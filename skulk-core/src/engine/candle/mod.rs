//! How does candle compute a decoder? Its block kernels in place on the CPU, its tensors elsewhere.
#![allow(
    clippy::disallowed_methods,
    reason = "candle's own are the platform's: its results agree within tolerances"
)]

mod attention;
mod cpu;
mod experts;
mod math;
mod product;
mod tensor;

pub(crate) use cpu::Cpu;
pub(crate) use tensor::Tensors;
