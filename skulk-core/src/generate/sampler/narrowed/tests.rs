//! Is a token chosen as if no other had a logit than those that may come?

use super::*;
use crate::engine::top::Top;
use crate::generate::Sampling;

/// Some tokens may come; counts how it was asked.
struct Few {
    allowed: Vec<bool>,
    tried: usize,
    narrowed: usize,
}

impl Few {
    fn of(allowed: &[bool]) -> Self {
        Self { allowed: allowed.to_vec(), tried: 0, narrowed: 0 }
    }
}

impl Narrow for Few {
    fn allows(&mut self, token: TokenId) -> Result<bool> {
        self.tried += 1;
        Ok(self.allowed[token.0 as usize])
    }

    fn narrow(&mut self, logits: &mut [f32]) -> Result<()> {
        self.narrowed += 1;
        for (logit, allowed) in logits.iter_mut().zip(&self.allowed) {
            if !allowed {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }
}

fn samplings() -> Vec<Sampling> {
    let warm = Sampling::default().temperature(0.8).seed(3);
    vec![
        Sampling::default(),
        Sampling::default().repetition_penalty(1.4).presence_penalty(0.3),
        Sampling::default().logit_bias(vec![(TokenId(5), 4.0), (TokenId(9), f32::NEG_INFINITY)]),
        warm.clone(),
        warm.clone().top_k(1),
        warm.clone().top_k(7),
        warm.clone().top_k(200),
        warm.clone().top_p(0.8),
        warm.clone().min_p(0.2),
        warm.clone().min_p(0.02).top_p(0.9).top_k(20),
        warm.clone().top_k(12).top_p(0.7).frequency_penalty(0.5),
        warm.temperature(0.05).top_p(0.5),
    ]
}

/// Logits with ties, and which of their tokens may come: one at least.
fn case(random: &mut Random) -> (Vec<f32>, Vec<bool>) {
    let spread = 1.0 + 40.0 * random.next();
    let logits: Vec<f32> = (0..300).map(|_| (random.next() * 64.0).floor() / 64.0 * spread - 3.0).collect();
    let share = random.next().powi(3);
    let mut allowed: Vec<bool> = logits.iter().map(|_| random.next() < share).collect();
    let one = (random.next() * 300.0) as usize;
    allowed[one.min(299)] = one != 9;
    allowed[17] = true;
    (logits, allowed)
}

#[test]
fn choices_are_those_of_masking_first() {
    let mut random = Random(1);
    let history: Vec<TokenId> = (0..40).map(|i| TokenId(i * 7 % 60)).collect();
    let (mut by_few, mut by_all) = (0, 0);
    for sampling in samplings() {
        let mut whole = Sampler::new(sampling.clone());
        let mut narrowed = Sampler::new(sampling.clone());
        let mut listed = Sampler::new(sampling);
        for _ in 0..400 {
            let (logits, allowed) = case(&mut random);
            let mut masked = logits.clone();
            Few::of(&allowed).narrow(&mut masked).unwrap();
            let expected = whole.sample(&mut masked, &history).unwrap();
            let mut some = Few::of(&allowed);
            let found = narrowed.sample_narrowed(&mut logits.clone(), &history, &mut some).unwrap();
            assert_eq!(found, expected);
            by_few += usize::from(some.narrowed == 0);
            by_all += some.narrowed;
            // The same by what a shard lists.
            let Some(k) = listed.mostly_enough() else { continue };
            let mut top = Top::default();
            top.reset(k);
            top.see(0, &logits);
            let largest = top.listed().map(|(id, logit)| (TokenId(id), logit));
            let found = listed.sample_among(largest, false, &mut Few::of(&allowed)).unwrap();
            if let Some(found) = found {
                assert_eq!(found, expected);
            } else {
                // The draw has not been taken: the same number decides when all are known.
                let again = listed.sample_narrowed(&mut logits.clone(), &history, &mut Few::of(&allowed));
                assert_eq!(again.unwrap(), expected);
            }
        }
    }
    assert!(by_few > 500 && by_all > 500, "{by_few} {by_all}");
}

#[test]
fn what_models_mostly_want_costs_one_question() {
    let mut logits = vec![0.0; 1000];
    logits[77] = 9.0;
    let mut some = Few::of(&[true; 1000]);
    let mut sampler = Sampler::new(Sampling::default());
    let id = sampler.sample_narrowed(&mut logits, &[], &mut some).unwrap();
    assert_eq!((id, some.tried, some.narrowed), (TokenId(77), 1, 0));
    // Nothing is tried where all must be known.
    let mut some = Few::of(&[true; 1000]);
    let mut sampler = Sampler::new(Sampling::default().temperature(1.0));
    sampler.sample_narrowed(&mut logits, &[], &mut some).unwrap();
    assert_eq!((some.tried, some.narrowed), (0, 1));
}

#[test]
fn tokens_without_logits_are_not_chosen() {
    let mut allowed = [false; 4];
    allowed[2] = true;
    for temperature in [0.0, 1.0] {
        let mut sampler = Sampler::new(Sampling::default().temperature(temperature));
        let mut logits = [1.0, 2.0, f32::NEG_INFINITY, f32::NAN];
        assert!(sampler.sample_narrowed(&mut logits, &[], &mut Few::of(&allowed)).is_err());
    }
}
