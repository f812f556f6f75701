//! How does a job cross and its results come back? One request for each job, over a connection that is kept.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use half::f16;
use hyper::Method;
use hyper::body::Bytes;

use super::connection::{Answer, Ask, Connection, Failed, Pending};
use super::known::failed;
use super::waiting::{Ended, Runtime, Until};
use super::{Peer, WORDS};
use crate::engine::{FfnJob, FfnLine, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::remote::wire::{
    ExpertReply, ExpertRequest, ExpertRow, LayerReply, LayerRequest, MultiReply, MultiRequest, MultiTask,
    WalkLayers, WalkReply, WalkRequest, Weighted, WireType, content,
};

/// The first pause before a busy server is asked again; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(2);

/// The longest.
const LONGEST: Duration = Duration::from_millis(250);

/// A line to a server.
pub(super) struct Line {
    peer: Arc<Peer>,
    runtime: Runtime,
    /// Where no job is under way.
    connection: Option<Connection>,
    job: Option<Job>,
    /// What a job crosses as, where it does not lie so.
    rows: Vec<f32>,
    experts: Vec<u32>,
    weights: Vec<f32>,
}

/// A job that was begun.
struct Job {
    expects: Expects,
    /// Until when the server may take.
    patience: Instant,
    state: State,
}

enum State {
    Asked(Exchange),
    Answered(Answer),
}

/// What answers a request, and the connection where it can be used again.
type Exchange = Pin<Box<dyn Future<Output = (Option<Connection>, Result<Answer>)> + Send>>;

/// What an answer must be.
#[derive(Clone, Copy)]
enum Expects {
    /// Of a job without rows: none is asked for.
    Nothing,
    Dense {
        layer: u32,
        rows: usize,
    },
    /// Of one row.
    Sum {
        wire: WireType,
    },
    /// `[rows, hidden]`, or a result for each pair.
    Sums {
        layer: u32,
        rows: usize,
    },
    Pairs {
        layer: u32,
    },
}

impl Line {
    pub(super) fn new(peer: Arc<Peer>) -> Result<Self> {
        let (rows, experts, weights) = Default::default();
        Ok(Self { peer, runtime: Runtime::new()?, connection: None, job: None, rows, experts, weights })
    }

    /// What is to be asked for a job, and what comes back.
    fn ask(&mut self, job: &FfnJob<'_>) -> Result<(Ask, Expects)> {
        let Self { peer, rows: crossing, experts, weights, .. } = self;
        let (hidden, wire) = (job.hidden, peer.options.wire);
        let layer = u32::try_from(job.layer.0).map_err(|e| {
            Error::argument("layer", "expected a layer of the model, found another").with_source(e)
        })?;
        let spec = peer.arch.layers[job.layer.0].ffn.experts;
        let ask = |path, content, accept, body: Vec<u8>| Ask {
            method: Method::POST,
            path,
            content: Some(content),
            accept,
            body: Bytes::from(body),
            // In f32, with what stands in front of each row.
            most: WORDS + job.results() * (hidden * 4 + 16),
        };
        let mut body = Vec::new();
        let rows = job.rows() * hidden;
        let Some(spec) = spec else {
            if job.input.len() != rows {
                return Err(Error::argument("input", "expected rows behind the block's norm, found others")
                    .with("layer", job.layer)
                    .with_hint("norm rows that go through a dense block first"));
            }
            let in_order = job.pairs.iter().enumerate().all(|(at, pair)| pair.row as usize == at);
            let input = if in_order && job.pairs.len() == job.rows() {
                job.input
            } else {
                let rows = job.pairs.iter().map(|pair| &job.input[pair.row as usize * hidden..][..hidden]);
                crossing.clear();
                rows.for_each(|row| crossing.extend_from_slice(row));
                &*crossing
            };
            WalkRequest::encode(&mut body, WalkLayers::One(layer), WalkRequest::TOP_K, hidden, input)?;
            let expects = Expects::Dense { layer, rows: job.pairs.len() };
            return Ok((ask("/v1/walk-ffn", content::FFN, Some(wire.content_type()), body), expects));
        };
        if job.residual.len() != rows {
            return Err(Error::argument(
                "residual",
                "expected rows before the norm beside the others, found none",
            )
            .with_hint("give them to a service that wants them"));
        }
        experts.clear();
        experts.extend(job.pairs.iter().map(|pair| pair.expert));
        weights.clear();
        weights.extend(job.pairs.iter().map(|pair| pair.weight));
        let row = |at: usize| &job.residual[at * hidden..][..hidden];
        if !job.sums && !spec.on_input {
            let rows = job.pairs.iter().map(|pair| ExpertRow {
                layer,
                expert: pair.expert,
                values: row(pair.row as usize),
            });
            ExpertRequest::encode(&mut body, hidden, rows)?;
            return Ok((ask("/v1/expert/batch", content::EXPERT, None, body), Expects::Pairs { layer }));
        }
        let halves = wire == WireType::F16;
        if job.sums && job.rows() == 1 {
            let (path, content, wire) = match halves && WireType::F16.holds(job.residual) {
                true => ("/v1/experts/layer-batch-f16", content::LAYER_F16, WireType::F16),
                false => ("/v1/experts/layer-batch", content::LAYER, WireType::F32),
            };
            let weighted = job.pairs.iter().map(|pair| Weighted { expert: pair.expert, weight: pair.weight });
            LayerRequest::encode(&mut body, wire, layer, job.residual, weighted)?;
            return Ok((ask(path, content, None, body), Expects::Sum { wire }));
        }
        let rows = job.results();
        let each = job.pairs.len() / rows.max(1);
        let residual = if job.sums && halves {
            // Several rows have a frame in f32 only. They cross as a row alone does.
            crossing.clear();
            for row in job.residual.chunks_exact(hidden) {
                crossing.extend_from_slice(row);
                round(&mut crossing[..], hidden);
            }
            &*crossing
        } else {
            job.residual
        };
        let tasks = (0..rows).map(|at| {
            let of = at * each..(at + 1) * each;
            let row = job.pairs[of.start].row as usize;
            let row = &residual[row * hidden..][..hidden];
            MultiTask { layer, row, experts: &experts[of.clone()], weights: &weights[of] }
        });
        MultiRequest::encode(&mut body, tasks)?;
        let ask = ask("/v1/experts/multi-layer-batch", content::MULTI, None, body);
        Ok((ask, Expects::Sums { layer, rows }))
    }

    /// Takes the results out of an answer.
    fn take(&self, expects: Expects, answer: &Answer, out: &mut [f32]) -> Result<()> {
        let (address, hidden) = (&self.peer.target.address, self.peer.arch.hidden_size);
        let differs = |what: &str, expected: String, found: String| {
            Err(failed(address, format!("expected {what} {expected}, found {found}"))
                .with_hint("the server answers something else than it was asked"))
        };
        let named = |error: Error| error.with("peer", address);
        let content = |expected: &'static str| {
            if answer.content.split(';').next().is_some_and(|found| found.trim() == expected) {
                return Ok(());
            }
            differs("the content type", expected.into(), format!("`{}`", answer.content))
        };
        let body = &answer.body;
        match expects {
            Expects::Nothing => Ok(()),
            Expects::Dense { layer, rows } => {
                let wire = self.dense_type(answer)?;
                let reply = WalkReply::decode(body, wire, hidden).map_err(named)?;
                let mut entries = reply.entries();
                match (entries.next(), entries.next()) {
                    (Some((found, values)), None) if found == layer && values.rows() == rows => {
                        values.copy_to(out).map_err(named)
                    }
                    _ => differs("results of", format!("layer {layer} for {rows} rows"), "others".into()),
                }
            }
            Expects::Sum { wire } => {
                content(if wire == WireType::F16 { content::LAYER_F16 } else { content::LAYER })?;
                LayerReply::decode(body, wire, hidden).and_then(|reply| reply.row.copy_to(out)).map_err(named)
            }
            Expects::Sums { layer, rows } => {
                content(content::MULTI)?;
                let reply = MultiReply::decode(body, hidden).map_err(named)?;
                if reply.len() != rows {
                    return differs("results", rows.to_string(), reply.len().to_string());
                }
                for ((found, row), out) in reply.rows().zip(out.chunks_exact_mut(hidden)) {
                    if found != layer {
                        return differs("results of layer", layer.to_string(), found.to_string());
                    }
                    row.copy_to(out).map_err(named)?;
                    if self.peer.options.wire == WireType::F16 {
                        round(out, hidden);
                    }
                }
                Ok(())
            }
            Expects::Pairs { layer } => {
                content(content::EXPERT)?;
                let reply = ExpertReply::decode(body, hidden).map_err(named)?;
                if reply.len() != self.experts.len() {
                    return differs("results", self.experts.len().to_string(), reply.len().to_string());
                }
                let rows = reply.rows().zip(&self.experts).zip(out.chunks_exact_mut(hidden));
                for ((row, expert), out) in rows {
                    if (row.layer, row.expert) != (layer, *expert) {
                        let found = format!("expert {} of layer {}", row.expert, row.layer);
                        return differs("the result of", format!("expert {expert} of layer {layer}"), found);
                    }
                    row.values.copy_to(out).map_err(named)?;
                }
                Ok(())
            }
        }
    }

    /// In which type a dense block's results came: as asked for, or one that loses less.
    fn dense_type(&self, answer: &Answer) -> Result<WireType> {
        let found = answer.content.split(';').next().unwrap_or_default().trim();
        let known = WireType::ALL.iter().copied().find(|wire| wire.content_type() == found);
        let asked = self.peer.options.wire;
        // They are declared in the order of what they lose.
        known.filter(|found| *found as usize <= asked as usize).ok_or_else(|| {
            failed(&self.peer.target.address, format!("expected results in {asked}, found `{found}`"))
        })
    }
}

