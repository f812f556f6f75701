//! Which operations does the CPU offer through kernels of our own?
//!
//! Weights are multiplied where they are stored. Kernels for each instruction set lie in
//! [`kernels`], the threads in [`pool`], attention in [`attention`].

mod attention;
mod experts;
mod features;
mod heads;
pub(crate) mod kernels;
mod lines;
mod nearest;
mod pool;
mod rows;
mod states;
pub(crate) mod trace;

use experts::Selected;
pub(crate) use experts::results as expert_results;
use features::Chosen as ChosenFeatures;
use heads::ByHead;
use kernels::{Form, Kernels, Matrix, Part, ProductScratch, Products};
use lines::Lines;
pub(crate) use nearest::Nearest;
use pool::Pool;

use crate::arch::{Activation, RecurrentSpec};
use crate::cancel::CancelToken;
use crate::engine::backend::{
    Attend, Backend, Blend, Choose, Chosen, Experts, Head, NormRope, PageSpec, Recur, Routes, Routing,
    TopLogits, with_rows,
};
use crate::engine::{KvType, Precision, StepCx, check_threads};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::math;
use crate::weights::Region;

/// Elements below which another thread costs more than it saves.
const LEAST_ELEMENTS: usize = 1 << 14;

/// Products with the head are always exact. It is the largest matrix by far and read for few rows, so
/// that the second digit costs little beside the memory's time; and it halves the error of logits.
const HEAD: Precision = Precision::Exact;

/// The CPU: weights where they are stored, one pool of threads of the caller's size.
pub(crate) struct Cpu {
    kernels: &'static Kernels,
    pool: Pool,
    precision: Precision,
    /// Heads are screened, see [`kernels::Screen`].
    screens: bool,
}

impl Cpu {
    /// A backend with `threads` threads, which end when it is dropped.
    pub(crate) fn new(threads: usize, precision: Precision) -> Result<Self> {
        Self::with_kernels(Kernels::detect(), threads, precision)
    }

    /// The same, with heads screened.
    pub(crate) fn screening(self, screens: bool) -> Self {
        Self { screens, ..self }
    }

    fn with_kernels(kernels: &'static Kernels, threads: usize, precision: Precision) -> Result<Self> {
        check_threads(threads)?;
        Ok(Self { kernels, pool: Pool::new(threads)?, precision, screens: false })
    }

    /// The instruction set of its kernels.
    pub(crate) fn instruction_set(&self) -> &'static str {
        self.kernels.name
    }

    /// Norms one row, on the thread that asks.
    #[cfg(feature = "net")]
    pub(crate) fn norm_row(&self, row: &[f32], (weight, eps): (&[f32], f32), out: &mut [f32]) {
        self.kernels.rms_norm(row, (weight, eps), out);
    }

    /// Hands out an operation with as many parts as threads and nothing to do.
    #[cfg(feature = "bench-internals")]
    pub(crate) fn nothing(&self) {
        self.pool.run(self.pool.threads(), 1, &|_, _| ());
    }

    /// Products of rows that `make` makes, in place, with these matrices.
    fn products_of(
        &self,
        stream: &mut Stream,
        x: &mut Buffer,
        rows: usize,
        (products, form): (&mut [(&Matrix, &mut Buffer)], Form),
        make: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let x = (&mut x.data[..rows * x.width], x.width);
        let parts = [Part { rows: 0..rows, form }];
        let list = stream.products.products_of(self.kernels, &self.pool, x, (self.precision, &parts), make);
        all(list, rows, products);
    }

    /// In which form products take so many rows; `None` where none of them is of rounded ones.
    fn form(&self, products: &[(&Matrix, &mut Buffer)], rows: usize) -> Option<Form> {
        products.iter().filter_map(|(matrix, _)| matrix.form(self.precision, rows)).reduce(Form::both)
    }

    /// Calls `each(row, elements)` for the first `rows` rows, over threads when it pays.
    fn rows(&self, x: &mut Buffer, rows: usize, each: impl Fn(usize, &mut [f32]) + Sync) {
        let width = x.width;
        let least = LEAST_ELEMENTS.div_ceil(width.max(1));
        self.pool.rows(&mut x.data[..rows * width], width, least, |row, x, _| each(row, x));
    }
}

/// Computes one input's products with several matrices.
fn all<'a>(mut list: Products<'a>, rows: usize, products: &'a mut [(&Matrix, &mut Buffer)]) {
    for (matrix, out) in products {
        out.width = matrix.n_out();
        list.push(matrix, 0..rows, &mut out.data);
    }
    list.run();
}

