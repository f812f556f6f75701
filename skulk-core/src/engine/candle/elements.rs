//! What is computed element by element, and head by head?

use candle_core::{D, Result as CandleResult, Tensor};
use candle_nn::{ops, rotary_emb};

use super::{Buffer, Tensors, failed};
use crate::arch::{Activation, RopeLayout};
use crate::engine::backend::{Blend, NormRope};
use crate::error::Result;
use crate::math;

/// `activation(gate) · up`.
pub(super) fn gated(activation: Activation, gate: &Tensor, up: &Tensor) -> CandleResult<Tensor> {
    match activation {
        Activation::Silu => gate.silu()? * up,
        Activation::ClampedSilu(limit) => gate.silu()?.minimum(limit)? * up.clamp(-limit, limit)?,
        Activation::ClampedGlu { alpha, limit } => {
            let gate = gate.minimum(limit)?;
            let share = candle_nn::ops::sigmoid(&(&gate * f64::from(alpha))?)?;
            (gate * share)? * (up.clamp(-limit, limit)? + 1.0)?
        }
        Activation::GeluTanh => gate.gelu()? * up,
        Activation::Gelu => gate.gelu_erf()? * up,
        Activation::SquaredRelu => gate.relu()?.sqr(),
    }
}

/// `cap · tanh(x / cap)`.
pub(super) fn softcap(x: &Tensor, cap: f32) -> CandleResult<Tensor> {
    let cap = f64::from(cap);
    (x / cap)?.tanh()? * cap
}

/// See [`Backend::norm_rope`](crate::engine::backend::Backend::norm_rope).
pub(super) fn norm_rope(
    op: &NormRope<'_, Tensors>,
    angles: Option<&Buffer>,
    x: Tensor,
) -> CandleResult<Tensor> {
    let dim = op.head_dim;
    let (rows, width) = x.dims2()?;
    let mut heads = x.reshape(((), dim))?;
    if let Some((weight, eps)) = op.norm {
        heads = ops::rms_norm(&heads, weight, eps)?;
    }
    let Some(angles) = angles else { return heads.reshape((rows, width)) };
    // Every row is a batch entry of one position, with angles of its own.
    let heads = heads.reshape((rows, (), 1, dim))?;
    let angles = angles.rows(0, rows)?;
    let half = angles.dim(1)? / 2;
    let [cos, sin] = [0, half].map(|at| angles.narrow(1, at, half)?.contiguous()?.unsqueeze(1));
    let rotate = match op.layout {
        RopeLayout::Halves => rotary_emb::rope,
        RopeLayout::Pairs => rotary_emb::rope_i,
    };
    let turning = heads.narrow(D::Minus1, op.plain, 2 * half)?.contiguous()?;
    let behind = op.plain + 2 * half;
    let parts = [
        heads.narrow(D::Minus1, 0, op.plain)?,
        rotate(&turning, &cos?, &sin?)?,
        heads.narrow(D::Minus1, behind, dim - behind)?,
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| part.elem_count() > 0).collect();
    Tensor::cat(&parts, D::Minus1)?.reshape((rows, width))
}

/// See [`Backend::blend`](crate::engine::backend::Backend::blend).
pub(super) fn blend(op: &Blend<'_, Tensors>, rows: usize, out: &mut [Buffer]) -> Result<()> {
    let shares = || {
        let by = op.by.rows(0, rows)?;
        let (_, n) = by.dims2()?;
        by.matmul(&op.weights.reshape(((), n))?.t()?)? + f64::from(op.plus)
    };
    let shares = shares().map_err(failed)?;
    for (i, out) in out.iter_mut().enumerate() {
        for (j, from) in op.from.iter().enumerate() {
            let share = shares.narrow(1, i * op.from.len() + j, 1);
            out.update(rows, |x| x + from.rows(0, rows)?.broadcast_mul(&share?)?)?;
        }
    }
    Ok(())
}

/// See [`Backend::match_size`](crate::engine::backend::Backend::match_size).
pub(super) fn match_size(x: &Tensor, like: &Tensor, least: f32) -> CandleResult<Tensor> {
    let mean = |x: &Tensor| x.sqr()?.mean_keepdim(D::Minus1);
    let factor = mean(like)?.div(&mean(x)?.maximum(least)?)?.sqrt()?;
    x.broadcast_mul(&factor)
}

/// See [`Backend::cut_off`](crate::engine::backend::Backend::cut_off).
pub(super) fn cut_off(x: &Tensor, deviations: f32) -> CandleResult<Tensor> {
    let above = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let deviation = above.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
    above.broadcast_sub(&(deviation * f64::from(deviations))?)?.maximum(0f32)
}

/// Of each `2 · head_dim` elements the first half, and the second.
pub(super) fn halves(x: &Tensor, head_dim: usize) -> CandleResult<[Tensor; 2]> {
    let (rows, width) = x.dims2()?;
    let both = x.reshape((rows, (), 2, head_dim))?;
    let half = |at: usize| both.narrow(2, at, 1)?.reshape((rows, width / 2));
    Ok([half(0)?, half(1)?])
}

/// See [`Backend::angles`](crate::engine::backend::Backend::angles).
pub(super) fn angles(frequencies: &[f32], positions: &[usize], amplitudes: &[f32]) -> Vec<f32> {
    let mut values = Vec::with_capacity(2 * frequencies.len() * positions.len());
    for (&position, amplitude) in positions.iter().zip(amplitudes) {
        let angle = |frequency: &f32| position as f32 * frequency;
        values.extend(frequencies.iter().map(|f| amplitude * math::sin_cos(angle(f)).1));
        values.extend(frequencies.iter().map(|f| amplitude * math::sin_cos(angle(f)).0));
    }
    values
}
