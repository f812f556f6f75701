//! Which request asks for what? Routes, and what all of them have in common.

use std::sync::Arc;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};

use super::connection::Activity;
use super::reply::{Refusal, Reply, empty, json, of_type};
use super::served::Served;
use super::{ends, experts, grpc, metrics, walk};
use crate::remote::wire::{self, WireType};

/// What is asked.
#[derive(Debug, Clone, Copy)]
enum Route {
    Health,
    Stats,
    Models,
    Metrics,
    Echo,
    Walk,
    WalkQ8k,
    ExpertBatch,
    Expert,
    LayerBatch(WireType),
    MultiBatch,
    MultiBatchQ8k,
    Embed,
    EmbedOne,
    Logits,
    GrpcBatch,
    GrpcStream,
}

use Route as R;

/// Each route's path, and whether something is sent there. What follows a path that ends in `/` is the request's.
const ROUTES: &[(&str, bool, Route)] = &[
    ("/v1/health", false, R::Health),
    ("/v1/stats", false, R::Stats),
    ("/v1/models", false, R::Models),
    ("/v1/metrics", false, R::Metrics),
    ("/v1/echo", true, R::Echo),
    ("/v1/walk-ffn", true, R::Walk),
    ("/v1/walk-ffn-q8k", true, R::WalkQ8k),
    ("/v1/expert/batch", true, R::ExpertBatch),
    ("/v1/expert/", true, R::Expert),
    ("/v1/experts/layer-batch", true, R::LayerBatch(WireType::F32)),
    ("/v1/experts/layer-batch-f16", true, R::LayerBatch(WireType::F16)),
    ("/v1/experts/multi-layer-batch", true, R::MultiBatch),
    ("/v1/experts/multi-layer-batch-q8k", true, R::MultiBatchQ8k),
    ("/v1/embed", true, R::Embed),
    ("/v1/embed/", false, R::EmbedOne),
    ("/v1/logits", true, R::Logits),
    (wire::grpc::BATCH, true, R::GrpcBatch),
    (wire::grpc::STREAM, true, R::GrpcStream),
];

/// What a path has behind a route's, where it is one of that route.
fn behind<'p>(path: &'p str, route: &str) -> Option<&'p str> {
    let behind = path.strip_prefix(route)?;
    // Experts are named by two indices, tokens by one.
    let parts = behind.split('/').filter(|part| !part.is_empty()).count();
    let named = behind.split('/').count() == parts;
    match route {
        "/v1/expert/" => (named && parts == 2).then_some(behind),
        "/v1/embed/" => (named && parts == 1).then_some(behind),
        _ => behind.is_empty().then_some(behind),
    }
}

/// Answers a request.
pub(super) async fn answer(
    served: &Arc<Served>,
    activity: &Arc<Activity>,
    request: Request<Incoming>,
) -> Reply {
    let (head, body) = request.into_parts();
    let route = ROUTES.iter().find(|(path, ..)| behind(head.uri.path(), path).is_some());
    let own = |reply: Reply| (reply.status(), reply);
    let (status, reply) = match route {
        Some((_, _, Route::Health)) if head.method == Method::GET => {
            own(json(StatusCode::OK, &served.health()))
        }
        _ if !served.guard.admits(&head.headers) => own(empty(StatusCode::UNAUTHORIZED)),
        None => own(empty(StatusCode::NOT_FOUND)),
        Some((_, true, _)) if head.method != Method::POST => own(not_allowed("POST")),
        Some((_, false, _)) if head.method != Method::GET => own(not_allowed("GET")),
        Some((_, _, route)) => match of_route(served, activity, *route, &head, body).await {
            // Its messages are counted.
            Ok(reply) if matches!(route, Route::GrpcStream) => return reply,
            Ok(reply) => own(reply),
            Err(refusal) if matches!(route, Route::GrpcBatch | Route::GrpcStream) => {
                (refusal.status(), grpc::refused(&refusal))
            }
            Err(refusal) => (refusal.status(), refusal.reply()),
        },
    };
    served.running.metrics.answered(route.map_or("none", |(path, ..)| path), status.as_u16());
    reply
}

fn not_allowed(allowed: &'static str) -> Reply {
    let mut reply = empty(StatusCode::METHOD_NOT_ALLOWED);
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

async fn of_route(
    served: &Arc<Served>,
    activity: &Arc<Activity>,
    route: Route,
    head: &Parts,
    body: Incoming,
) -> Result<Reply, Refusal> {
    let named = |route: &str| behind(head.uri.path(), route).unwrap_or_default();
    match route {
        Route::Health => Ok(json(StatusCode::OK, &served.health())),
        Route::Stats => Ok(json(StatusCode::OK, &served.stats)),
        Route::Models => Ok(json(StatusCode::OK, &served.models)),
        Route::Metrics => Ok(of_type(metrics::CONTENT_TYPE, served.running.metrics.text())),
        Route::Echo => Ok(of_type("application/octet-stream", read(served, body).await?)),
        Route::Walk => walk::walk(served, head, &read(served, body).await?).await,
        Route::WalkQ8k => walk::walk_q8k(served, &read(served, body).await?).await,
        Route::ExpertBatch => experts::batch(served, head, &read(served, body).await?).await,
        Route::Expert => experts::one(served, named("/v1/expert/"), &read(served, body).await?).await,
        Route::LayerBatch(wire) => experts::layer_batch(served, wire, &read(served, body).await?).await,
        Route::MultiBatch => experts::multi_batch(served, &read(served, body).await?).await,
        Route::MultiBatchQ8k => experts::multi_batch_q8k(served, &read(served, body).await?).await,
        Route::Embed => ends::embed(served, head, &read(served, body).await?),
        Route::EmbedOne => ends::embed_one(served, head, named("/v1/embed/")),
        Route::Logits => ends::logits(served, head, &read(served, body).await?).await,
        Route::GrpcBatch => {
            grpc::check(head)?;
            grpc::batch(served, &read(served, body).await?).await
        }
        Route::GrpcStream => {
            grpc::check(head)?;
            Ok(grpc::stream(served, activity, body))
        }
    }
}

/// All of a body, if it is small enough and comes in time.
async fn read(served: &Served, body: Incoming) -> Result<Bytes, Refusal> {
    let limits = served.limits;
    let too_large = || {
        let message = format!("the body has more than {} bytes", limits.body);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    if body.size_hint().lower() > limits.body as u64 {
        return Err(too_large());
    }
    let whole = Limited::new(body, limits.body).collect();
    match tokio::time::timeout(limits.read, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Refusal::bad("the body cannot be read")),
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Binary,
    Json,
}

/// How a body is written that may be in this binary type: whatever else is named, it is taken for JSON, as LARQL does.
pub(super) fn written(head: &Parts, binary: &str) -> Written {
    let named = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if named.is_some_and(|named| named.contains(binary)) { Written::Binary } else { Written::Json }
}

/// The smallest type of rows that a client takes.
pub(super) fn accepted(head: &Parts) -> WireType {
    let accepts = |wire: WireType| {
        let mut values = head.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.contains(wire.content_type()))
    };
    [WireType::I8, WireType::F16].into_iter().find(|wire| accepts(*wire)).unwrap_or(WireType::F32)
}
