//! How is LARQL's gRPC service of experts answered? Beside the routes, over HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode, Version};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::Stop;
use super::batch::Form;
use super::connection::Activity;
use super::experts::{Task, compute, expert_row};
use super::reply::{Refusal, Reply, ReplyBody, stopping, whole};
use super::served::Served;
use super::walk::{milliseconds, not_finite};
use crate::remote::codes;
use crate::remote::wire::grpc::{
    BatchReply, BatchRequest, CONTENT_TYPE as GRPC, LayerInput, LayerOutput, STREAM, split,
};
use crate::remote::wire::{ExpertRow, WireType};

/// What a trailer's words cannot hold as it is.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// `Ok` for a request that can be one.
pub(super) fn check(head: &Parts) -> Result<(), Refusal> {
    let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let content = text(CONTENT_TYPE.as_str()).unwrap_or_default();
    let content = content.split(';').next().unwrap_or_default().trim();
    if head.version != Version::HTTP_2 || !matches!(content, GRPC | "application/grpc+proto") {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Refusal::new(status, format!("expected {GRPC}, over HTTP/2")));
    }
    match text(codes::ENCODING) {
        None | Some("identity") => Ok(()),
        Some(_) => {
            Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "messages that are compressed are not read"))
        }
    }
}

/// Says why a request is not answered as it wants.
pub(super) fn refused(refusal: &Refusal) -> Reply {
    if refusal.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return refusal.reply();
    }
    let mut reply = of_type(whole(Bytes::new()));
    reply.headers_mut().extend(trailers(Err(refusal)));
    reply
}

fn of_type(body: ReplyBody) -> Reply {
    let mut reply = Response::new(body);
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    reply
}

/// What ends a reply.
fn trailers(end: Result<(), &Refusal>) -> HeaderMap {
    let code = codes::code_of(end.err().map_or(StatusCode::OK, Refusal::status));
    let mut trailers = HeaderMap::new();
    trailers.insert(codes::STATUS, HeaderValue::from(code));
    if let Err(refusal) = end {
        let words = utf8_percent_encode(refusal.message(), ENCODED).to_string();
        // Encoded, they are letters that a header can hold.
        if let Ok(words) = HeaderValue::try_from(words) {
            trailers.insert(codes::MESSAGE, words);
        }
    }
    trailers
}

/// Rows that each go through one expert.
pub(super) async fn batch(served: &Served, body: &[u8]) -> Result<Reply, Refusal> {
    let hidden = served.hidden();
    let Some((message, [])) = split(body, served.limits.body)? else {
        return Err(Refusal::bad("expected one message, found less or more"));
    };
    let mut tasks = Vec::new();
    for ExpertRow { layer, expert, values } in BatchRequest::decode(message, hidden)?.rows() {
        let mut row = Vec::new();
        values.append_to(&mut row)?;
        tasks.push(Task { layer, row, experts: vec![(expert, 1.0)] });
    }
    let (rows, computing) = compute(served, &tasks, |_| Form::Expert).await?;
    let mut out = Vec::new();
    let rows = tasks.iter().zip(rows.chunks(hidden.max(1))).map(expert_row);
    BatchReply::encode(&mut out, milliseconds(computing), hidden, rows)?;
    let end = async { Some(Ok(trailers(Ok(())))) };
    Ok(of_type(whole(out).with_trailers(end).boxed_unsync()))
}

/// Rows through weighted experts, each answered as it comes.
pub(super) fn stream(served: &Arc<Served>, activity: &Arc<Activity>, body: Incoming) -> Reply {
    let (sender, channel) = Channel::new(1);
    let produce = produce(Arc::clone(served), Arc::clone(activity), body, sender);
    of_type(Produced { produce: Some(Box::pin(produce)), channel }.boxed_unsync())
}

/// A body that what produces it runs with.
struct Produced {
    produce: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    channel: Channel<Bytes>,
}

