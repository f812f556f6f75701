//! Who computes what next? One thread for each model, which takes all its sessions through the stages together.
//!
//! Jobs wait until there is room among those that run; each step has rows of many of them. A job that fails, is
//! cancelled, or whose reader panics ends alone. A session whose reader has no room, or for which there are no pages,
//! sits out.

mod job;
mod share;
mod work;

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, ThreadId};

use job::Place;
pub(super) use job::{Ask, Drafted, Job, Rows, Taken};
pub(super) use work::Limits;
use work::Worker;

use super::draft::Second;
use super::session::Shared;
use super::stages::Stages;
use crate::cancel::{CancelToken, OnCancel};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::SeqId;

/// The thread's end that sessions hold. Dropping it ends the thread.
pub(super) struct Scheduler {
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
pub(super) enum Command {
    /// A job, to be done when it is its turn, its priority, and what happens when it is cancelled.
    Start(Arc<Place>, i32, OnCancel),
    /// A sequence that nobody needs any more.
    Close(SeqId),
    /// Makes the second session's sequence a copy of the first one's.
    Fork(Arc<Shared>, Arc<Shared>),
    /// Pages may be free that jobs wait for.
    Freed,
    /// A job was cancelled while it waited.
    Cancelled(Arc<Shared>),
    /// A session that has a sequence and does nothing.
    Idle(Arc<Shared>),
    /// Takes the sequence of the session that has been idle for longest; says whether there was one.
    Evict(Sender<bool>),
}

/// How the thread is told.
#[derive(Default)]
pub(super) struct Signals {
    queue: Mutex<Queue>,
    woken: Condvar,
    /// The step under way ends when this is cancelled.
    step: Mutex<CancelToken>,
    thread: OnceLock<ThreadId>,
}

#[derive(Default)]
struct Queue {
    commands: VecDeque<Command>,
    /// Something has changed that the thread has not looked at yet.
    awake: bool,
    stop: bool,
    /// Who has pages beside the sessions: those who save or restore one.
    holders: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scheduler {
    pub(super) fn start(stages: Arc<Stages>, second: Option<Arc<Second>>, limits: Limits) -> Result<Self> {
        let signals = Arc::<Signals>::default();
        let mut worker = Worker::new((stages, second), limits, Arc::clone(&signals));
        let thread = std::thread::Builder::new().name("skulk-model".into()).spawn(move || worker.run());
        let thread = thread.map_err(|e| {
            Error::new(ErrorKind::EngineFailed, "cannot start the model's thread").with_source(e)
        })?;
        let _ = signals.thread.set(thread.thread().id());
        Ok(Self { signals, thread: Some(thread) })
    }

    pub(super) fn signals(&self) -> &Arc<Signals> {
        &self.signals
    }

    /// Makes room by taking an idle session's sequence, as options allow it; false where there is none.
    pub(super) fn evict(&self) -> bool {
        let (done, evicted) = channel();
        // The thread cannot wait for itself.
        !self.signals.is_here() && {
            self.tell(Command::Evict(done));
            evicted.recv().unwrap_or(false)
        }
    }

    /// Says that somebody else has pages while this lives, for which jobs can wait.
    pub(super) fn hold(&self) -> Holder<'_> {
        lock(&self.signals.queue).holders += 1;
        Holder(self)
    }

    pub(super) fn tell(&self, command: Command) {
        self.signals.tell(command);
    }

    /// Does a job when it is its turn. While it waits, it ends on the thread that cancels it.
    pub(super) fn add(&self, job: Job) {
        let (cancel, priority) = (job.cancel.clone(), job.priority);
        let (place, signals) = (Arc::new(Place::of(job)), Arc::clone(&self.signals));
        let waiting = Arc::clone(&place);
        let on_cancel = cancel.on_cancel(move || match waiting.take() {
            // It takes part in steps.
            None => signals.interrupt(),
            Some(job) => {
                let (shared, cancelled) = (Arc::clone(&job.turn.shared), job.cancel.check());
                job.end(cancelled);
                // The model may end with its last session, and waits then for the thread, which may wait for this call.
                signals.tell(Command::Cancelled(shared));
            }
        });
        self.tell(Command::Start(place, priority, on_cancel));
    }
}

/// See [`Scheduler::hold`].
pub(super) struct Holder<'a>(&'a Scheduler);

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.signals.queue);
        queue.holders -= 1;
        queue.commands.push_back(Command::Freed);
        drop(queue);
        self.0.signals.wake();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        lock(&self.signals.queue).stop = true;
        self.signals.interrupt();
        if let Some(thread) = self.thread.take()
            && !self.signals.is_here()
        {
            // Its panic, if there was one, has ended all generations.
            let _ = thread.join();
        }
    }
}

impl Signals {
    /// Whether the caller is on the scheduler's thread, which cannot wait for itself.
    pub(super) fn is_here(&self) -> bool {
        self.thread.get() == Some(&std::thread::current().id())
    }

    /// Whether others have pages, or have told something that the thread has not heard.
    fn will_free(&self) -> bool {
        let queue = lock(&self.queue);
        queue.holders > 0 || !queue.commands.is_empty()
    }

    fn tell(&self, command: Command) {
        lock(&self.queue).commands.push_back(command);
        self.wake();
    }

    /// Lets the thread look what has changed.
    pub(super) fn wake(&self) {
        lock(&self.queue).awake = true;
        self.woken.notify_one();
    }

    /// The same, and ends the step under way, if there is one.
    pub(super) fn interrupt(&self) {
        let step = lock(&self.step).clone();
        step.cancel();
        self.wake();
    }

    /// A token for the next step.
    fn next_step(&self) -> CancelToken {
        let mut step = lock(&self.step);
        if step.is_cancelled() {
            *step = CancelToken::new();
        }
        step.clone()
    }

    /// The next commands, put behind those in `commands`; waits for some when there is nothing else to do. False when
    /// the thread shall end.
    fn take(&self, commands: &mut VecDeque<Command>, idle: bool) -> bool {
        let mut queue = lock(&self.queue);
        while idle && !queue.awake && !queue.stop {
            queue = self.woken.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.awake = false;
        commands.append(&mut queue.commands);
        !queue.stop
    }
}
