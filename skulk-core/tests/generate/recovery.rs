//! Do conversations go on when what computes their experts is lost?

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skulk::arch::ArchSpec;
use skulk::engine::{FfnJob, FfnLine, FfnService, LoadCx, StepCx};
use skulk::engines::CpuFfn;
use skulk::plan::{ExpertShard, NodeId};
use skulk::{
    CancelToken, EngineId, EngineOptions, Error, ErrorKind, GenerateOptions, KvType, LayerIdx, Model,
    Placement, Result, Retry, Sampling, open_checkpoint,
};

use crate::generate::common::{OPENING, fresh, greedy, one_thread, path};

/// Computes so many jobs, then none.
struct Dying {
    inner: Arc<CpuFfn>,
    left: Arc<AtomicUsize>,
}

struct Line(Box<dyn FfnLine>, Arc<AtomicUsize>);

impl FfnService for Dying {
    fn name(&self) -> &str {
        "dying"
    }

    fn serves(&self, layer: LayerIdx) -> Range<usize> {
        self.inner.serves(layer)
    }

    fn computes(&self) -> String {
        self.inner.computes()
    }

    fn line(&self, max_rows: usize) -> Result<Box<dyn FfnLine>> {
        Ok(Box::new(Line(self.inner.line(max_rows)?, Arc::clone(&self.left))))
    }
}

impl FfnLine for Line {
    fn begin(&mut self, job: &FfnJob<'_>, cx: &StepCx<'_>) -> Result<()> {
        let one_less = |left: usize| left.checked_sub(1);
        if self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            return Err(Error::new(ErrorKind::PeerLost, "the server was lost"));
        }
        self.0.begin(job, cx)
    }

    fn wait(&mut self, out: &mut [f32], cx: &StepCx<'_>) -> Result<()> {
        self.0.wait(out, cx)
    }
}

const NAME: &str = "mixtral";

/// A model all of whose experts another node has, and how many jobs that computes.
fn model() -> (Model, Arc<AtomicUsize>) {
    let checkpoint = open_checkpoint(path(NAME)).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let (layers, n) = (0..arch.n_layers(), arch.layers[0].ffn.experts.unwrap().n_experts);
    let options = EngineOptions::default().threads(1);
    let never = CancelToken::new();
    let shares = [(layers.clone(), 0..n)];
    let inner = CpuFfn::load(&*checkpoint, &arch, &shares, &options, &LoadCx::new(&never, &|| ())).unwrap();
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let service = Dying { inner: Arc::new(inner), left: Arc::clone(&left) };
    let cpu = EngineId::new("cpu");
    let there = ExpertShard::new(NodeId::new("shed"), &cpu, layers, n);
    let placement = Placement::even(arch.n_layers(), 1, &cpu).unwrap().with_experts(vec![there]).unwrap();
    let options = one_thread().placement(placement).ffn_service("shed", Arc::new(service));
    (Model::open(path(NAME), &options).unwrap(), left)
}

fn here(model: &Model) -> Placement {
    Placement::even(model.arch().n_layers(), 1, &EngineId::new("cpu")).unwrap()
}

fn drawn(n: usize) -> GenerateOptions {
    greedy(n).sampling(Sampling::default().temperature(1.5).seed(7))
}

