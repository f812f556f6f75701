//! What does each operation take? For benchmarks: notes of all that pools run while somebody asks for them. Without the
//! feature `bench-internals` this is nothing.

#[cfg(feature = "bench-internals")]
pub(super) use noted::{Running, next, other};
#[cfg(feature = "bench-internals")]
pub(crate) use noted::{begin, end};
#[cfg(not(feature = "bench-internals"))]
pub(super) use nothing::{Running, next, other};

#[cfg(not(feature = "bench-internals"))]
mod nothing {
    pub(in super::super) struct Running;

    impl Running {
        #[allow(clippy::extra_unused_type_parameters, reason = "what is noted has the type's name")]
        pub(in super::super) fn new<F>() -> Self {
            Self
        }

        pub(in super::super) fn worked(&self) {}

        pub(in super::super) fn end(self, _threads: usize) {}
    }

    pub(in super::super) fn next(_counts: impl FnOnce() -> [u64; 2]) {}

    pub(in super::super) fn other<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

#[cfg(feature = "bench-internals")]
mod noted {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::time::Instant;

    use crate::internals::Traced;

    static ON: AtomicBool = AtomicBool::new(false);
    static LIST: Mutex<Vec<Traced>> = Mutex::new(Vec::new());
    /// Nanoseconds that threads other than the calling one worked on the operation that runs: of one engine at a time.
    static OTHERS: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        /// What this thread's next operation reads and computes.
        static NEXT: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
    }

    /// Begins to note.
    pub(crate) fn begin() {
        LIST.lock().unwrap_or_else(PoisonError::into_inner).clear();
        ON.store(true, Ordering::SeqCst);
    }

    /// Ends it, and gives what was noted.
    pub(crate) fn end() -> Vec<Traced> {
        ON.store(false, Ordering::SeqCst);
        std::mem::take(&mut *LIST.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says how many bytes of weights the operation that comes next reads, and how many multiplications and additions it
    /// has.
    pub(in super::super) fn next(counts: impl FnOnce() -> [u64; 2]) {
        if ON.load(Ordering::Relaxed) {
            NEXT.set(counts());
        }
    }

    /// An operation that runs.
    pub(in super::super) struct Running {
        /// The type of its work, which tells the function that it is in.
        name: &'static str,
        /// `None` where nobody asks.
        started: Option<Instant>,
        counts: [u64; 2],
        /// Seconds that the calling thread worked.
        own: Cell<f64>,
    }

    impl Running {
        pub(in super::super) fn new<F>() -> Self {
            let started = ON.load(Ordering::Relaxed).then(Instant::now);
            if started.is_some() {
                OTHERS.store(0, Ordering::Relaxed);
            }
            Self { name: std::any::type_name::<F>(), started, counts: NEXT.take(), own: Cell::new(0.0) }
        }

        /// The calling thread has nothing left to do, but perhaps to wait.
        pub(in super::super) fn worked(&self) {
            if let Some(started) = self.started {
                self.own.set(started.elapsed().as_secs_f64());
            }
        }

        /// All threads have ended.
        pub(in super::super) fn end(self, threads: usize) {
            let [bytes, operations] = self.counts;
            let Some(started) = self.started else { return };
            let seconds = started.elapsed().as_secs_f64();
            let busy = self.own.get() + OTHERS.load(Ordering::Relaxed) as f64 / 1e9;
            let waiting = (threads as f64 * seconds - busy).max(0.0);
            let traced = Traced { name: self.name, bytes, operations, started, seconds, waiting };
            LIST.lock().unwrap_or_else(PoisonError::into_inner).push(traced);
        }
    }

    /// Work of a thread other than the calling one.
    pub(in super::super) fn other<R>(work: impl FnOnce() -> R) -> R {
        if !ON.load(Ordering::Relaxed) {
            return work();
        }
        let started = Instant::now();
        let result = work();
        OTHERS.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}