/// Rounds the last row as it would cross in f16, where it would.
fn round(rows: &mut [f32], hidden: usize) {
    let start = rows.len() - hidden;
    let row = &mut rows[start..];
    if WireType::F16.holds(row) {
        row.iter_mut().for_each(|value| *value = f16::from_f32(*value).to_f32());
    }
}

impl Peer {
    /// Sends a request, over the connection that there is or a new one.
    async fn send(&self, mut kept: Option<Connection>, ask: &Ask) -> Result<(Connection, Pending)> {
        loop {
            if let Some(connection) = &mut kept
                && connection.has_ended().await
            {
                kept = None;
            }
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.open().await?,
            };
            match connection.send(&self.target, ask).await {
                Ok(pending) => return Ok((connection, pending)),
                // The server may have ended it before it saw the request.
                Err(Failed::Lost(_)) if connection.kept => {}
                Err(failed) => return Err(failed.into_error(&self.target.address, "was lost")),
            }
        }
    }

    /// Waits for the answer; asks again where the server was busy, or had ended a kept connection.
    async fn exchange(
        self: Arc<Self>,
        ask: Ask,
        mut sent: (Connection, Pending),
    ) -> (Option<Connection>, Result<Answer>) {
        let mut pause = PAUSE;
        loop {
            let (mut connection, mut pending) = sent;
            let again = match connection.receive(&mut pending, ask.most).await {
                Ok(answer) if answer.is_busy() => {
                    tokio::time::sleep(pause).await;
                    pause = LONGEST.min(pause * 2);
                    Some(connection)
                }
                Ok(answer) => {
                    connection.kept = true;
                    return (Some(connection), Ok(answer));
                }
                Err(Failed::Lost(_)) if connection.kept => None,
                Err(failed) => return (None, Err(failed.into_error(&self.target.address, "was lost"))),
            };
            sent = match self.send(again, &ask).await {
                Ok(sent) => sent,
                Err(error) => return (None, Err(error)),
            };
        }
    }
}