#[test]
fn what_a_lost_machine_cut_off_goes_on_with_the_same_text() {
    let (model, left) = model();
    let layers = model.arch().n_layers();
    let alone = Model::open(path(NAME), &one_thread()).unwrap();
    for options in [greedy(24), drawn(24)] {
        let whole = fresh(&alone, OPENING, &options);
        assert_eq!(fresh(&model, OPENING, &options).ids, whole.ids);
        for tokens in [0, 1, 7] {
            for again in ["here", "there"] {
                let session = model.session().unwrap();
                // The prompt's step, and one for each token but the first.
                left.store(layers * tokens, Ordering::Relaxed);
                let mut generation = session.generate(OPENING, options.clone()).unwrap();
                let (mut ids, mut text) = (Vec::new(), String::new());
                let error = loop {
                    match generation.next().unwrap() {
                        Ok(event) => {
                            text += &event.text;
                            ids.extend(event.token.map(|token| token.id));
                        }
                        Err(error) => break error,
                    }
                };
                assert_eq!(
                    (error.kind(), error.retry()),
                    (ErrorKind::PeerLost, Retry::AfterReplan),
                    "{error}"
                );
                assert_eq!(ids, whole.ids[..tokens]);
                // What was generated is kept.
                let held = session.tokens().unwrap();
                assert_eq!(held[held.len() - tokens..], ids);
                left.store(usize::MAX, Ordering::Relaxed);
                let session = match again {
                    "here" => session,
                    _ => session.recover(here(&model)).unwrap(),
                };
                drop(generation);
                let rest = session.resume().unwrap().output().unwrap();
                assert_eq!([ids, rest.ids].concat(), whole.ids, "{tokens} {again}");
                assert_eq!(text + &rest.text, whole.text);
                assert_eq!(rest.finish.reason, whole.finish.reason);
                assert_eq!(rest.finish.usage.prompt_tokens, whole.finish.usage.prompt_tokens);
                assert_eq!(rest.finish.usage.completion_tokens, whole.finish.usage.completion_tokens);
                // Once.
                assert_eq!(session.resume().err().unwrap().kind(), ErrorKind::InvalidArgument);
            }
        }
    }
}

/// Keys and values are kept as before, however the new placement came about.
#[test]
fn what_is_placed_otherwise_keeps_the_type_of_keys_and_values() {
    for kv in [KvType::F16, KvType::BF16, KvType::Q8_0] {
        let placement = Model::open(path("llama"), &one_thread().kv(kv)).unwrap().placement().clone();
        let model = Model::open(path("llama"), &one_thread().placement(placement)).unwrap();
        let again = model.replan(here(&model)).unwrap();
        assert_eq!(again.placement().kv(), kv.into());
    }
}

#[test]
fn placing_otherwise_can_be_cancelled() {
    let model = Model::open(path("llama"), &one_thread()).unwrap();
    let (session, cancel) = (model.session().unwrap(), CancelToken::new());
    cancel.cancel();
    let cancelled = [
        model.replan_with(here(&model), cancel.clone()).err().unwrap(),
        session.recover_with(here(&model), cancel).err().unwrap(),
    ];
    assert!(cancelled.iter().all(|error| error.kind() == ErrorKind::Cancelled), "{cancelled:?}");
}

/// Stops are seen over the border, and a loss may come again.
#[test]
fn a_generation_goes_on_as_often_as_it_is_cut_off() {
    let (model, left) = model();
    let layers = model.arch().n_layers();
    let whole = fresh(&model, OPENING, &drawn(20));
    let near_the_end = whole.text.chars().count() - 6;
    let stop = whole.text.chars().skip(near_the_end).take(4).collect::<String>();
    let options = drawn(20).stop([stop.as_str()]);
    let whole = fresh(&model, OPENING, &options);
    let session = model.session().unwrap();
    left.store(layers, Ordering::Relaxed);
    let mut generation = session.generate(OPENING, options).unwrap();
    let mut text = String::new();
    let mut cut = 0;
    let finish = 'over: loop {
        for event in generation.by_ref() {
            match event {
                Ok(event) => {
                    text += &event.text;
                    if let Some(finish) = event.finish {
                        break 'over finish;
                    }
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}"),
            }
        }
        cut += 1;
        // Another token, after the conversation's keys and values, where these were lost.
        left.store(2 * layers, Ordering::Relaxed);
        generation = session.resume().unwrap();
    };
    assert_eq!((text, finish.reason), (whole.text, whole.finish.reason));
    assert!(cut > 2, "{cut}");
}

