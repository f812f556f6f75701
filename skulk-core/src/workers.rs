//! How is work on many things shared out? To threads that each take the next piece, until one fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Result;

/// What `work` makes of each item, in order, on up to `threads` threads, of which the caller is one; fewer where the system
/// allows no more. Each thread has one `S` for all its items. After an error no item is begun; of several errors the first
/// item's counts.
pub(crate) fn share_out<T: Sync, R: Send, S: Default>(
    threads: usize,
    items: &[T],
    work: impl Fn(&mut S, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<R>)>> = Mutex::default();
    let take_turns = || {
        let mut own = S::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = work(&mut own, item);
            if result.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    thread::scope(|scope| {
        for i in 1..threads.min(items.len()) {
            let named = thread::Builder::new().name(format!("skulk-worker-{i}"));
            if named.spawn_scoped(scope, take_turns).is_err() {
                break;
            }
        }
        take_turns();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
