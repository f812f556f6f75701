//! How does Node.js follow an answer? Event by event, as JSON.

use std::task::{Poll, ready};

use napi::bindgen_prelude::{Either, Function};
use napi_derive::napi;
use skulk::{CancelToken, ChatEvent};
use skulk_contract::chat::Conversation;
use skulk_contract::functions::write;
use skulk_contract::options::Spelling;

use crate::error::raise;
use crate::running::Running;

/// An answer that is being written.
#[napi]
pub struct ChatStream(Running<skulk::ChatStream>);

/// Messages and options, as JavaScript wrote them.
pub(crate) fn conversation(arguments: &str) -> napi::Result<Conversation> {
    Conversation::read(arguments, Spelling::Camel).map_err(raise)
}

impl ChatStream {
    /// Follows what `start` starts.
    pub(crate) fn start(
        wake: &Function<'_, (), ()>,
        cancel: CancelToken,
        start: impl FnOnce(CancelToken) -> skulk::Result<skulk::ChatStream>,
    ) -> napi::Result<Self> {
        Running::start(wake, cancel, start).map(Self)
    }
}

#[napi]
impl ChatStream {
    /// The prompt that the messages became, as JSON.
    #[napi(catch_unwind)]
    pub fn prompt(&self) -> napi::Result<String> {
        write(&self.0.get().map(skulk::ChatStream::prompt)).map_err(raise)
    }

    /// The answer as far as it was read, as the JSON of a message.
    #[napi(catch_unwind)]
    pub fn message(&self) -> napi::Result<String> {
        let message = self.0.get().map(skulk::ChatStream::message).transpose();
        message.and_then(|message| write(&message)).map_err(raise)
    }

    /// The next event as JSON; `true` behind the last, and `false` when there is none yet.
    #[napi(catch_unwind)]
    pub fn poll(&mut self) -> napi::Result<Either<String, bool>> {
        match self.0.poll(skulk::ChatStream::poll_event).map(Option::flatten) {
            Poll::Pending => Ok(Either::B(false)),
            Poll::Ready(Some(Ok(event))) => {
                self.0.ended |= matches!(event, ChatEvent::Finish { .. });
                write(&event).map(Either::A).map_err(raise)
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

    /// The whole answer as JSON, once it is there.
    #[napi(catch_unwind)]
    pub fn answer(&mut self) -> napi::Result<Option<String>> {
        match self.0.poll(skulk::ChatStream::poll_answer) {
            Poll::Ready(Some(answer)) => {
                self.0.ended = true;
                answer.and_then(|answer| write(&answer)).map(Some).map_err(raise)
            }
            _ => Ok(None),
        }
    }

    /// Reads what is left. Whether that was all.
    #[napi(catch_unwind)]
    pub fn skip(&mut self) -> bool {
        let skipped = self.0.poll(|stream, cx| {
            while ready!(stream.poll_event(cx)).is_some() {}
            Poll::Ready(())
        });
        self.0.ended |= skipped.is_ready();
        skipped.is_ready()
    }
}
