//! Do plans come true? What loading and running take is compared with what plans say.
//!
//! One test, alone in its process, whose memory it counts.
#![allow(unsafe_code, clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use skulk::arch::ArchSpec;
use skulk::{
    Cluster, GenerateOptions, KvType, KvTypes, LoadOptions, Model, Node, Placement, Planner, Prompt, Request,
    Sampling, TokenId, open_checkpoint,
};

#[path = "support/fixtures.rs"]
mod fixtures;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn more(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that a plan may count beyond a twentieth: of the smallest models buffers and tokenizers are most, of which plans know
/// how large they get at most.
const SMALL: u64 = 8 << 20;

/// Waits until what is dropped has given its memory back, which threads do that end by themselves.
fn until_free(before: usize) {
    const NEARLY: usize = 256 << 10;
    for _ in 0..3000 {
        if HELD.load(Ordering::Relaxed) <= before + NEARLY {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn machine() -> Cluster {
    let node = Node::new("local").backends(["skulk-cpu"]).memory(8 << 30, 16 << 30);
    Cluster::new(vec![node], Vec::new())
}

fn planned(path: &Path, request: &Request) -> Placement {
    Planner::plan_checkpoint(path, &machine(), request).unwrap()
}

/// Tokens that fill a session but for a few, other ones in each.
fn prompt(model: &Model, session: usize) -> Prompt {
    let vocabulary = model.arch().vocab_size.min(1000);
    let token = |at: usize| TokenId(((at * 7 + session * 13) % vocabulary) as u32);
    Prompt::Tokens((0..model.context() - 4).map(token).collect())
}

/// Plans, loads, fills as many sessions as planned, and compares.
fn comes_true(path: &Path, request: &Request) {
    let what = format!(
        "{}, {} sessions of {} tokens, {}",
        path.display(),
        request.sessions,
        request.context_tokens,
        request.kv
    );
    let placement = planned(path, request);
    let bytes = placement.report().unwrap().nodes[0].bytes;
    let checkpoint = open_checkpoint(path).unwrap();
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let model = Model::load(&*checkpoint, &placement, &LoadOptions::default()).unwrap();
    let stage = &model.stages()[0];
    assert_eq!(stage.weights.bytes(), bytes.attention + bytes.feed_forward, "{what}");
    assert_eq!(stage.kv_cache.bytes() * request.sessions as u64, bytes.kv_cache, "{what}");
    // All at once, and then tokens that are drawn among all.
    let prompts: Vec<_> = (0..request.sessions).map(|session| prompt(&model, session)).collect();
    let options = GenerateOptions::default().max_tokens(2).ignore_eos(true);
    for output in model.generate_batch(prompts.clone(), &options) {
        assert_eq!(output.unwrap().ids.len(), 2, "{what}");
    }
    let drawn = options.sampling(Sampling::default().temperature(1.0));
    model.generate_batch(prompts, &drawn).into_iter().for_each(|output| drop(output.unwrap()));
    assert!(model.kv_memory().reserved.bytes() <= bytes.kv_cache, "{what}");
    let most = (MOST.load(Ordering::Relaxed) - before) as u64;
    let (used, planned) = (stage.weights.bytes() + most, bytes.total());
    println!(
        "{what}: {planned} planned, {used} used; {most} beside weights, of {}",
        planned - bytes.attention - bytes.feed_forward
    );
    assert!(used <= planned, "{what}: {planned} planned, {used} used");
    assert!(planned <= used / 20 * 21 + SMALL, "{what}: {planned} planned, {used} used");
    drop((model, checkpoint));
    until_free(before);
}

fn fixtures() -> Vec<PathBuf> {
    let folders = [fixtures::path(""), fixtures::root().join("tests/fixtures/vindex/made")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| {
        let checkpoint = open_checkpoint(path);
        checkpoint.is_ok_and(|checkpoint| ArchSpec::from_checkpoint(&*checkpoint).is_ok())
    });
    all.sort();
    all
}

#[test]
fn plans_come_true() {
    let all = fixtures();
    assert!(all.len() > 40, "{all:?}");
    for path in &all {
        comes_true(path, &Request::default().context_tokens(512));
    }
    // Without windows, with windows, with states, with latent vectors.
    for name in ["llama", "gemma3", "qwen3_next", "deepseek_v32"] {
        let request = Request::default();
        let quantised = KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 };
        for request in [
            request.clone().context_tokens(100),
            request.clone().context_tokens(1024),
            request.clone().context_tokens(512).sessions(4),
            request.clone().context_tokens(512).kv(KvType::F32),
            request.clone().context_tokens(512).sessions(2).kv(quantised),
        ] {
            comes_true(&fixtures::path(name), &request);
        }
    }
    let Some(real) = fixtures::gemma() else { return };
    for (tokens, sessions) in [(512, 1), (2048, 1), (1024, 4)] {
        comes_true(&real, &Request::default().context_tokens(tokens).sessions(sessions));
    }
}
