//! What do the benchmarks reach of the inside? Operations of the CPU engine on made-up operands.
//!
//! Each function prepares an operation and returns a closure that runs it once. No part of the
//! library's interface: exists with the feature `bench-internals` only.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

pub use crate::arch::listed::{StoredTensor, kept_bytes, tensors};

use crate::CancelToken;
use crate::arch::{Activation, AttentionSpec, RopeLayout};
use crate::engine::backend::{Attend, Backend, NormRope, PAGE, PageSpec, Spans};
use crate::engine::cpu::{Cpu, Nearest, trace};
use crate::engine::{KvType, Precision, StepCx};
use crate::error::Result;
use crate::weights::{DType, MappedFile, Memory, Region, TensorInfo};

/// An operation that threads shared.
pub struct Traced {
    /// The type of its work, which tells the function that it is in.
    pub name: &'static str,
    /// Bytes of weights that it read.
    pub bytes: u64,
    /// Multiplications and additions of products.
    pub operations: u64,
    /// When it began.
    pub started: Instant,
    /// How long it took.
    pub seconds: f64,
    /// Seconds that threads waited in it, all together.
    pub waiting: f64,
}

/// All operations of the process's CPU engines while `work` runs, in order. Where several engines compute at a time, what
/// threads wait for is mixed up.
pub fn traced<R>(work: impl FnOnce() -> R) -> (R, Vec<Traced>) {
    trace::begin();
    let result = work();
    (result, trace::end())
}

/// The CPU engine's operations.
pub struct Operations(Cpu);

/// One run of an operation.
pub type Run<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// The first bytes of a file as a matrix `[out, in]`; of types that have them beside, scales (and biases) are behind it: in
/// bfloat16 for groups of 64, or small floats for 32 or 16. Resident ones are as models have them.
pub fn matrix(file: &MappedFile, dtype: DType, [n_out, n_in]: [usize; 2], memory: Memory) -> Result<Region> {
    let mut offset = 0;
    let mut next = |dtype: DType, n_in: usize| {
        let len = (dtype.row_bytes(n_in).unwrap_or(0) * n_out) as u64;
        let (name, shape) = (format!("{dtype} matrix"), vec![n_out, n_in]);
        let region = Region::map(file, &TensorInfo { name, dtype, shape, file: 0, offset, len });
        offset += len;
        region
    };
    let weights = next(dtype, n_in)?;
    let weights = match dtype {
        DType::FP4 | DType::FP8 => weights.with_groups(next(DType::E8M0, n_in / 32)?, None),
        DType::NVFP4 => weights.with_groups(next(DType::E4M3, n_in / 16)?, None),
        dtype if dtype.is_affine() => {
            weights.with_groups(next(DType::BF16, n_in / 64)?, Some(next(DType::BF16, n_in / 64)?))
        }
        _ => weights,
    };
    match memory {
        Memory::Resident => weights.resident_for_products(&CancelToken::new()),
        _ => Ok(weights),
    }
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect()
}

impl Operations {
    /// Those of an engine with `threads` threads.
    pub fn new(threads: usize, precision: Precision) -> Result<Self> {
        Cpu::new(threads, precision).map(Self)
    }

