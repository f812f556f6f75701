//! What if a server is lost, or slow? Another one that has the same weights is asked, for the same job.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{FfnJob, FfnLine, FfnMemory, FfnPair, FfnService, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::LayerIdx;
use crate::macros::opaque;

/// Services that have the same blocks and experts, of which each job needs one.
///
/// The first one is asked. Where it fails, and where it does not answer for a while, the next one is asked for the same
/// job, and the first answer counts: all of them compute alike, so that it is the same in every bit. One that failed, or
/// that another one overtook, is asked last for a second, and for twice as long each time that it happens again.
pub struct Replicas {
    name: String,
    members: Arc<[Member]>,
    hedge_after: Option<Duration>,
}

opaque!(Replicas);

struct Member {
    service: Arc<dyn FfnService>,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    /// Failures, and answers that came too late, since its last one that counted.
    failures: u32,
    /// Until when others are asked first.
    avoided: Option<Instant>,
}

/// How long others are asked first after a first failure, and at most.
const AVOIDED: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);

/// How long one of several that were asked is waited for before the other is looked at.
const TURN: Duration = Duration::from_millis(1);

impl Member {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) {
        let mut health = self.health();
        let pause = AVOIDED.saturating_mul(1 << health.failures.min(6)).min(MOST);
        health.failures = health.failures.saturating_add(1);
        health.avoided = Some(Instant::now() + pause);
    }

    fn answered(&self) {
        let mut health = self.health();
        if health.failures > 0 {
            *health = Health::default();
        }
    }

    fn is_avoided(&self, now: Instant) -> bool {
        self.health().avoided.is_some_and(|until| now < until)
    }
}

impl Replicas {
    /// How long a job is waited for before a second service is asked, unless another time is [given](Self::hedge_after).
    pub const HEDGE_AFTER: Duration = Duration::from_millis(500);

    /// These services, in the order in which they are asked.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for no services, and for those that [compute](FfnService::computes) differently or
    /// have other [weights](FfnService::weights).
    pub fn new(services: impl IntoIterator<Item = Arc<dyn FfnService>>) -> Result<Self> {
        let services: Vec<_> = services.into_iter().collect();
        let Some(first) = services.first() else {
            return Err(Error::argument("services", "expected a service or more, found none"));
        };
        let computes = first.computes();
        if let Some(other) = services.iter().find(|other| other.computes() != computes) {
            return Err(Error::argument(
                "services",
                format!(
                    "expected services that compute as `{}` does ({computes}), found `{}` ({})",
                    first.name(),
                    other.name(),
                    other.computes()
                ),
            )
            .with_hint("give all of them the same precision, and connect to all in the same way"));
        }
        let known: Vec<_> = services.iter().map(|service| service.weights()).collect();
        for (at, (layer, hash)) in
            known.iter().enumerate().flat_map(|(at, all)| all.iter().map(move |it| (at, it)))
        {
            let differs = |(other, other_hash): &&(LayerIdx, String)| other == layer && other_hash != hash;
            if let Some((other, _)) =
                known.iter().enumerate().find(|(_, other)| other.iter().any(|it| differs(&it)))
            {
                let (one, other) = (services[at].name(), services[other].name());
                let message = format!("expected services of the same weights, found `{one}` and `{other}`");
                return Err(Error::argument("services", message)
                    .with("layer", layer)
                    .with_hint("serve the same checkpoint, in the same quantisation, on all of them"));
            }
        }
        let names: Vec<_> = services.iter().map(|service| service.name()).collect();
        let name = names.join(" or ");
        let member = |service| Member { service, health: Mutex::default() };
        let members = services.into_iter().map(member).collect();
        Ok(Self { name, members, hedge_after: Some(Self::HEDGE_AFTER) })
    }

    /// Asks a second service when a job has taken so long; `None`: only when the first one fails.
    #[must_use]
    pub fn hedge_after(self, hedge_after: Option<Duration>) -> Self {
        Self { hedge_after, ..self }
    }
}

impl FfnService for Replicas {
    fn name(&self) -> &str {
        &self.name
    }

    fn serves(&self, layer: LayerIdx) -> Range<usize> {
        let all = self.members.iter().map(|member| member.service.serves(layer));
        all.reduce(|a, b| a.start.max(b.start)..a.end.min(b.end))
            .filter(|all| !all.is_empty())
            .unwrap_or(0..0)
    }

    fn computes(&self) -> String {
        self.members.first().map(|member| member.service.computes()).unwrap_or_default()
    }

    fn wants_residual(&self) -> bool {
        self.members.iter().any(|member| member.service.wants_residual())
    }

    fn weights(&self) -> Vec<(LayerIdx, String)> {
        let mut known = self.members.iter().map(|member| member.service.weights());
        known.find(|weights| !weights.is_empty()).unwrap_or_default()
    }

    fn memory(&self) -> Option<FfnMemory> {
        self.members.iter().find_map(|member| member.service.memory())
    }

    fn line(&self, max_rows: usize) -> Result<Box<dyn FfnLine>> {
        let line = |member: &Member| member.service.line(max_rows);
        Ok(Box::new(Line {
            members: Arc::clone(&self.members),
            lines: self.members.iter().map(line).collect::<Result<_>>()?,
            hedge_after: self.hedge_after,
            job: Kept::default(),
            untried: Vec::new(),
            asked: Vec::new(),
            first: 0,
            began: Instant::now(),
        }))
    }
}

