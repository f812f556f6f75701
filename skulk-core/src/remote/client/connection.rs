//! What is a connection to a server? One request after the other, over a kept stream.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, TE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::remote::address::{Address, Place, bare};
use crate::remote::codes;
use crate::remote::wire::grpc;

/// Why a request got no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// The stream could not be had, or it ended or broke.
    Lost(Box<dyn std::error::Error + Send + Sync>),
    /// More bytes came than an answer can have.
    Large,
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Lost(error.into())
    }
}

/// Where requests go, and what all of them have.
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) host: HeaderValue,
    pub(super) key: Option<HeaderValue>,
}

/// What is asked.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Of the body.
    pub(super) content: Option<&'static str>,
    pub(super) accept: Option<&'static str>,
    pub(super) body: Bytes,
    /// Bytes that an answer has at most.
    pub(super) most: usize,
}

/// An answer, whole.
#[derive(Default)]
pub(super) struct Answer {
    /// Of gRPC's the status that means the same as its code; the body is its words where that is none of success.
    pub(super) status: StatusCode,
    pub(super) content: String,
    /// The server wants to be asked again later.
    pub(super) later: bool,
    pub(super) body: Bytes,
}

impl Answer {
    /// The server has too much to do.
    pub(super) fn is_busy(&self) -> bool {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::SERVICE_UNAVAILABLE => self.later,
            _ => false,
        }
    }
}

/// An answer whose head has not come yet.
pub(super) type Pending = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// A stream to a server that takes requests, one at a time.
pub(super) struct Connection {
    sender: Sender,
    /// Reads and writes, while it is asked to; `None` when the stream has ended.
    driver: Option<Task>,
    /// Bytes that were written.
    written: Arc<AtomicU64>,
    pub(super) answered: Answered,
}

/// What was answered over a connection before. A server may end it at any time behind that, as many do at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    Nothing,
    /// What the server holds, a moment ago.
    Stats,
    /// Something else.
    Other,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    fn send(&mut self, request: Request<Full<Bytes>>) -> Pending {
        match self {
            Self::Http1(sender) => Box::pin(sender.send_request(request)),
            Self::Http2(sender) => Box::pin(sender.send_request(request)),
        }
    }
}

/// What a connection of HTTP/2 wants done beside reading and writing. Its driver does it.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<Vec<Task>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(task));
    }
}

impl Tasks {
    /// Drives a connection, and what it wants done; ends when both have.
    fn drive(self, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) -> Task {
        let mut under_way: Vec<Task> = vec![Box::pin(async { drop(connection.await) })];
        Box::pin(poll_fn(move |cx| {
            loop {
                under_way.retain_mut(|task| task.as_mut().poll(cx).is_pending());
                let mut new = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if new.is_empty() {
                    return if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending };
                }
                under_way.append(&mut new);
            }
        }))
    }
}

impl Connection {
    pub(super) async fn open(target: &Target) -> Result<Self, Failed> {
        let stream: Box<dyn Stream> = match target.address.place() {
            Place::Unix(path) => unix(path).await?,
            Place::Tcp { host, port, .. } => {
                let stream = TcpStream::connect((bare(host), *port)).await?;
                stream.set_nodelay(true)?;
                match &target.tls {
                    None => Box::new(stream),
                    Some(config) => {
                        let name = ServerName::try_from(bare(host).to_owned())?;
                        Box::new(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?)
                    }
                }
            }
        };
        let written = Arc::new(AtomicU64::new(0));
        let stream = TokioIo::new(Counted { stream, written: Arc::clone(&written) });
        let (sender, driver): (_, Task) = if target.address.is_grpc() {
            let tasks = Tasks::default();
            let (sender, connection) = http2::Builder::new(tasks.clone()).handshake(stream).await?;
            (Sender::Http2(sender), tasks.drive(connection))
        } else {
            let (sender, connection) = http1::Builder::new().handshake(stream).await?;
            (Sender::Http1(sender), Box::pin(async { drop(connection.await) }))
        };
        Ok(Self { sender, driver: Some(driver), written, answered: Answered::Nothing })
    }

    /// What `future` gives, while the stream is read and written.
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Some(driver) = &mut self.driver
                && driver.as_mut().poll(cx).is_ready()
            {
                // What went wrong is told to whoever waits for an answer.
                self.driver = None;
            }
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Whether it has ended, as far as is known without asking.
    pub(super) async fn has_ended(&mut self) -> bool {
        self.drive(poll_fn(|_| Poll::Ready(()))).await;
        self.driver.is_none() || self.sender.is_closed()
    }

