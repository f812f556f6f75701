//! How does long work go on beside JavaScript? On another thread, which sends its steps and then its result to one callback, in
//! order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use napi::bindgen_prelude::{Buffer, Either9, Float32Array, FnArgs, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi_derive::napi;
use skulk::{Error, ErrorKind, embed};
use skulk_contract::folders;
use skulk_contract::functions::{Work, failure};
use skulk_contract::threads;

use crate::embed::EmbeddingModel;
use crate::error::raise;
use crate::model::Model;
use crate::placement::Placement;
use crate::server::Server;
use crate::session::Session;
use crate::vindex::Vindex;

/// What stops work. When JavaScript ends, so does the work that its tokens are for.
#[napi]
#[derive(Default)]
pub struct CancelToken(skulk::CancelToken);

#[napi]
impl CancelToken {
    /// A token that nobody has cancelled yet.
    #[napi(constructor, catch_unwind)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work to stop. Returns at once.
    #[napi(catch_unwind)]
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl CancelToken {
    /// A token that this one stops.
    pub(crate) fn child(&self) -> skulk::CancelToken {
        self.0.child()
    }
}

impl Drop for CancelToken {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A callback for a step, an error or a result: one of its three arguments is not null.
pub(crate) type Tell<'a> = Function<'a, (), ()>;

/// What work results in.
pub(crate) enum Answer {
    Json(String),
    Floats(Vec<f32>),
    Bytes(Vec<u8>),
    Model(skulk::Model),
    Session(skulk::Session),
    Vindex(folders::Folder),
    Placement(Box<skulk::Placement>),
    Embedding(Arc<embed::EmbeddingModel>),
    Server(skulk::Server),
}

/// The same in JavaScript.
type Given = Either9<String, Float32Array, Buffer, Model, Session, Vindex, Placement, EmbeddingModel, Server>;

impl From<Answer> for Given {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Json(text) => Self::A(text),
            Answer::Floats(values) => Self::B(Float32Array::new(values)),
            Answer::Bytes(bytes) => Self::C(bytes.into()),
            Answer::Model(model) => Self::D(Model::new(model)),
            Answer::Session(session) => Self::E(Session::new(session)),
            Answer::Vindex(folder) => Self::F(Vindex::new(folder)),
            Answer::Placement(placement) => Self::G(Placement(*placement)),
            Answer::Embedding(model) => Self::H(EmbeddingModel::new(model)),
            Answer::Server(server) => Self::I(Server::new(server)),
        }
    }
}

enum Message {
    Step(String),
    Done(Box<skulk::Result<Answer>>),
}

/// Does `work` on another thread, which `token` stops. The event loop goes on until `tell` has the result.
pub(crate) fn start(
    tell: &Tell<'_>,
    token: &CancelToken,
    work: impl FnOnce(Work) -> skulk::Result<Answer> + Send + 'static,
) -> napi::Result<()> {
    threads::start(told(tell, token, work)?).map_err(raise)
}

/// The same of what only computes, and hosts begin by hundreds.
pub(crate) fn in_turn(
    tell: &Tell<'_>,
    token: &CancelToken,
    work: impl FnOnce(Work) -> skulk::Result<Answer> + Send + 'static,
) -> napi::Result<()> {
    threads::in_turn(told(tell, token, work)?).map_err(raise)
}

/// `work`, whose steps and result JavaScript is told.
fn told(
    tell: &Tell<'_>,
    token: &CancelToken,
    work: impl FnOnce(Work) -> skulk::Result<Answer> + Send + 'static,
) -> napi::Result<impl FnOnce() + Send + 'static> {
    let messages = tell.build_threadsafe_function::<Message>().build_callback(|message| {
        Ok(FnArgs::<(Option<String>, Option<String>, Option<Given>)>::from(match message.value {
            Message::Step(step) => (Some(step), None, None),
            Message::Done(done) => match *done {
                Err(error) => (None, Some(failure(&error)), None),
                Ok(answer) => (None, None, Some(answer.into())),
            },
        }))
    })?;
    let messages = Arc::new(messages);
    let steps = Arc::clone(&messages);
    // Where JavaScript has ended, nobody listens.
    let progress = Arc::new(move |step| {
        steps.call(Message::Step(step), NonBlocking);
    });
    let work_on = Work { cancel: token.child(), progress };
    Ok(move || {
        let done = catch_unwind(AssertUnwindSafe(|| work(work_on))).unwrap_or_else(|_| Err(lost()));
        messages.call(Message::Done(Box::new(done)), NonBlocking);
    })
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "the work panicked")
}
