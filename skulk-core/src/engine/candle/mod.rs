//! How does candle compute a decoder? Its block kernels in place on the CPU, its tensors elsewhere.

mod attention;
mod cpu;
mod experts;
mod math;
mod product;
mod tensor;

pub(crate) use cpu::Cpu;
pub(crate) use tensor::Tensors;
