//! How do events reach a reader that blocks, or one that wants to be woken? A bounded queue beside a waker.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::scheduler::Signals;
use crate::error::{Error, Result};
use crate::generate::Event;

/// Events that may wait for a slow reader before the generation waits for it.
pub(super) const BACKLOG: usize = 32;

/// The generation's end. Dropping it ends the stream.
pub(super) struct Sender(Arc<Channel>);

/// The reader's end. Without it, there is always room, and what is sent is lost.
pub(super) struct Receiver {
    channel: Arc<Channel>,
    /// Told when there is room again.
    signals: Arc<Signals>,
}

struct Channel {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
}

#[derive(Default)]
struct State {
    events: VecDeque<Result<Event>>,
    ended: bool,
    unread: bool,
    /// Of the reader's last poll that found nothing.
    waker: Option<Waker>,
}

/// A channel of at most so many events.
pub(super) fn channel(most: usize, signals: Arc<Signals>) -> (Sender, Receiver) {
    let state = State { events: VecDeque::with_capacity(most.min(BACKLOG)), ..State::default() };
    let channel = Arc::new(Channel { state: Mutex::new(state), changed: Condvar::new(), most });
    (Sender(Arc::clone(&channel)), Receiver { channel, signals })
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that the reader waits for. Wakers run foreign code: not with the lock held.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Sender {
    /// One that nobody listens to yet.
    pub(super) fn to_nobody() -> Self {
        let state = State { unread: true, ..State::default() };
        Self(Arc::new(Channel { state: Mutex::new(state), changed: Condvar::new(), most: 0 }))
    }

    /// Whether the reader has room for another event.
    pub(super) fn has_room(&self) -> bool {
        let state = self.0.lock();
        state.unread || state.events.len() < self.0.most
    }

    /// False when nobody listens any more.
    pub(super) fn send(&self, event: Result<Event>) -> bool {
        let mut heard = true;
        self.0.change(|state| {
            heard = !state.unread;
            if heard {
                state.events.push_back(event);
            }
        });
        heard
    }

    /// The same end once more. The stream ends when the first of them is dropped.
    pub(super) fn again(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Sends an error behind which nothing comes. A reader that is woken by it need not wait for the end.
    pub(super) fn fail(&self, error: Error) {
        self.0.change(|state| {
            if !state.unread {
                state.events.push_back(Err(error));
            }
            state.ended = true;
        });
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.change(|state| state.ended = true);
    }
}

impl Receiver {
    /// Waits for the next event; `None` behind the last.
    pub(super) fn recv(&self) -> Option<Result<Event>> {
        let mut state = self.channel.lock();
        loop {
            if let Some(event) = self.pop(&mut state) {
                return Some(event);
            }
            if state.ended {
                return None;
            }
            state = self.channel.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same without waiting: the next event wakes the reader, or the end does.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Result<Event>>> {
        let mut state = self.channel.lock();
        if let Some(event) = self.pop(&mut state) {
            return Poll::Ready(Some(event));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        let before = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Reads no more, and waits until nothing is sent any more.
    pub(super) fn wait_for_end(&self) {
        let mut state = self.stop(self.channel.lock());
        // The model's thread cannot wait for itself.
        while !state.ended && !self.signals.is_here() {
            state = self.channel.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pop(&self, state: &mut State) -> Option<Result<Event>> {
        let full = state.events.len() >= self.channel.most;
        let event = state.events.pop_front()?;
        if full {
            self.signals.wake();
        }
        Some(event)
    }

    fn stop<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.unread = true;
        state.events.clear();
        if !state.ended {
            self.signals.wake();
        }
        state
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.stop(self.channel.lock());
            state.waker.take()
        };
        drop(waker);
    }
}
