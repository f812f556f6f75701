//! Is nobody lost where sessions wait for memory, for each other, or for who cancels?

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use skulk::{ByteSize, CancelToken, ErrorKind, Generation, Model, TokenId};

use crate::generate::common::{OPENING, greedy, long_prompt, model, one_thread, path};
use crate::generate::wrapped::Wrapped;

/// Longer than anything here takes that does not hang.
const LONG: Duration = Duration::from_secs(60);

/// Memory for one session and a little more.
fn tight() -> Model {
    let full = Model::open(path("llama"), &one_thread().context(512)).unwrap().stages()[0].kv_cache;
    let options = one_thread().context(512).kv_memory(ByteSize(full.bytes() * 5 / 4));
    Model::open(path("llama"), &options).unwrap()
}

#[test]
fn logits_that_had_to_begin_again_are_the_same() {
    let texts: Vec<Vec<TokenId>> = (0..3).map(|i| long_prompt()[i * 3..400 + i * 3].to_vec()).collect();
    let alone = model("llama");
    let expected: Vec<_> =
        texts.iter().map(|t| alone.logits(t.clone(), &CancelToken::new()).unwrap()).collect();
    for _ in 0..5 {
        let model = tight();
        let compute = |text: &Vec<TokenId>| model.logits(text.clone(), &CancelToken::new()).unwrap();
        std::thread::scope(|scope| {
            let compute = &compute;
            let all: Vec<_> = texts.iter().map(|text| scope.spawn(move || compute(text))).collect();
            for (thread, expected) in all.into_iter().zip(&expected) {
                let logits = thread.join().unwrap();
                assert!(logits.iter().map(|x| x.to_bits()).eq(expected.iter().map(|x| x.to_bits())));
            }
        });
    }
}

/// A waker that drops generations.
struct Drops(Mutex<Vec<Generation>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        drop(all);
    }
}

/// A model whose every step needs a permit, until nobody gives any.
fn gated() -> (Model, std::sync::mpsc::Sender<()>) {
    let (permit, permits) = channel::<()>();
    let permits = Mutex::new(permits);
    let engine = Wrapped::forward(move |_| {
        let _ = permits.lock().unwrap().recv();
        Ok(())
    });
    let options = one_thread().engine(engine).sessions(1);
    (Model::open(path("stories260K"), &options).unwrap(), permit)
}

#[test]
fn a_waker_may_drop_the_generation_that_waited() {
    let (model, permit) = gated();
    let _running = model.generate(OPENING, greedy(9)).unwrap();
    let cancel = CancelToken::new();
    let waiting = model.generate(OPENING, greedy(9).cancel(cancel.clone())).unwrap();
    let last = Arc::new(Drops(Mutex::new(vec![waiting])));
    let waker = Waker::from(Arc::clone(&last));
    assert!(last.0.lock().unwrap()[0].poll_event(&mut Context::from_waker(&waker)).is_pending());
    let (done, ended) = channel();
    std::thread::spawn(move || {
        cancel.cancel();
        done.send(()).unwrap();
    });
    let ended = ended.recv_timeout(LONG);
    assert!(ended.is_ok(), "cancelling hangs");
    drop(permit);
}

#[test]
fn a_waker_may_drop_a_generation_that_runs() {
    let (model, permit) = gated();
    let running = model.generate(OPENING, greedy(200)).unwrap();
    let cancel = CancelToken::new();
    let mut waiting = model.generate(OPENING, greedy(9).cancel(cancel.clone())).unwrap();
    let last = Arc::new(Drops(Mutex::new(vec![running])));
    let waker = Waker::from(Arc::clone(&last));
    assert!(waiting.poll_event(&mut Context::from_waker(&waker)).is_pending());
    let (done, ended) = channel();
    std::thread::spawn(move || {
        cancel.cancel();
        done.send(()).unwrap();
    });
    std::thread::sleep(Duration::from_millis(300));
    drop(permit);
    let ended = ended.recv_timeout(LONG);
    assert!(ended.is_ok(), "who cancels and the model's thread wait for each other");
}

/// Nobody fails for whom the budget suffices, also while another session is saved.
#[test]
fn who_waits_for_memory_waits_for_saves_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conversation.skulk");
    let model = tight();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let saver = scope.spawn(|| {
            let session = model.session().unwrap();
            while !stop.load(Ordering::Relaxed) {
                session.generate(long_prompt()[..300].to_vec(), greedy(2)).unwrap().output().unwrap();
                session.save(&file).unwrap();
                // The others may have all there is.
                if let Err(error) = model.restore(&file) {
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                }
            }
        });
        let all = (0..20).map(|i| {
            let text = long_prompt()[i % 9 + 1..i % 9 + 401].to_vec();
            model.generate(text, greedy(60)).unwrap().output()
        });
        let failed = all.filter_map(Result::err).collect::<Vec<_>>();
        stop.store(true, Ordering::Relaxed);
        saver.join().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
    });
}

/// Nobody fails for whom the budget suffices, also while another session is being dropped.
#[test]
fn who_waits_for_memory_waits_for_dropped_sessions_too() {
    let model = tight();
    let turns = &|from: usize| {
        let turn = |i: usize| {
            let text = long_prompt()[from + i % 40..from + i % 40 + 400].to_vec();
            model.generate(text, greedy(1)).unwrap().output().map(drop)
        };
        (0..60).try_for_each(turn)
    };
    std::thread::scope(|scope| {
        let all = [0, 45].map(|from| scope.spawn(move || turns(from)));
        all.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
}
