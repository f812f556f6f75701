//! Are calls made once, by whoever cancels, and never after they were taken back?

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::*;

/// Long enough for any machine; only a lost call waits for it.
const LOST: Duration = Duration::from_secs(100);

fn registered(token: &CancelToken) -> usize {
    lock(&token.0.calls).len()
}

/// Counts calls.
fn counting(token: &CancelToken, calls: &Arc<AtomicUsize>) -> OnCancel {
    let calls = Arc::clone(calls);
    token.on_cancel(move || {
        calls.fetch_add(1, Ordering::SeqCst);
    })
}

#[test]
fn it_calls_once_whoever_of_the_line_is_cancelled() {
    for who in 0..3 {
        let parent = CancelToken::new();
        let token = parent.child().child();
        let calls = Arc::default();
        let _handle = counting(&token, &calls);
        let other = parent.child();
        let _other = counting(&other, &Arc::default());
        other.cancel();
        assert_eq!(calls.load(Ordering::SeqCst), 0);
        [&parent, &token, &token.clone()][who].cancel();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        [&token, &parent].into_iter().for_each(CancelToken::cancel);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_child_leaves_its_parent_alone() {
    let parent = CancelToken::new();
    let calls = Arc::default();
    let _handle = counting(&parent, &calls);
    parent.child().cancel();
    assert!(!parent.is_cancelled());
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn it_calls_at_once_where_it_is_cancelled() {
    let parent = CancelToken::new();
    let child = parent.child();
    parent.cancel();
    for token in [&parent, &child] {
        let calls = Arc::default();
        let handle = counting(token, &calls);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        drop(handle);
        token.cancel();
        assert_eq!((calls.load(Ordering::SeqCst), registered(token)), (1, 0));
    }
}

#[test]
fn it_calls_on_the_thread_that_cancels_and_in_order() {
    let token = CancelToken::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handles = [0, 1, 2].map(|i| {
        let seen = Arc::clone(&seen);
        token.on_cancel(move || lock(&seen).push((i, std::thread::current().id())))
    });
    let canceller = std::thread::scope(|scope| {
        let thread = scope.spawn(|| token.cancel());
        thread.thread().id()
    });
    assert_eq!(*lock(&seen), [0, 1, 2].map(|i| (i, canceller)));
    drop(handles);
}

#[test]
fn nothing_is_called_that_was_taken_back() {
    let parent = CancelToken::new();
    let token = parent.child();
    let calls = Arc::default();
    let kept = counting(&token, &calls);
    drop(counting(&token, &calls));
    // What it captured is gone, too.
    assert_eq!((registered(&token), registered(&parent), Arc::strong_count(&calls)), (1, 1, 2));
    token.cancel();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    drop(kept);
    assert_eq!(registered(&parent), 0);
}

#[test]
fn a_panic_ends_in_the_call() {
    let token = CancelToken::new();
    let calls = Arc::default();
    let before = counting(&token, &calls);
    let panicking = token.on_cancel(|| panic!("on purpose"));
    let after = counting(&token, &calls);
    token.cancel();
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    drop((before, panicking, after));
    drop(token.on_cancel(|| panic!("on purpose, at once")));
    assert!(token.is_cancelled());
}

#[test]
fn thousands_of_children_leave_nothing_behind() {
    let parent = CancelToken::new();
    let calls = Arc::default();
    let kept: Vec<_> = (0..5000)
        .filter_map(|i| {
            let child = parent.child();
            let handle = counting(&child, &calls);
            (i % 2 == 0).then_some((child, handle))
        })
        .collect();
    assert_eq!((registered(&parent), Arc::strong_count(&parent.0)), (2500, 2501));
    parent.cancel();
    assert_eq!(calls.load(Ordering::SeqCst), 2500);
    assert!(kept.iter().all(|(child, _)| child.is_cancelled()));
    drop(kept);
    assert_eq!((registered(&parent), Arc::strong_count(&parent.0), Arc::strong_count(&calls)), (0, 1, 1));
}

#[test]
fn a_long_line_of_children_ends() {
    let parent = CancelToken::new();
    let last = (0..200_000).fold(parent.clone(), |token, _| token.child());
    let calls = Arc::default();
    let handle = counting(&last, &calls);
    assert!(!last.is_cancelled());
    parent.cancel();
    assert!(last.is_cancelled());
    drop((handle, last));
    assert_eq!((calls.load(Ordering::SeqCst), Arc::strong_count(&parent.0)), (1, 1));
}

#[test]
fn dropping_waits_for_the_call() {
    let token = CancelToken::new();
    let (sender, begun) = channel();
    let (go_on, wait) = channel::<()>();
    let returned = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&returned);
    let handle = token.on_cancel(move || {
        sender.send(()).unwrap();
        let _ = wait.recv_timeout(LOST);
        ended.store(true, Ordering::SeqCst);
    });
    std::thread::scope(|scope| {
        scope.spawn(|| token.cancel());
        begun.recv_timeout(LOST).expect("it was not called");
        let (sender, dropped) = channel();
        let returned = &returned;
        scope.spawn(move || {
            drop(handle);
            sender.send(returned.load(Ordering::SeqCst)).unwrap();
        });
        // It has time to go wrong; a slow machine makes this test weaker, never fail.
        let early = dropped.recv_timeout(Duration::from_millis(30));
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "dropped during the call");
        go_on.send(()).unwrap();
        assert_eq!(dropped.recv_timeout(LOST), Ok(true));
    });
}

#[test]
fn the_call_may_use_its_token_and_drop_its_handle() {
    let token = CancelToken::new();
    let slot = Arc::new(Mutex::new(None));
    let (own, inner, calls) = (Arc::clone(&slot), token.clone(), Arc::default());
    let nested = Arc::clone(&calls);
    let handle = token.on_cancel(move || {
        inner.cancel();
        drop(counting(&inner.child(), &nested));
        let handle: Option<OnCancel> = lock(&own).take();
        drop(handle.unwrap());
    });
    *lock(&slot) = Some(handle);
    let (sender, done) = channel();
    std::thread::spawn(move || {
        token.cancel();
        sender.send(registered(&token)).unwrap();
    });
    assert_eq!(done.recv_timeout(LOST), Ok(0));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// A token lives as long as what its calls captured; they may hold handles of the same token.
#[test]
fn captured_handles_are_taken_back_with_the_call() {
    let token = CancelToken::new();
    let calls = Arc::default();
    let inner = counting(&token, &calls);
    let outer = token.on_cancel(move || drop(inner));
    let (sender, done) = channel();
    std::thread::spawn(move || {
        drop(outer);
        sender.send(registered(&token)).unwrap();
    });
    assert_eq!(done.recv_timeout(LOST), Ok(0));
    assert_eq!((calls.load(Ordering::SeqCst), Arc::strong_count(&calls)), (0, 1));
}

#[test]
fn many_threads_cancel_register_and_take_back() {
    for _ in 0..200 {
        let parent = CancelToken::new();
        let token = parent.child();
        std::thread::scope(|scope| {
            for i in 0..3 {
                let [parent, token] = [&parent, &token];
                scope.spawn(move || [parent, token][i % 2].cancel());
                scope.spawn(move || {
                    let calls = Arc::default();
                    let handle = counting(token, &calls);
                    if i == 0 {
                        drop(handle);
                        let after = calls.load(Ordering::SeqCst);
                        assert!(after <= 1);
                        token.cancel();
                        assert_eq!(
                            calls.load(Ordering::SeqCst),
                            after,
                            "called after the handle was dropped"
                        );
                    } else {
                        // Somebody cancels, or has.
                        let started = std::time::Instant::now();
                        while calls.load(Ordering::SeqCst) == 0 {
                            assert!(started.elapsed() < LOST, "the call was lost");
                            std::thread::yield_now();
                        }
                        drop(handle);
                        assert_eq!(calls.load(Ordering::SeqCst), 1);
                    }
                });
            }
        });
        assert_eq!((registered(&parent), registered(&token)), (0, 0));
    }
}
