//! Who computes an operation's parts? The engine's own threads, and the thread that calls.
//!
//! An operation of a decoded token takes microseconds, and there are hundreds a token: handing it
//! out must cost next to nothing. Workers therefore spin for a short while before they park. Each
//! thread has a share of the work, of which it takes parts one behind the other, as memory is read
//! best; then it takes from the others' shares, and nobody waits for a worker that has not begun:
//! where cores are short, whoever runs does the work.
#![allow(unsafe_code)]

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::trace::{Running, other};
use crate::engine::StepCx;
use crate::engine::turns::Turns;
use crate::error::{Error, ErrorKind, Result};

/// A part of the work: units `range`, on worker number `.1`.
type Work<'a> = &'a (dyn Fn(Range<usize>, usize) + Sync);

/// Looks for work without giving the core away, about 10 µs.
const SPINS: usize = 400;
/// Then looks again each time the core comes back, about 100 µs where nobody else wants it.
const YIELDS: usize = 200;

/// Threads that share operations. They end when the pool is dropped.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Operations run one at a time.
    running: Mutex<()>,
    turns: Turns,
}

struct Shared {
    /// The operation's number in the upper 32 bits; whether it is closed; how many workers are in it.
    gate: AtomicU64,
    /// Written only while the gate is closed and empty.
    job: Mutex<Option<Job>>,
    /// What each thread has yet to take of its share, as [`pack`]ed groups of units.
    shares: Vec<AtomicU64>,
    sleeping: Vec<AtomicBool>,
    /// Workers that run.
    started: AtomicUsize,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The first of rows that are given out to different threads.
struct BasePtr<T>(*mut T);
// SAFETY: threads get disjoint rows, and `T` may be sent to them.
unsafe impl<T: Send> Sync for BasePtr<T> {}

const CLOSED: u64 = 1 << 31;
const COUNT: u64 = CLOSED - 1;

#[derive(Clone, Copy)]
struct Job {
    work: Work<'static>,
    total: usize,
    /// Units of a group, but for the last.
    group: usize,
}

/// A range of groups in one word.
fn pack(groups: Range<u32>) -> u64 {
    u64::from(groups.start) << 32 | u64::from(groups.end)
}

fn unpack(word: u64) -> Range<u32> {
    (word >> 32) as u32..word as u32
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` threads, the calling one included.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        let sleeping = (1..threads).map(|_| AtomicBool::new(false)).collect();
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(CLOSED),
            job: Mutex::new(None),
            shares: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            sleeping,
            started: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut pool = Self { shared, workers: Vec::new(), running: Mutex::new(()), turns: Turns::default() };
        for worker in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let spawned = std::thread::Builder::new()
                .name(format!("skulk-cpu-{worker}"))
                .spawn(move || shared.serve(worker));
            // On failure those already started end with the pool.
            pool.workers.push(spawned.map_err(|e| {
                Error::new(ErrorKind::EngineFailed, "cannot start the engine's threads")
                    .with_hint("use fewer threads")
                    .with_source(e)
            })?);
        }
        // What a thread does once, to begin, shall not happen during an operation.
        while pool.shared.started.load(Ordering::Acquire) < pool.workers.len() {
            std::thread::yield_now();
        }
        Ok(pool)
    }

    /// Threads that may compute at a time.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `step` when it is its turn: steps of several sequences run in the order they came. Who waits ends as
    /// `cx` says.
    pub(crate) fn turn<R>(&self, cx: &StepCx<'_>, step: impl FnOnce() -> Result<R>) -> Result<R> {
        let _turn = self.turns.take(cx)?;
        step()
    }

    /// Calls `work(row, elements, thread)` for each row of `width` elements, over threads where there
    /// are at least `least` rows for each.
    pub(crate) fn rows<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        least: usize,
        work: impl Fn(usize, &mut [T], usize) + Sync,
    ) {
        let rows = data.len() / width.max(1);
        let base = BasePtr(data.as_mut_ptr());
        self.run(rows, least, &|range, worker| {
            let base = &base;
            for row in range {
                // SAFETY: the row lies within `data`, which is borrowed until all work is done, and
                // no row is given out twice.
                let row_data = unsafe { std::slice::from_raw_parts_mut(base.0.add(row * width), width) };
                work(row, row_data, worker);
            }
        });
    }

    /// Calls `work` with disjoint ranges that cover `0..total`, each of at least `least` units but
    /// the last, and with the number of the thread, below [`threads`](Self::threads). Returns when
    /// all are done. `work` must not call this itself.
    pub(crate) fn run<F: Fn(Range<usize>, usize) + Sync>(&self, total: usize, least: usize, work: &F) {
        let running = Running::new::<F>();
        self.share(total, least, work, &running);
        running.end(self.threads());
    }

    fn share(&self, total: usize, least: usize, work: Work<'_>, running: &Running) {
        let least = least.max(1);
        if self.workers.is_empty() || total <= least {
            if total > 0 {
                work(0..total, 0);
            }
            running.worked();
            return;
        }
        let _running = lock(&self.running);
        let shared = &*self.shared;
        // SAFETY: nobody calls it after `Close` has been dropped, which is before this returns: the
        // gate lets nobody in then, and nobody is left inside.
        let work = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
        // Groups are numbered with 32 bits.
        let group = least.max(total.div_ceil(u32::MAX as usize));
        let (groups, threads) = (total.div_ceil(group) as u64, self.threads() as u64);
        let job = Job { work, total, group };
        *lock(&shared.job) = Some(job);
        for (share, i) in shared.shares.iter().zip(0..) {
            let border = |i: u64| (groups * i / threads) as u32;
            share.store(pack(border(i)..border(i + 1)), Ordering::Relaxed);
        }
        let number = (shared.gate.load(Ordering::Relaxed) >> 32).wrapping_add(1) << 32;
        {
            // Sequentially consistent, as is the workers' order of going to sleep and looking here:
            // either a worker sees the number, or this sees that it sleeps.
            shared.gate.store(number, Ordering::SeqCst);
            let _close = Close(shared);
            for (sleeping, worker) in shared.sleeping.iter().zip(&self.workers) {
                if sleeping.load(Ordering::SeqCst) {
                    worker.thread().unpark();
                }
            }
            shared.take_parts(job, 0);
            running.worked();
        }
        let panic = lock(&shared.panic).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker's panic was passed on by `run`.
            let _ = worker.join();
        }
    }
}

/// Closes the gate and waits until nobody is inside, also when the caller's own part panicked.
struct Close<'a>(&'a Shared);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        let mut inside = self.0.gate.fetch_or(CLOSED, Ordering::AcqRel) & COUNT;
        let mut spins = 0;
        while inside > 0 {
            pause(&mut spins);
            inside = self.0.gate.load(Ordering::Acquire) & COUNT;
        }
    }
}

/// Spins at first, then lets others run.
fn pause(spins: &mut usize) {
    *spins += 1;
    if *spins < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

impl Shared {
    /// Works on parts until there are none.
    fn take_parts(&self, job: Job, worker: usize) {
        while let Some(groups) = self.take(worker).or_else(|| self.steal(worker)) {
            let [from, to] = [groups.start, groups.end].map(|group| group as usize * job.group);
            (job.work)(from..to.min(job.total), worker);
        }
    }

    /// Takes a part from the front of a thread's own share. They get smaller towards its end, so that
    /// all threads end together.
    fn take(&self, worker: usize) -> Option<Range<u32>> {
        let share = &self.shares[worker];
        let mut found = share.load(Ordering::Relaxed);
        loop {
            let Range { start, end } = unpack(found);
            if start >= end {
                return None;
            }
            let next = start + ((end - start) / 4).max(1);
            let left = pack(next..end);
            match share.compare_exchange_weak(found, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(start..next),
                Err(other) => found = other,
            }
        }
    }

    /// Makes the second half of the largest share a thread's own, which is at its end, and takes a part.
    fn steal(&self, worker: usize) -> Option<Range<u32>> {
        loop {
            let shares = self.shares.iter().map(|share| (share, share.load(Ordering::Relaxed)));
            let (share, found) = shares.max_by_key(|(_, word)| unpack(*word).len())?;
            let Range { start, end } = unpack(found);
            if start >= end {
                return None;
            }
            let middle = start + (end - start) / 2;
            // No group is in a share twice, so that a share that looks as it did is as it was.
            let left = pack(start..middle);
            if share.compare_exchange(found, left, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.shares[worker].store(pack(middle..end), Ordering::Relaxed);
                // Others may have taken it all meanwhile.
                if let Some(part) = self.take(worker) {
                    return Some(part);
                }
            }
        }
    }

    /// A worker's life.
    fn serve(&self, worker: usize) {
        self.started.fetch_add(1, Ordering::Release);
        let mut seen = 0;
        while let Some(number) = self.enter(worker, seen) {
            seen = number;
            let job = *lock(&self.job);
            if let Some(job) = job {
                let done = catch_unwind(AssertUnwindSafe(|| other(|| self.take_parts(job, worker))));
                if let Err(panic) = done {
                    // The others need not go on.
                    self.shares.iter().for_each(|share| share.store(0, Ordering::Relaxed));
                    *lock(&self.panic) = Some(panic);
                }
            }
            self.gate.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an operation other than `seen` and enters it; `None` when the pool is dropped.
    fn enter(&self, worker: usize, seen: u64) -> Option<u64> {
        let mut spins = 0;
        loop {
            let gate = self.gate.load(Ordering::Acquire);
            if gate >> 32 != seen && gate & CLOSED == 0 {
                let entered =
                    self.gate.compare_exchange_weak(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
                if entered.is_ok() {
                    return Some(gate >> 32);
                }
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if spins < SPINS + YIELDS {
                pause(&mut spins);
                continue;
            }
            let sleeping = self.sleeping.get(worker - 1)?;
            sleeping.store(true, Ordering::SeqCst);
            let gate = self.gate.load(Ordering::SeqCst);
            let work = gate >> 32 != seen && gate & CLOSED == 0;
            if !work && !self.stop.load(Ordering::SeqCst) {
                std::thread::park();
            }
            sleeping.store(false, Ordering::SeqCst);
            spins = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::CancelToken;

    fn sums(pool: &Pool, total: usize, least: usize) {
        let counts: Vec<AtomicUsize> = (0..total).map(|_| AtomicUsize::new(0)).collect();
        pool.run(total, least, &|range, worker| {
            assert!(worker < pool.threads() && !range.is_empty());
            assert!(range.len() >= least.min(total) || range.end == total);
            for i in range {
                counts[i].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(counts.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn every_unit_is_done_once() {
        for threads in [1, 2, 3, 16] {
            let pool = Pool::new(threads).unwrap();
            assert_eq!(pool.threads(), threads);
            for total in [0, 1, 2, 7, 1000] {
                for least in [0, 1, 3, 5000] {
                    for _ in 0..20 {
                        sums(&pool, total, least);
                    }
                }
            }
        }
    }

    #[test]
    fn others_take_the_share_of_whom_a_part_holds_up() {
        for threads in [2, 3] {
            let pool = Pool::new(threads).unwrap();
            let (total, done) = (100, AtomicUsize::new(0));
            pool.run(total, 1, &|range, _| {
                // The first part of the second share waits for all others.
                let slow = range.contains(&(total / threads + 1));
                let started = std::time::Instant::now();
                while slow && done.load(Ordering::Relaxed) + range.len() < total {
                    assert!(started.elapsed().as_secs() < 60, "units are left to a thread that is held up");
                    std::thread::yield_now();
                }
                done.fetch_add(range.len(), Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), total);
        }
    }

    #[test]
    fn sleepers_wake() {
        let pool = Pool::new(3).unwrap();
        for _ in 0..3 {
            sums(&pool, 100, 1);
            // Longer than workers look for work before they sleep, whatever the machine.
            while !pool.shared.sleeping.iter().all(|s| s.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
        }
        sums(&pool, 100, 1);
    }

    #[test]
    fn many_callers_share_one_pool() {
        let pool = Pool::new(4).unwrap();
        let never = CancelToken::new();
        let cx = StepCx::new(&never);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for total in 0..200 {
                        let turn = pool.turn(&cx, || {
                            sums(&pool, total, 1);
                            Ok(())
                        });
                        turn.unwrap();
                        sums(&pool, total, 1);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3).unwrap();
        for bad in [0, 50, 99] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(100, 1, &|range, _| assert!(!range.contains(&bad), "on purpose"));
            }));
            assert!(result.is_err());
            sums(&pool, 100, 1);
        }
    }

    #[test]
    fn nothing_runs_after_the_drop() {
        let marker = Arc::new(());
        let pool = Pool::new(4).unwrap();
        let shared = Arc::downgrade(&pool.shared);
        let held = Arc::clone(&marker);
        pool.run(10, 1, &|_, _| assert!(Arc::strong_count(&held) > 0));
        let mut rows = [0; 30];
        pool.rows(&mut rows, 3, 1, |row, elements, _| elements.fill(row));
        assert!(rows.iter().enumerate().all(|(i, row)| *row == i / 3));
        drop(pool);
        assert!(shared.upgrade().is_none(), "a worker still holds the pool's state");
    }
}
