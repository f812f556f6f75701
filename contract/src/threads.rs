//! On which threads does work go on beside its caller? On one of its own; or, what hosts begin by hundreds and only computes, on
//! up to 64, which end when there is no more.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use skulk::{Error, ErrorKind};

/// Threads that take turns: systems limit threads.
const MOST: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

struct Waiting {
    works: VecDeque<Work>,
    /// Threads that take them.
    threads: usize,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { works: VecDeque::new(), threads: 0 });

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` on a thread of its own.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`] where the system has no thread.
pub fn start(work: impl FnOnce() + Send + 'static) -> skulk::Result<()> {
    Builder::new().name("skulk-work".to_owned()).spawn(work).map(drop).map_err(no_thread)
}

fn no_thread(e: std::io::Error) -> Error {
    Error::new(ErrorKind::OutOfMemory, "cannot start a thread for the work")
        .with_hint("let this process have more threads, or less go on at a time")
        .with_source(e)
}

/// Does `work` when it is its turn. It must wait for nothing that others do.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`] where the system has no thread and no other work has one.
pub fn in_turn(work: impl FnOnce() + Send + 'static) -> skulk::Result<()> {
    let mut waiting = waiting();
    waiting.works.push_back(Box::new(work));
    if waiting.threads < MOST {
        match Builder::new().name("skulk-work".to_owned()).spawn(take) {
            Ok(_) => waiting.threads += 1,
            Err(e) if waiting.threads == 0 => {
                waiting.works.pop_back();
                return Err(no_thread(e));
            }
            // A thread that there is will take it.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Does what waits.
fn take() {
    loop {
        let work = {
            let mut waiting = waiting();
            let Some(work) = waiting.works.pop_front() else {
                waiting.threads -= 1;
                return;
            };
            work
        };
        // Whoever waits for it sees that it ended.
        let _ = catch_unwind(AssertUnwindSafe(work));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// The only test that begins work, so that it may count threads.
    #[test]
    fn threads_are_bounded_and_all_work_is_done() {
        static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
        static MOST_AT_ONCE: AtomicUsize = AtomicUsize::new(0);
        let (done, ended) = channel();
        for i in 0..300 {
            let done = done.clone();
            in_turn(move || {
                let at_once = AT_ONCE.fetch_add(1, Ordering::SeqCst) + 1;
                MOST_AT_ONCE.fetch_max(at_once, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                AT_ONCE.fetch_sub(1, Ordering::SeqCst);
                done.send(i).unwrap();
                assert_ne!(i % 50, 7, "work that panics");
            })
            .unwrap();
        }
        drop(done);
        let mut all: Vec<_> = ended.iter().collect();
        all.sort_unstable();
        assert_eq!(all, (0..300).collect::<Vec<_>>());
        assert!((2..=MOST).contains(&MOST_AT_ONCE.load(Ordering::SeqCst)));
        // They end, and others begin.
        for _ in 0..1000 {
            if waiting().threads == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(waiting().threads, 0);
        let (done, ended) = channel();
        in_turn(move || done.send(()).unwrap()).unwrap();
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
