//! How do events reach a reader that blocks, or one that wants to be woken? A bounded channel beside a waker.

use std::sync::mpsc::{self, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::Result;
use crate::generate::Event;

/// Events that may wait for a slow reader before the generation waits for it.
const BACKLOG: usize = 32;

/// The generating thread's end. Dropping it ends the stream.
pub(super) struct Sender {
    events: SyncSender<Result<Event>>,
    // Fields are dropped in this order: whoever this wakes finds the end.
    end: WakeOnDrop,
}

/// The reader's end. Without it, sending fails.
pub(super) struct Receiver {
    events: mpsc::Receiver<Result<Event>>,
    waker: Arc<Slot>,
}

/// The waker of the reader's last poll that found nothing.
#[derive(Default)]
struct Slot(Mutex<Option<Waker>>);

struct WakeOnDrop(Arc<Slot>);

pub(super) fn channel() -> (Sender, Receiver) {
    let (sender, events) = sync_channel(BACKLOG);
    let waker = Arc::<Slot>::default();
    (Sender { events: sender, end: WakeOnDrop(Arc::clone(&waker)) }, Receiver { events, waker })
}

impl Sender {
    /// False when nobody listens any more.
    pub(super) fn send(&self, event: Result<Event>) -> bool {
        let heard = self.events.send(event).is_ok();
        self.end.0.wake();
        heard
    }
}

impl Receiver {
    /// Waits for the next event; `None` behind the last.
    pub(super) fn recv(&self) -> Option<Result<Event>> {
        self.events.recv().ok()
    }

    /// The same without waiting: the next event wakes the reader, or the end does.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Result<Event>>> {
        let event = match self.events.try_recv() {
            Err(TryRecvError::Empty) => {
                self.waker.replace(cx.waker().clone());
                // What came before the waker was there has woken nobody.
                self.events.try_recv()
            }
            event => event,
        };
        match event {
            Err(TryRecvError::Empty) => Poll::Pending,
            event => Poll::Ready(event.ok()),
        }
    }
}

impl Slot {
    /// Leaves a waker in place of the one before.
    fn replace(&self, waker: impl Into<Option<Waker>>) -> Option<Waker> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *slot, waker.into())
    }

    /// Wakers run foreign code: not with the lock held.
    fn wake(&self) {
        if let Some(waker) = self.replace(None) {
            waker.wake();
        }
    }
}

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}
