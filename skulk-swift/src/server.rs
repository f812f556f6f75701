//! How does Swift serve a model's blocks to others? What is behind `serve` and `Server`.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use skulk_contract::options::{ServeOptions, grace};
use skulk_contract::{functions, threads};

use crate::error::{Answer, options};
use crate::running::Readers;
use crate::work::{RawCancel, run};

/// What is behind a `Server`.
#[derive(uniffi::Object)]
pub struct RawServer {
    server: Arc<skulk::Server>,
    end: Arc<End>,
}

/// When has a server stopped? One thread waits for that, and tells all tasks that do, of which each may give up.
#[derive(Default)]
struct End {
    came: AtomicBool,
    waiting: Arc<Readers>,
    is_watched: Mutex<bool>,
}

impl End {
    /// Has a thread wait, unless one does.
    fn watch(self: &Arc<Self>, server: &Arc<skulk::Server>) -> skulk::Result<()> {
        let mut is_watched = self.is_watched.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_watched {
            let (end, server) = (Arc::clone(self), Arc::clone(server));
            threads::start(move || {
                server.wait();
                end.came.store(true, Ordering::Release);
                Arc::clone(&end.waiting).wake();
            })?;
            *is_watched = true;
        }
        Ok(())
    }
}

#[uniffi::export]
impl RawServer {
    /// Serves a checkpoint.
    #[uniffi::constructor]
    pub async fn serve(path: String, given: String, cancel: Arc<RawCancel>) -> Answer<Arc<Self>> {
        let serve = options(&given, ServeOptions::read)?.cancel(cancel.0.clone());
        let server = run(move || functions::serve(path.as_ref(), &serve)).await?;
        Ok(Arc::new(Self { server: Arc::new(server), end: Arc::default() }))
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.server.address().to_string()
    }

    /// Numbers in the text format of OpenMetrics.
    pub fn metrics(&self) -> String {
        self.server.metrics()
    }

    /// Stops it, within so many seconds.
    pub async fn stop(&self, seconds: f64) -> Answer<()> {
        let (server, grace) = (Arc::clone(&self.server), grace(seconds)?);
        run(move || {
            server.stop(grace);
            Ok(())
        })
        .await
    }

    /// Waits until it has stopped, or `cancel` ends that.
    pub async fn wait(&self, cancel: Arc<RawCancel>) -> Answer<()> {
        self.end.watch(&self.server)?;
        let waiting = &self.end.waiting;
        let woken = Arc::clone(waiting);
        let _woken_by_cancel = cancel.0.on_cancel(move || woken.wake());
        let look = |_: &mut Context<'_>| match self.end.came.load(Ordering::Acquire) {
            true => Poll::Ready(Ok(())),
            false => cancel.0.check().map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending),
        };
        Ok(poll_fn(|cx| waiting.poll(cx, look)).await?)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        // Threads that wait for it hold it, too.
        self.server.stop(Duration::ZERO);
    }
}
