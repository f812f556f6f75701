//! Do plans come true? What loading and running take is compared with what plans say.
//!
//! One test, alone in its process, whose memory it counts.
#![allow(unsafe_code, clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use skulk::arch::ArchSpec;
use skulk::plan::Inventory;
use skulk::{
    Cluster, GenerateOptions, KvType, KvTypes, LoadOptions, Model, Node, Placement, Planner, Prompt, Request,
    Sampling, Speculate, TokenId, open_checkpoint,
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

/// An engine, and what plans keep free of it beyond [`SMALL`], by no rule that follows from a model.
#[derive(Clone, Copy)]
struct On {
    tag: &'static str,
    floor: u64,
    /// It copies weights.
    copies: bool,
}

const CPU: On = On { tag: "skulk-cpu", floor: 0, copies: false };
/// Candle makes scores, and numbers of 32 bits of weights, by the piece.
const CANDLE: On = On { tag: "skulk-candle-cpu", floor: 256 << 20, copies: true };

fn planned(path: &Path, on: On, request: &Request) -> skulk::Result<Placement> {
    let node = Node::new("local").backends([on.tag]).memory(8 << 30, 16 << 30);
    Planner::plan_checkpoint(path, &Cluster::new(vec![node], Vec::new()), request)
}

/// Tokens that fill a session but for a few, other ones in each.
fn prompt(model: &Model, session: usize) -> Prompt {
    let vocabulary = model.arch().vocab_size.min(1000);
    let token = |at: usize| TokenId(((at * 7 + session * 13) % vocabulary) as u32);
    Prompt::Tokens((0..model.context() - 4).map(token).collect())
}

/// Plans, loads, fills as many sessions as planned, and compares.
fn comes_true(path: &Path, request: &Request) {
    comes_true_with(path, None, CPU, request);
}

/// With something that drafts, too: the checkpoint's own head, or what is in another one.
fn comes_true_with(path: &Path, drafts: Option<&Path>, on: On, request: &Request) {
    let what = format!(
        "{} on {}, {} sessions of {} tokens, {}",
        path.display(),
        on.tag,
        request.sessions,
        request.context_tokens,
        request.kv.unwrap_or_default()
    );
    let placement = planned(path, on, request).unwrap();
    let bytes = placement.report().unwrap().nodes[0].bytes;
    let checkpoint = open_checkpoint(path).unwrap();
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let mut load = LoadOptions::default();
    load.draft_model = drafts.map(Path::to_owned);
    let model = Model::load(&*checkpoint, &placement, &load).unwrap();
    let drafter = model.memory().draft_model;
    assert_eq!(drafter.is_some(), placement.drafter().is_some(), "{what}");
    let parts = || model.stages().iter().chain(&drafter);
    let weights: u64 = parts().map(|part| part.weights.bytes()).sum();
    let kept: u64 = parts().map(|part| part.kv_cache.bytes() * request.sessions as u64).sum();
    assert_eq!(weights, bytes.attention + bytes.feed_forward, "{what}");
    assert_eq!(kept, bytes.kv_cache, "{what}");
    if let (Some(drafter), Some(planned)) = (&drafter, placement.drafter()) {
        let planned = planned.bytes;
        assert_eq!(drafter.weights.bytes(), planned.attention + planned.feed_forward, "{what}");
        assert_eq!(drafter.kv_cache.bytes() * request.sessions as u64, planned.kv_cache, "{what}");
    }
    // All at once, and then tokens that are drawn among all.
    let prompts: Vec<_> = (0..request.sessions).map(|session| prompt(&model, session)).collect();
    let options = match drafter {
        None => GenerateOptions::default().max_tokens(2),
        Some(_) => GenerateOptions::default().max_tokens(3).speculate(Speculate::DraftModel).draft_tokens(1),
    };
    let (n, options) = (options.max_tokens, options.ignore_eos(true));
    for output in model.generate_batch(prompts.clone(), &options) {
        assert_eq!(Some(output.unwrap().ids.len()), n, "{what}");
    }
    let drawn = options.sampling(Sampling::default().temperature(1.0));
    model.generate_batch(prompts, &drawn).into_iter().for_each(|output| drop(output.unwrap()));
    assert!(model.memory().kv_cache.bytes() <= bytes.kv_cache, "{what}");
    // Candle's are copies, and counted with what is beside them.
    let most = (MOST.load(Ordering::Relaxed) - before) as u64;
    let (used, planned) = (most + if on.copies { 0 } else { weights }, bytes.total());
    println!(
        "{what}: {planned} planned, {used} used; {most} beside weights, of {}",
        planned - bytes.attention - bytes.feed_forward
    );
    assert!(used <= planned, "{what}: {planned} planned, {used} used");
    assert!(planned <= used / 20 * 21 + SMALL + on.floor, "{what}: {planned} planned, {used} used");
    drop((model, checkpoint));
    until_free(before);
}

fn counted(model: &Path, drafts: &Path) -> Inventory {
    Inventory::from_draft_model(&*open_checkpoint(model).unwrap(), drafts).unwrap()
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
    // A head in the checkpoint, an assistant, an EAGLE head, and another model.
    let ahead = |name: &str| fixtures::root().join("tests/fixtures/ahead").join(name);
    for (name, drafts) in [
        ("qwen3_5", None),
        ("qwen3_5", Some(ahead("qwen3_5_mtp.gguf"))),
        ("gemma4", Some(ahead("gemma4_assistant"))),
        ("gemma4", Some(ahead("gemma4_assistant-q8_0.gguf"))),
        ("llama", Some(ahead("llama_eagle3"))),
        ("llama", Some(fixtures::path("qwen3_5"))),
    ] {
        for (tokens, sessions) in [(512, 1), (256, 3)] {
            let request = Request::default().context_tokens(tokens).sessions(sessions);
            let request = match &drafts {
                None => request.mtp(true),
                Some(drafts) => request.draft_model(counted(&fixtures::path(name), drafts)),
            };
            comes_true_with(&fixtures::path(name), drafts.as_deref(), CPU, &request);
        }
    }
    let real = fixtures::gemma();
    if cfg!(feature = "candle") {
        // What it has products of.
        let has = |path: &&PathBuf| planned(path, CANDLE, &Request::default().context_tokens(512)).is_ok();
        let those: Vec<_> = all.iter().filter(has).collect();
        assert!(those.len() > 30, "{those:?}");
        for path in those {
            comes_true_with(path, None, CANDLE, &Request::default().context_tokens(512));
        }
        for name in ["llama", "gemma3", "deepseek_v32"] {
            for request in [
                Request::default().context_tokens(1024),
                Request::default().context_tokens(512).sessions(4),
                Request::default().context_tokens(1024).kv(KvType::F32),
            ] {
                comes_true_with(&fixtures::path(name), None, CANDLE, &request);
            }
        }
        if let Some(real) = &real {
            comes_true_with(real, None, CANDLE, &Request::default().context_tokens(2048));
        }
    }
    let Some(real) = real else { return };
    for (tokens, sessions) in [(512, 1), (2048, 1), (1024, 4)] {
        comes_true(&real, &Request::default().context_tokens(tokens).sessions(sessions));
    }
}
