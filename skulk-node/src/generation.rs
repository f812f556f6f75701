//! How does Node.js follow a running generation? It polls, and is woken when there is more. No thread waits for it.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use napi::bindgen_prelude::{Either, Function};
use napi::threadsafe_function::ThreadsafeFunction;
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi_derive::napi;
use skulk::Finish;
use skulk_contract::functions::write;

use crate::error::raise;
use crate::model::numbers;

/// A running generation.
#[napi]
pub struct Generation {
    running: Option<skulk::Generation>,
    ended: bool,
    waker: Waker,
}

/// One step. What is not there is left out: few properties are made for most.
#[napi(object)]
pub struct Event {
    /// The sampled token's id.
    pub id: Option<u32>,
    /// The text that became certain.
    pub text: String,
    /// The token's log-probability, when asked for.
    pub logprob: Option<f64>,
    /// The likeliest tokens, when asked for.
    pub top_logprobs: Option<Vec<TokenLogprob>>,
    /// How it ended, as JSON.
    pub finish: Option<String>,
}

/// A token with its log-probability.
#[napi(object)]
pub struct TokenLogprob {
    /// Its id.
    pub id: u32,
    /// Its log-probability.
    pub logprob: f64,
}

/// Wakes JavaScript. It does not keep the event loop alive: that is for those who wait.
struct Alarm(ThreadsafeFunction<(), (), (), napi::Status, false, true>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        // Where JavaScript has ended, nobody waits.
        self.0.call((), NonBlocking);
    }
}

impl Generation {
    /// Follows what `start` starts.
    pub(crate) fn start(
        wake: &Function<'_, (), ()>,
        start: impl FnOnce() -> skulk::Result<skulk::Generation>,
    ) -> napi::Result<Self> {
        let alarm = wake.build_threadsafe_function::<()>().weak::<true>().build_callback(|_| Ok(()))?;
        let running = start().map_err(raise)?;
        Ok(Self { running: Some(running), ended: false, waker: Waker::from(Arc::new(Alarm(alarm))) })
    }

    fn poll_with<T>(
        &mut self,
        poll: impl FnOnce(&mut skulk::Generation, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<Option<T>> {
        let mut cx = Context::from_waker(&self.waker);
        match &mut self.running {
            Some(running) => poll(running, &mut cx).map(Some),
            None => Poll::Ready(None),
        }
    }
}

#[napi]
impl Generation {
    /// The prompt's tokens.
    #[napi(catch_unwind)]
    pub fn prompt_ids(&self) -> Vec<u32> {
        self.running.as_ref().map(|running| numbers(running.prompt_ids())).unwrap_or_default()
    }

    /// The next event; `true` behind the last, and `false` when there is none yet.
    #[napi(catch_unwind)]
    pub fn poll(&mut self) -> napi::Result<Either<Event, bool>> {
        match self.poll_with(skulk::Generation::poll_event).map(Option::flatten) {
            Poll::Pending => Ok(Either::B(false)),
            Poll::Ready(Some(Ok(event))) => {
                self.ended |= event.finish.is_some();
                event_of(event).map(Either::A)
            }
            end => {
                self.ended = true;
                match end {
                    Poll::Ready(Some(Err(error))) => Err(raise(error)),
                    _ => Ok(Either::B(true)),
                }
            }
        }
    }

    /// All that was not read yet, as JSON, once it is there.
    #[napi(catch_unwind)]
    pub fn output(&mut self) -> napi::Result<Option<String>> {
        match self.poll_with(skulk::Generation::poll_output) {
            Poll::Ready(Some(output)) => {
                self.ended = true;
                output.and_then(|output| write(&output)).map(Some).map_err(raise)
            }
            _ => Ok(None),
        }
    }

    /// Drops what is left to read. Whether that was all.
    #[napi(catch_unwind)]
    pub fn skip(&mut self) -> bool {
        loop {
            match self.poll_with(skulk::Generation::poll_event).map(Option::flatten) {
                Poll::Pending => return false,
                Poll::Ready(None) => {
                    self.ended = true;
                    return true;
                }
                Poll::Ready(Some(_)) => {}
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let running = self.running.take().filter(|_| !self.ended);
        if let Some(running) = running {
            running.cancel();
            // It waits for the step under way: not on JavaScript's thread, unless there is no other.
            drop(thread::Builder::new().spawn(move || drop(running)));
        }
    }
}

fn event_of(event: skulk::Event) -> napi::Result<Event> {
    let finish = event.finish.as_ref().map(|finish: &Finish| write(finish)).transpose().map_err(raise)?;
    let of = |top: &skulk::TokenLogprob| TokenLogprob { id: top.id.0, logprob: f64::from(top.logprob) };
    let token = event.token.as_ref();
    Ok(Event {
        id: token.map(|token| token.id.0),
        logprob: token.and_then(|token| token.logprob).map(f64::from),
        top_logprobs: token
            .filter(|token| !token.top_logprobs.is_empty())
            .map(|token| token.top_logprobs.iter().map(of).collect()),
        text: event.text,
        finish,
    })
}
