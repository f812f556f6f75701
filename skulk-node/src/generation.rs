//! How does Node.js read a running generation? Step by step, or all at once.

use std::task::Poll;

use napi::bindgen_prelude::{Either, Function};
use napi_derive::napi;
use skulk::{CancelToken, Finish};
use skulk_contract::functions::write;

use crate::error::raise;
use crate::model::numbers;
use crate::running::Running;

/// A running generation.
#[napi]
pub struct Generation(Running<skulk::Generation>);

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

impl Generation {
    /// Follows what `start` starts.
    pub(crate) fn start(
        wake: &Function<'_, (), ()>,
        cancel: CancelToken,
        start: impl FnOnce(CancelToken) -> skulk::Result<skulk::Generation>,
    ) -> napi::Result<Self> {
        Running::start(wake, cancel, start).map(Self)
    }
}

#[napi]
impl Generation {
    /// The prompt's tokens.
    #[napi(catch_unwind)]
    pub fn prompt_ids(&self) -> Vec<u32> {
        self.0.get().map(|running| numbers(running.prompt_ids())).unwrap_or_default()
    }

    /// The next event; `true` behind the last, and `false` when there is none yet.
    #[napi(catch_unwind)]
    pub fn poll(&mut self) -> napi::Result<Either<Event, bool>> {
        match self.0.poll(skulk::Generation::poll_event).map(Option::flatten) {
            Poll::Pending => Ok(Either::B(false)),
            Poll::Ready(Some(Ok(event))) => {
                self.0.ended |= event.finish.is_some();
                event_of(event).map(Either::A)
            }
            end => {
                self.0.ended = true;
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
        match self.0.poll(skulk::Generation::poll_output) {
            Poll::Ready(Some(output)) => {
                self.0.ended = true;
                output.and_then(|output| write(&output)).map(Some).map_err(raise)
            }
            _ => Ok(None),
        }
    }

    /// Drops what is left to read. Whether that was all.
    #[napi(catch_unwind)]
    pub fn skip(&mut self) -> bool {
        loop {
            match self.0.poll(skulk::Generation::poll_event).map(Option::flatten) {
                Poll::Pending => return false,
                Poll::Ready(None) => {
                    self.0.ended = true;
                    return true;
                }
                Poll::Ready(Some(_)) => {}
            }
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
