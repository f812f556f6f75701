//! Who is let in? Connections as they come, until the server stops.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::Stop;
use super::connection::{Activity, serve};
use super::listen::{Listener, Wire};
use super::served::Served;

/// What those are told that there is no room for.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 52\r\n\r\n{\"error\":\"the server has too many connections open\"}";

/// How long the system is left alone when it cannot give a connection, as where too many files are open.
const PAUSE: Duration = Duration::from_millis(50);

/// What a connection's task is known by.
struct Open {
    activity: Arc<Activity>,
    task: AbortHandle,
}

enum Next {
    Came(std::io::Result<Box<dyn Wire>>),
    Ended,
    Stopping,
}

/// Serves all that come. Returns when the server has stopped, and nothing is served any more.
pub(super) async fn accept(
    listener: Listener,
    tls: Option<TlsAcceptor>,
    served: Arc<Served>,
    stop: watch::Receiver<Stop>,
) {
    let mut tasks = JoinSet::new();
    let mut open = BTreeMap::<u64, Open>::new();
    let mut id = 0;
    {
        let mut stop = stop.clone();
        let mut stopping = pin!(async move { stop.wait_for(|stop| *stop != Stop::Never).await.is_ok() });
        loop {
            let next = poll_fn(|cx| {
                if stopping.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Stopping);
                }
                if let Poll::Ready(Some(_)) = tasks.poll_join_next(cx) {
                    return Poll::Ready(Next::Ended);
                }
                listener.poll_accept(cx).map(Next::Came)
            });
            match next.await {
                Next::Stopping => break,
                Next::Ended => open.retain(|_, open| !open.task.is_finished()),
                Next::Came(Err(_)) => sleep(PAUSE).await,
                Next::Came(Ok(wire)) => {
                    open.retain(|_, open| !open.task.is_finished());
                    if open.len() >= served.limits.connections && !close_one(&mut open) {
                        // So many are told why; more, in no time, are not.
                        if tasks.len() < 2 * served.limits.connections {
                            tasks.spawn(refuse(wire, tls.is_some()));
                        }
                        continue;
                    }
                    let activity = Arc::new(Activity::new());
                    let (tls, stop) = (tls.clone(), served.running.stop.clone());
                    let connection = serve(wire, tls, Arc::clone(&activity), Arc::clone(&served), stop);
                    let counted = Counted::new(Arc::clone(&served));
                    let task = tasks.spawn(async move {
                        let _counted = counted;
                        connection.await;
                    });
                    open.insert(id, Open { activity, task });
                    id += 1;
                }
            }
        }
    }
    drop(listener);
    drain(tasks, stop).await;
}

/// Closes the connection that has been idle for longest; `false` where all are busy.
fn close_one(open: &mut BTreeMap<u64, Open>) -> bool {
    let idle = open.iter().filter_map(|(id, open)| Some((open.activity.idle_since()?, *id)));
    let Some((_, id)) = idle.min() else { return false };
    if let Some(open) = open.remove(&id) {
        open.task.abort();
    }
    true
}

/// Says that there is no room. Who expects encrypted words gets none.
async fn refuse(mut wire: Box<dyn Wire>, encrypted: bool) {
    if !encrypted {
        timeout(PAUSE, wire.write_all(FULL)).await.ok();
    }
    close(wire).await;
}

/// Ends a connection so that what was said last arrives.
pub(super) async fn close(mut wire: Box<dyn Wire>) {
    timeout(PAUSE, wire.shutdown()).await.ok();
    // Who closes with words unread takes back its own.
    let mut unread = [0; 512];
    timeout(PAUSE, async { while wire.read(&mut unread).await.is_ok_and(|read| read > 0) {} }).await.ok();
}

/// Waits for what is being served, as long as the server may.
async fn drain(mut tasks: JoinSet<()>, mut stop: watch::Receiver<Stop>) {
    loop {
        let until = match *stop.borrow_and_update() {
            Stop::At(until) => until,
            Stop::Never => Instant::now(),
        };
        let mut changed = pin!(async { stop.changed().await.is_ok() });
        let wait = poll_fn(|cx| {
            loop {
                match tasks.poll_join_next(cx) {
                    Poll::Ready(None) => return Poll::Ready(true),
                    Poll::Ready(Some(_)) => {}
                    // Another end was set, unless there is nobody left who could.
                    Poll::Pending => return changed.as_mut().poll(cx).map(|again| !again),
                }
            }
        });
        match timeout_at(until, wait).await {
            Ok(true) | Err(_) => return tasks.shutdown().await,
            Ok(false) => {}
        }
    }
}

/// A connection among those that are open.
struct Counted(Arc<Served>);

impl Counted {
    fn new(served: Arc<Served>) -> Self {
        served.running.metrics.connections.inc();
        Self(served)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.running.metrics.connections.dec();
    }
}