struct Line {
    members: Arc<[Member]>,
    lines: Vec<Box<dyn FfnLine>>,
    hedge_after: Option<Duration>,
    job: Kept,
    /// Members that were not asked for this job, the next one last.
    untried: Vec<usize>,
    /// Those that were, in this order, and may answer yet.
    asked: Vec<usize>,
    /// Which of these has answered first, where one has.
    first: usize,
    /// When the last of them was asked.
    began: Instant,
}

/// A job, for whoever is asked next.
#[derive(Default)]
struct Kept {
    layer: usize,
    hidden: usize,
    input: Vec<f32>,
    residual: Vec<f32>,
    pairs: Vec<FfnPair>,
    sums: bool,
}

impl Kept {
    fn keep(&mut self, job: &FfnJob<'_>) {
        let Self { layer, hidden, input, residual, pairs, sums } = self;
        (*layer, *hidden, *sums) = (job.layer.0, job.hidden, job.sums);
        input.clear();
        input.extend_from_slice(job.input);
        residual.clear();
        residual.extend_from_slice(job.residual);
        pairs.clear();
        pairs.extend_from_slice(job.pairs);
    }

    fn job(&self) -> FfnJob<'_> {
        let Self { layer, hidden, input, residual, pairs, sums } = self;
        // Without input its rows are yet to be normed.
        let job = FfnJob::new(LayerIdx(*layer), *hidden, input, pairs).residual(residual);
        if *sums { job.sums() } else { job }
    }
}

/// Whether another service may do better.
fn is_its_own(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Cancelled | ErrorKind::DeadlineExceeded)
}

impl Line {
    /// Asks the next one that takes the job.
    fn ask_next(&mut self, cx: &StepCx<'_>, mut failure: Option<Error>) -> Result<()> {
        while let Some(at) = self.untried.pop() {
            self.began = Instant::now();
            match self.lines[at].begin(&self.job.job(), cx) {
                Ok(()) => {
                    self.asked.push(at);
                    return Ok(());
                }
                Err(error) if is_its_own(&error) => {
                    self.members[at].failed();
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(no_job))
    }

    /// One that was asked failed: somebody else may answer.
    fn lost(&mut self, at: usize, error: Error, cx: &StepCx<'_>) -> Result<()> {
        if !is_its_own(&error) {
            return Err(error);
        }
        self.members[at].failed();
        self.asked.retain(|asked| *asked != at);
        if self.asked.is_empty() { self.ask_next(cx, Some(error)) } else { Ok(()) }
    }
}

impl FfnLine for Line {
    fn begin(&mut self, job: &FfnJob<'_>, cx: &StepCx<'_>) -> Result<()> {
        self.job.keep(job);
        let now = Instant::now();
        let Self { members, untried, asked, .. } = self;
        asked.clear();
        untried.clear();
        // Those that failed come first in the list, which is taken from its end.
        for avoided in [true, false] {
            untried.extend((0..members.len()).rev().filter(|at| members[*at].is_avoided(now) == avoided));
        }
        self.ask_next(cx, None)
    }

    fn ready(&mut self, until: Instant, cx: &StepCx<'_>) -> Result<bool> {
        loop {
            // Whoever has answered comes first, for `wait`.
            for turn in 0..self.asked.len() {
                let at = self.asked[turn];
                // A time without end is none.
                let hedge = self.hedge_after.filter(|_| !self.untried.is_empty());
                let hedge = hedge.and_then(|after| self.began.checked_add(after));
                let own = match self.asked.len() {
                    1 => hedge.map_or(until, |hedge| hedge.min(until)),
                    _ => until.min(Instant::now() + TURN),
                };
                match self.lines[at].ready(own, cx) {
                    Ok(true) => {
                        self.first = turn;
                        return Ok(true);
                    }
                    Ok(false) => {}
                    Err(error) => {
                        self.lost(at, error, cx)?;
                        break;
                    }
                }
                if hedge.is_some_and(|hedge| Instant::now() >= hedge) {
                    // Where none of them takes it, the ones that were asked are still waited for.
                    match self.ask_next(cx, None) {
                        Err(error) if !is_its_own(&error) && error.kind() != ErrorKind::InvalidArgument => {
                            return Err(error);
                        }
                        _ => break,
                    }
                }
            }
            if self.asked.is_empty() {
                return Err(no_job());
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    fn wait(&mut self, out: &mut [f32], cx: &StepCx<'_>) -> Result<()> {
        loop {
            let never = Instant::now() + MOST;
            while !self.ready(never, cx)? {}
            let Some(&at) = self.asked.get(self.first) else { return Err(no_job()) };
            match self.lines[at].wait(out, cx) {
                Ok(()) => {
                    self.members[at].answered();
                    // They had more time than the one that answered.
                    for slow in self.asked.iter().take(self.first) {
                        self.members[*slow].failed();
                    }
                    self.asked.clear();
                    self.untried.clear();
                    return Ok(());
                }
                Err(error) => self.lost(at, error, cx)?,
            }
        }
    }
}

fn no_job() -> Error {
    Error::new(ErrorKind::InvalidArgument, "expected a job that was begun, found none")
        .with_hint("begin a job, then wait for it once")
}