impl Body for Produced {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(produce) = &mut self.produce
            && produce.as_mut().poll(cx).is_ready()
        {
            self.produce = None;
        }
        Pin::new(&mut self.channel).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

async fn produce(served: Arc<Served>, activity: Arc<Activity>, body: Incoming, mut sender: Sender<Bytes>) {
    let mut received = Received { body, bytes: Vec::new(), taken: 0 };
    let mut stop = served.running.stop.clone();
    let answered = |status: StatusCode| served.running.metrics.answered(STREAM, status.as_u16());
    let end = loop {
        let message = match received.message(&served, &activity, &mut stop).await {
            Ok(Some(message)) => message,
            Ok(None) => break Ok(()),
            Err(refusal) => break Err(refusal),
        };
        let busy = activity.busy();
        let output = layer(&served, message).await;
        drop(busy);
        match output {
            Ok(output) => {
                answered(StatusCode::OK);
                if sender.send_data(output.into()).await.is_err() {
                    return;
                }
            }
            Err(refusal) => break Err(refusal),
        }
    };
    if let Err(refusal) = &end {
        answered(refusal.status());
    }
    sender.send_trailers(trailers(end.as_ref().copied())).await.ok();
}

async fn layer(served: &Served, message: &[u8]) -> Result<Vec<u8>, Refusal> {
    let input = LayerInput::decode(message, served.hidden())?;
    let mut row = Vec::new();
    input.row().append_to(&mut row)?;
    let experts = input.experts().map(|taken| (taken.expert, taken.weight)).collect();
    let task = Task { layer: input.layer(), row, experts };
    let (mut row, computing) = compute(served, &[task], Form::Sum).await?;
    if let Some(norm) = input.norm() {
        let mut weight = Vec::new();
        norm.weight.append_to(&mut weight)?;
        weight.iter_mut().for_each(|weight| *weight += norm.offset);
        row = served.running.service.normed(&row, (&weight, norm.eps));
    }
    if !WireType::F32.holds(&row) {
        return Err(not_finite());
    }
    let mut out = Vec::new();
    LayerOutput::encode(&mut out, input.layer(), &row, milliseconds(computing))?;
    Ok(out)
}

/// A body of messages, as far as it has come.
struct Received {
    body: Incoming,
    bytes: Vec<u8>,
    /// Bytes of messages that were taken.
    taken: usize,
}

enum Next {
    Came(Option<Result<Frame<Bytes>, hyper::Error>>),
    Stopping,
}

impl Received {
    /// The next message; `None` when there is none any more.
    async fn message(
        &mut self,
        served: &Served,
        activity: &Arc<Activity>,
        stop: &mut watch::Receiver<Stop>,
    ) -> Result<Option<&[u8]>, Refusal> {
        let limits = served.limits;
        let late = |wait| {
            Instant::now().checked_add(wait).unwrap_or_else(|| Instant::now() + super::connection::NEVER)
        };
        let mut stops = pin!(async { stop.wait_for(|stop| *stop != Stop::Never).await.is_ok() });
        let mut reading = None;
        let left = loop {
            if let Some((_, rest)) = split(&self.bytes[self.taken..], limits.body)? {
                break rest.len();
            }
            self.bytes.drain(..self.taken);
            self.taken = 0;
            let begun = !self.bytes.is_empty();
            let until = match begun {
                true => reading.get_or_insert_with(|| (late(limits.read), activity.busy())).0,
                false => late(limits.idle),
            };
            let mut frame = pin!(self.body.frame());
            let next = poll_fn(|cx| {
                if !begun && stops.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Stopping);
                }
                frame.as_mut().poll(cx).map(Next::Came)
            });
            match timeout_at(until, next).await {
                Ok(Next::Came(Some(Ok(frame)))) => {
                    if let Ok(data) = frame.into_data() {
                        self.bytes.extend_from_slice(&data);
                    }
                }
                Ok(Next::Came(None)) if !begun => return Ok(None),
                Ok(Next::Came(_)) => return Err(Refusal::bad("the last message is cut off")),
                Ok(Next::Stopping) => return Err(stopping()),
                Err(_) => {
                    return Err(Refusal::new(
                        StatusCode::REQUEST_TIMEOUT,
                        "the next message did not come in time",
                    ));
                }
            }
        };
        let start = self.taken;
        self.taken = self.bytes.len() - left;
        Ok(split(&self.bytes[start..], limits.body)?.map(|(message, _)| message))
    }
}