/// Rows in ordinary memory, packed at the width of the operation that wrote them.
pub(crate) struct Buffer {
    data: Lines<f32>,
    width: usize,
}

impl Buffer {
    /// The first rows.
    pub(crate) fn rows(&self, rows: usize) -> &[f32] {
        &self.data[..rows * self.width]
    }

    /// The first rows, for writing.
    pub(crate) fn rows_mut(&mut self, rows: usize) -> &mut [f32] {
        &mut self.data[..rows * self.width]
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..][..self.width]
    }
}

/// See [`Backend::Stream`].
pub(crate) struct Stream {
    products: ProductScratch,
    selected: Selected,
    chosen: ChosenFeatures,
    by_head: ByHead,
    attention: attention::Scratch,
    chooser: attention::Chooser,
    states: states::Scratch,
}

impl Backend for Cpu {
    type Buffer = Buffer;
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type Pages = attention::Pages;
    type Stack = Vec<Matrix>;
    type Routes = Routes;
    type States = states::States;
    type Chosen = Chosen;
    type Stream = Stream;

    const EXACT_ROWS: bool = true;
    const KV_TYPES: &'static [KvType] = KvType::ALL;
    const RELEASES_PAGES: bool = true;

    fn run<R: Send>(&self, cx: &StepCx<'_>, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
        self.pool.turn(cx, work)
    }

    fn buffer(&self, rows: usize, width: usize) -> Result<Buffer> {
        let too_large = || {
            Error::new(ErrorKind::OutOfMemory, format!("cannot reserve {rows} rows of {width} activations"))
                .with_hint("use a smaller prefill chunk")
        };
        let len = rows.checked_mul(width).ok_or_else(too_large)?;
        let data = Lines::zeroed(len).map_err(|e| too_large().with_source(e))?;
        Ok(Buffer { data, width })
    }

    fn stream(&self, rows: usize, width: usize) -> Result<Stream> {
        // Its memory is no more than three such buffers', and there is an error where that is too much.
        self.buffer(rows, width.saturating_mul(3))?;
        Ok(Stream {
            products: ProductScratch::new(rows, width, self.precision),
            selected: Selected::default(),
            chosen: ChosenFeatures::default(),
            by_head: ByHead::default(),
            attention: Default::default(),
            chooser: Default::default(),
            states: Default::default(),
        })
    }

    fn pages(&self, spec: &PageSpec) -> Result<Self::Pages> {
        attention::Pages::new(spec)
    }

    fn add_page(&self, pages: &mut Self::Pages, page: u32) -> Result<()> {
        pages.add(page)
    }

    fn release_page(&self, pages: &mut Self::Pages, page: u32) {
        pages.release(page);
    }

    fn copy_page(&self, _: &mut Stream, pages: &mut Self::Pages, from: u32, to: u32) -> Result<()> {
        pages.copy(from, to)
    }

    fn page_layout(&self) -> String {
        format!("cpu 1, {}", self.precision)
    }

    fn read_pages(
        &self,
        _: &mut Stream,
        pages: &Self::Pages,
        numbers: &[u32],
        rows: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        with_rows(numbers, rows).try_for_each(|(page, rows)| pages.read(self.kernels, page, rows, out))
    }

    fn write_page(&self, _: &mut Stream, pages: &mut Self::Pages, page: u32, from: &[u8]) -> Result<()> {
        pages.write(page, from)
    }

    fn states(&self, spec: &RecurrentSpec) -> Result<Self::States> {
        Ok(states::States::new(spec))
    }

    fn add_state(&self, states: &mut Self::States, number: u32) -> Result<()> {
        states.add(number)
    }

    fn release_state(&self, states: &mut Self::States, number: u32) {
        states.release(number);
    }

    fn read_state(
        &self,
        _: &mut Stream,
        states: &Self::States,
        number: u32,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        states.read(number, out)
    }

    fn write_state(&self, _: &mut Stream, states: &mut Self::States, number: u32, from: &[u8]) -> Result<()> {
        states.write(number, from)
    }

    fn split_heads(
        &self,
        _: &mut Stream,
        x: &Buffer,
        head_dim: usize,
        rows: usize,
        [first, second]: [&mut Buffer; 2],
    ) -> Result<()> {
        for (out, half) in [(first, 0), (second, 1)] {
            out.width = x.width / 2;
            self.rows(out, rows, |row, out| {
                let halves = x.row(row).chunks_exact(head_dim).skip(half).step_by(2);
                out.chunks_exact_mut(head_dim).zip(halves).for_each(|(out, x)| out.copy_from_slice(x));
            });
        }
        Ok(())
    }

