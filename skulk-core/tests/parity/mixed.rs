//! Do layers on a GPU and layers on the CPU make one model? Splits of every fixture.

use skulk::{EngineOptions, ErrorKind, KvType, TokenId};

use crate::fixtures::{chosen, sample};
use crate::parity::cpu::splits::runnable;
use crate::parity::cpu::stages::{Setup, Stages, assert_near, engine};

/// Relative to the largest logit, against the CPU engine in `exact` precision: activations there keep 15
/// bits, which is off by some 1e-4 where weights are quantised, and is f32 elsewhere.
const TOLERANCE: f32 = 1e-3;

/// Logits of the prompt's second half, then a greedy text of some tokens and its logits.
fn run(stages: &Stages, tokens: &[TokenId]) -> (Vec<Vec<f32>>, Vec<TokenId>) {
    let seq = stages.open(0);
    let mut rows = stages.prompt(seq, tokens, tokens.len() / 2);
    let steps = stages.greedy(seq, tokens.len(), rows.last().unwrap().clone(), sample(4, 0..16).len());
    rows.extend(steps.iter().map(|(_, logits)| logits.clone()));
    (rows, steps.iter().map(|(token, _)| *token).collect())
}

#[test]
fn every_split_between_gpu_and_cpu_is_one_model() {
    let options = EngineOptions::default().threads(2).precision(skulk::Precision::Exact);
    let [gpu, cpu] = ["wgpu", "cpu"].map(|name| engine(name, &options).unwrap());
    for (path, tokens) in sample(14, runnable()) {
        let setup = |cuts| Setup { cuts, kv: KvType::F32.into(), chunk: 64, ..Setup::default() };
        if let Err(error) = Stages::load_on(&path, &setup(vec![]), std::slice::from_ref(&gpu)) {
            let refused = matches!(error.kind(), ErrorKind::ArchUnsupported | ErrorKind::DTypeUnsupported);
            assert!(refused && error.hint().is_some_and(|hint| hint.contains("cpu")), "{error}");
            continue;
        }
        let whole = Stages::load_on(&path, &setup(vec![]), std::slice::from_ref(&cpu)).unwrap();
        let (expected, text) = run(&whole, &tokens);
        let n = whole.arch.n_layers();
        let two = (1..n).filter(|cut| whole.arch.can_cut(*cut)).flat_map(|cut| {
            [(vec![cut], vec![gpu.clone(), cpu.clone()]), (vec![cut], vec![cpu.clone(), gpu.clone()])]
        });
        let inside = (n > 2).then(|| (vec![1, n - 1], vec![cpu.clone(), gpu.clone(), cpu.clone()]));
        let all = [(vec![], vec![gpu.clone()])];
        for (cuts, engines) in all.into_iter().chain(chosen(1, two.chain(inside))) {
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
