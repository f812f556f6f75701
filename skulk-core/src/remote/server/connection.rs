//! How long may a connection take, and when is it closed for another? A task for each, which watches what passes.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;

use super::accept::close;
use super::listen::Wire;
use super::metrics::Metrics;
use super::routes::answer;
use super::served::Served;
use super::{Limits, Stop};

/// Far enough away to be never.
pub(super) const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Requests beside each other on a connection of HTTP/2.
const STREAMS: u32 = 8;

/// Bytes of the head of a request of HTTP/2.
const HEAD: u32 = 16 << 10;

/// What a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was asked yet.
    New,
    /// A request's head arrives.
    Reading,
    /// A request is answered.
    Busy,
    /// The reply is given, and nothing else asked.
    Idle,
}

/// What a connection is at, and since when.
pub(super) struct Activity(Mutex<State>);

struct State {
    phase: Phase,
    since: Instant,
    /// Requests that are being answered.
    busy: usize,
    /// Requests come beside each other, so that bytes that arrive need not be the head of one.
    multiplexed: bool,
}

/// A request that is being answered.
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut now = self.0.now();
        now.busy -= 1;
        if now.busy == 0 {
            (now.phase, now.since) = (Phase::Idle, Instant::now());
        }
    }
}

impl Activity {
    /// Of a connection that was just made.
    pub(super) fn new() -> Self {
        let (phase, since) = (Phase::New, Instant::now());
        Self(Mutex::new(State { phase, since, busy: 0, multiplexed: false }))
    }

    fn now(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is encrypted, and begins now.
    fn begins(&self) {
        self.now().since = Instant::now();
    }

    /// A request is answered until this is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        let mut now = self.now();
        now.busy += 1;
        (now.phase, now.since) = (Phase::Busy, Instant::now());
        Busy(Arc::clone(self))
    }

    fn received(&self) {
        let mut now = self.now();
        if now.phase == Phase::Idle && !now.multiplexed {
            (now.phase, now.since) = (Phase::Reading, Instant::now());
        }
    }

    fn sent(&self) {
        let mut now = self.now();
        if now.phase == Phase::Idle {
            now.since = Instant::now();
        }
    }

    fn is_new(&self) -> bool {
        self.now().phase == Phase::New
    }

    /// Since when it can be closed for another.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let now = self.now();
        (now.phase != Phase::Busy).then_some(now.since)
    }

    /// When it has taken too long.
    fn deadline(&self, limits: &Limits) -> Option<Instant> {
        let State { phase, since, .. } = *self.now();
        match phase {
            Phase::New | Phase::Reading => since.checked_add(limits.header),
            Phase::Idle => since.checked_add(limits.idle),
            Phase::Busy => None,
        }
    }
}

/// Bytes that pass are seen, and counted.
struct Watched {
    wire: Box<dyn Wire>,
    activity: Arc<Activity>,
    metrics: Arc<Metrics>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.wire).poll_read(cx, buf);
        let bytes = buf.filled().len() - before;
        if bytes > 0 {
            self.activity.received();
            self.metrics.received.inc_by(bytes as u64);
        }
        read
    }
}

impl Watched {
    fn sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.activity.sent();
            self.metrics.sent.inc_by(bytes as u64);
        }
        written
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write(cx, buf);
        self.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write_vectored(cx, bufs);
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}

/// Serves a connection until it ends, takes too long, or the server stops.
pub(super) async fn serve(
    wire: Box<dyn Wire>,
    tls: Option<TlsAcceptor>,
    activity: Arc<Activity>,
    served: Arc<Served>,
    mut stop: watch::Receiver<Stop>,
) {
    let limits = served.limits;
    let mut stopping = pin!(async move { stop.wait_for(|stop| *stop != Stop::Never).await.is_ok() });
    let wire = match tls {
        None => wire,
        Some(tls) => {
            let mut encrypted = pin!(tokio::time::timeout(limits.header, tls.accept(wire).into_fallible()));
            let encrypted = poll_fn(|cx| match stopping.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => encrypted.as_mut().poll(cx).map(Some),
            });
            match encrypted.await {
                Some(Ok(Ok(wire))) => {
                    activity.begins();
                    Box::new(wire) as Box<dyn Wire>
                }
                // It was said why, which a client reads with the first answer.
                Some(Ok(Err((_, wire)))) => return close(wire).await,
                Some(Err(_)) | None => return,
            }
        }
    };
    let metrics = Arc::clone(&served.running.metrics);
    let io = TokioIo::new(Watched { wire, activity: Arc::clone(&activity), metrics });
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let busy = activity.busy();
        activity.now().multiplexed = request.version() == Version::HTTP_2;
        let (served, activity) = (Arc::clone(&served), Arc::clone(&activity));
        async move {
            let reply = answer(&served, &activity, request).await;
            drop(busy);
            Ok::<_, std::convert::Infallible>(reply)
        }
    });
    let mut http = auto::Builder::new(TokioExecutor::new());
    // Heads are timed here, together with what else a connection waits for.
    http.http1().timer(TokioTimer::new()).header_read_timeout(None);
    http.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS).max_header_list_size(HEAD);
    let mut connection = pin!(http.serve_connection(io, service));
    let mut sleep = pin!(sleep_until(Instant::now() + NEVER));
    let mut draining = false;
    poll_fn(|cx| {
        if !draining && stopping.as_mut().poll(cx).is_ready() {
            draining = true;
            if activity.is_new() {
                return Poll::Ready(());
            }
            connection.as_mut().graceful_shutdown();
        }
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let deadline = activity.deadline(&limits).unwrap_or_else(|| Instant::now() + NEVER);
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx)
    })
    .await;
}