    fn recur(
        &self,
        stream: &mut Stream,
        op: &Recur<'_, Self>,
        states: &mut Self::States,
        out: &mut Buffer,
    ) -> Result<()> {
        states::recur(self, &mut stream.states, op, states, out)
    }

    fn matrix(&self, weight: Region, bias: Option<Vec<f32>>) -> Result<Matrix> {
        weight.will_need();
        Matrix::new(self.kernels, weight, bias)
    }

    fn stack(&self, weights: Vec<Region>, biases: Option<Vec<f32>>) -> Result<Vec<Matrix>> {
        let mut biases = biases.as_deref();
        let with_bias = weights.into_iter().map(|weight| {
            let own = biases.as_mut().and_then(|all| all.split_off(..weight.rows()));
            self.matrix(weight, own.map(<[f32]>::to_vec))
        });
        with_bias.collect()
    }

    fn routes(&self, _rows: usize, _n_used: usize) -> Result<Routes> {
        Ok(Routes::default())
    }

    fn vector(&self, values: Vec<f32>) -> Result<Vec<f32>> {
        Ok(values)
    }

    fn write(&self, _: &mut Stream, host: &[f32], out: &mut Buffer) -> Result<()> {
        out.data[..host.len()].copy_from_slice(host);
        Ok(())
    }

    fn read(&self, _: &mut Stream, x: &Buffer, out: &mut [f32]) -> Result<()> {
        out.copy_from_slice(&x.data[..out.len()]);
        Ok(())
    }

    fn gather(&self, _: &mut Stream, x: &Buffer, from: &[usize], out: &mut Buffer) -> Result<()> {
        out.width = x.width;
        for (to, &from) in out.data.chunks_exact_mut(x.width).zip(from) {
            to.copy_from_slice(x.row(from));
        }
        Ok(())
    }

    fn concat(&self, _: &mut Stream, [a, b]: [&Buffer; 2], rows: usize, out: &mut Buffer) -> Result<()> {
        out.width = a.width + b.width;
        self.rows(out, rows, |row, out| {
            let (left, right) = out.split_at_mut(a.width);
            left.copy_from_slice(a.row(row));
            right.copy_from_slice(b.row(row));
        });
        Ok(())
    }

    fn embed(
        &self,
        _: &mut Stream,
        table: &Matrix,
        tokens: &[TokenId],
        scale: f32,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = table.n_in();
        self.rows(out, tokens.len(), |row, x| {
            table.weight().decode(tokens[row].0 as usize, x);
            if scale != 1.0 {
                x.iter_mut().for_each(|v| *v *= scale);
            }
        });
        Ok(())
    }

    fn rms_norm(
        &self,
        _: &mut Stream,
        x: &Buffer,
        weight: &Vec<f32>,
        eps: f32,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = x.width;
        self.rows(out, rows, |row, y| self.kernels.rms_norm(x.row(row), (weight, eps), y));
        Ok(())
    }

    fn add_norm(
        &self,
        _: &mut Stream,
        x: &mut Buffer,
        y: &Buffer,
        (weight, eps): (&Vec<f32>, f32),
        rows: usize,
        _scratch: &mut Buffer,
    ) -> Result<()> {
        self.rows(x, rows, |row, x| self.kernels.add_norm(x, y.row(row), (weight, eps)));
        Ok(())
    }

    fn scale(&self, _: &mut Stream, x: &mut Buffer, factor: f32, rows: usize) -> Result<()> {
        self.rows(x, rows, |_, x| x.iter_mut().for_each(|x| *x *= factor));
        Ok(())
    }

    fn add(&self, _: &mut Stream, x: &mut Buffer, y: &Buffer, scale: f32, rows: usize) -> Result<()> {
        self.rows(x, rows, |row, x| match scale {
            1.0 => self.kernels.add(x, y.row(row)),
            _ => self.kernels.add_scaled(x, scale, y.row(row)),
        });
        Ok(())
    }

    fn blend(&self, _: &mut Stream, op: &Blend<'_, Self>, rows: usize, out: &mut [Buffer]) -> Result<()> {
        let n = op.by.width;
        for (out, weights) in out.iter_mut().zip(op.weights.chunks_exact(op.from.len() * n)) {
            self.rows(out, rows, |row, out| {
                for (from, weights) in op.from.iter().zip(weights.chunks_exact(n)) {
                    let products = weights.iter().zip(op.by.row(row)).map(|(weight, by)| weight * by);
                    self.kernels.add_scaled(out, products.fold(op.plus, |sum, x| sum + x), from.row(row));
                }
            });
        }
        Ok(())
    }

