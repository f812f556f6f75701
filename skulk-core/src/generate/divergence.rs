//! How far are a model's predictions from another's? Their distributions of each next token of a text, compared.

use serde::Serialize;

use super::logits::{ROWS, scored, text_of};
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::generate::{Model, Prompt};
use crate::math;

/// How far a model's predictions are from an exact one's, over a text.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Divergence {
    /// Tokens of the text. Behind each of them the next one is predicted.
    pub tokens: usize,
    /// Mean of the Kullback-Leibler divergences `Σ p ln(p / q)` of the model's probabilities q from the exact ones p,
    /// in nats.
    pub mean_kl: f64,
    /// The largest of them.
    pub max_kl: f64,
    /// Part of the predictions in which both find the same token most probable, 0 to 1; of equally probable ones the
    /// lower id counts.
    pub top1_agreement: f64,
}

impl Model {
    /// Compares this model's predictions with an `exact` one's, behind every token of a text: what an option costs that
    /// changes results, such as [`EngineOptions::ffn_top_features`](crate::EngineOptions::ffn_top_features), or
    /// quantised weights. The exact model's tokenizer makes tokens of the text. Sums are in f64. Ends within one layer
    /// when `cancel` is cancelled.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// # use skulk::{CancelToken, EngineOptions, LoadOptions, Model};
    /// let options = LoadOptions::default();
    /// let exact = Model::open(path, &options)?;
    /// let sparse = options.engine_options(EngineOptions::default().ffn_top_features(86));
    /// let sparse = Model::open(path, &sparse)?;
    /// let found = sparse.divergence(&exact, "Once upon a time there was a dog.", &CancelToken::new())?;
    /// assert!(found.mean_kl > 0.0 && found.mean_kl < found.max_kl);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the vocabularies differ, for an empty text and for tokens that are in no
    /// vocabulary; [`ErrorKind::ContextOverflow`] for a text that is too long for one of the models;
    /// [`ErrorKind::OutOfMemory`], [`ErrorKind::Cancelled`], [`ErrorKind::EngineFailed`].
    pub fn divergence(
        &self,
        exact: &Model,
        text: impl Into<Prompt>,
        cancel: &CancelToken,
    ) -> Result<Divergence> {
        let [own, other] = [self, exact].map(|model| model.arch().vocab_size);
        if own != other {
            return Err(Error::argument(
                "exact",
                format!("expected models of one vocabulary, found {own} and {other} tokens"),
            )
            .with_hint("compare a model with another form of itself"));
        }
        let sessions = [self.session()?, exact.session()?];
        let tokens = text_of(&sessions[1], text.into(), self.context().min(exact.context()))?;
        // Their stages may take different numbers of rows at a time.
        let mut rows = [0, 1].map(|_| Vec::new());
        let [mut model, mut exact] = [
            scored(&sessions[0], tokens.clone(), ROWS, cancel)?,
            scored(&sessions[1], tokens.clone(), ROWS, cancel)?,
        ];
        let mut sums = Divergence { tokens: tokens.len(), ..Divergence::default() };
        for _ in 0..tokens.len() {
            cancel.check()?;
            for (rows, scores) in rows.iter_mut().zip([&mut model, &mut exact]) {
                if rows.is_empty() {
                    rows.extend(scores.next().transpose()?.unwrap_or_default());
                }
                if rows.len() < own {
                    return Err(Error::new(ErrorKind::Internal, "logits of a token are missing"));
                }
            }
            let [found, expected] = &mut rows;
            sums.see(&expected[..own], &found[..own]);
            rows.iter_mut().for_each(|rows| drop(rows.drain(..own)));
        }
        let n = tokens.len() as f64;
        Ok(Divergence { mean_kl: sums.mean_kl / n, top1_agreement: sums.top1_agreement / n, ..sums })
    }
}

impl Divergence {
    /// Adds one prediction, by exact logits and the model's.
    fn see(&mut self, exact: &[f32], found: &[f32]) {
        let [log_p, log_q] = [exact, found].map(normaliser);
        let terms = exact.iter().zip(found).map(|(&p, &q)| {
            let (p, q) = (f64::from(p) - log_p, f64::from(q) - log_q);
            let share = math::exp(p);
            if share > 0.0 { share * (p - q) } else { 0.0 }
        });
        let kl: f64 = terms.sum();
        // It is never negative, its roundings may be.
        let kl = if kl < 0.0 { 0.0 } else { kl };
        self.mean_kl += kl;
        if kl.is_nan() || kl > self.max_kl {
            self.max_kl = kl;
        }
        self.top1_agreement += f64::from(u8::from(largest(exact) == largest(found)));
    }
}

/// The logarithm of the sum of exponentials: what turns logits into log-probabilities.
fn normaliser(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + math::ln(logits.iter().map(|&x| math::exp(f64::from(x) - most)).sum())
}

fn largest(logits: &[f32]) -> Option<usize> {
    let all = logits.iter().enumerate();
    all.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergences_are_those_of_the_formula() {
        let mut found = Divergence::default();
        // Probabilities 1/2, 1/4, 1/4 from 1/4, 1/4, 1/2.
        let logits = |p: [f32; 3]| p.map(|p| p.ln() + 3.0);
        found.see(&logits([0.5, 0.25, 0.25]), &logits([0.25, 0.25, 0.5]));
        let expected = 0.5 * 2.0f64.ln() - 0.25 * 2.0f64.ln();
        assert!((found.mean_kl - expected).abs() < 1e-7 && found.max_kl == found.mean_kl);
        assert_eq!(found.top1_agreement, 0.0);
        found.see(&[0.0, 80.0, -900.0], &[5.0, 85.0, -895.0]);
        assert!((found.mean_kl - expected).abs() < 1e-7 && found.top1_agreement == 1.0);
        // So little is no probability any more, whatever the other makes of it.
        found.see(&[0.0, -900.0], &[0.0, f32::NEG_INFINITY]);
        assert!((found.mean_kl - expected).abs() < 1e-7);
        // What is no number is not hidden.
        found.see(&[0.0, 1.0], &[f32::NAN, 1.0]);
        assert!(found.mean_kl.is_nan() && found.max_kl.is_nan());
    }
}
