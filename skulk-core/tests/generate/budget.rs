//! Does a model compute the same when only some of its feed-forward weights may be in memory, and are no more of them
//! there?

use std::path::Path;
use std::sync::Arc;

use skulk::arch::ArchSpec;
use skulk::engine::{Logits, Segment, ShardSpec};
use skulk::{
    ByteSize, Engine, EngineOptions, ErrorKind, FfnMemory, KvType, Memory, Model, SeqId, TokenId, engines,
    open_checkpoint,
};

use crate::fixtures::feed_forward;
#[cfg(target_os = "linux")]
use crate::fixtures::resident_kib;
use crate::generate::common::{fresh, greedy, one_thread, path, with_engine};
use crate::generate::rewritten::deep;
use crate::parity::cpu::stages::{Setup, Stages};

/// Bytes of all feed-forward weights, and of the largest block or expert.
fn sizes(folder: &Path) -> (u64, u64) {
    let units = feed_forward(folder);
    (units.iter().sum(), *units.iter().max().unwrap())
}

fn has_experts(folder: &Path) -> bool {
    let arch = ArchSpec::from_checkpoint(&*open_checkpoint(folder).unwrap()).unwrap();
    arch.layers.iter().any(|layer| layer.ffn.experts.is_some())
}

/// A model in two stages on one engine, with sequence 0 opened.
fn staged(folder: &Path, engine: Arc<dyn Engine>) -> Stages {
    let arch = ArchSpec::from_checkpoint(&*open_checkpoint(folder).unwrap()).unwrap();
    let setup = Setup { cuts: vec![arch.n_layers() / 2], context: 256, chunk: 64, ..Setup::default() };
    let stages = Stages::load_on(folder, &setup, &[Arc::clone(&engine), engine]).unwrap();
    stages.open(0);
    stages
}

/// Bits of the logits behind every one of so many tokens.
fn feed(stages: &Stages, start: usize, n: usize) -> Vec<u32> {
    let tokens: Vec<_> = (start..start + n).map(|i| TokenId(3 + (i * i * 31 % 400) as u32)).collect();
    let segment = Segment::new(SeqId(0), start, n).want_every(Logits::All);
    let reply = stages.batch(&[segment], &tokens).pop().unwrap();
    reply.logits(0).data.iter().map(|x| x.to_bits()).collect()
}

fn memory(stages: &Stages) -> FfnMemory {
    let [first, second] = [0, 1].map(|i| stages.shards[i].ffn_memory().unwrap());
    assert_eq!(first, second, "stages of one engine share its budget");
    first
}

/// A prompt in two chunks, then token by token.
const STEPS: [(usize, usize); 6] = [(0, 18), (18, 9), (27, 1), (28, 1), (29, 1), (30, 1)];

fn with_budget(most: u64) -> EngineOptions {
    EngineOptions::default().threads(2).memory(Memory::Mapped).ffn_budget(ByteSize(most))
}

#[test]
fn no_budget_changes_a_bit_or_is_exceeded() {
    let long = deep("llama", 4);
    let names = [
        "gemma3",
        "mixtral",
        "stories260K",
        "llama_mlx",
        "qwen3_moe_mlx",
        "phi3",
        "glm4_moe",
        "gpt_oss_mlx",
        "gpt_oss_mxfp4",
    ];
    let folders: Vec<_> = names.map(path).into_iter().chain([long.path().to_owned()]).collect();
    for folder in &folders {
        let plain = engines::cpu(&EngineOptions::default().threads(2)).unwrap();
        let plain = staged(folder, plain);
        assert!(plain.shards.iter().all(|shard| shard.ffn_memory().is_none()));
        let expected = STEPS.map(|(start, n)| feed(&plain, start, n));
        let (all, unit) = sizes(folder);
        let mut tried = 0;
        for most in [all / 8, all / 4, unit, 2 * unit, all - 1, all] {
            if most < unit {
                continue;
            }
            tried += 1;
            let staged = staged(folder, engines::cpu(&with_budget(most)).unwrap());
            assert_eq!(memory(&staged).in_memory, ByteSize(0), "nothing was computed");
            for ((start, n), expected) in STEPS.into_iter().zip(&expected) {
                let what = format!("{}, {most} of {all}, from {start}", folder.display());
                assert!(feed(&staged, start, n) == *expected, "{what}");
                let memory = memory(&staged);
                assert_eq!(memory.budget, ByteSize(most));
                assert!(memory.in_memory <= memory.peak && memory.peak.bytes() <= most, "{what}: {memory:?}");
            }
            // Something had to go, unless all fitted; what could stay did. Not all experts are taken.
            let memory = memory(&staged);
            let tight = if has_experts(folder) { most <= all / 2 } else { most < all };
            assert!(memory.let_go.bytes() > 0 || !tight, "{most} of {all}: {memory:?}");
            assert!(
                memory.let_go.bytes() == 0 || most < all && memory.peak.bytes() + 2 * unit > most,
                "{memory:?}"
            );
        }
        assert!(tried >= 4);
    }
}