    fn match_size(
        &self,
        _: &mut Stream,
        x: &mut Buffer,
        like: &Buffer,
        least: f32,
        rows: usize,
    ) -> Result<()> {
        self.rows(x, rows, |row, x| rows::match_size(x, like.row(row), least));
        Ok(())
    }

    fn scale_elements(&self, _: &mut Stream, x: &mut Buffer, by: &Vec<f32>, rows: usize) -> Result<()> {
        self.rows(x, rows, |_, x| x.iter_mut().zip(by).for_each(|(x, by)| *x *= by));
        Ok(())
    }

    fn cut_off(&self, _: &mut Stream, x: &mut Buffer, deviations: f32, rows: usize) -> Result<()> {
        self.rows(x, rows, |_, x| rows::cut_off(x, deviations));
        Ok(())
    }

    fn gate_heads(
        &self,
        _: &mut Stream,
        x: &mut Buffer,
        gate: &Buffer,
        head_dim: usize,
        rows: usize,
    ) -> Result<()> {
        self.rows(x, rows, |row, x| {
            if head_dim == 1 {
                return self.kernels.dampen(x, gate.row(row));
            }
            for (head, gate) in x.chunks_exact_mut(head_dim).zip(gate.row(row)) {
                let share = math::sigmoid(*gate);
                head.iter_mut().for_each(|x| *x *= share);
            }
        });
        Ok(())
    }

    fn linear(
        &self,
        stream: &mut Stream,
        x: &Buffer,
        rows: usize,
        products: &mut [(&Matrix, &mut Buffer)],
    ) -> Result<()> {
        let n_in = x.width;
        let x = &x.data[..rows * n_in];
        all(stream.products.products(self.kernels, &self.pool, x, n_in, self.precision), rows, products);
        Ok(())
    }

    fn linear_heads(
        &self,
        stream: &mut Stream,
        weights: &Vec<Matrix>,
        x: &Buffer,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        heads::linear(self, stream, weights, x, rows, out)
    }

    fn norm_linear(
        &self,
        stream: &mut Stream,
        x: &Buffer,
        (weight, eps): (&Vec<f32>, f32),
        normed: &mut Buffer,
        rows: usize,
        products: &mut [(&Matrix, &mut Buffer)],
    ) -> Result<()> {
        let Some(form) = self.form(products, rows) else {
            self.rms_norm(stream, x, weight, eps, rows, normed)?;
            return self.linear(stream, normed, rows, products);
        };
        normed.width = x.width;
        let make = |row: usize, y: &mut [f32]| self.kernels.rms_norm(x.row(row), (weight, eps), y);
        self.products_of(stream, normed, rows, (products, form), make);
        Ok(())
    }

    fn gated_linear(
        &self,
        stream: &mut Stream,
        activation: Activation,
        [gate, up]: &mut [Buffer; 2],
        rows: usize,
        products: &mut [(&Matrix, &mut Buffer)],
    ) -> Result<()> {
        let Some(form) = self.form(products, rows) else {
            self.gated(stream, activation, gate, up, rows)?;
            return self.linear(stream, gate, rows, products);
        };
        let make = |row: usize, gate: &mut [f32]| self.kernels.gated(activation, gate, up.row(row));
        self.products_of(stream, gate, rows, (products, form), make);
        Ok(())
    }

    fn logits(
        &self,
        stream: &mut Stream,
        op: &Head<'_, Self>,
        x: &Buffer,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = op.matrix.n_out();
        let x = &x.data[..rows * x.width];
        let mut list = stream.products.products(self.kernels, &self.pool, x, op.matrix.n_in(), HEAD);
        list.push(op.matrix, 0..rows, &mut out.data);
        list.run();
        op.softcap.map_or(Ok(()), |cap| self.softcap(stream, out, cap, rows))
    }

    fn top(
        &self,
        stream: &mut Stream,
        op: &Head<'_, Self>,
        x: &Buffer,
        rows: usize,
        out: TopLogits<'_>,
    ) -> Result<()> {
        let x = &x.data[..rows * x.width];
        let products = stream.products.products(self.kernels, &self.pool, x, op.matrix.n_in(), HEAD);
        products.top(op.matrix, op.softcap, op.shortlist, out);
        Ok(())
    }

    fn screen(&self, head: &mut Matrix, cancel: &CancelToken) -> Result<u64> {
        if self.screens { head.screen(self.kernels, &self.pool, cancel) } else { Ok(0) }
    }

    fn route(
        &self,
        stream: &mut Stream,
        op: &Routing<'_, Self>,
        logits: &Buffer,
        rows: usize,
        out: &mut Routes,
    ) -> Result<()> {
        let [correction, scales] = [op.correction, op.scales].map(|v| v.map_or(&[][..], Vec::as_slice));
        out.select(op.spec, [correction, scales], rows, |host| self.read(stream, logits, host))
    }

