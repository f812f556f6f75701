//! How does Node.js step through a conversation whose functions it runs? What is behind a `ToolChat`.

use std::task::{Poll, ready};

use napi::bindgen_prelude::{Either, Function};
use napi_derive::napi;
use skulk::CancelToken;
use skulk_contract::chat::{self, ToolStep};
use skulk_contract::functions::write;

use crate::error::raise;
use crate::running::Running;

/// What is behind a `ToolChat`.
#[napi]
pub struct ToolSteps(Running<chat::ToolSteps>);

impl ToolSteps {
    /// Follows what `start` starts.
    pub(crate) fn start(
        wake: &Function<'_, (), ()>,
        cancel: CancelToken,
        start: impl FnOnce(CancelToken) -> skulk::Result<chat::ToolSteps>,
    ) -> napi::Result<Self> {
        Running::start(wake, cancel, start).map(Self)
    }
}

#[napi]
impl ToolSteps {
    /// The next step as JSON; `true` behind the last, and `false` when there is none yet.
    #[napi(catch_unwind)]
    pub fn poll(&mut self) -> napi::Result<Either<String, bool>> {
        match self.0.poll(chat::ToolSteps::poll).map(Option::flatten) {
            Poll::Pending => Ok(Either::B(false)),
            Poll::Ready(Some(Ok(step))) => write(&step).map(Either::A).map_err(raise),
            end => {
                self.0.ended = true;
                match end {
                    Poll::Ready(Some(Err(error))) => Err(raise(error)),
                    _ => Ok(Either::B(true)),
                }
            }
        }
    }

    /// What became of a call: what its function gave, or the text of its error. What the model is told comes back as
    /// JSON.
    #[napi(catch_unwind)]
    pub fn give(&mut self, id: String, text: String, failed: bool) -> napi::Result<String> {
        let outcome = if failed { Err(text) } else { Ok(text) };
        let result = self.0.get_mut().map(|steps| steps.give(&id, outcome)).transpose();
        result.and_then(|result| write(&result)).map_err(raise)
    }

    /// Which round it is, from 0.
    #[napi(catch_unwind)]
    pub fn round(&self) -> u32 {
        let round = self.0.get().map_or(0, chat::ToolSteps::round);
        u32::try_from(round).unwrap_or(u32::MAX)
    }

    /// All of the conversation, as JSON.
    #[napi(catch_unwind)]
    pub fn messages(&self) -> napi::Result<String> {
        write(&self.0.get().map(chat::ToolSteps::messages)).map_err(raise)
    }

    /// How the last answer that was read ended, as JSON.
    #[napi(catch_unwind)]
    pub fn finish(&self) -> napi::Result<String> {
        write(&self.0.get().and_then(chat::ToolSteps::finish)).map_err(raise)
    }

    /// Drops what is left to read, until a call waits, which nobody answers. Whether that was all.
    #[napi(catch_unwind)]
    pub fn skip(&mut self) -> bool {
        let skipped = self.0.poll(|steps, cx| {
            while let Some(step) = ready!(steps.poll(cx)) {
                if matches!(step, Ok(ToolStep::Call { .. })) {
                    break;
                }
            }
            Poll::Ready(())
        });
        self.0.ended |= skipped.is_ready();
        skipped.is_ready()
    }
}