    /// The instruction set of its kernels.
    pub fn instruction_set(&self) -> &'static str {
        self.0.instruction_set()
    }

    fn filled(&self, rows: usize, width: usize) -> Result<<Cpu as Backend>::Buffer> {
        let mut buffer = self.0.buffer(rows, width)?;
        self.0.write(&mut self.0.stream(0, 0)?, &numbers(rows * width), &mut buffer)?;
        Ok(buffer)
    }

    /// An operation with as many parts as threads and nothing to do: what handing it out costs.
    pub fn nothing(&self) -> Run<'_> {
        Box::new(|| {
            self.0.nothing();
            Ok(())
        })
    }

    /// `rows` rows of activations by a matrix.
    pub fn linear(&self, weight: Region, rows: usize) -> Result<Run<'_>> {
        let (n_in, n_out) = (weight.row_len(), weight.rows());
        let (x, mut out) = (self.filled(rows, n_in)?, self.0.buffer(rows, n_out)?);
        let mut stream = self.0.stream(rows, n_in)?;
        let matrix = self.0.matrix(weight, None)?;
        Ok(Box::new(move || self.0.linear(&mut stream, &x, rows, &mut [(&matrix, &mut out)])))
    }

    /// Attention of `rows` rows that follow on `start` others.
    pub fn attention(
        &self,
        kv: KvType,
        [n_heads, n_kv_heads, head_dim]: [usize; 3],
        start: usize,
        rows: usize,
    ) -> Result<Run<'_>> {
        /// Rows that are stored at a time.
        const CHUNK: usize = 256;
        let attention = AttentionSpec::plain([n_heads, n_kv_heads], head_dim);
        let most = rows.max(CHUNK);
        let q = self.filled(most, n_heads * head_dim)?;
        let [k, v] = [self.filled(most, n_kv_heads * head_dim)?, self.filled(most, n_kv_heads * head_dim)?];
        let mut out = self.0.buffer(most, n_heads * head_dim)?;
        let mut stream = self.0.stream(most, n_heads * head_dim)?;
        let mut pages = self.0.pages(&PageSpec::new(&attention, kv))?;
        let n = (start + rows).div_ceil(PAGE) as u32;
        (0..n).try_for_each(|page| self.0.add_page(&mut pages, page))?;
        let never = CancelToken::new();
        let mut spans = Spans::default();
        let mut attend = move |start, rows| {
            spans.clear();
            spans.push(rows, start, 0, 0..n);
            let op = Attend { attention: &attention, sinks: None, spans: &spans, chosen: None };
            self.0.run(&StepCx::new(&never), || {
                self.0.attend(&mut stream, &op, &q, Some([&k, &v]), &mut pages, &mut out)
            })
        };
        for before in (0..start).step_by(CHUNK) {
            attend(before, CHUNK.min(start - before))?;
        }
        Ok(Box::new(move || attend(start, rows)))
    }

    /// Norms of `rows` rows.
    pub fn rms_norm(&self, rows: usize, width: usize) -> Result<Run<'_>> {
        let (x, mut out) = (self.filled(rows, width)?, self.0.buffer(rows, width)?);
        let weight = self.0.vector(numbers(width))?;
        let mut stream = self.0.stream(0, 0)?;
        Ok(Box::new(move || self.0.rms_norm(&mut stream, &x, &weight, 1e-6, rows, &mut out)))
    }

    /// Sums of `rows` pairs of rows.
    pub fn add(&self, rows: usize, width: usize) -> Result<Run<'_>> {
        // Zeros: numbers stay what they are, however often it runs.
        let (mut x, y) = (self.filled(rows, width)?, self.0.buffer(rows, width)?);
        let mut stream = self.0.stream(0, 0)?;
        Ok(Box::new(move || self.0.add(&mut stream, &mut x, &y, 1.0, rows)))
    }

    /// The gated feed-forward block's inner step, GELU with tanh.
    pub fn gated(&self, rows: usize, width: usize) -> Result<Run<'_>> {
        // A stable fixed point: GELU is least at -0.752.
        let (mut gate, mut up) = (self.0.buffer(rows, width)?, self.0.buffer(rows, width)?);
        let mut stream = self.0.stream(0, 0)?;
        self.0.write(&mut stream, &vec![-0.752; rows * width], &mut gate)?;
        self.0.write(&mut stream, &vec![4.42; rows * width], &mut up)?;
        Ok(Box::new(move || self.0.gated(&mut stream, Activation::GeluTanh, &mut gate, &up, rows)))
    }

    /// Norm and rotation of `rows` rows of heads.
    pub fn norm_rope(&self, rows: usize, [n_heads, head_dim]: [usize; 2]) -> Result<Run<'_>> {
        let mut x = self.filled(rows, n_heads * head_dim)?;
        let weight = self.0.vector(vec![1.0; head_dim])?;
        let frequencies: Vec<f32> = (0..head_dim / 2).map(|i| 0.99f32.powi(i as i32)).collect();
        let mut angles = self.0.buffer(rows, head_dim)?;
        let mut stream = self.0.stream(0, 0)?;
        self.0.angles(
            &mut stream,
            &frequencies,
            &(0..rows).collect::<Vec<_>>(),
            &vec![1.0; rows],
            &mut angles,
        )?;
        Ok(Box::new(move || {
            let op = NormRope { head_dim, plain: 0, norm: Some((&weight, 1e-6)), layout: RopeLayout::Halves };
            self.0.norm_rope(&mut stream, &op, Some(&angles), rows, &mut x)
        }))
    }

    /// The `k` rows of a table with the largest products with each query, all of which are of the table's width.
    /// Made ready here: the table's copy. Each run adds to `computed` how many products were computed exactly.
    pub fn nearest(
        &self,
        table: &Region,
        queries: Vec<f32>,
        k: usize,
        computed: Rc<Cell<u64>>,
    ) -> Result<Run<'_>> {
        let cancel = CancelToken::new();
        let nearest = Nearest::new(&self.0, table, &cancel)?;
        let mut found = Vec::new();
        Ok(Box::new(move || {
            computed.set(computed.get() + nearest.find(&queries, k, &cancel, &mut found)?);
            Ok(())
        }))
    }
}