    fn read_routes(&self, _: &mut Stream, routes: &Routes, _rows: usize, out: &mut Routes) -> Result<()> {
        out.copy(routes);
        Ok(())
    }

    fn write_routes(&self, _: &mut Stream, from: &Routes, out: &mut Routes) -> Result<()> {
        out.copy(from);
        Ok(())
    }

    fn experts(
        &self,
        stream: &mut Stream,
        op: &Experts<'_, Self>,
        x: &Buffer,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        experts::experts(self, stream, op, x, rows, out)
    }

    fn gated(
        &self,
        _: &mut Stream,
        activation: Activation,
        gate: &mut Buffer,
        up: &Buffer,
        rows: usize,
    ) -> Result<()> {
        self.rows(gate, rows, |row, gate| self.kernels.gated(activation, gate, up.row(row)));
        Ok(())
    }

    fn softcap(&self, _: &mut Stream, x: &mut Buffer, cap: f32, rows: usize) -> Result<()> {
        self.rows(x, rows, |_, x| self.kernels.softcap(x, cap));
        Ok(())
    }

    fn angles(
        &self,
        _: &mut Stream,
        frequencies: &[f32],
        positions: &[usize],
        amplitudes: &[f32],
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = 2 * frequencies.len();
        self.rows(out, positions.len(), |row, x| {
            let (cos, sin) = x.split_at_mut(frequencies.len());
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(frequencies) {
                let (sine, cosine) = math::sin_cos(positions[row] as f32 * frequency);
                (*sin, *cos) = (amplitudes[row] * sine, amplitudes[row] * cosine);
            }
        });
        Ok(())
    }

    fn norm_rope(
        &self,
        _: &mut Stream,
        op: &NormRope<'_, Self>,
        angles: Option<&Buffer>,
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        let norm = op.norm.map(|(weight, eps)| (&weight[..], eps));
        self.rows(x, rows, |row, x| {
            let (cos, sin) =
                angles.map_or((&[][..], &[][..]), |angles| angles.row(row).split_at(angles.width / 2));
            for head in x.chunks_exact_mut(op.head_dim) {
                self.kernels.norm_rope(&mut head[op.plain..], norm, op.layout, cos, sin);
            }
        });
        Ok(())
    }

    fn layer_norm(
        &self,
        _: &mut Stream,
        ([weight, bias], eps): ([&Vec<f32>; 2], f32),
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        self.rows(x, rows, |_, x| rows::layer_norm(x, [weight, bias], eps));
        Ok(())
    }

    fn choose(
        &self,
        stream: &mut Stream,
        op: &Choose<'_, Self>,
        pages: &mut Self::Pages,
        out: &mut Chosen,
    ) -> Result<()> {
        let buffers = [op.kv[0], op.kv[1], op.query, op.key, op.weights].map(|x| &x.data[..]);
        attention::choose((self.kernels, &self.pool), &mut stream.chooser, op, buffers, pages, out)
    }

    fn attend(
        &self,
        stream: &mut Stream,
        op: &Attend<'_, Self>,
        q: &Buffer,
        kv: Option<[&Buffer; 2]>,
        pages: &mut Self::Pages,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = op.attention.n_heads * op.attention.value_dim();
        let kv = kv.map(|kv| kv.map(|x| &x.data[..]));
        let scratch = &mut stream.attention;
        attention::attend(self.kernels, &self.pool, scratch, op, (&q.data, kv), pages, &mut out.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::conformance::{Rounds, conformance};

    impl Rounds for Cpu {
        fn rounds_to_bf16(&self) -> bool {
            self.precision == Precision::Bf16
        }
        fn rounds_latent_weights(&self) -> bool {
            true
        }
    }

    mod one_thread {
        use super::*;
        conformance!(Cpu::new(1, Precision::Fast).unwrap());
        conformance!(Cpu::new(1, Precision::Fast).unwrap(); top_features);
    }

    mod three_threads {
        use super::*;
        conformance!(Cpu::new(3, Precision::Fast).unwrap());
        conformance!(Cpu::new(3, Precision::Fast).unwrap(); top_features);
    }

    mod exact {
        use super::*;
        conformance!(Cpu::new(2, Precision::Exact).unwrap());
        conformance!(Cpu::new(2, Precision::Exact).unwrap(); top_features);
    }

    mod bf16 {
        use super::*;
        conformance!(Cpu::new(2, Precision::Bf16).unwrap());
        conformance!(Cpu::new(2, Precision::Bf16).unwrap(); top_features);
    }
}
