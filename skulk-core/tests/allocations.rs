//! Does a decoded token allocate? Everything this process allocates is counted while shards decode.
//!
//! One test alone, as others in the process would be counted too.
#![allow(unsafe_code, clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skulk::arch::ArchSpec;
use skulk::engine::{Input, LoadCx, Logits, Segment, ShardSpec, StepCx};
use skulk::{Activations, Batch, ByteSize, CancelToken, EngineOptions, KvType, Precision, SeqId, TokenId};

#[path = "support/fixtures.rs"]
mod fixtures;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(p, layout, size) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of each of `steps` decoded tokens, after the first few.
fn decode(model: &Path, options: &EngineOptions, logits: Logits, steps: usize) -> Vec<usize> {
    let checkpoint = skulk::open_checkpoint(model).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let engine = skulk::engines::cpu(options).unwrap();
    let cancel = CancelToken::new();
    let layers = arch.n_layers();
    let shards: Vec<_> = [0..layers / 2, layers / 2..layers]
        .into_iter()
        .map(|range| {
            let spec = ShardSpec::new(Arc::clone(&arch), range, 512, 64, KvType::F16).unwrap();
            engine.load(&spec, &*checkpoint, &LoadCx::new(&cancel, &|| ())).unwrap()
        })
        .collect();
    let mut buffers = [Activations::new(), Activations::new()];
    let mut step = |start: usize, tokens: &[TokenId]| {
        let segments = [Segment::new(SeqId(0), start, tokens.len(), logits)];
        let [hidden, out] = &mut buffers;
        let cx = StepCx::new(&cancel);
        let input = Input::Tokens(tokens);
        shards[0].forward(&Batch::new(&segments, input), hidden, &cx).unwrap();
        let input = Input::Hidden(hidden.data());
        shards[1].forward(&Batch::new(&segments, input), out, &cx).unwrap();
    };
    shards.iter().for_each(|shard| shard.open(SeqId(0)).unwrap());
    let prompt: Vec<_> = (0..40).map(TokenId).collect();
    step(0, &prompt);
    const WARM: usize = 3;
    (0..WARM + steps)
        .map(|i| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            step(prompt.len() + i, &[TokenId(i as u32 % 100)]);
            ALLOCATIONS.load(Ordering::Relaxed) - before
        })
        .skip(WARM)
        .collect()
}

fn check(model: &Path, options: &EngineOptions, logits: Logits, steps: usize) {
    let counts = decode(model, options, logits, steps);
    let found = counts.iter().position(|&n| n > 0);
    assert!(found.is_none(), "{}, {options:?}, {logits:?}: token {found:?} allocates", model.display());
}

#[test]
fn a_decoded_token_allocates_nothing() {
    let options = EngineOptions::default().threads(2);
    let [exact, bf16] = [Precision::Exact, Precision::Bf16].map(|p| options.clone().precision(p));
    let mut tried = 0;
    for entry in std::fs::read_dir(fixtures::path("")).unwrap() {
        let model = entry.unwrap().path();
        let checkpoint = skulk::open_checkpoint(&model).unwrap();
        if ArchSpec::from_checkpoint(&*checkpoint).is_err() {
            continue;
        }
        let kinds = [
            (&options, Logits::Top(1)),
            (&options, Logits::Top(41)),
            (&options, Logits::Last),
            (&exact, Logits::Top(1)),
            (&bf16, Logits::Top(1)),
        ];
        for (options, logits) in kinds {
            // Beyond the border of a partition of keys, and around sliding windows' rings.
            check(&model, options, logits, 420);
            tried += 1;
        }
        // As little in memory as can be, and some features only.
        let largest = fixtures::feed_forward(&model).into_iter().max().unwrap();
        check(&model, &options.clone().ffn_budget(ByteSize(largest)), Logits::Top(1), 60);
        if !model.ends_with("mixtral") {
            check(&model, &options.clone().ffn_top_features(50), Logits::Top(1), 60);
        }
    }
    assert!(tried >= 8, "only {tried} cases were tried");
    // The fixtures' heads are too small to be screened.
    if let Some(gemma) = fixtures::gemma() {
        for k in [1, 41] {
            check(&gemma, &options.clone().screen_head(true), Logits::Top(k), 60);
        }
    }
}
