//! How does the CPU compute experts? Expert by expert, each for all rows that take it.
//!
//! Results wait by place until every expert is done, because a row adds them up in the order of its
//! selection, whatever the order in which they were computed.

use super::cpu::{Buffer, Cpu, Stream};
use super::{math, product};
use crate::engine::backend::{Experts, Routes};
use crate::error::{Error, ErrorKind, Result};

/// Room for the rows of one expert, and for everybody's results.
#[derive(Default)]
pub(super) struct Selected {
    /// Places in the routes, by expert.
    places: Vec<u32>,
    /// Rows that take one expert, and what it makes of them.
    input: Vec<f32>,
    output: Vec<f32>,
    /// Results by place, `[rows · n_used, width]`.
    results: Vec<f32>,
}

impl Selected {
    /// Makes the rooms large enough for `rows` rows.
    fn prepare(&mut self, routes: &Routes, rows: usize, [n_in, n_out]: [usize; 2]) -> Result<()> {
        reserve(&mut self.input, rows.checked_mul(n_in))?;
        reserve(&mut self.output, rows.checked_mul(n_out))?;
        reserve(&mut self.results, routes.ids.len().checked_mul(n_out))?;
        routes.by_expert(&mut self.places);
        Ok(())
    }
}

/// Grows to `len` elements; shorter steps keep the room of longer ones.
fn reserve(room: &mut Vec<f32>, len: Option<usize>) -> Result<()> {
    let more = len.unwrap_or(usize::MAX).saturating_sub(room.len());
    room.try_reserve_exact(more).map_err(|e| {
        Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for the results of experts")
            .with_hint("use a smaller prefill chunk")
            .with_source(e)
    })?;
    room.resize(room.len() + more, 0.0);
    Ok(())
}

/// See [`Backend::experts`](crate::engine::backend::Backend::experts).
pub(super) fn experts(
    stream: &mut Stream,
    op: &Experts<'_, Cpu>,
    x: &Buffer,
    rows: usize,
    inner: &mut [Buffer; 2],
    out: &mut Buffer,
) -> Result<()> {
    let Experts { activation, routes, gate: to_gate, up: to_up, down: to_down, memory } = *op;
    let Stream { rooms, selected, .. } = stream;
    let n_out = to_down.first().map_or(0, |down| down.n_out());
    selected.prepare(routes, rows, [x.width, n_out])?;
    let Selected { places, input, output, results } = selected;
    let [gate, up] = inner;
    routes.in_memory(places, memory, |range| {
        for places in routes.same_expert(&places[range]) {
            let expert = routes.expert(places[0]) as usize;
            for (place, input) in places.iter().zip(input.chunks_exact_mut(x.width)) {
                input.copy_from_slice(x.row(*place as usize / routes.n_used));
            }
            let (rows, width) = (places.len(), to_gate[expert].n_out());
            product::multiply(rooms, &to_gate[expert], input, rows, &mut gate.data);
            product::multiply(rooms, &to_up[expert], input, rows, &mut up.data);
            math::gated(activation, &mut gate.data[..rows * width], &up.data[..rows * width]);
            product::multiply(rooms, &to_down[expert], &gate.data, rows, output);
            for (place, output) in places.iter().zip(output.chunks_exact(n_out)) {
                results[*place as usize * n_out..][..n_out].copy_from_slice(output);
            }
        }
        Ok::<_, Error>(())
    })?;
    out.width = n_out;
    let weighted =
        routes.weights.chunks_exact(routes.n_used).zip(results.chunks_exact(routes.n_used * n_out));
    for (sum, (weights, results)) in out.data.chunks_exact_mut(n_out).zip(weighted) {
        sum.fill(0.0);
        for (weight, result) in weights.iter().zip(results.chunks_exact(n_out)) {
            sum.iter_mut().zip(result).for_each(|(sum, x)| *sum += weight * x);
        }
    }
    Ok(())
}