impl FfnLine for Line {
    fn begin(&mut self, job: &FfnJob<'_>, cx: &StepCx<'_>) -> Result<()> {
        self.job = None;
        cx.check()?;
        let n = self.peer.stats.serves(&self.peer.arch).get(&job.layer.0).cloned().unwrap_or(0..0);
        job.check(self.peer.arch.hidden_size, &n)?;
        let patience = Instant::now() + self.peer.options.timeout;
        if job.results() == 0 {
            let answer = Answer::default();
            self.job = Some(Job { expects: Expects::Nothing, patience, state: State::Answered(answer) });
            return Ok(());
        }
        let (ask, expects) = self.ask(job)?;
        let Self { peer, runtime, connection, .. } = self;
        let until = Until { cancel: cx.cancel, deadline: cx.deadline, patience };
        let kept = connection.take();
        let sent = runtime.wait(async { until.wait(peer.send(kept, &ask)).await })?;
        let sent =
            sent.unwrap_or_else(|ended| Err(ended.into_error(&peer.target.address, "to take a request")))?;
        let state = State::Asked(Box::pin(Arc::clone(peer).exchange(ask, sent)));
        self.job = Some(Job { expects, patience, state });
        Ok(())
    }

    fn ready(&mut self, until: Instant, cx: &StepCx<'_>) -> Result<bool> {
        let Self { peer, runtime, connection, job: slot, .. } = self;
        let Some(Job { patience, state: State::Asked(exchange), .. }) = slot else { return Ok(true) };
        let limit = Until { cancel: cx.cancel, deadline: cx.deadline, patience: until.min(*patience) };
        let ended = match runtime.wait(limit.wait(exchange))? {
            Ok((kept, answer)) => {
                *connection = kept;
                match (answer, slot.as_mut()) {
                    (Ok(answer), Some(job)) => job.state = State::Answered(answer),
                    (answer, _) => {
                        *slot = None;
                        answer?;
                    }
                }
                return Ok(true);
            }
            Err(Ended::Late) if Instant::now() < *patience => return Ok(false),
            Err(ended) => ended,
        };
        *slot = None;
        Err(ended.into_error(&peer.target.address, "to answer"))
    }

    fn wait(&mut self, out: &mut [f32], cx: &StepCx<'_>) -> Result<()> {
        let Some(patience) = self.job.as_ref().map(|job| job.patience) else { return Err(no_job()) };
        while !self.ready(patience, cx)? {}
        let Some(Job { expects, state: State::Answered(answer), .. }) = self.job.take() else {
            return Err(no_job());
        };
        let rows = match expects {
            Expects::Nothing => 0,
            Expects::Dense { rows, .. } | Expects::Sums { rows, .. } => rows,
            Expects::Sum { .. } => 1,
            Expects::Pairs { .. } => self.experts.len(),
        };
        let expected = rows * self.peer.arch.hidden_size;
        if out.len() != expected {
            let message = format!("expected room for {expected} numbers, found {}", out.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("give a row of the model's width for each result of the job"));
        }
        if let Expects::Nothing = expects {
            return Ok(());
        }
        answer.expect_ok(&self.peer.target.address)?;
        self.take(expects, &answer, out)
    }
}

fn no_job() -> Error {
    Error::new(ErrorKind::InvalidArgument, "expected a job that was begun, found none")
        .with_hint("begin a job, then wait for it once")
}
