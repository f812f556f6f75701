//! How does the CPU compute experts? All experts' products at once, each for the rows that take it; or those of
//! as many experts as may be in memory at a time.

use super::kernels::{Matrix, Part};
use super::lines::clear;
use super::{Buffer, Cpu, LEAST_ELEMENTS, Stream};
use crate::engine::Precision;
use crate::engine::backend::{Experts, Routes};
use crate::error::{Error, ErrorKind, Result};

/// Scratch memory for what experts compute. Its rows are places in the routes, ordered by expert.
#[derive(Default)]
pub(super) struct Selected {
    /// Place by row, and row by place.
    places: Vec<u32>,
    rows: Vec<u32>,
    /// Copies of the rows' inputs, where a matrix takes numbers that are not rounded.
    input: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    output: Vec<f32>,
    /// Rows of each expert.
    parts: Vec<Part>,
}

impl Selected {
    /// Room for what `x_rows` rows take, of which all experts or some are here: as much in either case, so that another
    /// step, of which more are here, allocates nothing.
    fn prepare(
        &mut self,
        routes: &Routes,
        x_rows: usize,
        copied: bool,
        [n_in, width, n_out]: [usize; 3],
    ) -> Result<()> {
        let most = x_rows.saturating_mul(routes.n_used).max(routes.ids.len());
        self.places.clear();
        self.places.reserve(most);
        routes.by_expert(&mut self.places);
        let rows = self.places.len();
        self.rows.clear();
        self.rows.reserve(most);
        self.rows.resize(rows, 0);
        self.parts.clear();
        self.parts.reserve(most);
        for (row, place) in self.places.iter().enumerate() {
            self.rows[*place as usize] = row as u32;
        }
        reserve(&mut self.input, if copied { most.checked_mul(n_in) } else { Some(0) })?;
        reserve(&mut self.gate, most.checked_mul(width))?;
        reserve(&mut self.up, most.checked_mul(width))?;
        reserve(&mut self.output, most.checked_mul(n_out))
    }
}

/// Grows to `len` elements; shorter steps keep the memory of longer ones.
pub(super) fn reserve(scratch: &mut Vec<f32>, len: Option<usize>) -> Result<()> {
    let more = len.unwrap_or(usize::MAX).saturating_sub(scratch.len());
    scratch.try_reserve_exact(more).map_err(|e| {
        Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for the results of products")
            .with_hint("use a smaller prefill chunk")
            .with_source(e)
    })?;
    scratch.resize(scratch.len() + more, 0.0);
    Ok(())
}

/// See [`Backend::experts`](crate::engine::backend::Backend::experts).
pub(super) fn experts(
    cpu: &Cpu,
    stream: &mut Stream,
    op: &Experts<'_, Cpu>,
    x: &Buffer,
    rows: usize,
    out: &mut Buffer,
) -> Result<()> {
    out.width = compute(cpu, stream, op, x, rows)?;
    let (Selected { rows: row_of, output, .. }, n_out) = (&stream.selected, out.width);
    let (routes, n_used) = (op.routes, op.routes.n_used);
    cpu.rows(out, rows, |row, sum| {
        clear(sum);
        // In the order of selection, whatever the order of computing.
        for place in row * n_used..(row + 1) * n_used {
            let result = &output[row_of[place] as usize * n_out..][..n_out];
            let weight = if op.on_input { 1.0 } else { routes.weights[place] };
            cpu.kernels.add_scaled(sum, weight, result);
        }
    });
    Ok(())
}

/// What the expert of each place gives: `[places, hidden]`, not weighted but where its input is.
pub(crate) fn results(
    cpu: &Cpu,
    stream: &mut Stream,
    op: &Experts<'_, Cpu>,
    (x, rows): (&Buffer, usize),
    out: &mut [f32],
) -> Result<()> {
    let n_out = compute(cpu, stream, op, x, rows)?;
    let Selected { rows: row_of, output, .. } = &stream.selected;
    for (to, row) in out.chunks_exact_mut(n_out.max(1)).zip(row_of) {
        to.copy_from_slice(&output[*row as usize * n_out..][..n_out]);
    }
    Ok(())
}

/// Lists each expert's rows, of which there are so many, in the form that its matrices take them; whether all take rounded ones.
fn list<'a>(
    parts: &mut Vec<Part>,
    precision: Precision,
    experts: impl Iterator<Item = (usize, usize)>,
    matrices: impl Fn(usize) -> [Option<&'a Matrix>; 2],
) -> bool {
    parts.clear();
    let mut first = 0;
    for (expert, n) in experts {
        let forms = matrices(expert).into_iter().flatten().map(|matrix| matrix.form(precision, n));
        let Some(form) = forms.reduce(|a, b| Some(a?.both(b?))).flatten() else { return false };
        parts.push(Part { rows: first..first + n, form });
        first += n;
    }
    true
}

