//! How do tensors compute experts? Expert by expert, each on the gathered rows that take it.

use candle_core::{Device, Result as CandleResult, Tensor};

use super::{Tensors, gated};
use crate::engine::backend::Experts;

/// See [`Backend::experts`](crate::engine::backend::Backend::experts); `x` is `[rows, hidden]`.
pub(super) fn experts(device: &Device, op: &Experts<'_, Tensors>, x: &Tensor) -> CandleResult<Tensor> {
    let Experts { activation, routes, gate: to_gate, up: to_up, down: to_down, on_input, .. } = *op;
    let (n_used, rows) = (routes.n_used, x.dim(0)?);
    let mut places = Vec::new();
    routes.by_expert(&mut places);
    let mut results = Vec::new();
    for places in places.chunk_by(|&a, &b| routes.ids[a as usize] == routes.ids[b as usize]) {
        let expert = routes.ids[places[0] as usize] as usize;
        let (Some(to_gate), Some(to_down)) = (to_gate.get(expert), to_down.get(expert)) else {
            candle_core::bail!("expected one of {} experts, found another", to_gate.len());
        };
        let from: Vec<u32> = places.iter().map(|&place| place / n_used as u32).collect();
        let x = x.index_select(&Tensor::from_vec(from, places.len(), device)?, 0)?;
        let mut gate = to_gate.multiply(&x)?;
        let mut up = match to_up.and_then(|to_up| to_up.get(expert)) {
            Some(to_up) => to_up.multiply(&x)?,
            None => gate.clone(),
        };
        if on_input {
            let weights = places.iter().map(|&place| routes.weights[place as usize]).collect();
            let weights = Tensor::from_vec(weights, (places.len(), 1), device)?;
            (gate, up) = (gate.broadcast_mul(&weights)?, up.broadcast_mul(&weights)?);
        }
        let inner = gated(activation, &gate, &up)?;
        results.push(to_down.multiply(&inner)?);
    }
    let results = Tensor::cat(&results, 0)?;
    // Where the result of each place lies.
    let mut at = vec![0; places.len()];
    for (result, &place) in places.iter().enumerate() {
        at[place as usize] = result as u32;
    }
    let mut sum: Option<Tensor> = None;
    for selection in 0..n_used {
        let of_row = |row: usize| row * n_used + selection;
        let at = Tensor::from_iter((0..rows).map(|row| at[of_row(row)]), device)?;
        let weight = |row: usize| if on_input { 1.0 } else { routes.weights[of_row(row)] };
        let weights = (0..rows).map(weight).collect();
        let weights = Tensor::from_vec(weights, (rows, 1), device)?;
        let weighted = results.index_select(&at, 0)?.broadcast_mul(&weights)?;
        sum = Some(match sum {
            Some(sum) => (sum + weighted)?,
            None => weighted,
        });
    }
    sum.ok_or_else(|| candle_core::Error::msg("expected at least one expert for each row, found none"))
}
