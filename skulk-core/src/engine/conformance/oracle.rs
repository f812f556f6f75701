//! What should each operation give? Naive scalar formulas in f64, straight from the definitions.

use crate::arch::{Activation, AttentionSpec, ExpertsSpec, RopeLayout, Scoring};

/// `x / sqrt(mean(x²) + eps) · weight`.
pub(in crate::engine) fn rms_norm(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(weight).map(|(x, w)| x / (mean + eps).sqrt() * w).collect()
}

pub(in crate::engine) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(in crate::engine) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `activation(gate) · up`.
pub(in crate::engine) fn gated(of: Activation, gate: f64, up: f64) -> f64 {
    match of {
        Activation::ClampedSilu(limit) => {
            let limit = f64::from(limit);
            activation(of, gate).min(limit) * up.clamp(-limit, limit)
        }
        Activation::ClampedGlu { alpha, limit } => {
            let (alpha, limit) = (f64::from(alpha), f64::from(limit));
            let gate = gate.min(limit);
            gate * sigmoid(alpha * gate) * (up.clamp(-limit, limit) + 1.0)
        }
        Activation::SquaredRelu => activation(of, gate),
        _ => activation(of, gate) * up,
    }
}

/// Without bounds.
pub(in crate::engine) fn activation(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu | Activation::ClampedSilu(_) => x * sigmoid(x),
        Activation::ClampedGlu { alpha, .. } => x * sigmoid(f64::from(alpha) * x),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Activation::SquaredRelu => x.max(0.0).powi(2),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
    }
}

/// `2/√π · ∫ exp(-t²)` from 0 to x, by Simpson's rule.
fn erf(x: f64) -> f64 {
    const STEPS: usize = 1000;
    let h = x / STEPS as f64;
    let sum: f64 = (0..=STEPS)
        .map(|i| {
            let weight = [1.0, 4.0, 2.0][if i == 0 || i == STEPS { 0 } else { 2 - i % 2 }];
            weight * (-(i as f64 * h).powi(2)).exp()
        })
        .sum();
    std::f64::consts::FRAC_2_SQRT_PI * sum * h / 3.0
}

pub(in crate::engine) fn softcap(x: f64, cap: f64) -> f64 {
    cap * (x / cap).tanh()
}

/// Rotates the first `2 · frequencies` elements of a head.
pub(in crate::engine) fn rotate(head: &mut [f64], layout: RopeLayout, frequencies: &[f32], position: usize) {
    for (i, &frequency) in frequencies.iter().enumerate() {
        let (a, b) = match layout {
            RopeLayout::Halves => (i, i + frequencies.len()),
            RopeLayout::Pairs => (2 * i, 2 * i + 1),
        };
        let (sin, cos) = (position as f64 * f64::from(frequency)).sin_cos();
        (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
    }
}

/// The experts that a row takes by its logits, best first, and their weights: no two scores are as good as equal.
pub(in crate::engine) fn route(spec: &ExpertsSpec, correction: &[f64], logits: &[f64]) -> Vec<(u32, f64)> {
    let total: f64 = logits.iter().map(|x| x.exp()).sum();
    let scores: Vec<f64> = match spec.scoring {
        Scoring::Softmax => logits.iter().map(|x| x.exp() / total).collect(),
        Scoring::Sigmoid => logits.iter().map(|x| sigmoid(*x)).collect(),
    };
    let choice: Vec<f64> =
        scores.iter().enumerate().map(|(e, score)| score + correction.get(e).unwrap_or(&0.0)).collect();
    let best_first = |scores: &[f64]| {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        order
    };
    let (n_groups, groups_used) = spec.groups.map_or((1, 1), |groups| (groups.n_groups, groups.n_used));
    let of_group = logits.len() / n_groups;
    let group_scores: Vec<f64> = choice
        .chunks(of_group)
        .map(|group| best_first(group).iter().take(2).map(|&e| group[e]).sum())
        .collect();
    let groups = &best_first(&group_scores)[..groups_used];
    let open = best_first(&choice).into_iter().filter(|e| groups.contains(&(e / of_group)));
    let taken: Vec<usize> = open.take(spec.n_used).collect();
    let sum: f64 = if spec.normalise { taken.iter().map(|&e| scores[e]).sum() } else { 1.0 };
    taken.iter().map(|&e| (e as u32, scores[e] / sum * f64::from(spec.scale))).collect()
}

/// The whole sequence's attention; `q`, `k`, `v` are `[position, heads · head dim]`. Of latent vectors, these are the values,
/// and keys what lies behind them.
pub(in crate::engine) fn attention(
    spec: &AttentionSpec,
    sinks: Option<&[f64]>,
    [q, k, v]: [&[f64]; 3],
) -> Vec<f64> {
    if let Some(latent) = spec.latent {
        let both = v.chunks(latent.rank).zip(k.chunks(spec.head_dim - latent.rank));
        let keys: Vec<f64> = both.flat_map(|(v, k)| [v, k].concat()).collect();
        let spec = AttentionSpec { latent: None, ..spec.clone() };
        let all = attention(&spec, sinks, [q, &keys, &keys]);
        return all.chunks(spec.head_dim).flat_map(|head| head[..latent.rank].to_vec()).collect();
    }
    let (dim, group) = (spec.head_dim, spec.n_heads / spec.n_kv_heads);
    let part = |x: &[f64], heads: usize, position: usize, head: usize| {
        x[(position * heads + head) * dim..][..dim].to_vec()
    };
    let mut out = Vec::with_capacity(q.len());
    for position in 0..q.len() / (spec.n_heads * dim) {
        for head in 0..spec.n_heads {
            let query = part(q, spec.n_heads, position, head);
            let seen = |other: &usize| spec.window.is_none_or(|window| *other >= window.first(position));
            let seen: Vec<usize> = (0..=position).filter(seen).collect();
            let scores: Vec<f64> = seen
                .iter()
                .map(|&other| {
                    let key = part(k, spec.n_kv_heads, other, head / group);
                    let score = dot(&query, &key) * f64::from(spec.scale);
                    spec.softcap.map_or(score, |cap| softcap(score, f64::from(cap)))
                })
                .collect();
            let sink = sinks.map_or(f64::NEG_INFINITY, |sinks| sinks[head]);
            let most = scores.iter().copied().fold(sink, f64::max);
            let weights = || scores.iter().map(|score| (score - most).exp());
            let total = weights().sum::<f64>() + (sink - most).exp();
            let mut sum = vec![0.0; dim];
            for (&other, weight) in seen.iter().zip(weights()) {
                let value = part(v, spec.n_kv_heads, other, head / group);
                sum.iter_mut().zip(value).for_each(|(sum, v)| *sum += weight / total * v);
            }
            out.extend(sum);
        }
    }
    out
}
