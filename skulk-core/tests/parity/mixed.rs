//! Do layers on a GPU and layers on the CPU make one model? Splits of every fixture.

use std::path::Path;

use skulk::{EngineOptions, KvType, TokenId, open_checkpoint};

use crate::fixtures::{chosen, has_latents};
use crate::parity::cpu::splits::runnable;
use crate::parity::cpu::stages::{Setup, Stages, assert_near, engine};

/// Relative to the largest logit, against the CPU engine in `exact` precision: activations there keep 15
/// bits, which is off by some 1e-4 where weights are quantised, and is f32 elsewhere.
const TOLERANCE: f32 = 1e-3;

/// Logits of the prompt's second half, then a greedy text of sixteen tokens and its logits.
fn run(stages: &Stages, tokens: &[TokenId]) -> (Vec<Vec<f32>>, Vec<TokenId>) {
    let seq = stages.open(0);
    let mut rows = stages.prompt(seq, tokens, tokens.len() / 2);
    let steps = stages.greedy(seq, tokens.len(), rows.last().unwrap().clone(), 16);
    rows.extend(steps.iter().map(|(_, logits)| logits.clone()));
    (rows, steps.iter().map(|(token, _)| *token).collect())
}

#[test]
fn every_split_between_gpu_and_cpu_is_one_model() {
    let options = EngineOptions::default().threads(2).precision(skulk::Precision::Exact);
    let [gpu, cpu] = ["wgpu", "cpu"].map(|name| engine(name, &options).unwrap());
    // Of those that both engines run: what MLX quantised and latent vectors wgpu does not.
    let is_affine =
        |path: &Path| open_checkpoint(path).unwrap().tensors().iter().any(|t| t.dtype.is_affine());
    for (path, tokens) in runnable().into_iter().filter(|(path, _)| !is_affine(path) && !has_latents(path)) {
        let setup = |cuts| Setup { cuts, kv: KvType::F32.into(), chunk: 64, ..Setup::default() };
        let whole = Stages::load_on(&path, &setup(vec![]), std::slice::from_ref(&cpu)).unwrap();
        let (expected, text) = run(&whole, &tokens);
        let n = whole.arch.n_layers();
        let two = (1..n).flat_map(|cut| {
            [(vec![cut], vec![gpu.clone(), cpu.clone()]), (vec![cut], vec![cpu.clone(), gpu.clone()])]
        });
        let inside = (n > 2).then(|| (vec![1, n - 1], vec![cpu.clone(), gpu.clone(), cpu.clone()]));
        let all = [(vec![], vec![gpu.clone()])];
        for (cuts, engines) in all.into_iter().chain(chosen(2, two)).chain(inside) {
            let what = format!("{} cut at {cuts:?}, from {:?} on", path.display(), engines[0].id());
            let stages = Stages::load_on(&path, &setup(cuts), &engines).unwrap();
            let (found, found_text) = run(&stages, &tokens);
            assert_eq!(found_text, text, "{what}");
            for (found, expected) in found.iter().zip(&expected) {
                assert_near(found, expected, TOLERANCE, &what);
            }
        }
    }
}
