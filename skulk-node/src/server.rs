//! How does Node.js serve a model's blocks to others? What is behind `serve` and `Server`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use napi_derive::napi;
use skulk_contract::functions;
use skulk_contract::options::{ServeOptions, grace};

use crate::arguments_of;
use crate::job::{self, Answer, CancelToken, Tell};

/// A server of feed-forward blocks and experts.
#[napi]
pub struct Server(Arc<skulk::Server>);

/// Serves the checkpoint at a path.
#[napi(catch_unwind)]
pub fn serve(arguments: String, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
    job::start(&tell, token, move |work| {
        let mut given = arguments_of(&arguments)?;
        let path: PathBuf = given.take("path")?;
        let (options, spelling) = given.options()?;
        let options = ServeOptions::read(options, spelling)?.cancel(work.cancel);
        functions::serve(&path, &options).map(Answer::Server)
    })
}

impl Server {
    pub(crate) fn new(server: skulk::Server) -> Self {
        Self(Arc::new(server))
    }
}

#[napi]
impl Server {
    /// Where it listens.
    #[napi(catch_unwind)]
    pub fn address(&self) -> String {
        self.0.address().to_string()
    }

    /// Numbers in the text format of OpenMetrics.
    #[napi(catch_unwind)]
    pub fn metrics(&self) -> String {
        self.0.metrics()
    }

    /// Stops it, within `grace` seconds.
    #[napi(catch_unwind)]
    pub fn stop(&self, arguments: String, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let server = Arc::clone(&self.0);
        job::start(&tell, token, move |_| {
            server.stop(grace(arguments_of(&arguments)?.take("grace")?)?);
            Ok(Answer::Json("null".into()))
        })
    }

    /// Waits until it has stopped.
    #[napi(catch_unwind)]
    pub fn wait(&self, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let server = Arc::clone(&self.0);
        job::start(&tell, token, move |_| {
            server.wait();
            Ok(Answer::Json("null".into()))
        })
    }

    /// Stops it at once.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        self.0.stop(Duration::ZERO);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Threads that wait for it hold it, too.
        self.0.stop(Duration::ZERO);
    }
}
