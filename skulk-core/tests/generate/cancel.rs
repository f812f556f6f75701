//! Does cancelling end the work and nothing else?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skulk::engine::{Capabilities, LoadCx, ShardEstimate, ShardSpec, StepCx};
use skulk::{
    Activations, Batch, ByteSize, CancelToken, Checkpoint, Engine, EngineId, EngineOptions, ErrorKind,
    Generation, Memory, Model, Result, SeqId, Session, Shard, TokenId, engines,
};

use crate::generate::common::{OPENING, fresh, greedy, model, on, one_thread, path, reference_prompt};

fn expect_cancelled(generation: Generation) -> usize {
    let mut tokens = 0;
    for event in generation {
        match event {
            Ok(event) => {
                assert!(event.finish.is_none());
                tokens += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                assert!(error.hint().is_some());
                return tokens;
            }
        }
    }
    panic!("the generation was not cancelled")
}

fn expect_usable(model: &Model, session: &Session, prompt: &[TokenId]) {
    let expected = fresh(model, prompt.to_vec(), &greedy(6)).ids;
    assert_eq!(on(session, prompt.to_vec(), &greedy(6)).ids, expected);
    let other = reference_prompt("llama", 0);
    let expected = fresh(model, other.clone(), &greedy(6)).ids;
    assert_eq!(on(session, other, &greedy(6)).ids, expected);
}

fn long_prompt() -> Vec<TokenId> {
    reference_prompt("llama", 2).into_iter().cycle().take(500).collect()
}

#[test]
fn before_the_start() {
    let model = model("llama");
    let session = model.session().unwrap();
    let token = CancelToken::new();
    token.cancel();
    let generation = session.generate(long_prompt(), greedy(5).cancel(token)).unwrap();
    assert_eq!(expect_cancelled(generation), 0);
    expect_usable(&model, &session, &long_prompt());
}

#[test]
fn from_another_thread_in_prefill() {
    let model = Model::open(path("llama"), &one_thread().prefill_chunk(1024)).unwrap();
    let session = model.session().unwrap();
    let token = CancelToken::new();
    let generation = session.generate(long_prompt(), greedy(400).cancel(token.clone())).unwrap();
    std::thread::spawn(move || token.cancel()).join().unwrap();
    expect_cancelled(generation);
    expect_usable(&model, &session, &long_prompt());
}

#[test]
fn in_decode() {
    let model = model("llama");
    let session = model.session().unwrap();
    let mut generation = session.generate(OPENING, greedy(800)).unwrap();
    assert_eq!(generation.by_ref().take(3).filter(|e| e.is_ok()).count(), 3);
    generation.cancel();
    expect_cancelled(generation);
    expect_usable(&model, &session, &long_prompt());
}

#[test]
fn one_of_two_that_share_a_parent() {
    let model = model("llama");
    let parent = CancelToken::new();
    let expected = fresh(&model, OPENING, &greedy(60)).ids;
    let dropped = model.generate(OPENING, greedy(800).cancel(parent.clone())).unwrap();
    let mut kept = model.generate(OPENING, greedy(60).cancel(parent.clone())).unwrap();
    drop(dropped);
    assert!(!parent.is_cancelled());
    assert_eq!(kept.output().unwrap().ids, expected);

    let both = [0, 1].map(|_| model.generate(OPENING, greedy(800).cancel(parent.clone())).unwrap());
    parent.cancel();
    for generation in both {
        expect_cancelled(generation);
    }
}

/// The CPU engine, which cancels a token when its shards start their n-th forward call.
struct Cancelling {
    inner: Arc<dyn Engine>,
    token: CancelToken,
    calls_left: Arc<AtomicUsize>,
}

struct CancellingShard {
    inner: Box<dyn Shard>,
    token: CancelToken,
    calls_left: Arc<AtomicUsize>,
}

impl Engine for Cancelling {
    fn id(&self) -> &EngineId {
        self.inner.id()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn estimate(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate> {
        self.inner.estimate(spec, checkpoint)
    }

    fn load(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint, cx: &LoadCx<'_>) -> Result<Box<dyn Shard>> {
        let inner = self.inner.load(spec, checkpoint, cx)?;
        let (token, calls_left) = (self.token.clone(), Arc::clone(&self.calls_left));
        Ok(Box::new(CancellingShard { inner, token, calls_left }))
    }
}

impl Shard for CancellingShard {
    fn spec(&self) -> &ShardSpec {
        self.inner.spec()
    }

    fn weight_bytes(&self) -> ByteSize {
        self.inner.weight_bytes()
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }

    fn open(&self, seq: SeqId) -> Result<()> {
        self.inner.open(seq)
    }

    fn forward(&self, batch: &Batch<'_>, out: &mut Activations, cx: &StepCx<'_>) -> Result<()> {
        let left = self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if left == Ok(1) {
            self.token.cancel();
        }
        self.inner.forward(batch, out, cx)
    }

    fn truncate(&self, seq: SeqId, len: usize) -> Result<usize> {
        self.inner.truncate(seq, len)
    }

    fn close(&self, seq: SeqId) {
        self.inner.close(seq);
    }
}

/// Whichever stage of whichever step is cut off, the stages before it are a step ahead.
#[test]
fn in_any_stage_of_any_step() {
    // Three stages; a prompt of 500 tokens in chunks of 128 takes four steps.
    for call in 1..=18 {
        let (token, calls_left) = (CancelToken::new(), Arc::new(AtomicUsize::new(call)));
        let engine = Cancelling {
            inner: engines::cpu(&EngineOptions::default().threads(2)).unwrap(),
            token: token.clone(),
            calls_left,
        };
        let options = one_thread().engine(Arc::new(engine)).stages(3).prefill_chunk(128);
        let model = Model::open(path("llama"), &options).unwrap();
        let session = model.session().unwrap();
        let generation = session.generate(long_prompt(), greedy(400).cancel(token)).unwrap();
        // The first token comes after the twelfth call, then one after every third.
        assert_eq!(expect_cancelled(generation), ((call - 1) / 3).saturating_sub(3), "call {call}");
        expect_usable(&model, &session, &long_prompt());
    }
}