/// Leaves the results in the stream's memory, ordered by expert; returns their width.
fn compute(cpu: &Cpu, stream: &mut Stream, op: &Experts<'_, Cpu>, x: &Buffer, rows: usize) -> Result<usize> {
    let Experts { activation, routes, gate: to_gate, up: to_up, down: to_down, on_input, memory } = *op;
    let Stream { products: scratch, selected, .. } = stream;
    let (Some(first_gate), Some(first_down)) = (to_gate.first(), to_down.first()) else {
        return Err(Error::new(ErrorKind::Internal, "a layer without experts"));
    };
    let (n_in, width, n_out) = (x.width, first_gate.n_out(), first_down.n_out());
    let rounded = |matrix: &Matrix| matrix.form(cpu.precision, rows).is_some();
    let copied = rows > 1 && !to_gate.iter().chain(to_up.into_iter().flatten()).all(rounded);
    selected.prepare(routes, rows, copied, [n_in, width, n_out])?;
    let Selected { places, input, gate, up, output, parts, .. } = selected;

    routes.in_memory(places, memory, |range| {
        let places = &places[range.clone()];
        let n = places.len();
        let (gate, up) = (&mut gate[..n * width], &mut up[..n * width]);
        let experts = || routes.same_expert(places).map(|same| (routes.expert(same[0]) as usize, same.len()));
        let to_gates = |expert: usize| [Some(&to_gate[expert]), to_up.map(|to_up| &to_up[expert])];
        let input_of = |row: usize| x.row(routes.row(places[row]));
        let mut products = if rows == 1 {
            scratch.products(cpu.kernels, &cpu.pool, x.row(0), n_in, cpu.precision)
        } else if !copied {
            let rounded = list(parts, cpu.precision, experts(), to_gates);
            debug_assert!(rounded, "whether rows are rounded is a matter of the types");
            scratch.products_from(cpu.kernels, &cpu.pool, (n, n_in), (cpu.precision, parts), input_of)
        } else {
            let input = &mut input[..n * n_in];
            let least = LEAST_ELEMENTS.div_ceil(n_in);
            cpu.pool.rows(input, n_in, least, |row, to, _| to.copy_from_slice(input_of(row)));
            scratch.products(cpu.kernels, &cpu.pool, input, n_in, cpu.precision)
        };
        let (mut gates, mut ups, mut row) = (&mut *gate, &mut *up, 0);
        for same in routes.same_expert(places) {
            let expert = routes.expert(same[0]) as usize;
            let own = if rows == 1 { 0..1 } else { row..row + same.len() };
            let (gate, up);
            (gate, gates) = gates.split_at_mut(same.len() * width);
            (up, ups) = ups.split_at_mut(same.len() * width);
            products.push(&to_gate[expert], own.clone(), gate);
            if let Some(to_up) = to_up {
                products.push(&to_up[expert], own, up);
            }
            row += same.len();
        }
        products.run();

        if on_input {
            let n_up = to_up.map_or(0, |_| n);
            for (place, x) in places.iter().zip(gate.chunks_exact_mut(width)) {
                x.iter_mut().for_each(|x| *x *= routes.weights[*place as usize]);
            }
            for (place, x) in places[..n_up].iter().zip(up.chunks_exact_mut(width)) {
                x.iter_mut().for_each(|x| *x *= routes.weights[*place as usize]);
            }
        }
        let (up, precision) = (&*up, cpu.precision);
        let make = |row: usize, gate: &mut [f32]| {
            cpu.kernels.gated(activation, gate, &up[row * width..][..width]);
        };
        let mut products = if list(parts, precision, experts(), |expert| [Some(&to_down[expert]), None]) {
            scratch.products_of(cpu.kernels, &cpu.pool, (gate, width), (precision, parts), make)
        } else {
            cpu.pool.rows(gate, width, LEAST_ELEMENTS.div_ceil(width), |row, gate, _| make(row, gate));
            scratch.products(cpu.kernels, &cpu.pool, gate, width, precision)
        };
        let (mut outputs, mut row) = (&mut output[range.start * n_out..range.end * n_out], 0);
        for same in routes.same_expert(places) {
            let output;
            (output, outputs) = outputs.split_at_mut(same.len() * n_out);
            products.push(&to_down[routes.expert(same[0]) as usize], row..row + same.len(), output);
            row += same.len();
        }
        products.run();
        Ok::<_, Error>(())
    })?;

    Ok(n_out)
}