#[test]
fn too_small_a_budget_says_how_much_is_needed() {
    for name in ["llama", "mixtral"] {
        let (_, unit) = sizes(&path(name));
        let open = |most| {
            Model::open(
                path(name),
                &with_engine(EngineOptions::default().threads(1).ffn_budget(ByteSize(most))),
            )
        };
        for most in [0, 1, unit - 1] {
            let error = open(most).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.context().iter().any(|(key, value)| *key == "field" && value == "ffn_budget"));
            assert!(error.to_string().contains(&unit.to_string()), "{error}");
            assert!(error.hint().is_some());
            // What a shard would take is not told of one that is not loaded.
            let checkpoint = open_checkpoint(path(name)).unwrap();
            let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
            let layers = 0..arch.layers.len();
            let spec = ShardSpec::new(arch, layers, 64, 16, KvType::F16).unwrap();
            let engine = EngineOptions::default().threads(1).ffn_budget(ByteSize(most));
            let refused = engines::cpu(&engine).unwrap().estimate(&spec, &*checkpoint).unwrap_err();
            assert_eq!(refused.context(), error.context());
        }
        let memory = open(unit).unwrap().ffn_memory().unwrap();
        assert_eq!((memory.budget, memory.peak), (ByteSize(unit), ByteSize(0)));
    }
    let without = Model::open(path("llama"), &one_thread()).unwrap();
    assert_eq!(without.ffn_memory(), None);
}

/// Sessions that generate at the same time get what each gets alone: their steps take turns.
#[test]
fn sessions_at_once_stay_bounded() {
    for folder in ["llama", "mixtral"] {
        let (_, unit) = sizes(&path(folder));
        let engine = EngineOptions::default().threads(2);
        let open = |engine| Model::open(path(folder), &with_engine(engine).stages(2)).unwrap();
        let expected = fresh(&open(engine.clone()), "Once upon a", &greedy(12)).ids;
        let model = open(engine.ffn_budget(ByteSize(unit)));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert_eq!(fresh(&model, "Once upon a", &greedy(12)).ids, expected));
            }
        });
        let memory = model.ffn_memory().unwrap();
        assert!(memory.peak.bytes() <= unit && memory.in_memory <= memory.peak, "{memory:?}");
    }
}

/// What a model kept is free for the next one on the same engine.
#[test]
fn a_model_that_is_gone_takes_nothing() {
    let (all, _) = sizes(&path("llama"));
    let engine = engines::cpu(&with_budget(all)).unwrap();
    let one = staged(&path("llama"), Arc::clone(&engine));
    feed(&one, 0, 2);
    assert_eq!(memory(&one).in_memory, ByteSize(all));
    let two = staged(&path("llama"), Arc::clone(&engine));
    assert_eq!(memory(&two).in_memory, ByteSize(all));
    drop(one);
    assert_eq!(memory(&two).in_memory, ByteSize(0));
    feed(&two, 0, 2);
    assert_eq!((memory(&two).in_memory, memory(&two).let_go), (ByteSize(all), ByteSize(0)));
}

/// Pages of the file that this process has, by what the system says: no more than the budget and the pages at both
/// ends of what is in memory.
#[cfg(target_os = "linux")]
#[test]
fn pages_in_memory_are_no_more_than_the_budget() {
    const PAGES: u64 = 4096;
    let (dense, sparse) = (deep("llama", 3), deep("mixtral", 2));
    for folder in [dense.path(), sparse.path()] {
        let (all, unit) = sizes(folder);
        // What is not feed-forward is read into memory, so that the map has nothing else.
        let options = EngineOptions::default().threads(2).memory(Memory::Resident);
        let file = folder.join("model.safetensors").canonicalize().unwrap();
        let file = file.to_str().unwrap();
        for most in [Some(unit), Some(all / 4), None] {
            let options = match most {
                Some(most) => options.clone().ffn_budget(ByteSize(most)),
                None => options.clone().memory(Memory::Mapped),
            };
            let staged = staged(folder, engines::cpu(&options).unwrap());
            for (start, n) in STEPS {
                feed(&staged, start, n);
                let found = 1024 * resident_kib(|mapping| mapping.ends_with(file));
                match most {
                    Some(most) => {
                        let tensors = 3 * most.div_ceil(unit);
                        let slack = 2 * PAGES * tensors;
                        assert!(found <= most + slack, "{found} bytes of a budget of {most}");
                        assert!(found > 0 && memory(&staged).in_memory.bytes() <= most);
                    }
                    // The prompt takes them all: what is counted here is what is there.
                    None => assert!(found >= all, "{found} of {all}"),
                }
            }
        }
    }
}