/// As the token of the options is, where whoever followed the generation has let go of it.
#[test]
fn a_generation_goes_on_with_a_token_of_its_own() {
    let (model, left) = model();
    let whole = fresh(&model, OPENING, &greedy(8));
    let session = model.session().unwrap();
    let cancel = CancelToken::new();
    left.store(0, Ordering::Relaxed);
    let mut generation = session.generate(OPENING, greedy(8).cancel(cancel.clone())).unwrap();
    assert_eq!(generation.output().unwrap_err().kind(), ErrorKind::PeerLost);
    left.store(usize::MAX, Ordering::Relaxed);
    cancel.cancel();
    let session = session.recover(here(&model)).unwrap();
    assert_eq!(session.resume_with(CancelToken::new()).unwrap().output().unwrap().ids, whole.ids);
    let stopped = CancelToken::new();
    left.store(0, Ordering::Relaxed);
    let session = model.session().unwrap();
    session.generate(OPENING, greedy(8)).unwrap().output().unwrap_err();
    stopped.cancel();
    let error = session.resume_with(stopped).unwrap().output().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

/// Who follows loading need not outlive it.
#[test]
fn a_loaded_model_does_not_hold_who_followed_loading() {
    let held = Arc::new(());
    let follower = Arc::clone(&held);
    let options = one_thread().progress(move |_| drop(Arc::clone(&follower)));
    let model = Model::open(path(NAME), &options).unwrap();
    drop(options);
    assert_eq!(Arc::strong_count(&held), 1);
    drop(model);
}

#[test]
fn what_cannot_go_on_says_so() {
    let (model, left) = model();
    let session = model.session().unwrap();
    assert_eq!(session.resume().err().unwrap().kind(), ErrorKind::InvalidArgument);
    let cut_off = |session: &skulk::Session| {
        left.store(0, Ordering::Relaxed);
        let error = session.generate(OPENING, greedy(8)).unwrap().output().unwrap_err();
        left.store(usize::MAX, Ordering::Relaxed);
        assert_eq!(error.kind(), ErrorKind::PeerLost);
    };
    // The session was changed since.
    cut_off(&session);
    session.truncate(1).unwrap();
    assert_eq!(session.resume().err().unwrap().kind(), ErrorKind::InvalidArgument);
    cut_off(&session);
    fresh_on(&session);
    assert_eq!(session.resume().err().unwrap().kind(), ErrorKind::InvalidArgument);
    // Another model, and a shorter context.
    cut_off(&session);
    let other = Model::open(path("llama"), &one_thread()).unwrap();
    assert_eq!(session.recover_in(&other).err().unwrap().kind(), ErrorKind::SessionMismatch);
    let short = Model::open(path(NAME), &one_thread().context(4)).unwrap();
    assert_eq!(session.recover_in(&short).err().unwrap().kind(), ErrorKind::ContextOverflow);
    // It is still there, and fits where it is as long as the context.
    let full = Model::open(path(NAME), &one_thread().context(session.tokens().unwrap().len())).unwrap();
    let moved = session.recover_in(&full).unwrap();
    assert_eq!(moved.tokens().unwrap(), session.tokens().unwrap());
    assert_eq!(moved.resume().err().unwrap().kind(), ErrorKind::ContextOverflow);
    let session = moved.recover_in(&model).unwrap();
    assert_eq!(session.resume().unwrap().output().unwrap().ids.len(), 8);
    // A generation that runs keeps the session.
    let running = session.generate(OPENING, greedy(200)).unwrap();
    for error in [session.recover(here(&model)).err(), session.resume().err()] {
        assert_eq!(error.unwrap().kind(), ErrorKind::SessionBusy);
    }
    drop(running);
}

fn fresh_on(session: &skulk::Session) {
    session.generate(OPENING, greedy(2)).unwrap().output().unwrap();
}