    /// Writes a request, as far as the server takes it before it answers.
    pub(super) async fn send(&mut self, target: &Target, ask: &Ask) -> Result<Pending, Failed> {
        let is_grpc = target.address.is_grpc();
        let uri = match is_grpc {
            false => Uri::from_static(ask.path),
            true => {
                let scheme = if target.tls.is_some() { "https" } else { "http" };
                let uri = Uri::builder().scheme(scheme).authority(target.host.as_bytes());
                uri.path_and_query(ask.path).build()?
            }
        };
        let mut request = Request::builder().method(ask.method.clone()).uri(uri);
        if let Some(headers) = request.headers_mut() {
            if is_grpc {
                headers.insert(TE, HeaderValue::from_static("trailers"));
            } else {
                headers.insert(HOST, target.host.clone());
            }
            if let Some(key) = &target.key {
                headers.insert(AUTHORIZATION, key.clone());
            }
            let mut insert = |name, value: Option<&'static str>| {
                value.map(|value| headers.insert(name, HeaderValue::from_static(value)))
            };
            insert(CONTENT_TYPE, ask.content);
            insert(ACCEPT, ask.accept);
        }
        let request = request.body(Full::new(ask.body.clone()))?;
        let before = self.written.load(Ordering::Relaxed);
        // A head of its own is more than nothing: the body has gone when so many bytes have.
        let all = before + ask.body.len() as u64 + 1;
        let mut pending = self.sender.send(request);
        let written = Arc::clone(&self.written);
        let mut early = None;
        self.drive(poll_fn(|cx| {
            if let Poll::Ready(answer) = pending.as_mut().poll(cx) {
                early = Some(answer);
                return Poll::Ready(());
            }
            if written.load(Ordering::Relaxed) >= all { Poll::Ready(()) } else { Poll::Pending }
        }))
        .await;
        Ok(match early {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => pending,
        })
    }

    /// Reads the answer to a request.
    pub(super) async fn receive(&mut self, pending: &mut Pending, most: usize) -> Result<Answer, Failed> {
        let (head, body) = self.drive(pending).await?.into_parts();
        let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let content = text(CONTENT_TYPE).unwrap_or_default().to_owned();
        let later = head.headers.contains_key(RETRY_AFTER);
        let body = self.drive(Limited::new(body, most).collect()).await;
        let body =
            body.map_err(|e| if e.is::<LengthLimitError>() { Failed::Large } else { Failed::Lost(e) })?;
        if head.status.is_success() && content.starts_with(grpc::CONTENT_TYPE) {
            let trailers = body.trailers().cloned().unwrap_or_default();
            return of_grpc(&head.headers, &trailers, content, body.to_bytes());
        }
        Ok(Answer { status: head.status, content, later, body: body.to_bytes() })
    }

    /// A request and its answer.
    pub(super) async fn ask(&mut self, target: &Target, ask: &Ask) -> Result<Answer, Failed> {
        let mut pending = self.send(target, ask).await?;
        self.receive(&mut pending, ask.most).await
    }
}

/// An answer in gRPC, whose code is in the trailers, or in the head where there is nothing else.
fn of_grpc(head: &HeaderMap, trailers: &HeaderMap, content: String, body: Bytes) -> Result<Answer, Failed> {
    let find = |name| trailers.get(name).or_else(|| head.get(name)).and_then(|value| value.to_str().ok());
    let code = find(codes::STATUS).and_then(|code| code.parse().ok());
    let status = codes::status_of(code.ok_or("its answer ended without a status")?);
    let body = match status.is_success() {
        true => body,
        false => percent_decode_str(find(codes::MESSAGE).unwrap_or_default()).collect(),
    };
    Ok(Answer { status, content, later: status == StatusCode::SERVICE_UNAVAILABLE, body })
}

#[cfg(unix)]
async fn unix(path: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
async fn unix(_: &std::path::Path) -> io::Result<Box<dyn Stream>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that counts what it has taken.
struct Counted {
    stream: Box<dyn Stream>,
    written: Arc<AtomicU64>,
}

impl Counted {
    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(n)) = &written {
            self.written.fetch_add(*n as u64, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream).poll_write(cx, buf);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream).poll_write_vectored(cx, bufs);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(cx)
    }
}
