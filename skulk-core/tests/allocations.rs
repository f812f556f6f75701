//! Does a decoded token allocate? Everything this process allocates is counted while shards decode.
//!
//! One test alone, as others in the process would be counted too.
#![allow(unsafe_code, clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skulk::arch::{Activation, ArchSpec, FfnSpec};
use skulk::engine::{FfnPlan, FfnService, LoadCx, Logits, Reply, Segment, ShardSpec, StepCx};
use skulk::engines::CpuFfn;
use skulk::{
    Batch, ByteSize, CancelToken, Checkpoint, EngineOptions, KvType, KvTypes, Precision, SeqId, TokenId,
};

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

/// Dense blocks, and of experts all but the first, on the CPU beside the engine.
fn beside(checkpoint: &dyn Checkpoint, arch: &Arc<ArchSpec>, options: &EngineOptions) -> FfnPlan {
    let experts = |ffn: &FfnSpec| ffn.experts.map_or(0..1, |experts| 1..experts.n_experts);
    let blocks = arch.layers.iter().enumerate().filter(|(_, layer)| !layer.ffn.is_absent());
    let shares: Vec<_> = blocks.map(|(at, layer)| (at..at + 1, experts(&layer.ffn))).collect();
    let cancel = CancelToken::new();
    let service = CpuFfn::load(checkpoint, arch, &shares, options, &LoadCx::new(&cancel, &|| ()));
    let service: Arc<dyn FfnService> = Arc::new(service.unwrap());
    let share = |plan: FfnPlan, (layers, experts)| plan.share(layers, experts, Arc::clone(&service));
    shares.into_iter().fold(FfnPlan::new(), share)
}

/// Allocations of each of `steps` decoded tokens of so many sequences together, after the first few.
fn decode(
    model: &Path,
    (options, kv, split): (&EngineOptions, KvTypes, bool),
    logits: Logits,
    steps: usize,
    sequences: u64,
) -> Vec<usize> {
    let checkpoint = skulk::open_checkpoint(model).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let engine = skulk::engines::cpu(options).unwrap();
    let cancel = CancelToken::new();
    let layers = arch.n_layers();
    let plan = if split { beside(&*checkpoint, &arch, options) } else { FfnPlan::new() };
    let cut = (1..=layers / 2).rev().find(|layer| arch.can_cut(*layer)).unwrap();
    let shards: Vec<_> = [0..cut, cut..layers]
        .into_iter()
        .map(|range| {
            let spec = ShardSpec::new(Arc::clone(&arch), range, 512, 64, kv).unwrap().ffn(plan.clone());
            engine.load(&spec, &*checkpoint, &LoadCx::new(&cancel, &|| ())).unwrap()
        })
        .collect();
    let mut replies = [Reply::new(), Reply::new()];
    let mut segments = Vec::new();
    // All sequences take the same tokens, in the order of their numbers, or one of them alone.
    let mut step = |start: usize, tokens: &[TokenId], n: usize| {
        segments.clear();
        segments.extend((0..sequences).map(|seq| Segment::new(SeqId(seq), start, n).want_last(logits)));
        let [first, last] = &mut replies;
        let cx = StepCx::new(&cancel);
        let batch = Batch::new(&segments, tokens);
        shards[0].forward(&batch, first, &cx).unwrap();
        shards[1].forward(&batch.hidden(first.hidden().data()), last, &cx).unwrap();
    };
    // How many rows take an expert of the engine's own beside services changes from token to token, and memory for them is
    // as much as the most so far.
    let warm = if split { 100 } else { 3 };
    const PROMPT: usize = 8;
    for (shard, seq) in shards.iter().flat_map(|shard| (0..sequences).map(move |seq| (shard, SeqId(seq)))) {
        shard.open(seq, &[]).unwrap();
    }
    // Not the same tokens: no pages are shared.
    let tokens = |at: usize, n: usize| -> Vec<_> {
        (0..sequences as usize)
            .flat_map(|seq| (at..at + n).map(move |i| TokenId(((i + 7 * seq) % 100) as u32)))
            .collect()
    };
    step(0, &tokens(0, PROMPT), PROMPT);
    // Pages are taken before.
    for (shard, seq) in shards.iter().flat_map(|shard| (0..sequences).map(move |seq| (shard, SeqId(seq)))) {
        shard.reserve(seq, PROMPT + warm + steps).unwrap();
    }
    (0..warm + steps)
        .map(|i| {
            let tokens = tokens(PROMPT + i, 1);
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            step(PROMPT + i, &tokens, 1);
            ALLOCATIONS.load(Ordering::Relaxed) - before
        })
        .skip(warm)
        .collect()
}

fn check(model: &Path, options: &EngineOptions, logits: Logits, steps: usize) {
    check_kept(model, (options, KvTypes::default(), false), logits, steps);
}

fn check_kept(model: &Path, setup: (&EngineOptions, KvTypes, bool), logits: Logits, steps: usize) {
    let (options, kv, split) = setup;
    // What several rows leave of a screened head grows with what they look for.
    let several = usize::from(!options.screen_head);
    for (sequences, steps) in [(1, steps), (8, several * steps.min(150))] {
        // Threads of an engine allocate when they begin, which on a busy machine may be in the midst of these steps: what
        // a token allocates, it allocates each time.
        let find = || decode(model, setup, logits, steps, sequences).iter().position(|&n| n > 0);
        let found = (0..3).map(|_| find()).find(Option::is_none).unwrap_or_else(find);
        let what = format!("{}, {options:?}, {kv}, {logits:?}, split: {split}", model.display());
        assert!(found.is_none(), "{what}: token {found:?} of {sequences} sequences allocates");
    }
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
            (&options, Logits::All),
            (&exact, Logits::Top(1)),
            (&bf16, Logits::Top(1)),
        ];
        for (options, logits) in kinds {
            // Beyond the border of a partition of keys, and with pages that sliding windows leave behind.
            check(&model, options, logits, 420);
            tried += 1;
        }
        let apart = KvTypes { keys: KvType::F32, values: KvType::Q4_0 };
        for kv in [KvType::BF16.into(), KvType::Q8_0.into(), apart] {
            check_kept(&model, (&options, kv, false), Logits::Top(1), 420);
        }
        check_kept(&model, (&options, KvTypes::default(), true), Logits::Top(1), 60);
        // As little in memory as can be, and some features only.
        let arch = ArchSpec::from_checkpoint(&*skulk::open_checkpoint(&model).unwrap()).unwrap();
        let largest = fixtures::feed_forward(&model).into_iter().max().unwrap();
        let budget = options.clone().ffn_budget(ByteSize(largest));
        let whole =
            ShardSpec::new(Arc::new(arch.clone()), 0..arch.n_layers(), 512, 64, KvTypes::default()).unwrap();
        let cancel = CancelToken::new();
        let loading = LoadCx::new(&cancel, &|| ());
        match skulk::engines::cpu(&budget).unwrap().load(&whole, &*checkpoint, &loading) {
            Ok(_) => check(&model, &budget, Logits::Top(1), 60),
            // Experts that loading copies cannot be let go.
            Err(error) => assert!(error.message().contains("copies"), "{}: {error}", model.display()),
        }
        let has_features = |ffn: &FfnSpec| {
            ffn.experts.is_none() && ffn.cutoff.is_none() && ffn.activation != Activation::SquaredRelu
        };
        if arch.layers.iter().all(|layer| has_features(&layer.ffn)) {
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
