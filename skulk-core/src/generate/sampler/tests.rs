//! Are tokens drawn as options say?

use super::*;

fn frequencies(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
    const DRAWS: usize = 40_000;
    let mut counts = vec![0.0; logits.len()];
    let mut sampler = Sampler::new(sampling);
    for _ in 0..DRAWS {
        let token = sampler.sample(&mut logits.to_vec(), &[]).unwrap();
        counts[token.0 as usize] += 1.0 / DRAWS as f64;
    }
    counts
}

/// Five standard deviations of a frequency over 40,000 draws.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 5.0 * (0.25f64 / 40_000.0).sqrt()
}

#[test]
fn draws_follow_the_softmax() {
    let logits = [1.0, 2.0, 0.5, -1.0];
    for temperature in [0.5, 1.0, 2.0] {
        let weights: Vec<f64> =
            logits.iter().map(|&l| (f64::from(l) / f64::from(temperature)).exp()).collect();
        let total: f64 = weights.iter().sum();
        let found = frequencies(Sampling::default().temperature(temperature).seed(1), &logits);
        assert!(found.iter().zip(&weights).all(|(f, w)| near(*f, w / total)), "{found:?}");
    }
}

#[test]
fn truncations_keep_what_they_say() {
    let logits: Vec<f32> = [0.5f32, 0.25, 0.15, 0.1].iter().map(|p| p.ln()).collect();
    let base = Sampling::default().temperature(1.0);
    let kept = |sampling: Sampling| frequencies(sampling, &logits).iter().filter(|f| **f > 0.0).count();
    assert_eq!(kept(base.clone()), 4);
    assert_eq!(kept(base.clone().top_k(2)), 2);
    assert_eq!(kept(base.clone().top_p(0.74)), 2);
    assert_eq!(kept(base.clone().top_p(0.76)), 3);
    assert_eq!(kept(base.clone().min_p(0.29)), 3);
    assert_eq!(kept(base.clone().min_p(0.31)), 2);
    let two = frequencies(base.top_k(2), &logits);
    assert!(near(two[0], 2.0 / 3.0));
}

#[test]
fn penalties_look_at_the_window() {
    let mut sampler = Sampler::new(Sampling::default().repetition_penalty(2.0).penalty_window(2));
    let mut logits = [4.0, 3.9, -1.0];
    let history = [TokenId(1), TokenId(0), TokenId(2)];
    assert_eq!(sampler.sample(&mut logits, &history).unwrap(), TokenId(1));
    assert_eq!(logits, [2.0, 3.9, -2.0]);
    let mut sampler = Sampler::new(Sampling::default().presence_penalty(0.5).frequency_penalty(1.0));
    let mut logits = [4.0, 3.9];
    sampler.sample(&mut logits, &[TokenId(0), TokenId(0)]).unwrap();
    assert_eq!(logits, [1.5, 3.9]);
}

#[test]
fn the_seed_fixes_the_draws() {
    let draw = |seed| {
        let mut sampler = Sampler::new(Sampling::default().temperature(1.0).seed(seed));
        (0..12).map(|_| sampler.sample(&mut [0.0; 16], &[]).unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!(draw(42), draw(42));
    assert_ne!(draw(42), draw(43));
}

#[test]
fn nothing_to_choose_is_an_error() {
    for temperature in [0.0, 1.0] {
        let mut sampler = Sampler::new(Sampling::default().temperature(temperature));
        assert!(sampler.sample(&mut [f32::NAN, f32::NEG_INFINITY], &[]).is_err());
    }
}

#[test]
fn logprobs_are_sorted_and_normalised() {
    let logits = [0.1, 2.0, -3.0, 2.0, 1.0];
    let mut top = Vec::new();
    let normaliser = top_logprobs(&logits, 3, &mut top);
    assert_eq!(top.iter().map(|t| t.id.0).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(top[2].logprob, 1.0 - normaliser);
    let mut all = Vec::new();
    top_logprobs(&logits, 5, &mut all);
    let total: f64 = all.iter().map(|t| f64::from(t.logprob).exp()).sum();
    assert!((total - 1.0).abs() < 1e-6);
}
