//! How is a job asked for and waited for? One request for each, over a connection that is kept.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::Peer;
use super::connection::{Answer, Answered, Ask, Connection, Failed, Pending};
use super::crossing::Expects;
use super::waiting::{Ended, Runtime, Until, after};
use crate::engine::{FfnJob, FfnLine, StepCx};
use crate::error::{Error, ErrorKind, Result};

/// The first pause before a busy server is asked again; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(2);

/// The longest.
const LONGEST: Duration = Duration::from_millis(250);

/// How long a job's beginning waits until the server has taken the request. What takes longer, as connecting may, goes on
/// while the job is waited for, so that whoever has other servers can ask them.
const TAKING: Duration = Duration::from_millis(500);

/// A line to a server.
pub(super) struct Line {
    pub(super) peer: Arc<Peer>,
    runtime: Runtime,
    /// Where no job is under way.
    connection: Option<Connection>,
    job: Option<Job>,
    /// What a job crosses as, where it does not lie so.
    pub(super) rows: Vec<f32>,
    pub(super) experts: Vec<u32>,
    pub(super) weights: Vec<f32>,
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

impl Line {
    pub(super) fn new(peer: Arc<Peer>) -> Result<Self> {
        let (rows, experts, weights) = Default::default();
        Ok(Self { peer, runtime: Runtime::new()?, connection: None, job: None, rows, experts, weights })
    }
}

impl Peer {
    /// Sends a request, over the connection that there is or a new one.
    pub(super) async fn send(&self, kept: Option<Connection>, ask: &Ask) -> Result<(Connection, Pending)> {
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.open().await?,
        };
        loop {
            let new = connection.answered == Answered::Nothing;
            if new || !connection.has_ended().await {
                match connection.send(&self.target, ask).await {
                    Ok(pending) => return Ok((connection, pending)),
                    // The server may have ended it before it saw the request.
                    Err(Failed::Lost(_)) if !new => {}
                    Err(failed) => return Err(failed.into_error(&self.target.address, "was lost")),
                }
            }
            connection = self.renew(connection.answered).await?;
        }
    }

    /// Waits for the answer; asks again where the server had ended a kept connection.
    pub(super) async fn answer(
        &self,
        ask: &Ask,
        (mut connection, mut pending): (Connection, Pending),
    ) -> Result<(Connection, Answer)> {
        loop {
            match connection.receive(&mut pending, ask.most).await {
                Ok(answer) => {
                    connection.answered = Answered::Other;
                    return Ok((connection, answer));
                }
                Err(Failed::Lost(_)) if connection.answered != Answered::Nothing => {
                    let new = self.renew(connection.answered).await?;
                    (connection, pending) = self.send(Some(new), ask).await?;
                }
                Err(failed) => return Err(failed.into_error(&self.target.address, "was lost")),
            }
        }
    }

    /// Sends a request, and says when it has; then waits for the answer. Again and again where the server is busy.
    async fn exchange(
        self: Arc<Self>,
        kept: Option<Connection>,
        ask: Ask,
        taken: Arc<AtomicBool>,
    ) -> (Option<Connection>, Result<Answer>) {
        let mut sent = match self.send(kept, &ask).await {
            Ok(sent) => sent,
            Err(error) => return (None, Err(error)),
        };
        taken.store(true, Ordering::Relaxed);
        let mut pause = PAUSE;
        loop {
            let (connection, answer) = match self.answer(&ask, sent).await {
                Ok(answered) => answered,
                Err(error) => return (None, Err(error)),
            };
            if !answer.is_busy() {
                return (Some(connection), Ok(answer));
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST.min(pause * 2);
            sent = match self.send(Some(connection), &ask).await {
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
        job.check(self.peer.arch.hidden_size, &self.peer.serves(job.layer))?;
        let patience = after(self.peer.options.timeout);
        if job.results() == 0 {
            let answer = Answer::default();
            self.job = Some(Job { expects: Expects::Nothing, patience, state: State::Answered(answer) });
            return Ok(());
        }
        let (ask, expects) = self.ask(job)?;
        let Self { peer, runtime, connection, .. } = self;
        let taken = Arc::new(AtomicBool::new(false));
        let exchange = Arc::clone(peer).exchange(connection.take(), ask, Arc::clone(&taken));
        let mut exchange: Exchange = Box::pin(exchange);
        let begun = poll_fn(|cx| match exchange.as_mut().poll(cx) {
            Poll::Ready(answered) => Poll::Ready(Some(answered)),
            Poll::Pending if taken.load(Ordering::Relaxed) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let limit = patience.min(after(TAKING));
        let until = Until { cancel: cx.cancel, deadline: cx.deadline, patience: limit };
        let state = match runtime.wait(until.wait(begun))? {
            Ok(Some((kept, answer))) => {
                *connection = kept;
                State::Answered(answer?)
            }
            Ok(None) => State::Asked(exchange),
            Err(Ended::Late) if Instant::now() < patience => State::Asked(exchange),
            Err(ended) => return Err(ended.into_error(&peer.target.address, "to take a request")),
        };
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
        let rows = self.results(expects);
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
