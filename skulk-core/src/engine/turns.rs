//! Whose step is it? Steps of several sequences take turns, first come, first served.
//!
//! A mutex alone could let one caller starve the others, and nobody could leave its queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use super::StepCx;
use crate::error::Result;

/// One turn at a time.
#[derive(Default)]
pub(super) struct Turns(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// Somebody has the turn.
    taken: bool,
    waiting: VecDeque<Arc<Waiting>>,
}

struct Waiting {
    thread: Thread,
    /// It has the turn. Written while the queue is locked.
    called: AtomicBool,
}

/// The turn, until it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn. Whoever does not have to wait does not look at `cx`: the step will.
    ///
    /// # Errors
    /// As [`StepCx::check`], as soon as that is one.
    pub(super) fn take(&self, cx: &StepCx<'_>) -> Result<Turn<'_>> {
        let waiting = {
            let mut queue = self.queue();
            if !queue.taken {
                queue.taken = true;
                return Ok(Turn(self));
            }
            let thread = std::thread::current();
            let waiting = Arc::new(Waiting { thread, called: AtomicBool::new(false) });
            queue.waiting.push_back(Arc::clone(&waiting));
            waiting
        };
        let thread = waiting.thread.clone();
        let _wake = cx.cancel.on_cancel(move || thread.unpark());
        loop {
            if waiting.called.load(Ordering::Acquire) {
                return Ok(Turn(self));
            }
            if let Err(error) = cx.check() {
                self.leave(&waiting);
                return Err(error);
            }
            match cx.deadline {
                Some(at) => std::thread::park_timeout(at.saturating_duration_since(Instant::now())),
                None => std::thread::park(),
            }
        }
    }

    /// Gives up waiting.
    fn leave(&self, waiting: &Arc<Waiting>) {
        let mut queue = self.queue();
        queue.waiting.retain(|other| !Arc::ptr_eq(other, waiting));
        drop(queue);
        if waiting.called.load(Ordering::Acquire) {
            // It was called meanwhile: the next is to have the turn.
            drop(Turn(self));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        match queue.waiting.pop_front() {
            Some(next) => {
                next.called.store(true, Ordering::Release);
                next.thread.unpark();
            }
            None => queue.taken = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::thread::{Scope, yield_now};
    use std::time::Duration;

    use super::*;
    use crate::cancel::CancelToken;
    use crate::error::ErrorKind;

    /// Long enough for any machine; only a lost wakeup waits for it.
    const LOST: Duration = Duration::from_secs(100);

    fn waiting(turns: &Turns) -> usize {
        turns.queue().waiting.len()
    }

    fn until(so: impl Fn() -> bool) {
        let started = Instant::now();
        while !so() {
            assert!(started.elapsed() < LOST, "nobody came");
            yield_now();
        }
    }

    /// Waits on a thread of its own for the turn, which another has, and tells how that ended.
    fn waiter<'s>(
        scope: &'s Scope<'s, '_>,
        turns: &'s Turns,
        cancel: &'s CancelToken,
        deadline: Option<Instant>,
    ) -> Receiver<Option<ErrorKind>> {
        let (sender, ended) = channel();
        let before = waiting(turns);
        scope.spawn(move || {
            let mut cx = StepCx::new(cancel);
            cx.deadline = deadline;
            let turn = turns.take(&cx);
            sender.send(turn.as_ref().err().map(|e| e.kind())).unwrap();
        });
        // One whose deadline has passed may be gone again.
        until(|| waiting(turns) > before || deadline.is_some_and(|at| Instant::now() >= at));
        ended
    }

    #[test]
    fn they_come_in_order() {
        let (turns, never, order) = (Turns::default(), CancelToken::new(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let turn = turns.take(&StepCx::new(&never)).unwrap();
            for i in 0..5 {
                let (turns, never, order) = (&turns, &never, &order);
                scope.spawn(move || {
                    let _turn = turns.take(&StepCx::new(never)).unwrap();
                    order.lock().unwrap().push(i);
                });
                until(|| waiting(turns) > i);
            }
            drop(turn);
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4]);
        assert!(!turns.queue().taken);
    }

    /// The turn is held until all of them have left, and goes to who stayed.
    #[test]
    fn who_is_cancelled_leaves_the_queue_at_once() {
        let (turns, never, parent) = (Turns::default(), CancelToken::new(), CancelToken::new());
        let [own, child] = [CancelToken::new(), parent.child()];
        std::thread::scope(|scope| {
            let turn = turns.take(&StepCx::new(&never)).unwrap();
            let cancelled = [&own, &child].map(|token| waiter(scope, &turns, token, None));
            let stays = waiter(scope, &turns, &never, None);
            own.cancel();
            assert_eq!(cancelled[0].recv_timeout(LOST), Ok(Some(ErrorKind::Cancelled)));
            assert_eq!(waiting(&turns), 2);
            parent.cancel();
            assert_eq!(cancelled[1].recv_timeout(LOST), Ok(Some(ErrorKind::Cancelled)));
            assert_eq!(waiting(&turns), 1);
            assert_eq!(stays.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
            drop(turn);
            assert_eq!(stays.recv_timeout(LOST), Ok(None));
        });
        assert!(!turns.queue().taken && waiting(&turns) == 0);
    }

    #[test]
    fn who_was_cancelled_before_does_not_wait() {
        let (turns, never, cancelled) = (Turns::default(), CancelToken::new(), CancelToken::new());
        cancelled.cancel();
        std::thread::scope(|scope| {
            let _turn = turns.take(&StepCx::new(&never)).unwrap();
            let (sender, ended) = channel();
            let (turns, cancelled) = (&turns, &cancelled);
            scope.spawn(move || {
                let turn = turns.take(&StepCx::new(cancelled));
                sender.send(turn.err().map(|e| e.kind())).unwrap();
            });
            assert_eq!(ended.recv_timeout(LOST), Ok(Some(ErrorKind::Cancelled)));
            assert_eq!(waiting(turns), 0);
        });
    }

    #[test]
    fn who_is_past_the_deadline_leaves_the_queue() {
        let (turns, never) = (Turns::default(), CancelToken::new());
        std::thread::scope(|scope| {
            let turn = turns.take(&StepCx::new(&never)).unwrap();
            let far = waiter(scope, &turns, &never, Some(Instant::now() + 10 * LOST));
            for ms in [0, 1, 30] {
                let at = Instant::now() + Duration::from_millis(ms);
                let late = waiter(scope, &turns, &never, Some(at));
                assert_eq!(late.recv_timeout(LOST), Ok(Some(ErrorKind::DeadlineExceeded)));
                assert!(Instant::now() >= at, "it left before its deadline");
            }
            assert_eq!(far.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
            assert_eq!(waiting(&turns), 1);
            drop(turn);
            assert_eq!(far.recv_timeout(LOST), Ok(None));
        });
    }

    #[test]
    fn who_leaves_with_the_turn_passes_it_on() {
        let (turns, never) = (Turns::default(), CancelToken::new());
        let turn = turns.take(&StepCx::new(&never)).unwrap();
        let waiting = [0, 1].map(|_| {
            let thread = std::thread::current();
            let waiting = Arc::new(Waiting { thread, called: AtomicBool::new(false) });
            turns.queue().waiting.push_back(Arc::clone(&waiting));
            waiting
        });
        let called = || waiting.each_ref().map(|waiting| waiting.called.load(Ordering::Acquire));
        drop(turn);
        assert_eq!(called(), [true, false]);
        turns.leave(&waiting[0]);
        assert_eq!((called(), turns.queue().taken), ([true, true], true));
        turns.leave(&waiting[1]);
        assert!(!turns.queue().taken);
    }

    /// A step ends just when the one behind it is cancelled: the turn is never lost.
    #[test]
    fn a_turn_that_comes_with_the_cancelling_is_passed_on() {
        let (turns, never) = (Turns::default(), CancelToken::new());
        for _ in 0..300 {
            let token = CancelToken::new();
            std::thread::scope(|scope| {
                let turn = turns.take(&StepCx::new(&never)).unwrap();
                let either = waiter(scope, &turns, &token, None);
                let stays = waiter(scope, &turns, &never, None);
                scope.spawn(|| token.cancel());
                drop(turn);
                assert!(matches!(either.recv_timeout(LOST), Ok(None | Some(ErrorKind::Cancelled))));
                assert_eq!(stays.recv_timeout(LOST), Ok(None));
            });
            assert!(!turns.queue().taken && waiting(&turns) == 0);
        }
    }
}
